//! The management queue pairs of a port, QP0 and QP1.

/// Kind of a management queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Management {
    /// QP0: subnet management, of InfiniBand.
    Subnet = 0,
    /// QP1: general services.
    General = 1,
}
