//! Receive queues with strides, as a kernel's network interface has them. Their WQEs form a list,
//! and a send queue sets the pages of the key over their memory.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::ethernet::striding;
use mlx5_prm::event::EventType;
use mlx5_prm::umr::umr_flags;

use super::*;
use crate::dma::Buffer;
use crate::engine::fault::Violation;
use crate::engine::tests::registration::Umr;
use crate::engine::{Access, Event, MkeyConfig, QpState, Registers, Strides, Translation};
use crate::frame::samples::plain;

/// Eight strides of 64 bytes.
const STRIDES: Strides = Strides { log_bytes: 6, log_count: 3, shifted: false, linked: true };
const COUNT: u32 = 8;
/// Bytes of a WQE.
const ROOM: usize = 512;

fn config(strides: Strides) -> ReceiveQueueConfig {
    ReceiveQueueConfig { strides: Some(strides), counter_set: 9, ..ReceiveQueueConfig::default() }
}

/// Two devices, of which the second receives.
fn pair() -> (Rig, Nic, Nic) {
    let rig = rig(2);
    let (one, two) = (Nic::new(&rig, 0), Nic::with(&rig, 1, config(STRIDES)));
    (rig, one, two)
}

/// Contents of a completion: WQE, first stride, number of strides, and the packet if there is one.
type Told = (u16, u16, u32, Option<Vec<u8>>);

impl Nic {
    /// Posts a WQE whose list has another one after it.
    fn list(&mut self, index: u16, next: u16) {
        let at = self.received.at(usize::from(index) * ROOM);
        self.rq.post_listed(index, next, &[data(at, ROOM as u32, self.received.key)]);
    }

    #[track_caller]
    fn told(&mut self) -> Told {
        let completion = self.cq.expect();
        assert_eq!(completion.opcode, CqeOpcode::ResponderSend);
        let (wqe, stride, word) =
            (completion.cqe.wqe_id.get(), completion.wqe(), completion.bytes());
        let strides = word >> striding::STRIDES_SHIFT & striding::STRIDES_MASK;
        let bytes = (word & striding::BYTES_MASK) as usize;
        let packet = (word & striding::FILLER == 0).then(|| {
            self.received.memory.read(usize::from(wqe) * ROOM + usize::from(stride) * 64, bytes)
        });
        assert!(packet.is_some() || bytes == 0);
        (wqe, stride, strides, packet)
    }

    /// Takes the completion of a receive that failed: its WQE, its strides, and the syndrome.
    #[track_caller]
    fn failed(&mut self) -> (u16, u32, Syndrome) {
        let completion = self.cq.expect();
        assert_eq!(completion.opcode, CqeOpcode::ResponderError);
        let error = &completion.error;
        assert_eq!(error.wqe_counter, error.wqe_id);
        let strides = error.byte_count.get() >> striding::STRIDES_SHIFT;
        (error.wqe_id.get(), strides, completion.syndrome())
    }
}

#[test]
fn packets_lie_stride_by_stride_in_wqes_as_the_list_has_them() {
    let (rig, mut one, mut two) = pair();
    two.list(0, 5);
    two.list(5, 2);
    two.list(2, 7);
    // A full stride, one byte more, several, and the last one; then the next WQE of the list, which
    // is not the next of the ring.
    for (bytes, wqe, stride, strides) in
        [(60, 0, 0, 1), (64, 0, 1, 1), (65, 0, 2, 2), (200, 0, 4, 4), (512, 5, 0, 8), (60, 2, 0, 1)]
    {
        one.post(&plain(bytes));
        rig.run();
        assert_eq!(two.told(), (wqe, stride, strides, Some(plain(bytes))));
    }
    two.cq.expect_none();
    let counts = rig.lock().device(1).frame_counts();
    assert_eq!((counts.delivered, counts.out_of_buffer), (6, 0));
}

#[test]
fn strides_that_are_too_few_are_skipped_and_told() {
    let (rig, mut one, mut two) = pair();
    two.list(0, 3);
    two.list(3, 6);
    one.post(&plain(300));
    one.post(&plain(256));
    // It fits exactly in the rest.
    one.post(&plain(256));
    rig.run();
    assert_eq!(two.told(), (0, 0, 5, Some(plain(300))));
    assert_eq!(two.told(), (0, 5, 3, None));
    assert_eq!(two.told(), (3, 0, 4, Some(plain(256))));
    assert_eq!(two.told(), (3, 4, 4, Some(plain(256))));
    two.cq.expect_none();
}

