//! `mlx5 list`, `info`, `pingpong` and `cancel` on the simulated device.

mod common;

use common::{Ended, mlx5};
use std::process::{Command, Stdio};

/// The value that `mlx5 info` gives for a name.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[test]
fn the_simulated_device_is_listed() {
    let run = mlx5("list --sim");
    assert!(run.err.contains("simulated"), "{}", run.err);
    let text = run.done();
    assert!(text.starts_with("DEVICE"), "{text}");
    assert!(text.contains("mlx5_0  ConnectX-7") && text.contains("active"), "{text}");
    assert!(text.lines().all(|line| line == line.trim_end()));
}

#[test]
fn every_model_and_link_can_be_simulated() {
    for (model, part, id) in [
        ("cx5", "ConnectX-5", "0x1017"),
        ("cx6", "ConnectX-6", "0x101b"),
        ("cx6dx", "ConnectX-6 Dx", "0x101d"),
        ("cx7", "ConnectX-7", "0x1021"),
    ] {
        for (link, layer) in [("ib", "InfiniBand"), ("roce", "Ethernet (RoCE)")] {
            // A 6 Dx has Ethernet ports only.
            if (model, link) == ("cx6dx", "ib") {
                let line = format!("info --sim-model {model} --sim-link {link}");
                assert!(mlx5(&line).refused().contains("--sim-link roce"));
                continue;
            }
            let run = mlx5(&format!("info --sim-model {model} --sim-link {link}"));
            assert!(run.err.contains(&format!("simulated {part},")), "{}", run.err);
            let text = run.done();
            assert_eq!(value(&text, "part"), Some(part));
            assert!(value(&text, "vendor_part_id").is_some_and(|value| value.contains(id)));
            assert_eq!(value(&text, "link_layer"), Some(layer));
            assert_eq!(value(&text, "state"), Some("active (4)"));
        }
    }
}

#[test]
fn more_is_told_on_demand() {
    let short = mlx5("info --sim").done();
    let long = mlx5("info --sim -v").done();
    for name in ["max_qp", "max_cqe", "blueflame", "devx", "device_cap_flags", "GID[0]"] {
        assert_eq!(value(&short, name), None, "{name}");
        assert!(value(&long, name).is_some_and(|value| !value.is_empty()), "{name}");
    }
    assert_eq!(value(&long, "P_Key[0]"), Some("0xffff"));
    let roce = mlx5("info --sim-link roce -v").done();
    assert!(value(&roce, "GID[3]").is_some_and(|gid| gid.contains("RoCE v2")), "{roce}");
    // Interfaces by name, and by number.
    assert!(
        value(&roce, "GID[3]").is_some_and(|gid| gid.ends_with(", interface eth2 (2)")),
        "{roce}"
    );
}

