//! Matchers: flow rules by the device's own match parameters.

use super::devx::DevxObject;
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::flow;
use crate::object::boxed;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::Context;
use mlx5_uapi::cmd::matcher as command;
use mlx5_uapi::flow::{FlowFlags, MatchCriteria, MatcherFlowFlags, MatcherType, TableType};
use std::mem::offset_of;
use std::ptr;

/// A matcher.
struct MatcherObject {
    context: *mut ibv_context,
    handle: u32,
    /// Keeps the context, which may be closed before the matcher is destroyed.
    _kept: Context,
}

/// Returns the bytes of match parameters.
///
/// # Safety
/// The parameters are readable, and have as many bytes as they say.
unsafe fn parameters<'a>(of: *const mlx5dv_flow_match_parameters) -> &'a [u8] {
    // SAFETY: the caller promises that the parameters are readable, and have as many bytes as they
    // say; the bytes follow their number.
    unsafe {
        let start = of.byte_add(offset_of!(mlx5dv_flow_match_parameters, match_buf));
        std::slice::from_raw_parts(start.cast(), (*of).match_sz)
    }
}

unsafe fn create(
    context: *mut ibv_context,
    attr: &mlx5dv_flow_matcher_attr,
) -> Verb<*mut mlx5dv_flow_matcher> {
    let has = |mask: c_uint| attr.comp_mask & u64::from(mask) != 0;
    // Tables of a port need a newer kernel.
    if attr.comp_mask & !u64::from(MLX5DV_FLOW_MATCHER_MASK_FT_TYPE) != 0
        || attr.r#type != IBV_FLOW_ATTR_NORMAL
    {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let table = match has(MLX5DV_FLOW_MATCHER_MASK_FT_TYPE) {
        true => u8::try_from(attr.ft_type).ok().and_then(TableType::from_raw),
        false => Some(TableType::NicRx),
    };
    // SAFETY: the caller of `create_flow_matcher` promises that `context` is open and `attr` and
    // its mask are readable.
    let (this, mask) = unsafe { (ContextObject::of(context), parameters(attr.match_mask)) };
    let handle = command::create(
        this.file(),
        &command::CreateMatcher {
            kind: MatcherType::Normal,
            priority: attr.priority,
            mask,
            criteria: MatchCriteria::from_bits_retain(attr.match_criteria_enable),
            flags: FlowFlags::from_bits_retain(attr.flags),
            table: table.ok_or(Refusal::INVALID)?,
        },
    )?;
    Ok(boxed(MatcherObject { context, handle, _kept: this.kept() }))
}

/// `mlx5dv_create_flow_matcher`.
///
/// # Safety
/// `context` is open; `attr` and its mask are readable.
pub unsafe extern "C" fn create_flow_matcher(
    context: *mut ibv_context,
    attr: *mut mlx5dv_flow_matcher_attr,
) -> *mut mlx5dv_flow_matcher {
    // SAFETY: the caller promises that `context` is open and `attr` and its mask are readable.
    object(unsafe { create(context, &*attr) })
}

/// `mlx5dv_destroy_flow_matcher`: EBUSY while it has rules.
///
/// # Safety
/// `matcher` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_flow_matcher(matcher: *mut mlx5dv_flow_matcher) -> c_int {
    let this: *mut MatcherObject = matcher.cast();
    // SAFETY: the caller promises that `matcher` was not destroyed, and no longer uses it if the
    // call succeeds; `create_flow_matcher` boxed it.
    status(unsafe {
        let MatcherObject { context, handle, .. } = *this;
        let done = command::destroy(ContextObject::of(context).file(), handle);
        done.map_err(Into::into).map(|()| {
            drop(Box::from_raw(this));
            close::again();
        })
    })
}

/// The actions on a rule's packets.
#[derive(Default)]
struct Actions {
    destination: Option<command::Destination>,
    tag: Option<u32>,
    counter: Option<u32>,
}

/// Sets a value that may be set only once.
fn once<T>(place: &mut Option<T>, value: T, twice: Refusal) -> Verb {
    if place.replace(value).is_some() { Err(twice) } else { Ok(()) }
}

