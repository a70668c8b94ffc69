//! Regions as elements, atomics and messages.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const WRITABLE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

fn domain() -> (Simulator, ProtectionDomain) {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    (simulator, pd)
}

#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    key: u32,
    value: [u8; 8],
}

fn entry(key: u32) -> Entry {
    Entry { key, value: [key as u8; 8] }
}

#[test]
fn elements_lie_one_after_the_other_from_the_start() {
    let (_simulator, pd) = domain();
    let region = pd.memory(100).access(WRITABLE).register().unwrap();
    let entries = region.typed::<Entry>().unwrap();
    assert_eq!(entries.len(), 8);
    for index in 0..8 {
        entries.set(index, &entry(index as u32)).unwrap();
    }
    assert_eq!(entries.get(5), Ok(entry(5)));
    let mut bytes = [0; 12];
    region.read_at(5 * 12, &mut bytes).unwrap();
    assert_eq!(bytes, entry(5).as_bytes());
    let mut all = [entry(0); 8];
    entries.read(0, &mut all).unwrap();
    assert_eq!(all[7], entry(7));
    entries.write(6, &[entry(60), entry(70)]).unwrap();
    assert_eq!((entries.get(6), entries.get(7)), (Ok(entry(60)), Ok(entry(70))));
    let sge = entries.sge(2..4).unwrap();
    assert_eq!((sge.addr, sge.length), (region.addr() + 24, 24));
    let remote = entries.remote_slice(2..4).unwrap();
    assert_eq!((remote.start().addr, remote.len()), (region.addr() + 24, 2));
}

#[test]
fn elements_outside_are_refused_with_the_numbers() {
    let (_simulator, pd) = domain();
    let entries = Typed::<Entry, _>::new(Arc::new(pd.allocate(100).unwrap())).unwrap();
    let text = |error: Error| error.to_string();
    assert_eq!(
        text(entries.get(8).unwrap_err()),
        "get: elements 8..9 are not inside the region of 8 elements"
    );
    assert!(text(entries.get(usize::MAX).unwrap_err()).contains("the region of 8 elements"));
    assert!(entries.set(8, &entry(1)).is_err());
    assert!(entries.read(7, &mut [entry(0); 2]).is_err());
    assert!(entries.write(usize::MAX, &[entry(0); 2]).is_err());
    assert!(entries.sge(..9).is_err());
    assert_eq!(entries.write(8, &[]), Ok(()));
    assert_eq!(entries.sge(8..).unwrap().length, 0);
    // No peer may access it.
    assert!(text(entries.remote_slice(..).unwrap_err()).contains("no peer"));
    let small = pd.allocate(11).unwrap();
    let error = small.typed::<Entry>().unwrap_err();
    assert!(text(error).contains("region of 11 bytes has no room for an element of 12 bytes"));
}

#[test]
fn elements_of_constant_memory_are_borrowed_as_a_slice() {
    let (_simulator, pd) = domain();
    let region = pd.memory(64).access(Access::REMOTE_READ).register().unwrap();
    let mut numbers = Typed::<u32, _>::new(region).unwrap();
    numbers.set(15, &7).unwrap();
    assert_eq!(numbers.as_slice().unwrap().last(), Some(&7));
    assert_eq!(numbers.get(15), Ok(7));
    let mut region = pd.allocate(64).unwrap();
    let mut numbers = Typed::<u32, _>::new(&mut region).unwrap();
    assert!(numbers.as_slice().is_err());
}

#[test]
fn atomics_are_the_same_memory_as_the_bytes() {
    let (_simulator, pd) = domain();
    let region = pd.allocate(100).unwrap();
    let words = region.atomics().unwrap();
    assert_eq!(words.len(), 12);
    words[11].store(u64::from_ne_bytes(*b"atomics!"), Ordering::Relaxed);
    let mut bytes = [0; 8];
    region.read_at(88, &mut bytes).unwrap();
    assert_eq!(&bytes, b"atomics!");
    region.write_at(89, b"X").unwrap();
    assert_eq!(words[11].load(Ordering::Relaxed).to_ne_bytes(), *b"aXomics!");
}

