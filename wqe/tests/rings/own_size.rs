//! Operations of fixed size: atomics, memory windows, NOPs, raw WQEs.

use crate::bed::{Bed, Spec};
use crate::by_hand::{QPN, REMOTE, SRQN, Wqe, least, sges};
use mlx5_wqe::operation::Supports;
use mlx5_wqe::{
    Batch, BindParts, Binding, Data, ListTransport, MaskedOperands, Operation, PostError,
    RawPacket, RawWqe, RawWqeError, Rc, SendFlags, SendLayout, SendOps, SendWr, Sge, Uc, Ud,
    UnsupportedOperation, WindowType, XrcSend, operation,
};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const RESULT: Sge = Sge { addr: 0x1111_2222_3333_4444, length: 8, lkey: 0x5566_7788 };

/// Posts a request in the typed form and in the list form, and compares bytes, doorbells and
/// records.
fn check<T: ListTransport>(
    bed: &mut Bed<T>,
    build: impl Fn(&mut Batch<'_, T>, u64),
    wr: SendWr<'_>,
    by_hand: impl Fn(u16) -> Wqe,
    opcode: u8,
) {
    for list in [false, true] {
        bed.advance();
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        if list {
            bed.queue.post_send(&[SendWr { wr_id: 7, flags: SIGNALED, ..wr }]).unwrap();
        } else {
            let mut batch = bed.queue.wr_start();
            build(&mut batch, 7);
            assert_eq!(batch.len(), 1);
            batch.complete().unwrap();
        }
        bed.assert_rang_alone(first.into(), &by_hand(first), &uar);
        let completed = bed.retire(first.into()).unwrap();
        assert_eq!((completed.wr_id, completed.info.opcode_bits()), (7, opcode));
        assert_eq!(usize::from(completed.info.blocks()), by_hand(first).blocks());
        assert!(completed.info.signaled());
        // After a rewritten key, this request takes the small fence.
        bed.advance();
    }
}

fn eight(value: u64) -> [u8; 8] {
    value.to_be_bytes()
}

const COMPARE: u64 = 0x0102_0304_0506_0708;
const SWAP: u64 = 0x1112_1314_1516_1718;
const MASKED: MaskedOperands = MaskedOperands {
    compare: COMPARE,
    compare_mask: 0xff00_ff00_ff00_ff00,
    swap: SWAP,
    swap_mask: 0x00ff_00ff_00ff_00ff,
};

#[test]
fn atomics_have_their_operands_behind_the_remote_address() {
    let mut bed = Bed::<Rc>::new(Spec { sges: 1, ..Spec::default() });
    check(
        &mut bed,
        |batch, id| batch.wr(id, SIGNALED).atomic_cmp_swp(REMOTE, COMPARE, SWAP).sge(RESULT),
        SendWr {
            operation: Operation::CompareSwap { remote: REMOTE, compare: COMPARE, swap: SWAP },
            data: Data::Sges(&[RESULT]),
            ..SendWr::default()
        },
        |at| {
            let wqe = Wqe::control(0x11, at, 0x08, [0; 4]).remote(REMOTE);
            wqe.with(&eight(SWAP)).with(&eight(COMPARE)).sge(RESULT)
        },
        0x11,
    );
    check(
        &mut bed,
        |batch, id| batch.wr(id, SIGNALED).atomic_fetch_add(REMOTE, SWAP).sge_list(&[RESULT]),
        SendWr {
            operation: Operation::FetchAdd { remote: REMOTE, add: SWAP },
            data: Data::Sges(&[RESULT]),
            ..SendWr::default()
        },
        |at| {
            let wqe = Wqe::control(0x12, at, 0x08, [0; 4]).remote(REMOTE);
            wqe.with(&eight(SWAP)).with(&[0; 8]).sge(RESULT)
        },
        0x12,
    );
    // One block, so that the queue needs no more than for any request.
    assert_eq!(bed.layout.max_request_blocks, 1);
}

#[test]
fn atomics_of_an_extended_connection_name_the_shared_receive_queue_first() {
    let mut bed = Bed::<XrcSend>::new(Spec { sges: 1, ..Spec::default() });
    let srqn = Some(SRQN);
    check(
        &mut bed,
        |batch, id| {
            let wr = batch.wr(id, SIGNALED).atomic_cmp_swp(REMOTE, COMPARE, SWAP);
            wr.xrc_srqn(SRQN).sge(RESULT);
        },
        SendWr {
            operation: Operation::CompareSwap { remote: REMOTE, compare: COMPARE, swap: SWAP },
            data: Data::Sges(&[RESULT]),
            xrc_srqn: srqn,
            ..SendWr::default()
        },
        |at| {
            let wqe = Wqe::control(0x11, at, 0x08, [0; 4]).srqn().remote(REMOTE);
            wqe.with(&eight(SWAP)).with(&eight(COMPARE)).sge(RESULT)
        },
        0x11,
    );
    // Five units.
    assert_eq!(bed.layout.max_request_blocks, 2);
}

#[test]
fn masked_atomics_say_so_in_the_modifier() {
    let mut bed = Bed::<Rc>::new(Spec { sges: 1, ..Spec::default() });
    let extended = |mut wqe: Wqe| {
        wqe.bytes[0] = 9;
        wqe
    };
    check(
        &mut bed,
        |batch, id| batch.wr(id, SIGNALED).masked_cmp_swp(REMOTE, MASKED).sge(RESULT),
        SendWr {
            operation: Operation::MaskedCompareSwap { remote: REMOTE, operands: MASKED },
            data: Data::Sges(&[RESULT]),
            ..SendWr::default()
        },
        |at| {
            let wqe = Wqe::control(0x14, at, 0x08, [0; 4]).remote(REMOTE);
            let wqe = wqe.with(&eight(SWAP)).with(&eight(COMPARE));
            let wqe = wqe.with(&eight(MASKED.swap_mask)).with(&eight(MASKED.compare_mask));
            extended(wqe.sge(RESULT))
        },
        0x14,
    );
    check(
        &mut bed,
        |batch, id| batch.wr(id, SIGNALED).masked_fetch_add(REMOTE, SWAP, 1 << 63).sge(RESULT),
        SendWr {
            operation: Operation::MaskedFetchAdd { remote: REMOTE, add: SWAP, boundary: 1 << 63 },
            data: Data::Sges(&[RESULT]),
            ..SendWr::default()
        },
        |at| {
            let wqe = Wqe::control(0x15, at, 0x08, [0; 4]).remote(REMOTE);
            extended(wqe.with(&eight(SWAP)).with(&eight(1 << 63)).sge(RESULT))
        },
        0x15,
    );
}

#[test]
fn an_atomic_returns_eight_bytes_into_one_entry() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let four = Sge { length: 4, ..RESULT };
    let none = Sge { length: 0, ..RESULT };
    let cases: [(&[Sge], u32, u32); 5] = [
        (&[], 0, 0),
        (&[none], 1, 0),
        (&[four], 1, 4),
        (&[RESULT, RESULT], 2, 8),
        (&[Sge { length: u32::MAX, ..RESULT }], 1, u32::MAX),
    ];
    for (sges, entries, length) in cases {
        let operation = Operation::FetchAdd { remote: REMOTE, add: 1 };
        let wr = SendWr { operation, data: Data::Sges(sges), ..SendWr::default() };
        let error = bed.queue.post_send(&[wr]).unwrap_err().error();
        assert_eq!(error, PostError::AtomicResult { entries, length });
    }
    let wr = SendWr {
        operation: Operation::CompareSwap { remote: REMOTE, compare: 0, swap: 0 },
        data: Data::Inline(&[b"no data "]),
        ..SendWr::default()
    };
    assert_eq!(bed.queue.post_send(&[wr]).unwrap_err().error(), PostError::InlineNotAllowed);
}

