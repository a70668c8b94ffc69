//! Firmware commands (DEVX).

use super::Link;
use crate::error::{Error, ErrorKind};
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::caps::{CapGroup, CapMode, HcaCap, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_uapi::{Errno, cmd::devx};

/// DPDK assumes this minimum for every device that reports none
/// (`MLX5_MPRQ_LOG_MIN_STRIDE_WQE_SIZE`).
const LOG_STRIDING_BYTES: u32 = 14;

impl Link {
    /// Whether DEVX commands are available.
    pub(crate) fn has_devx(&self) -> bool {
        self.devx
    }

    /// Checks that `operation` can use DEVX.
    fn check_devx(&self, operation: &'static str) -> Result<(), Error> {
        self.check(operation)?;
        if self.devx { Ok(()) } else { Err(Error::no_devx(operation)) }
    }

    /// Runs a firmware command that creates an object. Returns the kernel's handle.
    ///
    /// # Safety
    /// The command may name memory and objects. It must not harm any that others rely on.
    pub(crate) unsafe fn devx_create(
        &self,
        operation: &'static str,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<u32, Error> {
        self.check_devx(operation)?;
        // SAFETY: the caller promises that the command harms no memory or object that others rely
        // on.
        unsafe { devx::obj_create(&*self.file, input, output) }
            .map_err(|errno| self.fail_devx(operation, errno, output))
    }

    /// Runs a firmware command that modifies the object with the kernel's `handle`.
    ///
    /// # Safety
    /// As for [`Link::devx_create`].
    pub(crate) unsafe fn devx_modify(
        &self,
        operation: &'static str,
        handle: u32,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Error> {
        self.check_devx(operation)?;
        // SAFETY: the caller promises that the command harms no memory or object that others rely
        // on.
        unsafe { devx::obj_modify(&*self.file, handle, input, output) }
            .map_err(|errno| self.fail_devx(operation, errno, output))
    }

    /// Destroys an object made by [`Link::devx_create`].
    pub(crate) fn devx_destroy(&self, operation: &'static str, handle: u32) -> Result<(), Error> {
        self.run_destroy(operation, |file| devx::obj_destroy(file, handle))
    }

    /// Returns the error for a failed DEVX command with output `answer`.
    fn fail_devx(&self, operation: &'static str, errno: Errno, answer: &[u8]) -> Error {
        let error = Error::devx(operation, errno, answer);
        if error.kind() == ErrorKind::Firmware { error } else { self.fail(operation, errno) }
    }

    /// Queries the current general HCA capabilities (QUERY_HCA_CAP), on behalf of `operation`.
    pub(crate) fn hca_cap(&self, operation: &'static str) -> Result<HcaCap, Error> {
        Ok(*self.query_cap(operation, CapGroup::GENERAL)?.hca_cap())
    }

    /// Returns the base-two logarithm of the minimum size of a receive with strides, on behalf of
    /// `operation`. Like DPDK's PMD (`mlx5_devx_cmd_query_hca_attr`), assumes 16 KiB if the device
    /// does not report it, or cannot be queried.
    pub(crate) fn log_striding_bytes(&self, operation: &'static str) -> Result<u32, Error> {
        if let Some(&known) = self.log_striding_bytes.get() {
            return Ok(known);
        }
        let reported = if self.devx && self.hca_cap(operation)?.hca_cap_2() {
            self.query_cap(operation, CapGroup::GENERAL_2)?.hca_cap_2().log_min_stride_wqe_sz()
        } else {
            0
        };
        let least = if reported == 0 { LOG_STRIDING_BYTES } else { reported };
        Ok(*self.log_striding_bytes.get_or_init(|| least))
    }

    /// Queries a group of current HCA capabilities.
    fn query_cap(
        &self,
        operation: &'static str,
        group: CapGroup,
    ) -> Result<Box<QueryHcaCapOut>, Error> {
        self.check_devx(operation)?;
        let mut request = QueryHcaCapIn::request();
        request.set_op_mod(group.op_mod(CapMode::CURRENT));
        let mut answer = Box::new(QueryHcaCapOut::default());
        // SAFETY: QUERY_HCA_CAP names no memory or object and changes nothing.
        unsafe { devx::general_cmd(&*self.file, request.as_bytes(), answer.as_bytes_mut()) }
            .map_err(|errno| self.fail_devx(operation, errno, answer.as_bytes()))?;
        Ok(answer)
    }

    /// Runs a firmware command that queries the object with the kernel's `handle`.
    pub(crate) fn devx_query(
        &self,
        operation: &'static str,
        handle: u32,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Error> {
        self.check_devx(operation)?;
        devx::obj_query(&*self.file, handle, input, output)
            .map_err(|errno| self.fail_devx(operation, errno, output))
    }
}
