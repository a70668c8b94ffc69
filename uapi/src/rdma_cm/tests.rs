use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Mutex,
};

use super::*;

/// Answers each call from a list, and records the calls.
#[derive(Default)]
struct Script {
    answers: Mutex<Vec<Result<Vec<u8>, Errno>>>,
    calls: Mutex<Vec<Vec<u8>>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Result<Vec<u8>, Errno>>) -> Self {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Self { answers: Mutex::new(answers), calls: Mutex::default() }
    }

    fn calls(&self) -> Vec<Vec<u8>> {
        self.calls.lock().unwrap().clone()
    }
}

impl AsFd for Script {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("there is no descriptor")
    }
}

impl CmFile for Script {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        self.calls.lock().unwrap().push(call.to_vec());
        let answer = self.answers.lock().unwrap().pop().expect("a call too many")?;
        let (header, command) = Header::ref_from_prefix(call).unwrap();
        assert_eq!(usize::from(header.in_len), command.len());
        if !answer.is_empty() {
            assert_eq!(usize::from(header.out_len), answer.len());
            // The address of a response is the first or the second word of its command.
            let at = if header.cmd == CommandId::CreateId.raw() { 8 } else { 0 };
            let address = u64::from_ne_bytes(command[at..at + 8].try_into().unwrap());
            // SAFETY: a command's response has room for `out_len` bytes, which nothing else uses.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    answer.as_ptr(),
                    address as usize as *mut u8,
                    answer.len(),
                );
            }
        }
        Ok(())
    }
}

#[test]
fn a_call_is_a_header_and_a_command_and_brings_its_response() {
    let file = Script::new([Ok(7_u32.to_ne_bytes().to_vec())]);
    let command =
        CreateId { uid: 0x55, ps: PortSpace::Tcp.raw(), qp_type: 2, ..Default::default() };
    assert_eq!(call(&file, command).map(|made| made.id), Ok(7));
    let calls = file.calls();
    assert_eq!(calls[0][..8], [0, 0, 0, 0, 24, 0, 4, 0]);
    assert_eq!(calls[0][8..16], 0x55_u64.to_ne_bytes());
    assert_eq!(calls[0][24..], [0x06, 0x01, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn a_command_without_a_response_has_none() {
    let file = Script::new([Ok(Vec::new())]);
    assert_eq!(call(&file, Listen { id: 3, backlog: 9 }), Ok(()));
    assert_eq!(file.calls()[0], [7, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0]);
}

#[test]
fn commands_that_share_a_structure_have_their_own_numbers() {
    let reported = || Ok(2_u32.to_ne_bytes().to_vec());
    let file = Script::new([reported(), reported()]);
    assert_eq!(leave_mcast(&file, 1).map(|left| left.events_reported), Ok(2));
    call(&file, DestroyId { id: 1, ..Default::default() }).unwrap();
    let numbers: Vec<u8> = file.calls().iter().map(|call| call[0]).collect();
    assert_eq!(numbers, [17, 1]);
}

#[test]
fn an_interrupted_call_is_repeated_and_another_error_is_not() {
    let file = Script::new([Err(Errno::EINTR), Err(Errno::EINTR), Ok(Vec::new())]);
    assert_eq!(call(&file, Disconnect { id: 1 }), Ok(()));
    assert_eq!(file.calls().len(), 3);
    let file = Script::new([Err(Errno::EAGAIN)]);
    assert_eq!(call(&file, GetEvent::default()).map(drop), Err(Errno::EAGAIN));
    assert_eq!(file.calls().len(), 1);
}

#[test]
fn an_option_names_its_value() {
    let file = Script::new([Ok(Vec::new())]);
    set_option(&file, 4, IdOption::AfOnly, &1_u32.to_ne_bytes()).unwrap();
    let call = &file.calls()[0];
    assert_eq!(call[..8], [14, 0, 0, 0, 24, 0, 0, 0]);
    assert_eq!(call[16..], [4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn a_service_is_a_port_of_a_port_space() {
    assert_eq!(service_id(PortSpace::Tcp, 7471), 0x0106_0000 | 7471);
}

/// The header has this as the largest member of a union, and other fields after it.
#[test]
fn an_event_has_room_for_either_kind_of_parameters() {
    assert_eq!(size_of::<UdParam>(), size_of::<[u8; 304]>());
    assert!(size_of::<ConnParam>() < size_of::<UdParam>());
}

#[test]
fn the_channel_that_an_identifier_leaves_can_be_named_otherwise() {
    let file = Script::new([Ok(1_u32.to_ne_bytes().to_vec())]);
    call(&file, MigrateId { id: 3, fd: 9, ..Default::default() }).unwrap();
    let mut moved = file.calls()[0].clone();
    replace_channel(&mut moved, |fd| (fd == 9).then_some(5));
    assert_eq!(moved[8 + 12..], 5_u32.to_ne_bytes());
    replace_channel(&mut moved, |fd| (fd == 9).then_some(7));
    assert_eq!(moved[8 + 12..], 5_u32.to_ne_bytes());
    // Any other call stays as it is.
    let mut other = [7, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0];
    replace_channel(&mut other, |_| unreachable!("it names no channel"));
}
