//! Errors of allocations: they name the step that failed.

use super::{Error, ErrorKind, usual_cause};
use mlx5_uapi::{AllocateError, AllocateStep, Errno};

impl Error {
    /// Memory of `len` bytes could not be allocated.
    pub(crate) fn allocate(operation: &'static str, len: usize, error: AllocateError) -> Self {
        let AllocateError { step, errno } = error;
        let (kind, cause) = cause(step, errno);
        let what = match step {
            AllocateStep::Map => format!("mmap of {len} bytes failed: {cause}"),
            AllocateStep::MapHuge { page_bits: 30 } => {
                format!("mmap of {len} bytes in pages of 1 GiB failed: {cause}")
            }
            AllocateStep::MapHuge { page_bits } => {
                let size = (1_u64 << page_bits) >> 20;
                format!("mmap of {len} bytes in pages of {size} MiB failed: {cause}")
            }
            AllocateStep::Bind { node } => format!("mbind to NUMA node {node} failed: {cause}"),
            AllocateStep::Advise => format!("madvise of {len} bytes failed: {cause}"),
        };
        Self::new(operation, kind, what).with_errno(errno)
    }
}

/// Returns the usual meaning of an errno in a step of an allocation.
fn cause(step: AllocateStep, errno: Errno) -> (ErrorKind, &'static str) {
    use AllocateStep::*;
    use ErrorKind::*;
    match (step, errno) {
        (Map, Errno::ENOMEM) => (
            OutOfMemory,
            "out of memory, or a limit of the process is reached (ulimit -v, vm.max_map_count)",
        ),
        (MapHuge { .. }, Errno::ENOMEM) => {
            (OutOfMemory, "the pool has too few huge pages: raise vm.nr_hugepages")
        }
        (MapHuge { .. }, Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
            (NotSupported, "the kernel has no pages of this size")
        }
        (Bind { .. }, Errno::EINVAL) => (
            InvalidArgument,
            "the node does not exist, has no memory, or is outside of the process's cpuset, see \
             /sys/devices/system/node",
        ),
        (Bind { .. }, Errno::ENOSYS) => (NotSupported, "the kernel has no NUMA support"),
        (Bind { .. }, Errno::EPERM | Errno::EACCES) => (
            PermissionDenied,
            "a sandbox forbids it; a container needs a seccomp profile that allows mbind, or \
             CAP_SYS_NICE",
        ),
        (_, Errno::EPROTO) => (
            Kernel,
            "the memory is shorter than asked for, or not aligned: a fault of the `Kernel`",
        ),
        (_, errno) => usual_cause("mmap", errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_allocation_names_what_failed() {
        let error = |step: AllocateStep, errno| Error::allocate("reg_mr", 8192, step.failed(errno));
        let text = |step, errno| error(step, errno).to_string();
        let map = text(AllocateStep::Map, Errno::ENOMEM);
        assert!(map.contains("mmap of 8192 bytes") && !map.contains("huge"), "{map}");
        let huge = text(AllocateStep::MapHuge { page_bits: 21 }, Errno::ENOMEM);
        assert!(huge.contains("pages of 2 MiB") && huge.contains("vm.nr_hugepages"), "{huge}");
        let giant = text(AllocateStep::MapHuge { page_bits: 30 }, Errno::ENOMEM);
        assert!(giant.contains("pages of 1 GiB"), "{giant}");
        let node = text(AllocateStep::Bind { node: 7 }, Errno::EINVAL);
        assert!(node.contains("mbind to NUMA node 7") && node.contains("EINVAL"), "{node}");
        let sandbox = text(AllocateStep::Bind { node: 0 }, Errno::EPERM);
        assert!(sandbox.contains("seccomp"), "{sandbox}");
        let fork = text(AllocateStep::Advise, Errno::EINVAL);
        assert!(fork.contains("madvise"), "{fork}");
    }

    #[test]
    fn a_kernel_without_numa_or_large_pages_cannot_do_it() {
        let kind =
            |step: AllocateStep, errno| Error::allocate("reg_mr", 1, step.failed(errno)).kind();
        assert_eq!(kind(AllocateStep::Bind { node: 0 }, Errno::ENOSYS), ErrorKind::NotSupported);
        let giant = AllocateStep::MapHuge { page_bits: 30 };
        assert_eq!(kind(giant, Errno::EINVAL), ErrorKind::NotSupported);
        assert_eq!(kind(giant, Errno::ENOMEM), ErrorKind::OutOfMemory);
        assert_eq!(kind(AllocateStep::Bind { node: 9 }, Errno::EINVAL), ErrorKind::InvalidArgument);
    }

    #[test]
    fn an_allocation_is_never_in_doubt() {
        for errno in [Errno::ENOMEM, Errno::EINVAL, Errno::ENOSYS, Errno::EPERM] {
            assert!(!Error::allocate("reg_mr", 1, AllocateStep::Map.failed(errno)).in_doubt());
        }
    }
}