#[test]
fn a_device_without_atomics_is_asked_for_none() {
    let mut bed = Bed::<Rc>::new(Spec { atomics: false, ..Spec::default() });
    for length in [8, u32::MAX, 0] {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).atomic_fetch_add(REMOTE, 1).sge(Sge { length, ..RESULT });
        assert_eq!(batch.complete().unwrap_err().error(), PostError::NoAtomics);
    }
}

const WINDOW: u32 = 0x0012_3401;

/// The memory that a window is bound to; nothing dereferences the address.
fn binding(window_type: WindowType, length: u64, zero_based: bool) -> Binding {
    let parts = BindParts {
        window_type,
        window: WINDOW,
        rkey: WINDOW + 1,
        lkey: 0x7700_0077,
        addr: 0x0a0b_0c0d_0e0f_1011,
        length,
        access: 0x70,
        zero_based,
    };
    // SAFETY: no device reads the ring.
    unsafe { Binding::new(parts) }
}

/// UMR control segment.
fn umr(flags: u8, octowords: u8, mask: u64) -> Vec<u8> {
    let mut bytes = vec![flags, 0, 0, 0, 0, octowords, 0, 0];
    bytes.extend(mask.to_be_bytes());
    bytes.resize(48, 0);
    bytes
}

/// Memory key context.
fn context(free: u8, access: u8, qpn_tag: u32, start: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![free, 0, access, 0];
    bytes.extend(qpn_tag.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(start.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.resize(64, 0);
    bytes
}

/// The mask of a bind: length, start, variant, four rights and whether the key is free.
const BOUND: u64 = 1 | 1 << 6 | 1 << 13 | 0xf << 18 | 1 << 29;

fn bind_wqe(at: u16, flags: u8, mask: u64, owner: u32, start: u64) -> Wqe {
    let mut klm = vec![0, 0, 0x10, 0, 0x77, 0, 0, 0x77];
    klm.extend(0x0a0b_0c0d_0e0f_1011_u64.to_be_bytes());
    klm.resize(64, 0);
    Wqe::control(0x25, at, 0x08, WINDOW.to_be_bytes())
        .with(&umr(flags, 4, mask))
        .with(&context(0, 0x70, owner, start, 0x1000))
        .with(&klm)
}

fn binds<T: ListTransport + mlx5_wqe::operation::Supports<mlx5_wqe::operation::BindWindow>>() {
    let mut bed = Bed::<T>::new(Spec::default());
    let addr = 0x0a0b_0c0d_0e0f_1011;
    let mut bind = |binding: Binding, by_hand: &dyn Fn(u16) -> Wqe| {
        let operation = Operation::BindWindow(binding);
        let wr = SendWr { operation, ..SendWr::default() };
        check(&mut bed, |batch, id| batch.wr(id, SIGNALED).bind_mw(binding), wr, by_hand, 0x19);
    };
    // Type 2: the key was free, and belongs to this queue pair from now on.
    let two = |at, start| bind_wqe(at, 0xb0, BOUND | 1 << 14, QPN << 8 | 2, start);
    bind(binding(WindowType::Two, 0x1000, false), &|at| two(at, addr));
    bind(binding(WindowType::Two, 0x1000, true), &|at| two(at, 0));
    // Type 1: every queue pair may use the key.
    let one = |at| bind_wqe(at, 0x90, BOUND, 0xffff_ff02, addr);
    bind(binding(WindowType::One, 0x1000, false), &one);
    // Unbinding frees the key.
    let unbound = |at, flags, mask| {
        Wqe::control(0x25, at, 0x08, WINDOW.to_be_bytes())
            .with(&umr(flags, 0, mask))
            .with(&context(0x40, 0, 0xffff_ff02, 0, 0))
    };
    bind(binding(WindowType::One, 0, false), &|at| unbound(at, 0x90, 1 << 13 | 1 << 29));
    bind(binding(WindowType::Two, 0, false), &|at| unbound(at, 0x98, 3 << 13 | 1 << 29));
}

#[test]
fn binding_a_window_gives_its_key_a_translation_an_owner_and_a_new_variant() {
    binds::<Rc>();
    binds::<Uc>();
    // No shared receive queue of the peer takes part, so none is named.
    binds::<XrcSend>();
}

#[test]
fn a_window_has_at_most_two_gib() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).bind_mw(binding(WindowType::Two, 1 << 31, false));
    batch.wr(2, SIGNALED).bind_mw(binding(WindowType::Two, (1 << 31) + 1, false));
    let error = batch.complete().unwrap_err();
    assert_eq!((error.index(), error.error()), (1, PostError::WindowTooLong { gib: 2 }));
}

