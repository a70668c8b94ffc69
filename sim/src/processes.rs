//! Several processes on one machine: the device reaches the memory of each.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering, fence};

use mlx5_uapi::{Errno, page_size};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use crate::dma::{Dma, DmaFault, ProcessMemory};

/// Position of the process's number in a bus address: above every address of user space.
const NUMBER_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << NUMBER_SHIFT) - 1;
/// Processes at a time.
const MOST: usize = 1024;
/// Pages that one system call reads: the kernel's limit on pieces.
const PIECES: usize = 1024;
/// Number of attempts to read a word that changes.
const LOOKS: usize = 16;

/// The process of each number, 0 if there is none. Number 0 is this process itself.
struct Table {
    pids: Box<[AtomicI32]>,
    own: ProcessMemory,
}

/// The processes of a machine. As [`Dma`], a bus address is a virtual address with the number of
/// a process above it.
#[derive(Clone)]
pub struct Processes {
    table: Arc<Table>,
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pids = self.table.pids.iter().map(|pid| pid.load(Ordering::Relaxed));
        f.debug_list().entries(pids.filter(|pid| *pid != 0)).finish()
    }
}

impl Default for Processes {
    fn default() -> Self {
        let pids = (0..MOST).map(|_| AtomicI32::new(0)).collect();
        // SAFETY: only this crate hands out addresses with the number 0, for memory of its own that
        // it keeps while the device has it.
        let own = unsafe { ProcessMemory::new() };
        Self { table: Arc::new(Table { pids, own }) }
    }
}

