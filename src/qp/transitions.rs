//! The attributes that each state transition requires and allows.
//!
//! The kernel answers every mistake with the same EINVAL. Checking first gives each mistake a name.

#[cfg(test)]
mod tests;

use super::attributes::QpAttributes;
use mlx5_uapi::verbs::{QpAttrMask, QpType};
use mlx5_wqe::QueueState;
use mlx5_wqe::QueueState::{
    Error as Err, Init, ReadyToReceive as Rtr, ReadyToSend as Rts, Reset, SendQueueDrained as Sqd,
    SendQueueError as Sqe,
};
use std::error::Error;
use std::fmt;

/// The attributes that a transition requires and allows for one transport.
#[derive(Clone, Copy)]
struct Rule {
    transport: QpType,
    required: QpAttrMask,
    optional: QpAttrMask,
}

struct Transition {
    from: QueueState,
    to: QueueState,
    rules: &'static [Rule],
}

/// The transports in the table. A transport without a rule in a row requires and allows nothing
/// there.
const TRANSPORTS: [QpType; 6] =
    [QpType::Rc, QpType::Uc, QpType::Ud, QpType::RawPacket, QpType::XrcIni, QpType::XrcTgt];

/// One transition per row; a rule is a transport, the required attributes, and the optional ones.
macro_rules! transitions {
    ($( $from:ident => $to:ident {
        $( $transport:ident: [$($required:ident)*] [$($optional:ident)*] )*
    } )*) => {
        &[ $( Transition {
            from: $from,
            to: $to,
            rules: &[ $( Rule {
                transport: QpType::$transport,
                required: QpAttrMask::empty()$(.union(QpAttrMask::$required))*,
                optional: QpAttrMask::empty()$(.union(QpAttrMask::$optional))*,
            } ),* ],
        } ),* ]
    };
}

/// `qp_state_table` of the kernel's drivers/infiniband/core/verbs.c, without the transitions in
/// [`REFUSED`]. A transition to RESET or ERR takes no attribute.
const TABLE: &[Transition] = transitions! {
    Reset => Reset {}
    Reset => Init {
        Rc: [PKEY_INDEX PORT ACCESS_FLAGS] []
        Uc: [PKEY_INDEX PORT ACCESS_FLAGS] []
        Ud: [PKEY_INDEX PORT QKEY] []
        RawPacket: [PORT] []
        XrcIni: [PKEY_INDEX PORT ACCESS_FLAGS] []
        XrcTgt: [PKEY_INDEX PORT ACCESS_FLAGS] []
    }
    Init => Reset {}
    Init => Err {}
    Init => Init {
        Rc: [] [PKEY_INDEX PORT ACCESS_FLAGS]
        Uc: [] [PKEY_INDEX PORT ACCESS_FLAGS]
        Ud: [] [PKEY_INDEX PORT QKEY]
        XrcIni: [] [PKEY_INDEX PORT ACCESS_FLAGS]
        XrcTgt: [] [PKEY_INDEX PORT ACCESS_FLAGS]
    }
    Init => Rtr {
        Rc: [AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER]
            [ALT_PATH ACCESS_FLAGS PKEY_INDEX]
        Uc: [AV PATH_MTU DEST_QPN RQ_PSN] [ALT_PATH ACCESS_FLAGS PKEY_INDEX]
        Ud: [] [PKEY_INDEX QKEY]
        XrcIni: [AV PATH_MTU DEST_QPN RQ_PSN] [ALT_PATH ACCESS_FLAGS PKEY_INDEX]
        XrcTgt: [AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER]
            [ALT_PATH ACCESS_FLAGS PKEY_INDEX]
    }
    Rtr => Reset {}
    Rtr => Err {}
    Rtr => Rts {
        Rc: [SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC]
            [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE]
        Uc: [SQ_PSN] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE]
        Ud: [SQ_PSN] [CUR_STATE QKEY]
        RawPacket: [] [RATE_LIMIT]
        XrcIni: [SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC]
            [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE]
        XrcTgt: [SQ_PSN TIMEOUT]
            [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE]
    }
    Rts => Reset {}
    Rts => Err {}
    Rts => Rts {
        Rc: [] [CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER]
        Uc: [] [CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE]
        Ud: [] [CUR_STATE QKEY]
        RawPacket: [] [RATE_LIMIT]
        XrcIni: [] [CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE]
        XrcTgt: [] [CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER]
    }
    Sqd => Reset {}
    Sqd => Err {}
    Sqd => Rts {
        Rc: [] [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE]
        Uc: [] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE]
        Ud: [] [CUR_STATE QKEY]
        XrcIni: [] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE]
        XrcTgt: [] [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE]
    }
    Sqe => Reset {}
    Sqe => Err {}
    Sqe => Rts {
        Rc: [] []
        Uc: [] [CUR_STATE ACCESS_FLAGS]
        Ud: [] [CUR_STATE QKEY]
    }
    Err => Reset {}
    Err => Err {}
};

/// Transitions of the verbs that the mlx5 kernel driver (`optab` of `__mlx5_ib_modify_qp`) or the
/// kernel's core lacks.
const REFUSED: &[(QueueState, QueueState, &str)] = &[
    (
        Rts,
        Sqd,
        "the mlx5 kernel driver cannot stop a send queue; the device does it by itself, on the \
         first signature error of a queue pair made for that",
    ),
    (Sqd, Sqd, "the mlx5 kernel driver changes nothing in a drained queue pair; go to RTS first"),
    (Reset, Err, "the kernel allows it from INIT on; a queue pair in RESET holds nothing to flush"),
];

