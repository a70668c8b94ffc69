use super::*;
use mlx5_uapi::write_cmd::QueryQpResp;
use std::time::Duration;
use zerocopy::IntoBytes;

const HANDLE: u32 = 0x77;

fn path(port_num: u8, grh: Option<GlobalRoute>) -> AhAttr {
    AhAttr { port_num, dlid: 0x1234, sl: 5, src_path_bits: 3, static_rate: 6, grh }
}

fn route() -> GlobalRoute {
    GlobalRoute {
        dgid: Gid::from_bytes(*b"0123456789abcdef"),
        flow_label: 0xabcde,
        sgid_index: 9,
        hop_limit: 64,
        traffic_class: 0x20,
    }
}

/// Every attribute alone, with a value that leaves as few zero bytes in its field as possible, and
/// the ranges of its bytes in the extended request.
fn singles() -> Vec<(QpAttributes, &'static [(usize, usize)])> {
    let new = QpAttributes::new;
    let alternate =
        AlternatePath { ah_attr: path(2, None), pkey_index: 0x102, timeout: AckTimeout::MAX };
    let cap = QpSizes { max_send_wr: 1, ..QpSizes::default() };
    vec![
        (new().qp_state(QueueState::Error), &[(96, 97)]),
        (new().cur_qp_state(QueueState::SendQueueDrained), &[(97, 98)]),
        (new().en_sqd_async_notify(true), &[(100, 101)]),
        (new().qp_access_flags(AccessFlags::REMOTE_WRITE), &[(88, 92)]),
        (new().pkey_index(0x102), &[(92, 94)]),
        (new().port_num(2), &[(104, 105)]),
        (new().qkey(0x0102_0304), &[(72, 76)]),
        (new().ah_attr(path(1, Some(route()))), &[(0, 32)]),
        (new().path_mtu(Mtu::Mtu4096), &[(98, 99)]),
        (new().timeout(AckTimeout::MAX), &[(105, 106)]),
        (new().retry_cnt(RetryCount::MAX), &[(106, 107)]),
        (new().rnr_retry(RetryCount::MAX), &[(107, 108)]),
        (new().rq_psn(Psn::MAX), &[(76, 80)]),
        (new().max_rd_atomic(16), &[(101, 102)]),
        (new().alt_path(alternate), &[(32, 64), (94, 96), (108, 110)]),
        (new().min_rnr_timer(RnrTimer::MAX), &[(103, 104)]),
        (new().sq_psn(Psn::MAX), &[(80, 84)]),
        (new().max_dest_rd_atomic(16), &[(102, 103)]),
        (new().path_mig_state(MigState::Armed), &[(99, 100)]),
        (new().cap(cap), &[]),
        (new().dest_qp_num(QpNumber::MAX), &[(84, 88)]),
        (new().rate_limit(1_000_000), &[(112, 116)]),
    ]
}

#[test]
fn each_attribute_sets_its_own_bit() {
    let mut seen = QpAttrMask::empty();
    for (attributes, _) in singles() {
        let mask = attributes.mask();
        assert_eq!(mask.bits().count_ones(), 1, "{attributes:?}");
        assert!(!seen.intersects(mask), "{mask:?} twice");
        seen |= mask;
    }
    assert_eq!(seen, QpAttrMask::all(), "an attribute is not tested");
}

#[test]
fn each_bit_has_one_setter() {
    for bit in QpAttrMask::all().iter() {
        assert_eq!(QpAttributes::SETTERS.iter().filter(|row| row.0 == bit).count(), 1, "{bit:?}");
    }
}

#[test]
fn an_attribute_travels_in_its_own_bytes_and_nowhere_else() {
    let plain = QpAttributes::new().encode(HANDLE);
    for (attributes, ranges) in singles() {
        let mask = attributes.mask();
        let request = attributes.encode(HANDLE);
        assert_eq!(request.base.qp_handle, HANDLE);
        assert_eq!(request.base.attr_mask, mask.bits());
        let with_mask = ExModifyQp {
            base: ModifyQp { attr_mask: mask.bits(), ..plain.base },
            ..ExModifyQp::default()
        };
        let changed: Vec<usize> = request
            .as_bytes()
            .iter()
            .zip(with_mask.as_bytes())
            .enumerate()
            .filter(|(_, (with, without))| with != without)
            .map(|(at, _)| at)
            .collect();
        for at in &changed {
            assert!(
                ranges.iter().any(|(start, end)| (start..end).contains(&at)),
                "{mask:?} wrote byte {at}"
            );
        }
        for (start, end) in ranges {
            let touched = changed.iter().any(|at| (start..end).contains(&at));
            assert!(touched, "{mask:?} left {start}..{end}");
        }
    }
}

