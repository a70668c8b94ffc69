//! The examples that await requests, and that give up a transfer.

use crate::machine::Process;

#[test]
fn each_message_is_awaited_and_received() {
    let said = Process::start("async_events", &[]).succeed();
    for number in 1..=5 {
        let message = format!("received \"message {number} of 5\"");
        assert!(said.contains(&message), "no {message} in {said}");
    }
}

#[test]
fn memory_of_a_transfer_that_takes_too_long_is_freed_when_the_device_is_done_with_it() {
    let said = Process::start("timeout", &[]).succeed();
    for line in [
        "8 done, 0 cancelled of 8: in time",
        "3 done, 5 cancelled of 8: what had not begun was cancelled, and the connection goes on",
        " done, 0 cancelled of 8: the queue was flushed, and the connection is made again",
    ] {
        assert!(said.contains(line), "no \"{line}\" in {said}");
    }
}
