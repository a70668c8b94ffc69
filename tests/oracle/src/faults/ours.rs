//! The same commands through this provider.

use std::sync::{Arc, Mutex};

use mlx5::mkey::{
    BlockSize, Crc, Domain, Interleaved, Mkey, MkeyAccess, Seed, Signature, SignatureBlock,
    SignatureBytes,
};
use mlx5::transport::Rc;
use mlx5::window::TypeOne;
use mlx5::{
    Access, CompletionQueue, ConnectOptions, Context, Data, DoorbellChoice, Drained, MemoryRegion,
    MemoryWindow, ProtectionDomain, Psn, QpAttributes, QueuePair, QueueState, RawWqe, SendFlags,
    SendHalf, SendWr, Sge, devices_on,
};
use mlx5_prm::cqe::{CqeOpcode, DESCRIPTOR, OPCODE_SHIFT};
use mlx5_prm::signature::SignatureErrorCqe;
use mlx5_prm::wqe::{BLOCK, UNIT};
use mlx5_sim::Simulator;
use mlx5_uapi::ioctl::method;
use zerocopy::{FromZeros, IntoBytes};

use crate::failure::Failure;
use crate::memory::{CompletionRing, Memory, SendRing};
use crate::ours::{address_at, driver_input, u32_at};
use crate::watch::Watch;

const COMPLETIONS: u32 = 255;
/// Entries of a queue pair that configures keys and binds windows, too.
const MANY: usize = 8;

/// A queue pair, and the addresses that the device would know.
struct Queue {
    qp: Option<QueuePair<Rc>>,
    user_index: u32,
    ring: SendRing,
    record: Memory,
    /// The block up to which the announced requests were read.
    head: u16,
}

impl Queue {
    fn qp(&mut self) -> Result<&mut QueuePair<Rc>, Failure> {
        self.qp.as_mut().ok_or(Failure::Missing("a queue pair"))
    }

    /// Blocks that the doorbell record announces.
    fn posted(&self) -> u16 {
        let record = self.record.read(0, 8);
        u16::from_be_bytes([record[6], record[7]])
    }
}

/// One run of a script. Its fields are dropped in this order.
pub(super) struct Side {
    queue: Option<Queue>,
    /// The proof that the queue is drained, once the driver asked for it.
    drained: Option<Drained>,
    signatures: bool,
    meanwhile: Option<u64>,
    target: u16,
    before: Vec<u8>,
    filling: u8,
    window: MemoryWindow<TypeOne>,
    window_key: u32,
    key: Mkey,
    mr: MemoryRegion,
    cq: CompletionQueue,
    completions: CompletionRing,
    pd: ProtectionDomain,
    context: Context,
    watch: Watch,
    said: Vec<String>,
}

impl Side {
    pub(super) fn new(simulator: &Simulator) -> Result<Self, Failure> {
        let watch = Watch::default();
        let device = devices_on(watch.kernel(simulator.kernel()))?.into_iter().next();
        let context = device.ok_or(Failure::Missing("a device"))?.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(COMPLETIONS).build()?;
        let driver = driver_input(&watch.take(), method::CQ_CREATE)?.to_vec();
        let entry = u32_at(&driver, 16) as usize;
        let length = (COMPLETIONS as usize + 1) * entry;
        // SAFETY: the completion queue owns its ring, and `Side` keeps it. The driver only reads
        // the ring, by volatile loads.
        let memory = unsafe { Memory::new(address_at(&driver, 0), length) };
        let completions = CompletionRing { memory, entry, written: 0 };
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::MW_BIND;
        let mr = pd.memory(4096).access(access).register()?;
        let window = pd.alloc_mw()?;
        let key = pd.create_mkey(4).block_signature().build()?;
        Ok(Self {
            queue: None,
            drained: None,
            signatures: false,
            meanwhile: None,
            target: 0,
            before: Vec::new(),
            filling: 0,
            window_key: window.rkey(),
            window,
            key,
            mr,
            cq,
            completions,
            pd,
            context,
            watch,
            said: Vec::new(),
        })
    }

