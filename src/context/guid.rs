//! GUIDs: identifiers of devices and systems.

use std::fmt;

/// An EUI-64: the identifier of a device or of a system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift| (self.0 >> shift) as u16;
        write!(f, "{:04x}:{:04x}:{:04x}:{:04x}", part(48), part(32), part(16), part(0))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 8]> for Guid {
    fn from(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_is_printed_in_four_groups() {
        let guid = Guid::from([0x00, 0x02, 0xc9, 0x03, 0, 0x1a, 0xbc, 0xde]);
        assert_eq!(guid.to_string(), "0002:c903:001a:bcde");
        assert_eq!(guid, Guid(0x0002_c903_001a_bcde));
    }
}
