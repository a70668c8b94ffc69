//! A forked child can do nothing with its parent's handles, and do no harm.

use super::altered_kernel::{AlteredKernel, Overrides};
use super::cancel::rig::Rig;
use crate::prelude::*;
use mlx5::flow::{CounterValues, Rule};
use mlx5::mkey::{BlockSize, Crc, Domain, Seed, Signature, SignatureBlock};
use mlx5::transport::RawPacket;
use mlx5::{
    CancelError, CancelMode, Clock, CompletionChannel, ConnectOptions, Data, ErrorKind,
    PollError, QueueAllocator, SharedReceiveQueue, devices_on,
};
use mlx5_uapi::ioctl::{Method, method};
use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

pub(crate) const CASES: &[Case] = cases![
    in_a_child_every_handle_says_that_it_is_the_parents: SERIAL,
    a_child_cancels_nothing_of_its_parents: SERIAL | STEP,
    a_child_that_drops_everything_does_the_parent_no_harm: SERIAL,
    a_child_that_keeps_everything_does_the_parent_no_harm: SERIAL,
    the_parents_traffic_goes_on_while_children_come_and_go: SERIAL,
    memory_can_be_freed_by_the_parent_while_a_child_lives: SERIAL | SIMULATOR,
    a_child_can_have_a_device_of_its_own: SERIAL | SIMULATOR,
    a_buffer_of_the_parents_is_not_the_childs: SERIAL,
    a_ring_in_memory_of_a_destroyed_one_is_the_parents: SERIAL,
    a_child_ends_its_rule_while_the_parent_reads_the_counters: SERIAL | SIMULATOR | RAW_PACKETS,
    a_child_ends_a_key_and_its_queue_while_the_parent_configures_it: SERIAL | DEVX | SIGNATURES,
];

/// Memory that is not mapped in children, as huge pages are not.
struct NotInChildren;

// SAFETY: `mmap` returns `len` bytes of new memory, aligned to a page, which nothing else uses
// until `free`. If `free` is never called, the memory stays mapped.
unsafe impl QueueAllocator for NotInChildren {
    fn allocate(&self, len: usize, _: usize) -> Option<NonNull<u8>> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address of the new mapping, so it replaces none; the
        // advice covers only this mapping.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), len, rights, kind, -1, 0);
            if start == libc::MAP_FAILED {
                return None;
            }
            // A user-space emulator (qemu) does not support this advice, so its children have the
            // memory.
            if libc::madvise(start, len, libc::MADV_DONTFORK) != 0 {
                assert_eq!(Errno::last(), Errno::EINVAL, "this advice about private memory");
            }
            NonNull::new(start.cast())
        }
    }

    unsafe fn free(&self, start: NonNull<u8>, len: usize) {
        // SAFETY: `start` and `len` are those of a mapping that `allocate` made, and the caller
        // promises that no queue uses it.
        unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

/// Every kind of object that a process has of a device.
struct Everything {
    pair: Pair<Ud>,
    connected: Pair<Rc>,
    srq: SharedReceiveQueue,
    channel: CompletionChannel,
    announced: CompletionQueue,
    /// `None` if the kernel has no clock page.
    clock: Option<Clock>,
}

impl Everything {
    fn new(bed: &Bed) -> Result<Self, Failed> {
        let mut pair = bed.pair::<Ud>(&PairOptions::default())?;
        let mut connected = bed.pair::<Rc>(&PairOptions::default())?;
        let srq = pair.a.pd.create_srq(16).build()?;
        let channel = pair.a.context.create_comp_channel()?;
        let allocator: Arc<dyn QueueAllocator> = Arc::new(NotInChildren);
        let announced = pair.a.context.create_cq(16).channel(&channel).allocator(&allocator);
        let announced = announced.build()?;
        announced.arm(false)?;
        pair.b.recv(1, 0..104);
        connected.b.recv(2, 0..64);
        fill(&connected.a.mr, 0, 1, 64)?;
        let clock = pair.a.context.clock().ok();
        Ok(Self { pair, connected, srq, channel, announced, clock })
    }

    /// Uses all objects, as their owner may.
    fn work(&mut self, bed: &Bed, seed: u64) -> Outcome {
        let Self { pair, connected, srq, channel, announced, clock } = self;
        fill(&connected.a.mr, 0, seed, 64)?;
        let sges = [connected.a.mr.sge(0..64)?];
        connected.a.post(Form::Typed, Post::new(Op::Send, seed, Data::Sges(&sges)))?;
        bed.poll_good(&mut connected.a.send_cq, 1);
        bed.poll_good(connected.b.recv_cq(), 1);
        verify(&connected.b.mr, 0, seed, 64);
        connected.b.recv(2, 0..64);
        pair.a.post(Form::Typed, Post::new(Op::Send, seed, Data::Inline(&[b"datagram"])))?;
        bed.poll_good(&mut pair.a.send_cq, 1);
        bed.poll_good(pair.b.recv_cq(), 1);
        pair.b.recv(1, 0..104);
        srq.post_recv(&[ReceiveWr { wr_id: seed, sges: &[] }])?;
        announced.arm(true)?;
        assert_eq!(channel.get_event()?, None);
        clock.as_ref().map(Clock::now).transpose()?;
        pair.a.context.query_port(bed.port())?;
        pair.a.context.alloc_pd()?.allocate(64)?;
        Ok(())
    }
}

/// Runs `child` in a child process, which ends with it, and waits for its end.
fn in_child(child: impl FnOnce() -> Outcome) -> Outcome {
    // SAFETY: no other case runs meanwhile. The child takes no lock that another thread of this
    // process may hold except those of the allocator, which a fork leaves usable.
    match unsafe { fork() }.map_err(|errno| errno.to_string())? {
        ForkResult::Parent { child } => {
            match waitpid(child, None).map_err(|errno| errno.to_string())? {
                WaitStatus::Exited(_, 0) => Ok(()),
                other => Err(format!("the child ended so: {other:?}").into()),
            }
        }
        ForkResult::Child => {
            let code = match catch_unwind(AssertUnwindSafe(child)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    eprintln!("in the child: {error}");
                    1
                }
                Err(_) => 2,
            };
            // SAFETY: `_exit` ends the child without dropping or flushing anything of the parent's.
            unsafe { libc::_exit(code) }
        }
    }
}