/// The error of a requested transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TransitionFault {
    /// There is no such transition.
    NoSuchTransition,
    /// The verbs have the transition, but the kernel does not support it, for this reason.
    Refused(&'static str),
    /// The attributes do not match.
    Attributes {
        /// Required, but not set.
        missing: QpAttrMask,
        /// Set, but not allowed.
        not_allowed: QpAttrMask,
    },
    /// The transport is not in the table.
    UnknownTransport,
}

/// A transition that the kernel would refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransitionError {
    /// Transport.
    pub transport: QpType,
    /// The current state, or the one given as `cur_qp_state`.
    pub from: QueueState,
    /// The requested state.
    pub to: QueueState,
    /// The error.
    pub fault: TransitionFault,
}

/// Checks that a queue pair of this transport can change from one state to the other with these
/// attributes.
pub(super) fn check(
    transport: QpType,
    from: QueueState,
    to: QueueState,
    mask: QpAttrMask,
) -> Result<(), TransitionError> {
    let fail = |fault| Result::Err(TransitionError { transport, from, to, fault });
    if !TRANSPORTS.contains(&transport) {
        return fail(TransitionFault::UnknownTransport);
    }
    let Some((required, optional)) = rule(transport, from, to) else {
        let refused = REFUSED.iter().find(|row| (row.0, row.1) == (from, to));
        return fail(match refused {
            Some((_, _, why)) => TransitionFault::Refused(why),
            None => TransitionFault::NoSuchTransition,
        });
    };
    let missing = required.difference(mask);
    let not_allowed = mask.difference(required | optional | QpAttrMask::STATE);
    if missing.is_empty() && not_allowed.is_empty() {
        Ok(())
    } else {
        fail(TransitionFault::Attributes { missing, not_allowed })
    }
}

/// Checks a request against the known state, as the kernel does: `cur_qp_state` overrides the known
/// state, and without `qp_state` the state does not change. Returns the new state.
pub(super) fn check_attributes(
    transport: QpType,
    known: QueueState,
    attributes: &QpAttributes,
) -> Result<QueueState, TransitionError> {
    let from = attributes.cur_qp_state.unwrap_or(known);
    let to = attributes.qp_state.unwrap_or(from);
    check(transport, from, to, attributes.mask())?;
    Ok(to)
}

/// Returns the required and the optional attributes of a transition.
fn rule(transport: QpType, from: QueueState, to: QueueState) -> Option<(QpAttrMask, QpAttrMask)> {
    let row = TABLE.iter().find(|row| (row.from, row.to) == (from, to))?;
    let rule = row.rules.iter().find(|rule| rule.transport == transport);
    Some(rule.map_or_else(Default::default, |rule| (rule.required, rule.optional)))
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, from, to, fault } = self;
        let transport = transport_name(*transport);
        write!(f, "{transport} queue pair, {} to {}: ", from.name(), to.name())?;
        match fault {
            TransitionFault::NoSuchTransition => {
                write!(f, "there is no such transition; from {} it goes to ", from.name())?;
                let next = TABLE.iter().filter(|row| row.from == *from).map(|row| row.to.name());
                list(f, next, "", ", ", "")
            }
            TransitionFault::Refused(why) => f.write_str(why),
            TransitionFault::UnknownTransport => {
                f.write_str("transitions of this transport are not supported")
            }
            TransitionFault::Attributes { missing, not_allowed } => {
                if !missing.is_empty() {
                    write!(f, "{} needs also: ", to.name())?;
                    advise(f, *missing, "add")?;
                }
                if !missing.is_empty() && !not_allowed.is_empty() {
                    f.write_str("; ")?;
                }
                if !not_allowed.is_empty() {
                    f.write_str("not allowed here: ")?;
                    advise(f, *not_allowed, "remove")?;
                }
                Ok(())
            }
        }
    }
}

impl Error for TransitionError {}

/// Returns the usual name of a transport.
pub(super) const fn transport_name(transport: QpType) -> &'static str {
    match transport {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::RawPacket => "raw packet",
        QpType::XrcIni => "XRC initiator",
        QpType::XrcTgt => "XRC target",
        QpType::Driver => "DC",
    }
}

/// Writes the verbs names of the attributes, and the setters to call or to omit.
fn advise(f: &mut fmt::Formatter<'_>, mask: QpAttrMask, verb: &str) -> fmt::Result {
    list(f, mask.iter_names().map(|(name, _)| name), "", ", ", "")?;
    let setters = QpAttributes::SETTERS.iter().filter(|row| mask.contains(row.0)).map(|row| row.1);
    write!(f, " ({verb} ")?;
    list(f, setters, ".", ", ", "(..)")?;
    f.write_str(")")
}

fn list<'a>(
    f: &mut fmt::Formatter<'_>,
    names: impl Iterator<Item = &'a str>,
    before: &str,
    between: &str,
    after: &str,
) -> fmt::Result {
    for (index, name) in names.enumerate() {
        let comma = if index == 0 { "" } else { between };
        write!(f, "{comma}{before}{name}{after}")?;
    }
    Ok(())
}
