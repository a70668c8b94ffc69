//! User tags of queues, in their completions.

use super::polling::write;
use super::tag_rig::{RigOptions, TagRig};
use crate::prelude::*;
use mlx5::transport::XrcSend;
use mlx5::{
    AnyQueuePair, ConnectOptions, CqeCompression, OpsWr, PollError, Psn, TagAdd, WorkCompletion,
};

pub(crate) const CASES: &[Case] = cases![
    each_completion_has_the_tag_of_its_queue_pair: EVERY_MODEL,
    compressed_completions_have_the_tags_of_their_queue_pairs: SIMULATOR,
    errors_and_flushed_requests_have_tags: EVERY_MODEL,
    a_tag_is_set_while_completions_wait,
    receives_of_a_shared_receive_queue_have_the_tag_of_the_queue_pair: EVERY_MODEL,
    receives_of_an_extended_connection_have_the_tag_of_their_queue: SIMULATOR,
    completions_of_a_tag_matching_queue_have_its_user_tag: TAG_MATCHING,
    completions_of_destroyed_queue_pairs_have_no_other_tag,
];

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// The way to poll.
#[derive(Clone, Copy, Debug)]
enum Form {
    Closure,
    Failing,
    Copies,
    Cursor,
    Iterator,
}

impl Form {
    const ALL: [Self; 5] =
        [Self::Closure, Self::Failing, Self::Copies, Self::Cursor, Self::Iterator];
}

/// Waits for `count` completions, and returns what `read` finds in them.
fn polled<R>(
    bed: &Bed,
    form: Form,
    cq: &mut CompletionQueue,
    count: usize,
    read: impl Fn(WorkCompletion<'_>) -> R,
) -> Vec<R> {
    let mut found = Vec::new();
    bed.until("completions", || {
        match form {
            Form::Closure => {
                cq.poll(3, |completion| found.push(read(completion))).expect("sound");
            }
            Form::Failing => {
                let each = |completion: WorkCompletion<'_>| {
                    found.push(read(completion));
                    Ok::<_, PollError>(())
                };
                cq.try_poll(3, each).expect("sound");
            }
            Form::Copies => {
                let mut copies = [OwnedCompletion::default(); 3];
                let count = cq.poll_into(&mut copies).expect("sound");
                found.extend(copies[..count].iter().map(|copy| read(copy.as_completion())));
            }
            Form::Cursor => {
                let mut completions = cq.completions().expect("sound");
                while let Some(completion) = completions.next() {
                    found.push(read(completion));
                }
                completions.finish().expect("sound");
            }
            Form::Iterator => {
                for completion in cq.completions().expect("sound") {
                    found.push(read(completion.as_completion()));
                }
            }
        }
        found.len() >= count
    });
    assert_eq!(found.len(), count, "{form:?}");
    found
}

/// Three pairs in one context. Their near ends complete on one queue, and have the tags 1, 2, 3 for
/// sends and receives.
struct Three {
    near: Vec<QueuePair<Rc>>,
    far: Vec<End<Rc>>,
    cq: CompletionQueue,
    mr: MemoryRegion,
}

fn three(bed: &Bed, compression: Option<CqeCompression>) -> Result<Three, Failed> {
    let options = PairOptions::default();
    let (context, connect) = (bed.context(), ConnectOptions::default());
    let pd = context.alloc_pd()?;
    let mr = pd.memory(4096).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
    let mut builder = context.create_cq(128).cqe_size(bed.cqe_size());
    if let Some(format) = compression {
        builder = builder.compression(format);
    }
    let cq = builder.build()?;
    let port = context.local_port(bed.port(), None)?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for tag in 1..=3 {
        let builder = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(16).user_tag(tag);
        let mut qp = builder.build()?;
        let mut end = bed.end::<Rc>(&options)?;
        let (here, there) = (qp.endpoint(&port, Psn::default(), &connect), end.endpoint(&options));
        qp.connect(&port, Psn::default(), &there, &connect)?;
        end.qp.connect(&end.port, end.psn, &here, &connect)?;
        near.push(qp);
        far.push(end);
    }
    Ok(Three { near, far, cq, mr })
}

