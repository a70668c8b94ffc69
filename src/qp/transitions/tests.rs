use super::*;
use TransitionFault::{Attributes, NoSuchTransition, Refused, UnknownTransport};

/// Every transition that the kernel accepts: transport, from, to, required attributes, optional
/// ones. Written a second time, as the kernel's `qp_state_table` reads, so that a mistake in the
/// table does not pass.
fn expected(
    transport: QpType,
    from: QueueState,
    to: QueueState,
) -> Option<(QpAttrMask, QpAttrMask)> {
    let mask = |names: &str| {
        names
            .split_whitespace()
            .fold(QpAttrMask::empty(), |mask, name| mask | QpAttrMask::from_name(name).expect(name))
    };
    let asks = matches!(transport, QpType::Rc | QpType::XrcIni);
    let answers = matches!(transport, QpType::Rc | QpType::XrcTgt);
    let ud = transport == QpType::Ud;
    let some = |whether: bool, names: &str| if whether { mask(names) } else { QpAttrMask::empty() };
    let init = if ud { "PKEY_INDEX PORT QKEY" } else { "PKEY_INDEX PORT ACCESS_FLAGS" };
    let moving = || {
        if ud {
            mask("CUR_STATE QKEY")
        } else {
            mask("CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE") | some(answers, "MIN_RNR_TIMER")
        }
    };
    let nothing = QpAttrMask::empty();
    if transport == QpType::RawPacket {
        let exists = expected(QpType::Ud, from, to).is_some();
        return exists.then(|| match (from, to) {
            (Reset, Init) => (mask("PORT"), nothing),
            (Rtr | Rts, Rts) => (nothing, mask("RATE_LIMIT")),
            _ => (nothing, nothing),
        });
    }
    Some(match (from, to) {
        (_, Reset) => (nothing, nothing),
        (Reset, Err) => return None,
        (_, Err) => (nothing, nothing),
        (Reset, Init) => (mask(init), nothing),
        (Init, Init) => (nothing, mask(init)),
        (Init, Rtr) if ud => (nothing, mask("PKEY_INDEX QKEY")),
        (Init, Rtr) => (
            mask("AV PATH_MTU DEST_QPN RQ_PSN") | some(answers, "MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"),
            mask("ALT_PATH ACCESS_FLAGS PKEY_INDEX"),
        ),
        // Only the responder sets the RNR timer; the requester does not use it.
        (Rtr, Rts) => (
            mask("SQ_PSN")
                | some(asks || answers, "TIMEOUT")
                | some(asks, "RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC"),
            moving(),
        ),
        (Rts | Sqd, Rts) => (nothing, moving()),
        (Sqe, Rts) if ud => (nothing, mask("CUR_STATE QKEY")),
        (Sqe, Rts) if asks || answers => (nothing, nothing),
        (Sqe, Rts) => (nothing, mask("CUR_STATE ACCESS_FLAGS")),
        _ => return None,
    })
}

/// Every transport with every pair of states.
fn every_move() -> impl Iterator<Item = (QpType, QueueState, QueueState)> {
    TRANSPORTS.into_iter().flat_map(|transport| {
        QueueState::ALL
            .into_iter()
            .flat_map(move |from| QueueState::ALL.into_iter().map(move |to| (transport, from, to)))
    })
}

/// Every transition that exists, with its required and optional attributes.
fn every_transition() -> Vec<(QpType, QueueState, QueueState, QpAttrMask, QpAttrMask)> {
    let all: Vec<_> = every_move()
        .filter_map(|(transport, from, to)| {
            let (required, optional) = expected(transport, from, to)?;
            Some((transport, from, to, required, optional))
        })
        .collect();
    assert_eq!(
        all.len(),
        TRANSPORTS.len() * TABLE.len(),
        "the table has other rows than the kernel's"
    );
    all
}

fn fault(
    transport: QpType,
    from: QueueState,
    to: QueueState,
    mask: QpAttrMask,
) -> Option<TransitionFault> {
    check(transport, from, to, mask).err().map(|error| {
        assert_eq!((error.transport, error.from, error.to), (transport, from, to));
        error.fault
    })
}

