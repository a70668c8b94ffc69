//! The target and the initiator: two connected queue pairs and their memory.

use super::block;
use super::{Args, Bad};
use crate::device::Port;
use crate::failure::Failure;
use crate::link::{Patience, posted_as};
use mlx5::mkey::Mkey;
use mlx5::{
    Access, AsyncEvent, CompletionQueue, ConnectOptions, Context, MemoryRegion, Psn, QueuePair,
    ReceiveWr, SendFlags, transport::Rc,
};
use std::collections::BTreeSet;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Room for the text of a response.
const MESSAGE: usize = 32;
/// Entries of a key's layout.
const PIECES: u32 = 1;

/// The `wr_id` of a transfer's response.
pub(super) const fn response(transfer: u16) -> u64 {
    100 + transfer as u64
}

/// The `wr_id` of the response that reports a transfer's failure.
pub(super) const fn failure(transfer: u16) -> u64 {
    200 + transfer as u64
}

/// A completion at the target.
pub(super) struct Reported {
    pub(super) wr_id: u64,
    pub(super) opcode: String,
    pub(super) status: String,
    pub(super) cancelled: bool,
}

/// The outcome after a queue was resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    /// It drained again.
    Drained,
    /// All its requests completed.
    Done,
}

pub(super) struct Scene {
    pub(super) qp: QueuePair<Rc>,
    _initiator: QueuePair<Rc>,
    cq: CompletionQueue,
    inbox: CompletionQueue,
    /// One key per transfer, over its signed blocks.
    pub(super) keys: Vec<Mkey>,
    storage: MemoryRegion,
    /// The initiator's memory: the data of the transfers, then the responses.
    memory: MemoryRegion,
    context: Context,
    patience: Patience,
    transfers: u16,
    blocks: u16,
    /// The `wr_id` of each request, in the order of posting.
    pub(super) posted: Vec<u64>,
    pub(super) reported: Vec<Reported>,
    failures: usize,
}

