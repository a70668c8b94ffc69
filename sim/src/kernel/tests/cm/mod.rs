//! The connection manager, by its calls.

mod connecting;
mod faults;
mod identifiers;

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use mlx5_uapi::rdma_cm::{
    Accept, Bind, ConnParam, Connect, CreateId, DestroyId, Disconnect, EventResp, EventType,
    GetEvent, InitQpAttr, Listen, MigrateId, PortSpace, Reject, ResolveAddr, ResolveRoute, UdParam,
    call,
};
use mlx5_uapi::verbs::{QpAttr, QpState, QpType};
use mlx5_uapi::{CmFile, Errno};
use zerocopy::FromBytes;

use crate::kernel::cm::CmCounts;
use crate::{CmConfig, PortConfig, SimConfig, Simulator};

/// The address of the first port.
const HERE: &str = "10.0.0.1";
const PORT: u16 = 7471;
/// Numbers that distinguish the identifiers in events.
const LISTENER: u64 = 100;
const CLIENT: u64 = 200;
const SERVER: u64 = 300;

/// A machine in virtual time.
fn machine(port: PortConfig) -> Simulator {
    let cm = CmConfig { response_ms: 1000, retries: 3, timewait_ms: 10 };
    Simulator::new(SimConfig::new().ports([port]).step(true).cm(cm))
}

fn storage(address: SocketAddr) -> ([u8; 128], u16) {
    let mut bytes = [0; 128];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes[0] = 2;
            bytes[4..8].copy_from_slice(&address.ip().octets());
            (bytes, 16)
        }
        SocketAddr::V6(address) => {
            bytes[0] = 10;
            bytes[8..24].copy_from_slice(&address.ip().octets());
            (bytes, 28)
        }
    }
}

/// An event, and its parameters of either kind.
struct Event(EventResp);

impl Event {
    fn kind(&self) -> EventType {
        EventType::from_raw(self.0.event).expect("a known event")
    }

    fn status(&self) -> i32 {
        self.0.status.cast_signed()
    }

    fn conn(&self) -> ConnParam {
        ConnParam::read_from_prefix(&self.0.param).expect("parameters").0
    }

    fn ud(&self) -> UdParam {
        UdParam::read_from_bytes(&self.0.param).expect("parameters")
    }
}

/// A channel of a program.
struct Program(Arc<dyn CmFile>);

impl Program {
    fn start(machine: &Simulator) -> Self {
        Self(machine.kernel().rdma_cm().expect("a channel"))
    }

    fn create(&self, uid: u64, space: PortSpace) -> u32 {
        let ps = space.raw();
        let qp_type = QpType::Rc.raw();
        call(&*self.0, CreateId { uid, ps, qp_type, ..Default::default() }).expect("created").id
    }

    fn destroy(&self, id: u32) -> Result<u32, Errno> {
        call(&*self.0, DestroyId { id, ..Default::default() }).map(|gone| gone.events_reported)
    }

    fn bind(&self, id: u32, address: &str, port: u16) -> Result<(), Errno> {
        let (addr, addr_size) =
            storage((address.parse::<std::net::IpAddr>().expect("IP"), port).into());
        call(&*self.0, Bind { id, addr, addr_size, ..Default::default() })
    }

    fn listen(&self, id: u32, backlog: u32) -> Result<(), Errno> {
        call(&*self.0, Listen { id, backlog })
    }

    fn resolve_addr(&self, id: u32, address: &str, port: u16) -> Result<(), Errno> {
        let ip: std::net::IpAddr = address.parse().expect("IP");
        let (dst_addr, dst_size) = storage((ip, port).into());
        let timeout_ms = 2000;
        call(&*self.0, ResolveAddr { id, dst_addr, dst_size, timeout_ms, ..Default::default() })
    }

    fn resolve_route(&self, id: u32) -> Result<(), Errno> {
        call(&*self.0, ResolveRoute { id, timeout_ms: 2000 })
    }

    fn connect(&self, id: u32, data: &[u8]) -> Result<(), Errno> {
        call(&*self.0, Connect { id, conn_param: param(0x10 + id, data), ..Default::default() })
    }

