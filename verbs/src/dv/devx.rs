//! DEVX: firmware commands, passed through unchanged. If the firmware refuses one, the kernel
//! returns EREMOTEIO, and the answer has the firmware's status.

use super::{bytes, room};
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::object::boxed;
use crate::qp::QpObject;
use crate::refusal::{Verb, object, status};
use crate::wq::WqObject;
use mlx5::{Context, QueueState};
use mlx5_prm::cmd::ethernet::{ModifyRqIn, QueueState as RqState};
use mlx5_prm::cmd::{CommandInput, CommandOpcode as Opcode};
use mlx5_uapi::cmd::devx as command;
use mlx5_uapi::verbs::WqState;
use mlx5_uapi::{DeviceFile, Errno};

/// An object that a command created.
#[repr(C)]
pub(super) struct DevxObject {
    context: *mut ibv_context,
    pub(super) handle: u32,
    /// Keeps the context, which may be closed before the object is destroyed.
    _kept: Context,
}

impl DevxObject {
    /// # Safety
    /// `object` is from [`obj_create`], and was not destroyed.
    pub(super) unsafe fn of<'a>(object: *mut mlx5dv_devx_obj) -> &'a Self {
        // SAFETY: the caller promises that `object` is from `obj_create`, and was not destroyed.
        unsafe { &*object.cast() }
    }

    pub(super) fn context(&self) -> &ContextObject {
        // SAFETY: the object keeps its context.
        unsafe { ContextObject::of(self.context) }
    }

    fn parts(&self) -> (&ContextObject, u32) {
        (self.context(), self.handle)
    }
}

/// `mlx5dv_devx_general_cmd`.
///
/// # Safety
/// `context` is open, `input` readable and `output` writable for their lengths. The command does no
/// harm.
pub unsafe extern "C" fn general_cmd(
    context: *mut ibv_context,
    input: *const c_void,
    input_len: usize,
    output: *mut c_void,
    output_len: usize,
) -> c_int {
    // SAFETY: the caller promises that `context` is open, that `input` is readable and `output`
    // writable for their lengths, and that the command does no harm.
    let done = unsafe {
        let file = ContextObject::of(context).file();
        command::general_cmd(file, bytes(input, input_len), room(output, output_len))
    };
    status(done.map_err(Into::into))
}

/// `mlx5dv_devx_obj_create`.
///
/// # Safety
/// As for [`general_cmd`].
pub unsafe extern "C" fn obj_create(
    context: *mut ibv_context,
    input: *const c_void,
    input_len: usize,
    output: *mut c_void,
    output_len: usize,
) -> *mut mlx5dv_devx_obj {
    // SAFETY: the caller promises that `context` is open, that `input` is readable and `output`
    // writable for their lengths, and that the command does no harm.
    let (this, made) = unsafe {
        let this = ContextObject::of(context);
        let (input, output) = (bytes(input, input_len), room(output, output_len));
        (this, command::obj_create(this.file(), input, output))
    };
    let wrap = |handle| boxed(DevxObject { context, handle, _kept: this.kept() });
    object(made.map(wrap).map_err(Into::into))
}

/// `mlx5dv_devx_obj_destroy`. If it is refused, the object still exists.
///
/// # Safety
/// `obj` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn obj_destroy(obj: *mut mlx5dv_devx_obj) -> c_int {
    // SAFETY: the caller promises that `obj` was not destroyed, and no longer uses it if the call
    // succeeds; `obj_create` boxed it.
    unsafe {
        let this = DevxObject::of(obj);
        let destroyed = command::obj_destroy(this.context().file(), this.handle);
        if destroyed.is_ok() {
            drop(Box::<DevxObject>::from_raw(obj.cast()));
            close::again();
        }
        status(destroyed.map_err(Into::into))
    }
}

/// A command on an object, which the kernel accepts if it names the object's number.
type Command = unsafe fn(&dyn DeviceFile, u32, &[u8], &mut [u8]) -> Result<(), Errno>;

/// Passes a command through.
///
/// # Safety
/// The object of this handle exists; `input` is readable and `output` writable for their lengths.
/// The command does no harm.
unsafe fn pass(
    command: Command,
    (context, handle): (&ContextObject, u32),
    (input, input_len): (*const c_void, usize),
    (output, output_len): (*mut c_void, usize),
) -> Verb {
    // SAFETY: the caller promises that the object exists, that `input` is readable and `output`
    // writable for their lengths, and that the command does no harm.
    unsafe {
        let (input, output) = (bytes(input, input_len), room(output, output_len));
        Ok(command(context.file(), handle, input, output)?)
    }
}

/// The functions that pass a command on an object through: the command, the object's type in C, and
/// the expression for its context and handle.
macro_rules! on_objects {
    ($($name:ident = $command:ident $object:ident: $c:ty, $of:expr;)*) => {
        $(
            #[doc = concat!("`mlx5dv_devx_", stringify!($name), "`.")]
            ///
            /// # Safety
            /// The object was not destroyed; `input` is readable and `output` writable for their
            /// lengths. The command does no harm.
            pub unsafe extern "C" fn $name(
                $object: *mut $c,
                input: *const c_void,
                input_len: usize,
                output: *mut c_void,
                output_len: usize,
            ) -> c_int {
                // SAFETY: the caller promises that the object was not destroyed, that `input` is
                // readable and `output` writable for their lengths, and that the command does no
                // harm.
                status(unsafe {
                    let object = $of;
                    pass(command::$command, object, (input, input_len), (output, output_len))
                })
            }
        )*
    };
}