#[test]
fn the_needed_attributes_are_enough_with_and_without_the_state() {
    for (transport, from, to, required, _) in every_transition() {
        assert_eq!(check(transport, from, to, required), Ok(()));
        assert_eq!(check(transport, from, to, required | QpAttrMask::STATE), Ok(()));
    }
}

#[test]
fn each_optional_attribute_is_taken_alone_and_with_the_others() {
    for (transport, from, to, required, optional) in every_transition() {
        assert_eq!(check(transport, from, to, required | optional), Ok(()));
        for bit in optional.iter() {
            assert_eq!(check(transport, from, to, required | bit), Ok(()), "{bit:?}");
        }
    }
}

#[test]
fn each_needed_attribute_is_named_when_it_is_missing() {
    for (transport, from, to, required, optional) in every_transition() {
        for bit in required.iter() {
            let mask = (required | optional).difference(bit);
            let expected = Attributes { missing: bit, not_allowed: QpAttrMask::empty() };
            assert_eq!(fault(transport, from, to, mask), Some(expected));
            let text = check(transport, from, to, mask).unwrap_err().to_string();
            let (name, _) = bit.iter_names().next().unwrap();
            assert!(text.contains(&format!("needs also: {name} (add .")), "{text}");
        }
    }
}

#[test]
fn each_foreign_attribute_is_refused_and_named() {
    for (transport, from, to, required, optional) in every_transition() {
        for bit in (!(required | optional | QpAttrMask::STATE)).iter() {
            let mask = required | bit;
            let expected = Attributes { missing: QpAttrMask::empty(), not_allowed: bit };
            assert_eq!(fault(transport, from, to, mask), Some(expected));
            let text = check(transport, from, to, mask).unwrap_err().to_string();
            let (name, _) = bit.iter_names().next().unwrap();
            assert!(text.contains(&format!("not allowed here: {name} (remove .")), "{text}");
        }
    }
}

#[test]
fn every_other_move_is_refused_whatever_is_set() {
    let moves =
        every_move().filter(|(transport, from, to)| expected(*transport, *from, *to).is_none());
    let mut reasons = 0;
    for (transport, from, to) in moves {
        for mask in [QpAttrMask::empty(), QpAttrMask::STATE, QpAttrMask::all()] {
            match fault(transport, from, to, mask) {
                Some(Refused(_)) => reasons += 1,
                other => assert_eq!(other, Some(NoSuchTransition), "{from:?} to {to:?}"),
            }
        }
    }
    assert_eq!(reasons, 3 * TRANSPORTS.len() * REFUSED.len());
}

#[test]
fn no_row_is_there_twice_or_in_both_tables() {
    for (index, row) in TABLE.iter().enumerate() {
        let same = |other: (QueueState, QueueState)| other == (row.from, row.to);
        assert!(!TABLE[..index].iter().any(|other| same((other.from, other.to))));
        assert!(!REFUSED.iter().any(|other| same((other.0, other.1))));
    }
}

#[test]
fn needed_and_optional_do_not_overlap() {
    for rule in TABLE.iter().flat_map(|row| row.rules) {
        assert!(!rule.required.intersects(rule.optional));
        assert!(!(rule.required | rule.optional).contains(QpAttrMask::STATE));
        assert!(TRANSPORTS.contains(&rule.transport));
    }
}

#[test]
fn sizes_are_never_taken_and_rate_limits_by_raw_packet_queue_pairs_alone() {
    let never = QpAttrMask::CAP | QpAttrMask::EN_SQD_ASYNC_NOTIFY;
    for rule in TABLE.iter().flat_map(|row| row.rules) {
        assert!(!(rule.required | rule.optional).intersects(never));
        let limited = (rule.required | rule.optional).contains(QpAttrMask::RATE_LIMIT);
        assert!(!limited || rule.transport == QpType::RawPacket);
    }
    for from in [Rtr, Rts] {
        assert_eq!(fault(QpType::RawPacket, from, Rts, QpAttrMask::RATE_LIMIT), None);
    }
}