    fn accept(&self, id: u32, data: &[u8]) -> Result<(), Errno> {
        let conn_param = param(0x20 + id, data);
        call(&*self.0, Accept { id, uid: SERVER, conn_param, ..Default::default() })
    }

    /// Says that this side is ready.
    fn ready(&self, id: u32) -> Result<(), Errno> {
        call(&*self.0, Accept { id, ..Default::default() })
    }

    fn reject(&self, id: u32, data: &[u8]) -> Result<(), Errno> {
        let mut reject = Reject { id, private_data_len: data.len() as u8, ..Default::default() };
        reject.private_data[..data.len()].copy_from_slice(data);
        call(&*self.0, reject)
    }

    fn disconnect(&self, id: u32) -> Result<(), Errno> {
        call(&*self.0, Disconnect { id })
    }

    fn attributes(&self, id: u32, state: QpState) -> Result<QpAttr, Errno> {
        let qp_state = state.raw().into();
        call(&*self.0, InitQpAttr { id, qp_state, ..Default::default() })
    }

    fn migrate(&self, id: u32, from: &Program) -> Result<u32, Errno> {
        let fd = from.0.as_fd().as_raw_fd().cast_unsigned();
        let moved = call(&*self.0, MigrateId { id, fd, ..Default::default() });
        moved.map(|moved| moved.events_reported)
    }

    fn event(&self) -> Option<Event> {
        match call(&*self.0, GetEvent::default()) {
            Ok(event) => Some(Event(event)),
            Err(Errno::EAGAIN) => None,
            Err(errno) => panic!("{errno}"),
        }
    }

    /// The next event, which is of this kind.
    #[track_caller]
    fn expect(&self, kind: EventType) -> Event {
        let event = self.event().unwrap_or_else(|| panic!("no event, and not {kind:?}"));
        assert_eq!(event.kind(), kind, "status {}", event.status());
        event
    }
}

fn param(qp_num: u32, data: &[u8]) -> ConnParam {
    let mut param = ConnParam {
        qp_num,
        private_data_len: data.len() as u8,
        responder_resources: 4,
        initiator_depth: 2,
        retry_count: 5,
        rnr_retry_count: 6,
        valid: 1,
        ..ConnParam::default()
    };
    param.private_data[..data.len()].copy_from_slice(data);
    param
}

/// Two programs, of which one listens and the other has resolved its address.
struct Pair {
    machine: Simulator,
    server: Program,
    client: Program,
    listener: u32,
    id: u32,
}

impl Pair {
    fn new(space: PortSpace) -> Self {
        Self::on(machine(PortConfig::ROCE), space)
    }

    fn on(machine: Simulator, space: PortSpace) -> Self {
        let (server, client) = (Program::start(&machine), Program::start(&machine));
        let listener = server.create(LISTENER, space);
        server.bind(listener, HERE, PORT).expect("bound");
        server.listen(listener, 2).expect("listening");
        let id = resolved(&client, CLIENT, space);
        Self { machine, server, client, listener, id }
    }

    /// Asks for a connection; the identifier that the server has for it.
    fn ask(&self) -> u32 {
        self.client.connect(self.id, b"hello").expect("asked");
        self.server.expect(EventType::ConnectRequest).0.id
    }

    /// Connects; the identifier that the server has for it.
    fn connect(&self) -> u32 {
        let request = self.ask();
        self.server.accept(request, b"welcome").expect("accepted");
        self.client.expect(EventType::ConnectResponse);
        self.client.ready(self.id).expect("ready");
        self.server.expect(EventType::Established);
        request
    }

    /// Nothing is left once both programs have ended.
    #[track_caller]
    fn end(self) {
        drop((self.server, self.client));
        assert_eq!(self.machine.cm_counts(), CmCounts::default());
    }
}

/// An identifier whose address and route are resolved.
fn resolved(client: &Program, uid: u64, space: PortSpace) -> u32 {
    let id = client.create(uid, space);
    client.resolve_addr(id, HERE, PORT).expect("resolving");
    client.expect(EventType::AddrResolved);
    client.resolve_route(id).expect("resolving");
    client.expect(EventType::RouteResolved);
    id
}