#[test]
fn local_invalidation_frees_a_key_of_this_queue_pair() {
    fn check_on<T>()
    where
        T: ListTransport + mlx5_wqe::operation::Supports<mlx5_wqe::operation::LocalInvalidate>,
    {
        let mut bed = Bed::<T>::new(Spec::default());
        let wr = SendWr { operation: Operation::LocalInvalidate(WINDOW), ..SendWr::default() };
        check(
            &mut bed,
            |batch, id| batch.wr(id, SIGNALED).local_inv(WINDOW),
            wr,
            |at| {
                Wqe::control(0x25, at, 0x08, WINDOW.to_be_bytes())
                    .with(&umr(0x98, 0, 3 << 13 | 1 << 29))
                    .with(&context(0x40, 0, 0xffff_ff00, 0, 0))
            },
            0x1b,
        );
    }
    check_on::<Rc>();
    check_on::<Uc>();
    check_on::<XrcSend>();
}

#[test]
fn a_nop_is_a_control_segment() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let wr = SendWr { operation: Operation::Nop, ..SendWr::default() };
    let by_hand = |at| Wqe::control(0, at, 0x08, [0; 4]);
    check(&mut bed, |batch, id| batch.wr(id, SIGNALED).nop(), wr, by_hand, 0);
}

/// Bytes for a WQE of `units` units, of opcode `opcode`, for block 9 of queue pair 8.
fn raw_bytes(units: usize, opcode: u8, control: u8) -> Vec<u8> {
    let mut bytes = vec![5, 0, 9, opcode, 0, 0, 8, units as u8, 0xee, 1, 2, control];
    bytes.extend((12..units * 16).map(|i| i as u8));
    bytes
}

