//! Messages that are lost or late, or come from a program that is gone.

use mlx5_uapi::rdma_cm::{CommandId, CreateIdResp, Header, reject_reason};
use zerocopy::IntoBytes;

use super::*;
use crate::CmMessage;

/// Time limits before an end gives up: the first try, and three more.
const TRIES: usize = 4;

fn timed_out() -> i32 {
    -(Errno::ETIMEDOUT as i32)
}

#[test]
fn nobody_listens_there() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.server.destroy(pair.listener).expect("destroyed");
    pair.client.connect(pair.id, b"").expect("asked");
    let rejected = pair.client.expect(EventType::Rejected);
    assert_eq!(rejected.status() as u32, reject_reason::INVALID_SERVICE_ID);
    pair.end();
}

#[test]
fn a_message_that_is_lost_is_sent_again() {
    for message in [CmMessage::Req, CmMessage::Rep, CmMessage::Rtu] {
        let pair = Pair::new(PortSpace::Tcp);
        pair.machine.lose_cm_messages(message, 1);
        pair.client.connect(pair.id, b"").expect("asked");
        if message == CmMessage::Req {
            assert!(pair.server.event().is_none());
            assert!(pair.machine.pass_cm_time());
        }
        let request = pair.server.expect(EventType::ConnectRequest).0.id;
        pair.server.accept(request, b"").expect("accepted");
        if message == CmMessage::Rep {
            assert!(pair.client.event().is_none());
            assert!(pair.machine.pass_cm_time());
        }
        pair.client.expect(EventType::ConnectResponse);
        pair.client.ready(pair.id).expect("ready");
        if message == CmMessage::Rtu {
            assert!(pair.server.event().is_none());
            assert!(pair.machine.pass_cm_time());
        }
        pair.server.expect(EventType::Established);
        assert!(!pair.machine.pass_cm_time(), "{message:?}: nobody waits any more");
        pair.end();
    }
}

#[test]
fn a_request_that_always_gets_lost_is_given_up() {
    for (space, message) in [(PortSpace::Tcp, CmMessage::Req), (PortSpace::Udp, CmMessage::SidrReq)]
    {
        let pair = Pair::new(space);
        pair.machine.lose_cm_messages(message, u32::MAX);
        pair.client.connect(pair.id, b"").expect("asked");
        for _ in 0..TRIES {
            assert!(pair.client.event().is_none());
            assert!(pair.machine.pass_cm_time());
        }
        assert_eq!(pair.client.expect(EventType::Unreachable).status(), timed_out());
        assert!(!pair.machine.pass_cm_time());
        pair.end();
    }
}

#[test]
fn a_port_that_is_down_loses_everything() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.machine.set_port_active(0, 1, false);
    pair.client.connect(pair.id, b"").expect("asked");
    while pair.machine.pass_cm_time() {}
    assert_eq!(pair.client.expect(EventType::Unreachable).status(), timed_out());
    pair.end();
}

#[test]
fn more_requests_than_may_wait_are_asked_again_when_there_is_room() {
    let pair = Pair::new(PortSpace::Tcp);
    let ids: Vec<u32> =
        (0..2).map(|n| resolved(&pair.client, CLIENT + n, PortSpace::Tcp)).collect();
    for id in ids.iter().chain([&pair.id]) {
        pair.client.connect(*id, b"").expect("asked");
    }
    // Two may wait; the third is asked again, once one was read.
    pair.server.expect(EventType::ConnectRequest);
    assert!(pair.machine.pass_cm_time());
    pair.server.expect(EventType::ConnectRequest);
    pair.server.expect(EventType::ConnectRequest);
    assert!(pair.server.event().is_none());
    pair.end();
}

#[test]
fn more_requests_than_may_ever_wait_are_unreachable() {
    let pair = Pair::new(PortSpace::Tcp);
    let ids: Vec<u32> =
        (0..2).map(|n| resolved(&pair.client, CLIENT + n, PortSpace::Tcp)).collect();
    for id in ids.iter().chain([&pair.id]) {
        pair.client.connect(*id, b"").expect("asked");
    }
    for _ in 0..TRIES {
        assert!(pair.client.event().is_none());
        assert!(pair.machine.pass_cm_time());
    }
    let event = pair.client.expect(EventType::Unreachable);
    assert_eq!((event.0.id, event.status()), (pair.id, timed_out()));
    pair.end();
}

#[test]
fn a_request_whose_program_thinks_gets_more_time() {
    let pair = Pair::new(PortSpace::Tcp);
    let waiting = pair.ask();
    // Another request, which is lost and given up long before.
    let other = resolved(&pair.client, CLIENT + 1, PortSpace::Tcp);
    pair.machine.lose_cm_messages(CmMessage::Req, u32::MAX);
    pair.client.connect(other, b"").expect("asked");
    for _ in 0..TRIES {
        assert!(pair.machine.pass_cm_time());
    }
    assert_eq!(pair.client.expect(EventType::Unreachable).0.id, other);
    pair.server.accept(waiting, b"").expect("accepted");
    pair.client.expect(EventType::ConnectResponse);
    pair.end();
}

