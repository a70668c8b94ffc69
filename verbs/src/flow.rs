//! Flow rules: the packets that a queue pair receives. The kernel and the device validate them.

use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::counters::{CountersObject, Shared};
use crate::object::{boxed, ended};
use crate::qp::QpObject;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::Context;
use mlx5_uapi::cmd::flow as command;
use mlx5_uapi::flow::{FlowFlags, FlowType, INNER};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

/// An active rule.
#[repr(C)]
pub(crate) struct FlowObject {
    c: ibv_flow,
    /// The shared state of its counters, if it counts.
    counters: Option<Arc<Shared>>,
    /// Keeps the context, which may be closed before the rule is destroyed.
    _kept: Context,
}

/// Makes the object of a rule.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn wrap(
    context: *mut ibv_context,
    handle: u32,
    counters: Option<Arc<Shared>>,
) -> *mut ibv_flow {
    // SAFETY: the caller promises that `context` is open.
    let _kept = unsafe { ContextObject::of(context) }.kept();
    boxed(FlowObject { c: ibv_flow { comp_mask: 0, context, handle }, counters, _kept })
}

/// Bytes of the start of a specification: kind and size.
const HEADER: usize = 8;

/// A rule's specifications in the kernel's form.
#[derive(Default)]
struct Specs {
    bytes: Vec<u8>,
    counters: Option<*mut ibv_counters>,
}

impl Specs {
    /// Adds a specification of this kind: the bytes after its header.
    fn add(&mut self, kind: u32, parts: &[&[u8]]) {
        let size = HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(size as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 2]);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }
}

/// Value and mask of a header whose structure has grown in C, or may grow: the bytes of each that
/// the kernel supports. The rest of the mask must be zero.
fn grown(spec: &[u8], known: usize) -> Verb<(&[u8], &[u8])> {
    let filters = spec.get(HEADER..).ok_or(Refusal::INVALID)?;
    let (value, mask) = filters.split_at(filters.len() / 2);
    let mask = &mask[..value.len()];
    if value.len() < known {
        return Err(Refusal::INVALID);
    }
    let ((value, _), (mask, beyond)) = (value.split_at(known), mask.split_at(known));
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Refusal::NOT_SUPPORTED);
    }
    Ok((value, mask))
}

/// Bytes of `spec` from an offset on.
fn piece(spec: &[u8], at: usize, len: usize) -> Verb<&[u8]> {
    spec.get(at..at + len).ok_or(Refusal::INVALID)
}

/// Value and mask of a header of a fixed structure in C.
macro_rules! fixed {
    ($spec:ident, $ty:ident, $filter:ident) => {{
        let len = size_of::<$filter>();
        let value = piece($spec, offset_of!($ty, val), len)?;
        (value, piece($spec, offset_of!($ty, mask), len)?)
    }};
}

/// A pointer in a specification, which may have any alignment.
///
/// # Safety
/// The specification has a pointer there.
unsafe fn pointer<T>(spec: &[u8], at: usize) -> Verb<*mut T> {
    let bytes = piece(spec, at, size_of::<*mut T>())?;
    // SAFETY: `piece` checked that the bytes exist; the caller promises that they are a pointer.
    // The read needs no alignment.
    Ok(unsafe { bytes.as_ptr().cast::<*mut T>().read_unaligned() })
}