/// Context and handle of an object of verbs.
macro_rules! of_verbs {
    ($object:ident) => {
        (ContextObject::of((*$object).context), (*$object).handle)
    };
}

/// The same for a table, whose handle has another name.
macro_rules! of_table {
    ($table:ident) => {
        (ContextObject::of((*$table).context), (*$table).ind_tbl_handle as u32)
    };
}

on_objects! {
    obj_query = obj_query obj: mlx5dv_devx_obj, DevxObject::of(obj).parts();
    obj_modify = obj_modify obj: mlx5dv_devx_obj, DevxObject::of(obj).parts();
    cq_query = obj_query cq: ibv_cq, of_verbs!(cq);
    cq_modify = obj_modify cq: ibv_cq, of_verbs!(cq);
    qp_query = obj_query qp: ibv_qp, of_verbs!(qp);
    wq_query = obj_query wq: ibv_wq, of_verbs!(wq);
    ind_tbl_query = obj_query table: ibv_rwq_ind_table, of_table!(table);
    ind_tbl_modify = obj_modify table: ibv_rwq_ind_table, of_table!(table);
    srq_query = obj_query srq: ibv_srq, of_verbs!(srq);
    srq_modify = obj_modify srq: ibv_srq, of_verbs!(srq);
}

/// The state of a queue pair after a command.
fn state_after(input: &[u8]) -> Option<QueueState> {
    let opcode = Opcode(u16::from_be_bytes(*input.first_chunk()?).into());
    Some(match opcode {
        Opcode::RST2INIT_QP | Opcode::INIT2INIT_QP => QueueState::Init,
        Opcode::INIT2RTR_QP => QueueState::ReadyToReceive,
        Opcode::RTR2RTS_QP | Opcode::RTS2RTS_QP | Opcode::SQERR2RTS_QP | Opcode::SQD_RTS_QP => {
            QueueState::ReadyToSend
        }
        Opcode::TO_ERR_QP => QueueState::Error,
        Opcode::TO_RST_QP => QueueState::Reset,
        _ => return None,
    })
}

/// `mlx5dv_devx_qp_modify`: also updates the state that the program reads.
///
/// # Safety
/// As for [`qp_query`]. The command does no harm.
pub unsafe extern "C" fn qp_modify(
    qp: *mut ibv_qp,
    input: *const c_void,
    input_len: usize,
    output: *mut c_void,
    output_len: usize,
) -> c_int {
    // SAFETY: the caller promises that `qp` was not destroyed, that `input` is readable and
    // `output` writable for their lengths, and that the command does no harm.
    status(unsafe {
        let this = QpObject::of(qp);
        let state = state_after(bytes(input, input_len));
        this.change_beside(|| {
            let object = (this.context(), (*qp).handle);
            pass(command::obj_modify, object, (input, input_len), (output, output_len))?;
            Ok(state)
        })
    })
}

/// The state of a work queue after a command.
fn queue_state_after(input: &[u8]) -> Option<WqState> {
    let command = ModifyRqIn::from_short(input);
    if command.opcode() != ModifyRqIn::OPCODE.0 {
        return None;
    }
    Some(match RqState(command.ctx().state()) {
        RqState::RST => WqState::Reset,
        RqState::RDY => WqState::Ready,
        RqState::ERR => WqState::Error,
        _ => return None,
    })
}

/// `mlx5dv_devx_wq_modify`: also updates the state that posting uses and that the program reads.
///
/// # Safety
/// As for [`wq_query`]. The command does no harm.
pub unsafe extern "C" fn wq_modify(
    wq: *mut ibv_wq,
    input: *const c_void,
    input_len: usize,
    output: *mut c_void,
    output_len: usize,
) -> c_int {
    // SAFETY: the caller promises that `wq` was not destroyed, that `input` is readable and
    // `output` writable for their lengths, and that the command does no harm; a completion queue
    // outlives its work queues.
    status(unsafe {
        let state = queue_state_after(bytes(input, input_len));
        WqObject::of(wq).change_beside(state, || {
            pass(command::obj_modify, of_verbs!(wq), (input, input_len), (output, output_len))
        })
    })
}

/// `mlx5dv_devx_query_eqn`.
///
/// # Safety
/// `context` is open, `eqn` writable.
pub unsafe extern "C" fn query_eqn(context: *mut ibv_context, vector: u32, eqn: *mut u32) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `eqn` is writable.
    let found = command::query_eqn(unsafe { ContextObject::of(context) }.file(), vector);
    // SAFETY: the caller promises that `eqn` is writable.
    status(found.map(|found| unsafe { eqn.write(found) }).map_err(Into::into))
}
