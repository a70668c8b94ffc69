//! The example that ends connections.

use crate::machine::Process;

#[test]
fn each_request_and_each_buffer_of_a_connection_that_ends_is_accounted_for() {
    let said = Process::start("shutdown", &[]).succeed();
    for line in [
        "the device takes no receive any more",
        "buffer 4: Ok(())",
        "send 100 was not done: Failed(",
        "send 100: Unknown",
        "buffers [7, 8, 9] have messages that nothing polls",
        "the queue is destroyed: 11 posted buffers are free",
        "all 16 buffers are free",
    ] {
        assert!(said.contains(line), "no \"{line}\" in {said}");
    }
}