fn in_a_child_every_handle_says_that_it_is_the_parents(bed: &Bed) -> Outcome {
    let mut everything = Everything::new(bed)?;
    let port = bed.port();
    in_child(|| {
        let Everything { pair, connected, srq, channel, announced, clock } = &mut everything;
        let context = &pair.a.context;
        let attributes = QpAttributes::new().qp_state(QueueState::Error);
        for (what, error) in [
            ("query_port", context.query_port(port).err()),
            ("query_gid", context.query_gid(port, 0).err()),
            ("gid_table", context.gid_table().err()),
            ("query_pkey", context.query_pkey(port, 0).err()),
            ("alloc_pd", context.alloc_pd().err()),
            ("create_cq", context.create_cq(4).build().err()),
            ("create_comp_channel", context.create_comp_channel().err()),
            ("async event", context.async_events().next().err()),
            ("comp event", channel.get_event().err()),
            ("arm", announced.arm(false).err()),
            ("register", pair.a.pd.allocate(64).err()),
            ("create_srq", pair.a.pd.create_srq(4).build().err()),
            ("create_ah", {
                let to = pair.b.qp.endpoint(&pair.b.port, pair.b.psn, &ConnectOptions::default());
                pair.a.pd.create_ah_to(&pair.a.port, &to, &ConnectOptions::default()).err()
            }),
            ("create_qp", {
                let cq = &pair.a.send_cq;
                pair.a.pd.create_qp::<Rc>(cq, cq).build().err()
            }),
            ("read_at", pair.a.mr.read_at(0, &mut [0; 8]).err()),
            ("write_at", pair.a.mr.write_at(0, &[1; 8]).err()),
            ("query_srq", srq.query().err()),
            ("modify_srq", srq.set_limit(1).err()),
            ("query_qp", connected.a.qp.query().err()),
            ("modify_qp", connected.a.qp.modify(&attributes).err()),
            ("resume", connected.a.qp.resume().err()),
        ] {
            let error = error.unwrap_or_else(|| panic!("{what} worked in the child"));
            assert_eq!(error.kind(), ErrorKind::Forked, "{what}: {error}");
        }
        if let Some(clock) = clock {
            assert_eq!(clock.now().expect_err("forked").kind(), ErrorKind::Forked);
        }
        match connected.a.qp.drained() {
            Err(CancelError::Query(error)) => assert_eq!(error.kind(), ErrorKind::Forked),
            other => panic!("{other:?}"),
        }
        let post = Post::new(Op::Send, 1, Data::Inline(&[b"x"]));
        assert_eq!(connected.a.post(Form::Typed, post), Err(PostError::Forked));
        assert_eq!(connected.a.post(Form::List, post), Err(PostError::Forked));
        let receive = [ReceiveWr { wr_id: 1, sges: &[] }];
        let refused = connected.b.qp.post_recv(&receive).expect_err("forked");
        assert_eq!(refused.error(), PostError::Forked);
        assert_eq!(srq.post_recv(&receive).expect_err("forked").error(), PostError::Forked);
        for cq in [&mut connected.a.send_cq, announced] {
            assert!(!cq.poll_nothing(), "to say that");
            assert_eq!(cq.poll_fast(1, |_, _| {}), (0, true));
            assert_eq!(cq.poll(1, |_| {}), Err(PollError::Forked));
            assert_eq!(cq.completions().err(), Some(PollError::Forked));
            assert!(cq.is_ready(), "to say that");
        }
        let shown = format!("{:?} {:?} {srq:?}", connected.a.qp, connected.a.send_cq);
        assert_eq!(shown.matches("state: forked").count(), 2, "{shown}");
        assert!(shown.contains("forked: true"), "{shown}");
        assert!(!format!("{context:?} {channel:?} {clock:?} {:?}", connected.a.mr).is_empty());
        // The facts that opening the device has read are still available.
        assert_eq!(context.num_ports() as u8, context.query_device().phys_port_cnt);
        assert_eq!(connected.a.mr.sge(0..64)?.length, 64);
        Ok(())
    })?;
    everything.work(bed, 7)
}