#[test]
fn a_packet_without_strides_is_dropped_and_counted_and_later_ones_arrive() {
    let (rig, mut one, mut two) = pair();
    two.list(0, 4);
    one.post(&plain(400));
    one.post(&plain(100));
    one.post(&plain(60));
    rig.run();
    assert_eq!(two.told(), (0, 0, 7, Some(plain(400))));
    // The last stride is too small for the second frame. No other WQE waits, so that frame is lost.
    assert_eq!(two.told(), (0, 7, 1, None));
    two.cq.expect_none();
    let counts = rig.lock().device(1).frame_counts();
    assert_eq!((counts.delivered, counts.out_of_buffer, counts.too_long), (1, 2, 0));
    assert_eq!(rig.lock().device(1).out_of_buffer(9), 2);
    two.list(4, 1);
    one.post(&plain(61));
    // A frame longer than a WQE.
    one.post(&plain(ROOM + 1));
    rig.run();
    assert_eq!(two.told(), (4, 0, 1, Some(plain(61))));
    two.cq.expect_none();
    let counts = rig.lock().device(1).frame_counts();
    assert_eq!((counts.delivered, counts.out_of_buffer, counts.too_long), (2, 2, 1));
    assert!(rig.lock().device_mut(1).take_violations().is_empty());
}

/// Every WQE follows every other at some time, and there are enough of them for the counter to
/// wrap.
#[test]
fn lists_go_on_in_any_order_and_counters_wrap() {
    let (rig, mut one, mut two) = pair();
    let frames = [plain(ROOM), plain(ROOM - 64)];
    let before = u16::MAX - 100;
    rig.lock().device_mut(1).qps.get_mut(two.rq.qpn).expect("an RQ").rq_consumed = before;
    two.rq.receives = before;
    let mut random = 0x5eed_u32;
    let (mut here, mut last) = (0, 0);
    for step in 0..300 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let next = (here + 1 + (random >> 16) as u16 % 7) % 8;
        two.list(here, next);
        // The second frame leaves one stride free, which the device skips for the first.
        let frame = &frames[step % 2];
        one.post(frame);
        rig.run();
        one.send_cq.expect();
        if step % 2 == 0 && step > 0 {
            assert_eq!(two.told(), (last, 7, 1, None));
        }
        let strides = COUNT - (step % 2) as u32;
        assert_eq!(two.told(), (here, 0, strides, Some(frame.clone())));
        (last, here) = (here, next);
    }
    two.cq.expect_none();
    // The last WQE has a stride left.
    assert_eq!(rig.query(&two.rq).hw_rq_counter, before.wrapping_add(299));
}

#[test]
fn a_packet_that_fails_takes_its_strides_and_leaves_the_wqe_to_the_next() {
    let (rig, mut one, mut two) = pair();
    let key = two.received.key;
    two.rq.post_listed(0, 3, &[data(two.received.at(0), 256, key)]);
    two.rq.post_listed(3, 6, &[data(two.received.at(3 * ROOM), 256, key)]);
    two.list(6, 1);
    two.list(1, 2);
    // The memory of the first two WQEs covers only half of their strides.
    for length in [200, 100, 60, ROOM, ROOM, 60] {
        one.post(&plain(length));
    }
    rig.run();
    assert_eq!(two.told(), (0, 0, 4, Some(plain(200))));
    assert_eq!(two.failed(), (0, 2, Syndrome::LocalLength));
    assert_eq!(two.failed(), (0, 1, Syndrome::LocalLength));
    // The rest of it is too small.
    assert_eq!(two.told(), (0, 7, 1, None));
    assert_eq!(two.failed(), (3, 8, Syndrome::LocalLength));
    assert_eq!(two.told(), (6, 0, 8, Some(plain(ROOM))));
    assert_eq!(two.told(), (1, 0, 1, Some(plain(60))));
    two.cq.expect_none();
    assert_eq!(rig.lock().device(1).frame_counts().too_long, 3);
}

