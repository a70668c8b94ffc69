//! The conformance suite as a program, to be copied to the machine with the device.

fn main() -> std::process::ExitCode {
    mlx5_conformance::main()
}
