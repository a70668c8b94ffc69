//! mlx5's matchers and their rules. They use the device's own match parameters, for fields that the
//! verbs lack.

use super::destroy as destroy_object;
use crate::{
    Errno,
    call::Call,
    flow::{FlowFlags, MatchCriteria, MatcherFlowFlags, MatcherType, TableType},
    ioctl::{attr, method},
    kernel::DeviceFile,
};

/// The arguments of FLOW_MATCHER_CREATE.
#[derive(Clone, Copy, Debug)]
pub struct CreateMatcher<'a> {
    /// The packets that its rules match.
    pub kind: MatcherType,
    /// Priority; zero is the highest. Only for [`MatcherType::Normal`].
    pub priority: u16,
    /// The bits of the match parameters (`mlx5_ifc_fte_match_param_bits`) that are compared.
    pub mask: &'a [u8],
    /// The groups of them that are used.
    pub criteria: MatchCriteria,
    /// Flags.
    pub flags: FlowFlags,
    /// The table that its rules are in.
    pub table: TableType,
}

/// Creates a matcher (FLOW_MATCHER_CREATE) and returns its handle.
pub fn create(file: &dyn DeviceFile, what: &CreateMatcher<'_>) -> Result<u32, Errno> {
    use attr::create_flow_matcher as id;
    let criteria = [what.criteria.bits()];
    let priority = what.priority.to_ne_bytes();
    let mut call = Call::new(method::FLOW_MATCHER_CREATE);
    call.new_handle(id::CREATE_HANDLE)
        .input_bytes(id::MATCH_MASK, what.mask)
        .input_bytes(id::MATCH_CRITERIA, &criteria);
    let payload = if what.kind == MatcherType::Normal { &priority[..] } else { &[] };
    call.input_enum(id::FLOW_TYPE, what.kind.raw() as u8, payload);
    if what.table != TableType::NicRx {
        call.input_u64(id::FT_TYPE, u64::from(what.table.raw()));
    }
    if !what.flags.is_empty() {
        call.input_u64(id::FLOW_FLAGS, u64::from(what.flags.bits()));
    }
    let reply = call.make(file)?;
    Ok(reply.handle(id::CREATE_HANDLE))
}

/// Destroys a matcher (FLOW_MATCHER_DESTROY). `EBUSY` while it has rules.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy_object(file, method::FLOW_MATCHER_DESTROY, attr::destroy_flow_matcher::HANDLE, handle)
}

/// The destination of the packets that a matcher's rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A QP, by its handle.
    Qp(u32),
    /// A DEVX object (a TIR or a flow table), by its handle.
    Devx(u32),
    /// No queue: the packet is dropped, or goes to the kernel's rules.
    Flags(MatcherFlowFlags),
}

/// The arguments of a matcher's rule.
#[derive(Clone, Copy, Debug)]
pub struct CreateRule<'a> {
    /// The matcher, by its handle.
    pub matcher: u32,
    /// The match parameters that a packet must have, under the matcher's mask.
    pub value: &'a [u8],
    /// The destination of the packets. The kernel refuses a rule for received packets without one.
    pub destination: Option<Destination>,
    /// The flow tag of their CQEs.
    pub tag: Option<u32>,
    /// Flow actions that are applied to them, by handle.
    pub actions: &'a [u32],
    /// A DEVX flow counter, by its handle.
    pub counter: Option<u32>,
}

/// Creates a matcher's rule (MLX5_IB_METHOD_CREATE_FLOW) and returns its handle, which
/// [`super::flow::destroy`] takes.
pub fn create_rule(file: &dyn DeviceFile, what: &CreateRule<'_>) -> Result<u32, Errno> {
    use attr::create_matcher_flow as id;
    let counter = what.counter.map(u32::to_ne_bytes);
    let mut call = Call::new(method::MLX5_CREATE_FLOW);
    call.new_handle(id::HANDLE)
        .input_bytes(id::MATCH_VALUE, what.value)
        .handle(id::MATCHER, what.matcher);
    match what.destination {
        Some(Destination::Qp(handle)) => _ = call.handle(id::DEST_QP, handle),
        Some(Destination::Devx(handle)) => _ = call.handle(id::DEST_DEVX, handle),
        Some(Destination::Flags(flags)) => _ = call.input_u64(id::FLAGS, u64::from(flags.bits())),
        None => {}
    }
    if let Some(tag) = what.tag {
        call.input_u32(id::TAG, tag);
    }
    if !what.actions.is_empty() {
        call.input(id::ARR_FLOW_ACTIONS, what.actions);
    }
    if let Some(counter) = &counter {
        call.input_bytes(id::ARR_COUNTERS_DEVX, counter);
    }
    let reply = call.make(file)?;
    Ok(reply.handle(id::HANDLE))
}
