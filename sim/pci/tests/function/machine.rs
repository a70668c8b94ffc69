//! A machine with one function: its side of the socket, and its memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mlx5_prm::cmd::init_seg::{
    CMD_DATA_BLOCK_SIZE, CommandQueueEntry, DeliveryStatus, MailboxBlock, PCI_CMD_XPORT, offset,
};
use mlx5_prm::cmd::{CommandInput, CommandOutHead, CommandStatus};
use mlx5_prm::fields::{FromBytes, IntoBytes, Layout};
use mlx5_sim::SimConfig;
use mlx5_sim::dma::Dma;
use mlx5_sim_pci::{Bus, GuestMemory, Log};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use vfio_user::Client;

pub(crate) const BAR0: u32 = 0;
pub(crate) const CONFIG: u32 = 7;
pub(crate) const MSIX: u32 = 2;
/// Eventfds follow: `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
pub(crate) const SIGNALS: u32 = 1 << 2 | 1 << 5;
/// Start of the guest's memory, and its bytes.
pub(crate) const MEMORY: u64 = 0x1_0000_0000;
pub(crate) const MEMORY_BYTES: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Bytes from one mailbox to the next.
const MAILBOX: u64 = 1024;

/// The function's log.
#[derive(Clone, Default)]
pub(crate) struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    pub(crate) fn contains(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).contains(words)
    }
}

impl Write for Said {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Machine {
    pub(crate) client: Client,
    pub(crate) file: File,
    pub(crate) log: Log,
    pub(crate) said: Said,
    /// The same memory as the function's, seen from here.
    pub(crate) memory: GuestMemory,
    queue: u64,
    next_page: u64,
    token: u32,
    socket: PathBuf,
    function: Option<JoinHandle<()>>,
}

impl Machine {
    /// A machine that has found the function, mapped its memory and set the address of its command
    /// queue.
    pub(crate) fn new(config: SimConfig) -> Self {
        let mut machine = Self::bare(config);
        machine.map(MEMORY, 0);
        machine.queue = machine.page();
        machine.tell_queue();
        machine
    }

    /// Sets the address of the command queue.
    pub(crate) fn tell_queue(&mut self) {
        let [high, low] = [(self.queue >> 32) as u32, self.queue as u32].map(u32::to_be_bytes);
        self.write(BAR0, offset::CMDQ_ADDR_H as u64, &high);
        self.write(BAR0, offset::CMDQ_ADDR_L_SZ as u64, &low);
    }

    /// A machine that has found the function.
    pub(crate) fn bare(config: SimConfig) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // The name of a socket is short: the folder's may be long.
        let name = format!("mlx5-pci-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let socket = std::env::temp_dir().join(name);
        let said = Said::default();
        let log = Log::new(said.clone(), false);
        let bus = Bus::listen(config, std::slice::from_ref(&socket), &log).expect("a socket");
        let told = log.clone();
        let function = std::thread::spawn(move || bus.run(&told));
        let client = Client::new(&socket).expect("a function");
        let fd = memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).expect("memory");
        let file = File::from(fd);
        file.set_len(2 * MEMORY_BYTES).expect("memory");
        let memory = GuestMemory::default();
        memory.map(MEMORY, MEMORY_BYTES, Some(&file), 0).expect("memory");
        Self {
            client,
            file,
            log,
            said,
            memory,
            queue: 0,
            next_page: MEMORY,
            token: 1,
            socket,
            function: Some(function),
        }
    }

    /// Maps the guest's memory, from a place in its file, for the function.
    pub(crate) fn map(&mut self, address: u64, at: u64) {
        let fd = self.file.as_raw_fd();
        self.client.dma_map(at, address, MEMORY_BYTES, fd).expect("mapped");
    }

    pub(crate) fn unmap(&mut self, address: u64) {
        self.client.dma_unmap(address, MEMORY_BYTES).expect("unmapped");
    }

    /// An unused page of the guest's memory.
    pub(crate) fn page(&mut self) -> u64 {
        self.next_page += PAGE;
        assert!(self.next_page <= MEMORY + MEMORY_BYTES, "out of memory");
        self.next_page - PAGE
    }

    pub(crate) fn read<const N: usize>(&mut self, region: u32, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.client.region_read(region, at, &mut bytes).expect("an answer");
        bytes
    }

    pub(crate) fn write(&mut self, region: u32, at: u64, bytes: &[u8]) {
        self.client.region_write(region, at, bytes).expect("an answer");
    }

    pub(crate) fn peek(&self, at: u64, bytes: &mut [u8]) {
        self.memory.read(at, bytes).expect("memory");
    }

    pub(crate) fn poke(&self, at: u64, bytes: &[u8]) {
        self.memory.write(at, bytes).expect("memory");
    }

    /// Gives a vector an eventfd.
    pub(crate) fn listen(&mut self, vector: u32) -> EventFd {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let signal = EventFd::from_value_and_flags(0, flags).expect("an eventfd");
        let fd = signal.as_fd().as_raw_fd();
        self.client.set_irqs(MSIX, SIGNALS, vector, 1, &[fd]).expect("attached");
        signal
    }

