//! Event queues in the guest's memory, and interrupts.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::AllocUarIn;
use mlx5_prm::cmd::eq::CreateEqIn;
use mlx5_prm::cmd::hca::{InitHcaIn, ManagePagesIn, ManagePagesMode, NopIn};
use mlx5_prm::doorbell::{CQ_DOORBELL, EQ_ARM, EQ_UPDATE, UAR_PAGE};
use mlx5_prm::event::{Eqe, EventType};
use mlx5_prm::fields::IntoBytes;
use mlx5_sim::SimConfig;

use crate::machine::{BAR0, MSIX, Machine, SIGNALS, raised};

const LOG_SIZE: u32 = 2;

/// A machine with an event queue for events of commands.
struct Bench {
    machine: Machine,
    eqn: u32,
    uar: u32,
    ring: u64,
}

impl Bench {
    fn new(vector: u32) -> Self {
        let mut machine = Machine::new(SimConfig::new());
        let uar = machine.run(&AllocUarIn::request()).uar();
        let ring = machine.page();
        // Drivers initialize entries as not theirs.
        let mut fresh = Eqe::default();
        fresh.set_owner(true);
        for n in 0..1 << LOG_SIZE {
            machine.poke(ring + n * Eqe::BYTES as u64, fresh.as_bytes());
        }
        let mut input = CreateEqIn::request();
        input.eqc_mut().set_log_eq_size(LOG_SIZE).set_uar_page(uar).set_intr(vector);
        input.event_bitmask_mut()[0].set(1 << EventType::CMD.0);
        let eqn = machine.run_with(&input, &[ring]).eq_number();
        Self { machine, eqn, uar, ring }
    }

    fn doorbell(&mut self, register: usize, counter: u32) {
        let at = u64::from(self.uar) * UAR_PAGE as u64 + register as u64;
        self.machine.write(BAR0, at, &(self.eqn << 24 | counter).to_be_bytes());
    }

    fn entry(&self, number: u64) -> Eqe {
        let mut entry = Eqe::default();
        let slot = number % (1 << LOG_SIZE);
        self.machine.peek(self.ring + slot * Eqe::BYTES as u64, entry.as_mut_bytes());
        entry
    }

    fn command(&mut self) {
        self.machine.run(&NopIn::request());
    }
}

#[test]
fn the_queue_that_a_command_makes_does_not_tell_of_that_command() {
    let bench = Bench::new(0);
    assert!(bench.entry(0).owner(), "an entry was written");
}

#[test]
fn an_armed_queue_interrupts_once() {
    let mut bench = Bench::new(3);
    let signal = bench.machine.listen(3);
    bench.doorbell(EQ_ARM, 0);
    bench.command();
    assert_eq!(raised(&signal), 1);
    let entry = bench.entry(0);
    assert_eq!(EventType(entry.event_type()), EventType::CMD);
    assert_eq!(entry.command().vector(), 1);
    bench.command();
    assert_eq!(raised(&signal), 0, "it was not armed again");
}

#[test]
fn arming_behind_the_last_event_interrupts_at_once() {
    let mut bench = Bench::new(0);
    let signal = bench.machine.listen(0);
    bench.command();
    assert_eq!(raised(&signal), 0);
    bench.doorbell(EQ_ARM, 0);
    assert_eq!(raised(&signal), 1);
    bench.doorbell(EQ_ARM, 1);
    assert_eq!(raised(&signal), 0, "all was read");
}

#[test]
fn the_owner_changes_with_each_round() {
    let mut bench = Bench::new(0);
    for number in 0..3 << LOG_SIZE {
        bench.command();
        assert_eq!(bench.entry(number).owner(), number >> LOG_SIZE & 1 != 0);
        bench.doorbell(EQ_UPDATE, number as u32 + 1);
    }
    assert_eq!(bench.machine.log.problems(), 0);
}

#[test]
fn an_interrupt_without_a_listener_waits_for_one() {
    let mut bench = Bench::new(5);
    bench.doorbell(EQ_ARM, 0);
    bench.command();
    let signal = bench.machine.listen(5);
    assert_eq!(raised(&signal), 1);
}

#[test]
fn a_vector_raises_the_last_eventfd_that_it_got() {
    let mut bench = Bench::new(1);
    let old = bench.machine.listen(1);
    let new = bench.machine.listen(1);
    bench.doorbell(EQ_ARM, 0);
    bench.command();
    assert_eq!((raised(&old), raised(&new)), (0, 1));
    // An empty list of eventfds detaches.
    bench.machine.client.set_irqs(MSIX, SIGNALS, 1, 1, &[]).expect("detached");
    bench.doorbell(EQ_ARM, 1);
    bench.command();
    assert_eq!(raised(&new), 0);
}

#[test]
fn doorbells_of_a_driver_that_missed_a_reset_mean_nothing() {
    let mut bench = Bench::new(0);
    bench.machine.client.reset().expect("reset");
    let at = u64::from(bench.uar) * UAR_PAGE as u64 + CQ_DOORBELL as u64;
    bench.machine.write(BAR0, at, &0x1234u64.to_be_bytes());
    bench.doorbell(EQ_ARM, 0);
    let log = bench.machine.log.clone();
    drop(bench);
    assert_eq!(log.problems(), 0);
}

#[test]
fn a_doorbell_of_a_queue_that_there_is_not_is_reported() {
    let mut bench = Bench::new(0);
    let at = u64::from(bench.uar) * UAR_PAGE as u64 + CQ_DOORBELL as u64;
    // A register of eight bytes may be written in two halves.
    bench.machine.write(BAR0, at, &0u32.to_be_bytes());
    bench.machine.write(BAR0, at + 4, &0x1234u32.to_be_bytes());
    let log = bench.machine.log.clone();
    drop(bench);
    assert_eq!(log.problems(), 1);
}

#[test]
fn a_device_that_lacks_pages_asks_for_them_once() {
    let mut bench = Bench::new(0);
    let ring = bench.machine.page();
    let mut input = CreateEqIn::request();
    input.eqc_mut().set_log_eq_size(LOG_SIZE).set_uar_page(bench.uar);
    input.event_bitmask_mut()[0].set(1 << EventType::PAGE_REQUEST.0);
    bench.machine.run_with(&input, &[ring]);
    bench.machine.run(&InitHcaIn::request());
    bench.ring = ring;
    let entry = bench.entry(0);
    assert_eq!(EventType(entry.event_type()), EventType::PAGE_REQUEST);
    let wanted = entry.page_request().num_pages();
    assert!(wanted.cast_signed() > 0);
    bench.command();
    assert_eq!(bench.entry(1), Eqe::default(), "it asked again");
    let given: Vec<u64> = (0..u64::from(wanted)).map(|n| 0x10_0000_0000 + n * 4096).collect();
    let mut manage = ManagePagesIn::request();
    manage.set_op_mod(ManagePagesMode::ALLOCATION_SUCCESS.0).set_input_num_entries(wanted);
    bench.machine.run_with(&manage, &given);
    bench.command();
    assert_eq!(bench.entry(1), Eqe::default(), "it has what it asked for");
}
