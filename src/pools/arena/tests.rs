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
    let (run, dirty) = arena.take(file, kind, pages(count)).unwrap();
    (run, count_of(&dirty))
}

fn count_of(Dirty(pieces): &Dirty) -> usize {
    pieces.iter().map(Range::len).sum()
}

/// Returns pages, all of which were written.
fn give_back(arena: &mut Arena, run: Run) -> Option<Mapping> {
    let all = 0..run.len();
    arena.give_back(run, &[all])
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
    give_back(&mut arena, b.0);
    let (again, used) = take(&mut arena, &file, ORDINARY, 4);
    assert_eq!((at(&again), used), (was, 4));
    give_back(&mut arena, again);
    give_back(&mut arena, c.0);
    // The place of both, and new pages after it.
    let (both, used) = take(&mut arena, &file, ORDINARY, 11);
    assert_eq!((at(&both), used), (was, 9));
    // Too long for the free pages before it.
    give_back(&mut arena, a.0);
    let (next, used) = take(&mut arena, &file, ORDINARY, 2);
    assert_eq!((at(&next), used), (was - pages(3), 2));
    assert_eq!(take(&mut arena, &file, ORDINARY, 2).1, 0);
    assert_eq!(file.live(), 1);
}

#[test]
fn only_pages_that_were_written_are_to_be_zeroed() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    // Bytes that were written, of twelve pages, and the pages to be zeroed afterwards.
    let page = page_size();
    for (written, expected) in [
        ([0..0, 0..0], [0..0, 0..0]),
        ([0..1, 0..0], [0..1, 0..0]),
        ([0..page, 0..0], [0..1, 0..0]),
        ([0..page + 1, 0..0], [0..2, 0..0]),
        ([0..1, 5 * page..6 * page], [0..1, 5..6]),
        ([0..1, 5 * page - 1..6 * page + 1], [0..1, 4..7]),
        ([1..page + 1, 2 * page - 1..3 * page], [0..3, 0..0]),
        ([0..1, 0..usize::MAX], [0..12, 0..0]),
        ([11 * page..13 * page, 13 * page..14 * page], [11..12, 0..0]),
    ] {
        let (run, dirty) = arena.take(&file, ORDINARY, pages(12)).unwrap();
        assert_eq!(dirty, Dirty::default(), "before {written:?}");
        arena.give_back(run, &written);
        let (run, dirty) = arena.take(&file, ORDINARY, pages(12)).unwrap();
        assert_eq!(dirty, Dirty(expected), "{written:?}");
        // They were zeroed, and nothing was written since.
        arena.give_back(run, &[]);
    }
}

#[test]
fn dirty_pages_in_many_pieces_are_merged_into_two_ranges() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    // Across words of 64 pages, too.
    let mut runs = Vec::new();
    for number in 0..100 {
        let (run, _) = arena.take(&file, ORDINARY, pages(2)).unwrap();
        runs.push((number, run));
    }
    let chunk = runs.last().unwrap().1.chunk;
    let of_chunk = runs.iter().filter(|(_, run)| run.chunk == chunk).count();
    let first = runs.len() - of_chunk;
    for (number, run) in runs {
        let written = if number == first { 0..1 } else { pages(1)..pages(1) + 1 };
        if run.chunk == chunk {
            arena.give_back(run, &[written]);
        }
    }
    let (_, dirty) = arena.take(&file, ORDINARY, pages(2 * of_chunk)).unwrap();
    assert_eq!(dirty, Dirty([0..1, 3..2 * of_chunk]));
}

#[test]
fn runs_of_ones_are_found() {
    let of = |bits| runs(bits).map(|Range { start, end }| (start, end)).collect::<Vec<_>>();
    assert_eq!(of(0), []);
    assert_eq!(of(u64::MAX), [(0, 64)]);
    assert_eq!(of(1 << 63), [(63, 64)]);
    assert_eq!(of(0b1011_0001 | 3 << 62), [(0, 1), (4, 6), (7, 8), (62, 64)]);
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
        // The fake's huge pages have the requested length, so that one fills its chunk.
        assert!(run.chunk == number || kind.huge_pages == HugePages::TwoMiB);
        give_back(&mut arena, run);
    }
}

/// Refuses requests of more than a page.
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
    // The failure has changed nothing.
    for run in runs {
        give_back(&mut arena, run);
    }
    assert_eq!(take(&mut arena, &file, ORDINARY, 1).0.chunk, 0);
}

