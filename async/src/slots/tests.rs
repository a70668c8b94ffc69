//! Each transition is one critical section, so the orders of whole calls are all possible orders:
//! these tests run them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use super::{Outcome, Slots, Ticket, To, Verdict, Want};
use crate::error::{Ended, Full};
use crate::wakes::{Place, Wakes};
use mlx5::OwnedCompletion;

/// A task that counts its wake-ups.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A kept value that counts its drops.
#[derive(Debug)]
struct Kept(Arc<AtomicUsize>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Every interleaving of the steps of several actors.
fn orders(steps: &[usize]) -> Vec<Vec<usize>> {
    if steps.iter().all(|left| *left == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for actor in (0..steps.len()).filter(|actor| steps[*actor] > 0) {
        let mut left = steps.to_vec();
        left[actor] -= 1;
        all.extend(orders(&left).into_iter().map(|mut rest| {
            rest.insert(0, actor);
            rest
        }));
    }
    all
}

/// A task that polls first and after each wake-up.
struct Polling<R> {
    task: Arc<Task>,
    seen: Option<usize>,
    result: Option<R>,
}

impl<R> Polling<R> {
    fn new() -> Self {
        Self { task: Arc::default(), seen: None, result: None }
    }

    fn is_awake(&self) -> bool {
        self.seen != Some(self.task.0.load(SeqCst))
    }

    fn poll(&mut self, poll: impl FnOnce(&Context<'_>) -> Poll<R>) {
        if self.result.is_some() || !self.is_awake() {
            return;
        }
        self.seen = Some(self.task.0.load(SeqCst));
        let waker = Waker::from(Arc::clone(&self.task));
        if let Poll::Ready(result) = poll(&Context::from_waker(&waker)) {
            self.result = Some(result);
        }
    }
}

const ONE: Want = Want { parts: 1, to: To::Future };
const STREAM: Want = Want { parts: 1, to: To::Stream };

fn done<K>(slots: &Slots<K>, number: u32) {
    let mut wakes = Wakes::default();
    let completion = OwnedCompletion::default();
    let dropped = slots.complete(number, true, completion, false, &mut wakes).unwrap();
    drop(dropped);
    wakes.wake();
}

fn kept<K>(outcome: Outcome<K>) -> K {
    outcome.2.unwrap()
}

#[test]
fn a_completion_wakes_its_future_in_any_order() {
    for order in orders(&[3, 1]) {
        let slots = Slots::new(2);
        let number = slots.try_take(ONE, &mut Some("mine")).unwrap();
        let mut future = Polling::new();
        for actor in &order {
            match actor {
                0 => future.poll(|cx| slots.poll_outcome(cx, number)),
                _ => done(&slots, number),
            }
        }
        // Poll once more, if it was woken.
        future.poll(|cx| slots.poll_outcome(cx, number));
        let outcome = future.result.unwrap_or_else(|| panic!("it was not woken: {order:?}"));
        assert_eq!(kept(outcome.unwrap()), "mine", "{order:?}");
    }
}

#[test]
fn two_futures_get_their_own_results_in_any_order() {
    for order in orders(&[2, 2, 1, 1]) {
        let slots = Slots::new(2);
        let take = |what| slots.try_take(ONE, &mut Some(what)).unwrap();
        let numbers = [take("first"), take("second")];
        let mut futures = [Polling::new(), Polling::new()];
        for actor in &order {
            match actor {
                0 | 1 => {
                    futures[*actor].poll(|cx| slots.poll_outcome(cx, numbers[*actor]));
                }
                of => done(&slots, numbers[of - 2]),
            }
        }
        for (of, expected) in [(0, "first"), (1, "second")] {
            futures[of].poll(|cx| slots.poll_outcome(cx, numbers[of]));
            let outcome = futures[of].result.take();
            let outcome = outcome.unwrap_or_else(|| panic!("{expected} sleeps on: {order:?}"));
            assert_eq!(kept(outcome.unwrap()), expected, "{order:?}");
        }
    }
}

#[test]
fn a_dropped_future_keeps_its_room_and_what_it_keeps_until_the_request_has_completed() {
    for order in orders(&[1, 1, 1]) {
        let drops = Arc::new(AtomicUsize::new(0));
        let slots = Slots::new(1);
        let first = slots.try_take(ONE, &mut Some(Kept(Arc::clone(&drops)))).unwrap();
        let (mut completed, mut abandoned, mut second) = (false, false, None);
        for actor in &order {
            match actor {
                0 => {
                    slots.abandon(first);
                    abandoned = true;
                }
                1 => {
                    done(&slots, first);
                    completed = true;
                }
                _ => second = slots.try_take(ONE, &mut Some(Kept(Arc::default()))).ok(),
            }
            let gone = drops.load(SeqCst);
            assert_eq!(gone == 1, completed && abandoned, "{order:?}: dropped {gone} times");
            assert!(second.is_none() || completed, "{order:?}: the room was taken");
        }
        let second = second.or_else(|| slots.try_take(ONE, &mut Some(Kept(Arc::default()))).ok());
        let second = second.expect("the slot is free again");
        let mut future = Polling::new();
        future.poll(|cx| slots.poll_outcome(cx, second));
        assert!(future.result.is_none(), "{order:?}: the completion of another request");
        done(&slots, second);
        future.poll(|cx| slots.poll_outcome(cx, second));
        assert!(future.result.is_some(), "{order:?}");
    }
}

#[test]
fn a_turn_that_is_not_used_is_passed_on() {
    // Two tasks wait for one slot; the first gives up at any moment.
    for order in orders(&[1, 1, 2]) {
        let slots = Slots::new(1);
        let number = slots.try_take(ONE, &mut Some(0)).unwrap();
        let mut waiting = [Polling::new(), Polling::new()];
        let mut tickets = [Ticket::default(), Ticket::default()];
        for of in 0..2 {
            let ticket = &mut tickets[of];
            waiting[of].poll(|cx| slots.poll_take(cx, ticket, ONE, &mut Some(of)));
        }
        let mut served = false;
        for actor in &order {
            match actor {
                0 => {
                    done(&slots, number);
                    slots.abandon(number);
                }
                1 => slots.leave(&mut tickets[0]),
                _ => {
                    let ticket = &mut tickets[1];
                    waiting[1].poll(|cx| slots.poll_take(cx, ticket, ONE, &mut Some(1)));
                    served |= waiting[1].result.is_some();
                }
            }
        }
        let ticket = &mut tickets[1];
        waiting[1].poll(|cx| slots.poll_take(cx, ticket, ONE, &mut Some(1)));
        assert!(served || waiting[1].result.is_some(), "{order:?}: it sleeps beside a free slot");
    }
}

#[test]
fn task_that_waits_longest_is_served_first_and_none_overtakes_it() {
    let slots = Slots::new(2);
    let number = slots.try_take(ONE, &mut Some("first")).unwrap();
    slots.try_take(ONE, &mut Some("with the device")).unwrap();
    let mut waiting = [Polling::new(), Polling::new()];
    let mut tickets = [Ticket::default(), Ticket::default()];
    let poll = |waiting: &mut [Polling<_>; 2], tickets: &mut [Ticket; 2], of: usize| {
        let ticket = &mut tickets[of];
        waiting[of].poll(|cx| slots.poll_take(cx, ticket, ONE, &mut Some("later")));
    };
    for of in 0..2 {
        poll(&mut waiting, &mut tickets, of);
    }
    done(&slots, number);
    slots.abandon(number);
    assert_eq!(slots.try_take(ONE, &mut Some("pushy")), Err(Full::Now));
    assert!(waiting[0].is_awake() && !waiting[1].is_awake());
    poll(&mut waiting, &mut tickets, 0);
    let second = waiting[0].result.take().unwrap().unwrap();
    assert!(!waiting[1].is_awake());
    done(&slots, second);
    slots.abandon(second);
    poll(&mut waiting, &mut tickets, 1);
    assert!(waiting[1].result.is_some());
}

#[test]
fn tasks_that_are_woken_and_never_poll_again_are_passed_once_the_queue_is_idle() {
    for leaked in 0..4 {
        let slots = Slots::new(1);
        let number = slots.try_take(ONE, &mut Some(())).unwrap();
        let mut tickets: Vec<_> = (0..leaked).map(|_| Ticket::default()).collect();
        for ticket in &mut tickets {
            let cx = Context::from_waker(Waker::noop());
            assert!(slots.poll_take(&cx, ticket, ONE, &mut Some(())).is_pending());
        }
        let (mut after, mut ticket) = (Polling::new(), Ticket::default());
        after.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some(())));
        assert!(after.result.is_none());
        done(&slots, number);
        slots.abandon(number);
        after.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some(())));
        let Some(Ok(number)) = after.result else { panic!("{leaked} leaked: it sleeps on") };
        assert_eq!(slots.try_take(ONE, &mut Some(())), Err(Full::Now));
        // Later tasks keep passing them.
        done(&slots, number);
        assert!(slots.try_take(ONE, &mut Some(())).is_ok(), "{leaked} leaked");
    }
}

