//! `mlx5 explain`: error texts in, causes out.

mod common;

use common::{mlx5, mlx5_with_input};

const REFUSED: &str = "[1.2] mlx5_core 0000:04:00.0: mlx5_cmd_out_err:818:(pid 9): RTR2RTS_QP(0x504) \
    op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x4bb88f), err(-22)\n";

#[test]
fn a_refused_command_is_explained_from_a_part_of_its_line_and_from_all_of_it() {
    let cause = "cause           a retry count above 7";
    for part in ["explain 0x4bb88f", "explain status bad parameter(0x3), syndrome (0x4bb88f)"] {
        let text = mlx5(part).done();
        assert!(text.contains(cause) && text.contains("try   "), "{part}: {text}");
        assert!(text.contains("charm/issues/2532"), "{part}: {text}");
    }
    let text = mlx5_with_input("explain", REFUSED).done();
    assert!(text.starts_with("line 1: the firmware refused RTR2RTS_QP\n"), "{text}");
    for said in [
        cause,
        "command         RTR2RTS_QP          opcode 0x504",
        "status          0x3                 a parameter is not supported or not valid",
        "err             -22                 Invalid argument",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn an_unknown_syndrome_is_not_published_and_says_how_to_report_it() {
    let text = mlx5("explain status bad parameter(0x3), syndrome (0xabcdef)").done();
    assert!(text.contains("cause           not published"), "{text}");
    assert!(text.contains("vendor's support") && !text.contains("source  "), "{text}");
    let text = mlx5("explain (synd 0x4 vend 0xee hw_synd 0/119)").done();
    assert!(text.contains("vendor_err_synd 0xee                not published"), "{text}");
    assert!(text.contains("hw_err_synd     0x77                not published"), "{text}");
}

#[test]
fn a_text_without_an_error_is_refused_with_a_hint() {
    let text = mlx5("explain all is well").failed();
    assert!(text.contains("mlx5: no error of an mlx5 device is in this text\n  hint: "), "{text}");
}

#[test]
fn the_explanation_is_json_for_programs() {
    let text = mlx5_with_input("explain --json", REFUSED).done();
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(all["command"], "mlx5 explain");
    let item = &all["items"][0];
    assert_eq!(
        (&item["line"], &item["title"]),
        (&1.into(), &"the firmware refused RTR2RTS_QP".into())
    );
    let cause =
        item["fields"].as_array().expect("fields").iter().find(|one| one["name"] == "cause");
    assert!(cause.is_some_and(|one| one["at"].is_null()), "{item}");
}