#[test]
fn a_queue_that_fails_is_flushed_along_its_list_and_begins_again() {
    let (rig, mut one, mut two) = pair();
    two.list(0, 6);
    two.rq.post_listed(6, 2, &[data(two.received.at(0), ROOM as u32, two.received.key ^ 1)]);
    two.list(2, 7);
    two.list(7, 1);
    one.post(&plain(ROOM));
    one.post(&plain(ROOM));
    one.post(&plain(60));
    rig.run();
    assert_eq!(two.told(), (0, 0, 8, Some(plain(ROOM))));
    assert_eq!(two.failed(), (6, 8, Syndrome::LocalProtection));
    assert_eq!(two.failed(), (2, 0, Syndrome::WorkRequestFlushed));
    assert_eq!(two.failed(), (7, 0, Syndrome::WorkRequestFlushed));
    two.cq.expect_none();
    assert_eq!(rig.query(&two.rq).state, QpState::Error);
    // The queue begins with the first WQE and the first stride.
    for round in 0..2 {
        for state in [QpState::Reset, QpState::Rtr] {
            rig.lock().device_mut(1).set_queue_state(two.rq.qpn, state).expect("an RQ");
        }
        two.rq.receives = 0;
        two.list(0, 3);
        two.list(3, 4);
        one.post(&plain(60 + round));
        one.post(&plain(ROOM));
        rig.run();
        assert_eq!(two.told(), (0, 0, 1, Some(plain(60 + round))));
        assert_eq!(two.told(), (0, 1, 7, None));
        assert_eq!(two.told(), (3, 0, 8, Some(plain(ROOM))));
        // A WQE that is partly used, and two that wait.
        two.list(4, 2);
        two.list(2, 5);
        two.list(5, 0);
        one.post(&plain(60));
        rig.run();
        assert_eq!(two.told(), (4, 0, 1, Some(plain(60))));
        rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Error).expect("an RQ");
        rig.run();
        for wqe in [4, 2, 5] {
            assert_eq!(two.failed(), (wqe, 0, Syndrome::WorkRequestFlushed));
        }
        two.cq.expect_none();
    }
    // A queue that never failed begins there, too.
    rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Reset).expect("an RQ");
    two.rq.receives = 0;
    for round in 0..2 {
        rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Rtr).expect("an RQ");
        two.list(0, 3);
        one.post(&plain(60 + round));
        rig.run();
        assert_eq!(two.told(), (0, 0, 1, Some(plain(60 + round))));
        rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Reset).expect("an RQ");
        two.rq.receives = 0;
        two.cq.expect_none();
    }
}

#[test]
fn a_list_that_leads_out_of_its_ring_fails_the_queue() {
    let (rig, mut one, mut two) = pair();
    two.list(0, 8);
    // The record announces two more.
    two.list(1, 2);
    two.list(2, 3);
    for _ in 0..3 {
        one.post(&plain(ROOM));
    }
    rig.run();
    assert_eq!(two.told(), (0, 0, 8, Some(plain(ROOM))));
    two.cq.expect_none();
    let astray = Violation::ReceiveList { rqn: two.rq.qpn, index: 8 };
    assert_eq!(rig.lock().device_mut(1).take_violations(), [astray]);
    let kind = EventType::WQ_CATAS_ERROR;
    let failed = Event::WorkQueue { number: two.rq.qpn, receive: true, kind };
    assert_eq!(rig.events(1), [failed]);
    assert_eq!(rig.query(&two.rq).state, QpState::Error);
    assert_eq!(rig.lock().device(1).frame_counts().not_ready, 1);
}

/// The same if no frame arrived before that would have found the error.
#[test]
fn a_list_that_leads_out_of_its_ring_is_flushed_as_far_as_it_goes() {
    let (rig, _one, mut two) = pair();
    two.list(0, 9);
    two.list(1, 2);
    rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Error).expect("an RQ");
    rig.run();
    assert_eq!(two.failed(), (0, 0, Syndrome::WorkRequestFlushed));
    two.cq.expect_none();
    let astray = Violation::ReceiveList { rqn: two.rq.qpn, index: 9 };
    assert_eq!(rig.lock().device_mut(1).take_violations(), [astray]);
}

const PAGE: usize = 4096;

/// A free key of `pages` pages, all of them the same.
fn mapped(rig: &Rig, pd: u32, filler: u64, pages: usize) -> u32 {
    let config = MkeyConfig {
        pd,
        access: Access::LOCAL_READ | Access::LOCAL_WRITE,
        length: (pages * PAGE) as u64,
        translation: Translation::Buffer(Buffer::paged(vec![filler; pages], 12, 0)),
        translation_octwords: pages as u32 / 2,
        umr: true,
        free: true,
        ..MkeyConfig::default()
    };
    rig.key(1, config)
}

