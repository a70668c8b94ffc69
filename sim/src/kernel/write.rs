//! INVOKE_WRITE: commands in the form of write(2) calls.

use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::write_cmd as layouts;
use mlx5_uapi::write_cmd::WriteCommand;

use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::write_call::WriteCall;
use crate::kernel::{context, cq, flow, mr, qp, qp_modify, query, simple, srq, wq, xrcd};

type Handler = fn(&OpenFile, &mut State, &mut WriteCall<'_, '_>) -> Result<(), Errno>;

/// A command, the shortest request and response in bytes, and its handler.
struct Entry {
    command: WriteCommand,
    request: usize,
    response: usize,
    handler: Handler,
}

#[rustfmt::skip]
static COMMANDS: &[Entry] = &[
    Entry { command: WriteCommand::QUERY_DEVICE, request: 8, response: 176, handler: query::device },
    Entry { command: WriteCommand::QUERY_DEVICE_EX, request: 8, response: 184, handler: query::device_ex },
    Entry { command: WriteCommand::ALLOC_PD, request: 8, response: size_of::<layouts::AllocPdResp>(), handler: simple::alloc_pd },
    Entry { command: WriteCommand::CREATE_AH, request: size_of::<layouts::CreateAh>(), response: 4, handler: simple::create_ah },
    Entry { command: WriteCommand::REG_MR, request: size_of::<layouts::RegMr>(), response: 12, handler: mr::reg },
    Entry { command: WriteCommand::REREG_MR, request: size_of::<layouts::ReregMr>(), response: 8, handler: mr::rereg },
    Entry { command: WriteCommand::ALLOC_MW, request: size_of::<layouts::AllocMw>(), response: 8, handler: mr::alloc_window },
    Entry { command: WriteCommand::CREATE_COMP_CHANNEL, request: 8, response: 4, handler: context::create_comp_channel },
    Entry { command: WriteCommand::RESIZE_CQ, request: size_of::<layouts::ResizeCq>(), response: 8, handler: cq::resize },
    Entry { command: WriteCommand::MODIFY_CQ_EX, request: size_of::<layouts::ExModifyCq>(), response: 0, handler: cq::moderate },
    Entry { command: WriteCommand::QUERY_QP, request: size_of::<layouts::QueryQp>(), response: size_of::<layouts::QueryQpResp>(), handler: qp::query },
    Entry { command: WriteCommand::OPEN_QP, request: size_of::<layouts::OpenQp>(), response: size_of::<layouts::CreateQpResp>(), handler: qp::open },
    Entry { command: WriteCommand::MODIFY_QP, request: size_of::<layouts::ModifyQp>(), response: 0, handler: qp_modify::modify },
    Entry { command: WriteCommand::MODIFY_QP_EX, request: 116, response: 8, handler: qp_modify::modify_ex },
    Entry { command: WriteCommand::ATTACH_MCAST, request: size_of::<layouts::Mcast>(), response: 0, handler: qp::attach },
    Entry { command: WriteCommand::DETACH_MCAST, request: size_of::<layouts::Mcast>(), response: 0, handler: qp::detach },
    Entry { command: WriteCommand::MODIFY_SRQ, request: size_of::<layouts::ModifySrq>(), response: 0, handler: srq::modify },
    Entry { command: WriteCommand::QUERY_SRQ, request: size_of::<layouts::QuerySrq>(), response: size_of::<layouts::QuerySrqResp>(), handler: srq::query },
    Entry { command: WriteCommand::CREATE_FLOW_EX, request: size_of::<layouts::CreateFlow>(), response: size_of::<layouts::CreateFlowResp>(), handler: flow::create },
    Entry { command: WriteCommand::MODIFY_WQ_EX, request: size_of::<layouts::ModifyWq>(), response: 0, handler: wq::modify },
    Entry { command: WriteCommand::CREATE_RWQ_IND_TBL_EX, request: size_of::<layouts::CreateRwqIndTable>(), response: size_of::<layouts::CreateRwqIndTableResp>(), handler: wq::create_table },
    Entry { command: WriteCommand::OPEN_XRCD, request: size_of::<layouts::OpenXrcd>(), response: 4, handler: xrcd::open },
];

pub(crate) fn invoke(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let command = WriteCommand(request.number_u32(attr::invoke_write::WRITE_CMD)?);
    let entry = COMMANDS.iter().find(|entry| entry.command == command).ok_or(Errno::EOPNOTSUPP)?;
    let core_in = request.input(attr::invoke_write::CORE_IN)?;
    let room = request.room(attr::invoke_write::CORE_OUT);
    if core_in.len() < entry.request || room < entry.response {
        return Err(Errno::ENOSPC);
    }
    let driver_in = request.input(attr::uhw::IN)?;
    (entry.handler)(file, state, &mut WriteCall::new(request, core_in, driver_in))
}
