//! The conformance suite, as `cargo test` runs it.

fn main() -> std::process::ExitCode {
    mlx5_conformance::main()
}
