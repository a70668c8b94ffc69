//! User memory: pages that a program registers with the device, and the queues in them.

use std::collections::BTreeMap;

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::fields::{addresses, get_bits, set_bits};

use crate::dma::Buffer;
use crate::engine::Error;
use crate::firmware::raw::{SHORT, long_enough};
use crate::firmware::{Answer, Failure, Firmware, Numbers, buffer, syndrome};

/// User memories that a device has.
const UMEMS: u32 = 1 << 16;
/// Positions of fields in CREATE_UMEM's input, `mlx5_ifc_create_umem_in_bits`: first bit and width.
const UID: (usize, usize) = (0x10, 0x10);
const LOG_PAGE_SIZE: (usize, usize) = (0x80 + 0x9b, 5);
const PAGE_OFFSET: (usize, usize) = (0x80 + 0xa0, 32);
const PAGE_COUNT: (usize, usize) = (0x80 + 0xc0, 64);
/// Bytes of that input before its pages.
const CREATE_IN: usize = (0x80 + 0x100) / 8;
/// Position of a user memory's number, in the output of CREATE_UMEM and the input of DESTROY_UMEM.
const ID: (usize, usize) = (0x48, 0x18);
/// Low bits of a page's address: the device may read it, and write it.
const RIGHTS: u64 = 0b11;
/// Logarithm of the smallest page, of which CREATE_UMEM's is counted.
const LOG_SMALLEST_PAGE: u64 = 12;

fn field(input: &[u8], (bit, width): (usize, usize)) -> u64 {
    get_bits(input, bit, width)
}

/// A queue that may lie in user memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Queue {
    Cq(u32),
    Qp(u32),
    Shared(u32),
}

#[derive(Debug)]
struct Umem {
    uid: u32,
    log_page_size: u8,
    page_offset: u64,
    pages: Vec<u64>,
}

/// A part of a user memory, as a command names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The user context of the command. It can use only its own memories.
    pub(crate) uid: u32,
    pub(crate) umem: u32,
    pub(crate) offset: u64,
}

/// Every user memory, and its users.
#[derive(Debug, Default)]
pub(crate) struct Umems {
    numbers: Numbers,
    by_number: BTreeMap<u32, Umem>,
    users: BTreeMap<Queue, Vec<u32>>,
}

impl Umems {
    pub(crate) fn count(&self) -> usize {
        self.by_number.len()
    }

    fn get(&self, part: Part) -> Result<&Umem, Failure> {
        let found = self.by_number.get(&part.umem).filter(|umem| umem.uid == part.uid);
        found.ok_or(Error::NotFound.into())
    }

    /// `bytes` bytes of a user memory.
    pub(crate) fn buffer(&self, part: Part, bytes: u64) -> Result<Buffer, Failure> {
        let umem = self.get(part)?;
        let range = Failure::param(syndrome::ADDRESS_RANGE);
        let start = umem.page_offset.checked_add(part.offset).ok_or(range)?;
        let end = start.checked_add(bytes).ok_or(range)?;
        if end > (umem.pages.len() as u64) << umem.log_page_size {
            return Err(range);
        }
        Ok(Buffer::paged(umem.pages.clone(), umem.log_page_size, start))
    }

    /// The address of a doorbell record in a user memory.
    pub(crate) fn record(&self, part: Part) -> Result<u64, Failure> {
        let bytes = mlx5_prm::doorbell::RECORD as u64;
        let (address, _) = self
            .buffer(part, bytes)?
            .translate(0)
            .ok_or(Failure::param(syndrome::ADDRESS_RANGE))?;
        buffer::record(address)
    }

    /// Records that a queue lies in these memories.
    pub(crate) fn lend(&mut self, queue: Queue, parts: [Option<Part>; 2]) {
        let umems: Vec<u32> = parts.into_iter().flatten().map(|part| part.umem).collect();
        if !umems.is_empty() {
            self.users.insert(queue, umems);
        }
    }

    /// Forgets a queue that has ended.
    pub(crate) fn take_back(&mut self, queue: Queue) {
        self.users.remove(&queue);
    }
}

impl Firmware {
    /// The memory of a queue of `bytes` bytes: user memory, or the pages that `listed` makes of the
    /// command's list.
    pub(super) fn queue_buffer(
        &self,
        part: Option<Part>,
        bytes: u64,
        listed: impl FnOnce() -> Result<Buffer, Failure>,
    ) -> Result<Buffer, Failure> {
        part.map_or_else(listed, |part| self.umems.buffer(part, bytes))
    }

    /// The address of a queue's doorbell record: in user memory, or the command's address.
    pub(super) fn queue_record(&self, part: Option<Part>, address: u64) -> Result<u64, Failure> {
        part.map_or_else(|| buffer::record(address), |part| self.umems.record(part))
    }

    pub(super) fn create_umem(&mut self, input: &[u8], output: &mut [u8]) -> Answer {
        long_enough(input, CREATE_IN, output)?;
        let count = usize::try_from(field(input, PAGE_COUNT)).ok();
        let list = addresses(&input[CREATE_IN..]);
        let too_few = Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::TOO_FEW_PAGES);
        let list = count.and_then(|count| list.get(..count)).ok_or(too_few)?;
        let log_page_size = field(input, LOG_PAGE_SIZE) + LOG_SMALLEST_PAGE;
        let pages: Vec<u64> = list.iter().map(|page| page.get() & !RIGHTS).collect();
        if pages.iter().any(|page| !page.is_multiple_of(1 << log_page_size)) {
            return Err(Failure::param(syndrome::UNALIGNED_PAGE));
        }
        let umem = Umem {
            uid: field(input, UID) as u32,
            log_page_size: log_page_size as u8,
            page_offset: field(input, PAGE_OFFSET),
            pages,
        };
        let number = self.umems.numbers.take(UMEMS)?;
        self.umems.by_number.insert(number, umem);
        set_bits(output, ID.0, ID.1, number.into());
        Ok(())
    }

    pub(super) fn destroy_umem(&mut self, input: &[u8], output: &mut [u8]) -> Answer {
        long_enough(input, SHORT, output)?;
        let number = field(input, ID) as u32;
        if self.umems.users.values().any(|umems| umems.contains(&number)) {
            return Err(Error::Busy.into());
        }
        self.umems.numbers.give_back(number)?;
        self.umems.by_number.remove(&number);
        Ok(())
    }
}
