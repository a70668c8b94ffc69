//! Configuration space and initialization segment.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::AllocPdIn;
use mlx5_prm::cmd::init_seg::offset;
use mlx5_sim::{Model, PortConfig, SimConfig};
use mlx5_sim_pci::{BAR0_BYTES, VECTORS};

use crate::machine::{BAR0, CONFIG, MSIX, Machine};

const COMMAND: u64 = 0x04;
const BAR: u64 = 0x10;
const FIRST_CAPABILITY: u64 = 0x34;

/// Offset of a capability, by its number.
fn capability(machine: &mut Machine, wanted: u8) -> u64 {
    let [mut at] = machine.read(CONFIG, FIRST_CAPABILITY);
    for _ in 0..8 {
        let [id, next] = machine.read(CONFIG, at.into());
        if id == wanted {
            return at.into();
        }
        at = next;
    }
    panic!("no capability {wanted:#x}");
}

#[test]
fn the_configuration_space_tells_vendor_model_and_class() {
    for model in Model::ALL {
        let mut machine = Machine::bare(SimConfig::new().model(model));
        let [v0, v1, d0, d1] = machine.read(CONFIG, 0);
        assert_eq!(u16::from_le_bytes([v0, v1]), 0x15b3);
        assert_eq!(u16::from_le_bytes([d0, d1]), model.pci_device_id());
        assert_eq!(machine.read(CONFIG, 0x0a), [0x07, 0x02]);
    }
    let mut ethernet = Machine::bare(SimConfig::new().ports([PortConfig::ROCE]));
    assert_eq!(ethernet.read(CONFIG, 0x0a), [0x00, 0x02]);
}

#[test]
fn what_a_driver_writes_to_the_command_register_stays() {
    let mut machine = Machine::bare(SimConfig::new());
    machine.write(CONFIG, COMMAND, &0x0406u16.to_le_bytes());
    assert_eq!(machine.read(CONFIG, COMMAND), 0x0406u16.to_le_bytes());
    machine.write(CONFIG, 0, &[0xff; 4]);
    assert_eq!(machine.read(CONFIG, 0), [0xb3, 0x15], "the vendor cannot be written");
}

#[test]
fn the_bar_tells_its_size() {
    let mut machine = Machine::bare(SimConfig::new());
    machine.write(CONFIG, BAR, &[0xff; 8]);
    let bar = u64::from_le_bytes(machine.read(CONFIG, BAR));
    assert_eq!(bar & 0xf, 0xc, "64 bits, prefetchable");
    assert_eq!(!(bar & !0xf) + 1, BAR0_BYTES);
}

#[test]
fn msi_x_has_a_vector_for_each_interrupt_of_the_bus() {
    let mut machine = Machine::bare(SimConfig::new());
    let msix = capability(&mut machine, 0x11);
    let control = u16::from_le_bytes(machine.read(CONFIG, msix + 2));
    assert_eq!(u32::from(control & 0x7ff) + 1, VECTORS);
    assert_eq!(machine.client.get_irq_info(MSIX).expect("an answer").count, VECTORS);
    let table = u32::from_le_bytes(machine.read(CONFIG, msix + 4));
    assert_eq!(table & 7, 0, "in BAR 0");
    assert!(table as usize >= offset::SIZE, "behind the initialization segment");
}

#[test]
fn the_initialization_segment_tells_the_firmware_and_its_health() {
    let mut machine = Machine::bare(SimConfig::new().model(Model::ConnectX6));
    let mut word = |at: usize| u32::from_be_bytes(machine.read(BAR0, at as u64));
    let [major, minor, sub] = Model::ConnectX6.firmware_version().map(u32::from);
    assert_eq!(word(offset::FW_REV), minor << 16 | major);
    assert_eq!(word(offset::CMDIF_REV_FW_SUB), 5 << 16 | sub);
    assert_eq!(word(offset::INITIALIZING), 0);
    assert_eq!(word(offset::CMDQ_ADDR_L_SZ), 0x56);
    let beat = word(offset::HEALTH_COUNTER);
    machine.wait_for(offset::HEALTH_COUNTER as u64, |now| now != beat);
}

#[test]
fn a_function_level_reset_forgets_the_driver() {
    let mut machine = Machine::new(SimConfig::new());
    let first = machine.run(&AllocPdIn::request()).pd();
    assert_ne!(machine.run(&AllocPdIn::request()).pd(), first);
    let express = capability(&mut machine, 0x10);
    machine.write(CONFIG, express + 8, &0x8000u16.to_le_bytes());
    assert_eq!(machine.read(BAR0, offset::CMDQ_ADDR_H as u64), [0; 4]);
    let state = machine.read(BAR0, offset::CMDQ_ADDR_L_SZ as u64);
    assert_eq!(state, [0, 0, 1, 0x56], "the interface is disabled");
    machine.tell_queue();
    assert_eq!(machine.run(&AllocPdIn::request()).pd(), first);
}