#[test]
fn numbers_arrive_as_they_were_given() {
    let request = QpAttributes::new()
        .rq_psn(Psn::new(0x123456).unwrap())
        .sq_psn(Psn::new(0x654321).unwrap())
        .dest_qp_num(QpNumber::new(0xabc).unwrap())
        .min_rnr_timer(RnrTimer::new(12).unwrap())
        .timeout(AckTimeout::new(14).unwrap())
        .encode(HANDLE)
        .base;
    assert_eq!((request.rq_psn, request.sq_psn, request.dest_qp_num), (0x123456, 0x654321, 0xabc));
    assert_eq!((request.min_rnr_timer, request.timeout), (12, 14));
}

#[test]
fn a_global_route_is_marked_as_such() {
    let dest = QpAttributes::new().ah_attr(path(1, Some(route()))).encode(HANDLE).base.dest;
    assert_eq!((dest.is_global, dest.sgid_index, dest.dgid), (1, 9, *b"0123456789abcdef"));
    let dest = QpAttributes::new().ah_attr(path(1, None)).encode(HANDLE).base.dest;
    assert_eq!((dest.is_global, dest.dlid, dest.dgid), (0, 0x1234, [0; 16]));
}

#[test]
fn the_alternate_path_names_its_port_twice() {
    let alternate =
        AlternatePath { ah_attr: path(2, None), pkey_index: 7, timeout: AckTimeout::MAX };
    let request = QpAttributes::new().alt_path(alternate).encode(HANDLE).base;
    assert_eq!((request.alt_port_num, request.alt_dest.port_num), (2, 2));
}

#[test]
fn only_a_rate_limit_needs_the_extended_request() {
    for (attributes, _) in singles() {
        assert_eq!(attributes.is_extended(), attributes.rate_limit.is_some(), "{attributes:?}");
    }
}

#[test]
fn the_last_value_counts() {
    let attributes = QpAttributes::new().port_num(1).port_num(2);
    assert_eq!(attributes.port_num, Some(2));
}

#[test]
fn limits_take_the_greatest_value_and_refuse_the_next() {
    assert_eq!(Psn::new(0xff_ffff), Ok(Psn::MAX));
    assert_eq!(QpNumber::new(0xff_ffff), Ok(QpNumber::MAX));
    assert_eq!(RetryCount::new(7), Ok(RetryCount::MAX));
    assert_eq!(AckTimeout::new(31), Ok(AckTimeout::MAX));
    assert_eq!(RnrTimer::new(31), Ok(RnrTimer::MAX));
    for refused in [
        Psn::new(0x100_0000).err(),
        QpNumber::new(u32::MAX).err(),
        RetryCount::new(8).err(),
        AckTimeout::new(32).err(),
        RnrTimer::new(255).err(),
    ] {
        assert!(refused.is_some());
    }
    assert_eq!(
        RetryCount::try_from(8).unwrap_err().to_string(),
        "retry count 8 is too large: at most 7"
    );
}

#[test]
fn an_acknowledge_timeout_is_not_shorter_than_the_time_that_it_stands_for() {
    let ns = Duration::from_nanos;
    for (time, timeout) in [
        (0, 1),
        (1, 1),
        (8192, 1),
        (8193, 2),
        (16_384, 2),
        (67_108_864, 14),
        (67_108_865, 15),
        (4096 << 31, 31),
    ] {
        let found = AckTimeout::at_least(ns(time)).unwrap();
        assert_eq!(found.get(), timeout, "{time}");
        assert!(found.duration().unwrap() >= ns(time));
        assert_eq!(AckTimeout::try_from(ns(time)), Ok(found));
    }
    assert_eq!(AckTimeout::new(0).unwrap().duration(), None);
    assert_eq!(AckTimeout::MAX.duration(), Some(ns(4096 << 31)));
    for (time, seconds) in [(ns((4096 << 31) + 1), 8796), (Duration::MAX, u32::MAX)] {
        let refused = AckTimeout::at_least(time).unwrap_err();
        assert_eq!((refused.value, refused.max), (seconds, 8796));
    }
    let text = AckTimeout::at_least(Duration::from_secs(9000)).unwrap_err().to_string();
    assert_eq!(text, "acknowledge timeout in seconds 9000 is too large: at most 8796");
}

#[test]
fn a_sequence_number_wraps_at_24_bits() {
    assert_eq!(Psn::wrapping(0x100_0001).get(), 1);
    assert_eq!(Psn::wrapping(u32::MAX), Psn::MAX);
}

