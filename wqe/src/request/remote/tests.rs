use super::*;

const START: RemoteAddress = RemoteAddress { addr: 0x7f12_3456_7000, rkey: 0x89ab_cdef };

fn slice() -> RemoteSlice<u64> {
    RemoteSlice::new(START, 512).unwrap()
}

#[test]
fn an_address_survives_text_and_bytes() {
    for remote in
        [START, RemoteAddress::default(), RemoteAddress { addr: u64::MAX, rkey: u32::MAX }]
    {
        assert_eq!(remote.to_string().parse(), Ok(remote));
        assert_eq!(RemoteAddress::from_bytes(remote.to_bytes()), remote);
    }
    assert_eq!("rkey=7 addr=16".parse(), Ok(RemoteAddress { addr: 16, rkey: 7 }));
}

#[test]
fn the_bytes_of_an_address_are_big_endian() {
    let bytes = [0, 0, 0x7f, 0x12, 0x34, 0x56, 0x70, 0, 0x89, 0xab, 0xcd, 0xef];
    assert_eq!(START.to_bytes(), bytes);
}

#[test]
fn text_that_names_no_address_says_what_is_wrong() {
    use RemoteError::*;
    let refused = |text: &str| text.parse::<RemoteAddress>().unwrap_err();
    assert_eq!(refused(""), Missing { field: "addr" });
    assert_eq!(refused("addr=1"), Missing { field: "rkey" });
    assert_eq!(refused("addr=1 rkey=2 addr=1"), Twice { field: "addr" });
    assert_eq!(refused("addr=+1 rkey=2"), Value { field: "addr" });
    assert_eq!(refused("addr=0x-1 rkey=2"), Value { field: "addr" });
    assert_eq!(refused("addr=0x rkey=2"), Value { field: "addr" });
    assert_eq!(refused("addr=18446744073709551616 rkey=2"), Value { field: "addr" });
    assert_eq!(refused("addr=1 rkey=4294967296"), Value { field: "rkey" });
    assert_eq!(refused("addr=1 rkey=2 len=3"), NotRemote);
    assert_eq!(refused("addr rkey"), NotRemote);
}

#[test]
fn an_offset_past_the_end_of_all_addresses_is_none() {
    assert_eq!(START.offset(u64::MAX - START.addr).map(|at| at.addr), Some(u64::MAX));
    assert_eq!(START.offset(u64::MAX - START.addr + 1), None);
}

#[test]
fn a_slice_survives_text_and_bytes() {
    assert_eq!(slice().to_string().parse(), Ok(slice()));
    assert_eq!(RemoteSlice::from_bytes(&slice().to_bytes()), Ok(slice()));
    let empty = RemoteSlice::<[u8; 3]>::new(START, 0).unwrap();
    assert_eq!(empty.to_string().parse(), Ok(empty));
    assert_eq!(RemoteSlice::from_bytes(&empty.to_bytes()), Ok(empty));
    let mixed = "mlx5-remote/1 size=8 len=0x200 rkey=0x89abcdef addr=0x7f1234567000";
    assert_eq!(mixed.parse(), Ok(slice()));
}

#[test]
fn a_slice_of_other_elements_is_refused() {
    let wrong = RemoteError::ElementSize { theirs: 8, ours: 4 };
    assert_eq!(slice().to_string().parse::<RemoteSlice<u32>>(), Err(wrong));
    assert_eq!(RemoteSlice::<u32>::from_bytes(&slice().to_bytes()), Err(wrong));
}

#[test]
fn a_damaged_slice_is_refused() {
    let text = |text: &str| text.parse::<RemoteSlice<u64>>().unwrap_err();
    assert_eq!(text("mlx5-remote/2 addr=0 rkey=1 len=1 size=8"), RemoteError::NotRemote);
    assert_eq!(text("mlx5-remote/1 addr=0 rkey=1 size=8"), RemoteError::Missing { field: "len" });
    let unaligned = RemoteError::Unaligned { addr: 4, align: 8 };
    assert_eq!(text("mlx5-remote/1 addr=4 rkey=1 len=1 size=8"), unaligned);
    let beyond = "mlx5-remote/1 addr=0xfffffffffffffff8 rkey=1 len=2 size=8";
    assert!(matches!(text(beyond), RemoteError::PastEnd { .. }));

    let bytes = slice().to_bytes();
    for end in 0..bytes.len() {
        let error = RemoteSlice::<u64>::from_bytes(&bytes[..end]).unwrap_err();
        assert_eq!(error, RemoteError::Length { bytes: end });
    }
    for index in 0..8 {
        let mut bytes = bytes;
        bytes[index] ^= 1;
        assert_eq!(RemoteSlice::<u64>::from_bytes(&bytes), Err(RemoteError::NotRemote));
    }
    // No length with which the slice would wrap around is believed.
    let mut bytes = bytes;
    bytes[16] = 0xff;
    assert!(matches!(RemoteSlice::<u64>::from_bytes(&bytes), Err(RemoteError::PastEnd { .. })));
}

