//! The table macros: [`layouts!`] for layouts, [`codes!`] for sets of named values.

/// Declares layouts, one field per line:
///
/// ```text
/// pub struct Name [bits] {
///     field, set_field: first_bit, width;        // bool if one bit wide, u64 beyond 32, else u32
///     nested, nested_mut: first_bit => Layout;   // another layout, [u8; N] or [U64; N]
/// }
/// overlay { ... }                                // optional: fields that share bits with others
/// ```
///
/// May be used once per module, because it also generates the module's round-trip tests.
macro_rules! layouts {
    ($(
        $(#[$meta:meta])*
        pub struct $Name:ident [$bits:literal] {
            $( $(#[$fmeta:meta])*
               $get:ident, $set:ident: $bit:literal $(, $width:tt)? $(=> $Inner:ty)?; )*
        }
        $(overlay {
            $( $(#[$ometa:meta])*
               $oget:ident, $oset:ident: $obit:literal $(, $owidth:tt)? $(=> $OInner:ty)?; )*
        })?
    )*) => {
        $(
            $(#[$meta])*
            #[derive(
                Clone,
                Copy,
                PartialEq,
                Eq,
                $crate::fields::FromBytes,
                $crate::fields::IntoBytes,
                $crate::fields::Immutable,
                $crate::fields::KnownLayout,
                $crate::fields::Unaligned,
            )]
            #[repr(transparent)]
            pub struct $Name {
                bytes: [u8; $bits / 8],
            }

            impl $Name {
                /// Size in bytes.
                pub const BYTES: usize = $bits / 8;

                const PLAIN: &'static [$crate::fields::Field] = &[
                    $( $crate::fields::field_entry!($get $bit $(, $width)? $(=> $Inner)?) ),*
                ];

                const OVERLAYS: &'static [$crate::fields::Field] = &[
                    $($(
                        $crate::fields::field_entry!($oget $obit $(, $owidth)? $(=> $OInner)?)
                    ),*)?
                ];

                /// Returns the layout at the start of `bytes`, or `None` if they are too short.
                #[inline]
                #[must_use]
                pub fn from_bytes(bytes: &[u8]) -> Option<&Self> {
                    Self::split_from(bytes).map(|(head, _)| head)
                }

                /// Returns the mutable layout at the start of `bytes`, or `None` if they are too
                /// short.
                #[inline]
                #[must_use]
                pub fn from_bytes_mut(bytes: &mut [u8]) -> Option<&mut Self> {
                    Self::split_from_mut(bytes).map(|(head, _)| head)
                }

                /// Returns the layout at the start of `bytes` and the bytes that follow it.
                #[inline]
                #[must_use]
                pub fn split_from(bytes: &[u8]) -> Option<(&Self, &[u8])> {
                    <Self as $crate::fields::FromBytes>::ref_from_prefix(bytes).ok()
                }

                /// Returns the mutable layout at the start of `bytes` and the bytes that follow it.
                #[inline]
                #[must_use]
                pub fn split_from_mut(bytes: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
                    <Self as $crate::fields::FromBytes>::mut_from_prefix(bytes).ok()
                }

                /// Returns a copy of the layout at the start of `bytes`, zero past their end. A
                /// caller built against another version of the manual may send fewer bytes.
                #[must_use]
                pub fn from_short(bytes: &[u8]) -> Self {
                    let mut all = Self::default();
                    let known = bytes.len().min(Self::BYTES);
                    all.bytes[..known].copy_from_slice(&bytes[..known]);
                    all
                }

                /// Returns the bytes of the layout.
                #[inline]
                #[must_use]
                pub const fn as_bytes(&self) -> &[u8; $bits / 8] {
                    &self.bytes
                }

                /// Returns the mutable bytes of the layout.
                #[inline]
                #[must_use]
                pub const fn as_bytes_mut(&mut self) -> &mut [u8; $bits / 8] {
                    &mut self.bytes
                }

                $( $crate::fields::field_access! {
                    [$(#[$fmeta])*] $get $set $bit $(, $width)? $(=> $Inner)?
                } )*
                $($( $crate::fields::field_access! {
                    [$(#[$ometa])*] $oget $oset $obit $(, $owidth)? $(=> $OInner)?
                } )*)?
            }

            impl Default for $Name {
                #[inline]
                fn default() -> Self {
                    Self { bytes: [0; $bits / 8] }
                }
            }

            impl core::fmt::Debug for $Name {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    $crate::fields::debug(stringify!($Name), Self::PLAIN, &self.bytes, f)
                }
            }

            impl $crate::fields::Group for $Name {
                const KIND: $crate::fields::FieldKind =
                    $crate::fields::FieldKind::Layout(Self::PLAIN);
            }

            impl $crate::fields::Layout for $Name {
                const BYTES: usize = $bits / 8;
                const FIELDS: &'static [$crate::fields::Field] = &[
                    $( $crate::fields::field_entry!($get $bit $(, $width)? $(=> $Inner)?), )*
                    $($(
                        $crate::fields::field_entry!($oget $obit $(, $owidth)? $(=> $OInner)?),
                    )*)?
                ];
            }

            const _: () = {
                assert!($bits % 32 == 0);
                assert!($crate::fields::is_orderly($Name::PLAIN, $bits));
                assert!($crate::fields::is_inside($Name::OVERLAYS, $bits));
            };
        )*

        #[cfg(test)]
        mod layout_tests {
            use super::*;

            #[test]
            fn every_field_reads_back_what_was_set_and_touches_no_other_bit() {
                $(
                    $( $crate::fields::field_test! {
                        $Name $get $set $bit $(, $width)? $(=> $Inner)?
                    } )*
                    $($( $crate::fields::field_test! {
                        $Name $oget $oset $obit $(, $owidth)? $(=> $OInner)?
                    } )*)?
                )*
            }
        }
    };
}

/// The Rust type of a field of the given width.
macro_rules! field_type {
    (1) => {
        bool
    };
    (48) => {
        u64
    };
    (56) => {
        u64
    };
    (64) => {
        u64
    };
    ($width:tt) => {
        u32
    };
}

macro_rules! field_entry {
    ($name:ident $bit:literal, $width:tt) => {
        $crate::fields::Field {
            name: stringify!($name),
            bit: $bit,
            width: $width,
            kind: $crate::fields::FieldKind::Bits,
        }
    };
    ($name:ident $bit:literal => $Inner:ty) => {
        $crate::fields::Field {
            name: stringify!($name),
            bit: $bit,
            width: size_of::<$Inner>() * 8,
            kind: <$Inner as $crate::fields::Group>::KIND,
        }
    };
}

macro_rules! field_access {
    ([$(#[$meta:meta])*] $get:ident $set:ident $bit:literal, $width:tt) => {
        #[doc = concat!("`", stringify!($get), "`: ", $width, " bit(s) at ", stringify!($bit), ".")]
        $(#[$meta])*
        #[inline]
        #[must_use]
        #[allow(clippy::len_without_is_empty)]
        pub fn $get(&self) -> $crate::fields::field_type!($width) {
            const {
                let widest =
                    <$crate::fields::field_type!($width) as $crate::fields::FieldValue>::BITS;
                assert!($width <= widest);
            }
            $crate::fields::FieldValue::from_bits($crate::fields::get_bits(
                &self.bytes,
                $bit,
                $width,
            ))
        }

        #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
        #[inline]
        pub fn $set(&mut self, value: $crate::fields::field_type!($width)) -> &mut Self {
            let bits = $crate::fields::FieldValue::to_bits(value);
            $crate::fields::set_bits(&mut self.bytes, $bit, $width, bits);
            self
        }
    };
    ([$(#[$meta:meta])*] $get:ident $set:ident $bit:literal => $Inner:ty) => {
        #[doc = concat!("`", stringify!($get), "`, from bit ", stringify!($bit), " on.")]
        $(#[$meta])*
        #[inline]
        #[must_use]
        pub fn $get(&self) -> &$Inner {
            match <$Inner as $crate::fields::FromBytes>::ref_from_prefix(
                &self.bytes[$bit / 8..],
            ) {
                Ok((inner, _)) => inner,
                Err(_) => unreachable!(),
            }
        }

        #[doc = concat!("The mutable [`", stringify!($get), "`](Self::", stringify!($get), ").")]
        #[inline]
        #[must_use]
        pub fn $set(&mut self) -> &mut $Inner {
            match <$Inner as $crate::fields::FromBytes>::mut_from_prefix(
                &mut self.bytes[$bit / 8..],
            ) {
                Ok((inner, _)) => inner,
                Err(_) => unreachable!(),
            }
        }
    };
}

#[cfg(test)]
macro_rules! field_test {
    ($Name:ident $get:ident $set:ident $bit:literal, $width:tt) => {
        $crate::fields::check_number(
            concat!(stringify!($Name), "::", stringify!($get)),
            ($bit, $width),
            $Name::$get,
            $Name::$set,
        )
    };
    ($Name:ident $get:ident $set:ident $bit:literal => $Inner:ty) => {
        $crate::fields::check_group(
            concat!(stringify!($Name), "::", stringify!($get)),
            $bit,
            $Name::$get,
            $Name::$set,
        )
    };
}

/// Declares sets of codes, each a newtype over the raw number with named values. A value without a
/// name is kept as it is, so numbers from a newer manual survive.
macro_rules! codes {
    ($(
        $(#[$meta:meta])*
        pub struct $Name:ident {
            $( $(#[$vmeta:meta])* $VALUE:ident = $raw:literal; )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $Name(pub u32);

        impl $Name {
            $(
                #[doc = concat!("`", stringify!($VALUE), "`, ", stringify!($raw), ".")]
                $(#[$vmeta])*
                pub const $VALUE: Self = Self($raw);
            )*

            /// All named values, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$VALUE),*];

            /// Returns the name of the value, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($raw => Some(stringify!($VALUE)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($Name), "({:#x})"), self.0),
                }
            }
        }

        impl From<u32> for $Name {
            fn from(raw: u32) -> Self {
                Self(raw)
            }
        }

        impl From<$Name> for u32 {
            fn from(code: $Name) -> Self {
                code.0
            }
        }
    )*};
}

#[cfg(test)]
pub(crate) use field_test;
pub(crate) use {codes, field_access, field_entry, field_type, layouts};