#[test]
fn atomics_of_other_sizes_have_a_region_of_their_own() {
    let (simulator, pd) = domain();
    let before = simulator.object_counts(0);
    let flags = pd.memory(64).access(WRITABLE).register_atomics::<AtomicU32>().unwrap();
    assert_eq!(flags.len(), 16);
    flags[15].store(7, Ordering::Release);
    let sge = flags.sge(15..).unwrap();
    assert_eq!((sge.addr, sge.length, sge.lkey), (flags.addr() + 60, 4, flags.lkey()));
    let start = flags.remote_slice(15..).unwrap().start();
    assert_eq!((start.addr, start.rkey), (flags.addr() + 60, flags.rkey()));
    let error = flags.sge(16..=16).unwrap_err();
    assert!(
        error.to_string().contains("atomics 16..17 are not inside the region of 16 atomics"),
        "{error}"
    );
    assert_ne!(simulator.object_counts(0), before);
    flags.deregister().unwrap();
    assert_eq!(simulator.object_counts(0), before);
    assert_eq!(pd.memory(3).register_atomics::<AtomicU8>().unwrap().len(), 3);
    let error = pd.memory(63).register_atomics::<AtomicU32>().unwrap_err();
    assert!(error.to_string().contains("63 bytes are not a whole number"), "{error}");
    assert!(pd.memory(0).register_atomics::<AtomicU64>().is_err());
}

#[test]
fn atomics_and_elements_are_of_owned_memory() {
    let (_simulator, pd) = domain();
    let mut page = vec![0_u64; 8];
    // SAFETY: the vector outlives the region and is not accessed while it is registered.
    let region = unsafe { pd.reg_mr(page.as_mut_ptr().cast(), 64, Access::LOCAL_WRITE) }.unwrap();
    assert!(region.atomics().is_err() && region.typed::<u64>().is_err());
    drop(region);
    // A vector handed over is owned memory. It may start anywhere.
    let region = pd.register(vec![0_u64; 8], Access::LOCAL_WRITE).unwrap();
    assert_eq!(region.atomics().unwrap().len(), 8);
}

/// Writes the frame to its place in the region, as a peer's device does.
fn arrive(region: &MemoryRegion, to: RemoteAddress, bytes: &[u8]) {
    region.write_at((to.addr - region.addr()) as usize, bytes).unwrap();
}

#[test]
fn messages_are_taken_in_order_over_many_laps() {
    let (_simulator, pd) = domain();
    for slots in 1..5 {
        let region = pd.memory(32 * slots + 7).access(WRITABLE).register().unwrap();
        let mut ring = MessageRing::<[u64; 2], _>::new(region).unwrap();
        assert_eq!(ring.slots(), slots);
        let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
        let mut next = 0;
        for burst in [1, slots, slots, 1, slots, slots] {
            for number in next..next + burst as u64 {
                let (to, frame) = writer.push([number, !number]).expect("room");
                arrive(ring.region(), to, frame.as_bytes());
            }
            for number in next..next + burst as u64 {
                assert_eq!(ring.take(), Ok(Some([number, !number])));
            }
            assert_eq!(ring.take(), Ok(None));
            next += burst as u64;
            writer.taken(ring.taken()).unwrap();
            assert_eq!((writer.room(), writer.written()), (slots, next));
        }
    }
}

#[test]
fn a_writer_stops_at_a_full_ring_and_believes_no_nonsense() {
    let (_simulator, pd) = domain();
    let region = pd.memory(96).access(WRITABLE).register().unwrap();
    let ring = MessageRing::<u64, _>::new(&region).unwrap();
    let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
    for _ in 0..4 {
        assert!(writer.push(1).is_some());
    }
    assert!(writer.push(1).is_none());
    assert!(writer.taken(5).is_err());
    writer.taken(1).unwrap();
    writer.taken(0).unwrap();
    assert!(writer.push(1).is_some() && writer.push(1).is_none());
}

