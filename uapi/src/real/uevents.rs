//! Uevents of the running kernel, from a netlink socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};

use crate::{Errno, call::MAX_EINTR_RETRIES, kernel::EventFile};

/// The multicast group of the kernel's own messages; udev's are in another.
const KERNEL_GROUP: u32 = 1;

/// A netlink socket of the group. Every process may join it.
#[derive(Debug)]
pub(super) struct UeventSocket {
    fd: OwnedFd,
}

impl UeventSocket {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkKObjectUEvent;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self { fd })
    }
}

impl AsFd for UeventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl EventFile for UeventSocket {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut interruptions = 0;
        loop {
            match recvfrom::<NetlinkAddr>(self.fd.as_raw_fd(), buf) {
                // Processes may send to the socket, too. The kernel's messages have no sender.
                Ok((_, Some(sender))) if sender.pid() != 0 => {}
                Ok((len, _)) => return Ok(len),
                Err(Errno::EINTR) if interruptions < MAX_EINTR_RETRIES => interruptions += 1,
                Err(errno) => return Err(errno),
            }
        }
    }
}
