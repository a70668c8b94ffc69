//! Expands the table into scripts.

use crate::script::{
    Command, Entry, Form, Init, Operation, Path, Payload, Receive, Request, Rtr, Rts, Sizes,
    Transport,
};
use crate::table::{Door, Link, OddLine, PathLine, QueueLine, SharedLine, Table};

/// Sizes of the queues: room for the longest form, in rings short enough to wrap often.
const SIZES: Sizes = Sizes {
    blocks: 128,
    receives: 16,
    send_sges: 20,
    recv_sges: 4,
    inline: 400,
    signal_all: false,
};
/// Sizes in shorter rings, where the longest forms have no room.
const SMALL: Sizes = Sizes { send_sges: 4, inline: 64, ..SIZES };
/// Fillers in one list: rdma-core counts each request as one of the largest size.
const FILLERS: u32 = 4;
/// The 16-bit counters wrap after this many requests.
const COUNTER: u32 = 1 << 16;

/// The script of one queue pair, up to the current command.
struct Run<'a> {
    table: &'a Table,
    queue: &'a QueueLine,
    commands: Vec<Command>,
    /// Number of requests so far; makes the numbers in them differ.
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

/// Blocks of a request.
fn blocks(transport: Transport, operation: Operation, form: &Form) -> u32 {
    let address = if transport == Transport::Ud { 3 } else { 0 };
    let data = match form {
        Form::Sges(list) => list.iter().filter(|length| **length != 0).count() as u32,
        Form::Inline(list) => match list.iter().sum::<u32>() {
            0 => 0,
            length => (length + 4).div_ceil(16),
        },
    };
    (1 + address + u32::from(operation.is_rdma()) + data).div_ceil(4)
}

impl<'a> Run<'a> {
    /// Starts with a queue pair in RTS.
    fn new(
        table: &'a Table,
        queue: &'a QueueLine,
        name: &str,
        own: &[[u8; 16]],
        shared: Option<&SharedLine>,
    ) -> Self {
        let base = if queue.blocks < SIZES.blocks { SMALL } else { SIZES };
        let receives = if shared.is_some() { 0 } else { base.receives };
        let sizes = Sizes { blocks: queue.blocks, signal_all: queue.signal_all, receives, ..base };
        let QueueLine { transport, builder, door, .. } = *queue;
        let (name, shared_door) = (name.to_owned(), door == Door::Shared);
        let mut commands = vec![
            Command::Queue { name, transport, builder, shared_door },
            Command::Cq { entries: 255, vector: 0 },
            Command::Mr { bytes: 0x2345, access: 0b111 },
        ];
        commands.extend(queue.paths.iter().map(|name| {
            let line = table.paths.iter().find(|path| path.name == *name);
            Command::Ah(path(line.unwrap_or_else(|| panic!("no path {name}")), own))
        }));
        commands.extend(
            shared
                .map(|shared| Command::Srq { requests: shared.requests, entries: shared.entries }),
        );
        commands.extend([
            Command::Qp(sizes),
            Command::Init(Init { port: 1, pkey: 0, access: 0b1111, qkey: 0x1111_1111 }),
            Command::Rtr(Rtr {
                mtu: 3,
                dest: 0x12_3456,
                psn: 0xab_cdef,
                reads: 4,
                rnr: 12,
                path: 0,
            }),
            Command::Rts(Rts { psn: 0xfe_dcba, timeout: 14, retry: 7, rnr: 6, reads: 8 }),
        ]);
        let mut run = Self { table, queue, commands, count: 0, head: 0, sizes };
        let (operation, form) = match transport {
            Transport::Ud => (Operation::Send, Form::Sges(Vec::new())),
            _ => (Operation::RdmaWrite, Form::Inline(vec![8])),
        };
        let filler = run.request(operation, "S", &form);
        run.commands.push(Command::Filler(filler));
        run
    }

    fn request(&mut self, operation: Operation, flags: &str, form: &Form) -> Request {
        self.count += 1;
        let n = self.count;
        let payload = match form {
            Form::Inline(list) => Payload::Inline(list.clone()),
            Form::Sges(list) => Payload::Sges(self.entries(list)),
        };
        Request {
            wr_id: u64::from(n),
            operation,
            flags: flags.to_owned(),
            immediate: 0x8123_4567 ^ n << 3,
            address: 0x7f12_3456_7000 + u64::from(n) * 0x1003,
            rkey: 0xfedc_ba00 ^ n,
            ah: n as usize % self.queue.paths.len(),
            qpn: 0x00ab_cd00 ^ n & 0xff_ffff,
            qkey: 0x8001_0000 ^ n,
            payload,
        }
    }

    fn entries(&self, lengths: &[u32]) -> Vec<Entry> {
        let entry = |(index, length): (usize, &u32)| Entry {
            addr: 0x5600_0000_0123 + u64::from(self.count) * 0x1_0001 + index as u64 * 0x101,
            length: *length,
            lkey: 0x0010_0200 + self.count * 0x100 + index as u32,
        };
        lengths.iter().enumerate().map(entry).collect()
    }