fn a_child_cancels_nothing_of_its_parents(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let drained = rig.drain(0)?;
    let qp = &mut rig.pair.a.qp;
    let mut batch = qp.wr_start();
    let handle = batch.handle();
    for wr_id in 0..3_u64 {
        batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(&wr_id.to_ne_bytes());
    }
    batch.complete()?;
    in_child(|| {
        let qp = &mut rig.pair.a.qp;
        let all = [
            ("pending", qp.pending(&drained).map(Iterator::count).err()),
            ("cancel", qp.cancel(&drained, 1).err()),
            ("cancel_set", qp.cancel_set(&drained, &[1], CancelMode::BestEffort).err()),
            ("cancel_request", qp.cancel_request(&drained, handle).err()),
            ("cancel_where", qp.cancel_where(&drained, |_| panic!("nothing is looked at")).err()),
        ];
        for (what, error) in all {
            match error {
                Some(CancelError::Query(error)) => {
                    assert_eq!(error.kind(), ErrorKind::Forked, "{what}");
                }
                other => panic!("{what} in the child: {other:?}"),
            }
        }
        Ok(())
    })?;
    // The parent has lost nothing, and its proof is still valid.
    assert_eq!(rig.pending(&drained)?, [0, 1, 2]);
    assert_eq!(rig.pair.a.qp.cancel(&drained, 1)?.count(), 1);
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 2]);
    Ok(())
}

fn a_child_that_drops_everything_does_the_parent_no_harm(bed: &Bed) -> Outcome {
    let mut everything = Some(Everything::new(bed)?);
    in_child(|| {
        drop(everything.take());
        Ok(())
    })?;
    let mut again = Some(Everything::new(bed)?);
    in_child(|| {
        let Everything { pair, connected, srq, channel, announced, clock } =
            again.take().ok_or("there")?;
        let Pair { a, b } = connected;
        let forked = |error: mlx5::Error| assert_eq!(error.kind(), ErrorKind::Forked);
        forked(a.qp.destroy().err().ok_or("destroyed in the child")?.into_error());
        forked(a.mr.deregister().err().ok_or("deregistered in the child")?.into_error());
        forked(srq.destroy().err().ok_or("destroyed in the child")?.into_error());
        forked(announced.destroy().err().ok_or("destroyed in the child")?.into_error());
        drop((pair, b, channel, clock, a.send_cq, a.recv_cq, a.pd, a.context));
        Ok(())
    })?;
    for everything in [everything, again] {
        everything.ok_or("it is the parent's still")?.work(bed, 3)?;
    }
    Ok(())
}

fn a_child_that_keeps_everything_does_the_parent_no_harm(bed: &Bed) -> Outcome {
    let everything = Everything::new(bed)?;
    let mut everything = std::mem::ManuallyDrop::new(everything);
    in_child(|| Ok(()))?;
    everything.work(bed, 4)?;
    drop(std::mem::ManuallyDrop::into_inner(everything));
    Ok(())
}