impl Processes {
    /// Adds a process. This process must be allowed to access its memory.
    pub fn add(&self, pid: i32) -> Result<Arc<Process>, Errno> {
        if pid <= 0 {
            return Err(Errno::ESRCH);
        }
        let free = self.table.pids.iter().enumerate().skip(1).find(|(_, slot)| {
            slot.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        let (number, _) = free.ok_or(Errno::EAGAIN)?;
        Ok(Arc::new(Process { number, pid: Pid::from_raw(pid), table: Arc::clone(&self.table) }))
    }

    /// Whether the memory at a bus address is gone together with its process. The kernel frees the
    /// memory of a killed process before it closes its files, so the process may still be
    /// registered here.
    #[must_use]
    pub fn is_gone(&self, address: u64) -> bool {
        match self.table.owner(address) {
            Some(Owner::Nobody) => true,
            Some(Owner::Other(pid)) => read(pid, address, &mut [0]) == Err(Errno::ESRCH),
            Some(Owner::Own) | None => false,
        }
    }
}

enum Owner {
    Own,
    Other(Pid),
    Nobody,
}

impl Table {
    fn owner(&self, address: u64) -> Option<Owner> {
        let number = (address >> NUMBER_SHIFT) as usize;
        if number == 0 {
            return Some(Owner::Own);
        }
        Some(match self.pids.get(number)?.load(Ordering::Acquire) {
            0 => Owner::Nobody,
            pid => Owner::Other(Pid::from_raw(pid)),
        })
    }

    /// The process that owns a bus address, unless it is this one.
    fn other(&self, address: u64, length: usize) -> Result<Option<Pid>, DmaFault> {
        match self.owner(address) {
            Some(Owner::Own) => Ok(None),
            Some(Owner::Other(pid)) => Ok(Some(pid)),
            Some(Owner::Nobody) | None => Err(DmaFault { address, length: length as u64 }),
        }
    }
}

fn read(pid: Pid, address: u64, to: &mut [u8]) -> Result<(), Errno> {
    let length = to.len();
    let there = RemoteIoVec { base: (address & ADDRESS) as usize, len: length };
    match process_vm_readv(pid, &mut [IoSliceMut::new(to)], &[there])? {
        n if n == length => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

fn write(pid: Pid, address: u64, from: &[u8]) -> Result<(), Errno> {
    let there = RemoteIoVec { base: (address & ADDRESS) as usize, len: from.len() };
    match process_vm_writev(pid, &[IoSlice::new(from)], &[there])? {
        n if n == from.len() => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Reads a word of another process atomically. The kernel may copy it byte by byte while it
/// changes, so two reads must agree.
fn read_word<const N: usize>(pid: Pid, address: u64) -> Result<[u8; N], Errno> {
    let mut word = [0; N];
    read(pid, address, &mut word)?;
    for _ in 0..LOOKS {
        let before = word;
        read(pid, address, &mut word)?;
        if word == before {
            return Ok(word);
        }
    }
    Ok(word)
}

impl Dma for Processes {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), DmaFault> {
        let Some(pid) = self.table.other(address, to.len())? else {
            return self.table.own.read(address, to);
        };
        let fault = DmaFault { address, length: to.len() as u64 };
        read(pid, address, to).map_err(|_| fault)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaFault> {
        let Some(pid) = self.table.other(address, from.len())? else {
            return self.table.own.write(address, from);
        };
        write(pid, address, from).map_err(|_| DmaFault { address, length: from.len() as u64 })
    }

    fn load_u32(&self, address: u64) -> Result<u32, DmaFault> {
        let Some(pid) = self.table.other(address, 4)? else {
            return self.table.own.load_u32(address);
        };
        let word = read_word(pid, address).map_err(|_| DmaFault { address, length: 4 })?;
        fence(Ordering::Acquire);
        Ok(u32::from_be_bytes(word))
    }

    fn store_byte(&self, address: u64, byte: u8) -> Result<(), DmaFault> {
        let Some(pid) = self.table.other(address, 1)? else {
            return self.table.own.store_byte(address, byte);
        };
        // The byte must become visible after everything that was copied before.
        fence(Ordering::SeqCst);
        write(pid, address, &[byte]).map_err(|_| DmaFault { address, length: 1 })
    }

    fn take_u64(&self, address: u64) -> Result<u64, DmaFault> {
        // Registers lie in pages of this process, which other processes map.
        match self.table.other(address, 8)? {
            None => self.table.own.take_u64(address),
            Some(_) => Err(DmaFault { address, length: 8 }),
        }
    }

    /// Atomic for the rest of the device, but not for the processor of the other process.
    fn update_u64(
        &self,
        address: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        let Some(pid) = self.table.other(address, 8)? else {
            return self.table.own.update_u64(address, update);
        };
        let fault = DmaFault { address, length: 8 };
        if !address.is_multiple_of(8) {
            return Err(fault);
        }
        let old = u64::from_ne_bytes(read_word(pid, address).map_err(|_| fault)?);
        write(pid, address, &update(old).to_ne_bytes()).map_err(|_| fault)?;
        Ok(old)
    }
}

/// A process of a machine. Its number becomes free when its last handle is dropped.
pub struct Process {
    number: usize,
    pid: Pid,
    table: Arc<Table>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("number", &self.number).field("pid", &self.pid).finish()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.table.pids[self.number].store(0, Ordering::Release);
    }
}

impl Process {
    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Bus address of an address in the process.
    pub(crate) fn bus(&self, address: u64) -> u64 {
        (self.number as u64) << NUMBER_SHIFT | address & ADDRESS
    }

    /// Reads from its memory.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        read(self.pid, address, to)
    }

    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        write(self.pid, address, from)
    }

    /// Whether every page of a range is mapped: reads one byte of each.
    pub(crate) fn is_mapped(&self, start: u64, length: u64) -> bool {
        let page = page_size() as u64;
        let Some(last) = start.checked_add(length.saturating_sub(1)) else { return false };
        if last > ADDRESS {
            return false;
        }
        let (first, last) = (start / page, last / page);
        (first..=last).step_by(PIECES).all(|from| {
            let there: Vec<_> = (from..=last.min(from + PIECES as u64 - 1))
                .map(|index| RemoteIoVec { base: (index * page) as usize, len: 1 })
                .collect();
            let mut bytes = vec![0; there.len()];
            let read = process_vm_readv(self.pid, &mut [IoSliceMut::new(&mut bytes)], &there);
            read == Ok(there.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process, registered as if it were another: its memory is accessed through the kernel.
    fn this() -> (Processes, Arc<Process>) {
        let processes = Processes::default();
        let process = processes.add(std::process::id() as i32).expect("a number");
        (processes, process)
    }

    #[test]
    fn a_bus_address_names_the_process_and_the_place() {
        let (processes, process) = this();
        let other = processes.add(1).expect("a number");
        let memory = [7_u64, 0];
        let address = memory.as_ptr() as u64;
        assert_ne!(process.bus(address), other.bus(address));
        let mut bytes = [0; 8];
        processes.read(process.bus(address), &mut bytes).expect("mapped");
        assert_eq!(u64::from_ne_bytes(bytes), 7);
        processes.read(address, &mut bytes).expect("this process");
        assert_eq!(u64::from_ne_bytes(bytes), 7);
    }

    #[test]
    fn words_are_read_changed_and_written() {
        let (processes, process) = this();
        let mut memory = [0_u64; 2];
        let at = process.bus(memory.as_mut_ptr() as u64);
        assert_eq!(processes.update_u64(at, &mut |old| old + 5), Ok(0));
        assert_eq!(processes.update_u64(at, &mut |old| old + 5), Ok(5));
        processes.store_byte(at + 8, 0x80).expect("mapped");
        let first = std::hint::black_box(&memory)[0];
        assert_eq!((first, memory[1].to_ne_bytes()[0]), (10, 0x80));
        let mut word = 0x0102_0304_u32.to_be();
        assert_eq!(processes.load_u32(process.bus(&raw mut word as u64)), Ok(0x0102_0304));
        assert!(processes.update_u64(at + 4, &mut |old| old).is_err());
        assert!(processes.take_u64(at).is_err());
    }

    #[test]
    fn only_mapped_pages_are_mapped() {
        let (_, process) = this();
        let memory = vec![0_u8; 3 * page_size()];
        assert!(process.is_mapped(memory.as_ptr() as u64, memory.len() as u64));
        assert!(!process.is_mapped(0x10, 1));
        assert!(!process.is_mapped(memory.as_ptr() as u64, 1 << 47));
        assert!(!process.is_mapped(u64::MAX - 5, 3));
    }

    #[test]
    fn the_memory_of_a_process_goes_with_it() {
        let (processes, process) = this();
        let memory = 1_u64;
        let address = process.bus(&raw const memory as u64);
        assert!(!processes.is_gone(address));
        drop(process);
        assert!(processes.is_gone(address));
        assert!(processes.read(address, &mut [0; 8]).is_err());
        assert_eq!(processes.add(0).map(drop), Err(Errno::ESRCH));
    }

    #[test]
    fn the_memory_of_a_process_that_was_killed_is_gone_while_its_files_are_open() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a child");
        let processes = Processes::default();
        let process = processes.add(child.id() as i32).expect("a number");
        let address = process.bus(0x10);
        assert!(!processes.is_gone(address), "nothing is mapped there, but the process lives");
        child.kill().expect("a child to kill");
        child.wait().expect("a child to wait for");
        assert!(processes.is_gone(address));
    }
}