/// Adds one of C's specifications, given by its bytes, in the kernel's form.
///
/// # Safety
/// The objects that the specification names exist.
unsafe fn add(to: &mut Specs, kind: u32, spec: &[u8]) -> Verb {
    /// Sizes that the kernel supports of these headers.
    const IPV4: usize = 12;
    const IPV6: usize = 39;
    const TUNNEL: usize = 4;
    let inner = kind & INNER;
    let (as_kind, (value, mask)) = match kind & !INNER {
        IBV_FLOW_SPEC_ETH => (kind, fixed!(spec, ibv_flow_spec_eth, ibv_flow_eth_filter)),
        IBV_FLOW_SPEC_IPV4 => (kind, fixed!(spec, ibv_flow_spec_ipv4, ibv_flow_ipv4_filter)),
        IBV_FLOW_SPEC_IPV4_EXT => (IBV_FLOW_SPEC_IPV4 | inner, grown(spec, IPV4)?),
        IBV_FLOW_SPEC_IPV6 => {
            let (value, mask) = grown(spec, IPV6)?;
            to.add(kind, &[value, &[0], mask, &[0]]);
            return Ok(());
        }
        IBV_FLOW_SPEC_ESP => (kind, fixed!(spec, ibv_flow_spec_esp, ibv_flow_esp_filter)),
        IBV_FLOW_SPEC_TCP | IBV_FLOW_SPEC_UDP => {
            (kind, fixed!(spec, ibv_flow_spec_tcp_udp, ibv_flow_tcp_udp_filter))
        }
        IBV_FLOW_SPEC_MPLS => (kind, fixed!(spec, ibv_flow_spec_mpls, ibv_flow_mpls_filter)),
        IBV_FLOW_SPEC_GRE if inner == 0 => {
            (kind, fixed!(spec, ibv_flow_spec_gre, ibv_flow_gre_filter))
        }
        IBV_FLOW_SPEC_VXLAN_TUNNEL if inner == 0 => (kind, grown(spec, TUNNEL)?),
        IBV_FLOW_SPEC_ACTION_TAG if inner == 0 => {
            let tag = piece(spec, offset_of!(ibv_flow_spec_action_tag, tag_id), size_of::<u32>())?;
            (kind, (tag, &[0; 4][..]))
        }
        IBV_FLOW_SPEC_ACTION_DROP if inner == 0 => (kind, (&[][..], &[][..])),
        IBV_FLOW_SPEC_ACTION_COUNT if inner == 0 => {
            // A rule has at most one counters object, as in C.
            if to.counters.is_some() {
                return Err(Refusal::INVALID);
            }
            // SAFETY: the caller promises that the objects that the specification names exist.
            let handle = unsafe {
                let at = offset_of!(ibv_flow_spec_counter_action, counters);
                let counters = pointer::<ibv_counters>(spec, at)?;
                to.counters = Some(counters);
                CountersObject::of(counters).handle
            };
            to.add(kind, &[&handle.to_ne_bytes(), &[0; 4]]);
            return Ok(());
        }
        // There are no actions for packets that have handles.
        _ => return Err(Refusal::INVALID),
    };
    to.add(as_kind, &[value, mask]);
    Ok(())
}

/// All specifications of a rule, in the kernel's form.
///
/// # Safety
/// As for [`create_flow`].
unsafe fn specs(attr: *const ibv_flow_attr) -> Verb<Specs> {
    let mut to = Specs::default();
    // SAFETY: the caller promises that `num_of_specs` specifications follow the attributes, each
    // with the size that it states.
    unsafe {
        let mut next: *const u8 = attr.add(1).cast();
        for _ in 0..attr.read_unaligned().num_of_specs {
            let kind = next.cast::<u32>().read_unaligned();
            let size = next.add(offset_of!(ibv_flow_spec_eth, size)).cast::<u16>().read_unaligned();
            add(&mut to, kind, std::slice::from_raw_parts(next, size.into()))?;
            next = next.add(size.into());
        }
    }
    Ok(to)
}

/// # Safety
/// As for [`create_flow`].
unsafe fn create(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> Verb<*mut ibv_flow> {
    // SAFETY: the caller promises that `qp` was not destroyed, and that `attr` is readable with its
    // specifications, whose objects exist.
    let (this, wanted, specs) = unsafe { (QpObject::of(qp), attr.read_unaligned(), specs(attr)?) };
    let kind = FlowType::from_raw(wanted.r#type).ok_or(Refusal::INVALID)?;
    let make = |counted: Option<&[_]>| {
        let request = command::CreateFlow {
            qp: this.handle(),
            kind,
            priority: wanted.priority,
            port: wanted.port,
            flags: FlowFlags::from_bits_retain(wanted.flags),
            spec_count: wanted.num_of_specs,
            specs: &specs.bytes,
            counters: counted,
        };
        Ok(command::create(this.context().file(), &request)?)
    };
    // SAFETY: the caller promises that the objects that the specifications name exist.
    let counters = specs.counters.map(|counters| unsafe { CountersObject::of(counters) }.shared());
    let handle = match &counters {
        Some(counters) => counters.count(make)?,
        None => make(None)?,
    };
    // SAFETY: the queue pair's context is open while the queue pair exists.
    Ok(unsafe { wrap((*qp).context, handle, counters) })
}

/// The operation of `ibv_create_flow`.
///
/// # Safety
/// `qp` was not destroyed; `attr` is readable and followed by as many specifications as it says,
/// whose objects exist.
pub unsafe extern "C" fn create_flow(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> *mut ibv_flow {
    // SAFETY: the caller promises that `qp` was not destroyed, and that `attr` is readable with its
    // specifications, whose objects exist.
    object(unsafe { create(qp, attr) })
}

/// The operation of `ibv_destroy_flow`.
///
/// # Safety
/// `flow` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    let this: *mut FlowObject = flow.cast();
    // SAFETY: the caller promises that `flow` was not destroyed, and no longer uses it if the call
    // succeeds; `wrap` boxed it.
    status(unsafe {
        let FlowObject { c, counters, .. } = &*this;
        let destroy = || command::destroy(ContextObject::of(c.context).file(), c.handle);
        let end = || ended(destroy().map_err(Into::into));
        let done = match counters {
            Some(counters) => counters.end_rule(end),
            None => end(),
        };
        done.map(|()| {
            drop(Box::from_raw(this));
            close::again();
        })
    })
}