    /// Runs the commands, and returns their answers.
    pub(super) fn run(mut self, commands: &[String]) -> Result<Vec<String>, Failure> {
        for command in commands {
            let mut words = command.split_whitespace();
            let name = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words
                .map(|word| u64::from_str_radix(word, 16))
                .collect::<Result<_, _>>()
                .map_err(|_| Failure::Missing("a number"))?;
            self.command(name, &numbers)?;
        }
        Ok(self.said)
    }

    fn say(&mut self, text: impl Into<String>) {
        self.said.push(text.into());
    }

    fn queue(&mut self) -> Result<&mut Queue, Failure> {
        self.queue.as_mut().ok_or(Failure::Missing("a queue pair"))
    }

    fn qp(&mut self) -> Result<&mut QueuePair<Rc>, Failure> {
        self.queue()?.qp()
    }

    fn sges(&self, count: u64) -> Result<Vec<Sge>, Failure> {
        let piece = |n: u64| self.mr.sge(8 * n as usize..8 * n as usize + 8);
        Ok((0..count).map(piece).collect::<Result<_, _>>()?)
    }

    fn command(&mut self, name: &str, numbers: &[u64]) -> Result<(), Failure> {
        match (name, numbers) {
            // This side reads nothing past its end.
            ("guard", _) => {}
            ("signatures", _) => self.signatures = true,
            ("make", &[blocks, entries]) => self.make(blocks as u32, entries as usize)?,
            ("send", &[wr_id, entries]) => {
                if self.post(wr_id, entries)? {
                    return Ok(());
                }
                return Err(Failure::Missing("room for a request"));
            }
            ("list", &[wr_id]) => {
                let sges = self.sges(1)?;
                let (flags, data) = (SendFlags::SIGNALED, Data::Sges(&sges));
                let wr = SendWr { wr_id, flags, data, ..SendWr::default() };
                let full = |_| Failure::Missing("room for a request");
                self.qp()?.post_send(&[wr]).map_err(full)?;
            }
            ("batch", &[entries]) => {
                let posted = self.post(0xbad, entries)?;
                self.say(if posted { "batch posted" } else { "batch refused" });
            }
            ("abort", &[count, entries]) => {
                let sges = self.sges(entries)?;
                let mut batch = self.qp()?.wr_start();
                for n in 0..count {
                    batch.wr(0xab0 + n, SendFlags::SIGNALED).send().sge_list(&sges);
                }
                batch.abort();
            }
            ("complete", _) => self.complete()?,
            ("reset", _) => {
                let reset = QpAttributes::new().qp_state(QueueState::Reset);
                self.qp()?.modify(&reset)?;
                self.queue()?.head = 0;
                self.connect()?;
            }
            ("drained", &[block]) => self.watch.drain(block as u16),
            ("target", &[block]) => {
                self.target = block as u16;
                let ring = self.queue()?.ring;
                self.before = ring.0.read(0, ring.0.length());
            }
            ("cancel", &[wr_id]) => self.cancel(wr_id)?,
            ("look", _) => self.look()?,
            ("signature", _) => {
                let target = self.target;
                let sum =
                    self.queue()?.ring.request(target).0.iter().fold(0, |sum, byte| sum ^ byte);
                self.say(if sum == 0xff { "signature right" } else { "signature wrong" });
            }
            ("questions", _) => self.say(format!("questions {:x}", self.watch.questions())),
            ("post-meanwhile", &[wr_id]) => self.meanwhile = Some(wr_id),
            ("configure", &[wr_id]) => self.configure(wr_id)?,
            ("errors", _) => self.errors()?,
            ("window", &[wr_id]) => {
                self.window_key = self.window.rkey();
                let Self { window, queue, mr, .. } = self;
                let queue = queue.as_mut().ok_or(Failure::Missing("a queue pair"))?;
                let access = Access::REMOTE_READ;
                window
                    .bind(queue.qp()?, wr_id, SendFlags::SIGNALED, mr, 0..64, access)
                    .map_err(|_| Failure::Missing("a bound window"))?;
            }
            ("window-key", _) => {
                let old = self.window.rkey() == self.window_key;
                self.say(if old { "window key old" } else { "window key new" });
            }
            ("raw", &[units]) => {
                self.filling += 1;
                let mut wqe = vec![self.filling; units as usize * UNIT];
                wqe[..UNIT].fill(0);
                (wqe[7], wqe[11]) = (units as u8, 8);
                // SAFETY: the simulated device executes nothing, so the WQE has no effect.
                let wqe = unsafe { RawWqe::new(&wqe) };
                let wqe = wqe.map_err(|_| Failure::Missing("a raw request"))?;
                let mut batch = self.qp()?.wr_start();
                batch.wr(0xbad, SendFlags::SIGNALED).raw_wqe(wqe);
                let posted = batch.complete().is_ok();
                self.say(if posted { "raw posted" } else { "raw refused" });
            }
            ("interleaved", &[bytes]) => self.interleaved(bytes as u32)?,
            _ => return Err(Failure::Missing("a command")),
        }
        Ok(())
    }

