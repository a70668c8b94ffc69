use super::*;
use crate::testing::Memory;
use mlx5_uapi::{Access, Errno, EventFile, ioctl::IoctlHeader, real};
use std::{
    fs::File,
    os::{fd::RawFd, unix::fs::FileExt},
};

const ORDINARY: Kind = Kind { huge_pages: HugePages::None, numa_node: None, near: 0 };

fn pages(count: usize) -> usize {
    count * page_size()
}

fn take(arena: &mut Arena, file: &dyn DeviceFile, kind: Kind, count: usize) -> (Run, usize) {
    let (run, used) = arena.take(file, kind, pages(count)).unwrap();
    (run, used / page_size())
}

fn at(run: &Run) -> usize {
    run.start.addr().get()
}

#[test]
fn rings_share_a_chunk_and_do_not_overlap() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let runs: Vec<Run> =
        (0..LEAST_PAGES / 2).map(|_| take(&mut arena, &file, ORDINARY, 2).0).collect();
    assert_eq!(file.live(), 1);
    for (number, run) in runs.iter().enumerate() {
        assert_eq!(at(run), at(&runs[0]) + pages(2 * number));
    }
    let one_more = take(&mut arena, &file, ORDINARY, 1).0;
    assert_eq!((one_more.chunk, file.live()), (1, 2));
}

#[test]
fn pages_that_were_given_back_are_taken_first_and_to_be_zeroed() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let [a, b, c] = [3, 4, 5].map(|count| take(&mut arena, &file, ORDINARY, count));
    assert_eq!([a.1, b.1, c.1], [0; 3], "new memory is zero");
    let was = at(&b.0);
    arena.give_back(b.0);
    let (again, used) = take(&mut arena, &file, ORDINARY, 4);
    assert_eq!((at(&again), used), (was, 4));
    arena.give_back(again);
    arena.give_back(c.0);
    // The place of both, and pages behind it that are new.
    let (both, used) = take(&mut arena, &file, ORDINARY, 11);
    assert_eq!((at(&both), used), (was, 9));
    // Too long for what lies before it.
    arena.give_back(a.0);
    let (next, used) = take(&mut arena, &file, ORDINARY, 2);
    assert_eq!((at(&next), used), (was - pages(3), 2));
    assert_eq!(take(&mut arena, &file, ORDINARY, 2).1, 0);
    assert_eq!(file.live(), 1);
}

#[test]
fn chunks_grow_with_what_is_in_use_up_to_a_limit() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let mut lengths = Vec::new();
    while lengths.last() != Some(&MOST) {
        let run = take(&mut arena, &file, ORDINARY, LEAST_PAGES).0;
        let chunk = arena.chunks[run.chunk].as_ref().unwrap();
        if lengths.len() == run.chunk {
            lengths.push(chunk.mapping.len());
        }
    }
    assert_eq!(lengths[..4], [1, 1, 2, 4].map(|times| times * pages(LEAST_PAGES)));
    let long = arena.take(&file, ORDINARY, MOST + 1).unwrap().0;
    assert_eq!(long.len(), MOST + page_size(), "a longer ring has a chunk of its own");
}

#[test]
fn only_large_chunks_of_ordinary_pages_are_to_be_backed_by_huge_ones() {
    let huge = Kind { huge_pages: HugePages::TwoMiB, ..ORDINARY };
    assert!(ORDINARY.request(TRANSPARENT).transparent_huge);
    assert!(!ORDINARY.request(TRANSPARENT - 1).transparent_huge);
    assert!(!huge.request(TRANSPARENT).transparent_huge);
}

#[test]
fn rings_of_different_kinds_share_nothing() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let kinds = [
        ORDINARY,
        Kind { huge_pages: HugePages::TwoMiB, ..ORDINARY },
        Kind { numa_node: Some(1), ..ORDINARY },
        Kind { near: 1, ..ORDINARY },
    ];
    let chunks = kinds.map(|kind| take(&mut arena, &file, kind, 1).0.chunk);
    assert_eq!(chunks, [0, 1, 2, 3]);
    for (number, kind) in kinds.into_iter().enumerate().rev() {
        let run = take(&mut arena, &file, kind, 1).0;
        // The fake's huge pages are as long as what is asked for, so that one fills its chunk.
        assert!(run.chunk == number || kind.huge_pages == HugePages::TwoMiB);
        arena.give_back(run);
    }
}