#[test]
fn task_that_was_passed_and_polls_then_has_its_place_again() {
    let slots = Slots::new(1);
    let number = slots.try_take(ONE, &mut Some(())).unwrap();
    let (mut late, mut ticket) = (Polling::new(), Ticket::default());
    late.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some(())));
    done(&slots, number);
    let other = slots.try_take(ONE, &mut Some(())).expect("the queue is idle");
    late.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some(())));
    assert!(late.result.is_none(), "another has the room");
    assert!(!late.is_awake());
    done(&slots, other);
    late.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some(())));
    assert!(late.result.is_some(), "it was not woken again");
}

#[test]
fn task_that_does_not_come_is_passed_after_a_while_in_a_queue_that_is_never_idle() {
    let slots = Slots::new(512);
    let mut posted: Vec<_> =
        (0..512).map(|_| slots.try_take(ONE, &mut Some(())).unwrap()).collect();
    let mut leaked = Ticket::default();
    let cx = Context::from_waker(Waker::noop());
    assert!(slots.poll_take(&cx, &mut leaked, ONE, &mut Some(())).is_pending());
    let (mut after, mut ticket) = (Polling::new(), Ticket::default());
    let mut patience = 0;
    while after.result.is_none() {
        after.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some(())));
        done(&slots, posted.pop().expect("it is passed before the queue is idle"));
        patience += 1;
    }
    assert!((100..200).contains(&patience), "passed after {patience}");
    assert!(slots.try_take(ONE, &mut Some(())).is_ok());
}