    /// Makes a chain of mailboxes for the bytes that do not fit the entry.
    fn mailboxes(&mut self, bytes: usize) -> Vec<u64> {
        let count = bytes.saturating_sub(16).div_ceil(CMD_DATA_BLOCK_SIZE);
        let pages = count.div_ceil((PAGE / MAILBOX) as usize);
        let starts: Vec<u64> = (0..pages).map(|_| self.page()).collect();
        let all =
            starts.iter().flat_map(|page| (0..PAGE / MAILBOX).map(move |n| page + n * MAILBOX));
        let boxes: Vec<u64> = all.take(count).collect();
        for (number, at) in boxes.iter().enumerate() {
            let mut block = MailboxBlock::default();
            block.set_token(self.token).set_block_num(number as u32);
            block.set_next(boxes.get(number + 1).copied().unwrap_or(0));
            self.poke(*at, block.as_bytes());
        }
        boxes
    }

    /// Writes a command into entry 0, without ringing.
    pub(crate) fn prepare(&mut self, input: &[u8], output: usize) -> (CommandQueueEntry, Vec<u64>) {
        self.token += 1;
        let (sources, sinks) = (self.mailboxes(input.len()), self.mailboxes(output));
        for (at, bytes) in
            sources.iter().zip(input.get(16..).unwrap_or_default().chunks(CMD_DATA_BLOCK_SIZE))
        {
            self.poke(*at, bytes);
        }
        let mut entry = CommandQueueEntry::default();
        let inline = input.len().min(16);
        entry.command_input_inline_data_mut()[..inline].copy_from_slice(&input[..inline]);
        entry
            .set_transport(PCI_CMD_XPORT)
            .set_input_length(input.len() as u32)
            .set_output_length(output as u32)
            .set_input_mailbox_pointer(sources.first().copied().unwrap_or(0))
            .set_output_mailbox_pointer(sinks.first().copied().unwrap_or(0))
            .set_token(self.token)
            .set_ownership(true);
        (entry, sinks)
    }

    /// Rings for entry 0, and returns the entry after that.
    pub(crate) fn submit(&mut self, entry: &CommandQueueEntry) -> CommandQueueEntry {
        self.poke(self.queue, entry.as_bytes());
        self.write(BAR0, offset::CMD_DBELL as u64, &1u32.to_be_bytes());
        let mut done = CommandQueueEntry::default();
        self.peek(self.queue, done.as_mut_bytes());
        done
    }

    /// Executes a command, and returns its output.
    pub(crate) fn raw(&mut self, input: &[u8], output: usize) -> Vec<u8> {
        let (entry, sinks) = self.prepare(input, output);
        let done = self.submit(&entry);
        assert!(!done.ownership(), "the entry was not given back");
        assert_eq!(DeliveryStatus(done.status()), DeliveryStatus::OK);
        assert_eq!(done.as_bytes().iter().fold(0, |sum, byte| sum ^ byte), 0xff, "signature");
        let mut bytes = done.command_output_inline_data().to_vec();
        for at in sinks {
            let mut block = MailboxBlock::default();
            self.peek(at, block.as_mut_bytes());
            assert_eq!(block.as_bytes().iter().fold(0, |sum, byte| sum ^ byte), 0xff, "signature");
            bytes.extend_from_slice(block.data());
        }
        bytes.truncate(output);
        bytes
    }

    /// Executes a command that is followed by a list of addresses, and must succeed.
    pub(crate) fn run_with<I: CommandInput>(&mut self, input: &I, pages: &[u64]) -> I::Output {
        let mut bytes = input.as_bytes().to_vec();
        bytes.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
        let output = self.raw(&bytes, I::Output::BYTES);
        let status = CommandStatus(CommandOutHead::from_short(&output).status());
        assert_eq!(status, CommandStatus::OK, "{:?}", I::OPCODE);
        I::Output::read_from_prefix(&output).expect("an output").0
    }

    pub(crate) fn run<I: CommandInput>(&mut self, input: &I) -> I::Output {
        self.run_with(input, &[])
    }

    /// Reads a register until it has the wanted value.
    pub(crate) fn wait_for(&mut self, at: u64, wanted: impl Fn(u32) -> bool) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !wanted(u32::from_be_bytes(self.read(BAR0, at))) {
            assert!(Instant::now() < patience, "register {at:#x} does not change");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The function ends with the connection.
        let _ = self.client.shutdown();
        if let Some(function) = self.function.take() {
            let ended = function.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the function panicked");
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The number of times that an eventfd was raised since the last call.
pub(crate) fn raised(signal: &EventFd) -> u64 {
    let copy = signal.as_fd().try_clone_to_owned().expect("a descriptor");
    // SAFETY: the descriptor was just made, and has no other owner.
    let mut file = unsafe { File::from_raw_fd(copy.into_raw_fd()) };
    let mut count = [0; 8];
    match file.read_exact(&mut count) {
        Ok(()) => u64::from_ne_bytes(count),
        Err(_) => 0,
    }
}