impl Actions {
    /// Adds an action.
    ///
    /// # Safety
    /// The action has the member of the union that its type says; what it names exists.
    unsafe fn add(&mut self, kind: c_uint, target: &mlx5dv_flow_action_attr_target) -> Verb {
        use command::Destination;
        const TWICE: Refusal = Refusal::NOT_SUPPORTED;
        let flags = |flags| Destination::Flags(flags);
        // SAFETY: the caller promises that the action has the union member of its type, and that
        // the objects that it names exist.
        unsafe {
            let to = match kind {
                MLX5DV_FLOW_ACTION_DEST_IBV_QP => Destination::Qp((*target.qp).handle),
                MLX5DV_FLOW_ACTION_DEST_DEVX => {
                    Destination::Devx(DevxObject::of(target.obj).handle)
                }
                MLX5DV_FLOW_ACTION_DEFAULT_MISS => flags(MatcherFlowFlags::DEFAULT_MISS),
                MLX5DV_FLOW_ACTION_DROP => flags(MatcherFlowFlags::DROP),
                MLX5DV_FLOW_ACTION_TAG => {
                    return once(&mut self.tag, target.tag_value, Refusal::INVALID);
                }
                MLX5DV_FLOW_ACTION_COUNTERS_DEVX => {
                    let handle = DevxObject::of(target.obj).handle;
                    return once(&mut self.counter, handle, TWICE);
                }
                // There are no actions for packets that have handles.
                _ => return Err(Refusal::NOT_SUPPORTED),
            };
            once(&mut self.destination, to, TWICE)
        }
    }
}

/// An action as in a program's array, whose elements have room for a pointer; actions with an
/// offset were added later.
#[repr(C)]
struct Action {
    kind: c_uint,
    target: *mut c_void,
}

unsafe fn create_rule(
    matcher: &MatcherObject,
    value: *const mlx5dv_flow_match_parameters,
    actions: &[Action],
) -> Verb<*mut ibv_flow> {
    let mut all = Actions::default();
    for Action { kind, target } in actions {
        let mut whole = mlx5dv_flow_action_attr_target { tag_value: 0 };
        // SAFETY: the pointer is the first member of the union, which has room for it; a tag is in
        // its first bytes. The caller of `create_flow` promises that the objects that an action
        // names exist.
        unsafe {
            ptr::from_mut(&mut whole).cast::<*mut c_void>().write(*target);
            all.add(*kind, &whole)?;
        }
    }
    // SAFETY: the caller of `create_flow` promises that `matcher` was not destroyed and that
    // `value` is readable.
    let (file, value) = unsafe { (ContextObject::of(matcher.context).file(), parameters(value)) };
    let handle = command::create_rule(
        file,
        &command::CreateRule {
            matcher: matcher.handle,
            value,
            destination: all.destination,
            tag: all.tag,
            actions: &[],
            counter: all.counter,
        },
    )?;
    // SAFETY: a matcher keeps its context.
    Ok(unsafe { flow::wrap(matcher.context, handle, None) })
}

/// `mlx5dv_create_flow`. The rule is destroyed by `ibv_destroy_flow`.
///
/// # Safety
/// `matcher` was not destroyed; `value` is readable; there are as many actions, and what they name
/// exists.
pub unsafe extern "C" fn create_flow(
    matcher: *mut mlx5dv_flow_matcher,
    value: *mut mlx5dv_flow_match_parameters,
    num_actions: usize,
    actions: *mut mlx5dv_flow_action_attr,
) -> *mut ibv_flow {
    // SAFETY: the caller promises that `matcher` was not destroyed, that `value` is readable, and
    // that `actions` has `num_actions` entries, whose objects exist.
    object(unsafe {
        let actions = match num_actions {
            0 => &[],
            _ => std::slice::from_raw_parts(actions.cast_const().cast::<Action>(), num_actions),
        };
        create_rule(&*matcher.cast(), value, actions)
    })
}