/// Writes only those words of a frame that are set in `which`, like a device that keeps no order.
fn arrive_words(region: &MemoryRegion, to: RemoteAddress, frame: &[u8], which: u32) {
    for (index, word) in frame.chunks_exact(8).enumerate() {
        if which & 1 << index != 0 {
            let to = RemoteAddress { addr: to.addr + 8 * index as u64, ..to };
            arrive(region, to, word);
        }
    }
}

#[test]
fn torn_message_is_not_taken_whichever_words_have_arrived() {
    let (_simulator, pd) = domain();
    const WORDS: u32 = 5;
    for which in 0..1 << WORDS {
        let region = pd.memory(80).access(WRITABLE).register().unwrap();
        let mut ring = MessageRing::<[u64; 3], _>::new(&region).unwrap();
        let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
        // Each lap finds the words of the previous lap.
        for lap in 0..3 {
            for slot in 0..2 {
                let value = [1, 2, 3].map(|word| word << 32 | lap << 8 | slot);
                let (to, frame) = writer.push(value).unwrap();
                arrive_words(&region, to, frame.as_bytes(), which);
                if which != (1 << WORDS) - 1 {
                    assert_eq!(ring.take(), Ok(None), "lap {lap}, words {which:#b}");
                }
                arrive_words(&region, to, frame.as_bytes(), !which);
                assert_eq!(ring.take(), Ok(Some(value)), "lap {lap}, words {which:#b}");
                writer.taken(ring.taken()).unwrap();
            }
        }
    }
}

#[test]
fn message_whose_number_has_arrived_in_part_is_waited_for() {
    let (_simulator, pd) = domain();
    let region = pd.memory(24).access(WRITABLE).register().unwrap();
    let mut ring = MessageRing::<u64, _>::new(&region).unwrap();
    let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
    for value in 0..600 {
        let (to, frame) = writer.push(value).unwrap();
        // From 255 to 256 two bytes change: here the second one arrives first.
        let second = RemoteAddress { addr: to.addr + 1, ..to };
        arrive(&region, second, &frame.as_bytes()[1..8]);
        assert_eq!(ring.take(), Ok(None), "{value}");
        arrive(&region, to, frame.as_bytes());
        assert_eq!(ring.take(), Ok(Some(value)));
        writer.taken(ring.taken()).unwrap();
    }
}

#[test]
fn message_of_another_place_in_the_ring_is_not_taken() {
    let (_simulator, pd) = domain();
    let region = pd.memory(96).access(WRITABLE).register().unwrap();
    let mut ring = MessageRing::<u64, _>::new(&region).unwrap();
    let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
    let (to, first) = writer.push(7).unwrap();
    let (_, second) = writer.push(7).unwrap();
    // The same value and its check, with the number of another message.
    let mixed = [&first.as_bytes()[..16], &second.as_bytes()[16..]].concat();
    arrive(&region, to, &mixed);
    assert_eq!(ring.take(), Ok(None));
    arrive(&region, to, first.as_bytes());
    assert_eq!(ring.take(), Ok(Some(7)));
}

#[test]
fn number_older_than_the_lap_before_is_an_error_and_no_empty_slot() {
    let (_simulator, pd) = domain();
    let region = pd.memory(48).access(WRITABLE).register().unwrap();
    let mut ring = MessageRing::<u64, _>::new(&region).unwrap();
    let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
    let mut frames = Vec::new();
    // Three laps of two slots.
    for value in 0..6 {
        let (to, frame) = writer.push(value).unwrap();
        arrive(&region, to, frame.as_bytes());
        assert_eq!(ring.take(), Ok(Some(value)));
        writer.taken(ring.taken()).unwrap();
        frames.push((to, frame));
    }
    assert_eq!(ring.take(), Ok(None));
    // Message 7 is next. Its slot held messages 1, 3 and 5, and was empty at first.
    for older in [0, 2] {
        let (to, frame) = &frames[older];
        arrive(&region, *to, frame.as_bytes());
        let error = ring.take().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongState);
        let number = older + 1;
        assert!(error.to_string().contains(&format!("number {number} instead of 7")), "{error}");
    }
    // Without its check no number counts.
    arrive(&region, frames[0].0, &[0; 8]);
    assert_eq!(ring.take(), Ok(None));
    // A wrong slot may become right.
    let (to, frame) = writer.push(8).unwrap();
    arrive(&region, to, frame.as_bytes());
    assert_eq!(ring.take(), Ok(Some(8)));
}

