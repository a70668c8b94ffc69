//! The order in which the pump polls, arms and sleeps.

use std::future::Future;
use std::os::fd::AsFd;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mlx5::{
    AsyncEvent, ConnectOptions, MemoryRegion, ProtectionDomain, Psn, QueuePairBuilder, SendFlags,
    Sge, transport::Rc,
};
use mlx5_sim::{SimConfig, Simulator};
use mlx5_uapi::wait::wait_readable;

use super::{LOOK_EVERY, Pump, Step};
use crate::{AsyncQueuePair, Hub};

struct Rig {
    simulator: Simulator,
    pd: ProtectionDomain,
    hub: Hub,
    pump: Pump,
    qp: AsyncQueuePair<Rc, ()>,
    memory: MemoryRegion,
}

impl Rig {
    /// A queue pair that is connected to itself, on a device that runs only when the test steps it.
    fn new() -> Self {
        let simulator = Simulator::new(SimConfig::new().step(true));
        let context = mlx5::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let (hub, pump) = Hub::new(&context, 64).unwrap();
        let mut qp = hub.create_qp::<Rc>(&pd).max_send_wr(4).max_recv_wr(4).build().unwrap();
        let (port, psn) = (context.local_port(1, None).unwrap(), Psn::default());
        let options = ConnectOptions::default();
        let own = qp.endpoint(&port, psn, &options);
        qp.connect(&port, psn, &own, &options).unwrap();
        let (qp, memory) = (hub.adopt(qp).unwrap(), pd.allocate(8).unwrap());
        Self { simulator, pd, hub, pump, qp, memory }
    }

    /// Posts requests that complete when the device runs.
    fn message(&self) {
        self.qp.try_post_recv((), Sge::default()).unwrap();
        let sge = self.memory.sge(..0).unwrap();
        self.qp.try_post((), SendFlags::empty(), |wr| wr.send().sge(sge)).unwrap();
    }

    /// Takes all results, so that there is room again.
    fn take(&self) {
        for mut stream in [self.qp.sends(), self.qp.receives()] {
            let cx = &mut Context::from_waker(Waker::noop());
            while std::pin::pin!(stream.next()).poll(cx).is_ready() {}
        }
    }

    fn readable(&self) -> bool {
        wait_readable(self.pump.as_fd(), Some(Duration::ZERO)).unwrap()
    }
}

#[test]
fn completion_between_last_poll_and_arming_keeps_the_pump_awake() {
    let mut rig = Rig::new();
    assert_eq!(rig.pump.turn().unwrap(), 0);
    rig.message();
    rig.simulator.run_until_idle();
    assert_eq!(rig.pump.arm().unwrap(), Step::Again, "the pump would sleep beside a completion");
    assert!(rig.pump.turn().unwrap() > 0);
    rig.take();

    // A completion after arming makes the descriptor readable.
    for _ in 0..3 {
        while rig.pump.step().unwrap() == Step::Again {}
        assert!(!rig.readable(), "the events were taken");
        rig.message();
        rig.simulator.run_until_idle();
        assert!(rig.readable());
        assert_eq!(rig.pump.step().unwrap(), Step::Again);
        rig.take();
    }
}

#[test]
fn events_of_the_device_are_read_although_there_is_always_something_that_has_completed() {
    let mut rig = Rig::new();
    let mut events = rig.hub.device_events();
    while rig.pump.step().unwrap() == Step::Again {}
    rig.simulator.set_port_active(0, 1, false);
    rig.simulator.set_port_active(0, 1, true);
    let mut event = || {
        let cx = &mut Context::from_waker(Waker::noop());
        std::pin::pin!(events.next()).poll(cx)
    };
    // The event that ended the sleep is read at once.
    rig.message();
    rig.simulator.run_until_idle();
    assert_eq!(rig.pump.step().unwrap(), Step::Again);
    assert_eq!(event(), Poll::Ready(Some(AsyncEvent::PortError(1))));
    assert_eq!(event(), Poll::Ready(Some(AsyncEvent::PortActive(1))));
    rig.simulator.set_port_active(0, 1, false);
    for _ in 0..LOOK_EVERY + 1 {
        rig.take();
        rig.message();
        rig.simulator.run_until_idle();
        assert_eq!(rig.pump.step().unwrap(), Step::Again);
    }
    assert_eq!(event(), Poll::Ready(Some(AsyncEvent::PortError(1))));
}