    fn blocks(&self, operation: Operation, form: &Form) -> u32 {
        blocks(self.queue.transport, operation, form)
    }

    fn fits(&self, form: &Form) -> bool {
        match form {
            Form::Sges(list) => list.len() as u32 <= self.sizes.send_sges,
            Form::Inline(list) => list.iter().sum::<u32>() <= self.sizes.inline,
        }
    }

    /// Fills the ring up to this block.
    fn fill_to(&mut self, head: u32) {
        let mut missing = head - self.head;
        for count in [FILLERS, 1] {
            if missing >= count {
                self.commands.push(Command::Fill { count, times: missing / count });
                missing %= count;
            }
        }
        self.head = head;
    }

    /// Fills up to where `before` blocks are left of the next `lap` blocks.
    fn fill_to_end(&mut self, lap: u32, before: u32) {
        self.fill_to((self.head + before).next_multiple_of(lap) - before);
    }

    fn post(&mut self, label: String, list: &[(Operation, &str, &Form)]) {
        let mut requests = Vec::new();
        for (operation, flags, form) in list {
            requests.push(self.request(*operation, flags, form));
            self.head += self.blocks(*operation, form);
        }
        self.commands.push(Command::Post(label, requests));
        self.commands.push(Command::Drain);
    }

    /// Each request of the table by itself, at whatever block it starts.
    fn singles(&mut self) {
        let table = self.table;
        for line in &table.requests {
            if !line.transports.contains(&self.queue.transport) {
                continue;
            }
            for flags in &line.flags {
                for name in &line.forms {
                    let Some(form) = table.form(name).filter(|form| self.fits(form)) else {
                        continue;
                    };
                    let operation = line.operation;
                    let label = format!("{operation}/{flags}/{name}");
                    self.post(label, &[(operation, flags, form)]);
                }
            }
        }
    }

    /// Each request of more than one block across and up to the end of the ring, at every block.
    fn wraps(&mut self) {
        let table = self.table;
        for line in &table.requests {
            if !line.transports.contains(&self.queue.transport) {
                continue;
            }
            for name in &line.forms {
                let Some(form) = table.form(name).filter(|form| self.fits(form)) else { continue };
                let operation = line.operation;
                for before in 1..=self.blocks(operation, form) {
                    self.fill_to_end(self.queue.blocks, before);
                    let label = format!("{operation}/{name}/{before}-before-the-end");
                    self.post(label, &[(operation, "S", form)]);
                }
            }
        }
    }

    /// Lists of two and more requests of every kind, one doorbell each.
    fn lists(&mut self) {
        let table = self.table;
        let mut all = Vec::new();
        for line in &table.requests {
            if line.transports.contains(&self.queue.transport) {
                let forms = line.forms.iter().filter_map(|name| table.form(name));
                let forms = forms.filter(|form| self.fits(form));
                all.extend(forms.map(|form| (line.operation, form)));
            }
        }
        // Neighbours in the list are far from each other in the table.
        let stride = all.len() / 3 + 1;
        for count in 2..=FILLERS as usize {
            for start in (0..all.len()).step_by(count) {
                let list: Vec<_> = (0..count)
                    .map(|index| {
                        let (operation, form) = all[(start + index * stride) % all.len()];
                        (operation, if index + 1 == count { "S" } else { "-" }, form)
                    })
                    .collect();
                self.post(format!("list-of-{count}/{start}"), &list);
            }
        }
    }

    /// Requests across the wrap of the 16-bit counter.
    fn laps(&mut self) {
        let operation = match self.queue.transport {
            Transport::Ud => Operation::SendImm,
            _ => Operation::RdmaWriteImm,
        };
        for (name, before) in [("i8", 1), ("i237", 1), ("fourteen", 2), ("i237", 4)] {
            let form = self.table.form(name).unwrap_or_else(|| panic!("no form {name}"));
            self.fill_to_end(COUNTER, before);
            let label = format!("{operation}/{name}/{before}-before-the-counter-wraps");
            self.post(label, &[(operation, "S", form)]);
        }
    }

    fn receive(&mut self, lengths: &[u32]) -> Receive {
        self.count += 1;
        Receive { wr_id: self.count.into(), entries: self.entries(lengths) }
    }