#[test]
fn futures_that_never_take_their_results_are_an_error_at_16_times_the_capacity() {
    let slots = Slots::new(2);
    for _ in 0..32 {
        done(&slots, slots.try_take(ONE, &mut Some(())).unwrap());
    }
    assert_eq!(slots.try_take(ONE, &mut Some(())), Err(Full::Untaken));
    let mut keep = Some(());
    let cx = Context::from_waker(Waker::noop());
    let taken = slots.poll_take(&cx, &mut Ticket::default(), STREAM, &mut keep);
    assert_eq!((taken, keep), (Poll::Ready(Err(Full::Untaken)), Some(())));
    slots.abandon(7);
    assert_eq!(slots.try_take(ONE, &mut Some(())), Ok(7));
}

#[test]
fn refused_waiter_waits_for_a_completion_at_the_head_of_the_line() {
    let slots = Slots::new(3);
    let number = slots.try_take(ONE, &mut Some("small")).unwrap();
    let (completed, _) = slots.progress();
    let mut ticket = Ticket::default();
    ticket.refused_at = Some(completed);
    let (mut large, mut later) = (Polling::new(), Polling::new());
    large.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some("large")));
    assert!(large.result.is_none(), "two slots are free, and the queue pair had no room");
    let mut other = Ticket::default();
    later.poll(|cx| slots.poll_take(cx, &mut other, ONE, &mut Some("later")));
    assert!(later.result.is_none());
    done(&slots, number);
    large.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some("large")));
    assert!(large.result.is_some());
    later.poll(|cx| slots.poll_take(cx, &mut other, ONE, &mut Some("later")));
    assert!(later.result.is_some());
}