#[test]
fn a_peer_that_overruns_the_ring_is_found_out() {
    let (_simulator, pd) = domain();
    let region = pd.memory(96).access(WRITABLE).register().unwrap();
    let mut ring = MessageRing::<u64, _>::new(&region).unwrap();
    let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
    for _ in 0..2 {
        for _ in 0..4 {
            let (to, frame) = writer.push(7).unwrap();
            arrive(&region, to, frame.as_bytes());
        }
        writer.taken(4).unwrap();
    }
    let error = ring.take().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(error.to_string().contains("number 5 instead of 1"), "{error}");
}

#[test]
fn old_contents_of_a_region_are_no_messages() {
    let (_simulator, pd) = domain();
    let region = pd.memory(96).access(WRITABLE).register().unwrap();
    region.typed::<u64>().unwrap().write(0, &[1; 12]).unwrap();
    assert_eq!(MessageRing::<u64, _>::new(&region).unwrap().take(), Ok(None));
    region.typed::<u64>().unwrap().write(0, &[9; 12]).unwrap();
    assert_eq!(MessageSlots::<u64, _>::new(&region).unwrap().read(0), Ok(None));
}

#[test]
fn second_ring_on_a_region_takes_no_message_of_the_first_whichever_words_have_arrived() {
    let (_simulator, pd) = domain();
    const WORDS: u32 = 4;
    for which in 0..(1 << WORDS) - 1 {
        let region = pd.memory(64).access(WRITABLE).register().unwrap();
        let session = |old: u64| {
            let mut ring = MessageRing::<[u64; 2], _>::new(&region).unwrap();
            let mut writer = MessageRingWriter::new(ring.remote_slice().unwrap());
            for number in 1..3 {
                let value = [old << 8 | number, !old];
                let (to, frame) = writer.push(value).unwrap();
                arrive_words(&region, to, frame.as_bytes(), which);
                assert_eq!(ring.take(), Ok(None), "message {number} of {old}, words {which:#b}");
                arrive_words(&region, to, frame.as_bytes(), !which);
                assert_eq!(ring.take(), Ok(Some(value)), "session {old}, words {which:#b}");
            }
        };
        (1..4).for_each(session);
    }
}

#[test]
fn second_slots_on_a_region_have_no_value_of_the_first_whichever_words_have_arrived() {
    let (_simulator, pd) = domain();
    const WORDS: u32 = 4;
    for which in 0..(1 << WORDS) - 1 {
        let region = pd.memory(64).access(WRITABLE).register().unwrap();
        for session in 1..4_u64 {
            let slots = MessageSlots::<[u64; 2], _>::new(&region).unwrap();
            for slot in 0..2 {
                let mut writer =
                    MessageSlotWriter::new(slots.remote_slice().unwrap(), slot).unwrap();
                let value = [session << 8 | slot as u64, !session];
                let (to, frame) = writer.push(value);
                arrive_words(&region, to, frame.as_bytes(), which);
                let seen = slots.read(slot);
                assert_eq!(seen, Ok(None), "slot {slot}, session {session}, words {which:#b}");
                arrive_words(&region, to, frame.as_bytes(), !which);
                assert_eq!(slots.read(slot), Ok(Some((1, value))), "words {which:#b}");
            }
        }
    }
}

