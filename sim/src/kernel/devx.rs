//! DEVX: firmware commands from user space.

use mlx5_prm::cmd::cq::CreateCqIn;
use mlx5_prm::cmd::ethernet::{CreateRqIn, CreateSqIn};
use mlx5_prm::cmd::qp::CreateQpIn;
use mlx5_prm::cmd::srq::{CreateRmpIn, CreateXrcSrqIn};
use mlx5_prm::cmd::{CommandInHead, CommandInput, CommandOpcode, CommandStatus};
use mlx5_prm::fields::set_bits;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::{AttrId, attr};
use mlx5_uapi::verbs::AccessFlags;

use crate::kernel::current::is_mapped;
use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::{Hca, refusal};
use crate::kernel::mailbox::{NUMBER, Place, put, take};
use crate::kernel::memory::pages;
use crate::kernel::objects::Body;
use crate::kernel::objects::devx::{DevxObject, Kind, Umem};

/// The number of a general object.
const GENERAL: Place = (0x40, 32);
/// The number of a counter set.
const COUNTER_SET: Place = (0x58, 8);
/// The first PSV of CREATE_PSV's output.
const PSV: Place = (0x88, 24);
/// CREATE_UMEM's input: bytes before the pages, logarithm of the pages' size (from 4 KiB), and
/// the number of pages.
const CREATE_UMEM_BYTES: usize = (0x80 + 0x100) / 8;
const UMEM_LOG_PAGE: Place = (0x80 + 0x9b, 5);
const UMEM_OFFSET: Place = (0x80 + 0xa0, 32);
const UMEM_PAGES: Place = (0x80 + 0xc0, 64);
/// Bits of a page's address in CREATE_UMEM's list: the device may read it, and write it.
const MAY_READ: u64 = 1 << 0;
const MAY_WRITE: u64 = 1 << 1;
/// Commands of a general kind.
const GENERAL_COMMANDS: std::ops::Range<u32> = 0xb00..0xd00;
const LOG_PAGE: u32 = 12;

const fn kind(create: CommandOpcode, destroy: CommandOpcode) -> Kind {
    Kind { create, destroy, made: NUMBER, named: NUMBER }
}

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    kind(CommandOpcode::CREATE_MKEY, CommandOpcode::DESTROY_MKEY),
    kind(CommandOpcode::CREATE_CQ, CommandOpcode::DESTROY_CQ),
    kind(CommandOpcode::ALLOC_PD, CommandOpcode::DEALLOC_PD),
    kind(CommandOpcode::ALLOC_TRANSPORT_DOMAIN, CommandOpcode::DEALLOC_TRANSPORT_DOMAIN),
    kind(CommandOpcode::CREATE_RMP, CommandOpcode::DESTROY_RMP),
    kind(CommandOpcode::CREATE_QP, CommandOpcode::DESTROY_QP),
    kind(CommandOpcode::CREATE_SRQ, CommandOpcode::DESTROY_SRQ),
    kind(CommandOpcode::CREATE_XRC_SRQ, CommandOpcode::DESTROY_XRC_SRQ),
    kind(CommandOpcode::ALLOC_XRCD, CommandOpcode::DEALLOC_XRCD),
    kind(CommandOpcode::CREATE_SQ, CommandOpcode::DESTROY_SQ),
    kind(CommandOpcode::CREATE_RQ, CommandOpcode::DESTROY_RQ),
    kind(CommandOpcode::CREATE_RQT, CommandOpcode::DESTROY_RQT),
    kind(CommandOpcode::CREATE_TIR, CommandOpcode::DESTROY_TIR),
    kind(CommandOpcode::CREATE_TIS, CommandOpcode::DESTROY_TIS),
    Kind { create: CommandOpcode::ALLOC_FLOW_COUNTER, destroy: CommandOpcode::DEALLOC_FLOW_COUNTER, made: GENERAL, named: GENERAL },
    Kind { create: CommandOpcode::ALLOC_Q_COUNTER, destroy: CommandOpcode::DEALLOC_Q_COUNTER, made: COUNTER_SET, named: COUNTER_SET },
    Kind { create: CommandOpcode::CREATE_PSV, destroy: CommandOpcode::DESTROY_PSV, made: PSV, named: NUMBER },
    Kind { create: CommandOpcode::CREATE_GENERAL_OBJECT, destroy: CommandOpcode::DESTROY_GENERAL_OBJECT, made: GENERAL, named: GENERAL },
];