#[test]
fn a_stream_is_woken_by_each_completion_and_by_the_end_in_any_order() {
    for order in orders(&[4, 1, 1, 1]) {
        let slots = Slots::new(2);
        let take = |what| slots.try_take(STREAM, &mut Some(what)).unwrap();
        let numbers = [take(1), take(2)];
        let (mut stream, mut got, mut over) = (Polling::new(), Vec::new(), false);
        let mut place = Place::default();
        let mut look = |stream: &mut Polling<_>, got: &mut Vec<_>, over: &mut bool| {
            stream.poll(|cx| slots.poll_ready(cx, None, &mut place));
            while let Some(item) = stream.result.take() {
                match item {
                    Some(outcome) => got.push(kept(outcome)),
                    None => *over = true,
                }
                if *over {
                    break;
                }
                stream.seen = None;
                stream.poll(|cx| slots.poll_ready(cx, None, &mut place));
            }
        };
        for actor in &order {
            match actor {
                0 => look(&mut stream, &mut got, &mut over),
                3 => {
                    let mut wakes = Wakes::default();
                    slots.end(Ended::Closed, &mut wakes);
                    wakes.wake();
                }
                of => done(&slots, numbers[of - 1]),
            }
        }
        look(&mut stream, &mut got, &mut over);
        got.sort_unstable();
        assert_eq!((got, over), (vec![1, 2], true), "{order:?}");
    }
}

#[test]
fn a_loss_reaches_futures_waiters_streams_and_waiters_for_the_end_in_any_order() {
    let lost = Ended::NoPump;
    for order in orders(&[1, 1, 1, 1, 1]) {
        let drops = Arc::new(AtomicUsize::new(0));
        let slots = Slots::new(2);
        let take = |want| slots.try_take(want, &mut Some(Kept(Arc::clone(&drops)))).unwrap();
        let (number, _) = (take(ONE), take(STREAM));
        let (mut future, mut waiting) = (Polling::new(), Polling::new());
        let (mut stream, mut idle) = (Polling::new(), Polling::new());
        let mut ticket = Ticket::default();
        let [mut streams, mut ends] = [Place::default(), Place::default()];
        let mut act = |actor: usize| match actor {
            0 => future.poll(|cx| slots.poll_outcome(cx, number).map(|outcome| outcome.err())),
            1 => waiting.poll(|cx| {
                slots
                    .poll_take(cx, &mut ticket, ONE, &mut Some(Kept(Arc::default())))
                    .map(Result::err)
            }),
            2 => stream
                .poll(|cx| slots.poll_ready(cx, None, &mut streams).map(|item| item.is_none())),
            3 => idle.poll(|cx| slots.poll_idle(cx, &mut ends).map(Result::err)),
            _ => {
                let mut wakes = Wakes::default();
                slots.lose(lost, &mut wakes);
                wakes.wake();
            }
        };
        order.iter().for_each(|actor| act(*actor));
        (0..4).for_each(act);
        assert_eq!(future.result, Some(Some(lost)), "{order:?}");
        assert_eq!(waiting.result, Some(Some(Full::Ended(lost))), "{order:?}");
        assert_eq!(stream.result, Some(true), "{order:?}");
        assert_eq!(idle.result, Some(Some(lost)), "{order:?}");
        // The device may still use the kept value.
        assert_eq!(drops.load(SeqCst), 0, "{order:?}");
        drop(slots);
        assert_eq!(drops.load(SeqCst), 2, "{order:?}");
    }
}

