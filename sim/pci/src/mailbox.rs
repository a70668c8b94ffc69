//! The command queue in the guest's memory: entries, mailboxes, tokens, signatures.

use mlx5_prm::cmd::init_seg::{
    CMD_DATA_BLOCK_SIZE, CommandQueueEntry, DeliveryStatus, MailboxBlock, PCI_CMD_XPORT,
};
use mlx5_prm::fields::IntoBytes;
use mlx5_sim::dma::{Dma, DmaFault};

/// Bytes of a command, and of an answer, in the entry itself.
const INLINE: usize = 16;
/// Bytes of status and syndrome, with which every answer begins.
const SHORTEST: usize = 8;
/// The longest command or answer that is accepted.
const LONGEST: usize = 1 << 20;
/// The alignment of mailboxes in bytes.
const ALIGNMENT: u64 = 1 << 9;

/// A command that was taken from the queue.
#[derive(Debug)]
pub struct Command {
    entry: CommandQueueEntry,
    address: u64,
    /// Its whole input.
    pub input: Vec<u8>,
    /// Room for its output.
    pub output: Vec<u8>,
}

/// The reason why a command did not reach the firmware.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undelivered {
    /// The entry is not the device's.
    NotOwned,
    /// The guest's memory did not answer.
    Memory(DmaFault),
}

impl From<DmaFault> for Undelivered {
    fn from(fault: DmaFault) -> Self {
        Self::Memory(fault)
    }
}

/// The reason why reading a mailbox chain stopped.
enum Stop {
    Memory(DmaFault),
    Status(DeliveryStatus),
}

impl From<DmaFault> for Stop {
    fn from(fault: DmaFault) -> Self {
        Self::Memory(fault)
    }
}

/// Splits off a memory fault, after which no entry can be written; all else is a status in the
/// entry.
fn delivery(result: Result<(), Stop>) -> Result<DeliveryStatus, DmaFault> {
    match result {
        Ok(()) => Ok(DeliveryStatus::OK),
        Err(Stop::Status(status)) => Ok(status),
        Err(Stop::Memory(fault)) => Err(fault),
    }
}

/// The byte with which the exclusive or of all bytes is all ones.
fn signature(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// The addresses of the mailboxes with the bytes that do not fit the entry.
fn chain(
    dma: &dyn Dma,
    mut at: u64,
    bytes: usize,
    token: u32,
    misaligned: DeliveryStatus,
    mut each: impl FnMut(u64, &mut MailboxBlock, std::ops::Range<usize>) -> Result<(), DmaFault>,
) -> Result<(), Stop> {
    let mut done = INLINE;
    let mut number = 0;
    while done < bytes {
        if at == 0 || !at.is_multiple_of(ALIGNMENT) {
            return Err(Stop::Status(misaligned));
        }
        let mut block = MailboxBlock::default();
        dma.read(at, block.as_mut_bytes())?;
        if block.token() != token {
            return Err(Stop::Status(DeliveryStatus::TOK_ERR));
        }
        if block.block_num() != number {
            return Err(Stop::Status(DeliveryStatus::BAD_BLK_NUM_ERR));
        }
        let end = bytes.min(done + CMD_DATA_BLOCK_SIZE);
        let next = block.next();
        each(at, &mut block, done..end)?;
        (done, at, number) = (end, next, number + 1);
    }
    Ok(())
}

impl Command {
    /// Reads the entry at `address`, which must be the device's.
    pub fn take(dma: &dyn Dma, address: u64) -> Result<Self, Undelivered> {
        let mut entry = CommandQueueEntry::default();
        dma.read(address, entry.as_mut_bytes())?;
        if !entry.ownership() {
            return Err(Undelivered::NotOwned);
        }
        Ok(Self { entry, address, input: Vec::new(), output: Vec::new() })
    }

    /// Gathers the input, and makes room for the output. Returns the delivery status, which is an
    /// error if the command cannot be executed.
    pub fn gather(&mut self, dma: &dyn Dma) -> Result<DeliveryStatus, DmaFault> {
        delivery(self.gather_all(dma))
    }

    fn gather_all(&mut self, dma: &dyn Dma) -> Result<(), Stop> {
        let entry = &self.entry;
        if entry.transport() != PCI_CMD_XPORT {
            return Err(Stop::Status(DeliveryStatus::CMD_DESCR_ERR));
        }
        let (input, output) = (entry.input_length() as usize, entry.output_length() as usize);
        if !(SHORTEST..=LONGEST).contains(&input) {
            return Err(Stop::Status(DeliveryStatus::IN_LENGTH_ERR));
        }
        if !(SHORTEST..=LONGEST).contains(&output) {
            return Err(Stop::Status(DeliveryStatus::OUT_LENGTH_ERR));
        }
        self.input = vec![0; input];
        self.output = vec![0; output];
        let inline = INLINE.min(input);
        self.input[..inline].copy_from_slice(&entry.command_input_inline_data()[..inline]);
        let bytes = &mut self.input;
        let misaligned = DeliveryStatus::IN_PTR_ALIGN_ERR;
        let (at, token) = (entry.input_mailbox_pointer(), entry.token());
        chain(dma, at, input, token, misaligned, |_, block, range| {
            let length = range.len();
            bytes[range].copy_from_slice(&block.data()[..length]);
            Ok(())
        })
    }

    /// Returns the entry to the driver with its output, or with the status that explains why there
    /// is none.
    pub fn finish(mut self, dma: &dyn Dma, status: DeliveryStatus) -> Result<(), Undelivered> {
        let status = match status {
            DeliveryStatus::OK => delivery(self.scatter(dma))?,
            refused => refused,
        };
        let entry = &mut self.entry;
        entry.set_status(status.0).set_ownership(false).set_signature(0);
        let sum = signature(entry.as_bytes());
        entry.set_signature(sum.into());
        // The byte with the ownership bit is written last.
        let bytes = entry.as_bytes();
        let last = bytes.len() - 1;
        dma.write(self.address, &bytes[..last])?;
        dma.store_byte(self.address + last as u64, bytes[last])?;
        Ok(())
    }

    fn scatter(&mut self, dma: &dyn Dma) -> Result<(), Stop> {
        let inline = INLINE.min(self.output.len());
        self.entry.command_output_inline_data_mut()[..inline]
            .copy_from_slice(&self.output[..inline]);
        let misaligned = DeliveryStatus::OUT_PTR_ALIGN_ERR;
        let (at, token) = (self.entry.output_mailbox_pointer(), self.entry.token());
        let output = &self.output;
        chain(dma, at, output.len(), token, misaligned, |at, block, range| {
            let length = range.len();
            let data = block.data_mut();
            data.fill(0);
            data[..length].copy_from_slice(&output[range]);
            block.set_sig(0).set_ctrl_sig(0);
            let control = signature(&block.as_bytes()[CMD_DATA_BLOCK_SIZE..]);
            block.set_ctrl_sig(control.into());
            let whole = signature(block.as_bytes());
            block.set_sig(whole.into());
            dma.write(at, block.as_bytes())
        })
    }
}
