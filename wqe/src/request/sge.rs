//! Local memory, as requests name it.

use core::mem::{align_of, offset_of, size_of};

/// A scatter/gather entry (SGE): local memory. An SGE of length zero is omitted from the WQE.
///
/// It is laid out as `struct ibv_sge`, so a C program's array can be posted as it is.
///
/// ```
/// use mlx5_wqe::Sge;
///
/// #[repr(C)]
/// struct ibv_sge {
///     addr: u64,
///     length: u32,
///     lkey: u32,
/// }
///
/// let list = [ibv_sge { addr: 0x1000, length: 64, lkey: 7 }, ibv_sge { addr: 0x2000, length: 8, lkey: 9 }];
/// let (sg_list, num_sge) = (list.as_ptr(), list.len());
/// // SAFETY: both structures have the same layout, and the array outlives the slice.
/// let sges = unsafe { std::slice::from_raw_parts(sg_list.cast::<Sge>(), num_sge) };
/// assert_eq!(sges[1], Sge { addr: 0x2000, length: 8, lkey: 9 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(C)]
pub struct Sge {
    /// Virtual address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

// `struct ibv_sge`: infiniband/verbs.h.
const _: () = {
    assert!(size_of::<Sge>() == 16 && align_of::<Sge>() == align_of::<u64>());
    assert!(offset_of!(Sge, addr) == 0);
    assert!(offset_of!(Sge, length) == 8);
    assert!(offset_of!(Sge, lkey) == 12);
};
