//! The transitions of a queue pair, and the attributes that each needs and allows.

use mlx5_prm::cmd::CommandOpcode;
use mlx5_prm::cmd::qp::OptParamMask;
use mlx5_uapi::verbs::{QpAttrMask, QpState, QpType};

/// Joins flags of a bitflags type in a constant.
macro_rules! flags {
    ($Type:ident) => { $Type::empty() };
    ($Type:ident $($FLAG:ident)|+) => { $Type::empty()$(.union($Type::$FLAG))+ };
}

/// Attributes of a transition: needed and allowed, for each type.
struct Attributes {
    from: QpState,
    to: QpState,
    /// RC, UC, UD, XRC sending and receiving side, raw packets.
    needed: [QpAttrMask; 6],
    allowed: [QpAttrMask; 6],
}

macro_rules! transitions {
    ($($from:ident -> $to:ident
        rc [$($rc:ident)|*] may [$($rc_may:ident)|*]
        uc [$($uc:ident)|*] may [$($uc_may:ident)|*]
        ud [$($ud:ident)|*] may [$($ud_may:ident)|*]
        ini [$($ini:ident)|*] may [$($ini_may:ident)|*]
        tgt [$($tgt:ident)|*] may [$($tgt_may:ident)|*]
        raw [$($raw:ident)|*] may [$($raw_may:ident)|*];)*) => {
        &[$(Attributes {
            from: QpState::$from,
            to: QpState::$to,
            needed: [
                flags!(QpAttrMask $($rc)|*),
                flags!(QpAttrMask $($uc)|*),
                flags!(QpAttrMask $($ud)|*),
                flags!(QpAttrMask $($ini)|*),
                flags!(QpAttrMask $($tgt)|*),
                flags!(QpAttrMask $($raw)|*),
            ],
            allowed: [
                flags!(QpAttrMask $($rc_may)|*),
                flags!(QpAttrMask $($uc_may)|*),
                flags!(QpAttrMask $($ud_may)|*),
                flags!(QpAttrMask $($ini_may)|*),
                flags!(QpAttrMask $($tgt_may)|*),
                flags!(QpAttrMask $($raw_may)|*),
            ],
        }),*]
    };
}

/// The states that every state leads to, without attributes: RESET and, except from RESET, ERR.
const ALWAYS: [QpState; 2] = [QpState::Reset, QpState::Err];

