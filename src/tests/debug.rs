//! `{:?}` of handles, in every situation: exact text, no call of the kernel, no waiting for a lock,
//! no panic.

use super::*;
use crate::transport::{Rc, Ud, XrcSend};
use crate::window::TypeTwo;
use mlx5_wqe::{ReceiveWr, SendFlags};
use std::sync::Mutex;

/// A device with a connected pair of queue pairs, which the test steps.
struct Two {
    simulator: Simulator,
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    near: QueuePair<Rc>,
    far: QueuePair<Rc>,
}

fn two() -> Two {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(100).build().unwrap();
    let make = || pd.create_qp::<Rc>(&cq, &cq).max_send_wr(16).max_recv_wr(8).build().unwrap();
    let (mut near, mut far) = (make(), make());
    let port = context.local_port(1, None).unwrap();
    let (psn, options) = (Psn::default(), ConnectOptions::default());
    let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
    near.connect(&port, psn, &there, &options).unwrap();
    far.connect(&port, psn, &here, &options).unwrap();
    Two { simulator, context, pd, cq, near, far }
}

impl Two {
    fn send(&mut self, count: u64) {
        let mut batch = self.near.wr_start();
        for wr_id in 0..count {
            batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(b"x");
        }
        batch.complete().unwrap();
    }

    fn settle(&self) {
        while self.simulator.step() {}
    }
}

/// Returns the text of `{:?}`, and checks that it makes no call of the kernel.
fn text(simulator: &Simulator, what: &impl std::fmt::Debug) -> String {
    // A call during formatting would fail here, and the next call would then succeed.
    simulator.fail_call(1, Errno::EDOM);
    let text = format!("{what:?}");
    let context = devices_on(simulator.kernel()).unwrap()[0].open();
    assert_eq!(context.err().and_then(|error| error.errno()), Some(Errno::EDOM), "{text}");
    text
}

#[test]
fn a_full_queue_shows_all_that_is_in_flight() {
    let mut two = two();
    let blocks = two.near.caps().send_blocks;
    two.send(blocks.into());
    assert_eq!(two.near.free_send_blocks(), 0);
    let shown = text(&two.simulator, &two.near);
    assert!(shown.contains(&format!("sends_in_flight: {blocks},")), "{shown}");
}

#[test]
fn a_queue_pair_shows_its_number_type_state_depth_and_what_is_in_flight() {
    let mut two = two();
    let (near, far) = (two.near.qp_num(), two.far.qp_num());
    let receive = ReceiveWr { wr_id: 1, sges: &[] };
    two.far.post_recv(&[receive, receive]).unwrap();
    two.send(3);
    assert_eq!(
        text(&two.simulator, &two.near),
        format!(
            "QueuePair {{ qp_num: {near:#x}, transport: RC, state: RTS, max_send_wr: 16, \
             sends_in_flight: 3, max_recv_wr: 8, receives_in_flight: 0, .. }}"
        )
    );
    assert_eq!(
        text(&two.simulator, &two.far),
        format!(
            "QueuePair {{ qp_num: {far:#x}, transport: RC, state: RTS, max_send_wr: 16, \
             sends_in_flight: 0, max_recv_wr: 8, receives_in_flight: 2, .. }}"
        )
    );
    two.settle();
    while two.cq.poll(16, |_| {}).unwrap() != 0 {}
    assert!(format!("{:?}", two.far).contains("receives_in_flight: 0"));
    let (send, receive, control) = two.far.split();
    assert_eq!(
        format!("{send:?} {:?} {control:?}", receive.unwrap()),
        format!(
            "SendHalf {{ qp_num: {far:#x}, transport: RC, state: RTS, max_send_wr: 16, \
             sends_in_flight: 0, .. }} \
             ReceiveHalf {{ qp_num: {far:#x}, transport: RC, state: RTS, max_recv_wr: 8, \
             receives_in_flight: 0, .. }} \
             ControlHalf {{ qp_num: {far:#x}, transport: RC, state: RTS, .. }}"
        )
    );
}

#[test]
fn a_queue_pair_shows_the_shared_receive_queue_that_it_takes_from() {
    let Two { simulator, context, pd, cq, .. } = two();
    let mut srq = pd.create_srq(7).build().unwrap();
    let receive = ReceiveWr { wr_id: 1, sges: &[] };
    srq.post_recv(&[receive; 3]).unwrap();
    let number = srq.srqn();
    assert_eq!(
        text(&simulator, &srq),
        format!(
            "SharedReceiveQueue {{ srqn: {number:#x}, state: ready, capacity: 7, in_flight: 3, .. }}"
        )
    );
    let qp = pd.create_qp::<Ud>(&cq, &cq).srq(&srq).max_send_wr(4).build().unwrap();
    let qp_num = qp.qp_num();
    assert_eq!(
        text(&simulator, &AnyQueuePair::from(qp)),
        format!(
            "Ud(QueuePair {{ qp_num: {qp_num:#x}, transport: UD, state: RESET, max_send_wr: 4, \
             sends_in_flight: 0, srqn: {number:#x}, .. }})"
        )
    );
    let qp = pd.create_qp::<XrcSend>(&cq, &cq).max_send_wr(4).build().unwrap();
    let qp_num = qp.qp_num();
    assert_eq!(
        text(&simulator, &qp),
        format!(
            "QueuePair {{ qp_num: {qp_num:#x}, transport: XRC initiator, state: RESET, \
             max_send_wr: 4, sends_in_flight: 0, .. }}"
        )
    );
    drop(context);
}