    fn make(&mut self, blocks: u32, entries: usize) -> Result<(), Failure> {
        self.watch.take();
        let signatures = self.signatures;
        let build = |requests| {
            self.pd
                .create_qp::<Rc>(&self.cq, &self.cq)
                .max_send_wr(requests)
                .max_recv_wr(0)
                .max_send_sge(entries as u32)
                .max_inline_data(if entries == MANY { 512 } else { 0 })
                .wqe_signature(signatures)
                .doorbell(DoorbellChoice::Auto)
                .build()
                .ok()
                .filter(|qp| qp.caps().send_blocks == blocks)
        };
        let qp = (1..=blocks).find_map(|part| build(blocks / part));
        let qp = qp.ok_or(Failure::Missing("a ring of this number of blocks"))?;
        let driver = driver_input(&self.watch.take(), method::QP_CREATE)?.to_vec();
        // SAFETY: the queue pair owns the ring and the record, and `Queue` keeps them together. The
        // driver writes them only in calls of this thread.
        let (ring, record) = unsafe {
            (
                SendRing(Memory::new(address_at(&driver, 0), blocks as usize * BLOCK)),
                Memory::new(address_at(&driver, 8), 8),
            )
        };
        let user_index = u32_at(&driver, 32);
        self.queue = Some(Queue { qp: Some(qp), user_index, ring, record, head: 0 });
        self.connect()
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let port = self.context.local_port(1, None)?;
        let (psn, options) = (Psn::wrapping(0), ConnectOptions::default());
        let qp = self.qp()?;
        let nowhere = qp.endpoint(&port, psn, &options);
        Ok(qp.connect(&port, psn, &nowhere, &options)?)
    }

    fn post(&mut self, wr_id: u64, entries: u64) -> Result<bool, Failure> {
        let sges = self.sges(entries)?;
        let mut batch = self.qp()?.wr_start();
        batch.wr(wr_id, SendFlags::SIGNALED).send().sge_list(&sges);
        Ok(batch.complete().is_ok())
    }

    fn complete(&mut self) -> Result<(), Failure> {
        let queue = self.queue()?;
        let (end, mut last) = (queue.posted(), queue.head);
        while queue.head != end {
            last = queue.head;
            queue.head = queue.ring.request(queue.head).1;
        }
        let user_index = queue.user_index;
        self.completions.write(CqeOpcode::Requester, user_index, last);
        match self.cq.poll(2, |_| ())? {
            1 => Ok(()),
            _ => Err(Failure::Missing("a completion")),
        }
    }

    fn cancel(&mut self, wr_id: u64) -> Result<(), Failure> {
        if let Some(wr_id) = self.meanwhile.take() {
            self.ask_while_another_posts(wr_id)?;
        }
        let drained = match self.drained.take() {
            Some(drained) => drained,
            None => self.qp()?.drained().map_err(|_| Failure::Missing("a drained queue"))?,
        };
        let cancelled = self.qp()?.cancel(&drained, wr_id).map(|cancelled| cancelled.count());
        self.drained = Some(drained);
        self.say(match cancelled {
            Ok(count) => format!("answer {count}"),
            Err(error) => format!("refused: {error}"),
        });
        Ok(())
    }