#[test]
fn parts_of_a_batch_take_room_and_its_first_error_is_reported_once() {
    let slots = Slots::new(3);
    let batch = Want { parts: 3, to: To::Future };
    let number = slots.try_take(batch, &mut Some("batch")).unwrap();
    assert_eq!(slots.try_take(ONE, &mut Some("more")), Err(Full::Now));
    let mut future = Polling::new();
    let mut wakes = Wakes::default();
    let mut part = |last, failed| {
        let completion = OwnedCompletion::default();
        slots.complete(number, last, completion, failed, &mut wakes).unwrap();
    };
    part(false, true);
    future.poll(|cx| slots.poll_outcome(cx, number));
    assert!(future.result.is_none(), "parts of it are still with the device");
    // A success after a failure cannot happen, and would not hide it.
    part(true, false);
    wakes.wake();
    future.poll(|cx| slots.poll_outcome(cx, number));
    assert!(matches!(future.result, Some(Ok((_, Verdict::Failed, Some("batch"))))));
    let again = slots.complete(number, true, OwnedCompletion::default(), false, &mut wakes);
    assert!(again.is_err(), "nothing is posted there");
    assert!(slots.complete(99, true, OwnedCompletion::default(), false, &mut wakes).is_err());
    assert!(slots.try_take(ONE, &mut Some("more")).is_ok());
    assert_eq!(
        slots.try_take(Want { parts: 4, to: To::Future }, &mut Some("too many")),
        Err(Full::Never)
    );
    assert_eq!(
        slots.try_take(Want { parts: 0, to: To::Future }, &mut Some("none")),
        Err(Full::Never)
    );
}

/// Its drop uses the queue that dropped it.
struct Reentrant(Arc<Slots<Reentrant>>);

impl Drop for Reentrant {
    fn drop(&mut self) {
        self.0.is_over();
    }
}

struct ReentrantWaker(Arc<Slots<Reentrant>>);

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        self.0.is_over();
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        self.0.is_over();
    }
}

#[test]
fn wakers_and_what_is_kept_may_use_the_queue_when_they_are_called_or_dropped() {
    let slots = Arc::new(Slots::new(1));
    let waker = || Waker::from(Arc::new(ReentrantWaker(Arc::clone(&slots))));
    let keep = || Some(Reentrant(Arc::clone(&slots)));
    let number = slots.try_take(ONE, &mut keep()).unwrap();
    let [mut place, mut idle] = [Place::default(), Place::default()];
    // Each replaces the waker of the one before.
    for _ in 0..2 {
        assert!(slots.poll_outcome(&Context::from_waker(&waker()), number).is_pending());
        assert!(slots.poll_ready(&Context::from_waker(&waker()), None, &mut place).is_pending());
        assert!(slots.poll_idle(&Context::from_waker(&waker()), &mut idle).is_pending());
    }
    let mut ticket = Ticket::default();
    for _ in 0..2 {
        let taken = slots.poll_take(&Context::from_waker(&waker()), &mut ticket, ONE, &mut keep());
        assert!(taken.is_pending());
    }
    slots.abandon(number);
    done(&slots, number);
    let taken = slots.poll_take(&Context::from_waker(&waker()), &mut ticket, ONE, &mut keep());
    let Poll::Ready(Ok(number)) = taken else { panic!("there is room") };
    drop(slots.give_back(number));
}

