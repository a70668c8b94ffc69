//! `mlx5 list`, `info`, `pingpong` and `cancel` on the simulated device.

mod common;

use common::mlx5;

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

#[test]
fn pending_requests_are_cancelled_and_others_are_not() {
    let text = mlx5("cancel --sim").done();
    assert!(text.contains("2 cancelled: 5, 7"), "{text}");
    assert_eq!(text.matches("NOP").count(), 2, "{text}");
    assert_eq!(text.matches("untouched").count(), 2, "{text}");
    assert_eq!(text.matches("success  cancelled").count(), 2, "{text}");
    assert!(text.contains("\"write  6\""), "{text}");

    let executed = mlx5("cancel --sim --wr-id 2,7").done();
    assert!(executed.contains("1 cancelled: 7"), "{executed}");
    let refused = mlx5("cancel --sim --wr-id 2,7 --all-or-nothing").done();
    assert!(refused.contains("nothing cancelled: no pending request has wr_id [2]"), "{refused}");
    assert!(!refused.contains("NOP") && !refused.contains("untouched"), "{refused}");
    let all = mlx5("cancel --sim -n 3 --drain-after 0 -w 1,2,3").done();
    assert!(all.contains("3 cancelled: 1, 2, 3"), "{all}");
}
