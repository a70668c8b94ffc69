//! A device and its driver in the simulated kernel.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mlx5_prm::cmd::alloc::{AllocUarIn, AllocUarOut, DeallocUarIn};
use mlx5_prm::cmd::caps::HcaCap;
use mlx5_prm::cmd::eq::{CreateEqIn, EqStatus};
use mlx5_prm::cmd::ethernet::SetPpRateLimitIn;
use mlx5_prm::cmd::mkey::MkeyContext;
use mlx5_prm::cmd::{CommandInput, CommandOutHead, CommandStatus};
use mlx5_prm::fields::{FromBytes, IntoBytes};
use mlx5_uapi::Errno;

use crate::config::LinkLayer;
use crate::engine::{DeviceId, Event};
use crate::fabric::Fabric;
use crate::firmware::{Counts, Firmware, caps};
use crate::kernel::bar::{Bar, BarPages};
use crate::kernel::clock::Clocks;
use crate::kernel::events::EventHub;
use crate::kernel::known::Target;
use crate::kernel::lock;
use crate::kernel::memory::Anonymous;
use crate::kernel::rates::{Rate, Rates};
use crate::kernel::steered::{Loopback, Rules};

/// Completion vectors, each with an event queue.
pub(crate) const COMPLETION_VECTORS: u32 = 8;
/// Bytes of a page that the kernel shares with the device.
const PAGE: usize = 4096;
/// Pages of the device's own memory.
const DEVICE_PAGES: u64 = 32;

/// A file, by file system and inode.
pub(crate) type Inode = (u64, u64);

/// The shared domains of a device: number, and the number of handles.
pub(crate) type SharedDomains = Mutex<BTreeMap<Inode, (u32, u32)>>;

/// A file that is open on a device.
pub(crate) trait Open: Send + Sync {
    /// Ends every object, as the device is gone.
    fn disassociate(&self);
}

/// A device and its driver.
pub(crate) struct Hca {
    pub(crate) id: DeviceId,
    pub(crate) fabric: Fabric,
    pub(crate) caps: HcaCap,
    pub(crate) hub: Arc<EventHub>,
    /// Source of the pages that drivers map.
    pub(crate) bar: Bar,
    firmware: Mutex<Firmware>,
    eqns: Vec<u32>,
    /// Memory of the event queues. The engine brings events to the hub instead.
    _eq_memory: Anonymous,
    /// The device's own memory, and a mask of its pages in use.
    pub(crate) device_memory: BarPages,
    device_pages: Mutex<u64>,
    pub(crate) clocks: Clocks,
    /// XRC domains that programs share by a file.
    pub(crate) xrc_domains: SharedDomains,
    /// The targets of extended connections, by number.
    pub(crate) targets: Mutex<BTreeMap<u32, Target>>,
    /// Whether frames come back to the function.
    pub(crate) loopback: Loopback,
    /// Limits of the rate of send queues.
    pub(crate) rates: Mutex<Rates>,
    /// Flow rules of programs.
    pub(crate) rules: Rules,
    files: Mutex<Vec<Weak<dyn Open>>>,
    removed: AtomicBool,
    /// Another driver has the device, which was plugged in again.
    replaced: AtomicBool,
    /// Source of the low byte of the next memory key.
    key_tags: AtomicU32,
    pid: u32,
}