#[test]
fn a_slice_may_end_with_the_last_address_and_not_behind_it() {
    let last = RemoteAddress { addr: u64::MAX - 7, rkey: 1 };
    assert!(RemoteSlice::<u8>::new(last, 7).is_ok());
    assert!(RemoteSlice::<u8>::new(last, 8).is_err());
    assert!(RemoteSlice::<u64>::new(START, usize::MAX).is_err());
    assert!(RemoteSlice::<u64>::new(RemoteAddress { addr: 1, rkey: 1 }, 0).is_err());
}

#[test]
fn parts_are_inside_or_refused_with_the_numbers() {
    assert_eq!(slice().at(511).unwrap().addr, START.addr + 511 * 8);
    let error = slice().at(512).unwrap_err();
    assert_eq!(
        error.to_string(),
        "elements 512..513 are not inside the remote memory of 512 elements"
    );
    let part = slice().range(10..=20).unwrap();
    assert_eq!((part.start().addr, part.len(), part.byte_len()), (START.addr + 80, 11, 88));
    assert_eq!(slice().range(512..).unwrap().len(), 0);
    assert_eq!(slice().range(..).unwrap(), slice());
    assert!(slice().range(..513).is_err() && slice().range(513..).is_err());
    let error = slice().range(..=usize::MAX).unwrap_err();
    assert_eq!(
        error.to_string(),
        "elements 0..18446744073709551616 are not inside the remote memory of 512 elements"
    );
    let error = slice().range(513..).unwrap_err();
    assert_eq!(
        error.to_string(),
        "elements 513.. are not inside the remote memory of 512 elements"
    );
    let empty = slice().range(512..).unwrap();
    assert!(empty.is_empty() && empty.at(0).is_err());
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    let reversed = slice().range(20..10);
    assert!(reversed.is_err());
}

#[test]
fn the_same_memory_has_other_elements() {
    let bytes = slice().cast::<u8>().unwrap();
    assert_eq!((bytes.len(), bytes.cast::<u64>()), (4096, Ok(slice())));
    let partial = RemoteError::Partial { bytes: 4095, size: 8 };
    assert_eq!(bytes.range(..4095).unwrap().cast::<u64>(), Err(partial));
    let unaligned = RemoteError::Unaligned { addr: START.addr + 4, align: 8 };
    assert_eq!(bytes.range(4..4092).unwrap().cast::<u64>(), Err(unaligned));
}

#[test]
fn a_part_may_begin_behind_an_element() {
    use core::ops::Bound::{Excluded, Included, Unbounded};
    let part = |start, end| slice().range((start, end));
    assert_eq!(part(Excluded(3), Unbounded), slice().range(4..));
    assert_eq!(part(Excluded(0), Included(7)), slice().range(1..8));
    let empty = part(Excluded(511), Unbounded).unwrap();
    assert_eq!(empty.len(), 0);
    assert!(empty.is_empty() && !slice().is_empty());
    let outside = RemoteError::Outside { start: 513, end: None, len: 512 };
    assert_eq!(part(Excluded(512), Unbounded), Err(outside));
}

#[test]
fn slices_are_equal_by_key_start_and_length() {
    let other = |addr, rkey, len| RemoteSlice::<u64>::new(RemoteAddress { addr, rkey }, len);
    let RemoteAddress { addr, rkey } = START;
    assert_eq!(other(addr, rkey, 512).unwrap(), slice());
    for different in [(addr + 8, rkey, 512), (addr, rkey + 1, 512), (addr, rkey, 511)] {
        assert_ne!(other(different.0, different.1, different.2).unwrap(), slice());
    }
}