#[test]
fn an_end_that_is_not_agreed_to_comes_all_the_same() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.connect();
    pair.machine.lose_cm_messages(CmMessage::Dreq, u32::MAX);
    pair.client.disconnect(pair.id).expect("disconnected");
    for _ in 0..TRIES {
        assert!(pair.client.event().is_none());
        assert!(pair.machine.pass_cm_time());
    }
    assert_eq!(pair.client.expect(EventType::Disconnected).status(), timed_out());
    assert!(pair.server.event().is_none(), "nobody told it");
    pair.end();
}

/// Asks with the queue pair of the connection that there is.
fn ask_again(pair: &Pair) -> u32 {
    let id = resolved(&pair.client, CLIENT + 1, PortSpace::Tcp);
    let conn_param = param(0x10 + pair.id, b"");
    call(&*pair.client.0, Connect { id, conn_param, ..Default::default() }).expect("asked");
    id
}

#[test]
fn a_queue_pair_that_asks_again_ends_the_connection_of_which_no_end_was_heard() {
    let mut pair = Pair::new(PortSpace::Tcp);
    pair.connect();
    pair.machine.lose_cm_messages(CmMessage::Dreq, 1);
    pair.client.destroy(pair.id).expect("destroyed");
    assert!(pair.server.event().is_none(), "nobody told it");
    let id = ask_again(&pair);
    let rejected = pair.client.expect(EventType::Rejected);
    assert_eq!(rejected.status() as u32, reject_reason::STALE_CONNECTION);
    assert_eq!(pair.server.expect(EventType::Disconnected).status(), 0);
    // One at the server, one at the client: both of the pair that is no more.
    while pair.machine.pass_cm_time() {}
    pair.server.expect(EventType::TimewaitExit);
    pair.client.expect(EventType::TimewaitExit);
    pair.client.destroy(id).expect("destroyed");
    pair.id = ask_again(&pair);
    pair.server.expect(EventType::ConnectRequest);
    assert!(pair.client.event().is_none());
    pair.end();
}

#[test]
fn a_queue_pair_that_is_connected_asks_in_vain_and_so_does_one_whose_request_waits() {
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.ask();
    ask_again(&pair);
    let rejected = pair.client.expect(EventType::Rejected);
    assert_eq!(rejected.status() as u32, reject_reason::STALE_CONNECTION);
    assert!(pair.server.event().is_none());
    pair.server.accept(request, b"").expect("accepted");
    pair.client.expect(EventType::ConnectResponse);
    pair.client.ready(pair.id).expect("ready");
    pair.server.expect(EventType::Established);
    // The older connection ends, at both ends.
    pair.machine.lose_cm_messages(CmMessage::Rej, 1);
    ask_again(&pair);
    assert_eq!(pair.client.expect(EventType::Disconnected).0.id, pair.id);
    assert!(pair.client.event().is_none(), "the rejection was lost");
    pair.end();
}

#[test]
fn an_answer_of_a_queue_pair_that_is_in_use_is_rejected() {
    let pair = Pair::new(PortSpace::Tcp);
    let server = pair.connect();
    let id = resolved(&pair.client, CLIENT + 1, PortSpace::Tcp);
    pair.client.connect(id, b"").expect("asked");
    let request = pair.server.expect(EventType::ConnectRequest).0.id;
    let conn_param = param(0x20 + server, b"");
    let accept = Accept { id: request, uid: SERVER, conn_param, ..Default::default() };
    call(&*pair.server.0, accept).expect("accepted");
    let rejected = pair.server.expect(EventType::Rejected);
    assert_eq!(
        (rejected.0.id, rejected.status() as u32),
        (request, reject_reason::STALE_CONNECTION)
    );
    assert_eq!(pair.server.expect(EventType::Disconnected).0.id, server);
    pair.end();
}

#[test]
fn an_event_that_cannot_be_read_is_still_there_and_what_cannot_be_told_of_is_not_made() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.client.connect(pair.id, b"").expect("asked");
    pair.machine.fail_call_late(1, Errno::EFAULT);
    assert_eq!(call(&*pair.server.0, GetEvent::default()).map(drop), Err(Errno::EFAULT));
    pair.server.expect(EventType::ConnectRequest);
    let ids = pair.machine.cm_counts().ids;
    pair.machine.fail_call_late(1, Errno::EFAULT);
    let create = CreateId { ps: PortSpace::Tcp.raw(), ..Default::default() };
    assert_eq!(call(&*pair.client.0, create).map(drop), Err(Errno::EFAULT));
    assert_eq!(pair.machine.cm_counts().ids, ids);
    // The next one is destroyed, although its call fails late.
    pair.machine.fail_call_late(1, Errno::EFAULT);
    assert_eq!(pair.client.destroy(pair.id), Err(Errno::EFAULT));
    assert!(pair.machine.cm_counts().ids < ids);
    pair.end();
}

