//! Flow rules: those of the verbs, those of mlx5's matchers, and counters.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::flow::{
    AllocFlowCounterIn, MatchParameters, QueryFlowCounterIn, QueryFlowCounterOut, TrafficCounter,
};
use mlx5_uapi::Errno;
use mlx5_uapi::flow::{
    CounterKind, FlowFlags, FlowType, MatchCriteria, MatcherFlowFlags, MatcherType,
};
use mlx5_uapi::ioctl::{attr, object};
use mlx5_uapi::mlx5::{self, FlowCountersData, FlowCountersDesc};
use mlx5_uapi::write_cmd::{self, CreateFlowResp};
use zerocopy::{FromBytes, IntoBytes};

use crate::kernel::current;
use crate::kernel::decode::{Request, from_short};
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::objects::Body;
use crate::kernel::objects::flow::{Counters, Flow, Matcher};
use crate::kernel::specs::{Specs, is_multicast_only};
use crate::kernel::steered::{Fate, Place, Target};
use crate::kernel::write_call::WriteCall;

/// The most specifications of a rule (`IB_FLOW_SPEC_SUPPORT_LAYERS`).
const MOST_SPECS: u8 = 10;
/// The lowest priority that a program may ask for.
const LAST_PRIORITY: u16 = 15;
/// The most values of counters that a rule describes.
const MOST_VALUES: u32 = 32;

/// Tables of one kind: received packets.
fn transport_interface(state: &State, qp: u32) -> Result<u32, Errno> {
    let raw = state.objects.qp(qp)?.raw.as_ref().ok_or(Errno::EINVAL)?;
    raw.tir.ok_or(Errno::EINVAL)
}

/// The rule that takes multicast packets, in its mask and value.
fn multicast() -> (u8, MatchParameters, MatchParameters) {
    let mut parameters = MatchParameters::default();
    parameters.outer_headers_mut().set_dmac_47_16(1 << 24);
    (1, parameters, parameters)
}

/// Makes a rule of the verbs.
pub(crate) fn create(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let hca = &file.hca;
    let request: write_cmd::CreateFlow = call.request();
    let rule = request.flow_attr;
    if request.comp_mask != 0 {
        return Err(Errno::EINVAL);
    }
    hca.raw_packets()?;
    let flags = FlowFlags::from_bits(rule.flags).ok_or(Errno::EINVAL)?;
    let kind = FlowType::from_raw(rule.kind).ok_or(Errno::EINVAL)?;
    let specs = &call.core_in()[size_of::<write_cmd::CreateFlow>()..];
    let specs = specs.get(..usize::from(rule.size)).ok_or(Errno::EINVAL)?;
    if flags.contains(FlowFlags::DONT_TRAP) && kind != FlowType::Normal
        || rule.num_of_specs > MOST_SPECS
        || rule.reserved != [0; 2]
    {
        return Err(Errno::EINVAL);
    }
    let specs = Specs::parse(specs, rule.num_of_specs)?;
    let target = transport_interface(state, request.qp_handle)?;
    if rule.priority > LAST_PRIORITY {
        return Err(Errno::ENOMEM);
    }
    if rule.port == 0 || rule.port > hca.ports() {
        return Err(Errno::EINVAL);
    }
    if flags.contains(FlowFlags::EGRESS) {
        // The device steers received packets only.
        return Err(Errno::EOPNOTSUPP);
    }
    let goes_on = flags.contains(FlowFlags::DONT_TRAP);
    let places = match kind {
        FlowType::Normal if is_multicast_only(&specs) && !goes_on => vec![Place::MULTICAST],
        FlowType::Normal => vec![Place::of_priority(rule.priority as u8, goes_on)],
        FlowType::AllDefault | FlowType::McDefault => vec![Place::LEFTOVERS],
        FlowType::Sniffer => Place::SNIFFER.to_vec(),
    };
    if kind != FlowType::Normal && rule.num_of_specs != 0 {
        return Err(Errno::EINVAL);
    }
    let target = (!specs.drop).then_some(Target::Tir(target));
    let (enabled, mask, value) = match kind {
        FlowType::McDefault => multicast(),
        _ => (specs.enabled(), specs.mask, specs.value),
    };
    let counter = match specs.counters {
        Some(handle) => counter_of(hca, state, handle, &call.driver_in).map(Some),
        None => Ok(None),
    };
    let made = counter.and_then(|counter| {
        let fate = Fate { drop: specs.drop, tag: specs.tag, goes_on, leaves: false, counter };
        let mut made = Flow { rules: Vec::new() };
        for place in places {
            match hca.rules.add(hca, place, (enabled, &mask, &value), &fate, target) {
                Ok(rule) => made.rules.push(rule),
                Err(errno) => return made.end(hca).and(Err(errno)),
            }
        }
        Ok(made)
    });
    if let (Err(_), Some(handle)) = (&made, specs.counters) {
        state.objects.undescribe_unused(handle);
    }
    let made = made?;
    let mut parents = vec![request.qp_handle];
    parents.extend(specs.counters);
    let handle = state.objects.add(Body::Flow(made), &parents);
    call.respond(&CreateFlowResp { comp_mask: 0, flow_handle: handle })
}