fn the_parents_traffic_goes_on_while_children_come_and_go(bed: &Bed) -> Outcome {
    let mut everything = Some(Everything::new(bed)?);
    for seed in 0..8 {
        // Requests are outstanding when the process forks.
        let it = everything.as_mut().ok_or("it is there")?;
        let to = it.connected.b.mr.remote(1024..)?;
        let sges = [it.connected.a.mr.sge(0..1024)?];
        for wr_id in 0..16 {
            let post = Post::new(Op::Write, wr_id, Data::Sges(&sges)).remote(to);
            it.connected.a.post(Form::Typed, post)?;
        }
        in_child(|| {
            if seed % 2 == 0 {
                drop(everything.take());
            }
            Ok(())
        })?;
        let it = everything.as_mut().ok_or("it is there")?;
        bed.poll_good(&mut it.connected.a.send_cq, 16);
        it.work(bed, seed)?;
    }
    Ok(())
}

fn memory_can_be_freed_by_the_parent_while_a_child_lives(bed: &Bed) -> Outcome {
    let everything = Everything::new(bed)?;
    let (from, mut to) = std::io::pipe()?;
    // SAFETY: no other case runs meanwhile. The child only drops objects, and takes no lock that
    // another thread may hold except those of the allocator, which a fork leaves usable.
    match unsafe { fork() }.map_err(|errno| errno.to_string())? {
        ForkResult::Parent { child } => {
            drop(from);
            drop(everything);
            assert_eq!(bed.simulator().object_counts(0), Default::default());
            let mut again = Everything::new(bed)?;
            again.work(bed, 9)?;
            std::io::Write::write_all(&mut to, &[1])?;
            let ended = waitpid(child, None).map_err(|errno| errno.to_string())?;
            assert_eq!(ended, WaitStatus::Exited(child, 0));
            again.work(bed, 10)
        }
        ForkResult::Child => {
            drop(to);
            let read_result = std::io::Read::read_exact(&mut &from, &mut [0]);
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(everything)));
            // SAFETY: `_exit` ends the child without dropping or flushing anything of the parent's.
            unsafe { libc::_exit(i32::from(read_result.is_err() || dropped.is_err())) }
        }
    }
}

fn a_ring_in_memory_of_a_destroyed_one_is_the_parents(bed: &Bed) -> Outcome {
    let mut everything = Everything::new(bed)?;
    let Pair { a, .. } = &everything.connected;
    let make = || a.pd.create_qp::<Rc>(&a.send_cq, &a.send_cq).max_send_wr(256).build();
    let ring = |qp: &QueuePair<Rc>| qp.raw_parts().map(|raw| raw.send.start);
    let former = make()?;
    let was = ring(&former)?;
    former.destroy()?;
    let again = make()?;
    assert_eq!(ring(&again)?, was);
    let new = make()?;
    let starts = [was, ring(&new)?];
    // SAFETY: the rings of `again` and `new` start there, and both queues are idle.
    starts.iter().for_each(|start| unsafe { start.write_volatile(7) });
    let mut qps = Some([again, new]);
    in_child(|| {
        // SAFETY: the rings of `again` and `new` start there. Their pages are ordinary ones, so
        // they are mapped in a child, too.
        let found = starts.map(|start| unsafe { start.read_volatile() });
        assert_eq!(found[0], found[1], "as protected as memory that is new");
        drop(qps.take());
        Ok(())
    })?;
    // SAFETY: the rings of `again` and `new` start there, and the parent still owns both queues.
    assert_eq!(starts.map(|start| unsafe { start.read_volatile() }), [7; 2]);
    for qp in qps.ok_or("they are the parent's still")? {
        qp.destroy()?;
    }
    everything.work(bed, 5)
}

fn a_buffer_of_the_parents_is_not_the_childs(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mut inbox = Some(b.pd.register(vec![1_u8; 10_000], rights)?);
    in_child(|| {
        let inbox = inbox.take().ok_or("it is there")?;
        let error = inbox.read_at(0, &mut [0; 8]).expect_err("it is the parent's");
        assert_eq!(error.kind(), ErrorKind::Forked);
        let (inbox, error) = inbox.deregister().expect_err("it is the parent's").into_parts();
        assert_eq!(error.kind(), ErrorKind::Forked);
        drop(inbox);
        Ok(())
    })?;
    let inbox = inbox.ok_or("it is there")?;
    a.mr.write_at(0, &[2; 64])?;
    let mut batch = a.qp.wr_start();
    let to = inbox.remote(5000..)?;
    batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(a.mr.sge(..64)?);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    let bytes = inbox.deregister()?;
    assert!(bytes[..5000].iter().all(|byte| *byte == 1));
    assert!(bytes[5000..5064].iter().all(|byte| *byte == 2));
    Ok(())
}