/// The kernel's answer about a connected queue pair.
fn answer() -> QueryQpResp {
    QueryQpResp {
        dest: to_dest(&path(1, Some(route()))),
        alt_dest: to_dest(&path(2, None)),
        max_send_wr: 64,
        max_recv_wr: 32,
        max_send_sge: 4,
        max_recv_sge: 2,
        max_inline_data: 60,
        qkey: 0x11,
        rq_psn: 0x123,
        sq_psn: 0x456,
        dest_qp_num: 0x789,
        qp_access_flags: (AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE).bits(),
        pkey_index: 1,
        alt_pkey_index: 3,
        qp_state: 3,
        cur_qp_state: 4,
        path_mtu: 5,
        path_mig_state: 2,
        sq_draining: 1,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 8,
        min_rnr_timer: 12,
        port_num: 1,
        timeout: 14,
        retry_cnt: 6,
        rnr_retry: 7,
        alt_port_num: 2,
        alt_timeout: 15,
        sq_sig_all: 1,
        ..QueryQpResp::default()
    }
}

#[test]
fn a_query_is_read_field_by_field() {
    let info = QpInfo::decode(&answer()).unwrap();
    assert_eq!(info.qp_state, QueueState::ReadyToSend);
    assert_eq!(info.cur_qp_state, QueueState::SendQueueDrained);
    assert_eq!(info.path_mtu, Some(Mtu::Mtu4096));
    assert_eq!(info.path_mig_state, Some(MigState::Armed));
    assert_eq!((info.qkey, info.pkey_index, info.port_num), (0x11, 1, 1));
    assert_eq!((info.rq_psn.get(), info.sq_psn.get()), (0x123, 0x456));
    assert_eq!(info.dest_qp_num.get(), 0x789);
    assert_eq!(info.qp_access_flags, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE);
    let cap = QpSizes {
        max_send_wr: 64,
        max_recv_wr: 32,
        max_send_sge: 4,
        max_recv_sge: 2,
        max_inline_data: 60,
    };
    assert_eq!(info.cap, cap);
    assert_eq!(info.ah_attr, Some(path(1, Some(route()))));
    let alternate = AlternatePath {
        ah_attr: path(2, None),
        pkey_index: 3,
        timeout: AckTimeout::new(15).unwrap(),
    };
    assert_eq!(info.alt_path, Some(alternate));
    assert_eq!((info.max_rd_atomic, info.max_dest_rd_atomic), (16, 8));
    assert_eq!((info.min_rnr_timer.get(), info.timeout.get()), (12, 14));
    assert_eq!((info.retry_cnt.get(), info.rnr_retry.get()), (6, 7));
    assert!(info.sq_draining && info.sq_sig_all);
}

#[test]
fn attributes_that_were_set_come_back() {
    let set = QpAttributes::new()
        .ah_attr(path(1, Some(route())))
        .path_mtu(Mtu::Mtu1024)
        .qkey(0x1234_5678)
        .sq_psn(Psn::MAX);
    let request = set.encode(HANDLE).base;
    let info = QpInfo::decode(&QueryQpResp {
        dest: request.dest,
        path_mtu: request.path_mtu,
        qkey: request.qkey,
        sq_psn: request.sq_psn,
        ..QueryQpResp::default()
    })
    .unwrap();
    assert_eq!((info.ah_attr, info.path_mtu), (set.ah_attr, set.path_mtu));
    assert_eq!((Some(info.qkey), Some(info.sq_psn)), (set.qkey, set.sq_psn));
}

#[test]
fn a_queue_pair_in_reset_has_no_path_and_no_mtu() {
    let info = QpInfo::decode(&QueryQpResp::default()).unwrap();
    assert_eq!(info.qp_state, QueueState::Reset);
    assert_eq!((info.ah_attr, info.alt_path, info.path_mtu), (None, None, None));
    assert!(!info.sq_draining);
}

#[test]
fn a_migration_state_that_verbs_lacks_is_none() {
    let answer = QueryQpResp { path_mig_state: 255, ..answer() };
    assert_eq!(QpInfo::decode(&answer).unwrap().path_mig_state, None);
}

#[test]
fn an_impossible_answer_is_named() {
    type Spoil = fn(&mut QueryQpResp);
    let cases: [(&str, u32, Spoil); 11] = [
        ("qp_state", 7, |to| to.qp_state = 7),
        ("cur_qp_state", 255, |to| to.cur_qp_state = 255),
        ("path_mtu", 6, |to| to.path_mtu = 6),
        ("rq_psn", 0x100_0000, |to| to.rq_psn = 0x100_0000),
        ("sq_psn", u32::MAX, |to| to.sq_psn = u32::MAX),
        ("dest_qp_num", 0x100_0000, |to| to.dest_qp_num = 0x100_0000),
        ("min_rnr_timer", 32, |to| to.min_rnr_timer = 32),
        ("timeout", 32, |to| to.timeout = 32),
        ("alt_timeout", 32, |to| to.alt_timeout = 32),
        ("retry_cnt", 8, |to| to.retry_cnt = 8),
        ("rnr_retry", 8, |to| to.rnr_retry = 8),
    ];
    for (field, value, spoil) in cases {
        let mut answer = answer();
        spoil(&mut answer);
        assert_eq!(QpInfo::decode(&answer), Err(UnknownValue { field, value }));
    }
}
