//! Work queues, indirection tables, flow rules and their counters.

use super::*;
use crate::flow::{
    CounterKind, DropAction, EthFilter, EthSpec, FlowFlags, FlowType, INNER, MatchCriteria,
    MatcherFlowFlags, MatcherType, SpecHeader, SpecKind, TableType,
};

#[test]
fn a_work_queue_is_made_with_its_ring_and_starts_by_a_modification() {
    use attr::create_wq as id;
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::WQ_CREATE);
            assert_eq!((call.object(id::PD_HANDLE), call.object(id::CQ_HANDLE)), (1, 2));
            assert_eq!((call.u64(id::USER_HANDLE), call.u64(id::TYPE)), (0xabc, 0));
            assert_eq!((call.u32(id::MAX_WR), call.u32(id::MAX_SGE)), (10, 1));
            assert_eq!(call.u32(id::FLAGS), 1 << 0 | 1 << 1);
            let driver = mlx5::CreateWq::read_from_bytes(&call.input(uhw::IN)).unwrap();
            assert_eq!((driver.buf_addr, driver.db_addr), (0x1000, 0x2000));
            assert_eq!((driver.rq_wqe_count, driver.rq_wqe_shift), (16, 4));
            call.made(id::HANDLE, 5);
            call.answer(id::RESP_MAX_WR, &16_u32.to_ne_bytes());
            call.answer(id::RESP_MAX_SGE, &1_u32.to_ne_bytes());
            call.answer(id::RESP_WQ_NUM, &0x77_u32.to_ne_bytes());
            Ok(())
        })
        .then(|call| {
            assert_eq!(command(call), 0x8000_0000 | 53);
            let request: write_cmd::ModifyWq = core_in(call);
            assert_eq!((request.attr_mask, request.wq_handle), (1, 5));
            assert_eq!((request.curr_wq_state, request.wq_state), (0, 1));
            assert_eq!((request.flags, request.flags_mask), (0, 0));
            assert_eq!(call.input(uhw::IN), [0; 8]);
            Ok(())
        })
        .then(|call| {
            let request: write_cmd::ModifyWq = core_in(call);
            assert_eq!((request.attr_mask, request.wq_handle), (3, 5));
            assert_eq!((request.curr_wq_state, request.wq_state), (2, 0));
            Ok(())
        })
        .then(|call| {
            let request: write_cmd::ModifyWq = core_in(call);
            assert_eq!((request.attr_mask, request.wq_state), (4, 0));
            assert_eq!((request.flags, request.flags_mask), (0, 1));
            Err(Errno::EOPNOTSUPP)
        })
        .then(|call| {
            assert_eq!(call.method, method::WQ_DESTROY);
            assert_eq!(call.object(attr::destroy_wq::HANDLE), 5);
            call.answer(attr::destroy_wq::RESP, &3_u32.to_ne_bytes());
            Ok(())
        });
    let what = wq::CreateWq {
        pd: 1,
        cq: 2,
        user_handle: 0xabc,
        max_wr: 10,
        max_sge: 1,
        flags: verbs::WqFlags::CVLAN_STRIPPING | verbs::WqFlags::SCATTER_FCS,
        async_events: None,
        driver: mlx5::CreateWq {
            buf_addr: 0x1000,
            db_addr: 0x2000,
            rq_wqe_count: 16,
            rq_wqe_shift: 4,
            ..Default::default()
        },
    };
    // SAFETY: the script does not use the memory.
    let made = unsafe { wq::create(&file, &what) };
    assert_eq!(made, Ok(wq::Wq { handle: 5, wq_num: 0x77, max_wr: 16, max_sge: 1 }));
    use verbs::WqState::{Error, Ready, Reset};
    assert_eq!(wq::modify(&file, 5, (None, Some(Ready)), None), Ok(()));
    assert_eq!(wq::modify(&file, 5, (Some(Error), Some(Reset)), None), Ok(()));
    let no_stripping = Some((verbs::WqFlags::empty(), verbs::WqFlags::CVLAN_STRIPPING));
    assert_eq!(wq::modify(&file, 5, (None, None), no_stripping), Err(Errno::EOPNOTSUPP));
    assert_eq!(wq::destroy(&file, 5), Ok(3));
    file.done();
}

#[test]
fn a_table_lists_its_queues_in_whole_quadwords() {
    for (queues, words) in [(&[9][..], &[0, 0, 9, 0][..]), (&[9, 8], &[0, 1, 9, 8])] {
        let file = Script::new().then(move |call| {
            assert_eq!(command(call), 0x8000_0000 | 55);
            assert_eq!(call.input(invoke_write::CORE_IN), words.as_bytes());
            let answer = [0_u32, 16, 4, 0x55];
            call.answer(invoke_write::CORE_OUT, answer.as_bytes());
            Ok(())
        });
        let table = wq::create_ind_table(&file, queues);
        assert_eq!(table, Ok(wq::IndTable { handle: 4, number: 0x55 }));
        file.done();
    }
    for queues in [&[][..], &[1, 2, 3]] {
        assert_eq!(wq::create_ind_table(&Script::new(), queues), Err(Errno::EINVAL), "no call");
    }
}