#[test]
fn memory_that_no_peer_may_write_is_no_ring() {
    let (_simulator, pd) = domain();
    let refused = |access: Access, len: usize| {
        let region = pd.memory(len).access(access).register().unwrap();
        let ring = MessageRing::<u64, _>::new(&region).unwrap_err();
        let slots = MessageSlots::<u64, _>::new(&region).unwrap_err();
        (ring.to_string(), slots.to_string())
    };
    for (access, len, why) in
        [(Access::LOCAL_WRITE | Access::REMOTE_READ, 64, "REMOTE_WRITE"), (WRITABLE, 23, "no room")]
    {
        let (ring, slots) = refused(access, len);
        assert!(ring.contains(why) && slots.contains(why), "{ring}; {slots}");
    }
    // The order in which bytes arrive does not matter.
    let relaxed = WRITABLE | Access::RELAXED_ORDERING;
    let region = pd.memory(64).access(relaxed).register().unwrap();
    assert_eq!(MessageRing::<u64, _>::new(&region).unwrap().slots(), 2);
    assert_eq!(MessageSlots::<u64, _>::new(&region).unwrap().len(), 2);
}

#[test]
fn a_slot_has_the_last_whole_value() {
    let (_simulator, pd) = domain();
    let region = pd.memory(4096).access(WRITABLE).register().unwrap();
    let slots = MessageSlots::<[u64; 4], _>::new(&region).unwrap();
    assert_eq!(slots.len(), 4096 / 48);
    let mut writer = MessageSlotWriter::new(slots.remote_slice().unwrap(), 3).unwrap();
    assert_eq!(slots.read(3), Ok(None));
    for version in 1..4 {
        let (to, frame) = writer.push([version; 4]);
        arrive(&region, to, frame.as_bytes());
        assert_eq!(slots.read(3), Ok(Some((version, [version; 4]))));
        assert_eq!(writer.version(), version);
    }
    assert_eq!((slots.read(2), slots.read(4)), (Ok(None), Ok(None)));
    // A write of which only some words have arrived.
    for which in 1..(1 << 6) - 1 {
        let (version, old) = slots.read(3).unwrap().unwrap();
        let (to, frame) = writer.push([version << 32 | 1; 4]);
        arrive_words(&region, to, frame.as_bytes(), which);
        assert_eq!(slots.read(3), Ok(None), "words {which:#b} over version {version} of {old:?}");
        arrive(&region, to, frame.as_bytes());
        assert_eq!(slots.read(3), Ok(Some((version + 1, [version << 32 | 1; 4]))));
    }
    let error = MessageSlotWriter::new(slots.remote_slice().unwrap(), 85).unwrap_err();
    assert!(error.to_string().contains("elements 85..86"), "{error}");
    let error = slots.read(slots.len()).unwrap_err();
    assert!(error.to_string().contains("slot 85 of 85"), "{error}");
}

/// Returns a number for a test of random order, and advances the state.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn a_reader_beside_a_writer_sees_whole_values_alone() {
    let (_simulator, pd) = domain();
    let region = pd.memory(4096).access(WRITABLE).register().unwrap();
    let slots = MessageSlots::<[u64; 16], _>::new(&region).unwrap();
    const LAST: u64 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = MessageSlotWriter::new(slots.remote_slice().unwrap(), 0).unwrap();
            let (words, mut state) = (region.atomics().unwrap(), 1);
            let mut order: [usize; 18] = std::array::from_fn(|word| word);
            for version in 1..=LAST {
                let (_, frame) = writer.push([version * 3; 16]);
                // Word by word in a random order, like a device that keeps none.
                for left in (1..order.len()).rev() {
                    order.swap(left, random(&mut state) % (left + 1));
                }
                for word in order {
                    let bytes = frame.as_bytes()[word * 8..][..8].try_into().unwrap();
                    words[word].store(u64::from_ne_bytes(bytes), Ordering::Release);
                }
            }
        });
        let mut seen = 0;
        while seen < LAST {
            if let Some((version, value)) = slots.read(0).unwrap() {
                assert!(version >= seen);
                assert_eq!(value, [version * 3; 16]);
                seen = version;
            }
        }
    });
}