/// The device's counter of a counters object. The object's first rule makes it and describes its
/// values.
fn counter_of(hca: &Hca, state: &mut State, handle: u32, driver: &[u8]) -> Result<u32, Errno> {
    let head: mlx5::CreateFlow = from_short(driver);
    let counters = state.objects.counters_mut(handle)?;
    if head.ncounters_data > 1 || head.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    if head.ncounters_data == 1 {
        let data: FlowCountersData =
            from_short(driver.get(size_of::<mlx5::CreateFlow>()..).unwrap_or_default());
        if data.ncounters > MOST_VALUES || data.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let bytes = data.ncounters as usize * size_of::<FlowCountersDesc>();
        // SAFETY: the caller promises that the driver's request names readable memory of as many
        // descriptions as its count says.
        let bytes = unsafe { current::copy_from(data.counters_data, bytes) }?;
        let mut described = Vec::new();
        for bytes in bytes.chunks_exact(size_of::<FlowCountersDesc>()) {
            let one = FlowCountersDesc::read_from_bytes(bytes).map_err(|_| Errno::EINVAL)?;
            let kind = CounterKind::from_raw(one.description).ok_or(Errno::EINVAL)?;
            described.push((kind, one.index));
        }
        if !counters.described.is_empty() {
            return Err(Errno::EINVAL);
        }
        counters.described = described;
    } else if counters.described.is_empty() {
        return Err(Errno::EINVAL);
    }
    if let Some(counter) = counters.counter {
        return Ok(counter);
    }
    let counter = hca.command(&AllocFlowCounterIn::request())?.flow_counter_id();
    counters.counter = Some(counter);
    Ok(counter)
}

/// Makes a counters object, which has no counter yet.
pub(crate) fn create_counters(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    if !file.hca.has_raw_packets() {
        return Err(Errno::EOPNOTSUPP);
    }
    let counters = Counters { counter: None, described: Vec::new() };
    let handle = state.objects.add(Body::Counters(counters), &[]);
    request.made(attr::create_counters::HANDLE, handle.into());
    Ok(())
}

/// Reads counters.
pub(crate) fn read_counters(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::read_counters as id;
    let handle = request.handle(id::HANDLE)?;
    if request.number(id::FLAGS)? & !1 != 0 {
        return Err(Errno::EINVAL);
    }
    let counters = state.objects.counters(handle)?;
    if state.objects.is_free(handle) {
        return Err(Errno::EINVAL);
    }
    let counter = counters.counter.ok_or(Errno::EINVAL)?;
    let mut input = QueryFlowCounterIn::request();
    input.set_flow_counter_id(counter).set_num_of_counters(1);
    let output =
        file.hca.command_long(&input, QueryFlowCounterOut::BYTES + TrafficCounter::BYTES)?;
    let (_, counted) = QueryFlowCounterOut::split_from(&output).ok_or(Errno::EIO)?;
    let (counted, _) = TrafficCounter::ref_from_prefix(counted).map_err(|_| Errno::EIO)?;
    let mut values = vec![0u64; request.room(id::BUFF) / size_of::<u64>()];
    for (kind, index) in &counters.described {
        let place = values.get_mut(*index as usize).ok_or(Errno::EINVAL)?;
        *place += match kind {
            CounterKind::Packets => counted.packets(),
            CounterKind::Bytes => counted.octets(),
        };
    }
    request.answer_bytes(id::BUFF, values.as_bytes())
}

/// Match parameters from bytes that may be shorter.
fn parameters(bytes: &[u8]) -> Result<MatchParameters, Errno> {
    let mut parameters = MatchParameters::default();
    let known = bytes.len().min(MatchParameters::BYTES);
    if bytes[known..].iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    parameters.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
    Ok(parameters)
}

