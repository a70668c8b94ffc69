//! The PCI function: its regions, and the device behind them.

use std::fs::File;
use std::io;
use std::sync::Arc;

use mlx5_prm::cmd::init_seg::DeliveryStatus;
use mlx5_prm::cmd::{CommandInHead, CommandOpcode, CommandOutHead, CommandStatus};
use mlx5_prm::doorbell::{EQ_ARM, EQ_UPDATE, UAR_PAGE};
use mlx5_prm::event::EventType;
use mlx5_sim::dma::Dma;
use mlx5_sim::engine::{DeviceId, FIRST_UAR};
use mlx5_sim::firmware::{EventRings, Firmware, syndrome};
use mlx5_sim::{Fabric, LinkLayer};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::config_space::{Asked, BAR0_MEMORY, ConfigSpace, MSIX_TABLE};
use crate::init_segment::{InitSegment, Written};
use crate::interrupts::Interrupts;
use crate::log::Log;
use crate::mailbox::Command;
use crate::memory::{DEVICE, DEVICE_BYTES, GuestMemory};

/// Unmap everything, whatever the range. `VFIO_DMA_UNMAP_FLAG_ALL`, `vfio.h`.
const UNMAP_ALL: u32 = 1 << 1;

/// One ConnectX on the bus of a guest.
pub struct Function {
    id: DeviceId,
    fabric: Fabric,
    firmware: Firmware,
    rings: EventRings,
    memory: Arc<GuestMemory>,
    interrupts: Interrupts,
    config: ConfigSpace,
    segment: InitSegment,
    /// The first half of a register that is written in two: where, and what.
    half: Option<(u64, u32)>,
    log: Log,
}

impl Function {
    /// Adds a device to a fabric, and puts it on a bus.
    #[must_use]
    pub fn new(fabric: &Fabric, log: Log) -> Self {
        let mut config = fabric.config().clone();
        // The pages of BAR 0 that are in front of its memory.
        let uars = (BAR0_MEMORY / UAR_PAGE as u64) as u32 - FIRST_UAR;
        config.limits.uars = config.limits.uars.min(uars);
        let memory = Arc::new(GuestMemory::default());
        let interrupts = Interrupts::default();
        let dma: Arc<dyn Dma> = Arc::clone(&memory) as Arc<dyn Dma>;
        let raised = interrupts.clone();
        let rings = EventRings::new(Arc::clone(&dma), move |vector| raised.raise(vector));
        let sink = rings.clone();
        let mut engine = fabric.lock();
        let id = engine.add_device(&config, dma);
        engine.device_mut(id).set_event_sink(Some(Box::new(move |event| sink.event(event))));
        drop(engine);
        let mut firmware = Firmware::with_rings(rings.clone());
        firmware.offer_device_memory(BAR0_MEMORY, DEVICE, DEVICE_BYTES);
        Self {
            id,
            fabric: fabric.clone(),
            firmware,
            rings,
            memory,
            interrupts,
            config: Self::config_space(fabric),
            segment: InitSegment::new(config.model, config.clock_khz),
            half: None,
            log,
        }
    }

    fn config_space(fabric: &Fabric) -> ConfigSpace {
        let config = fabric.config();
        let infiniband =
            config.ports.first().is_some_and(|port| port.link_layer == LinkLayer::InfiniBand);
        ConfigSpace::new(config.model, infiniband)
    }

    /// The guest's memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Which device of the fabric it is.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// The firmware of the device.
    #[must_use]
    pub fn firmware(&self) -> &Firmware {
        &self.firmware
    }

    /// Logs the driver's violations as soon as they happen, so that the log shows when.
    fn report_violations(&self) {
        let violations = self.fabric.lock().device_mut(self.id).take_violations();
        for violation in violations {
            self.log.problem(format_args!("hca {}: {violation:?}", self.id));
        }
    }

    /// Says what has not been said yet, when the machine has let go of it.
    pub fn report(&self) {
        self.report_violations();
        if self.rings.lost() > 0 {
            self.log.problem(format_args!("hca {}: {} events lost", self.id, self.rings.lost()));
        }
    }

    /// Function-level reset: what the driver made is gone, and so is what it set.
    pub fn reset(&mut self) {
        self.log.trace(format_args!("hca {}: reset", self.id));
        self.firmware.reset(self.fabric.lock().device_mut(self.id));
        self.segment.reset();
        self.interrupts.forget();
        self.half = None;
    }

    fn run_commands(&mut self, vector: u32) {
        for index in (0..u32::BITS).filter(|index| vector >> index & 1 != 0) {
            self.run_command(index);
        }
    }

    fn run_command(&mut self, index: u32) {
        let dma = Arc::clone(&self.memory);
        // The queue that a command makes does not tell of that command.
        let tell = self.rings.takes(EventType::CMD);
        let done = Command::take(&*dma, self.segment.entry(index)).and_then(|mut command| {
            let status = command.gather(&*dma)?;
            if status == DeliveryStatus::OK {
                self.execute(&mut command);
            } else {
                self.log.problem(format_args!("hca {}: command refused: {status:?}", self.id));
            }
            command.finish(&*dma, status)
        });
        match done {
            Ok(()) if tell => self.rings.commands_done(1 << index),
            Ok(()) => {}
            Err(why) => {
                self.log.problem(format_args!("hca {}: command {index}: {why:?}", self.id));
            }
        }
    }