#[test]
fn a_hash_qp_has_a_table_and_a_hash_and_no_queue() {
    use attr::create_qp as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::QP_CREATE);
        let core = [id::HANDLE, id::PD_HANDLE, id::IND_TABLE_HANDLE, id::USER_HANDLE, id::CAP];
        let mut expected: Vec<u16> = core.iter().map(|id| id.0).collect();
        expected.extend([id::TYPE.0, id::RESP_CAP.0, id::RESP_QP_NUM.0, uhw::IN.0, uhw::OUT.0]);
        assert_eq!(call.ids(), expected);
        assert_eq!((call.object(id::PD_HANDLE), call.object(id::IND_TABLE_HANDLE)), (1, 4));
        assert_eq!(call.u64(id::TYPE), 8);
        let hash = call.input(uhw::IN);
        assert_eq!((hash.len(), hash[0], hash[8], hash[9]), (152, 0x21, 1, 40));
        assert_eq!((&hash[16..56], &hash[56..]), (&[7; 40][..], &[0; 96][..]));
        call.made(id::HANDLE, 6);
        Ok(())
    });
    let mut key = [0; 128];
    key[..40].fill(7);
    let fields = mlx5::RxHashFields::SRC_IPV4 | mlx5::RxHashFields::DST_PORT_TCP;
    let what = qp::CreateHashQp {
        pd: 1,
        ind_table: 4,
        user_handle: 2,
        async_events: None,
        driver: mlx5::CreateQpRss {
            rx_hash_fields_mask: fields.bits(),
            rx_hash_function: mlx5::RxHashFunctions::TOEPLITZ.bits(),
            rx_key_len: 40,
            rx_hash_key: key,
            ..Default::default()
        },
    };
    let made = qp::create_hash(&file, &what).unwrap();
    assert_eq!((made.handle, made.qp_num), (6, 0));
    file.done();
}

#[test]
fn a_rule_is_its_attributes_and_then_its_specifications() {
    let eth = EthSpec {
        header: SpecHeader::new(SpecKind::Eth, true, size_of::<EthSpec>()),
        value: EthFilter { dst_mac: [1, 2, 3, 4, 5, 6], ..Default::default() },
        mask: EthFilter { dst_mac: [0xff; 6], ..Default::default() },
    };
    let drop = DropAction { header: SpecHeader::new(SpecKind::ActionDrop, false, 8) };
    let specs = [eth.as_bytes(), drop.as_bytes()].concat();
    let sent = specs.clone();
    let file = Script::new()
        .then(move |call| {
            assert_eq!(command(call), 0x8000_0000 | 50);
            let request = call.input(invoke_write::CORE_IN);
            let head = write_cmd::CreateFlow::read_from_bytes(&request[..24]).unwrap();
            assert_eq!((head.comp_mask, head.qp_handle), (0, 6));
            let rule = head.flow_attr;
            assert_eq!((rule.kind, rule.size, rule.num_of_specs), (0, 48, 2));
            assert_eq!((rule.priority, rule.port, rule.flags), (3, 1, 2));
            assert_eq!(&request[24..], sent);
            let kind = u32::from_ne_bytes(request[24..28].try_into().unwrap());
            assert_eq!((kind, request[28]), (0x20 | INNER, 40));
            assert!(!call.ids().contains(&uhw::IN.0), "no counters");
            call.answer(invoke_write::CORE_OUT, &[0, 0, 0, 0, 9, 0, 0, 0]);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::FLOW_DESTROY);
            assert_eq!(call.object(attr::destroy_flow::HANDLE), 9);
            Ok(())
        });
    let what = flow::CreateFlow {
        qp: 6,
        kind: FlowType::Normal,
        priority: 3,
        port: 1,
        flags: FlowFlags::DONT_TRAP,
        spec_count: 2,
        specs: &specs,
        counters: None,
    };
    assert_eq!(flow::create(&file, &what), Ok(9));
    assert_eq!(flow::destroy(&file, 9), Ok(()));
    file.done();
}