    /// Receives, one by one and in lists, across the end of the ring and, where asked for, across
    /// the wrap of the counter.
    fn receives(&mut self) {
        let table = self.table;
        for round in 0..2 {
            for (name, lengths) in &table.receives {
                let one = self.receive(lengths);
                self.commands.push(Command::Recv(format!("{name}/{round}"), vec![one]));
                self.commands.push(Command::ReceiveDrain);
            }
        }
        for count in 2..=5 {
            for start in 0..table.receives.len() {
                let list = (0..count)
                    .map(|n| self.receive(&table.receives[(start + n) % table.receives.len()].1))
                    .collect();
                self.commands.push(Command::Recv(format!("list-of-{count}/{start}"), list));
                self.commands.push(Command::ReceiveDrain);
            }
        }
        if self.queue.laps {
            let (count, times) = (self.sizes.receives, COUNTER / self.sizes.receives - 8);
            self.commands.push(Command::ReceiveFill { count, times });
            for n in 0..12 {
                let list = (0..13).map(|_| self.receive(&[n, 77])).collect();
                self.commands.push(Command::Recv(format!("lap/{n}"), list));
                self.commands.push(Command::ReceiveDrain);
            }
        }
        // More than the queue has room for: those that fit are posted.
        let list = (0..=self.sizes.receives).map(|n| self.receive(&[n + 1])).collect();
        self.commands.push(Command::Recv("one-too-many".into(), list));
        self.commands.push(Command::ReceiveDrain);
        let too_long = vec![1; self.sizes.recv_sges as usize + 30];
        let list = vec![self.receive(&[5]), self.receive(&too_long), self.receive(&[6])];
        self.commands.push(Command::Recv("too-many-entries".into(), list));
    }

    /// Posts to a shared receive queue, completed in order and out of it.
    fn shared(&mut self, line: &SharedLine) {
        let table = self.table;
        let forms: Vec<_> = table
            .receives
            .iter()
            .filter(|(_, lengths)| lengths.len() as u32 <= line.entries)
            .collect();
        let room = line.requests as usize;
        for (n, (name, lengths)) in forms.iter().enumerate() {
            let one = self.receive(lengths);
            self.commands.push(Command::SharedRecv(format!("{name}/{n}"), vec![one]));
            self.commands.push(Command::SharedDrain(vec![0]));
        }
        for round in 0..4 * room {
            let count = 2 + round % (room - 1);
            let list =
                (0..count).map(|n| self.receive(&forms[(round + n) % forms.len()].1)).collect();
            self.commands.push(Command::SharedRecv(format!("list-of-{count}/{round}"), list));
            // The last first, then every other one, then the rest.
            let order = match round % 3 {
                0 => vec![0; count],
                1 => (0..count).rev().collect(),
                _ => (0..count).map(|n| (count - n) / 2).collect(),
            };
            self.commands.push(Command::SharedDrain(order));
        }
    }
}

/// A script, and the devices on which both sides run it.
pub(crate) struct Script {
    pub(crate) link: Link,
    /// Without BlueFlame registers.
    pub(crate) plain: bool,
    pub(crate) commands: Vec<Command>,
}

fn odd(table: &Table, line: &OddLine, own: &[[u8; 16]]) -> Vec<Command> {
    let queue = table.queues.iter().find(|queue| queue.name == line.queue);
    let queue = queue.unwrap_or_else(|| panic!("no queue {}", line.queue));
    let mut run = Run::new(table, queue, &format!("odd/{}", line.name), own, None);
    // Past the first lap, so that the ring has content of the lap before.
    run.fill_to(queue.blocks);
    let list: Vec<_> = line
        .requests
        .iter()
        .map(|(operation, flags, form)| {
            let form = table.form(form).unwrap_or_else(|| panic!("no form {form}"));
            run.request(*operation, flags, form)
        })
        .collect();
    run.commands.push(Command::Post(line.name.clone(), list));
    run.commands
}

/// The scripts of a table. `own` has the device's GIDs, by link layer.
pub(crate) fn expand(table: &Table, own: impl Fn(Link) -> Vec<[u8; 16]>) -> Vec<Script> {
    let machines = [(Link::InfiniBand, false), (Link::InfiniBand, true), (Link::Ethernet, false)];
    machines
        .into_iter()
        .map(|(link, plain)| {
            let own = own(link);
            let mut commands = Vec::new();
            let here =
                |queue: &&QueueLine| queue.link == link && (queue.door == Door::Plain) == plain;
            for queue in table.queues.iter().filter(here) {
                let mut run = Run::new(table, queue, &queue.name, &own, None);
                run.singles();
                run.wraps();
                run.lists();
                run.receives();
                if queue.laps {
                    run.laps();
                }
                commands.append(&mut run.commands);
            }
            if link == Link::InfiniBand && !plain {
                let queue = &table.queues[0];
                for line in &table.shared {
                    let mut run = Run::new(table, queue, &line.name, &own, Some(line));
                    run.shared(line);
                    commands.append(&mut run.commands);
                }
                for line in &table.odd {
                    commands.append(&mut odd(table, line, &own));
                }
                for queue in table.queues.iter().filter(here).filter(|queue| queue.builder) {
                    if queue.transport == Transport::Rc {
                        let name = format!("overfull/{}", queue.name);
                        let mut run = Run::new(table, queue, &name, &own, None);
                        run.commands.push(Command::Overfull);
                        commands.append(&mut run.commands);
                    }
                }
            }
            Script { link, plain, commands }
        })
        .collect()
}
