//! Shared receive queues.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{AsyncEvent, AsyncEvents, Data, ErrorKind, SharedReceiveQueue};
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    a_shared_queue_holds_at_least_what_was_asked_for,
    sizes_that_cannot_be_are_refused_with_the_limit,
    a_limit_beyond_the_queue_is_refused,
    shared_queue_reports_its_sizes_and_its_limit,
    a_full_shared_queue_refuses_the_next_request,
    two_queue_pairs_take_requests_in_the_order_in_which_messages_come,
    requests_that_completed_out_of_order_are_posted_again,
    passed_limit_is_reported_once,
    limit_above_the_posted_requests_is_reported_at_once,
    a_shared_queue_in_use_is_given_back,
    a_failed_queue_pair_says_that_it_took_its_last_request,
    a_queue_pair_that_goes_leaves_the_requests_to_the_others,
];

/// Bytes of a message.
const MESSAGE: usize = 64;

/// A shared queue with two queue pairs that take from it, and a sender for each.
struct Shared {
    senders: [End<Rc>; 2],
    receivers: [End<Rc>; 2],
    srq: SharedReceiveQueue,
    memory: MemoryRegion,
}

impl Shared {
    fn new(bed: &Bed, max_wr: u32) -> Result<Self, Failed> {
        let options = PairOptions::default();
        let context = bed.context();
        let pd = context.alloc_pd()?;
        let srq = pd.create_srq(max_wr).max_sge(2).build()?;
        let receiver = || -> Result<End<Rc>, Failed> {
            let mut end = bed.end_in::<Rc>(&context, &options)?;
            let receives = end.recv_cq.as_ref().ok_or("it has two queues")?;
            end.qp = pd.create_qp::<Rc>(&end.send_cq, receives).srq(&srq).build()?;
            Ok(end)
        };
        let mut senders = [bed.end::<Rc>(&options)?, bed.end(&options)?];
        let mut receivers = [receiver()?, receiver()?];
        for (sender, receiver) in senders.iter_mut().zip(&mut receivers) {
            connect_ends(sender, receiver, &options)?;
        }
        let memory = pd.allocate(64 * MESSAGE)?;
        Ok(Self { senders, receivers, srq, memory })
    }

    /// Posts a request whose memory is at the offset for its identifier.
    fn post(&mut self, wr_id: u64) -> Result<(), PostError> {
        let at = wr_id as usize % 64 * MESSAGE;
        let sge = self.memory.sge(at..at + MESSAGE).expect("inside the memory");
        self.srq.post_recv(&[ReceiveWr { wr_id, sges: &[sge] }]).map_err(|refused| refused.error())
    }

    /// Sends a message through one of the senders, and waits until it has arrived.
    fn send(&mut self, bed: &Bed, sender: usize, seed: u64) -> Outcome {
        let message = pattern(seed, MESSAGE);
        let pieces = [&message[..]];
        let post = Post::new(Op::Send, seed, Data::Inline(&pieces));
        self.senders[sender].post(Form::Typed, post)?;
        bed.poll_good(&mut self.senders[sender].send_cq, 1);
        Ok(())
    }

    /// The identifier of the request that a receiver's next message took.
    fn received(&mut self, bed: &Bed, receiver: usize) -> u64 {
        bed.poll_good(self.receivers[receiver].recv_cq(), 1)[0].as_completion().wr_id()
    }

    fn events(&self) -> AsyncEvents {
        self.receivers[0].context.async_events()
    }
}

fn a_shared_queue_holds_at_least_what_was_asked_for(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    for (max_wr, max_sge) in [(1, 1), (2, 2), (7, 1), (8, 3), (100, 15), (4095, 1)] {
        let srq = pd.create_srq(max_wr).max_sge(max_sge).build()?;
        assert!(srq.capacity() >= max_wr && srq.max_sge() >= max_sge);
        assert_eq!(srq.query()?.max_wr, srq.capacity());
        srq.destroy()?;
    }
    Ok(())
}

fn sizes_that_cannot_be_are_refused_with_the_limit(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let limits = pd.context().query_device().queues;
    for (max_wr, max_sge) in
        [(0, 1), (limits.max_srq_recv_wr + 1, 1), (u32::MAX, 1), (1, 64), (1, u32::MAX)]
    {
        let error = pd.create_srq(max_wr).max_sge(max_sge).build().err().ok_or("impossible")?;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&limits.max_srq_recv_wr.to_string()), "{error}");
    }
    Ok(())
}

fn a_limit_beyond_the_queue_is_refused(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let error = pd.create_srq(8).limit(100).build().err().ok_or("refused")?;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let mut srq = pd.create_srq(8).build()?;
    let error = srq.set_limit(srq.capacity() + 1).expect_err("refused");
    assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidArgument, None));
    assert_eq!(srq.query()?.limit, 0);
    Ok(())
}

fn shared_queue_reports_its_sizes_and_its_limit(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 16)?;
    for wr_id in 0..8 {
        it.post(wr_id)?;
    }
    assert_eq!(it.srq.query()?.limit, 0);
    it.srq.set_limit(3)?;
    bed.settle();
    assert_eq!(it.srq.query()?.limit, 3);
    it.srq.set_limit(0)?;
    assert_eq!(it.srq.query()?.limit, 0);
    Ok(())
}

