//! A WQE of the caller's own making is the caller's to answer for.

fn main() {
    let _ = mlx5::RawWqe::new(&[0; 16]);
}