/// The kind of object that a command is about, and whether it changes the object. The command's
/// input names the object in the same place as that of the destroying command.
const fn subject(opcode: CommandOpcode) -> Option<(CommandOpcode, bool)> {
    use CommandOpcode as Op;
    Some(match opcode {
        Op::QUERY_MKEY => (Op::CREATE_MKEY, false),
        Op::QUERY_CQ => (Op::CREATE_CQ, false),
        Op::QUERY_RMP => (Op::CREATE_RMP, false),
        Op::QUERY_QP => (Op::CREATE_QP, false),
        Op::QUERY_SRQ => (Op::CREATE_SRQ, false),
        Op::QUERY_XRC_SRQ => (Op::CREATE_XRC_SRQ, false),
        Op::QUERY_GENERAL_OBJECT => (Op::CREATE_GENERAL_OBJECT, false),
        Op::QUERY_SQ => (Op::CREATE_SQ, false),
        Op::QUERY_RQ => (Op::CREATE_RQ, false),
        Op::QUERY_RQT => (Op::CREATE_RQT, false),
        Op::QUERY_TIR => (Op::CREATE_TIR, false),
        Op::QUERY_TIS => (Op::CREATE_TIS, false),
        Op::MODIFY_SQ => (Op::CREATE_SQ, true),
        Op::MODIFY_RQ => (Op::CREATE_RQ, true),
        Op::MODIFY_RQT => (Op::CREATE_RQT, true),
        Op::MODIFY_TIR => (Op::CREATE_TIR, true),
        Op::MODIFY_TIS => (Op::CREATE_TIS, true),
        Op::MODIFY_CQ => (Op::CREATE_CQ, true),
        Op::MODIFY_RMP => (Op::CREATE_RMP, true),
        Op::RST2INIT_QP
        | Op::INIT2INIT_QP
        | Op::INIT2RTR_QP
        | Op::RTR2RTS_QP
        | Op::RTS2RTS_QP
        | Op::SQERR2RTS_QP
        | Op::TO_ERR_QP
        | Op::TO_RST_QP => (Op::CREATE_QP, true),
        Op::ARM_RQ => (Op::CREATE_SRQ, true),
        Op::ARM_XRC_SRQ => (Op::CREATE_XRC_SRQ, true),
        Op::MODIFY_GENERAL_OBJECT => (Op::CREATE_GENERAL_OBJECT, true),
        _ => return None,
    })
}

/// Commands about the device as a whole, which any program may send.
fn is_general(opcode: CommandOpcode) -> bool {
    use CommandOpcode as Op;
    GENERAL_COMMANDS.contains(&opcode.0)
        || matches!(
            opcode,
            Op::QUERY_HCA_CAP
                | Op::QUERY_HCA_VPORT_CONTEXT
                | Op::QUERY_ESW_VPORT_CONTEXT
                | Op::QUERY_ESW_FUNCTIONS
                | Op::QUERY_VPORT_STATE
                | Op::QUERY_ADAPTER
                | Op::QUERY_ISSI
                | Op::QUERY_NIC_VPORT_CONTEXT
                | Op::QUERY_VNIC_ENV
                | Op::QUERY_VPORT_COUNTER
                | Op::GET_DROPPED_PACKET_LOG
                | Op::NOP
                | Op::QUERY_CONG_STATUS
                | Op::QUERY_CONG_PARAMS
                | Op::QUERY_CONG_STATISTICS
                | Op::QUERY_LAG
        )
}

/// The number of the context's user context; fails without DEVX.
pub(crate) fn uid(state: &State) -> Result<u32, Errno> {
    match state.context()?.uid {
        0 => Err(Errno::EINVAL),
        uid => Ok(uid),
    }
}

