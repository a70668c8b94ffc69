//! A command in the form of a write(2) call: its request, and its response.

use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::kernel::decode::{Request, from_short};

/// A command in the call.
pub(crate) struct WriteCall<'a, 'r> {
    request: &'a mut Request<'r>,
    core_in: Vec<u8>,
    /// The driver's request.
    pub(crate) driver_in: Vec<u8>,
}

impl<'a, 'r> WriteCall<'a, 'r> {
    pub(crate) fn new(request: &'a mut Request<'r>, core_in: Vec<u8>, driver_in: Vec<u8>) -> Self {
        Self { request, core_in, driver_in }
    }
}

impl WriteCall<'_, '_> {
    /// The core's request, zero where the caller's is shorter.
    pub(crate) fn request<T: FromBytes + IntoBytes>(&self) -> T {
        from_short(&self.core_in)
    }

    /// The core's request, unchanged.
    pub(crate) fn core_in(&self) -> &[u8] {
        &self.core_in
    }

    /// The driver's request, zero where the caller's is shorter.
    pub(crate) fn driver_request<T: FromBytes + IntoBytes>(&self) -> T {
        from_short(&self.driver_in)
    }

    /// Room of the core's response.
    pub(crate) fn room(&self) -> usize {
        self.request.room(attr::invoke_write::CORE_OUT)
    }

    /// Room of the driver's response.
    pub(crate) fn driver_room(&self) -> usize {
        self.request.room(attr::uhw::OUT)
    }

    /// Writes the core's response.
    pub(crate) fn respond<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.request.answer(attr::invoke_write::CORE_OUT, value)
    }

    /// Writes the driver's response, up to the caller's room.
    pub(crate) fn respond_driver<T: IntoBytes + Immutable>(
        &mut self,
        value: &T,
    ) -> Result<(), Errno> {
        self.request.answer_bytes(attr::uhw::OUT, value.as_bytes())
    }
}