fn each_completion_has_the_tag_of_its_queue_pair(bed: &Bed) -> Outcome {
    let Three { mut near, mut far, mut cq, mr } = three(bed, None)?;
    for round in 0..60_u64 {
        let form = Form::ALL[round as usize % 5];
        for (qp, end) in near.iter_mut().zip(&mut far) {
            qp.recv(100, mr.sge(0..64)?)?;
            write(qp, end.mr.remote(0..)?, 1, 1 + round % 3);
            end.qp.post(|batch| batch.wr(0, SIGNALED).send().inline_data(b"hello"))?;
        }
        let count = 3 * (2 + round as usize % 3);
        let of = |completion: WorkCompletion<'_>| {
            (completion.qp_num(), completion.user_tag(), completion.wr_id() == 100)
        };
        let mut polled = polled(bed, form, &mut cq, count, of);
        polled.sort_unstable();
        let mut expected: Vec<_> = near
            .iter()
            .zip(1..)
            .flat_map(|(qp, tag)| {
                let sent = (0..1 + round % 3).map(move |_| (qp.qp_num(), tag, false));
                sent.chain([(qp.qp_num(), tag, true)])
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(polled, expected, "{form:?}");
        for end in &mut far {
            // These queues have no tag.
            assert_eq!(bed.poll_one(&mut end.send_cq).user_tag(), 0);
        }
    }
    Ok(())
}

fn compressed_completions_have_the_tags_of_their_queue_pairs(bed: &Bed) -> Outcome {
    let Three { mut near, mut far, mut cq, mr } = three(bed, Some(CqeCompression::Hash))?;
    let mut compressed = 0;
    for form in Form::ALL.into_iter().cycle().take(30) {
        for (qp, end) in near.iter_mut().zip(&mut far) {
            for wr_id in 0..5 {
                qp.recv(wr_id, mr.sge(0..64)?)?;
            }
            end.qp.post(|batch| {
                for wr_id in 0..5 {
                    batch.wr(wr_id, SendFlags::empty()).send().inline_data(b"hello");
                }
            })?;
            bed.settle();
            write(qp, end.mr.remote(0..)?, 5, 5);
            bed.settle();
        }
        let mut polled = polled(bed, form, &mut cq, 30, |completion| {
            (completion.user_tag(), completion.wr_id(), completion.is_compressed())
        });
        compressed += polled.iter().filter(|polled| polled.2).count();
        polled.sort_unstable();
        let found = polled.into_iter().map(|(tag, wr_id, _)| (tag, wr_id));
        let expected = (1..=3).flat_map(|tag| (0..10).map(move |wr_id| (tag, wr_id)));
        assert!(found.eq(expected), "{form:?}");
        for end in &mut far {
            // A completed request makes room.
            end.qp.post(|batch| batch.wr(0, SIGNALED).rdma_write(mr.remote(0..).expect("inside")).inline_data(b"x"))?;
            bed.poll_good(&mut end.send_cq, 1);
        }
    }
    assert!(compressed > 300, "{compressed} of 900 were compressed");
    Ok(())
}

fn errors_and_flushed_requests_have_tags(bed: &Bed) -> Outcome {
    for form in Form::ALL {
        let Three { mut near, far, mut cq, mr } = three(bed, None)?;
        // Memory that the peer does not have.
        let nowhere = RemoteAddress { addr: 8, rkey: 0x00ff_ff00 };
        near[1].recv(9, mr.sge(0..64)?)?;
        write(&mut near[1], nowhere, 1, 3);
        write(&mut near[2], far[2].mr.remote(0..)?, 1, 2);
        let mut polled = polled(bed, form, &mut cq, 6, |completion| {
            (completion.user_tag(), completion.wr_id(), completion.is_success())
        });
        polled.sort_unstable();
        let failed = [(2, 1, false), (2, 2, false), (2, 3, false), (2, 9, false)];
        assert_eq!(polled, [&failed[..], &[(3, 1, true), (3, 2, true)]].concat(), "{form:?}");
    }
    Ok(())
}

fn a_tag_is_set_while_completions_wait(bed: &Bed) -> Outcome {
    let Pair { a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let (mut qp, mut cq) = (a.qp, a.send_cq);
    assert_eq!(qp.user_tag(), 0);
    write(&mut qp, b.mr.remote(0..)?, 0, 4);
    bed.settle();
    let before = bed.poll_one(&mut cq);
    qp.set_user_tag(u64::MAX);
    assert_eq!((qp.user_tag(), bed.poll_one(&mut cq).user_tag()), (u64::MAX, u64::MAX));
    let (send, receive, control) = qp.split();
    control.set_user_tag(7);
    assert_eq!(control.user_tag(), 7);
    assert_eq!(bed.poll_one(&mut cq).user_tag(), 7);
    let any = AnyQueuePair::from(QueuePair::join(send, receive, control));
    any.set_user_tag(8);
    assert_eq!((any.user_tag(), bed.poll_one(&mut cq).user_tag()), (8, 8));
    assert_eq!(before.user_tag(), 0, "a copy keeps what was reported");
    Ok(())
}

fn receives_of_a_shared_receive_queue_have_the_tag_of_the_queue_pair(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let (context, connect) = (bed.context(), ConnectOptions::default());
    let pd = context.alloc_pd()?;
    let mr = pd.memory(4096).access(Access::LOCAL_WRITE).register()?;
    let mut cq = context.create_cq(64).cqe_size(bed.cqe_size()).build()?;
    let mut srq = pd.create_srq(31).user_tag(99).build()?;
    let port = context.local_port(bed.port(), None)?;
    let mut ends = Vec::new();
    for tag in [10, 20] {
        let mut qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).user_tag(tag).build()?;
        let mut end = bed.end::<Rc>(&options)?;
        let (here, there) = (qp.endpoint(&port, Psn::default(), &connect), end.endpoint(&options));
        qp.connect(&port, Psn::default(), &there, &connect)?;
        end.qp.connect(&end.port, end.psn, &here, &connect)?;
        ends.push((tag, qp, end));
    }
    for round in 0..20_u64 {
        let form = Form::ALL[round as usize % 5];
        for wr_id in 0..4 {
            srq.recv(round << 8 | wr_id, mr.sge(0..64)?)?;
        }
        let mut expected = Vec::new();
        for n in 0..4_u64 {
            let (tag, qp, end) = &mut ends[(round >> n & 1) as usize];
            end.qp.post(|batch| batch.wr(0, SIGNALED).send().inline_data(b"hello"))?;
            bed.poll_good(&mut end.send_cq, 1);
            expected.push((qp.qp_num(), *tag, round << 8 | n));
        }
        let polled = polled(bed, form, &mut cq, 4, |completion| {
            (completion.qp_num(), completion.user_tag(), completion.wr_id())
        });
        assert_eq!(polled, expected, "{form:?}");
    }
    Ok(())
}

fn receives_of_an_extended_connection_have_the_tag_of_their_queue(bed: &Bed) -> Outcome {
    let options = ConnectOptions::default();
    let (context, sender) = (bed.context(), bed.context());
    let domain = context.open_xrcd()?;
    let pd = context.alloc_pd()?;
    let mr = pd.memory(4096).access(Access::LOCAL_WRITE).register()?;
    let mut cq = context.create_cq(64).build()?;
    let mut queues = Vec::new();
    for tag in [5, 6] {
        queues.push(pd.create_srq(15).xrc(&domain, &cq).user_tag(tag).build()?);
    }
    let mut send_cq = sender.create_cq(64).build()?;
    let builder = sender.alloc_pd()?;
    let builder = builder.create_qp::<XrcSend>(&send_cq, &send_cq).max_inline_data(16);
    let mut qp = builder.user_tag(77).build()?;
    let mut target = domain.create_target()?;
    let (port, far) = (context.local_port(bed.port(), None)?, sender.local_port(bed.port(), None)?);
    let psn = Psn::default();
    let (here, there) = (qp.endpoint(&far, psn, &options), target.endpoint(&port, psn, &options));
    target.connect(&port, psn, &here, &options)?;
    qp.connect(&far, psn, &there, &options)?;
    for form in Form::ALL {
        for srq in &mut queues {
            srq.recv(1, mr.sge(0..64)?)?;
        }
        qp.post(|batch| {
            for srq in &queues {
                batch.wr(0, SIGNALED).send().xrc_srqn(srq.srqn()).inline_data(b"hello");
            }
        })?;
        let sent = polled(bed, form, &mut send_cq, 2, |completion| completion.user_tag());
        assert_eq!(sent, [77, 77], "{form:?}");
        let received = polled(bed, form, &mut cq, 2, |completion| completion.user_tag());
        assert_eq!(received, [5, 6], "{form:?}");
    }
    Ok(())
}

fn completions_of_a_tag_matching_queue_have_its_user_tag(bed: &Bed) -> Outcome {
    const TAG: u64 = 0x1234_5678_9abc;
    for form in Form::ALL {
        let options = RigOptions { user_tag: TAG, ..RigOptions::default() };
        let mut rig = TagRig::new(bed, options)?;
        rig.post_requests(0..4);
        let sges = rig.buffer(0..64);
        let add = |tag| TagAdd { recv_wr_id: 1000 + tag, sges: &sges, tag, mask: u64::MAX };
        let mut list = [OpsWr::add(1, add(7)).signaled(), OpsWr::add(2, add(8)).signaled()];
        rig.queue.post_srq_ops(&mut list)?;
        bed.settle();
        let of = |completion: WorkCompletion<'_>| (completion.wr_id(), completion.user_tag());
        assert_eq!(polled(bed, form, &mut rig.cq, 2, of), [(1, TAG), (2, TAG)], "{form:?}");
        // One message that matches, and one that does not.
        for tag in [7_u64, 9] {
            let message = super::tag_rig::eager(tag, 0, b"message");
            rig.senders[0].qp.post(|batch| batch.wr(0, SIGNALED).send().inline_data(&message))?;
            bed.settle();
        }
        let polled = polled(bed, form, &mut rig.cq, 2, of);
        assert_eq!(polled, [(1007, TAG), (0, TAG)], "{form:?}");
    }
    Ok(())
}

fn completions_of_destroyed_queue_pairs_have_no_other_tag(bed: &Bed) -> Outcome {
    for form in Form::ALL {
        let Three { mut near, far, mut cq, mr } = three(bed, None)?;
        for round in 0..3 {
            for (qp, end) in near.iter_mut().zip(&far) {
                write(qp, end.mr.remote(0..)?, round, 1);
                bed.settle();
            }
        }
        let copy = bed.poll_one(&mut cq);
        // The others' completions wait before and after those of the destroyed queue pair.
        let gone = near.remove(1);
        gone.destroy()?;
        // Its user index may go to another queue pair, which must not be taken for the old one.
        let pd = mr.pd();
        let new = pd.create_qp::<Rc>(&cq, &cq).user_tag(4).build()?;
        let left = polled(bed, form, &mut cq, 5, |completion| completion.user_tag());
        assert_eq!(left, [3, 1, 3, 1, 3], "{form:?}");
        bed.nothing(&mut cq);
        assert_eq!(copy.user_tag(), 1);
        drop(new);
    }
    Ok(())
}