/// A queue of user space lies in its user memory, never in pages that its command lists: the kernel
/// sets the bits for that in the command.
fn force_umems(opcode: CommandOpcode, input: &mut [u8]) {
    fn set<I: CommandInput>(input: &mut [u8], set: impl FnOnce(&mut I)) {
        if let Ok((command, _)) = I::mut_from_prefix(input) {
            set(command);
        }
    }
    match opcode {
        CommandOpcode::CREATE_CQ => set(input, |input: &mut CreateCqIn| {
            input.set_cq_umem_valid(true).cqc_mut().set_dbr_umem_valid(true);
        }),
        CommandOpcode::CREATE_QP => set(input, |input: &mut CreateQpIn| {
            input.set_wq_umem_valid(true).qpc_mut().set_dbr_umem_valid(true);
        }),
        CommandOpcode::CREATE_RMP => set(input, |input: &mut CreateRmpIn| {
            input.rmpc_mut().wq_mut().set_wq_umem_valid(true).set_dbr_umem_valid(true);
        }),
        CommandOpcode::CREATE_SQ => set(input, |input: &mut CreateSqIn| {
            input.ctx_mut().wq_mut().set_wq_umem_valid(true).set_dbr_umem_valid(true);
        }),
        CommandOpcode::CREATE_RQ => set(input, |input: &mut CreateRqIn| {
            input.ctx_mut().wq_mut().set_wq_umem_valid(true).set_dbr_umem_valid(true);
        }),
        CommandOpcode::CREATE_XRC_SRQ => set(input, |input: &mut CreateXrcSrqIn| {
            input.set_xrc_srq_umem_valid(true).xrc_srqc_mut().set_dbr_umem_valid(true);
        }),
        _ => {}
    }
}

/// A command from user space: its opcode, and the mailbox with the caller's context in it.
fn mailbox(request: &Request<'_>, id: AttrId, uid: u32) -> Result<(CommandOpcode, Vec<u8>), Errno> {
    let mut input = request.input(id)?;
    let head = CommandInHead::from_bytes_mut(&mut input).ok_or(Errno::EINVAL)?;
    head.set_uid(uid);
    Ok((CommandOpcode(head.opcode()), input))
}

/// Executes a command and returns its answer, also that of a refused one.
fn execute(
    hca: &Hca,
    request: &mut Request<'_>,
    input: &[u8],
    out: AttrId,
) -> Result<Vec<u8>, Errno> {
    let mut output = vec![0; request.room(out)];
    let status = hca.execute(input, &mut output);
    request.answer_bytes(out, &output)?;
    if status == CommandStatus::OK {
        return Ok(output);
    }
    debug_assert!(refusal(&output).is_some());
    Err(Errno::EREMOTEIO)
}

pub(crate) fn other(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_other as id;
    let (opcode, input) = mailbox(request, id::CMD_IN, uid(state)?)?;
    if !is_general(opcode) {
        return Err(Errno::EINVAL);
    }
    execute(&file.hca, request, &input, id::CMD_OUT).map(drop)
}

/// The static registers that this translates do not exist.
pub(crate) fn query_uar(
    _file: &OpenFile,
    state: &mut State,
    _request: &mut Request<'_>,
) -> Result<(), Errno> {
    state.context()?;
    Err(Errno::EINVAL)
}

pub(crate) fn query_eqn(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_query_eqn as id;
    state.context()?;
    let vector = request.number_u32(id::USER_VEC)?;
    let eqn = file.hca.eqn(vector).ok_or(Errno::EINVAL)?;
    request.answer(id::DEV_EQN, &eqn)
}

pub(crate) fn obj_create(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_obj_create as id;
    let uid = uid(state)?;
    let (opcode, mut input) = mailbox(request, id::CMD_IN, uid)?;
    let kind = KINDS.iter().find(|kind| kind.create == opcode).ok_or(Errno::EINVAL)?;
    force_umems(opcode, &mut input);
    let output = execute(&file.hca, request, &input, id::CMD_OUT)?;
    let object = DevxObject { kind: *kind, number: take(&output, kind.made), uid };
    let handle = state.objects.add(Body::Devx(object), &[]);
    request.made(id::HANDLE, handle.into());
    Ok(())
}

