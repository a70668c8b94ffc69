//! The conformance suite as a program, to be carried to where the device is.

fn main() -> std::process::ExitCode {
    mlx5_conformance::main()
}