/// Takes bytes for a WQE.
fn raw(bytes: &[u8]) -> Result<RawWqe<'_>, RawWqeError> {
    // SAFETY: no device reads the ring.
    unsafe { RawWqe::new(bytes) }
}

#[test]
fn a_raw_wqe_gets_its_place_and_its_queue_pair_and_keeps_the_rest() {
    fn on<T: ListTransport + Supports<operation::Raw>>(control: u8) {
        let layout = SendLayout::new::<T>(32, 1, 0).unwrap();
        for units in [1, 4, 5, 12, 63] {
            let mut bed = Bed::<T>::with_layout(Spec::default(), layout);
            // At every distance from the end of the ring.
            for start in [0, 16, 28, 31] {
                bed.advance_to(start);
                let bytes = raw_bytes(units, 0x2f, control);
                let wqe = raw(&bytes).unwrap();
                let (operation, data) = (Operation::Raw, Data::Wqe(wqe));
                check(
                    &mut bed,
                    |batch, id| batch.wr(id, SIGNALED).raw_wqe(wqe),
                    SendWr { operation, data, ..SendWr::default() },
                    |at| {
                        let mut wqe =
                            Wqe::control(0x2f, at, 8 | control, [0; 4]).with(&bytes[16..]);
                        wqe.bytes[0] = 5;
                        wqe.bytes[8..11].copy_from_slice(&[0xee, 1, 2]);
                        wqe.bytes[12..16].copy_from_slice(&bytes[12..16]);
                        wqe
                    },
                    0x2f,
                );
            }
        }
    }
    on::<Rc>(0x02);
    on::<XrcSend>(0x02);
    on::<Uc>(0x02);
    on::<Ud>(0x02);
    on::<RawPacket>(0);
}

/// The fast path cannot know the room that a request leaves that is larger than the queue was sized
/// for.
#[test]
fn a_run_of_unsignaled_requests_of_a_size_of_their_own_does_not_fill_the_queue() {
    let layout = SendLayout::new::<Rc>(8, 1, 0).unwrap();
    assert_eq!((layout.blocks, layout.max_request_blocks), (8, 1));
    let mut bed = Bed::<Rc>::with_layout(Spec::default(), layout);
    let mut post = |flags| {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, flags).masked_cmp_swp(REMOTE, MASKED).sge(RESULT);
        batch.complete().map_err(|error| error.error())
    };
    for _ in 0..3 {
        post(SendFlags::empty()).unwrap();
    }
    assert_eq!(post(SendFlags::empty()), Err(PostError::UnsignaledRun));
    post(SIGNALED).unwrap();
}

#[test]
fn a_raw_wqe_that_asks_for_a_completion_is_signaled() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let bytes = raw_bytes(2, 0x0a, 0x08);
    // The bytes request the completion, with or without the flag.
    for flags in [SendFlags::empty(), SIGNALED] {
        let at = bed.queue.producer();
        let mut batch = bed.queue.wr_start();
        batch.wr(1, flags).raw_wqe(raw(&bytes).unwrap());
        batch.complete().unwrap();
        assert_eq!(bed.at_block(at.into(), 16)[11], 0x08);
        assert!(bed.retire(at.into()).unwrap().info.signaled());
    }
}