/// `qp_state_table` of the kernel's core, for the types that the device has.
const TABLE: &[Attributes] = transitions! {
    Reset -> Init
        rc [PKEY_INDEX | PORT | ACCESS_FLAGS] may []
        uc [PKEY_INDEX | PORT | ACCESS_FLAGS] may []
        ud [PKEY_INDEX | PORT | QKEY] may []
        ini [PKEY_INDEX | PORT | ACCESS_FLAGS] may []
        tgt [PKEY_INDEX | PORT | ACCESS_FLAGS] may []
        raw [PORT] may [];
    Init -> Init
        rc [] may [PKEY_INDEX | PORT | ACCESS_FLAGS]
        uc [] may [PKEY_INDEX | PORT | ACCESS_FLAGS]
        ud [] may [PKEY_INDEX | PORT | QKEY]
        ini [] may [PKEY_INDEX | PORT | ACCESS_FLAGS]
        tgt [] may [PKEY_INDEX | PORT | ACCESS_FLAGS]
        raw [] may [];
    Init -> Rtr
        rc [AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER]
            may [ALT_PATH | ACCESS_FLAGS | PKEY_INDEX]
        uc [AV | PATH_MTU | DEST_QPN | RQ_PSN] may [ALT_PATH | ACCESS_FLAGS | PKEY_INDEX]
        ud [] may [PKEY_INDEX | QKEY]
        ini [AV | PATH_MTU | DEST_QPN | RQ_PSN] may [ALT_PATH | ACCESS_FLAGS | PKEY_INDEX]
        tgt [AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER]
            may [ALT_PATH | ACCESS_FLAGS | PKEY_INDEX]
        raw [] may [];
    Rtr -> Rts
        rc [TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC]
            may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE]
        uc [SQ_PSN] may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE]
        ud [SQ_PSN] may [CUR_STATE | QKEY]
        ini [TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC]
            may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE]
        tgt [TIMEOUT | SQ_PSN]
            may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE]
        raw [] may [RATE_LIMIT];
    Rts -> Rts
        rc [] may [CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER]
        uc [] may [CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE]
        ud [] may [CUR_STATE | QKEY]
        ini [] may [CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE]
        tgt [] may [CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER]
        raw [] may [RATE_LIMIT];
    Rts -> Sqd
        rc [] may [EN_SQD_ASYNC_NOTIFY]
        uc [] may [EN_SQD_ASYNC_NOTIFY]
        ud [] may [EN_SQD_ASYNC_NOTIFY]
        ini [] may [EN_SQD_ASYNC_NOTIFY]
        tgt [] may [EN_SQD_ASYNC_NOTIFY]
        raw [] may [];
    Sqd -> Rts
        rc [] may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE]
        uc [] may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE]
        ud [] may [CUR_STATE | QKEY]
        ini [] may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | PATH_MIG_STATE]
        tgt [] may [CUR_STATE | ALT_PATH | ACCESS_FLAGS | MIN_RNR_TIMER | PATH_MIG_STATE]
        raw [] may [];
    Sqd -> Sqd
        rc [] may [PORT | AV | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC
            | MAX_DEST_RD_ATOMIC | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | MIN_RNR_TIMER
            | PATH_MIG_STATE]
        uc [] may [AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE]
        ud [] may [PKEY_INDEX | QKEY]
        ini [] may [PORT | AV | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC | ALT_PATH
            | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE]
        tgt [] may [PORT | AV | TIMEOUT | MAX_DEST_RD_ATOMIC | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX
            | MIN_RNR_TIMER | PATH_MIG_STATE]
        raw [] may [];
    Sqe -> Rts
        rc [] may []
        uc [] may [CUR_STATE | ACCESS_FLAGS]
        ud [] may [CUR_STATE | QKEY]
        ini [] may []
        tgt [] may []
        raw [] may [];
};

/// Whether the core allows a transition with these attributes.
pub(crate) fn is_allowed(from: QpState, to: QpState, kind: QpType, mask: QpAttrMask) -> bool {
    use QpState::{Reset, Rtr, Rts, Sqd, Sqe};
    if mask.contains(QpAttrMask::CUR_STATE) && !matches!(from, Rtr | Rts | Sqd | Sqe) {
        return false;
    }
    let rest = mask.difference(QpAttrMask::STATE);
    if ALWAYS.contains(&to) && !(from == Reset && to == QpState::Err) {
        return rest.is_empty();
    }
    let Some(entry) = TABLE.iter().find(|entry| entry.from == from && entry.to == to) else {
        return false;
    };
    // A reliable connection cannot leave a send queue error.
    if from == Sqe && !matches!(kind, QpType::Uc | QpType::Ud) {
        return false;
    }
    let column = match kind {
        QpType::Rc => 0,
        QpType::Uc => 1,
        QpType::XrcIni => 3,
        QpType::XrcTgt => 4,
        QpType::RawPacket => 5,
        _ => 2,
    };
    let (needed, allowed) = (entry.needed[column], entry.allowed[column]);
    rest.contains(needed) && needed.union(allowed).contains(rest)
}

/// The command that makes a transition. No command drains: errors in the send queue do.
pub(crate) fn command(from: QpState, to: QpState) -> Option<CommandOpcode> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    Some(match (from, to) {
        (_, Reset) => CommandOpcode::TO_RST_QP,
        (_, Err) => CommandOpcode::TO_ERR_QP,
        (Reset, Init) => CommandOpcode::RST2INIT_QP,
        (Init, Init) => CommandOpcode::INIT2INIT_QP,
        (Init, Rtr) => CommandOpcode::INIT2RTR_QP,
        (Rtr, Rts) => CommandOpcode::RTR2RTS_QP,
        (Rts, Rts) => CommandOpcode::RTS2RTS_QP,
        (Sqe, Rts) => CommandOpcode::SQERR2RTS_QP,
        (Sqd, Rts) => CommandOpcode::SQD_RTS_QP,
        _ => return None,
    })
}

