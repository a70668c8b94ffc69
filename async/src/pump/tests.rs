//! The order in which the pump looks, arms and sleeps.

use std::os::fd::AsFd;
use std::time::Duration;

use mlx5::{ConnectOptions, Psn, SendFlags, transport::Rc};
use mlx5_sim::{SimConfig, Simulator};
use mlx5_uapi::wait::wait_readable;

use super::Step;
use crate::{AsyncQueuePair, Hub};

#[test]
fn what_completes_between_the_last_look_and_arming_does_not_let_the_pump_sleep() {
    let simulator = Simulator::new(SimConfig::new().step(true));
    let context = mlx5::devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let (hub, mut pump) = Hub::new(&context, 64).unwrap();
    let mut qp = hub.create_qp::<Rc>(&pd).max_send_wr(4).max_recv_wr(4).build().unwrap();
    let (port, psn) = (context.local_port(1, None).unwrap(), Psn::default());
    let options = ConnectOptions::default();
    let own = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &own, &options).unwrap();
    let qp: AsyncQueuePair<Rc, ()> = hub.adopt(qp).unwrap();
    let memory = pd.allocate(8).unwrap();
    let _receive = qp.receives();
    let readable = |pump: &super::Pump| wait_readable(pump.as_fd(), Some(Duration::ZERO)).unwrap();

    let send = |qp: &AsyncQueuePair<Rc, ()>| {
        let sge = memory.sge(..0).unwrap();
        qp.try_post((), SendFlags::empty(), |wr| wr.send().sge(sge)).unwrap();
    };
    // Without a receive request the device tries again, so one completes the other's.
    let mut receive = Box::pin(qp.post_recv((), mlx5::Sge::default()));
    let waker = std::task::Waker::noop();
    let posted =
        std::future::Future::poll(receive.as_mut(), &mut std::task::Context::from_waker(waker));
    assert!(posted.is_ready());
    drop(receive);
    assert_eq!(pump.turn().unwrap(), 0);
    send(&qp);
    simulator.run_until_idle();
    assert_eq!(pump.arm().unwrap(), Step::Again, "the pump would sleep beside a completion");
    assert!(pump.turn().unwrap() > 0);

    // And what completes after arming makes the descriptor readable.
    while pump.step().unwrap() == Step::Again {}
    assert!(!readable(&pump));
    let mut receive = Box::pin(qp.post_recv((), mlx5::Sge::default()));
    let posted =
        std::future::Future::poll(receive.as_mut(), &mut std::task::Context::from_waker(waker));
    assert!(posted.is_ready());
    drop(receive);
    send(&qp);
    simulator.run_until_idle();
    assert!(readable(&pump));
    assert_eq!(pump.step().unwrap(), Step::Again);
    while pump.step().unwrap() == Step::Again {}
    assert!(!readable(&pump), "the events were taken");
}