#[test]
fn several_streams_share_the_results_and_all_hear_of_the_end_in_any_order() {
    // Two streams, two requests and the end.
    for order in orders(&[2, 2, 1, 1, 1]) {
        let slots = Slots::new(2);
        let take = |what| slots.try_take(STREAM, &mut Some(what)).unwrap();
        let numbers = [take(1), take(2)];
        let mut streams = [(); 2].map(|()| (Polling::new(), Place::default()));
        let mut got = Vec::new();
        let look = |(stream, place): &mut (Polling<_>, Place), got: &mut Vec<_>| {
            stream.poll(|cx| slots.poll_ready(cx, None, place));
            while let Some(Some(outcome)) = &mut stream.result {
                got.extend(outcome.2.take());
                (stream.result, stream.seen) = (None, None);
                stream.poll(|cx| slots.poll_ready(cx, None, place));
            }
        };
        for actor in &order {
            match actor {
                0 | 1 => look(&mut streams[*actor], &mut got),
                4 => {
                    let mut wakes = Wakes::default();
                    slots.end(Ended::Closed, &mut wakes);
                }
                of => done(&slots, numbers[of - 2]),
            }
        }
        streams.iter_mut().for_each(|stream| look(stream, &mut got));
        got.sort_unstable();
        assert_eq!(got, [1, 2], "{order:?}");
        let all = streams.iter().all(|(stream, _)| matches!(stream.result, Some(None)));
        assert!(all, "a stream sleeps on: {order:?}");
    }
}

#[test]
fn dropped_waiter_is_forgotten() {
    let slots = Slots::new(1);
    let number = slots.try_take(STREAM, &mut Some(())).unwrap();
    let task = Arc::new(Task::default());
    let waker = Waker::from(Arc::clone(&task));
    let count = || Arc::strong_count(&task);
    let [mut stream, mut idle] = [Place::default(), Place::default()];
    // Any number of times, and with any waker.
    for _ in 0..10 {
        let other = Waker::from(Arc::new(Task::default()));
        for waker in [&other, &waker, &waker] {
            let cx = Context::from_waker(waker);
            assert!(slots.poll_ready(&cx, None, &mut stream).is_pending());
            assert!(slots.poll_idle(&cx, &mut idle).is_pending());
        }
        assert_eq!(count(), 4);
    }
    slots.leave_streams(None, &mut stream);
    slots.leave_idle(&mut idle);
    assert_eq!(count(), 2);
    done(&slots, number);
    assert_eq!(task.0.load(SeqCst), 0);
}

#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_called() {
    let slots = Slots::new(2);
    let take = |want| slots.try_take(want, &mut Some(())).unwrap();
    let (number, other) = (take(ONE), take(STREAM));
    let [mut stream, mut idle] = [Place::default(), Place::default()];
    let mut ticket = Ticket::default();
    let tasks: [Arc<Task>; 2] = Default::default();
    for task in &tasks {
        let waker = Waker::from(Arc::clone(task));
        let cx = Context::from_waker(&waker);
        assert!(slots.poll_outcome(&cx, number).is_pending());
        assert!(slots.poll_ready(&cx, None, &mut stream).is_pending());
        assert!(slots.poll_idle(&cx, &mut idle).is_pending());
        assert!(slots.poll_take(&cx, &mut ticket, ONE, &mut Some(())).is_pending());
    }
    done(&slots, number);
    done(&slots, other);
    slots.abandon(number);
    assert_eq!(tasks[0].0.load(SeqCst), 0);
    // Wakers of the future, the stream, the task that waits for the end, and the line.
    assert!(tasks[1].0.load(SeqCst) >= 4);
}

/// A task whose waker panics.
struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("the waker of a test panics");
    }
}