/// Whether a handle is of the object that a command names.
fn is_subject(
    state: &State,
    handle: u32,
    create: CommandOpcode,
    input: &[u8],
) -> Result<bool, Errno> {
    let place = KINDS.iter().find(|kind| kind.create == create).map_or(NUMBER, |kind| kind.named);
    let named = take(input, place);
    Ok(match state.objects.get(handle)? {
        Body::Cq(cq) => create == CommandOpcode::CREATE_CQ && cq.cqn == named,
        Body::Qp(qp) => match (&qp.raw, create) {
            (None, CommandOpcode::CREATE_QP) => qp.qpn == named,
            (Some(raw), CommandOpcode::CREATE_SQ) => raw.sq == Some(named),
            (Some(raw), CommandOpcode::CREATE_RQ) => raw.rq == Some(named),
            (Some(raw), CommandOpcode::CREATE_TIR) => raw.tir == Some(named),
            (Some(raw), CommandOpcode::CREATE_TIS) => raw.tis == Some(named),
            _ => false,
        },
        Body::Srq(srq) => {
            let made_by = match srq.kind {
                mlx5_uapi::verbs::SrqType::Xrc => CommandOpcode::CREATE_XRC_SRQ,
                _ => CommandOpcode::CREATE_RMP,
            };
            create == made_by && srq.srqn == named
        }
        Body::Wq(wq) => create == CommandOpcode::CREATE_RQ && wq.rqn == named,
        Body::IndirectionTable(table) => create == CommandOpcode::CREATE_RQT && table.rqtn == named,
        Body::Devx(object) => object.kind.create == create && object.number == named,
        _ => false,
    })
}

/// A command on an object: whether it changes the object, and the positions of both.
pub(crate) struct OnObject {
    pub(crate) changes: bool,
    pub(crate) handle: AttrId,
    pub(crate) input: AttrId,
}

/// The mailbox of a command, after a check that it names the object.
pub(crate) fn checked(
    state: &State,
    request: &Request<'_>,
    how: &OnObject,
) -> Result<Vec<u8>, Errno> {
    let (opcode, input) = mailbox(request, how.input, uid(state)?)?;
    let (create, changes) = subject(opcode).ok_or(Errno::EINVAL)?;
    if changes != how.changes || !is_subject(state, request.handle(how.handle)?, create, &input)? {
        return Err(Errno::EINVAL);
    }
    Ok(input)
}

pub(crate) fn obj_modify(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_obj_modify as id;
    let how = OnObject { changes: true, handle: id::HANDLE, input: id::CMD_IN };
    let input = checked(state, request, &how)?;
    execute(&file.hca, request, &input, id::CMD_OUT).map(drop)
}

pub(crate) fn obj_query(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_obj_query as id;
    let how = OnObject { changes: false, handle: id::HANDLE, input: id::CMD_IN };
    let input = checked(state, request, &how)?;
    execute(&file.hca, request, &input, id::CMD_OUT).map(drop)
}

pub(crate) fn umem_reg(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::devx_umem_reg as id;
    let uid = uid(state)?;
    let (start, length) = (request.number(id::ADDR)?, request.number(id::LEN)?);
    if length == 0 || start.checked_add(length).is_none() {
        return Err(Errno::EINVAL);
    }
    if !is_mapped(start, length) {
        return Err(Errno::EFAULT);
    }
    let access = AccessFlags::from_bits_retain(request.number(id::ACCESS)? as u32);
    let write = if access.contains(AccessFlags::LOCAL_WRITE) { MAY_WRITE } else { 0 };
    let (pages, offset) = pages(start, length, LOG_PAGE);
    let mut input = vec![0; CREATE_UMEM_BYTES];
    put(&mut input, (0, 16), CommandOpcode::CREATE_UMEM.0);
    put(&mut input, (16, 16), uid);
    put(&mut input, UMEM_LOG_PAGE, 0);
    put(&mut input, UMEM_OFFSET, offset as u32);
    set_bits(&mut input, UMEM_PAGES.0, UMEM_PAGES.1, pages.len() as u64);
    input.extend(pages.iter().flat_map(|page| (page | MAY_READ | write).to_be_bytes()));
    let output: [u8; 16] = file.hca.command_raw(&input)?;
    let number = take(&output, NUMBER);
    let handle = state.objects.add(Body::Umem(Umem { number }), &[]);
    request.made(id::HANDLE, handle.into());
    request.answer(id::OUT_ID, &number)
}
