//! Information of the kernel that only RDMA netlink has (`rdma/rdma_netlink.h`): whether it copies
//! pinned pages when a process forks, and the index of a device. A kernel or a sandbox may refuse
//! the call: then the answer is unknown.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NETLINK_RDMA: i32 = 20;
const RDMA_NL_NLDEV: u16 = 5;
const RDMA_NLDEV_CMD_GET: u16 = 1;
const RDMA_NLDEV_CMD_SYS_GET: u16 = 6;
const RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
const RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
const RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK: u16 = 93;

/// Sizes of the header of a message, and of an attribute. The data after them is padded to four
/// bytes.
const MESSAGE: usize = 16;
const ATTRIBUTE: usize = 4;
/// Mask of an attribute's type, without its flags.
const TYPE: u16 = 0x3fff;

/// Whether a child of this process gets its own copy of pages that the device uses (Linux 5.12).
pub(crate) fn copies_on_fork() -> bool {
    let mut copies = false;
    ask(RDMA_NLDEV_CMD_SYS_GET, 0, |attributes| {
        let value = attribute(attributes, RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK);
        copies = value.and_then(|value| value.first()).is_some_and(|&value| value != 0);
    });
    copies
}

/// The kernel's index of the device with this name.
pub(crate) fn device_index(name: &str) -> Option<u32> {
    let mut index = None;
    ask(RDMA_NLDEV_CMD_GET, libc::NLM_F_DUMP as u16, |attributes| {
        let named = attribute(attributes, RDMA_NLDEV_ATTR_DEV_NAME);
        if named.and_then(|named| named.strip_suffix(b"\0")) == Some(name.as_bytes()) {
            let value = attribute(attributes, RDMA_NLDEV_ATTR_DEV_INDEX);
            index = value.and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes);
        }
    });
    index
}

/// Sends a command, and passes the attributes of each message of the answer to `each`.
fn ask(command: u16, flags: u16, mut each: impl FnMut(&[u8])) {
    let Some(socket) = socket() else { return };
    let kind = RDMA_NL_NLDEV << 10 | command;
    let request = header(MESSAGE as u32, kind, libc::NLM_F_REQUEST as u16 | flags);
    // SAFETY: `request` is readable for the length that is passed.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), MESSAGE, 0) };
    if sent != MESSAGE as isize {
        return;
    }
    let mut answer = vec![0_u8; 1 << 16];
    loop {
        let (place, room) = (answer.as_mut_ptr().cast(), answer.len());
        // SAFETY: `place` is writable for `room` bytes.
        let length = unsafe { libc::recv(socket.as_raw_fd(), place, room, 0) };
        let Ok(length @ 1..) = usize::try_from(length) else { return };
        let more = messages(&answer[..length], kind, &mut each);
        if !(more && flags != 0) {
            return;
        }
    }
}

fn socket() -> Option<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call has no precondition; it creates a descriptor.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_RDMA) };
    // SAFETY: the descriptor is new, so nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn header(length: u32, kind: u16, flags: u16) -> [u8; MESSAGE] {
    let mut header = [0; MESSAGE];
    header[0..4].copy_from_slice(&length.to_ne_bytes());
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// Passes the attributes of each message of this kind to `each`. Returns whether more messages may
/// follow: neither the end of a list nor an error was among them.
fn messages(mut bytes: &[u8], kind: u16, each: &mut impl FnMut(&[u8])) -> bool {
    while let Some(length) = bytes.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize)
    {
        let Some(message) = bytes.get(..length).filter(|message| message.len() >= MESSAGE) else {
            return false;
        };
        let found = u16::from_ne_bytes([message[4], message[5]]);
        if [libc::NLMSG_DONE, libc::NLMSG_ERROR].contains(&i32::from(found)) {
            return false;
        }
        if found == kind {
            each(&message[MESSAGE..]);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

/// The value of an attribute.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [low, high, kind @ ..]: [u8; ATTRIBUTE] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let value = bytes.get(ATTRIBUTE..length)?;
        if u16::from_ne_bytes(kind) & TYPE == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (ATTRIBUTE + value.len()) as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0xee);
        bytes
    }

    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = header((MESSAGE + attributes.len()) as u32, kind, 0).to_vec();
        bytes.extend_from_slice(attributes);
        bytes
    }

    #[test]
    fn an_attribute_is_found_behind_others_whatever_their_padding() {
        let bytes = [with(2, b"mlx5_0\0"), with(1, &7_u32.to_ne_bytes()), with(93, &[1])].concat();
        assert_eq!(attribute(&bytes, 2), Some(&b"mlx5_0\0"[..]));
        assert_eq!(attribute(&bytes, 1), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(&bytes, 93), Some(&[1][..]));
        assert_eq!(attribute(&bytes, 94), None);
    }

    #[test]
    fn attributes_and_messages_that_are_cut_or_say_nonsense_end_the_search() {
        let bytes = with(2, b"mlx5_0\0");
        for cut in 0..10 {
            assert_eq!(attribute(&bytes[..cut], 2), None, "{cut} bytes");
        }
        assert_eq!(attribute(&[0, 0, 9, 0, 8, 0, 2, 0, 1, 2, 3, 4], 2), None);
        let one = message(0x1401, &bytes);
        for cut in 0..one.len() {
            let mut shown = 0;
            messages(&one[..cut], 0x1401, &mut |_| shown += 1);
            assert_eq!(shown, 0, "{cut} bytes");
        }
    }

    #[test]
    fn messages_of_the_kind_are_shown_until_the_list_ends() {
        let bytes = [
            message(0x1401, &with(1, &[1; 4])),
            message(0x1402, &with(1, &[2; 4])),
            message(0x1401, &with(1, &[3; 4])),
        ];
        let mut shown = Vec::new();
        let mut show = |attributes: &[u8]| shown.push(attributes[ATTRIBUTE]);
        assert!(messages(&bytes.concat(), 0x1401, &mut show));
        let end = [bytes[0].clone(), message(libc::NLMSG_DONE as u16, &[0; 4])].concat();
        assert!(!messages(&end, 0x1401, &mut show));
        assert_eq!(shown, [1, 3, 1]);
    }
}