/// The errno that the driver gives for a command's status.
pub(crate) fn errno(status: CommandStatus) -> Errno {
    match status {
        CommandStatus::RES_BUSY => Errno::EBUSY,
        CommandStatus::LIM_ERR => Errno::ENOMEM,
        CommandStatus::NO_RES_ERR => Errno::EAGAIN,
        CommandStatus::BAD_OP_ERR
        | CommandStatus::BAD_PARAM_ERR
        | CommandStatus::BAD_RES_ERR
        | CommandStatus::BAD_RES_STATE_ERR
        | CommandStatus::IX_ERR
        | CommandStatus::BAD_QP_STATE_ERR
        | CommandStatus::BAD_PKT_ERR
        | CommandStatus::BAD_SIZE_OUTS_CQES_ERR => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

impl Hca {
    /// Starts the driver of a device.
    pub(crate) fn start(fabric: &Fabric, id: DeviceId, bar: &Bar) -> Result<Arc<Self>, Errno> {
        let config = fabric.config();
        let hub = EventHub::new(config.ports.iter().map(|port| port.link_layer).collect());
        let sink = Arc::clone(&hub);
        let mut engine = fabric.lock();
        engine
            .device_mut(id)
            .set_event_sink(Some(Box::new(move |event: Event| sink.deliver(event))));
        drop(engine);
        let mut hca = Self {
            id,
            fabric: fabric.clone(),
            caps: caps::general_caps(config),
            hub,
            bar: bar.clone(),
            firmware: Mutex::new(Firmware::new()),
            eqns: Vec::new(),
            _eq_memory: Anonymous::map(PAGE, PAGE.trailing_zeros(), false)?,
            device_memory: bar.map(DEVICE_PAGES as usize * PAGE)?,
            device_pages: Mutex::default(),
            clocks: Clocks::new(fabric, id, bar)?,
            xrc_domains: SharedDomains::default(),
            targets: Mutex::default(),
            loopback: Loopback::default(),
            rates: Mutex::default(),
            rules: Rules::default(),
            files: Mutex::default(),
            removed: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            key_tags: AtomicU32::new(config.seed as u32 | 1),
            pid: std::process::id(),
        };
        let memory = hca.device_memory.address();
        lock(&hca.firmware).offer_device_memory(memory, memory, Self::DEVICE_MEMORY);
        for vector in 0..COMPLETION_VECTORS {
            let mut input = CreateEqIn::request();
            input.eqc_mut().set_status(EqStatus::OK.0).set_intr(vector);
            let out = hca.command_with(&input, &[hca._eq_memory.address()])?;
            hca.eqns.push(out.eq_number());
        }
        Loopback::start(&hca);
        Ok(Arc::new(hca))
    }

    /// Executes a command as it stands in a mailbox.
    pub(crate) fn execute(&self, input: &[u8], output: &mut [u8]) -> CommandStatus {
        // The new driver has other objects under this driver's numbers.
        if self.replaced.load(Ordering::Acquire) {
            return CommandStatus::BAD_SYS_STATE_ERR;
        }
        let mut firmware = lock(&self.firmware);
        let mut engine = self.fabric.lock();
        firmware.execute(engine.device_mut(self.id), input, output)
    }

    /// Executes a command.
    pub(crate) fn command<I: CommandInput>(&self, input: &I) -> Result<I::Output, Errno> {
        self.command_with(input, &[])
    }

    /// Executes a command that a list of addresses follows.
    pub(crate) fn command_with<I: CommandInput>(
        &self,
        input: &I,
        pages: &[u64],
    ) -> Result<I::Output, Errno> {
        let mut mailbox = Vec::with_capacity(I::BYTES + size_of_val(pages));
        mailbox.extend_from_slice(input.as_bytes());
        mailbox.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
        let mut output = I::Output::default();
        match self.execute(&mailbox, output.as_mut_bytes()) {
            CommandStatus::OK => Ok(output),
            status => Err(errno(status)),
        }
    }

    /// Executes a command whose answer is longer than its fixed part, and returns the whole answer.
    pub(crate) fn command_long<I: CommandInput>(
        &self,
        input: &I,
        output_bytes: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut output = vec![0; output_bytes];
        match self.execute(input.as_bytes(), &mut output) {
            CommandStatus::OK => Ok(output),
            status => Err(errno(status)),
        }
    }

    /// Executes a command that has more bytes than its fixed part.
    pub(crate) fn command_bytes(&self, input: &[u8], output: &mut [u8]) -> Result<(), Errno> {
        match self.execute(input, output) {
            CommandStatus::OK => Ok(()),
            status => Err(errno(status)),
        }
    }

    /// Executes a command without a typed layout.
    pub(crate) fn command_raw<const OUT: usize>(&self, input: &[u8]) -> Result<[u8; OUT], Errno> {
        let mut output = [0; OUT];
        match self.execute(input, &mut output) {
            CommandStatus::OK => Ok(output),
            status => Err(errno(status)),
        }
    }

    /// Takes a share in the entry of a rate limit of the driver's own queues, and returns the
    /// device's index of it.
    pub(crate) fn add_rate(&self, rate: Rate) -> Result<u32, Errno> {
        let set = |input: &SetPpRateLimitIn| self.command(input).map(drop);
        lock(&self.rates).add(rate.context(), 0, false, set)
    }

    /// Releases a share in such an entry.
    pub(crate) fn remove_rate(&self, rate: Rate) {
        lock(&self.rates).remove(rate, |input| self.command(input).map(drop));
    }

    /// Changes the domain and the rights of a memory key; the key itself stays the same.
    pub(crate) fn change_mkey(
        &self,
        index: u32,
        change: impl FnOnce(&mut MkeyContext),
    ) -> Result<(), Errno> {
        let mut firmware = lock(&self.firmware);
        let mut engine = self.fabric.lock();
        let device = engine.device_mut(self.id);
        firmware.change_mkey(device, index, change).map_err(|_| Errno::EINVAL)
    }

    /// Allocates a UAR that lies over a page of plain memory.
    pub(crate) fn alloc_uar(&self, page: u64) -> Result<u32, Errno> {
        let mut firmware = lock(&self.firmware);
        let mut engine = self.fabric.lock();
        let mut output = AllocUarOut::default();
        firmware.offer_uar_memory(page);
        let input = AllocUarIn::request();
        let out = output.as_mut_bytes();
        match firmware.execute(engine.device_mut(self.id), input.as_bytes(), out) {
            CommandStatus::OK => Ok(output.uar()),
            status => Err(errno(status)),
        }
    }

    /// Frees a UAR.
    pub(crate) fn dealloc_uar(&self, uar: u32) -> Result<(), Errno> {
        let mut input = DeallocUarIn::request();
        input.set_uar(uar);
        self.command(&input).map(drop)
    }

    /// Allocates contiguous pages of the device's memory.
    pub(crate) fn take_pages(&self, count: u64) -> Option<u64> {
        if count == 0 || count > DEVICE_PAGES {
            return None;
        }
        let mut taken = lock(&self.device_pages);
        let wanted = (1u64 << count) - 1;
        let first = (0..=DEVICE_PAGES - count).find(|first| *taken & wanted << first == 0)?;
        *taken |= wanted << first;
        Some(first)
    }

    /// Frees pages of the device's memory.
    pub(crate) fn give_back_pages(&self, first: u64, count: u64) {
        *lock(&self.device_pages) &= !(((1u64 << count) - 1) << first);
    }

    /// Bytes of the device's memory.
    pub(crate) const DEVICE_MEMORY: u64 = DEVICE_PAGES * PAGE as u64;

    /// The event queue of a completion vector.
    pub(crate) fn eqn(&self, vector: u32) -> Option<u32> {
        self.eqns.get(vector as usize).copied()
    }

    /// A low byte for the next memory key.
    pub(crate) fn key_tag(&self) -> u8 {
        self.key_tags.fetch_add(1, Ordering::Relaxed) as u8
    }

    /// Whether completions can carry the time of day: the driver asks the device's RoCE part.
    pub(crate) fn has_real_time(&self) -> bool {
        let config = self.fabric.config();
        config.capabilities.real_time
            && config.ports.iter().any(|port| port.link_layer == LinkLayer::Ethernet)
    }

    /// Fails if the device offers programs no raw packets, or if this program may not use them.
    pub(crate) fn raw_packets(&self) -> Result<(), Errno> {
        let config = self.fabric.config();
        match (self.has_raw_packets(), config.net_raw) {
            (false, _) => Err(Errno::EOPNOTSUPP),
            (true, false) => Err(Errno::EPERM),
            (true, true) => Ok(()),
        }
    }

    pub(crate) fn has_raw_packets(&self) -> bool {
        self.fabric.config().raw_packets && self.caps.eth_net_offloads()
    }

    pub(crate) fn has_devx_events(&self) -> bool {
        self.fabric.config().devx_events
    }

    /// Number of ports.
    pub(crate) fn ports(&self) -> u8 {
        self.caps.num_ports() as u8
    }

    /// Numbers of the device's objects, without those of the driver itself.
    pub(crate) fn counts(&self) -> Counts {
        let firmware = lock(&self.firmware);
        let engine = self.fabric.lock();
        let counts = firmware.counts(engine.device(self.id));
        Counts { eqs: counts.eqs - self.eqns.len(), ..counts }
    }

    /// Remembers a file that is open on this device.
    pub(crate) fn opened(&self, file: Weak<dyn Open>) {
        let mut files = lock(&self.files);
        files.retain(|file| file.strong_count() > 0);
        files.push(file);
    }

    /// Whether this is the process that started the simulation. In a forked child no thread of the
    /// simulation runs, and a lock may stay held forever.
    pub(crate) fn is_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Hands the device over to another driver.
    pub(crate) fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// Ends the objects of every file, as the device was pulled out.
    pub(crate) fn disassociate(&self) {
        self.removed.store(true, Ordering::Release);
        let files: Vec<_> = lock(&self.files).iter().filter_map(Weak::upgrade).collect();
        for file in files {
            file.disassociate();
        }
    }
}

/// Status and syndrome of an answer.
pub(crate) fn refusal(output: &[u8]) -> Option<(CommandStatus, u32)> {
    let (head, _) = CommandOutHead::ref_from_prefix(output).ok()?;
    let status = CommandStatus(head.status());
    (!status.is_ok()).then_some((status, head.syndrome()))
}
