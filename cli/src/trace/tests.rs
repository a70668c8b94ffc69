use super::*;

#[test]
fn times_between_looks_have_units_and_bounds() {
    for (text, micros) in [("100us", 100), ("1ms", 1000), ("0.5s", 500_000), ("2 ms", 2000)] {
        assert_eq!(parse_interval(text), Ok(Duration::from_micros(micros)), "{text}");
    }
    for text in ["", "1", "ms", "-1ms", "0ms", "1us", "11s", "1min", "NaNms"] {
        assert!(parse_interval(text).is_err(), "{text}");
    }
}

#[test]
fn numbers_of_queues_are_those_of_the_lines() {
    assert_eq!(parse_number("0x000048"), Ok(0x48));
    assert_eq!(parse_number("72"), Ok(72));
    for text in ["", "0x", "48h", "-1", "0x1000000"] {
        assert!(parse_number(text).is_err(), "{text}");
    }
}