/// The JSON has what the text has, under the same names.
#[test]
fn programs_read_json() {
    let devices: serde_json::Value =
        serde_json::from_str(&mlx5("list --sim --json").done()).expect("JSON");
    assert_eq!(devices[0]["name"], "mlx5_0");
    assert_eq!(devices[0]["ports"][0]["state"], "active");
    let (text, json) = (mlx5("info --sim -v").done(), mlx5("info --sim -v --json").done());
    let device: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let device = &device[0];
    let port = &device["ports"][0];
    // Every name of the text, and what stands in an array.
    for line in text.lines() {
        let Some((name, _)) = line.trim().split_once(':') else { continue };
        if name.starts_with(char::is_lowercase) && !name.contains(' ') {
            assert!(device.get(name).or_else(|| port.get(name)).is_some(), "{name}");
        }
    }
    for name in ["max_qp", "max_cqe", "cqe_version"] {
        assert_eq!(Some(&*device[name].to_string()), value(&text, name), "{name}");
    }
    for name in ["vendor_id", "vendor_part_id", "hw_ver", "hca_core_clock", "blueflame"] {
        assert!(device[name].is_u64(), "{name}: {device}");
    }
    assert_eq!((&device["devx"], &port["grh_required"]), (&true.into(), &false.into()));
    assert_eq!((&port["rate"], &port["active_mtu"]), (&200.0.into(), &4096.into()));
    assert_eq!((&device["transport"], &port["state"]), (&"InfiniBand".into(), &"active".into()));
    assert_eq!(port["pkeys"], serde_json::json!([{ "index": 0, "pkey": 0xffff }]));
    let roce: serde_json::Value =
        serde_json::from_str(&mlx5("info --sim-link roce -v --json").done()).expect("JSON");
    let gid = &roce[0]["ports"][0]["gids"][3];
    assert_eq!((&gid["index"], &gid["type"]), (&3.into(), &"RoCE v2".into()));
    assert_eq!((&gid["interface"], &gid["ifindex"]), (&"eth2".into(), &2.into()));
    assert!(gid["gid"].as_str().is_some_and(|gid| gid.contains(':')), "{gid}");
    assert!(device["device_cap_flags_names"].as_array().is_some_and(|names| names.len() > 5));
    for word in ["CqeCompFormat", "Some(", "None"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

#[test]
fn messages_bounce_over_every_transport_and_link() {
    for link in ["ib", "roce"] {
        for transport in ["rc", "uc", "ud"] {
            let line = format!("pingpong --sim-link {link} --transport {transport} -n 20");
            let text = mlx5(&line).done();
            assert!(text.contains("20 messages of "), "{text}");
            assert!(text.contains("every byte verified"), "{text}");
            let endpoint = format!("mlx5-endpoint/1 transport={transport} ");
            assert_eq!(text.matches(&endpoint).count(), 2, "{text}");
        }
    }
}

#[test]
fn messages_of_odd_sizes_bounce_too() {
    for size in ["0", "1", "4097", "1m"] {
        let text = mlx5(&format!("pingpong --sim --size {size} -n 5")).done();
        assert!(text.contains(&format!("5 messages of {size} bytes")), "{text}");
    }
}

#[test]
fn messages_bounce_between_sleepers() {
    let text = mlx5("pingpong --sim --events -n 20").done();
    assert!(text.contains("20 messages of 4k bytes"), "{text}");
}

/// The story needs what the model may not have: the command follows the device.
#[test]
fn a_model_that_cannot_play_says_what_it_lacks() {
    for (model, lacks) in [("cx5", "signed memory keys"), ("cx6", "drain a send queue")] {
        let run = mlx5(&format!("cancel --sim-model {model}"));
        assert!(run.err.contains(lacks), "{model}: {}", run.err);
        run.failed();
    }
    for model in ["cx6dx", "cx7"] {
        assert!(mlx5(&format!("cancel --sim-model {model}")).done().contains("1 cancelled"));
    }
}

#[test]
fn a_model_by_another_name_is_told_the_names() {
    let reported = mlx5("info --sim-model connectx7").refused();
    assert!(reported.contains("cx5, cx6, cx6dx, cx7"), "{reported}");
}

#[test]
fn the_response_of_a_corrupt_transfer_is_cancelled_and_a_failure_sent_instead() {
    let text = mlx5("cancel --sim").done();
    assert_eq!(text.matches("SQ_DRAINED:").count(), 1, "{text}");
    assert_eq!(text.matches("no error").count(), 3, "{text}");
    assert!(text.contains("guard") && text.contains("520, block 2"), "{text}");
    assert!(text.contains("1 cancelled: 102"), "{text}");
    assert_eq!(text.matches("NOP").count(), 1, "{text}");
    assert_eq!(text.matches("success  cancelled").count(), 1, "{text}");
    // Of the four responses and what was sent instead of one, by the name that the ring has, too.
    assert_eq!(text.matches("  SEND       success").count(), 5, "{text}");
    for arrived in ["transfer 1 done", "transfer 3 done", "transfer 4 done"] {
        assert!(text.contains(&format!("   \"{arrived}\"\n")), "{text}");
    }
    assert!(text.contains("   \"transfer 2 failed\"\n"), "{text}");
    assert!(!text.contains("\"transfer 2 done\""), "{text}");
    assert!(text.contains("transfer 2: not what was stored, in block 2"), "{text}");
    assert_eq!(text.matches(": as it was stored").count(), 3, "{text}");
}

#[test]
fn several_transfers_fail_in_one_drain_or_one_after_the_other() {
    let one = mlx5("cancel --sim-link roce -n 6 -c 2,5").done();
    assert_eq!(one.matches("SQ_DRAINED:").count(), 1, "{one}");
    assert!(one.contains("2 cancelled: 102, 105"), "{one}");
    let two = mlx5("cancel --sim --interleaved -c 2,3").done();
    assert_eq!(two.matches("SQ_DRAINED:").count(), 2, "{two}");
    assert!(two.contains("1 cancelled: 102") && two.contains("1 cancelled: 103"), "{two}");
    for text in [one, two] {
        assert_eq!(text.matches("success  cancelled").count(), 2, "{text}");
        assert_eq!(text.matches(" failed\"\n   \"").count(), 1, "{text}");
    }
}

#[test]
fn the_key_tells_which_part_of_which_block_is_corrupt() {
    for (part, row) in [
        ("guard", "guard"),
        ("application-tag", "application tag  0x100     0x0     1040, block 3"),
        ("reference-tag", "reference tag  0x1000002  0x2     1040, block 3"),
    ] {
        let text = mlx5(&format!("cancel --sim -n 1 -b 4 -c 1:3 --part {part}")).done();
        assert!(text.contains(row) && text.contains("1040, block 3"), "{text}");
        assert!(text.contains("transfer 1: as it was stored"), "{text}");
        assert!(text.contains("1 cancelled: 101"), "{text}");
    }
}

/// The limit is the process's, not the device's.
#[test]
fn too_many_open_files_have_a_hint_of_their_own() {
    let script = format!("ulimit -n 5; exec {} pingpong --sim -n 1", env!("CARGO_BIN_EXE_mlx5"));
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).ended();
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("(ulimit -n)") && text.contains("hint: each device, "), "{text}");
}