#[test]
fn a_queue_pair_that_is_gone_wakes_a_pump_that_sleeps_and_is_forgotten() {
    let mut rig = Rig::new();
    rig.message();
    rig.simulator.run_until_idle();
    while rig.pump.step().unwrap() == Step::Again {}
    assert!(rig.pump.routes.last.is_some() && !rig.readable());
    drop(rig.qp);
    assert_eq!(rig.simulator.object_counts(0).qps, 0, "destroyed, whatever the pump knows");
    let readable = |pump: &Pump| wait_readable(pump.as_fd(), Some(Duration::ZERO)).unwrap();
    assert!(readable(&rig.pump));
    while rig.pump.step().unwrap() == Step::Again {}
    assert!(!readable(&rig.pump), "it would never sleep");
    assert!(rig.pump.routes.last.is_none() && rig.pump.routes.known.is_empty());
}

#[test]
fn a_pump_that_always_finds_something_lets_queue_pairs_with_a_shared_receive_queue_go() {
    let mut rig = Rig::new();
    let srq = rig.hub.adopt_srq::<()>(rig.pd.create_srq(4).build().unwrap()).unwrap();
    let qp = srq.create_qp::<Rc, _>(&rig.pd, |builder| builder.max_send_wr(4).build()).unwrap();
    let qp = rig.hub.adopt::<_, ()>(qp).unwrap();
    let count = |rig: &Rig| rig.simulator.object_counts(0).qps;
    let before = count(&rig);
    while rig.pump.step().unwrap() == Step::Again {}
    assert!(!rig.readable());
    drop(qp);
    assert!(rig.readable(), "a pump that sleeps would not hear of it");
    let turns = (0..1000).find(|_| {
        rig.take();
        rig.message();
        rig.simulator.run_until_idle();
        assert_eq!(rig.pump.step().unwrap(), Step::Again);
        count(&rig) < before
    });
    // By then the pump has polled as many completions as the completion queue holds.
    assert!(turns.is_some_and(|turns| turns >= 16), "{turns:?}");
}

#[test]
fn queue_pair_to_drain_during_another_drain_is_drained_without_a_nudge() {
    let mut rig = Rig::new();
    let srq = rig.hub.adopt_srq::<()>(rig.pd.create_srq(4).build().unwrap()).unwrap();
    let [first, second] = [(); 2].map(|()| {
        let build = |builder: QueuePairBuilder<'_, Rc>| builder.max_send_wr(4).build();
        rig.hub.adopt::<_, ()>(srq.create_qp(&rig.pd, build).unwrap()).unwrap()
    });
    let count = |rig: &Rig| rig.simulator.object_counts(0).qps;
    let before = count(&rig);
    while rig.pump.step().unwrap() == Step::Again {}
    // The first drain lasts as long as there are completions.
    let step = |rig: &mut Rig| {
        rig.take();
        rig.message();
        rig.simulator.run_until_idle();
        assert_eq!(rig.pump.step().unwrap(), Step::Again);
    };
    drop(first);
    step(&mut rig);
    drop(second);
    while rig.pump.until_look > 0 {
        step(&mut rig);
    }
    assert!(rig.pump.draining.is_some() && rig.pump.registry.has_draining());
    // The next step consumes the nudge for the second one, and completes the first drain.
    while rig.pump.step().unwrap() == Step::Again {}
    assert_eq!(count(&rig), before - 2, "the second one waits for a nudge");
}