#[test]
fn panicking_waker_leaves_the_other_waiters_intact() {
    let slots = Slots::new(2);
    let numbers = [0, 1].map(|_| slots.try_take(ONE, &mut Some("kept")).unwrap());
    let panicking = Waker::from(Arc::new(Panicking));
    let mut other = Polling::new();
    assert!(slots.poll_outcome(&Context::from_waker(&panicking), numbers[0]).is_pending());
    other.poll(|cx| slots.poll_outcome(cx, numbers[1]));
    // One after the other in the line, the one that panics first.
    let [mut first, mut second] = [Ticket::default(), Ticket::default()];
    let mut keep = Some("first");
    let poll = |ticket: &mut Ticket, keep: &mut _| {
        slots.poll_take(&Context::from_waker(&panicking), ticket, ONE, keep)
    };
    assert!(poll(&mut first, &mut keep).is_pending());
    assert!(poll(&mut second, &mut Some("second")).is_pending());
    let mut wakes = Wakes::default();
    for number in numbers {
        let completion = OwnedCompletion::default();
        slots.complete(number, true, completion, false, &mut wakes).unwrap();
    }
    wakes.wake();
    assert!(other.is_awake(), "it is behind the one that panicked");
    for number in numbers {
        let outcome = slots.poll_outcome(&Context::from_waker(Waker::noop()), number);
        assert!(outcome.is_ready(), "the result is there");
    }
    // Each result that is taken wakes the next in the line.
    for ticket in [&mut first, &mut second] {
        let Poll::Ready(Ok(number)) = poll(ticket, &mut Some("later")) else { panic!("no room") };
        done(&slots, number);
        slots.abandon(number);
    }
    assert!(slots.is_over());
    // If a panic skipped wakers, their drop calls them.
    let task = Arc::new(Task::default());
    let mut wakes = Wakes::default();
    wakes.add(Some(panicking));
    wakes.add(Some(Waker::from(Arc::clone(&task))));
    drop(wakes);
    assert_eq!(task.0.load(SeqCst), 1);
}

#[test]
fn abandoned_queue_returns_unposted_requests_as_unused() {
    for order in orders(&[1, 1, 1, 1]) {
        let drops = Arc::new(AtomicUsize::new(0));
        let slots = Slots::new(4);
        let take = |want| slots.try_take(want, &mut Some(Kept(Arc::clone(&drops)))).unwrap();
        let (future, _, dropped) = (take(ONE), take(STREAM), take(ONE));
        let (mut awaited, mut stream) = (Polling::new(), Polling::new());
        let mut place = Place::default();
        let mut act = |actor: usize| match actor {
            0 => awaited.poll(|cx| slots.poll_outcome(cx, future)),
            1 => stream.poll(|cx| slots.poll_ready(cx, None, &mut place)),
            2 => slots.abandon(dropped),
            _ => drop(slots.give_up(&mut Wakes::default())),
        };
        order.iter().for_each(|actor| act(*actor));
        (0..2).for_each(act);
        let verdict = awaited.result.map(|outcome| outcome.unwrap().1);
        assert_eq!(verdict, Some(Verdict::Unused), "{order:?}");
        let verdict = stream.result.flatten().map(|outcome| outcome.1);
        assert_eq!(verdict, Some(Verdict::Unused), "{order:?}");
        assert_eq!(drops.load(SeqCst), 3, "{order:?}");
        assert!(slots.is_over());
    }
}

#[test]
fn slot_reports_its_last_request_alone() {
    let slots = Slots::new(1);
    for failed in [true, false, true] {
        let number = slots.try_take(STREAM, &mut Some(())).unwrap();
        let completion = OwnedCompletion::default();
        let mut wakes = Wakes::default();
        slots.complete(number, true, completion, failed, &mut wakes).unwrap();
        let verdict = slots.next_ready(None).map(|outcome| outcome.1);
        assert_eq!(verdict, Some(if failed { Verdict::Failed } else { Verdict::Done }));
    }
}