#[test]
fn a_completion_queue_shows_its_number_size_and_what_waits() {
    let mut two = two();
    let cqn = two.cq.cqn();
    let empty = format!(
        "CompletionQueue {{ cqn: {cqn:#x}, capacity: 127, waiting: 0, attention: {{}}, .. }}"
    );
    assert_eq!(text(&two.simulator, &two.cq), empty);
    two.far.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }; 5]).unwrap();
    two.send(5);
    assert_eq!(text(&two.simulator, &two.cq), empty, "nothing was done yet");
    two.settle();
    assert!(text(&two.simulator, &two.cq).contains("waiting: 10,"));
    two.cq.poll(3, |_| {}).unwrap();
    assert!(text(&two.simulator, &two.cq).contains("waiting: 7,"));
    let completions = two.cq.completions().unwrap();
    assert!(
        format!("{completions:?}").starts_with("Completions { count: 0, queue: CompletionQueue")
    );
    drop(completions);
    two.near.destroy().unwrap();
    assert!(text(&two.simulator, &two.cq).contains("attention: {\"destroyed queues wait\"}"));
}

#[test]
fn debug_output_of_a_locked_handle_says_so_and_does_not_wait() {
    let two = two();
    let near = two.near.into_shared();
    let control = near.lock_control();
    let (send, receive) = (near.lock_send(), near.lock_receive());
    assert!(text(&two.simulator, &near).starts_with("SharedQueuePair { qp_num: "));
    assert!(format!("{send:?} {receive:?} {control:?}").starts_with("SendHalf { qp_num: "));
    drop((control, send, receive));
    let cq = two.cq.into_shared();
    assert!(text(&two.simulator, &cq).starts_with("SharedCompletionQueue(CompletionQueue { cqn: "));
    let locked = cq.lock();
    assert_eq!(text(&two.simulator, &cq), "SharedCompletionQueue(<locked>)");
    assert!(format!("{locked:?}").starts_with("CompletionQueue { cqn: "));
}

/// A writer that uses the handle while its text is written.
struct Polls<'a>(&'a SharedCompletionQueue);

impl std::fmt::Write for Polls<'_> {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        self.0.poll(1, |_| {}).map(drop).map_err(|_| std::fmt::Error)
    }
}

#[test]
fn a_writer_may_use_the_queue_that_it_writes_of() {
    use std::fmt::Write;
    let cq = two().cq.into_shared();
    write!(Polls(&cq), "{cq:?}").unwrap();
}

#[test]
fn debug_output_of_a_gone_devices_objects_says_so() {
    let mut two = two();
    two.send(2);
    let device = two.simulator.kernel();
    assert_eq!(
        text(&two.simulator, &two.context),
        format!(
            "Context {{ device: \"mlx5_0\", firmware: {:?}, gone: false, .. }}",
            devices_on(device).unwrap()[0].fw_version()
        )
    );
    two.simulator.remove_device(0);
    while !two.context.is_gone() {
        two.context.async_events().next().unwrap();
    }
    assert!(format!("{:?}", two.context).ends_with("gone: true, .. }"));
    let text = format!("{:?} {:?}", two.near, two.cq);
    assert!(text.contains("state: device gone, max_send_wr: 16, sends_in_flight: 2,"), "{text}");
    assert!(text.contains("attention: {\"device gone\"}"), "{text}");
}

#[test]
fn a_region_shows_address_length_keys_and_rights_and_a_window_its_key() {
    let Two { simulator, context, pd, .. } = two();
    let region =
        pd.memory(100).access(Access::LOCAL_WRITE | Access::REMOTE_READ).register().unwrap();
    let sge = region.sge(0..100).unwrap();
    assert_eq!(
        text(&simulator, &region),
        format!(
            "MemoryRegion {{ addr: {:#x}, len: 100, lkey: {:#x}, rkey: {:#x}, \
             access: AccessFlags(LOCAL_WRITE | REMOTE_READ), .. }}",
            sge.addr,
            sge.lkey,
            region.remote(0..100).unwrap().rkey
        )
    );
    let window = pd.alloc_mw::<TypeTwo>().unwrap();
    assert_eq!(
        text(&simulator, &window),
        format!("MemoryWindow {{ rkey: {:#x}, type: Two, .. }}", window.rkey())
    );
    drop(context);
}

/// A service derives `Debug`.
#[derive(Debug)]
#[expect(dead_code, reason = "shown by the derived function")]
struct Service {
    context: Context,
    pd: ProtectionDomain,
    cq: Mutex<CompletionQueue>,
    shared: SharedCompletionQueue,
    qp: QueuePair<Rc>,
    any: Vec<AnyQueuePair>,
    events: AsyncEvents,
    memory: MemoryRegion,
}

#[test]
fn a_service_derives_it() {
    let two = two();
    let service = Service {
        memory: two.pd.allocate(64).unwrap(),
        shared: two.context.create_cq(4).build().unwrap().into_shared(),
        events: two.context.async_events(),
        context: two.context,
        pd: two.pd,
        cq: Mutex::new(two.cq),
        qp: two.near,
        any: vec![two.far.into()],
    };
    let text = text(&two.simulator, &service);
    for part in
        ["Context {", "CompletionQueue {", "QueuePair {", "Rc(QueuePair {", "MemoryRegion {"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}