#[test]
fn bytes_that_are_no_wqe_are_told_apart() {
    let bytes = raw_bytes(64, 0x0a, 0);
    for length in [0, 1, 15, 17, 64 * 16] {
        let error = raw(&bytes[..length]).unwrap_err();
        assert_eq!(error, RawWqeError::Length { bytes: length });
    }
    let mut bytes = raw_bytes(3, 0x0a, 0);
    assert_eq!(raw(&bytes[..32]).unwrap_err(), RawWqeError::Units { said: 3, given: 2 });
    bytes[3] = 0x40;
    assert_eq!(raw(&bytes).unwrap_err(), RawWqeError::Opcode(0x40));
    assert_eq!(
        raw(&bytes[..32]).unwrap_err().to_string(),
        "the control segment says 3 units, but 2 were given"
    );
}

#[test]
fn a_request_larger_than_the_queue_was_made_for_is_posted_if_there_is_room_for_it() {
    let layout = SendLayout::new::<Rc>(4, 1, 0).unwrap();
    assert_eq!((layout.blocks, layout.max_request_blocks), (4, 1));
    let bind = Operation::BindWindow(binding(WindowType::Two, 0x1000, false));
    let wr = SendWr { operation: bind, flags: SIGNALED, ..SendWr::default() };
    let mut bed = Bed::<Rc>::with_layout(Spec::default(), layout);
    bed.queue.post_send(&[wr]).unwrap();
    let full = PostError::QueueFull { free: 1, needed: 3 };
    let before = (bed.ring.all(), bed.record.all(), bed.uar.all());
    assert_eq!(bed.queue.post_send(&[wr]).unwrap_err().error(), full);
    assert_eq!((bed.ring.all(), bed.record.all(), bed.uar.all()), before);
    bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
    bed.retire(0).unwrap();
    // Across the end of the ring.
    bed.queue.post_send(&[wr]).unwrap();
    let none = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(bed.queue.post_send(&[least(1, SIGNALED)]).unwrap_err().error(), none);
    // A request that the ring can never hold.
    let bytes = raw_bytes(63, 0x0a, 0x08);
    let wr = SendWr {
        operation: Operation::Raw,
        data: Data::Wqe(raw(&bytes).unwrap()),
        ..SendWr::default()
    };
    bed.retire(3).unwrap();
    bed.retire(4).unwrap();
    let never = PostError::QueueFull { free: 4, needed: 16 };
    assert_eq!(bed.queue.post_send(&[wr]).unwrap_err().error(), never);
}

#[test]
fn an_unsignaled_run_of_large_requests_may_not_fill_the_queue() {
    let layout = SendLayout::new::<Rc>(4, 1, 0).unwrap();
    let mut bed = Bed::<Rc>::with_layout(Spec::default(), layout);
    let bind = Operation::BindWindow(binding(WindowType::Two, 0x1000, false));
    let wr = SendWr { operation: bind, ..SendWr::default() };
    bed.queue.post_send(&[wr]).unwrap();
    let error = bed.queue.post_send(&[least(1, SendFlags::empty())]).unwrap_err().error();
    assert_eq!(error, PostError::UnsignaledRun);
    bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
}

#[test]
fn a_queue_is_made_for_as_many_of_the_operations_asked_for_as_of_others() {
    let blocks = |ops| {
        let layout = SendLayout::with_ops::<Rc>(16, 1, 0, ops).unwrap();
        assert_eq!(layout.max_size_requests, 16);
        (layout.blocks, layout.max_request_blocks)
    };
    assert_eq!(blocks(SendOps::SEND | SendOps::RDMA_READ | SendOps::FETCH_ADD), (16, 1));
    assert_eq!(blocks(SendOps::MASKED_COMPARE_SWAP), (32, 2));
    assert_eq!(blocks(SendOps::LOCAL_INV), (32, 2));
    // 16 requests of three blocks take 48. The next power of two is 64, which has room for 21.
    let layout = SendLayout::with_ops::<Rc>(16, 1, 0, SendOps::BIND_MW).unwrap();
    assert_eq!((layout.blocks, layout.max_request_blocks, layout.max_size_requests), (64, 3, 21));
}

