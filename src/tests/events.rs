use super::*;
use std::{os::fd::AsFd, time::Duration};

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn a_port_that_goes_down_and_up_says_so() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let events = context.async_events();
    assert_eq!(events.next(), Ok(None));
    assert_eq!(events.wait(NOW), Ok(None));
    simulator.set_port_active(0, 1, false);
    simulator.run_until_idle();
    assert_eq!(events.wait(None), Ok(Some(AsyncEvent::PortError(1))));
    simulator.set_port_active(0, 1, true);
    simulator.run_until_idle();
    let reported: Vec<AsyncEvent> = std::iter::from_fn(|| events.next().unwrap()).collect();
    assert!(reported.contains(&AsyncEvent::PortActive(1)), "{reported:?}");
    assert!(!context.is_gone());
}

#[test]
fn each_context_gets_the_event() {
    let simulator = Simulator::new(infiniband());
    let contexts = [open(&simulator), open(&simulator)];
    simulator.set_port_active(0, 1, false);
    simulator.run_until_idle();
    for context in contexts {
        assert_eq!(context.async_events().next(), Ok(Some(AsyncEvent::PortError(1))));
    }
}

#[test]
fn a_device_that_is_taken_away_says_so_once_and_is_gone_then() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let events = context.async_events();
    simulator.remove_device(0);
    assert_eq!(events.wait(None), Ok(Some(AsyncEvent::DeviceFatal)));
    assert!(context.is_gone());
    let gone = |error: Error| assert_eq!(error.kind(), ErrorKind::DeviceGone, "{error}");
    gone(events.wait(None).unwrap_err());
    gone(channel.wait(None).unwrap_err());
    gone(context.alloc_pd().unwrap_err());
    gone(context.query_port(1).unwrap_err());
    gone(pd.allocate(1).unwrap_err());
    assert!(devices_on(simulator.kernel()).unwrap().is_empty());
}

#[test]
fn first_call_after_removal_reports_the_device_gone() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    simulator.remove_device(0);
    assert!(!context.is_gone(), "no call has looked");
    let error = context.alloc_pd().unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::DeviceGone, Some(Errno::EIO)));
    assert!(context.is_gone());
}

#[test]
fn empty_poll_after_removal_reports_the_device_gone() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    context.inner.check_alive();
    assert!(!context.is_gone());
    simulator.set_port_active(0, 1, false);
    simulator.run_until_idle();
    context.inner.check_alive();
    assert!(!context.is_gone(), "an event is not the end");
    simulator.remove_device(0);
    context.inner.check_alive();
    assert!(context.is_gone());
}

#[test]
fn new_channel_has_a_descriptor_and_no_event() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let channel = context.create_comp_channel().unwrap();
    assert_eq!(channel.get_event(), Ok(None));
    assert_eq!(channel.wait(NOW), Ok(None));
    assert_eq!(mlx5_uapi::wait::wait_readable(channel.as_fd(), NOW), Ok(false));
    let ready = mlx5_uapi::wait::wait_readable(context.async_events().as_fd(), NOW);
    assert_eq!(ready, Ok(false));
}

#[test]
fn objects_of_a_gone_device_can_be_dropped() {
    let simulator = Simulator::new(roce());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let region = pd.allocate(4096).unwrap();
    let gid = context.query_gid(1, 0).unwrap().gid;
    let ah = pd.create_ah(&AhAttr::roce(1, gid, 0)).unwrap();
    simulator.remove_device(0);
    drop((ah, region, pd, context));
    assert_eq!(simulator.violations(), []);
}