/// The step of a connection at which a program is killed.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Step {
    Asked,
    Accepted,
    Connected,
    Disconnecting,
}

const STEPS: [Step; 4] = [Step::Asked, Step::Accepted, Step::Connected, Step::Disconnecting];

fn until(pair: &Pair, step: Step) {
    let request = pair.ask();
    if step >= Step::Accepted {
        pair.server.accept(request, b"").expect("accepted");
        pair.client.expect(EventType::ConnectResponse);
    }
    if step >= Step::Connected {
        pair.client.ready(pair.id).expect("ready");
        pair.server.expect(EventType::Established);
    }
    if step >= Step::Disconnecting {
        pair.client.disconnect(pair.id).expect("disconnected");
        pair.server.expect(EventType::Disconnected);
    }
}

#[test]
fn a_client_hears_of_a_server_that_is_killed_at_any_step() {
    for step in STEPS {
        let pair = Pair::new(PortSpace::Tcp);
        until(&pair, step);
        let Pair { machine, server, client, .. } = pair;
        drop(server);
        let event = client.event().unwrap_or_else(|| panic!("{step:?}: no event"));
        let expected = match step {
            Step::Asked | Step::Accepted => EventType::Rejected,
            Step::Connected | Step::Disconnecting => EventType::Disconnected,
        };
        assert_eq!(event.kind(), expected, "{step:?}");
        drop(client);
        assert_eq!(machine.cm_counts(), CmCounts::default(), "{step:?}");
        assert!(!machine.pass_cm_time(), "{step:?}: nobody waits any more");
    }
}

#[test]
fn a_server_hears_of_a_client_that_is_killed_once_it_has_accepted() {
    for step in STEPS {
        let pair = Pair::new(PortSpace::Tcp);
        until(&pair, step);
        let Pair { machine, server, client, .. } = pair;
        drop(client);
        let heard = server.event().map(|event| event.kind());
        let expected = match step {
            // The program has not named the connection yet: accepting it fails.
            Step::Asked => None,
            Step::Accepted => Some(EventType::Rejected),
            Step::Connected => Some(EventType::Disconnected),
            // It knows.
            Step::Disconnecting => None,
        };
        assert_eq!(heard, expected, "{step:?}");
        drop(server);
        assert_eq!(machine.cm_counts(), CmCounts::default(), "{step:?}");
    }
}

#[test]
fn a_request_of_a_client_that_is_gone_cannot_be_accepted() {
    let pair = Pair::new(PortSpace::Tcp);
    let request = pair.ask();
    pair.client.destroy(pair.id).expect("destroyed");
    assert_eq!(pair.server.accept(request, b""), Err(Errno::EINVAL));
    pair.end();
}

#[test]
fn requests_that_nobody_read_end_with_their_listener() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.client.connect(pair.id, b"").expect("asked");
    pair.server.destroy(pair.listener).expect("destroyed");
    assert!(pair.server.event().is_none());
    pair.client.expect(EventType::Rejected);
    assert_eq!(pair.machine.cm_counts().ids, 1);
    pair.end();
}

#[test]
fn a_device_that_is_pulled_out_is_told_of() {
    let pair = Pair::new(PortSpace::Tcp);
    pair.connect();
    pair.machine.remove_device(0);
    pair.client.expect(EventType::DeviceRemoval);
    // The listener's address is the device's, too.
    pair.server.expect(EventType::DeviceRemoval);
    pair.server.expect(EventType::DeviceRemoval);
    // The identifiers are left to be destroyed.
    assert_eq!(pair.client.attributes(pair.id, QpState::Rts).map(drop), Err(Errno::EIO));
    assert_eq!(pair.client.disconnect(pair.id), Err(Errno::EIO));
    assert_eq!(pair.machine.cm_counts().services, 0);
    assert_eq!(pair.client.destroy(pair.id), Ok(4));
    pair.end();
}

#[test]
fn a_response_that_cannot_be_handed_out_leaves_nothing() {
    let machine = machine(PortConfig::ROCE);
    let program = Program::start(&machine);
    // No response is at address 0.
    let create = CreateId { ps: PortSpace::Tcp.raw(), ..Default::default() };
    let header = Header {
        cmd: CommandId::CreateId.raw(),
        in_len: size_of::<CreateId>() as u16,
        out_len: size_of::<CreateIdResp>() as u16,
    };
    let bytes = [header.as_bytes(), create.as_bytes()].concat();
    // SAFETY: the simulated kernel refuses the address of the response.
    assert_eq!(unsafe { program.0.write(&bytes) }, Err(Errno::EFAULT));
    assert_eq!(machine.cm_counts().ids, 0);
    // And one that the kernel refuses.
    machine.fail_call(1, Errno::ENOMEM);
    assert_eq!(call(&*program.0, create).map(drop), Err(Errno::ENOMEM));
    assert_eq!(machine.cm_counts().ids, 0);
}
