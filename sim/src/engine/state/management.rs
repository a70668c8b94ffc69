//! Which queue pairs are a port's QP0 and QP1.

/// Which management queue pair of its port a queue pair is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Management {
    /// QP0: subnet management, of InfiniBand.
    Subnet = 0,
    /// QP1: general services.
    General = 1,
}
