//! The two table macros with which this crate declares the kernel's headers.

/// Declares `#[repr(C)]` structures of the kernel, with rows `offset name: type => "meaning"`. Size
/// and offsets are asserted at compile time. Padding is always a named field, as in the headers, so
/// that every byte passed to the kernel is initialized.
///
/// With `table NAME;` in front, the names, sizes and offsets are also a constant, which is compared
/// with the headers of C.
macro_rules! layout {
    (table $table:ident; $(
        $(#[$meta:meta])*
        pub struct $name:ident [$size:literal] {
            $( $offset:literal $field:ident : $ty:ty => $doc:literal ),* $(,)?
        }
    )*) => {
        $crate::layout::layout! { $(
            $(#[$meta])*
            pub struct $name [$size] { $( $offset $field: $ty => $doc, )* }
        )* }

        /// The structures, the bytes of each, and its fields with their offsets.
        #[doc(hidden)]
        pub const $table: &[(&str, usize, &[(&str, usize)])] =
            &[$( (stringify!($name), $size, &[$( (stringify!($field), $offset) ),*]) ),*];
    };
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident [$size:literal] {
            $( $offset:literal $field:ident : $ty:ty => $doc:literal ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes,
            zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(C)]
        pub struct $name {
            $( #[doc = $doc] pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
        };
    )* };
}

/// Declares a closed set of the kernel's numbers, with rows `Name = number => "meaning"`.
macro_rules! numbers {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident: $repr:ident {
            $( $variant:ident = $value:literal => $doc:literal ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr($repr)]
        pub enum $name {
            $( #[doc = $doc] $variant = $value, )*
        }

        impl $name {
            /// Returns the member with this number, or `None` if there is none.
            pub const fn from_raw(raw: $repr) -> Option<Self> {
                match raw {
                    $( $value => Some(Self::$variant), )*
                    _ => None,
                }
            }

            /// Returns the kernel's number.
            pub const fn raw(self) -> $repr {
                self as $repr
            }
        }
    )* };
}

pub(crate) use {layout, numbers};