    fn ask_while_another_posts(&mut self, wr_id: u64) -> Result<(), Failure> {
        let sges = self.sges(1)?;
        let watch = self.watch.clone();
        let queue = self.queue()?;
        let qp = queue.qp.take().ok_or(Failure::Missing("a queue pair"))?;
        let (send, receive, control) = qp.split();
        let send = Arc::new(Mutex::new((send, false)));
        let shared = Arc::clone(&send);
        // The question gets its answer only after the other thread is done.
        watch.meanwhile(move || {
            let poster = std::thread::spawn(move || {
                let mut both = shared.lock().expect("no other object has it");
                let (send, posted): &mut (SendHalf<Rc>, bool) = &mut both;
                let mut batch = send.wr_start();
                batch.wr(wr_id, SendFlags::SIGNALED).send().sge_list(&sges);
                *posted = batch.complete().is_ok();
            });
            poster.join().expect("it does not panic");
        });
        let drained = control.drained();
        let both = Arc::into_inner(send).ok_or(Failure::Missing("an end of the other thread"))?;
        let (send, posted) = both.into_inner().expect("it did not panic");
        self.queue()?.qp = Some(QueuePair::join(send, receive, control));
        self.drained = Some(drained.map_err(|_| Failure::Missing("a drained queue"))?);
        self.say(if posted { "meanwhile posted" } else { "meanwhile refused" });
        Ok(())
    }

    fn look(&mut self) -> Result<(), Failure> {
        const OPCODE: usize = 3;
        let ring = self.queue()?.ring;
        let now = ring.0.read(0, ring.0.length());
        let at = usize::from(self.target) * BLOCK % now.len();
        let words = now.chunks_exact(4).zip(self.before.chunks_exact(4)).enumerate();
        let changed = words.filter(|(n, (now, before))| n * 4 != at && now != before).count();
        let target = match now[at..at + 4] == self.before[at..at + 4] {
            true => "live",
            false
                if now[at + OPCODE] == 0 && now[at + 1..at + 3] == self.before[at + 1..at + 3] =>
            {
                "cancelled"
            }
            false => "gone",
        };
        self.say(format!("target {target}; {changed} words changed elsewhere"));
        Ok(())
    }

    fn configure(&mut self, wr_id: u64) -> Result<(), Failure> {
        let crc = Signature::Crc(Crc::Crc32c(Seed::Zeros));
        let domain = Domain { signature: crc, block_size: BlockSize::B512 };
        let block = SignatureBlock::new().memory(domain).wire(domain).check(SignatureBytes::ALL);
        let Self { queue, key, .. } = self;
        let queue = queue.as_mut().ok_or(Failure::Missing("a queue pair"))?;
        let mut batch = queue.qp()?.wr_start();
        let to = key.configure().access(MkeyAccess::LOCAL_WRITE).signature(&block);
        batch.wr(wr_id, SendFlags::SIGNALED).mkey_configure(to);
        batch.complete().map_err(|_| Failure::Missing("room for a configuration"))
    }

    fn errors(&mut self) -> Result<(), Failure> {
        for offset in [0x200, 0x400] {
            let mut entry = SignatureErrorCqe::new_zeroed();
            entry.syndrome.set(SignatureErrorCqe::GUARD);
            entry.mkey.set(self.key.lkey());
            entry.offset.set(offset);
            let mut bytes: [u8; DESCRIPTOR] = zerocopy::transmute!(entry);
            bytes[DESCRIPTOR - 1] = (CqeOpcode::SignatureError as u8) << OPCODE_SHIFT;
            self.completions.put(bytes.as_mut_bytes());
            self.cq.poll(1, |_| ())?;
        }
        let mut text = "errors".to_owned();
        for _ in 0..2 {
            match self.key.check()? {
                Some(error) => text += &format!(" {:x}", error.offset),
                None => text += " none",
            }
        }
        self.say(text);
        Ok(())
    }

    fn interleaved(&mut self, bytes: u32) -> Result<(), Failure> {
        let piece = Interleaved { addr: self.mr.addr(), bytes, skip: 0, lkey: self.mr.lkey() };
        let Self { queue, key, .. } = self;
        let queue = queue.as_mut().ok_or(Failure::Missing("a queue pair"))?;
        let mut batch = queue.qp()?.wr_start();
        let to = key.configure().layout_interleaved(1, std::slice::from_ref(&piece));
        batch.wr(1, SendFlags::SIGNALED).mkey_configure(to);
        let posted = batch.complete().is_ok();
        self.say(if posted { "interleaved posted" } else { "interleaved refused" });
        Ok(())
    }
}
