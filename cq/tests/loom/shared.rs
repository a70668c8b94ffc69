//! Queues behind locks: several posters, several pollers.

use crate::{Memory, model, post, send_queue};
use loom::sync::Arc;
use loom::thread;
use mlx5_doorbell::Lock;
use mlx5_wqe::{PostError, Rc, SendFlags, SendQueue, SendRecords};

/// A queue behind a lock, with its memory.
struct Shared {
    queue: Lock<SendQueue<Rc>>,
    records: Arc<SendRecords>,
    _memory: Memory,
}

impl Shared {
    fn new(blocks: u32) -> Arc<Self> {
        let memory = Memory::new();
        let records = Arc::new(SendRecords::new(blocks));
        let queue = Lock::new(send_queue(&memory, blocks, &records));
        Arc::new(Self { queue, records, _memory: memory })
    }
}

// A thread that waits for a lock spins, and only one thread may do so at a time, because loom
// explores endless loops, too. So no thread here waits for anything else.

/// Posters exclude each other, and a batch stays together: the poller gets each batch whole, with
/// the posted values, from any thread.
#[test]
fn batches_of_several_posters_stay_together() {
    model(3, || {
        let shared = Shared::new(4);
        let posts = |shared: &Shared, first| {
            let mut queue = shared.queue.lock();
            let mut batch = queue.wr_start();
            for wr_id in [first, first + 1] {
                batch.wr(wr_id, SendFlags::SIGNALED).send().sge_list(&[]);
            }
            batch.complete().unwrap();
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || posts(&shared, 20))
        };
        posts(&shared, 10);
        other.join().unwrap();
        let met: Vec<_> =
            (0..4).map(|block| shared.records.retire_next(block).map(|one| one.wr_id)).collect();
        let [one, two] = [[10, 11], [20, 21]].map(|batch| batch.map(Some));
        assert!(met == [one, two].concat() || met == [two, one].concat(), "{met:?}");
    });
}

/// A poster continues where the other one stopped, with the room that is left and that the poller
/// has freed. The poller gets each request once, with the posted values.
#[test]
fn one_poster_finds_the_state_that_the_other_left() {
    model(2, || {
        let shared = Shared::new(2);
        let posts = |shared: &Shared, numbers: [u64; 2]| {
            numbers.map(|number| {
                match post(&mut shared.queue.lock(), number, SendFlags::SIGNALED) {
                    Ok(()) => Some(100 + number),
                    Err(PostError::QueueFull { free: 0, needed: 1 }) => None,
                    Err(error) => panic!("{error}"),
                }
            })
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || posts(&shared, [2, 3]))
        };
        let mut met = Vec::new();
        let poll = |met: &mut Vec<u64>| {
            met.extend(shared.records.retire_next(met.len() as u16).map(|one| one.wr_id));
        };
        poll(&mut met);
        let mut posted: Vec<u64> = posts(&shared, [0, 1]).into_iter().flatten().collect();
        poll(&mut met);
        posted.extend(other.join().unwrap().into_iter().flatten());
        for _ in 0..2 {
            poll(&mut met);
        }
        assert_eq!(shared.queue.lock().free_blocks(), 2);
        assert!(posted.len() >= 2, "there was room for two");
        met.sort_unstable();
        posted.sort_unstable();
        assert_eq!(met, posted);
    });
}

/// Pollers that exclude each other get each completion once, in order, as a single poller would.
#[test]
fn pollers_that_share_have_each_completion_once() {
    model(3, || {
        let shared = Shared::new(2);
        // The completions so far; their number is the index of the next one.
        let met = Arc::new(Lock::new(Vec::new()));
        let poll = |shared: &Shared, met: &Lock<Vec<u64>>| {
            let mut met = met.lock();
            let next = met.len() as u16;
            met.extend(shared.records.retire_next(next).map(|one| one.wr_id));
        };
        let other = {
            let (shared, met) = (Arc::clone(&shared), Arc::clone(&met));
            thread::spawn(move || (0..2).for_each(|_| poll(&shared, &met)))
        };
        for number in 0..2 {
            post(&mut shared.queue.lock(), number, SendFlags::SIGNALED).unwrap();
        }
        poll(&shared, &met);
        let full = post(&mut shared.queue.lock(), 2, SendFlags::SIGNALED).is_err();
        other.join().unwrap();
        for _ in 0..3 {
            poll(&shared, &met);
        }
        assert_eq!(*met.lock(), if full { &[100, 101][..] } else { &[100, 101, 102] });
    });
}