#[test]
fn streams_of_one_queue_pair_take_its_results_and_leave_the_rest_to_the_others() {
    // The default completion is of queue pair 0.
    let [own, other] = [Some(0), Some(1)];
    let slots = Slots::new(4);
    let complete = || {
        let number = slots.try_take(STREAM, &mut Some(())).unwrap();
        done(&slots, number);
    };
    let mut places = [(); 4].map(|()| Place::default());
    let tasks: [Arc<Task>; 4] = Default::default();
    let mut poll = |stream: usize, of| {
        let waker = Waker::from(Arc::clone(&tasks[stream]));
        slots.poll_ready(&Context::from_waker(&waker), of, &mut places[stream]).is_ready()
    };
    let woken = |stream: usize| tasks[stream].0.swap(0, SeqCst) > 0;
    [own, own, other].into_iter().for_each(|of| slots.enter_streams(of));
    // Two streams of one queue pair, one of another, one of the rest.
    for (stream, of) in [(0, own), (1, own), (2, other), (3, None)] {
        assert!(!poll(stream, of));
    }
    complete();
    // The last request completed, which wakes all.
    assert!(woken(0) && woken(1));
    let _ = [2, 3].map(woken);
    assert!(!poll(3, None) && !poll(2, other) && poll(1, own) && !poll(0, own));
    complete();
    complete();
    let _ = [0, 1, 2, 3].map(woken);
    assert!(!poll(3, None));
    // Dropping the first of two changes nothing. After the second, the remaining results go to the
    // other streams.
    slots.leave_streams(own, &mut Place::default());
    assert!(!woken(3) && slots.next_ready(None).is_none());
    slots.leave_streams(own, &mut Place::default());
    assert!(woken(3) && slots.next_ready(None).is_some() && slots.next_ready(None).is_some());
    // Later results go there as well.
    complete();
    assert!(slots.next_ready(other).is_none() && slots.next_ready(None).is_some());
    // The end wakes all.
    let mut wakes = Wakes::default();
    let mut place = Place::default();
    let waker = Waker::from(Arc::clone(&tasks[2]));
    assert!(slots.poll_ready(&Context::from_waker(&waker), other, &mut place).is_pending());
    woken(2);
    slots.end(Ended::Closed, &mut wakes);
    wakes.wake();
    assert!(woken(2));
}

#[test]
fn result_for_a_stream_has_its_place_until_it_is_read_and_one_for_a_future_has_none() {
    for (want, has_place) in [(STREAM, true), (ONE, false)] {
        let slots = Slots::new(1);
        let number = slots.try_take(want, &mut Some("first")).unwrap();
        let (mut waiting, mut ticket) = (Polling::new(), Ticket::default());
        waiting.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some("second")));
        done(&slots, number);
        assert_eq!(waiting.is_awake(), !has_place, "{want:?}");
        if has_place {
            assert_eq!(kept(slots.next_ready(None).unwrap()), "first");
        }
        waiting.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut Some("second")));
        let second = waiting.result.unwrap().unwrap();
        // A request that is never taken neither gets nor gives the result of another.
        assert_eq!(second != number, !has_place, "{want:?}");
        done(&slots, second);
        let mut own = Polling::new();
        own.poll(|cx| slots.poll_outcome(cx, second));
        assert_eq!(own.result.map(|taken| kept(taken.unwrap())), Some("second"), "{want:?}");
    }
}

#[test]
fn slots_are_added_only_while_results_keep_all_others() {
    let slots = Slots::new(2);
    let mut held = Vec::new();
    for round in 0..4 {
        let taken = [0, 1].map(|_| slots.try_take(ONE, &mut Some(round)).unwrap());
        assert_eq!(slots.try_take(ONE, &mut Some(round)), Err(Full::Now), "both are posted");
        taken.iter().for_each(|number| done(&slots, *number));
        held.extend(taken);
        assert_eq!(slots.table().slots.len(), held.len());
    }
    held.iter().for_each(|number| slots.abandon(*number));
    for round in 0..4 {
        let taken = [0, 1].map(|_| slots.try_take(ONE, &mut Some(round)).unwrap());
        for number in taken {
            done(&slots, number);
            slots.abandon(number);
        }
    }
    assert_eq!(slots.table().slots.len(), held.len());
}

#[test]
fn two_refused_waiters_are_both_tried_again() {
    let slots = Slots::new(2);
    let other = slots.try_take(ONE, &mut Some("other")).unwrap();
    let mut ticket = Ticket::default();
    ticket.refused_at = Some(slots.progress().0);
    let (mut refused, mut keep) = (Polling::new(), Some("refused"));
    refused.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut keep));
    assert!(refused.result.is_none(), "the other one may complete");
    assert_eq!(slots.give_back(other), Some("other"));
    refused.poll(|cx| slots.poll_take(cx, &mut ticket, ONE, &mut keep));
    assert!(matches!(refused.result, Some(Ok(_))), "it sleeps, and nothing is to complete");
}