#[test]
fn a_transport_has_the_operations_of_the_table() {
    let message = SendOps::SEND | SendOps::SEND_IMM | SendOps::RAW;
    assert_eq!(SendOps::of::<Ud>(), message);
    let uc = message
        | SendOps::SEND_INV
        | SendOps::RDMA_WRITE
        | SendOps::RDMA_WRITE_IMM
        | SendOps::BIND_MW
        | SendOps::LOCAL_INV;
    assert_eq!(SendOps::of::<Uc>(), uc);
    let xrc = uc | SendOps::RDMA_READ | SendOps::COMPARE_SWAP | SendOps::FETCH_ADD;
    assert_eq!(SendOps::of::<XrcSend>(), xrc);
    let rc = xrc | SendOps::NOP | SendOps::MASKED_COMPARE_SWAP | SendOps::MASKED_FETCH_ADD;
    assert_eq!(SendOps::of::<Rc>(), rc);
    let packets = SendOps::SEND | SendOps::TSO | SendOps::MULTI_PACKET | SendOps::RAW;
    assert_eq!(SendOps::of::<RawPacket>(), packets);
    assert_eq!(SendOps::ATOMICS & xrc, SendOps::COMPARE_SWAP | SendOps::FETCH_ADD);
}

/// The fence field of the request that starts at `block`.
fn fence<T: ListTransport>(bed: &Bed<T>, block: u32) -> u8 {
    bed.at_block(block, 16)[11] & 0xe0
}

#[test]
fn what_follows_a_rewritten_key_waits_for_it() {
    let plain = SendFlags::empty();
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    batch.wr(1, plain).local_inv(WINDOW);
    batch.wr(2, plain).send().inline_data(b"waits");
    batch.wr(3, plain).send().inline_data(b"waits not");
    batch.wr(4, plain).local_inv(WINDOW);
    batch.wr(5, plain).bind_mw(binding(WindowType::Two, 0x1000, false));
    // The full fence replaces the small one.
    batch.wr(6, SendFlags::FENCE).send().inline_data(b"fenced");
    batch.wr(7, plain).nop();
    batch.wr(8, SIGNALED).local_inv(WINDOW);
    batch.complete().unwrap();
    let starts = [0, 2, 3, 4, 6, 9, 10, 11];
    let fences: Vec<u8> = starts.into_iter().map(|block| fence(&bed, block)).collect();
    assert_eq!(fences, [0, 0x20, 0, 0, 0x20, 0x80, 0, 0]);
    // A request of the next batch waits, too. A batch that is aborted or refused does not use up
    // the fence.
    for _ in 0..2 {
        let mut batch = bed.queue.wr_start();
        batch.wr(9, SIGNALED).send().inline_data(b"never");
        batch.abort();
        let mut batch = bed.queue.wr_start();
        batch.wr(9, SIGNALED).send().inline_data(b"never");
        batch.wr(9, SIGNALED).send().sge_list(&sges(50));
        batch.complete().unwrap_err();
    }
    bed.queue.post_send(&[least(9, SIGNALED), least(10, SIGNALED)]).unwrap();
    assert_eq!((fence(&bed, 13), fence(&bed, 14)), (0x20, 0));
}

#[test]
fn a_rewrite_that_is_not_posted_makes_nothing_wait() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).local_inv(WINDOW);
    batch.abort();
    bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
    assert_eq!(fence(&bed, 0), 0);
    // The rewrite before the first bad request of a list is posted, and the next request waits for
    // it.
    let rewrite = SendWr {
        operation: Operation::LocalInvalidate(WINDOW),
        flags: SIGNALED,
        ..SendWr::default()
    };
    let bad = SendWr {
        operation: Operation::Unsupported(UnsupportedOperation::Tso),
        ..least(2, SIGNALED)
    };
    bed.queue.post_send(&[rewrite, bad]).unwrap_err();
    bed.queue.post_send(&[bad, rewrite]).unwrap_err();
    bed.queue.post_send(&[least(2, SIGNALED)]).unwrap();
    assert_eq!(fence(&bed, 3), 0x20);
}

