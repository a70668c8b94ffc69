//! The script that a table stands for.

use crate::script::{
    Command, Entry, Form, Init, Operation, Path, Payload, Receive, Request, Rtr, Rts, Sizes,
    Transport,
};
use crate::table::{Door, OddLine, PathLine, QueueLine, SharedLine, Table};

/// Sizes of the queues: room for the longest form, in rings that are short enough to go round often.
const SIZES: Sizes =
    Sizes { blocks: 128, receives: 16, send_sges: 20, recv_sges: 4, inline: 400, signal_all: false };
/// Sizes of the queues for rings of 32 blocks, in which the longest forms have no room.
const SMALL: Sizes = Sizes { send_sges: 4, inline: 64, ..SIZES };
/// Fillers in one list: rdma-core counts each request as one of the largest size.
const FILLERS: u32 = 4;
/// The 16-bit counters come round after so many.
const COUNTER: u32 = 1 << 16;

/// The run of one queue pair, as far as it is made.
struct Run<'a> {
    table: &'a Table,
    queue: &'a QueueLine,
    commands: Vec<Command>,
    /// Requests so far; makes the numbers in them differ.
    count: u32,
    /// Blocks so far.
    head: u32,
    sizes: Sizes,
}

fn path(line: &PathLine, own: &[[u8; 16]]) -> Path {
    Path {
        dlid: line.dlid,
        sl: line.sl,
        bits: line.bits,
        rate: line.rate,
        global: line.global,
        gid: if line.global { own[usize::from(line.sgid)] } else { [0; 16] },
        flow: line.flow,
        sgid: line.sgid,
        hop: line.hop,
        tclass: line.tclass,
    }
}

/// 16-byte units of a request.
fn units(transport: Transport, operation: Operation, form: &Form) -> u32 {
    let address = if transport == Transport::Ud { 3 } else { 0 };
    let data = match form {
        Form::Sges(list) => list.iter().filter(|length| **length != 0).count() as u32,
        Form::Inline(list) => match list.iter().sum::<u32>() {
            0 => 0,
            length => (length + 4).div_ceil(16),
        },
    };
    1 + address + u32::from(operation.is_rdma()) + data
}

impl<'a> Run<'a> {
    /// Starts with a queue pair in RTS.
    fn new(table: &'a Table, queue: &'a QueueLine, name: &str, own: &[[u8; 16]]) -> Self {
        let base = if queue.blocks < SIZES.blocks { SMALL } else { SIZES };
        let sizes = Sizes { blocks: queue.blocks, signal_all: queue.signal_all, ..base };
        let mut run = Self { table, queue, commands: Vec::new(), count: 0, head: 0, sizes };
        run.open(name, own, None);
        run
    }

    fn open(&mut self, name: &str, own: &[[u8; 16]], shared: Option<&SharedLine>) {
        let QueueLine { transport, builder, door, .. } = *self.queue;
        let name = name.to_owned();
        let shared_door = door == Door::Shared;
        self.commands.push(Command::Queue { name, transport, builder, shared_door });
        self.commands.push(Command::Cq { entries: 255, vector: 0 });
        self.commands.push(Command::Mr { bytes: 0x2345, access: 0b111 });
        for name in &self.queue.paths {
            let line = self.table.paths.iter().find(|path| path.name == *name);
            let line = line.unwrap_or_else(|| panic!("no path {name}"));
            self.commands.push(Command::Ah(path(line, own)));
        }
        if let Some(SharedLine { requests, entries, .. }) = *shared.as_slice().first().unwrap_or(&&SharedLine {
            name: String::new(),
            requests: 0,
            entries: 0,
        })
        .as_some()
        {
            self.commands.push(Command::Srq { requests, entries });
        }
        let sizes = Sizes { receives: if shared.is_some() { 0 } else { self.sizes.receives }, ..self.sizes };
        self.commands.extend([
            Command::Qp(sizes),
            Command::Init(Init { port: 1, pkey: 0, access: 0b1111, qkey: 0x1111_1111 }),
            Command::Rtr(Rtr { mtu: 3, dest: 0x12_3456, psn: 0xab_cdef, reads: 4, rnr: 12, path: 0 }),
            Command::Rts(Rts { psn: 0xfe_dcba, timeout: 14, retry: 7, rnr: 6, reads: 8 }),
        ]);
        let operation = if transport == Transport::Ud { Operation::Send } else { Operation::RdmaWrite };
        let form = if transport == Transport::Ud { Form::Sges(vec![]) } else { Form::Inline(vec![8]) };
        let filler = self.request(operation, "S", &form);
        self.commands.push(Command::Filler(filler));
    }
}