/// `qp_state_table` has a port for INIT, and nothing else.
#[test]
fn a_raw_packet_queue_pair_needs_a_port_and_no_more() {
    use QpAttrMask as Mask;
    let raw = QpType::RawPacket;
    assert_eq!(fault(raw, Reset, Init, Mask::PORT), None);
    assert_eq!(fault(raw, Init, Rtr, Mask::empty()), None);
    assert_eq!(fault(raw, Rtr, Rts, Mask::empty()), None);
    let missing = TransitionFault::Attributes { missing: Mask::PORT, not_allowed: Mask::empty() };
    assert_eq!(fault(raw, Reset, Init, Mask::empty()), Some(missing));
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts), (Rts, Rts)] {
        let mask = if from == Reset { Mask::PORT } else { Mask::empty() };
        for not_allowed in
            [Mask::PKEY_INDEX, Mask::QKEY, Mask::SQ_PSN, Mask::AV, Mask::ACCESS_FLAGS]
        {
            let missing = Mask::empty();
            let fault = fault(raw, from, to, mask | not_allowed);
            assert_eq!(fault, Some(TransitionFault::Attributes { missing, not_allowed }));
        }
    }
}

#[test]
fn a_transport_without_rules_is_refused() {
    let fault = fault(QpType::Driver, Reset, Init, QpAttrMask::all());
    assert_eq!(fault, Some(UnknownTransport));
}

#[test]
fn the_text_names_what_is_missing_and_what_is_wrong_with_their_setters() {
    let mask = QpAttrMask::AV
        | QpAttrMask::RQ_PSN
        | QpAttrMask::MAX_DEST_RD_ATOMIC
        | QpAttrMask::MIN_RNR_TIMER
        | QpAttrMask::QKEY;
    assert_eq!(
        check(QpType::Rc, Init, Rtr, mask).unwrap_err().to_string(),
        "RC queue pair, INIT to RTR: RTR needs also: PATH_MTU, DEST_QPN (add .path_mtu(..), \
         .dest_qp_num(..)); not allowed here: QKEY (remove .qkey(..))"
    );
}

#[test]
fn the_text_names_the_ways_that_exist() {
    assert_eq!(
        check(QpType::Rc, Reset, Rts, QpAttrMask::STATE).unwrap_err().to_string(),
        "RC queue pair, RESET to RTS: there is no such transition; from RESET it goes to RESET, INIT"
    );
}

#[test]
fn the_text_says_why_a_send_queue_cannot_be_stopped() {
    let text = check(QpType::Rc, Rts, Sqd, QpAttrMask::STATE).unwrap_err().to_string();
    assert!(text.starts_with("RC queue pair, RTS to SQD: the mlx5 kernel driver cannot"), "{text}");
}

#[test]
fn a_request_without_a_state_stays_where_the_queue_pair_is() {
    let request = QpAttributes::new().qkey(1);
    assert_eq!(check_attributes(QpType::Ud, Rts, &request), Ok(Rts));
    assert!(check_attributes(QpType::Rc, Rts, &request).is_err());
}

#[test]
fn the_stated_current_state_overrules_the_known_one() {
    let resume = QpAttributes::new().qp_state(Rts).cur_qp_state(Sqd);
    assert_eq!(check_attributes(QpType::Rc, Rts, &resume), Ok(Rts));
    let error = check_attributes(QpType::Rc, Rts, &resume.cur_qp_state(Init)).unwrap_err();
    assert_eq!((error.from, error.fault), (Init, NoSuchTransition));
}

#[test]
fn the_current_state_is_taken_only_between_states_that_the_device_changes_by_itself() {
    for (_, from, _, _, optional) in every_transition() {
        if optional.contains(QpAttrMask::CUR_STATE) {
            assert!(matches!(from, Rtr | Rts | Sqd | Sqe), "{from:?}");
        }
    }
}