#[test]
fn a_raw_wqe_waits_and_is_waited_for_as_others_are() {
    let (umr, fenced) = (raw_bytes(1, 0x25, 0), raw_bytes(1, 0x0a, 0x40));
    for named in [true, false] {
        let mut bed = Bed::<Rc>::new(Spec::default());
        let mut batch = bed.queue.wr_start();
        for wqe in [&umr, &umr, &fenced, &umr, &fenced] {
            let wqe = raw(wqe).unwrap();
            let wqe = if named { wqe } else { wqe.unnamed() };
            batch.wr(1, SendFlags::empty()).raw_wqe(wqe);
        }
        batch.wr(1, SIGNALED).nop();
        batch.complete().unwrap();
        let fences: Vec<u8> = (0..6).map(|block| fence(&bed, block)).collect();
        // A fence that waits only for reads becomes one that waits for keys as well.
        assert_eq!(fences, [0, 0x20, 0x80, 0, 0x80, 0]);
    }
}

#[test]
fn a_raw_wqe_without_a_name_keeps_its_opcode_in_the_ring_only() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let bytes = raw_bytes(2, 0x0a, 0x08);
    let at = bed.queue.producer();
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).raw_wqe(raw(&bytes).unwrap().unnamed());
    batch.complete().unwrap();
    assert_eq!(bed.at_block(at.into(), 16)[3], 0x0a);
    let info = bed.retire(at.into()).unwrap().info;
    assert_eq!((info.opcode(), info.opcode_bits()), (None, RawWqe::UNNAMED));
    assert!(!info.cancelled());
}

#[test]
fn a_reset_forgets_what_was_to_be_waited_for() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).local_inv(WINDOW);
    batch.complete().unwrap();
    bed.queue.reset();
    bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
    assert_eq!(fence(&bed, 0), 0);
}

#[test]
fn requests_after_a_rewrite_are_soon_ordinary_again() {
    let mut bed = Bed::<Rc>::new(Spec::default());
    let mut batch = bed.queue.wr_start();
    batch.wr(1, SIGNALED).local_inv(WINDOW);
    batch.complete().unwrap();
    bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
    // A single request is copied to the BlueFlame register as a whole.
    let uar = bed.uar.all();
    bed.rings = 2;
    let first = u32::from(bed.queue.producer());
    let inline = SendWr { data: Data::Inline(&[b"whole"]), ..least(1, SIGNALED) };
    bed.queue.post_send(&[inline]).unwrap();
    bed.assert_rang(first, 64, &uar);
    // All of the ring can be used.
    for block in [0_u32, 2, 3] {
        bed.retire(block).unwrap();
    }
    for _ in 0..bed.layout.blocks {
        bed.queue.post_send(&[least(1, SIGNALED)]).unwrap();
    }
    let full = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(bed.queue.post_send(&[least(1, SIGNALED)]).unwrap_err().error(), full);
}

fn refused<T: ListTransport>(wr: SendWr<'_>) -> PostError {
    let mut bed = Bed::<T>::new(Spec::default());
    let before = (bed.ring.all(), bed.record.all(), bed.uar.all());
    let error = bed.queue.post_send(&[SendWr { wr_id: 1, ..wr }]).unwrap_err();
    assert_eq!(error.index(), 0);
    assert_eq!((bed.ring.all(), bed.record.all(), bed.uar.all()), before);
    error.error()
}

#[test]
fn the_list_form_refuses_operations_that_the_transport_lacks() {
    let wr = |operation| SendWr { operation, ..SendWr::default() };
    let atomic = Operation::FetchAdd { remote: REMOTE, add: 1 };
    let swap = Operation::CompareSwap { remote: REMOTE, compare: 0, swap: 1 };
    let masked = Operation::MaskedCompareSwap { remote: REMOTE, operands: MASKED };
    let fields = Operation::MaskedFetchAdd { remote: REMOTE, add: 1, boundary: 0 };
    let read = Operation::RdmaRead(REMOTE);
    let window = Operation::BindWindow(binding(WindowType::Two, 1, false));
    let connected = [Operation::SendInvalidate(1), window, Operation::LocalInvalidate(1)];
    let reliable = [atomic, swap, read];
    for operation in connected.into_iter().chain(reliable) {
        assert_eq!(refused::<Ud>(wr(operation)), PostError::Unsupported);
    }
    for operation in reliable {
        assert_eq!(refused::<Uc>(wr(operation)), PostError::Unsupported);
    }
    for wr in [wr(masked), wr(fields), wr(Operation::Nop)] {
        assert_eq!(refused::<Uc>(wr), PostError::Unsupported);
        assert_eq!(refused::<Ud>(wr), PostError::Unsupported);
        assert_eq!(refused::<XrcSend>(wr), PostError::Unsupported);
    }
    // The only message operation of a raw packet queue is a send.
    let messages = [
        Operation::SendImm([0; 4]),
        Operation::RdmaWrite(REMOTE),
        Operation::RdmaWriteImm(REMOTE, [0; 4]),
    ];
    let others = [masked, fields, Operation::Nop];
    for operation in messages.into_iter().chain(connected).chain(reliable).chain(others) {
        assert_eq!(refused::<RawPacket>(wr(operation)), PostError::Unsupported);
    }
}