fn a_child_can_have_a_device_of_its_own(bed: &Bed) -> Outcome {
    let mut everything = Everything::new(bed)?;
    in_child(|| {
        let own = bed.configured(|config| config.step(true))?;
        let mut pair = own.pair::<Rc>(&PairOptions::default())?;
        let to = pair.b.mr.remote(..)?;
        pair.a.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"mine"])).remote(to))?;
        own.poll_good(&mut pair.a.send_cq, 1);
        crate::pattern::expect_bytes(&pair.b.mr, 0, b"mine");
        drop(pair);
        assert_eq!(own.simulator().object_counts(0), Default::default());
        Ok(())
    })?;
    everything.work(bed, 5)
}

fn a_child_ends_its_rule_while_the_parent_reads_the_counters(bed: &Bed) -> Outcome {
    // A thread of the parent is inside a call when the process forks.
    let ((asked, asks), (go, goes)) = (mpsc::channel(), mpsc::channel::<()>());
    let goes = Mutex::new(goes);
    let calls = move |called: Method| {
        if called == method::COUNTERS_READ {
            let _ = asked.send(());
            // Waits until all threads may continue.
            let _ = goes.lock().map(|goes| goes.recv());
        }
        None
    };
    let overrides = Overrides { calls: Some(Box::new(calls)), ..Overrides::default() };
    let (kernel, _) = AlteredKernel::before(bed.simulator().kernel(), overrides);
    let context = devices_on(kernel)?[0].open()?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(4).build()?);
    let qp = pd.create_qp::<RawPacket>(&cq, &cq).build()?;
    let counters = context.create_flow_counters()?;
    let mut rule = Some(qp.attach(bed.port(), &Rule::new().count(&counters))?);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| counters.read());
        asks.recv().expect("a call that reads the counters");
        let child = in_child(|| {
            // SAFETY: `alarm` only sets a timer. The signal ends a child that waits for a thread
            // that it does not have.
            unsafe { libc::alarm(60) };
            drop(rule.take());
            let refused = counters.clone().destroy().expect_err("they are the parent's");
            assert_eq!(refused.error().kind(), ErrorKind::Forked);
            Ok(())
        });
        drop(go);
        assert_eq!(reads.join().expect("no panic")?, CounterValues::default());
        child
    })
}

/// A thread of the parent holds the key's state most of the time, so that some children are made
/// while it does.
fn a_child_ends_a_key_and_its_queue_while_the_parent_configures_it(bed: &Bed) -> Outcome {
    const CHILDREN: usize = 12;
    let (mut pair, mut other) =
        (bed.pair::<Rc>(&PairOptions::default())?, bed.pair::<Rc>(&PairOptions::default())?);
    let key = pair.a.pd.create_mkey(4).block_signature().build()?;
    let signature = Signature::Crc(Crc::Crc32(Seed::Zeros));
    let block =
        SignatureBlock::new().memory(Domain { signature, block_size: BlockSize::B512 });
    let pieces = [pair.a.mr.sge(0..2048)?];
    // The queue has a pending change of the key, which ends with the queue.
    let mut batch = pair.a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).mkey_configure(key.configure().layout_list(&pieces));
    batch.complete()?;
    let (rounds, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let configures = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // A batch that is aborted: the key changes, and changes back.
                let mut batch = other.a.qp.wr_start();
                for _ in 0..8 {
                    let configure = key.configure().layout_list(&pieces).signature(&block);
                    batch.wr(2, SendFlags::empty()).mkey_configure(configure);
                }
                drop(batch);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let child = || {
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            in_child(|| {
                // SAFETY: `alarm` only sets a timer. The signal ends a child that waits for a
                // thread that it does not have.
                unsafe { libc::alarm(60) };
                // SAFETY: nothing else in the child uses the originals, and the child ends without
                // dropping them.
                let (qp, key) = unsafe { (ptr::read(&pair.a.qp), ptr::read(&key)) };
                drop(qp);
                drop(key);
                Ok(())
            })
        };
        let ended = (0..CHILDREN).try_for_each(|_| child());
        stop.store(true, Ordering::Relaxed);
        configures.join().expect("no panic");
        ended
    })?;
    bed.poll_good(&mut pair.a.send_cq, 1);
    assert_eq!(key.length(), Some(2048));
    pair.a.qp.destroy().map_err(|error| error.to_string())?;
    // When the queue is destroyed, the key learns that the request was executed.
    assert_eq!(key.length(), Some(2048));
    assert_eq!(other.a.qp.free_send_blocks(), other.a.qp.caps().send_blocks);
    Ok(())
}