impl Scene {
    pub(super) fn new(port: &Port, args: &Args) -> Result<Self, Failure> {
        let context = &port.opened.context;
        let (transfers, blocks) = (args.transfers, args.blocks);
        let count = u32::from(transfers);
        let pd = context.alloc_pd()?;
        // Two responses per transfer, and a CQE for its signature error.
        let cq = context.create_cq(4 * count).build()?;
        let inbox = context.create_cq(count).build()?;
        let total = usize::from(transfers) * usize::from(blocks);
        let storage = pd.memory(total * block::SIGNED).access(Access::LOCAL_WRITE).register()?;
        let memory = pd
            .memory(total * block::DATA + usize::from(transfers) * MESSAGE)
            .access(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
            .register()?;
        let keys = (0..transfers)
            .map(|_| pd.create_mkey(PIECES).block_signature().build())
            .collect::<Result<_, _>>()?;
        let mut qp = pd
            .create_qp::<Rc>(&cq, &cq)
            .max_send_wr(4 * count)
            .max_inline_data(MESSAGE as u32)
            .mkey_configure(PIECES, true)
            .signature_pipelining()
            .build()?;
        let mut initiator =
            pd.create_qp::<Rc>(&inbox, &inbox).max_recv_wr(count).max_recv_sge(1).build()?;
        let options = ConnectOptions::default();
        let psn = Psn::default();
        let here = qp.endpoint(&port.local, psn, &options);
        let there = initiator.endpoint(&port.local, psn, &options);
        qp.connect(&port.local, psn, &there, &options)?;
        initiator.connect(&port.local, psn, &here, &options)?;
        for index in 0..usize::from(transfers) {
            let at = total * block::DATA + index * MESSAGE;
            let sges = [memory.sge(at..at + MESSAGE)?];
            initiator.post_recv(&[ReceiveWr { wr_id: index as u64, sges: &sges }])?;
        }
        Ok(Self {
            qp,
            _initiator: initiator,
            cq,
            inbox,
            keys,
            storage,
            memory,
            context: context.clone(),
            patience: Patience::new(TIMEOUT, port.opened.simulator.is_some()),
            transfers,
            blocks,
            posted: Vec::new(),
            reported: Vec::new(),
            failures: 0,
        })
    }

    /// Writes signed blocks to the storage, and corrupts some.
    pub(super) fn store(&self, bad: &BTreeSet<Bad>, part: block::Part) -> Result<(), Failure> {
        for transfer in 1..=self.transfers {
            for number in 1..=self.blocks {
                let data = block::data(transfer, number);
                let mut signed = block::signed(&data, u32::from(number - 1));
                if bad.contains(&Bad { transfer, block: number }) {
                    part.spoil(&mut signed);
                }
                self.storage.write_at(self.place(transfer, number) * block::SIGNED, &signed)?;
            }
        }
        Ok(())
    }

    /// The index of a block among those of all transfers.
    fn place(&self, transfer: u16, block: u16) -> usize {
        usize::from(transfer - 1) * usize::from(self.blocks) + usize::from(block - 1)
    }

    /// Posts the transfers. Their responses follow at the end, or each after its own transfer.
    pub(super) fn post(&mut self, interleaved: bool) -> Result<(), Failure> {
        let length = usize::from(self.blocks) * block::SIGNED;
        let mut later = Vec::new();
        let mut batch = self.qp.wr_start();
        for (transfer, key) in (1..).zip(&self.keys) {
            let index = usize::from(transfer - 1);
            let wr_id = u64::from(transfer);
            let pieces = [self.storage.sge(index * length..(index + 1) * length)?];
            let update = key.configure().layout_list(&pieces).signature(&block::protection());
            batch.wr(wr_id, SendFlags::empty()).mkey_configure(update);
            let bytes = usize::from(self.blocks) * block::DATA;
            let to = self.memory.remote(index * bytes..)?;
            let from = key.sge(0, bytes as u32);
            batch.wr(wr_id, SendFlags::empty()).rdma_write(to).sge(from);
            self.posted.extend([wr_id, wr_id]);
            later.push(transfer);
            if interleaved || transfer == self.transfers {
                for transfer in later.drain(..) {
                    let text = format!("transfer {transfer} done");
                    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
                    batch.wr(response(transfer), flags).send().inline_data(text.as_bytes());
                    self.posted.push(response(transfer));
                }
            }
        }
        Ok(batch.complete()?)
    }

    /// Posts the responses that report failures.
    pub(super) fn post_failures(&mut self, failed: &[u16]) -> Result<(), Failure> {
        let mut batch = self.qp.wr_start();
        for transfer in failed {
            let text = format!("transfer {transfer} failed");
            let request = batch.wr(failure(*transfer), SendFlags::SIGNALED);
            request.send().inline_data(text.as_bytes());
        }
        batch.complete()?;
        self.posted.extend(failed.iter().map(|transfer| failure(*transfer)));
        self.failures += failed.len();
        Ok(())
    }

    /// Waits until the queue is drained.
    pub(super) fn wait_drained(&mut self) -> Result<(), Failure> {
        loop {
            match self.context.async_events().wait(Some(TIMEOUT))? {
                Some(event) if self.is_drained(event)? => return Ok(()),
                Some(_) => {}
                None => break,
            }
        }
        self.poll()?;
        let cause = format!(
            "no SQ_DRAINED within {TIMEOUT:?}; {} requests completed{}",
            self.reported.len(),
            self.reported.first().map_or(String::new(), |reported| {
                format!(", the first of them, wr_id {}, with: {}", reported.wr_id, reported.status)
            })
        );
        Err(Failure::new(cause).hint(
            "the device did not find the corrupt block, or did not stop: `mlx5 cancel --sim` \
             shows what should happen",
        ))
    }

    fn is_drained(&self, event: AsyncEvent) -> Result<bool, Failure> {
        let id = self.qp.id();
        match event {
            AsyncEvent::SqDrained(drained) => Ok(drained == id),
            AsyncEvent::QpFatal(failed) if failed == id => {
                Err(Failure::new("the target's queue pair failed")
                    .hint("the kernel's log may say why: `dmesg | grep mlx5`"))
            }
            _ => Ok(false),
        }
    }

    /// Polls the target's completions; returns their number.
    pub(super) fn poll(&mut self) -> Result<usize, Failure> {
        let before = self.reported.len();
        loop {
            let reported = &mut self.reported;
            let polled = self.cq.poll(64, |completion| {
                reported.push(Reported {
                    wr_id: completion.wr_id(),
                    opcode: posted_as(completion.opcode()).into_owned(),
                    status: match completion.status() {
                        Ok(()) => "success".to_owned(),
                        Err(error) => error.to_string(),
                    },
                    cancelled: completion.cancelled(),
                });
            })?;
            if polled == 0 {
                return Ok(self.reported.len() - before);
            }
        }
    }

    /// Waits until the queue drained again or all responses completed.
    pub(super) fn go_on(&mut self) -> Result<Came, Failure> {
        self.patience.refresh();
        loop {
            if self.poll()? != 0 {
                self.patience.refresh();
            }
            if self.reported.len() >= usize::from(self.transfers) + self.failures {
                return Ok(Came::Done);
            }
            if let Some(event) = self.context.async_events().next()?
                && self.is_drained(event)?
            {
                return Ok(Came::Drained);
            }
            self.patience.wait("completions of the responses")?;
        }
    }

    /// Waits for the responses at the initiator; returns their texts in order of arrival.
    pub(super) fn responses(&mut self) -> Result<Vec<String>, Failure> {
        let start = self.place(self.transfers, self.blocks) + 1;
        let mut texts = Vec::new();
        self.patience.refresh();
        while texts.len() < usize::from(self.transfers) {
            let mut slots = Vec::new();
            let came = texts.len();
            self.inbox.poll(usize::from(self.transfers), |one| {
                let length = one.byte_len().filter(|_| one.is_success()).unwrap_or(0) as usize;
                slots.push((one.wr_id() as usize, length));
            })?;
            for (slot, length) in slots {
                let mut bytes = vec![0; length.min(MESSAGE)];
                self.memory.read_at(start * block::DATA + slot * MESSAGE, &mut bytes)?;
                texts.push(String::from_utf8_lossy(&bytes).into_owned());
            }
            if texts.len() == came {
                self.patience.wait("responses at the initiator")?;
            }
        }
        Ok(texts)
    }

    /// Blocks of a transfer whose data at the initiator differs from the storage.
    pub(super) fn wrong(&self, transfer: u16) -> Result<Vec<u16>, Failure> {
        let mut wrong = Vec::new();
        for number in 1..=self.blocks {
            let mut bytes = vec![0; block::DATA];
            self.memory.read_at(self.place(transfer, number) * block::DATA, &mut bytes)?;
            if bytes != block::data(transfer, number) {
                wrong.push(number);
            }
        }
        Ok(wrong)
    }
}
