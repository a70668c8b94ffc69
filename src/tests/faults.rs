use super::*;

/// Creates and destroys one object of every kind except queues.
fn session(simulator: &Simulator) -> Result<usize, Error> {
    let device = devices_on(simulator.kernel())?.remove(0);
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let region = pd.memory(10_000).access(Access::LOCAL_WRITE).register()?;
    region.write_at(0, b"something")?;
    let channel = context.create_comp_channel()?;
    let gid = context.query_gid(1, 0)?.gid;
    let ah = pd.create_ah(&AhAttr::roce(1, gid, 0))?;
    context.gid_table()?;
    let uars = [DoorbellChoice::Auto, DoorbellChoice::Auto, DoorbellChoice::Auto]
        .map(|choice| context.inner.uars.acquire(choice));
    for uar in uars {
        drop(uar?);
    }
    drop(channel);
    ah.destroy()?;
    region.deregister()?;
    pd.destroy()?;
    Ok(context.leaked())
}

#[test]
fn whichever_call_fails_nothing_is_left_and_nothing_is_done_wrong() {
    let whole = Simulator::new(roce());
    assert_eq!(session(&whole), Ok(0));
    let calls = whole.calls();
    assert_clean(&whole);
    assert!(calls > 15, "{calls} calls are not a session");
    for errno in [Errno::ENOMEM, Errno::EIO, Errno::EINVAL] {
        for k in 1..=calls {
            let simulator = Simulator::new(roce());
            simulator.fail_call(k, errno);
            if let Err(error) = session(&simulator) {
                assert_ne!(error.kind(), ErrorKind::DeviceGone, "call {k}: {error}");
                assert!(!error.operation().is_empty());
            }
            assert_clean(&simulator);
        }
    }
}

#[test]
fn memory_whose_region_cannot_be_deregistered_is_kept_and_counted() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let region = pd.allocate(4096).unwrap();
    simulator.fail_call(1, Errno::EBUSY);
    let (region, error) = region.deregister().unwrap_err().into_parts();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Busy, "dereg_mr"));
    assert_eq!(context.leaked(), 0, "it came back, and may be tried again");
    region.write_at(0, b"still there").unwrap();
    simulator.fail_call(1, Errno::EBUSY);
    drop(region);
    assert_eq!(context.leaked(), 1);
    drop((pd, context));
    assert_clean(&simulator);
}

#[test]
fn a_refused_destruction_gives_the_object_back() {
    let simulator = Simulator::new(roce());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let gid = context.query_gid(1, 0).unwrap().gid;
    let ah = pd.create_ah(&AhAttr::roce(1, gid, 0)).unwrap();
    simulator.fail_call(1, Errno::ENOMEM);
    let (ah, error) = ah.destroy().unwrap_err().into_parts();
    assert_eq!(error.operation(), "destroy_ah");
    ah.destroy().unwrap();
    simulator.fail_call(1, Errno::ENOMEM);
    let (pd, error) = pd.destroy().unwrap_err().into_parts();
    assert_eq!(error.operation(), "dealloc_pd");
    pd.destroy().unwrap();
    drop(context);
    assert_clean(&simulator);
}
