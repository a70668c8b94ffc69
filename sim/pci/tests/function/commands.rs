//! The command queue.

use mlx5_prm::cmd::alloc::AllocPdIn;
use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use mlx5_prm::cmd::hca::{
    DisableHcaIn, EnableHcaIn, InitHcaIn, ManagePagesIn, ManagePagesMode, NopIn, QueryPagesIn,
    QueryPagesMode, TeardownHcaIn,
};
use mlx5_prm::cmd::init_seg::DeliveryStatus;
use mlx5_prm::cmd::{CommandInput, CommandOutHead, CommandStatus};
use mlx5_prm::fields::{FromBytes, addresses};
use mlx5_sim::SimConfig;

use crate::machine::Machine;

fn machine() -> Machine {
    Machine::new(SimConfig::new())
}

fn capabilities(machine: &mut Machine, mode: CapMode) -> QueryHcaCapOut {
    let mut input = QueryHcaCapIn::request();
    input.set_op_mod(CapGroup::GENERAL.op_mod(mode));
    machine.run(&input)
}

#[test]
fn a_command_that_fits_its_entry_needs_no_mailbox() {
    let mut machine = machine();
    assert_eq!(machine.run(&NopIn::request()).status(), 0);
    assert_ne!(machine.run(&AllocPdIn::request()).pd(), 0);
}

#[test]
fn an_answer_of_nine_mailboxes_comes_whole_and_signed() {
    let caps = capabilities(&mut machine(), CapMode::MAX);
    assert_eq!(caps.hca_cap().log_max_pd(), 23);
    assert_eq!(caps.hca_cap().num_ports(), 1);
}

#[test]
fn capabilities_are_as_the_driver_sets_them_and_never_more() {
    let mut machine = machine();
    let most = *capabilities(&mut machine, CapMode::MAX).hca_cap();
    let mut input = SetHcaCapIn::request();
    *input.hca_cap_mut() = most;
    input.hca_cap_mut().set_log_max_qp(12);
    machine.run(&input);
    assert_eq!(capabilities(&mut machine, CapMode::CURRENT).hca_cap().log_max_qp(), 12);
    assert_eq!(capabilities(&mut machine, CapMode::MAX).hca_cap().log_max_qp(), most.log_max_qp());
    input.hca_cap_mut().set_log_max_qp(most.log_max_qp() + 1);
    let output = machine.raw(input.as_bytes(), 16);
    let status = CommandStatus(CommandOutHead::from_short(&output).status());
    assert_eq!(status, CommandStatus::BAD_PARAM_ERR);
}

#[test]
fn a_command_that_nobody_knows_is_refused_and_reported() {
    let mut machine = machine();
    let mut input = NopIn::request();
    input.set_opcode(0xfff);
    let output = machine.raw(input.as_bytes(), 16);
    let status = CommandStatus(CommandOutHead::from_short(&output).status());
    assert_eq!(status, CommandStatus::BAD_OP_ERR);
    assert_eq!(machine.log.problems(), 1);
}

#[test]
fn a_command_that_is_refused_is_told_by_names() {
    let mut machine = machine();
    let mut input = ManagePagesIn::request();
    input.set_op_mod(0x77);
    machine.raw(input.as_bytes(), 16);
    let line = "MANAGE_PAGES mod 0x77 refused: BAD_PARAM_ERR, syndrome 0x10004 (UNKNOWN_MODIFIER)";
    assert!(machine.said.contains(line));
}

#[test]
fn what_is_wrong_with_an_entry_stands_in_its_status() {
    let mut machine = machine();
    let mut input = SetHcaCapIn::request();
    input.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::CURRENT));
    let (entry, _) = machine.prepare(input.as_bytes(), 16);
    let mut status = |change: &dyn Fn(&mut mlx5_prm::cmd::init_seg::CommandQueueEntry)| {
        let mut wrong = entry;
        change(&mut wrong);
        let done = machine.submit(&wrong);
        assert!(!done.ownership());
        DeliveryStatus(done.status())
    };
    let token = entry.token();
    let at = entry.input_mailbox_pointer();
    let at_next = at + 1024;
    assert_eq!(
        status(&|e| {
            e.set_token(token + 1);
        }),
        DeliveryStatus::TOK_ERR
    );
    assert_eq!(
        status(&|e| {
            e.set_input_mailbox_pointer(at + 8);
        }),
        DeliveryStatus::IN_PTR_ALIGN_ERR
    );
    assert_eq!(
        status(&|e| {
            e.set_input_mailbox_pointer(at_next);
        }),
        DeliveryStatus::BAD_BLK_NUM_ERR
    );
    assert_eq!(
        status(&|e| {
            e.set_input_length(0);
        }),
        DeliveryStatus::IN_LENGTH_ERR
    );
    assert_eq!(
        status(&|e| {
            e.set_output_length(4);
        }),
        DeliveryStatus::OUT_LENGTH_ERR
    );
    assert_eq!(
        status(&|e| {
            e.set_transport(1);
        }),
        DeliveryStatus::CMD_DESCR_ERR
    );
}

#[test]
fn an_entry_that_is_not_the_devices_stays_untouched() {
    let mut machine = machine();
    let (mut entry, _) = machine.prepare(NopIn::request().as_bytes(), 16);
    entry.set_ownership(false);
    assert_eq!(machine.submit(&entry), entry);
}

#[test]
fn pages_that_were_given_come_back_each_once() {
    let mut machine = machine();
    machine.run(&EnableHcaIn::request());
    let mut query = QueryPagesIn::request();
    query.set_op_mod(QueryPagesMode::BOOT.0);
    let wanted = machine.run(&query).num_pages();
    assert!(wanted > 0);
    let given: Vec<u64> = (0..u64::from(wanted)).map(|n| 0x10_0000_0000 + n * 4096).collect();
    let mut manage = ManagePagesIn::request();
    manage.set_op_mod(ManagePagesMode::ALLOCATION_SUCCESS.0).set_input_num_entries(wanted);
    machine.run_with(&manage, &given);
    machine.run(&InitHcaIn::request());
    machine.run(&TeardownHcaIn::request());

    manage.set_op_mod(ManagePagesMode::HCA_RETURN_PAGES.0).set_input_num_entries(wanted + 9);
    let mut back = Vec::new();
    for _ in 0..2 {
        let output = machine.raw(manage.as_bytes(), 16 + 8 * (wanted as usize + 9));
        let (head, list) =
            mlx5_prm::cmd::hca::ManagePagesOut::read_from_prefix(&output).expect("an output");
        let count = head.output_num_entries() as usize;
        back.extend(addresses(list)[..count].iter().map(|page| page.get()));
    }
    back.sort_unstable();
    assert_eq!(back, given);
    machine.run(&DisableHcaIn::request());
}