#[test]
fn the_list_form_refuses_what_does_not_go_with_the_operation() {
    let wr = |operation, data| SendWr { operation, data, ..SendWr::default() };
    let bytes = raw_bytes(1, 0, 0);
    let wqe = Data::Wqe(raw(&bytes).unwrap());
    let some: [Data<'_>; 3] = [Data::Sges(&[RESULT]), Data::Inline(&[]), wqe];
    let window = Operation::BindWindow(binding(WindowType::Two, 1, false));
    for operation in [Operation::Nop, window, Operation::LocalInvalidate(1)] {
        for data in some {
            assert_eq!(refused::<Rc>(wr(operation, data)), PostError::DataNotAllowed);
        }
    }
    for operation in [Operation::Send, Operation::RdmaRead(REMOTE)] {
        assert_eq!(refused::<Rc>(wr(operation, wqe)), PostError::DataNotAllowed);
    }
    assert_eq!(refused::<Rc>(wr(Operation::Raw, Data::Sges(&[]))), PostError::RawWqeRequired);
    assert_eq!(refused::<XrcSend>(wr(Operation::Send, Data::Sges(&[]))), PostError::SrqnMissing);
    assert_eq!(refused::<Ud>(wr(Operation::Send, Data::Sges(&[]))), PostError::AddressMissing);
}

#[test]
fn operations_that_no_connectx_has_are_refused_by_name() {
    for (which, text) in [
        (UnsupportedOperation::Tso, "TSO requires a raw packet queue"),
        (UnsupportedOperation::Flush, "ConnectX has no flush operation"),
        (UnsupportedOperation::AtomicWrite, "ConnectX has no atomic write operation"),
    ] {
        let wr = SendWr { operation: Operation::Unsupported(which), ..SendWr::default() };
        assert_eq!(refused::<Rc>(wr), PostError::UnsupportedByDevice(which));
        assert_eq!(refused::<Ud>(wr), PostError::UnsupportedByDevice(which));
        assert_eq!(refused::<RawPacket>(wr), PostError::UnsupportedByDevice(which));
        assert_eq!(PostError::UnsupportedByDevice(which).to_string(), text);
    }
}

#[test]
fn a_flag_is_refused_with_the_reason() {
    let wr = |operation, flags| SendWr { operation, flags, ..SendWr::default() };
    for (operation, flags) in [
        (Operation::Nop, SendFlags::SOLICITED),
        (Operation::LocalInvalidate(1), SendFlags::SOLICITED),
        (Operation::FetchAdd { remote: REMOTE, add: 1 }, SendFlags::SOLICITED),
        (Operation::Send, SendFlags::IP_CSUM),
        (Operation::RdmaWrite(REMOTE), SendFlags::IP_CSUM),
    ] {
        assert_eq!(refused::<Rc>(wr(operation, flags)), PostError::Flags { refused: flags });
    }
    let fence = SendFlags::FENCE;
    let error = refused::<Uc>(wr(Operation::LocalInvalidate(1), fence));
    assert_eq!(error, PostError::Flags { refused: fence });
    assert_eq!(
        error.to_string(),
        "SendFlags(FENCE) is not supported with this operation on this transport: \
         only reliable transports have reads and atomics to fence"
    );
    let bytes = raw_bytes(1, 0, 0);
    let data = Data::Wqe(raw(&bytes).unwrap());
    let flags = SendFlags::IP_CSUM;
    let wr = SendWr { operation: Operation::Raw, data, flags, ..SendWr::default() };
    assert_eq!(refused::<Rc>(wr), PostError::Flags { refused: flags });
}