/// The optional parameters of the command that correspond to attributes.
pub(crate) fn parameters(mask: QpAttrMask) -> OptParamMask {
    const RIGHTS: OptParamMask = flags!(OptParamMask RWE | RRE | RAE);
    const MEANINGS: &[(QpAttrMask, OptParamMask)] = &[
        (QpAttrMask::ACCESS_FLAGS, RIGHTS),
        (QpAttrMask::PKEY_INDEX, OptParamMask::PKEY_INDEX),
        (QpAttrMask::PORT, OptParamMask::PRI_PORT),
        (QpAttrMask::QKEY, OptParamMask::Q_KEY),
        (QpAttrMask::AV, flags!(OptParamMask PRIMARY_ADDR_PATH | PRI_PORT)),
        (QpAttrMask::TIMEOUT, OptParamMask::ACK_TIMEOUT),
        (QpAttrMask::RETRY_CNT, OptParamMask::RETRY_COUNT),
        (QpAttrMask::RNR_RETRY, OptParamMask::RNR_RETRY),
        (QpAttrMask::MAX_QP_RD_ATOMIC, OptParamMask::SRA_MAX),
        (QpAttrMask::ALT_PATH, OptParamMask::ALT_ADDR_PATH),
        (QpAttrMask::MIN_RNR_TIMER, OptParamMask::RNR_TIMEOUT),
        (QpAttrMask::MAX_DEST_RD_ATOMIC, OptParamMask::RRA_MAX.union(RIGHTS)),
        (QpAttrMask::PATH_MIG_STATE, OptParamMask::PM_STATE),
    ];
    let named = MEANINGS.iter().filter(|(attribute, _)| mask.contains(*attribute));
    named.fold(OptParamMask::empty(), |all, (_, parameters)| all | *parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: QpAttrMask = flags!(QpAttrMask STATE | PKEY_INDEX | PORT | ACCESS_FLAGS);

    #[test]
    fn a_transition_needs_all_of_its_attributes_and_no_others() {
        let allowed = |mask| is_allowed(QpState::Reset, QpState::Init, QpType::Rc, mask);
        assert!(allowed(INIT));
        assert!(!allowed(INIT.difference(QpAttrMask::PORT)));
        assert!(!allowed(INIT.union(QpAttrMask::QKEY)));
        assert!(!is_allowed(QpState::Reset, QpState::Init, QpType::Ud, INIT));
    }

    #[test]
    fn states_are_not_skipped_and_reset_and_error_are_always_there() {
        let state = QpAttrMask::STATE;
        assert!(!is_allowed(QpState::Reset, QpState::Rtr, QpType::Rc, state));
        assert!(!is_allowed(QpState::Init, QpState::Rts, QpType::Ud, state));
        assert!(!is_allowed(QpState::Reset, QpState::Err, QpType::Rc, state));
        for from in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe] {
            assert!(is_allowed(from, QpState::Err, QpType::Rc, state), "{from:?}");
            assert!(is_allowed(from, QpState::Reset, QpType::Rc, state), "{from:?}");
        }
    }

    #[test]
    fn the_current_state_can_be_told_only_where_it_can_be_in_doubt() {
        let mask = QpAttrMask::STATE.union(QpAttrMask::CUR_STATE);
        assert!(is_allowed(QpState::Sqd, QpState::Rts, QpType::Rc, mask));
        assert!(!is_allowed(QpState::Init, QpState::Init, QpType::Rc, mask));
    }

    #[test]
    fn the_driver_has_no_command_that_drains() {
        assert!(is_allowed(QpState::Rts, QpState::Sqd, QpType::Rc, QpAttrMask::STATE));
        assert_eq!(command(QpState::Rts, QpState::Sqd), None);
        assert_eq!(command(QpState::Sqd, QpState::Rts), Some(CommandOpcode::SQD_RTS_QP));
    }
}
