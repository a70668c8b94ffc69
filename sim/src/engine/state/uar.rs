//! UAR pages, their doorbells, and BlueFlame copies that are still arriving.

use mlx5_prm::doorbell::BLUEFLAME_UNIT;

/// A UAR page.
#[derive(Debug)]
pub(crate) struct Uar {
    /// Bus address of the page, if it is plain memory.
    pub(crate) memory: Option<u64>,
    pub(crate) qps: Vec<u32>,
    pub(crate) cqs: Vec<u32>,
    /// A BlueFlame copy that arrives piece by piece.
    pub(crate) arriving: Option<Arriving>,
}

impl Uar {
    pub(crate) fn new(memory: Option<u64>) -> Self {
        Self { memory, qps: Vec::new(), cqs: Vec::new(), arriving: None }
    }
}

/// A doorbell: the first eight bytes of a control segment.
#[derive(Clone, Copy)]
pub(crate) struct SendDoorbell {
    pub(crate) index: u16,
    pub(crate) qpn: u32,
    pub(crate) units: u16,
}

impl From<u64> for SendDoorbell {
    fn from(value: u64) -> Self {
        Self { index: (value >> 40) as u16, qpn: (value as u32) >> 8, units: (value & 0x3f) as u16 }
    }
}

impl SendDoorbell {
    /// One past the last block of the WQE.
    pub(crate) fn end(self) -> u16 {
        self.index.wrapping_add(self.units.div_ceil(4).max(1))
    }
}

/// A block as a BlueFlame copy brought it, which the device uses in place of the ring's.
pub(crate) type Copied = (u16, [u8; BLUEFLAME_UNIT]);

/// A copy that is arriving.
#[derive(Clone, Debug)]
pub(crate) struct Arriving {
    /// Offset of its next piece in the page.
    pub(crate) next: usize,
    pub(crate) value: u64,
    pub(crate) bytes: Vec<u8>,
    /// Contents of the ring when the copy began. By the end of the copy the request may be complete
    /// and its place in the ring reused.
    pub(crate) ring: Vec<u8>,
    /// Its request waits for the rest of the copy.
    pub(crate) held: bool,
}