/// Refuses what is longer than a page.
struct Full(Memory);

impl DeviceFile for Full {
    unsafe fn ioctl(&self, _: *mut IoctlHeader) -> Result<(), Errno> {
        Err(Errno::ENOTTY)
    }

    fn map(&self, _: u64, _: usize, _: Access) -> Result<Mapping, Errno> {
        Err(Errno::ENOTTY)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        assert!(request.len.is_multiple_of(page_size()), "a mapping need not be longer");
        self.0.refuse(request.len > page_size());
        self.0.allocate(request)
    }

    unsafe fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Err(Errno::ENOTTY)
    }
}

#[test]
fn without_room_to_grow_a_ring_gets_what_it_needs() {
    let (file, mut arena) = (Full(Memory::default()), Arena::default());
    let runs = [page_size(), 100].map(|len| arena.take(&file, ORDINARY, len).unwrap().0);
    assert_eq!((runs[1].chunk, file.0.live()), (1, 2));
    assert!(arena.take(&file, ORDINARY, pages(2)).is_err());
    // What failed has left nothing.
    for run in runs {
        arena.give_back(run);
    }
    assert_eq!(take(&mut arena, &file, ORDINARY, 1).0.chunk, 0);
}

#[test]
fn pages_that_the_device_may_use_are_never_taken_again_and_outlive_the_arena() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let [kept, other] = [0; 2].map(|_| take(&mut arena, &file, ORDINARY, LEAST_PAGES).0);
    let (start, end) = (at(&kept), at(&kept) + pages(LEAST_PAGES));
    arena.keep(kept);
    arena.give_back(other);
    for _ in 0..100 {
        let run = take(&mut arena, &file, ORDINARY, 1).0;
        assert!(!(start..end).contains(&at(&run)));
    }
    let live = file.live();
    let (kept, others) = arena.take_all();
    assert_eq!((kept.len(), others.len()), (1, live - 1));
    drop((others, arena));
    assert_eq!(file.live(), 1);
}

/// Ordinary memory of this process.
struct Real;

impl DeviceFile for Real {
    unsafe fn ioctl(&self, _: *mut IoctlHeader) -> Result<(), Errno> {
        Err(Errno::ENOTTY)
    }

    fn map(&self, _: u64, _: usize, _: Access) -> Result<Mapping, Errno> {
        Err(Errno::ENOTTY)
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        // Huge pages are made whole, so they say nothing of single pages.
        real::allocate(&request.transparent_huge(false))
    }

    unsafe fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Err(Errno::ENOTTY)
    }
}

/// Pages of the arena's chunks that are in memory.
fn resident(arena: &Arena) -> usize {
    /// Of the eight bytes that `/proc/self/pagemap` has of each page.
    const PRESENT: u64 = 1 << 63;
    let file = File::open("/proc/self/pagemap").expect("pagemap");
    let of = |chunk: &Chunk| {
        let mut entries = vec![0; chunk.pages.len * 8];
        let first = chunk.mapping.as_ptr().addr() / page_size();
        file.read_exact_at(&mut entries, first as u64 * 8).expect("pagemap");
        let (entries, _) = entries.as_chunks();
        entries.iter().filter(|entry| u64::from_ne_bytes(**entry) & PRESENT != 0).count()
    };
    arena.chunks.iter().flatten().map(of).sum()
}

fn fill(run: &Run) {
    // SAFETY: the pages are the run's, whose owner is the test.
    unsafe { run.start.write_bytes(0xff, run.len()) };
}

#[test]
fn free_pages_go_back_to_the_system_but_for_a_few() {
    const COUNT: usize = 8;
    let rings = 4 * IDLE / pages(COUNT);
    let mut arena = Arena::default();
    let mut runs: Vec<Run> =
        (0..rings).map(|_| take(&mut arena, &Real, ORDINARY, COUNT).0).collect();
    runs.iter().for_each(fill);
    assert_eq!(resident(&arena), rings * COUNT);

    // One ring in each sixteen stays, so that no chunk becomes free.
    let mut stay = Vec::new();
    for (number, run) in runs.drain(..).enumerate() {
        if number % 16 == 0 { stay.push(run) } else { drop(arena.give_back(run)) }
    }
    let idle = resident(&arena) - stay.len() * COUNT;
    assert_eq!(pages(idle), IDLE);
    // What went away comes back, to be zeroed as everything.
    let (run, used) = take(&mut arena, &Real, ORDINARY, 4 * COUNT);
    assert_eq!(used, run.pages);
    drop(arena.give_back(run));

    let mapped = |arena: &Arena| arena.chunks.iter().flatten().count();
    let before = mapped(&arena);
    for run in stay {
        drop(arena.give_back(run));
    }
    assert!(mapped(&arena) < before);
    assert!(pages(resident(&arena)) <= IDLE);
}

