//! The two table notations in which this crate writes down the kernel's headers.

/// A `#[repr(C)]` structure of the kernel's, each row `offset name: type => "meaning"`, checked
/// against the size and the offsets at compile time. Padding is always a named field, as in the
/// headers, so that every byte that travels is a defined one.
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

/// A closed set of the kernel's numbers, each row `Name = number => "meaning"`.
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
            /// The member that the kernel's number stands for, if it is one of them.
            pub const fn from_raw(raw: $repr) -> Option<Self> {
                match raw {
                    $( $value => Some(Self::$variant), )*
                    _ => None,
                }
            }

            /// The kernel's number.
            pub const fn raw(self) -> $repr {
                self as $repr
            }
        }
    )* };
}

pub(crate) use {layout, numbers};