/// Makes a matcher.
pub(crate) fn create_matcher(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::create_flow_matcher as id;
    file.hca.raw_packets()?;
    let (kind, payload) = request.choice(id::FLOW_TYPE)?;
    let kind = MatcherType::from_raw(u32::from(kind)).ok_or(Errno::EINVAL)?;
    let mut priority = [0; 2];
    if kind == MatcherType::Normal {
        priority.copy_from_slice(payload.get(..2).ok_or(Errno::EINVAL)?);
    }
    let priority = u16::from_ne_bytes(priority);
    if priority > LAST_PRIORITY {
        return Err(Errno::EINVAL);
    }
    let flags = FlowFlags::from_bits(request.number_u32(id::FLOW_FLAGS)?).ok_or(Errno::EINVAL)?;
    // The device steers received packets only.
    if request.number(id::FT_TYPE)? != 0 || !flags.is_empty() {
        return Err(Errno::EOPNOTSUPP);
    }
    let criteria = request.input(id::MATCH_CRITERIA)?;
    let [criteria] = criteria[..] else { return Err(Errno::EINVAL) };
    MatchCriteria::from_bits(criteria).ok_or(Errno::EINVAL)?;
    let matcher = Matcher {
        kind,
        priority: priority as u8,
        criteria,
        mask: Box::new(parameters(&request.input(id::MATCH_MASK)?)?),
    };
    let handle = state.objects.add(Body::Matcher(matcher), &[]);
    request.made(id::CREATE_HANDLE, handle.into());
    Ok(())
}

/// Makes a rule of a matcher.
pub(crate) fn create_matched(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::create_matcher_flow as id;
    let hca = &file.hca;
    hca.raw_packets()?;
    let matcher_handle = request.handle(id::MATCHER)?;
    let (qp, devx) = (request.handle_if_any(id::DEST_QP)?, request.handle_if_any(id::DEST_DEVX)?);
    let flags = request.number_u32(id::FLAGS)?;
    let flags = MatcherFlowFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let (drop, misses) =
        (flags.contains(MatcherFlowFlags::DROP), flags.contains(MatcherFlowFlags::DEFAULT_MISS));
    if [qp.is_some(), devx.is_some(), drop, misses].into_iter().filter(|one| *one).count() != 1 {
        return Err(Errno::EINVAL);
    }
    if request.has(id::ARR_FLOW_ACTIONS) {
        return Err(Errno::EOPNOTSUPP);
    }
    let tag = match request.has(id::TAG) {
        true => Some(request.number_u32(id::TAG)?),
        false => None,
    };
    if tag.is_some_and(|tag| tag >> 24 != 0) {
        return Err(Errno::EINVAL);
    }
    let mut parents = vec![matcher_handle];
    let target = match (qp, devx) {
        (Some(handle), _) => Some(Target::Tir(transport_interface(state, handle)?)),
        (_, Some(handle)) => Some(state.objects.devx(handle)?.flow_target()?),
        _ => None,
    };
    parents.extend(qp.or(devx));
    let mut counter = None;
    if request.has(id::ARR_COUNTERS_DEVX) {
        let handle = request.input(id::ARR_COUNTERS_DEVX)?;
        let handle = <[u8; 4]>::try_from(&handle[..]).map_err(|_| Errno::EINVAL)?;
        let handle = u32::from_ne_bytes(handle);
        state.objects.expect(handle, object::DEVX_OBJ)?;
        counter = Some(state.objects.devx(handle)?.flow_counter()?);
        parents.push(handle);
    }
    let matcher = state.objects.matcher(matcher_handle)?;
    if matcher.kind != MatcherType::Normal {
        // Such matchers exist, but no rules of theirs.
        return Err(Errno::EOPNOTSUPP);
    }
    let place = Place::of_priority(matcher.priority, false);
    let value = parameters(&request.input(id::MATCH_VALUE)?)?;
    let mask = *matcher.mask;
    let fate = Fate { drop, tag, goes_on: false, leaves: misses, counter };
    let id = hca.rules.add(hca, place, (matcher.criteria, &mask, &value), &fate, target)?;
    let handle = state.objects.add(Body::Flow(Flow { rules: vec![id] }), &parents);
    request.made(id::HANDLE, handle.into());
    Ok(())
}