#[test]
fn counters_are_described_with_their_first_rule_and_read_by_place() {
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::COUNTERS_CREATE);
            call.made(attr::create_counters::HANDLE, 3);
            Ok(())
        })
        .then(|call| {
            let driver = call.input(uhw::IN);
            let words: Vec<u32> = driver
                .chunks_exact(4)
                .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
                .collect();
            assert_eq!((driver.len(), words[0], words[1]), (24, 1, 0));
            let address = u64::from_ne_bytes(driver[8..16].try_into().unwrap());
            assert_eq!((words[4], words[5]), (2, 0));
            // SAFETY: the kernel reads this many descriptions at the address during the call.
            let described = unsafe {
                core::slice::from_raw_parts(address as usize as *const mlx5::FlowCountersDesc, 2)
            };
            let described: Vec<_> =
                described.iter().map(|one| (one.description, one.index)).collect();
            assert_eq!(described, [(1, 0), (0, 1)]);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::COUNTERS_READ);
            assert_eq!(call.object(attr::read_counters::HANDLE), 3);
            assert_eq!(call.u32(attr::read_counters::FLAGS), 1);
            call.answer(attr::read_counters::BUFF, [640_u64, 10].as_bytes());
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::COUNTERS_DESTROY);
            Err(Errno::EBUSY)
        });
    let handle = counters::create(&file).unwrap();
    let described = [
        mlx5::FlowCountersDesc { description: CounterKind::Bytes.raw(), index: 0 },
        mlx5::FlowCountersDesc { description: CounterKind::Packets.raw(), index: 1 },
    ];
    let what = flow::CreateFlow {
        qp: 6,
        kind: FlowType::AllDefault,
        priority: 0,
        port: 1,
        flags: FlowFlags::empty(),
        spec_count: 0,
        specs: &[],
        counters: Some(&described),
    };
    flow::create(&file, &what).unwrap();
    let mut values = [0; 2];
    assert_eq!(counters::read(&file, handle, &mut values, true), Ok(()));
    assert_eq!(values, [640, 10]);
    assert_eq!(counters::destroy(&file, handle), Err(Errno::EBUSY));
    file.done();
}

#[test]
fn specifications_too_long_for_their_length_are_refused_without_a_call() {
    let specs = vec![0; 1 << 16];
    let what = flow::CreateFlow {
        qp: 6,
        kind: FlowType::Normal,
        priority: 0,
        port: 1,
        flags: FlowFlags::empty(),
        spec_count: 255,
        specs: &specs,
        counters: None,
    };
    assert_eq!(flow::create(&Script::new(), &what), Err(Errno::EINVAL));
}

#[test]
fn a_matcher_has_its_priority_in_its_type() {
    use attr::{create_flow_matcher as id, create_matcher_flow as rule_id};
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::FLOW_MATCHER_CREATE);
            let ids = [id::CREATE_HANDLE, id::MATCH_MASK, id::FLOW_TYPE, id::MATCH_CRITERIA];
            assert_eq!(call.ids(), ids.map(|id| id.0));
            assert_eq!(call.attr(id::FLOW_TYPE).elem_id, 0);
            assert_eq!(call.input(id::FLOW_TYPE), 7_u16.to_ne_bytes());
            assert_eq!(call.input(id::MATCH_CRITERIA), [0b1001]);
            assert_eq!(call.input(id::MATCH_MASK), [0xff; 64]);
            call.made(id::CREATE_HANDLE, 8);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::MLX5_CREATE_FLOW);
            assert_eq!(call.object(rule_id::MATCHER), 8);
            assert_eq!(call.object(rule_id::DEST_QP), 6);
            assert_eq!(call.u32(rule_id::TAG), 0x1234);
            assert_eq!(call.input(rule_id::MATCH_VALUE), [1; 64]);
            call.made(rule_id::HANDLE, 9);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.u64(rule_id::FLAGS), 2);
            assert_eq!(call.input(rule_id::ARR_FLOW_ACTIONS), [5, 0, 0, 0]);
            assert!(!call.ids().contains(&rule_id::DEST_QP.0));
            Err(Errno::EINVAL)
        })
        .then(|call| {
            assert_eq!(call.method, method::FLOW_MATCHER_DESTROY);
            assert_eq!(call.object(attr::destroy_flow_matcher::HANDLE), 8);
            Ok(())
        });
    let what = matcher::CreateMatcher {
        kind: MatcherType::Normal,
        priority: 7,
        mask: &[0xff; 64],
        criteria: MatchCriteria::OUTER | MatchCriteria::MISC_2,
        flags: FlowFlags::empty(),
        table: TableType::NicRx,
    };
    let made = matcher::create(&file, &what);
    assert_eq!(made, Ok(8));
    let rule = matcher::CreateRule {
        matcher: 8,
        value: &[1; 64],
        destination: Some(matcher::Destination::Qp(6)),
        tag: Some(0x1234),
        actions: &[],
        counter: None,
    };
    assert_eq!(matcher::create_rule(&file, &rule), Ok(9));
    let destination = Some(matcher::Destination::Flags(MatcherFlowFlags::DROP));
    let drops = matcher::CreateRule { destination, tag: None, actions: &[5], ..rule };
    assert_eq!(matcher::create_rule(&file, &drops), Err(Errno::EINVAL));
    assert_eq!(matcher::destroy(&file, 8), Ok(()));
    file.done();
}
