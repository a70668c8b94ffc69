//! Objects through which a device can reach memory.

/// An object through which a device can still reach a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A memory key.
    Mkey(u32),
    /// A completion queue: its ring or its doorbell record.
    Cq(u32),
    /// A queue pair: its rings or its doorbell record.
    Qp(u32),
    /// A shared receive queue: its ring or its doorbell record.
    Srq(u32),
    /// A UAR page.
    Uar(u32),
}
