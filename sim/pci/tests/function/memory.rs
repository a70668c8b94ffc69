//! The guest's memory, mapped and unmapped.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::AllocPdIn;
use mlx5_prm::cmd::hca::NopIn;
use mlx5_prm::cmd::mkey::AllocMemicIn;
use mlx5_sim::SimConfig;
use mlx5_sim::dma::Dma;
use mlx5_sim_pci::{BAR0_MEMORY, DEVICE_BYTES, GuestMemory};

use crate::machine::{BAR0, MEMORY, MEMORY_BYTES, Machine};

#[test]
fn commands_go_on_after_memory_was_mapped_again() {
    let mut machine = Machine::new(SimConfig::new());
    let first = machine.run(&AllocPdIn::request()).pd();
    machine.unmap(MEMORY);
    machine.map(MEMORY, 0);
    assert_ne!(machine.run(&AllocPdIn::request()).pd(), first);
}

#[test]
fn a_command_in_memory_that_is_gone_is_reported_and_nothing_else() {
    let mut machine = Machine::new(SimConfig::new());
    machine.unmap(MEMORY);
    let (entry, _) = machine.prepare(NopIn::request().as_bytes(), 16);
    assert!(machine.submit(&entry).ownership());
    assert_eq!(machine.log.problems(), 1);
    machine.map(MEMORY, 0);
    assert!(!machine.submit(&entry).ownership());
}

#[test]
fn the_same_address_may_come_to_lie_elsewhere_in_the_file() {
    let mut machine = Machine::new(SimConfig::new());
    machine.unmap(MEMORY);
    machine.map(MEMORY, MEMORY_BYTES);
    // The driver writes elsewhere in the file: the device does not see the command.
    let (entry, _) = machine.prepare(NopIn::request().as_bytes(), 16);
    assert!(machine.submit(&entry).ownership());
}

#[test]
fn ranges_next_to_one_another_are_one_and_a_range_without_a_file_is_none() {
    let machine = Machine::bare(SimConfig::new());
    let memory = GuestMemory::default();
    memory.map(0x1000, 0x1000, Some(&machine.file), 0).expect("mapped");
    memory.map(0x2000, 0x1000, Some(&machine.file), 0x5000).expect("mapped");
    memory.map(0x3000, 0x1000, None, 0).expect("remembered");
    let bytes: Vec<u8> = (0..=255).collect();
    memory.write(0x1f80, &bytes).expect("both ranges");
    let mut back = [0; 256];
    memory.read(0x1f80, &mut back).expect("both ranges");
    assert_eq!(back[..], bytes);
    assert_eq!(memory.reachable(), 0x2000);
    assert_eq!(memory.write(0x2f80, &bytes).expect_err("no file").address, 0x3000);
    assert_eq!(memory.read(0xff0, &mut back).expect_err("nothing").address, 0xff0);
    assert!(memory.load_u32(0x2ffe).is_err(), "half of it is behind the end");
    memory.unmap(0x1000, 0x1000);
    assert!(memory.read(0x1f80, &mut back).is_err());
}

#[test]
fn a_range_that_its_file_does_not_reach_is_refused() {
    let machine = Machine::bare(SimConfig::new());
    let memory = GuestMemory::default();
    assert!(memory.map(0, MEMORY_BYTES, Some(&machine.file), 2 * MEMORY_BYTES).is_err());
    assert!(memory.map(u64::MAX - 1, 0x1000, None, 0).is_err());
}

#[test]
fn the_functions_own_memory_lies_behind_its_registers() {
    let mut machine = Machine::new(SimConfig::new());
    let mut input = AllocMemicIn::request();
    input.set_range_start_addr(BAR0_MEMORY + 0x1000).set_range_size(0x1000).set_memic_size(64);
    let at = machine.run(&input).memic_start_addr();
    assert_eq!(at, BAR0_MEMORY + 0x1000);
    machine.write(BAR0, at + 4, b"four");
    machine.write(BAR0, at + 8, b"the rest");
    assert_eq!(&machine.read(BAR0, at + 4), b"fourthe rest");
    // The guest's memory may be mapped and unmapped meanwhile.
    machine.unmap(MEMORY);
    assert_eq!(&machine.read(BAR0, at + 4), b"four");
    let behind = BAR0_MEMORY + DEVICE_BYTES;
    assert_eq!(machine.read(BAR0, behind), [0xff; 4]);
    assert_eq!(machine.log.problems(), 0);
    machine.write(BAR0, behind, &[1; 4]);
    assert_eq!(machine.log.problems(), 1);
}