/// The request that sets a key's pages from index `first` on.
fn map(key: u32, first: usize, pages: &[u64]) -> Wqe {
    // The kernel sets the bits of a page's rights, which are no part of its address.
    let entries = pages.iter().flat_map(|page| (page | 3).to_be_bytes()).collect();
    let mut umr = Umr::new(key).flags(umr_flags::TRANSLATION_OFFSET).free(false).entries(entries);
    umr.control.offset_or_bsf_octowords = (first as u16 / 2).into();
    umr.wqe()
}

#[test]
fn a_kernels_send_queue_puts_pages_behind_the_key_of_receives() {
    let rig = rig(2);
    let mut one = Nic::new(&rig, 0);
    // 64 strides of 64 bytes.
    let mut two = Nic::with(&rig, 1, config(Strides { log_count: 6, ..STRIDES }));
    let (mut cq, memory, spare) = (rig.cq(1, 5, 64), rig.region(1, 8 * PAGE), rig.region(1, PAGE));
    let mut sq = rig.sq_with(1, &cq, 7, Registers::Pages);
    let key = mapped(&rig, rig.pds[1], spare.at(0), 24);
    let pages: Vec<u64> = (0..8).rev().map(|page| memory.at(page * PAGE)).collect();
    // Consecutive requests without fences, of which only the last completes, as in the kernel.
    sq.post(&map(key, 8, &pages).unsignaled());
    let last = sq.post(&map(key, 16, &pages));
    rig.run();
    assert_eq!(cq.expect().wqe(), last);
    cq.expect_none();
    assert!(rig.lock().device_mut(1).take_violations().is_empty());
    assert!(!rig.mkey(1, key).free);
    // In the second page, across its end, and on the page that was there from the start.
    for (index, address, lies) in
        [(0, 9 * PAGE + 2, &memory), (1, 18 * PAGE - 1000, &memory), (2, 7 * PAGE, &spare)]
    {
        two.rq.post_listed(index, index + 1, &[data(address as u64, PAGE as u32, key)]);
        one.post(&plain(1400));
        one.post(&plain(1400));
        // It uses up the WQE.
        one.post(&plain(1280));
        rig.run();
        for (stride, strides, bytes) in [(0, 22, 1400), (22, 22, 1400), (44, 20, 1280)] {
            let completion = two.cq.expect();
            assert_eq!((completion.cqe.wqe_id.get(), completion.wqe()), (index, stride));
            let word = strides << striding::STRIDES_SHIFT | bytes as u32;
            assert_eq!(completion.bytes(), word);
            let found: Vec<u8> = (0..bytes)
                .flat_map(|n| {
                    let at = address + usize::from(stride) * 64 + n;
                    let page = if at / PAGE < 8 { 0 } else { 7 - at / PAGE % 8 };
                    lies.memory.read(page * PAGE + at % PAGE, 1)
                })
                .collect();
            assert_eq!(found, plain(bytes), "WQE {index}, stride {stride}");
        }
    }
}

#[test]
fn no_other_send_queue_names_pages() {
    let rig = rig(2);
    let other = rig.lock().device_mut(1).alloc_pd().expect("a domain");
    let memory = rig.region(1, PAGE);
    let pages = [memory.at(0); 8];
    let bind = Syndrome::MemoryWindowBind;
    for (registers, pd, first, syndrome) in [
        (Registers::Nothing, rig.pds[1], 0, Syndrome::LocalQpOperation),
        (Registers::Keys, rig.pds[1], 0, bind),
        (Registers::Pages, other, 0, bind),
        // They would end after the end of the key.
        (Registers::Pages, rig.pds[1], 2, bind),
    ] {
        let mut cq = rig.cq(1, 5, 64);
        let mut sq = rig.sq_with(1, &cq, 7, registers);
        let key = mapped(&rig, pd, 0, 8);
        sq.post(&map(key, first, &pages));
        rig.run();
        assert_eq!(cq.expect_error(), (0, syndrome), "{registers:?}");
        assert!(rig.mkey(1, key).free);
    }
}

/// A send queue may change a key that programs configure, as a queue pair may.
#[test]
fn a_programs_send_queue_changes_its_keys() {
    let rig = rig(2);
    let mut cq = rig.cq(1, 5, 64);
    let mut sq = rig.sq_with(1, &cq, 7, Registers::Keys);
    let (region, key) = (rig.region(1, 64), rig.free_key(1, 4));
    sq.post(&Umr::new(key).free(false).range(0, 8).list(&[(region.key, region.at(0), 8)]).wqe());
    rig.run();
    assert_eq!(cq.expect().opcode, CqeOpcode::Requester);
    assert!(!rig.mkey(1, key).free);
}