#[test]
fn pages_that_the_device_may_use_are_never_taken_again_and_outlive_the_arena() {
    let (file, mut arena) = (Memory::default(), Arena::default());
    let [kept, other] = [0; 2].map(|_| take(&mut arena, &file, ORDINARY, LEAST_PAGES).0);
    let (start, end) = (at(&kept), at(&kept) + pages(LEAST_PAGES));
    arena.keep(kept);
    give_back(&mut arena, other);
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
        // Huge pages become resident as a whole, so they would hide single pages.
        real::allocate(&request.transparent_huge(false))
    }

    unsafe fn event_file(&self, _: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        Err(Errno::ENOTTY)
    }
}

/// Returns the number of pages of the arena's chunks that are in memory.
fn resident(arena: &Arena) -> usize {
    /// Bit of the eight bytes that `/proc/self/pagemap` has for each page.
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
    // SAFETY: the pages are the run's, which the test owns.
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

    // One ring of every sixteen stays, so that no chunk becomes free.
    let mut stay = Vec::new();
    for (number, run) in runs.drain(..).enumerate() {
        if number % 16 == 0 { stay.push(run) } else { drop(give_back(&mut arena, run)) }
    }
    let idle = resident(&arena) - stay.len() * COUNT;
    assert_eq!(pages(idle), IDLE);
    // Pages that were returned to the system come back, marked as dirty like all others.
    let (run, used) = take(&mut arena, &Real, ORDINARY, 4 * COUNT);
    assert_eq!(used, run.pages);
    drop(give_back(&mut arena, run));

    let mapped = |arena: &Arena| arena.chunks.iter().flatten().count();
    let before = mapped(&arena);
    for run in stay {
        drop(give_back(&mut arena, run));
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
            assert!(give_back(&mut arena, run).is_none());
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
    assert!(give_back(&mut arena, a).is_none());
    assert!(give_back(&mut arena, b).is_some());
    let (again, dirty) = arena.take(&file, huge, 2 << 20).unwrap();
    assert_eq!((again.chunk, pages(count_of(&dirty))), (0, 2 << 20));
    let giant = arena.take(&file, Kind { huge_pages: HugePages::OneGiB, ..huge }, IDLE + 1);
    assert!(give_back(&mut arena, giant.unwrap().0).is_some());
}

/// Rings of random sizes are taken and returned in any order, and write the bytes that they report.
#[test]
fn whatever_comes_and_goes_no_two_rings_share_a_page_and_each_finds_zeros() {
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
    let mut held: Vec<(Run, u8, [Range<usize>; 2])> = Vec::new();
    // The first and the last byte of each page.
    let edges = |page: usize| [pages(page), pages(page + 1) - 1];
    for step in 0..4000_u32 {
        if random(100) < 52 || held.is_empty() {
            let count = if random(40) == 0 { 1 + random(600) } else { 1 + random(12) } as usize;
            let (run, dirty) = arena.take(&Real, ORDINARY, pages(count)).unwrap();
            let mark = step as u8 | 1;
            let mut piece = || {
                let [from, to] = [(); 2].map(|()| random(count as u64 + 1) as usize);
                from.min(to)..from.max(to)
            };
            let written = [piece(), piece()];
            // SAFETY: the pages are the run's, which the test owns.
            unsafe {
                dirty.zero(run.start);
                for at in (0..count).flat_map(edges) {
                    assert_eq!(run.start.byte_add(at).read(), 0, "step {step}: zero");
                }
                for at in written.iter().cloned().flatten().flat_map(edges) {
                    run.start.byte_add(at).write(mark);
                }
            }
            held.push((run, mark, written));
        } else {
            let (run, mark, written) = held.swap_remove(random(held.len() as u64) as usize);
            for page in 0..run.pages {
                let expected = if written.iter().any(|of| of.contains(&page)) { mark } else { 0 };
                for at in edges(page) {
                    // SAFETY: the byte is in the run's pages, which the test owns.
                    let found = unsafe { run.start.byte_add(at).read() };
                    assert_eq!(found, expected, "step {step}: another ring has written here");
                }
            }
            // Reporting only the first byte of the last page is enough.
            let bytes =
                written.map(
                    |Range { start, end }| {
                        if start == end { 0..0 } else { pages(start)..pages(end - 1) + 1 }
                    },
                );
            drop(arena.give_back(run, &bytes));
        }
        let counts = arena.chunks.iter().flatten().fold((0, 0), |(used, idle), chunk| {
            let free: u32 = chunk.pages.words.iter().map(|word| word.free.count_ones()).sum();
            assert_eq!(chunk.in_use + free as usize, chunk.pages.len);
            assert!(chunk.pages.words.iter().all(|word| word.idle & !word.free == 0));
            assert!(chunk.pages.words.iter().all(|word| word.dirty & !word.free == 0));
            (used + chunk.in_use, idle + chunk.pages.idle())
        });
        assert_eq!(counts, (held.iter().map(|(run, ..)| run.pages).sum(), arena.idle));
        assert!(pages(arena.idle) <= IDLE);
    }
}
