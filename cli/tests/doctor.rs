//! `mlx5 doctor`.

mod common;

use common::{Ended, command, mlx5};

#[test]
fn a_simulated_device_is_well() {
    let text = mlx5("doctor --sim").done();
    assert!(text.starts_with("machine\n  ok    kernel "), "{text}");
    assert!(text.contains("mlx5_0: simulated ConnectX-7"), "{text}");
    assert!(text.contains("  ok    port 1 is active, InfiniBand, 200 Gb/s\n"), "{text}");
    assert!(text.contains("bytes to itself and back, every byte verified"), "{text}");
    let last = text.lines().last().unwrap_or_default();
    // The machine's warnings do not concern the device.
    assert!(last.starts_with("verdict: the simulated device works"), "{text}");
    assert!(!last.contains(", with "), "{text}");
    assert!(!text.contains("FAIL"), "{text}");
}

#[test]
fn a_roce_port_has_its_addresses_and_a_remedy_for_small_frames() {
    let text = mlx5("doctor --sim-link roce").done();
    assert!(text.contains("  ok    GID 3: 10.0.0.1, RoCE v2"), "{text}");
    assert!(text.contains("  warn  path MTU 1024 of 4096\n"), "{text}");
    assert!(text.contains("`PortConfig::mtu` to 4096"), "{text}");
    assert!(text.contains("\nverdict: the simulated device works, with 1 warning"), "{text}");
}

/// Failures are counted, and the exit status reports them; the other checks are still printed.
#[test]
fn what_fails_has_a_remedy_and_a_status() {
    let run = mlx5("doctor --sim --port 3");
    assert!(run.out.contains("  FAIL  port 3: "), "{}", run.out);
    assert!(run.out.contains("        --port takes 1 to 1\n"), "{}", run.out);
    let last = run.out.lines().last().unwrap_or_default();
    assert!(last.starts_with("verdict: the simulated device does not work: 1 failure, "), "{last}");
    let text = run.failed();
    assert!(text.contains("mlx5: 1 failure, ") && text.contains("hint: "), "{text}");
    let run = mlx5("doctor --sim --peer localhost");
    assert!(run.out.contains("localhost cannot be reached"), "{}", run.out);
    run.failed();
}

#[test]
fn the_library_of_the_environment_is_named() {
    let folder = std::env::temp_dir().join(format!("mlx5-doctor-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let library = folder.join("libibverbs.so.1");
    std::fs::write(&library, "").expect("a file");
    let output = command(&["doctor", "--sim"]).env("LD_LIBRARY_PATH", &folder).ended();
    std::fs::remove_dir_all(&folder).expect("the folder");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = format!("programs in C get rdma-core's libibverbs: {}\n", library.display());
    assert!(text.contains(&line), "{text}");
}
