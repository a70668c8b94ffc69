//! Rates of links and paths: the number on the wire, multiples of 2.5 Gbit/s, and Mbit/s.

use crate::abi::*;

/// A rate: its number, its multiple of 2.5 Gbit/s if C has one, and its Mbit/s.
///
/// The rates of 14 Gbit/s and its multiples, and of 25, are not such multiples. Two newer ones (28
/// and 50) have the nearest multiple below.
type Rate = (c_uint, Option<c_int>, c_int);

const RATES: [Rate; 23] = [
    (IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (IBV_RATE_5_GBPS, Some(2), 5_000),
    (IBV_RATE_10_GBPS, Some(4), 10_000),
    (IBV_RATE_20_GBPS, Some(8), 20_000),
    (IBV_RATE_30_GBPS, Some(12), 30_000),
    (IBV_RATE_40_GBPS, Some(16), 40_000),
    (IBV_RATE_60_GBPS, Some(24), 60_000),
    (IBV_RATE_80_GBPS, Some(32), 80_000),
    (IBV_RATE_120_GBPS, Some(48), 120_000),
    (IBV_RATE_14_GBPS, None, 14_062),
    (IBV_RATE_56_GBPS, None, 56_250),
    (IBV_RATE_112_GBPS, None, 112_500),
    (IBV_RATE_168_GBPS, None, 168_750),
    (IBV_RATE_25_GBPS, None, 25_781),
    (IBV_RATE_100_GBPS, None, 103_125),
    (IBV_RATE_200_GBPS, None, 206_250),
    (IBV_RATE_300_GBPS, None, 309_375),
    (IBV_RATE_28_GBPS, Some(11), 28_125),
    (IBV_RATE_50_GBPS, Some(20), 53_125),
    (IBV_RATE_400_GBPS, Some(160), 425_000),
    (IBV_RATE_600_GBPS, Some(240), 637_500),
    (IBV_RATE_800_GBPS, Some(320), 850_000),
    (IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

fn first<T>(is: impl Fn(&Rate) -> bool, of: impl Fn(&Rate) -> Option<T>) -> Option<T> {
    RATES.iter().find(|rate| is(rate)).and_then(of)
}

/// `ibv_rate_to_mult`: −1 for a rate without a multiple.
pub extern "C" fn rate_to_mult(rate: c_uint) -> c_int {
    first(|known| known.0 == rate, |known| known.1).unwrap_or(-1)
}

/// `mult_to_ibv_rate`: the rate that means "any" if none has the multiple.
pub extern "C" fn mult_to_rate(mult: c_int) -> c_uint {
    first(|known| known.1 == Some(mult), |known| Some(known.0)).unwrap_or(IBV_RATE_MAX)
}

/// `ibv_rate_to_mbps`: −1 for an unknown rate.
pub extern "C" fn rate_to_mbps(rate: c_uint) -> c_int {
    first(|known| known.0 == rate, |known| Some(known.2)).unwrap_or(-1)
}

/// `mbps_to_ibv_rate`: the rate that means "any" if none is of this speed.
pub extern "C" fn mbps_to_rate(mbps: c_int) -> c_uint {
    first(|known| known.2 == mbps, |known| Some(known.0)).unwrap_or(IBV_RATE_MAX)
}
