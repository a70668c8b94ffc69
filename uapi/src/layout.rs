//! The two table macros with which this crate declares the kernel's headers.

/// Declares `#[repr(C)]` structures of the kernel, with rows `offset name: type => "meaning"`. Size
/// and offsets are asserted at compile time. Padding is always a named field, as in the headers, so
/// that every byte passed to the kernel is initialized.
macro_rules! layout {
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
