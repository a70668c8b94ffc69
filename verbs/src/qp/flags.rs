//! Flags of send requests: the provider's, by C's.

use super::CTransport;
use crate::abi::*;
use mlx5::SendFlags;
use mlx5::operation::SendOperation;
use mlx5::transport::Rc;
use std::hint::assert_unchecked;
use std::marker::PhantomData;

/// Maps C's flags to the provider's: a table with an entry for each combination of bits, which has
/// the flags of the bits in its index.
macro_rules! by_bits {
    ($Flags:ident[$entries:literal]: $($bit:ident $flag:ident,)*) => {{
        let mut table = [$Flags::empty(); $entries];
        let mut bits = 0;
        while bits < table.len() {
            $(if bits & $bit as usize != 0 {
                table[bits] = table[bits].union($Flags::$flag);
            })*
            bits += 1;
        }
        table
    }};
}
pub(super) use by_bits;

/// `enum ibv_send_flags` without `INLINE`, as the provider has them.
const FLAGS: [SendFlags; 32] = by_bits! { SendFlags[32]:
    IBV_SEND_FENCE FENCE,
    IBV_SEND_SIGNALED SIGNALED,
    IBV_SEND_SOLICITED SOLICITED,
    IBV_SEND_IP_CSUM IP_CSUM,
};

/// The provider's flags of an operation. As in C, those that say nothing of it are passed over.
#[inline(always)]
pub(super) fn flags<T: CTransport>(flags: c_uint, allowed: SendFlags) -> SendFlags {
    FLAGS[flags as usize % FLAGS.len()].intersection(T::FLAGS).intersection(allowed)
}

/// [`FLAGS`] for one operation of one transport.
struct Of<T, O>(PhantomData<(T, O)>);

impl<T: CTransport, O: SendOperation> Of<T, O> {
    const FLAGS: [SendFlags; 32] = {
        let mut table = FLAGS;
        let mut bits = 0;
        while bits < table.len() {
            table[bits] = table[bits].intersection(T::FLAGS).intersection(O::FLAGS);
            bits += 1;
        }
        table
    };
}

/// [`flags`] of an operation that is known here: they are looked up, and nothing is left to pass
/// over.
#[inline(always)]
pub(super) fn flags_of<T: CTransport, O: SendOperation>(flags: c_uint) -> SendFlags {
    let table: &[SendFlags; 32] = const { &Of::<T, O>::FLAGS };
    let flags = table[flags as usize % table.len()];
    // SAFETY: every entry of the table was intersected with both.
    unsafe { assert_unchecked(T::FLAGS.intersection(O::FLAGS).contains(flags)) };
    flags
}

/// The provider's flags of a request of libmlx5.
pub(super) fn driver_flags(given: c_uint) -> SendFlags {
    flags::<Rc>(given, SendFlags::all())
}
