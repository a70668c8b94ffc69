//! The sizes that a queue gets for what it must hold.

use mlx5_wqe::{
    MAX_MKEY_ENTRIES, Rc, ReceiveLayout, SendLayout, SharedReceiveQueue, Uc, Ud, mkey_update_blocks,
};

#[test]
fn the_largest_request_is_that_of_the_operation_with_the_longest_head() {
    // Control and remote address, then entries; rounded up to whole blocks.
    let layout = SendLayout::new::<Rc>(16, 2, 0).unwrap();
    let expected = SendLayout {
        blocks: 16,
        max_request_blocks: 1,
        max_size_requests: 16,
        max_sge: 2,
        max_inline: 28,
        max_tso_header: 0,
    };
    assert_eq!(layout, expected);
    assert_eq!(SendLayout::new::<Uc>(16, 2, 0), Some(layout));
    // Control and address vector fill a block.
    let expected = SendLayout {
        blocks: 32,
        max_request_blocks: 2,
        max_size_requests: 16,
        max_sge: 4,
        max_inline: 60,
        max_tso_header: 0,
    };
    assert_eq!(SendLayout::new::<Ud>(16, 1, 0), Some(expected));
    assert_eq!(SendLayout::new::<Ud>(16, 0, 60), Some(expected));
    assert_eq!(SendLayout::new::<Ud>(16, 0, 61).unwrap().max_request_blocks, 3);
}

#[test]
fn a_ring_is_a_power_of_two_of_blocks_that_holds_the_requests_asked_for() {
    for requests in [0, 1, 2, 3, 100, 1000] {
        for sges in [0, 1, 2, 3, 7, 30, 61] {
            let layout = SendLayout::new::<Rc>(requests, sges, 0).unwrap();
            assert!(layout.blocks.is_power_of_two());
            assert!(layout.max_size_requests >= requests.max(1));
            assert!(layout.max_size_requests * layout.max_request_blocks <= layout.blocks);
            assert!(layout.max_sge >= sges);
            assert_eq!(layout.bytes(), layout.blocks as usize * 64);
        }
    }
}

#[test]
fn a_request_has_at_most_63_units() {
    let rc = SendLayout::new::<Rc>(1, 61, 0).unwrap();
    assert_eq!((rc.max_request_blocks, rc.max_sge, rc.max_inline), (16, 61, 61 * 16 - 4));
    assert_eq!(SendLayout::new::<Rc>(1, 62, 0), None);
    assert_eq!(SendLayout::new::<Rc>(1, 0, 61 * 16 - 4), Some(rc));
    assert_eq!(SendLayout::new::<Rc>(1, 0, 61 * 16 - 3), None);
    assert_eq!(rc.max_request_bytes(), 63 * 16);
    // All units of fifteen blocks can be used.
    assert_eq!(SendLayout::new::<Rc>(1, 58, 0).unwrap().max_request_bytes(), 15 * 64);
    assert_eq!(SendLayout::new::<Ud>(1, 59, 0).unwrap().max_sge, 59);
    assert_eq!(SendLayout::new::<Ud>(1, 60, 0), None);
    assert_eq!(SendLayout::new::<Rc>(1, u32::MAX, 0), None);
    assert_eq!(SendLayout::new::<Rc>(1, 0, u32::MAX), None);
}

#[test]
fn a_send_ring_has_at_most_32768_blocks() {
    assert_eq!(SendLayout::new::<Rc>(32768, 1, 0).unwrap().blocks, 32768);
    assert_eq!(SendLayout::new::<Rc>(32769, 1, 0), None);
    assert_eq!(SendLayout::new::<Rc>(u32::MAX, 61, 0), None);
    assert_eq!(SendLayout::new::<Rc>(2048, 61, 0).unwrap().blocks, 32768);
    assert_eq!(SendLayout::new::<Rc>(2049, 61, 0), None);
}

#[test]
fn a_ring_that_holds_more_requests_has_as_many_blocks_at_most() {
    let layout = SendLayout::new::<Rc>(4, 1, 0).unwrap();
    assert_eq!(layout.holding(16384, 2).unwrap().blocks, 32768);
    for (requests, blocks) in [(16385, 2), (32769, 1), (65536, 1), (1 << 20, 16)] {
        assert_eq!(layout.holding(requests, blocks), None, "{requests} of {blocks} blocks");
    }
}

/// Control segment, UMR and context take 8 units, a signature takes 4, and the number of entries is
/// a multiple of four. Of 63 units 48 are left for entries; four more would be one unit too many.
#[test]
fn a_request_gives_a_key_at_most_48_entries_beside_a_signature() {
    assert_eq!(MAX_MKEY_ENTRIES, 48);
    assert_eq!(mkey_update_blocks(MAX_MKEY_ENTRIES, false), 14);
    // One for the signature, and one for each of its two variables.
    assert_eq!(mkey_update_blocks(MAX_MKEY_ENTRIES, true), 15 + 2);
    assert_eq!(mkey_update_blocks(1, true), mkey_update_blocks(4, true));
}

#[test]
fn a_receive_ring_is_of_whole_blocks_and_its_requests_of_powers_of_two() {
    let layout = |requests, max_sge, stride| Some(ReceiveLayout { requests, max_sge, stride });
    assert_eq!(ReceiveLayout::new(0, 3, 0), layout(0, 0, 16));
    assert_eq!(ReceiveLayout::new(1, 1, 0), layout(4, 1, 16));
    assert_eq!(ReceiveLayout::new(1, 0, 0), layout(4, 1, 16));
    assert_eq!(ReceiveLayout::new(5, 3, 0), layout(8, 4, 64));
    assert_eq!(ReceiveLayout::new(100, 5, 0), layout(128, 8, 128));
    assert_eq!(ReceiveLayout::new(32768, 256, 0), layout(32768, 256, 4096));
    assert_eq!(ReceiveLayout::new(32769, 1, 0), None);
    assert_eq!(ReceiveLayout::new(u32::MAX, 1, 0), None);
    assert_eq!(ReceiveLayout::new(1, 257, 0), None);
    assert_eq!(ReceiveLayout::new(1, u32::MAX, 0), None);
    // A shared queue's requests start with the link to the next.
    assert_eq!(ReceiveLayout::new(4, 1, SharedReceiveQueue::HEAD), layout(4, 1, 32));
    assert_eq!(ReceiveLayout::new(4, 2, SharedReceiveQueue::HEAD), layout(4, 3, 64));
}
