//! A device that withholds completions: each program gives up after its limit.

use mlx5_sim::Fault;

use crate::machine::Machine;

#[test]
fn wait_for_a_withholding_device_ends_at_the_limit() {
    for (program, client, connected) in [
        ("kv_store", &["load", "--rounds", "1000000"][..], "client 1 is connected"),
        ("lock", &["count", "5", "--rounds", "1000000"], "client 1 is connected"),
        ("echo", &["call", "--connections", "1", "--messages", "1000000"], "a connection is made"),
    ] {
        let machine = Machine::serve("");
        let (mut server, at) = machine.server(program, &["10.0.0.1:0"]);
        let client = machine.start(program, &[client, &["--limit", "1", "--server", &at]].concat());
        server.line(connected);
        machine.inject(Fault::Stall);
        let said = client.fail();
        let last = said.lines().last().unwrap_or_default();
        let withheld = "error: the device has not completed a request within 1s";
        assert!(last.starts_with(withheld), "{program}: {said}");
        machine.inject(Fault::Resume);
        server.kill();
        machine.end();
    }
}