    fn execute(&mut self, command: &mut Command) {
        let Command { input, output, .. } = command;
        let status = self.firmware.execute(self.fabric.lock().device_mut(self.id), input, output);
        let head = CommandInHead::from_short(input);
        let opcode = CommandOpcode(head.opcode());
        let told = CommandOutHead::from_short(output).syndrome();
        self.log.trace(format_args!(
            "hca {}: {opcode:?} mod {:#x} uid {} [{}] -> [{}] {status:?} {told:#x}",
            self.id,
            head.op_mod(),
            head.uid(),
            input.len(),
            output.len(),
        ));
        if told == syndrome::UNKNOWN_OPCODE {
            self.log.problem(format_args!("hca {}: no such command: {opcode:?}", self.id));
        } else if status != CommandStatus::OK {
            self.log.note(format_args!(
                "hca {}: {opcode:?} mod {:#x} refused: {status:?}, syndrome {told:#x} ({})",
                self.id,
                head.op_mod(),
                syndrome::name(told).unwrap_or("unknown"),
            ));
        }
    }

    fn read_bar(&mut self, offset: u64, data: &mut [u8]) {
        if let Some(within) = offset.checked_sub(BAR0_MEMORY) {
            if self.memory.read(DEVICE + within, data).is_err() {
                data.fill(0xff);
            }
            return;
        }
        let well = !self.fabric.lock().device(self.id).is_fatal();
        for (at, byte) in (offset..).zip(data) {
            *byte = 0;
            if at < MSIX_TABLE.into() {
                let word = self.segment.read(at as usize & !3, well).to_be_bytes();
                *byte = word[at as usize % 4];
            }
        }
    }

    fn write_bar(&mut self, offset: u64, data: &[u8]) {
        if offset < MSIX_TABLE.into() {
            let words = data.chunks_exact(4).filter(|_| offset.is_multiple_of(4));
            for (at, word) in (offset..).step_by(4).zip(words) {
                let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                match self.segment.write(at as usize, word) {
                    Written::Nothing => {}
                    Written::Commands(vector) => self.run_commands(vector),
                    Written::Reset => {
                        self.firmware.reset(self.fabric.lock().device_mut(self.id));
                    }
                }
            }
            return;
        }
        if let Some(within) = offset.checked_sub(BAR0_MEMORY) {
            if self.memory.write(DEVICE + within, data).is_err() {
                self.log.problem(format_args!("hca {}: nothing is at {offset:#x}", self.id));
            }
            return;
        }
        if !self.segment.is_enabled() {
            // A driver that has not noticed the reset yet.
            return;
        }
        let page = UAR_PAGE as u64;
        let (uar, register) = ((offset / page) as u32, (offset % page) as usize);
        if let Ok(word) = <[u8; 4]>::try_from(data) {
            self.write_half(uar, register, offset, u32::from_be_bytes(word));
            return;
        }
        let (words, rest) = data.as_chunks::<8>();
        if !rest.is_empty() || !offset.is_multiple_of(8) {
            self.log.problem(format_args!(
                "hca {}: {} bytes written to a UAR at {offset:#x}",
                self.id,
                data.len()
            ));
            return;
        }
        for (register, word) in (register..).step_by(8).zip(words) {
            let word = u64::from_be_bytes(*word);
            self.fabric.lock().device_mut(self.id).doorbell_write(uar, register, word);
        }
    }

    /// Takes a word of four bytes: a doorbell of an event queue, or half of another.
    fn write_half(&mut self, uar: u32, register: usize, offset: u64, word: u32) {
        match register {
            EQ_ARM => self.rings.doorbell(word, true),
            EQ_UPDATE => self.rings.doorbell(word, false),
            _ if register.is_multiple_of(8) => self.half = Some((offset, word)),
            _ => {
                if let Some((first, high)) = self.half.take()
                    && first + 4 == offset
                {
                    let value = u64::from(high) << 32 | u64::from(word);
                    let mut engine = self.fabric.lock();
                    engine.device_mut(self.id).doorbell_write(uar, register - 4, value);
                }
            }
        }
    }
}

impl ServerBackend for Function {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX => {
                self.read_bar(offset, data);
                self.log.trace(format_args!("hca {}: R {offset:#x} {data:02x?}", self.id));
            }
            _ => data.fill(0xff),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => match self.config.write(offset, data) {
                Asked::Nothing => {}
                Asked::Reset => self.reset(),
            },
            VFIO_PCI_BAR0_REGION_INDEX => {
                self.log.trace(format_args!("hca {}: W {offset:#x} {data:02x?}", self.id));
                self.write_bar(offset, data);
                self.report_violations();
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        let fate = self.memory.map(address, size, fd.as_ref(), offset);
        self.log.trace(format_args!(
            "hca {}: map {address:#x} +{size:#x} file {} at {offset:#x}: {fate:?}",
            self.id,
            fd.is_some()
        ));
        if let Err(error) = fate {
            self.log.problem(format_args!("hca {}: cannot map {address:#x}: {error}", self.id));
        }
        Ok(())
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.log.trace(format_args!("hca {}: unmap {address:#x} +{size:#x}", self.id));
        if flags.bits() & UNMAP_ALL != 0 {
            self.memory.clear();
        } else {
            self.memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        Function::reset(self);
        self.config = Self::config_space(&self.fabric);
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        self.log.trace(format_args!(
            "hca {}: interrupts {index} flags {flags:#x} {start}+{count}, {} files",
            self.id,
            fds.len()
        ));
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 && !fds.is_empty() {
            self.interrupts.attach(start, fds);
        } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            self.interrupts.detach(start, count);
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0 {
            self.interrupts.detach(0, u32::MAX);
        }
        Ok(())
    }
}
