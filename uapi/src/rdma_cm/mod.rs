//! The connection manager: `rdma/rdma_user_cm.h`, and a typed call for each command.
//!
//! A program opens `/dev/infiniband/rdma_cm` once for each event channel, and makes calls by
//! `write()`: a [`Header`], then the command. A command that has a response contains its address.
//! Events are read by a command, too. [`CmFile`] separates the driver from the kernel.

mod layouts;

pub use layouts::*;

use std::os::fd::RawFd;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Errno, call::MAX_EINTR_RETRIES, kernel::CmFile, layout::numbers, verbs::QpAttr};

/// `RDMA_USER_CM_ABI_VERSION`: the `abi_version` of the device in sysfs.
pub const ABI_VERSION: u32 = 4;

/// The device in sysfs.
pub const SYSFS: &str = "class/misc/rdma_cm";

/// Name of the node below `/dev/infiniband`.
pub const NODE: &str = "rdma_cm";

/// `AF_INET`: the family of [`Ipv4Address`].
pub const AF_INET: u16 = 2;

/// `AF_INET6`: the family of [`Ipv6Address`].
pub const AF_INET6: u16 = 10;

/// `AF_IB`: the family of [`IbAddress`].
pub const AF_IB: u16 = 27;

/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`: the flags of the path to use.
pub const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 4;

numbers! {
    /// The commands (`RDMA_USER_CM_CMD_*`).
    pub enum CommandId: u32 {
        CreateId = 0 => "Creates an identifier.",
        DestroyId = 1 => "Destroys one.",
        BindIp = 2 => "Binds one to an IP address.",
        ResolveIp = 3 => "Resolves an IP address.",
        ResolveRoute = 4 => "Resolves the route to a resolved address.",
        QueryRoute = 5 => "Queries addresses and route.",
        Connect = 6 => "Asks for a connection.",
        Listen = 7 => "Listens.",
        Accept = 8 => "Accepts a request, or says that this side is ready.",
        Reject = 9 => "Rejects a request.",
        Disconnect = 10 => "Ends a connection.",
        InitQpAttr = 11 => "Returns the attributes of a queue pair for its next state.",
        GetEvent = 12 => "Reads an event.",
        GetOption = 13 => "No kernel has it.",
        SetOption = 14 => "Sets an option.",
        Notify = 15 => "Reports an event of the queue pair.",
        JoinIpMcast = 16 => "Joins a multicast group by IP address.",
        LeaveMcast = 17 => "Leaves a multicast group.",
        MigrateId = 18 => "Moves an identifier to this channel.",
        Query = 19 => "Queries addresses, GIDs or paths.",
        Bind = 20 => "Binds one to an address of any family.",
        ResolveAddr = 21 => "Resolves an address of any family.",
        JoinMcast = 22 => "Joins a multicast group of any family.",
        ResolveIbService = 23 => "Resolves a service by name or number.",
        WriteCmEvent = 24 => "Writes an event to a channel.",
    }

    /// `enum rdma_ucm_port_space`.
    pub enum PortSpace: u16 {
        IpoIb = 0x0002 => "IPoIB: datagrams with the Q_Key of the interface.",
        Ib = 0x013f => "Service IDs of InfiniBand.",
        Tcp = 0x0106 => "Connections.",
        Udp = 0x0111 => "Datagrams.",
    }

    /// The options of QUERY (`RDMA_USER_CM_QUERY_*`).
    pub enum QueryOption: u32 {
        Addr = 0 => "Addresses.",
        Path = 1 => "Paths.",
        Gid = 2 => "GIDs, as addresses of InfiniBand.",
        IbService = 3 => "Resolved services.",
    }

    /// `enum rdma_cm_event_type`.
    pub enum EventType: u32 {
        AddrResolved = 0 => "The address was resolved.",
        AddrError = 1 => "It could not be resolved.",
        RouteResolved = 2 => "The route was resolved.",
        RouteError = 3 => "It could not be resolved.",
        ConnectRequest = 4 => "A peer asks for a connection.",
        ConnectResponse = 5 => "The peer accepted; this side has to say that it is ready.",
        ConnectError = 6 => "The connection failed.",
        Unreachable = 7 => "The peer does not answer.",
        Rejected = 8 => "The peer rejected.",
        Established = 9 => "The connection is established.",
        Disconnected = 10 => "The connection has ended.",
        DeviceRemoval = 11 => "The device is going.",
        MulticastJoin = 12 => "The group was joined.",
        MulticastError = 13 => "It could not be joined.",
        AddrChange = 14 => "The address moved to another device.",
        TimewaitExit = 15 => "No packet of the ended connection is on its way any more.",
        AddrinfoResolved = 16 => "A service was resolved.",
        AddrinfoError = 17 => "It could not be resolved.",
        User = 18 => "A program wrote the event.",
        Internal = 19 => "A library wrote the event.",
    }

    /// The levels of SET_OPTION (`RDMA_OPTION_*`).
    pub enum OptionLevel: u32 {
        Id = 0 => "[`IdOption`].",
        Ib = 1 => "1: a path of InfiniBand.",
    }

    /// The options of an identifier (`RDMA_OPTION_ID_*`).
    pub enum IdOption: u32 {
        Tos = 0 => "Type of service: one byte.",
        ReuseAddr = 1 => "Whether the address may be in use: an `int`.",
        AfOnly = 2 => "Whether IPv6 excludes IPv4: an `int`.",
        AckTimeout = 3 => "Acknowledge timeout: one byte; from 5.1 on.",
    }

    /// The flags of JOIN_MCAST (`RDMA_MC_JOIN_FLAG_*`).
    pub enum JoinFlag: u16 {
        FullMember = 0 => "Sends and receives.",
        SendOnlyFullMember = 1 => "Only sends.",
    }
}

/// Returns the service ID of a port in a port space (`RDMA_IB_IP_PS_MASK` and
/// `RDMA_IB_IP_PORT_MASK` are its parts).
pub const fn service_id(space: PortSpace, port: u16) -> u64 {
    (space as u64) << 16 | port as u64
}

/// Bytes of private data for which a message has room. If the addresses are IP addresses, a request
/// also carries these ([`IP_HEADER`](private_data::IP_HEADER)).
pub mod private_data {
    /// `struct cma_hdr`: precedes the private data of a request.
    pub const IP_HEADER: usize = 36;
    /// Of a request (`IB_CM_REQ_PRIVATE_DATA_SIZE`).
    pub const REQUEST: usize = 92;
    /// Of a reply that accepts (`IB_CM_REP_PRIVATE_DATA_SIZE`).
    pub const REPLY: usize = 196;
    /// Of a rejection (`IB_CM_REJ_PRIVATE_DATA_SIZE`).
    pub const REJECT: usize = 148;
    /// Of a request for datagrams (`IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE`).
    pub const SIDR_REQUEST: usize = 216;
    /// Of a reply to one (`IB_CM_SIDR_REP_PRIVATE_DATA_SIZE`).
    pub const SIDR_REPLY: usize = 136;
}

/// The reason why a peer rejected (`enum ib_cm_rej_reason`); the status of [`EventType::Rejected`].
pub mod reject_reason {
    /// The peer's machine has no resources for another connection.
    pub const NO_RESOURCES: u32 = 3;
    /// The peer did not get its answer in time, or gave up.
    pub const TIMEOUT: u32 = 4;
    /// The peer does not know the connection.
    pub const INVALID_COMM_ID: u32 = 6;
    /// No program listens there.
    pub const INVALID_SERVICE_ID: u32 = 8;
    /// The connection already exists, or its queue pair is in use.
    pub const STALE_CONNECTION: u32 = 10;
    /// The program at the other end rejected.
    pub const CONSUMER_DEFINED: u32 = 28;
    /// The program cannot do what ECE asks for.
    pub const VENDOR_OPTION_NOT_SUPPORTED: u32 = 35;
}

/// A command: its number, and its response.
///
/// # Safety
/// The kernel finds no address in the command's bytes but the one that `respond_at` sets, to which
/// it writes at most a `Response`. `respond_at` sets it, unless `Response` has no bytes.
pub unsafe trait Command: IntoBytes + Immutable + Copy {
    /// Its number.
    const ID: CommandId;
    /// Its response; `()` if it has none.
    type Response: FromBytes + IntoBytes;
    /// Sets the address of the response.
    fn respond_at(&mut self, _address: u64) {}
}

/// One row per command: its structure, and the response that its field `response` refers to.
macro_rules! commands {
    ($( $id:ident $command:ident $( => $response:ty )?; )*) => { $(
        // SAFETY: `response` is the only address in the structures of these rows, and it is that of
        // a response of this type.
        unsafe impl Command for $command {
            const ID: CommandId = CommandId::$id;
            commands!(@response $( $response )?);
        }
    )* };
    (@response) => { type Response = (); };
    (@response $response:ty) => {
        type Response = $response;
        fn respond_at(&mut self, address: u64) {
            self.response = address;
        }
    };
}

commands! {
    CreateId CreateId => CreateIdResp;
    DestroyId DestroyId => DestroyIdResp;
    BindIp BindIp;
    Bind Bind;
    ResolveIp ResolveIp;
    ResolveAddr ResolveAddr;
    ResolveRoute ResolveRoute;
    Connect Connect;
    Listen Listen;
    Accept Accept;
    Reject Reject;
    Disconnect Disconnect;
    InitQpAttr InitQpAttr => QpAttr;
    GetEvent GetEvent => EventResp;
    Notify Notify;
    JoinIpMcast JoinIpMcast => CreateIdResp;
    JoinMcast JoinMcast => CreateIdResp;
    MigrateId MigrateId => MigrateResp;
}

/// Makes a call, and returns its response.
pub fn call<C: Command>(file: &dyn CmFile, command: C) -> Result<C::Response, Errno> {
    // SAFETY: the only address of a command is that of its response, as `Command` promises.
    unsafe { call_as(file, C::ID, command, C::respond_at) }
}

/// LEAVE_MCAST, which has the structure of another command.
pub fn leave_mcast(file: &dyn CmFile, id: u32) -> Result<DestroyIdResp, Errno> {
    let command = DestroyId { id, ..DestroyId::default() };
    // SAFETY: `respond_at` sets the only address of the command.
    unsafe { call_as(file, CommandId::LeaveMcast, command, DestroyId::respond_at) }
}

/// QUERY of addresses ([`QueryOption::Addr`]) or GIDs ([`QueryOption::Gid`]).
pub fn query_addr(file: &dyn CmFile, id: u32, option: QueryOption) -> Result<QueryAddrResp, Errno> {
    let command = Query { id, option: option.raw(), ..Query::default() };
    // SAFETY: the closure sets the only address of the command.
    unsafe { call_as(file, CommandId::Query, command, |query, at| query.response = at) }
}

/// QUERY of the path.
pub fn query_path(file: &dyn CmFile, id: u32) -> Result<QueryPathResp, Errno> {
    let command = Query { id, option: QueryOption::Path.raw(), ..Query::default() };
    // SAFETY: the closure sets the only address of the command.
    unsafe { call_as(file, CommandId::Query, command, |query, at| query.response = at) }
}

/// QUERY_ROUTE.
pub fn query_route(file: &dyn CmFile, id: u32) -> Result<QueryRouteResp, Errno> {
    let command = Query { id, ..Query::default() };
    // SAFETY: the closure sets the only address of the command.
    unsafe { call_as(file, CommandId::QueryRoute, command, |query, at| query.response = at) }
}

/// SET_OPTION of an identifier.
pub fn set_option(file: &dyn CmFile, id: u32, option: IdOption, value: &[u8]) -> Result<(), Errno> {
    let command = SetOption {
        optval: value.as_ptr() as u64,
        id,
        level: OptionLevel::Id.raw(),
        optname: option.raw(),
        optlen: value.len() as u32,
    };
    // SAFETY: the value is readable for its length during the call.
    unsafe { write(file, CommandId::SetOption, command.as_bytes(), 0) }
}

/// Replaces the descriptor that a call names (MIGRATE_ID), if `other` has one for it. A program
/// that passes calls to another process, where channels have other numbers, needs this.
pub fn replace_channel(call: &mut [u8], other: impl FnOnce(RawFd) -> Option<RawFd>) {
    if let Ok((header, command)) = Header::read_from_prefix(&*call)
        && header.cmd == CommandId::MigrateId.raw()
        && let Ok((mut command, _)) = MigrateId::read_from_prefix(command)
        && let Some(fd) = other(command.fd.cast_signed())
    {
        command.fd = fd.cast_unsigned();
        call[size_of::<Header>()..][..size_of::<MigrateId>()].copy_from_slice(command.as_bytes());
    }
}

/// Makes a call whose response has the type `R`.
///
/// # Safety
/// `respond_at` sets the command's only address.
unsafe fn call_as<C: IntoBytes + Immutable, R: FromBytes + IntoBytes>(
    file: &dyn CmFile,
    id: CommandId,
    mut command: C,
    respond_at: impl FnOnce(&mut C, u64),
) -> Result<R, Errno> {
    let mut response = R::new_zeroed();
    respond_at(&mut command, response.as_mut_bytes().as_mut_ptr() as u64);
    // SAFETY: the caller promises that the response's address is the only one. The response is
    // writable for its length, and nothing else uses it during the call.
    unsafe { write(file, id, command.as_bytes(), size_of::<R>()) }?;
    Ok(response)
}

/// Makes a call. Repeats it after `EINTR`.
///
/// # Safety
/// As for [`CmFile::write`].
unsafe fn write(
    file: &dyn CmFile,
    id: CommandId,
    command: &[u8],
    out_len: usize,
) -> Result<(), Errno> {
    let header = Header { cmd: id.raw(), in_len: command.len() as u16, out_len: out_len as u16 };
    let call = [header.as_bytes(), command].concat();
    let mut interruptions = 0;
    loop {
        // SAFETY: the caller promises that every address in the command is valid for its length.
        match unsafe { file.write(&call) } {
            Err(Errno::EINTR) if interruptions < MAX_EINTR_RETRIES => interruptions += 1,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