fn a_full_shared_queue_refuses_the_next_request(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 8)?;
    let capacity = u64::from(it.srq.capacity());
    for wr_id in 0..capacity {
        it.post(wr_id)?;
    }
    assert!(matches!(it.post(99), Err(PostError::QueueFull { .. })));
    it.send(bed, 0, 1)?;
    assert_eq!(it.received(bed, 0), 0);
    let sge = it.memory.sge(0..MESSAGE)?;
    let max = it.srq.max_sge();
    let sges = vec![sge; max as usize + 1];
    let list = [ReceiveWr { wr_id: 1, sges: &sges }];
    let refused = it.srq.post_recv(&list).expect_err("too many entries");
    assert_eq!(refused.error(), PostError::TooManySges { given: max + 1, max });
    it.post(99)?;
    assert!(matches!(it.post(100), Err(PostError::QueueFull { .. })));
    Ok(())
}

fn two_queue_pairs_take_requests_in_the_order_in_which_messages_come(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 32)?;
    for wr_id in 0..20 {
        it.post(wr_id)?;
    }
    for (wr_id, sender) in [0, 0, 1, 0, 1, 1, 1, 0].into_iter().enumerate() {
        it.send(bed, sender, 100 + wr_id as u64)?;
    }
    let zeroth: Vec<u64> = (0..4).map(|_| it.received(bed, 0)).collect();
    let first: Vec<u64> = (0..4).map(|_| it.received(bed, 1)).collect();
    assert_eq!((zeroth, first), (vec![0, 1, 3, 7], vec![2, 4, 5, 6]));
    for wr_id in 0..8 {
        verify(&it.memory, wr_id * MESSAGE, 100 + wr_id as u64, MESSAGE);
    }
    untouched(&it.memory, 8 * MESSAGE..9 * MESSAGE);
    Ok(())
}

fn requests_that_completed_out_of_order_are_posted_again(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 7)?;
    let capacity = u64::from(it.srq.capacity());
    for wr_id in 0..capacity {
        it.post(wr_id)?;
    }
    let mut expected = std::collections::VecDeque::from_iter(0..capacity);
    let mut next = capacity;
    for round in 0..60_u64 {
        // Two messages, polled in the reverse order; two new requests take their slots.
        it.send(bed, 0, round)?;
        it.send(bed, 1, round + 1000)?;
        let (at_zeroth, at_first) = (expected.pop_front(), expected.pop_front());
        assert_eq!(Some(it.received(bed, 1)), at_first, "round {round}");
        it.post(next)?;
        assert_eq!(Some(it.received(bed, 0)), at_zeroth, "round {round}");
        it.post(next + 1)?;
        expected.extend([next, next + 1]);
        next += 2;
        let at = |wr_id: Option<u64>| wr_id.unwrap_or_default() as usize % 64 * MESSAGE;
        verify(&it.memory, at(at_zeroth), round, MESSAGE);
        verify(&it.memory, at(at_first), round + 1000, MESSAGE);
    }
    Ok(())
}

fn passed_limit_is_reported_once(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 16)?;
    let events = it.events();
    for wr_id in 0..8 {
        it.post(wr_id)?;
    }
    it.srq.set_limit(6)?;
    bed.settle();
    assert_eq!(events.next()?, None);
    for message in 0..2 {
        it.send(bed, 0, message)?;
        bed.settle();
        assert_eq!(events.next()?, None, "not fewer than six are left");
    }
    it.send(bed, 1, 2)?;
    let reported = events.wait(Some(Duration::from_secs(10)))?;
    assert_eq!(reported, Some(AsyncEvent::SrqLimitReached(it.srq.id())));
    it.send(bed, 1, 3)?;
    bed.settle();
    assert_eq!(events.next()?, None, "the limit is disarmed");
    assert_eq!(it.srq.query()?.limit, 0);
    Ok(())
}

fn limit_above_the_posted_requests_is_reported_at_once(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 16)?;
    it.post(1)?;
    it.srq.set_limit(10)?;
    let reported = it.events().wait(Some(Duration::from_secs(10)))?;
    assert_eq!(reported, Some(AsyncEvent::SrqLimitReached(it.srq.id())));
    Ok(())
}

fn a_shared_queue_in_use_is_given_back(bed: &Bed) -> Outcome {
    let context = bed.context();
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(4).build()?);
    let srq = pd.create_srq(4).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let (srq, error) = srq.destroy().err().ok_or("a queue pair takes from it")?.into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    qp.destroy()?;
    srq.destroy()?;
    Ok(())
}

fn a_failed_queue_pair_says_that_it_took_its_last_request(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 16)?;
    for wr_id in 0..4 {
        it.post(wr_id)?;
    }
    it.receivers[0].qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    let reported = it.events().wait(Some(Duration::from_secs(10)))?;
    assert_eq!(reported, Some(AsyncEvent::QpLastWqeReached(it.receivers[0].qp.id())));
    // The requests stay for the other receiver.
    bed.nothing(it.receivers[0].recv_cq());
    it.send(bed, 1, 5)?;
    assert_eq!(it.received(bed, 1), 0);
    Ok(())
}

fn a_queue_pair_that_goes_leaves_the_requests_to_the_others(bed: &Bed) -> Outcome {
    let mut it = Shared::new(bed, 8)?;
    for wr_id in 0..5 {
        it.post(wr_id)?;
    }
    it.send(bed, 0, 1)?;
    it.send(bed, 1, 2)?;
    bed.settle();
    let [zeroth, first] = it.receivers;
    let End { qp, recv_cq, .. } = zeroth;
    qp.destroy()?;
    // The completion for the destroyed queue pair is passed over; the other one is returned.
    bed.nothing(&mut recv_cq.ok_or("it has two queues")?);
    it.receivers = [first, bed.end(&PairOptions::default())?];
    assert_eq!(it.received(bed, 0), 1);
    it.send(bed, 1, 3)?;
    assert_eq!(it.received(bed, 0), 2);
    Ok(())
}