#[test]
fn a_ring_that_is_made_and_destroyed_in_turn_needs_no_system_call() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let base: Vec<Run> = (0..50).map(|_| take(&mut arena, &file, ORDINARY, 5).0).collect();
    for count in [1, 5, 64, IDLE / page_size()] {
        let mut places = Vec::new();
        for _ in 0..3 {
            let (run, _) = take(&mut arena, &file, ORDINARY, count);
            places.push(at(&run));
            assert!(arena.give_back(run).is_none());
        }
        assert_eq!(places, [places[0]; 3]);
        // For the next size nothing is idle.
        let words = arena.chunks.iter_mut().flatten().flat_map(|chunk| &mut chunk.pages.words);
        words.for_each(|word| word.idle = 0);
        arena.idle = 0;
    }
    drop(base);
}

#[test]
fn of_huge_pages_one_chunk_stays_for_the_next_ring() {
    let huge = Kind { huge_pages: HugePages::TwoMiB, ..ORDINARY };
    let (file, mut arena) = (Memory::default(), Arena::default());
    let [a, b] = [0; 2].map(|_| arena.take(&file, huge, 2 << 20).unwrap().0);
    assert!(arena.give_back(a).is_none());
    assert!(arena.give_back(b).is_some());
    let (again, used) = arena.take(&file, huge, 2 << 20).unwrap();
    assert_eq!((again.chunk, used), (0, 2 << 20));
    let giant = arena.take(&file, Kind { huge_pages: HugePages::OneGiB, ..huge }, IDLE + 1);
    assert!(arena.give_back(giant.unwrap().0).is_some());
}

/// Rings of random sizes come and go in any order.
#[test]
fn whatever_comes_and_goes_no_two_rings_share_a_page_and_all_are_counted() {
    let seed = std::env::var("MLX5_SEED");
    let seed = seed.map_or(0x5eed_a4e4a, |seed| seed.parse().expect("MLX5_SEED is a number"));
    println!("MLX5_SEED={seed}");
    let mut state: u64 = seed;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut arena = Arena::default();
    let mut held: Vec<(Run, u8)> = Vec::new();
    for step in 0..4000_u32 {
        if random(100) < 52 || held.is_empty() {
            let count = if random(40) == 0 { 1 + random(600) } else { 1 + random(12) };
            let (run, used) = take(&mut arena, &Real, ORDINARY, count as usize);
            let mark = step as u8 | 1;
            // SAFETY: the pages are the run's, whose owner is the test.
            unsafe {
                let rest = run.start.byte_add(pages(used));
                for page in 0..run.pages - used {
                    assert_eq!(rest.byte_add(pages(page)).read(), 0, "step {step}: zero, as said");
                }
                for page in 0..run.pages {
                    run.start.byte_add(pages(page)).write(mark);
                }
            }
            held.push((run, mark));
        } else {
            let (run, mark) = held.swap_remove(random(held.len() as u64) as usize);
            for page in 0..run.pages {
                // SAFETY: as above.
                let found = unsafe { run.start.byte_add(pages(page)).read() };
                assert_eq!(found, mark, "step {step}: another ring has written here");
            }
            drop(arena.give_back(run));
        }
        let counts = arena.chunks.iter().flatten().fold((0, 0), |(used, idle), chunk| {
            let free: u32 = chunk.pages.words.iter().map(|word| word.free.count_ones()).sum();
            assert_eq!(chunk.in_use + free as usize, chunk.pages.len);
            assert!(chunk.pages.words.iter().all(|word| word.idle & !word.free == 0));
            (used + chunk.in_use, idle + chunk.pages.idle())
        });
        assert_eq!(counts, (held.iter().map(|(run, _)| run.pages).sum(), arena.idle));
        assert!(pages(arena.idle) <= IDLE);
    }
}
