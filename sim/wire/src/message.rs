//! The messages on the socket: one packet each, some with a descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use mlx5_uapi::Errno;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Changes with every change of the messages: both ends must be of the same build.
pub(crate) const VERSION: u64 = 4;

/// The longest message.
pub(crate) const LONGEST: usize = 1 << 16;
/// Bytes of the kind or errno, and of the numbers.
const HEAD: usize = 8 + 8 * NUMBERS;
const NUMBERS: usize = 4;

/// A question of a process to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Ask {
    /// To be let in: version, address of a word in this process, its value → number of this
    /// process, violations so far; the machine's settings; the file of pages.
    Hello,
    /// Entries of the sysfs tree: first → how many; the entries.
    Sysfs,
    /// To open a device: major, minor; its node → file.
    Open,
    /// For a file that it inherited: process, file → file.
    Inherit,
    /// To close a file: file.
    Close,
    /// A call: file; header and attributes → the same.
    Call,
    /// To map pages: file, offset, length, whether to write → mapping, place in the file of pages.
    Map,
    /// To end a mapping: mapping.
    Unmap,
    /// To take over an event file: file, number → events; its descriptor.
    Events,
    /// To read from an event file: events, room → the record.
    Read,
    /// To close an event file: events.
    CloseEvents,
    /// To work until nothing is left to do → units of work.
    Settle,
    /// For the violations by drivers: first → violations so far; a line each.
    Violations,
    /// To open a channel of the connection manager → channel, the host's number of its descriptor;
    /// the descriptor.
    OpenCm,
    /// For a channel that it inherited: process, channel → the same.
    InheritCm,
    /// A call on a channel: channel; header and command.
    CallCm,
    /// To close a channel: channel.
    CloseCm,
}

impl Ask {
    const ALL: [Self; 17] = [
        Self::Hello,
        Self::Sysfs,
        Self::Open,
        Self::Inherit,
        Self::Close,
        Self::Call,
        Self::Map,
        Self::Unmap,
        Self::Events,
        Self::Read,
        Self::CloseEvents,
        Self::Settle,
        Self::Violations,
        Self::OpenCm,
        Self::InheritCm,
        Self::CallCm,
        Self::CloseCm,
    ];

    pub(crate) fn from_raw(kind: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|ask| *ask as u64 == kind)
    }
}

/// A message: a question begins with its kind, an answer with its errno or zero.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) head: u64,
    pub(crate) numbers: [u64; NUMBERS],
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: Option<OwnedFd>,
}

impl Message {
    pub(crate) fn ask(ask: Ask, numbers: &[u64], bytes: &[u8]) -> Self {
        Self { head: ask as u64, ..Self::numbers(numbers) }.with(bytes.to_vec())
    }

    pub(crate) fn numbers(given: &[u64]) -> Self {
        let mut numbers = [0; NUMBERS];
        numbers[..given.len()].copy_from_slice(given);
        Self { numbers, ..Self::default() }
    }

    pub(crate) fn failure(errno: Errno) -> Self {
        Self { head: errno as i32 as u64, ..Self::default() }
    }

    pub(crate) fn with(self, bytes: Vec<u8>) -> Self {
        Self { bytes, ..self }
    }
}

/// Words as bytes of a message.
pub(crate) fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Words from bytes of a message.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Sends a message. The caller keeps its `file`; a copy is sent.
pub(crate) fn send(
    socket: RawFd,
    message: &Message,
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut head = vec![message.head];
    head.extend(message.numbers);
    let head = to_bytes(&head);
    let parts = [IoSlice::new(&head), IoSlice::new(&message.bytes)];
    let files: Vec<RawFd> = file.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&files)];
    let control = if files.is_empty() { &[][..] } else { &control };
    loop {
        match sendmsg::<()>(socket, &parts, control, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for a message; none if the other end hung up.
pub(crate) fn receive(socket: RawFd) -> Result<Option<Message>, Errno> {
    let mut bytes = vec![0; HEAD + LONGEST];
    let mut control = cmsg_space!(RawFd);
    let (length, file) = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(socket, &mut parts, Some(&mut control), flags) {
            Ok(answer) => {
                let mut file = None;
                if answer.flags.contains(MsgFlags::MSG_CTRUNC) {
                    // This process has no descriptor left for the one that was sent.
                    return Err(Errno::EMFILE);
                }
                for message in answer.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(files) = message {
                        for fd in files {
                            // SAFETY: the kernel has just made the descriptor for this process.
                            file = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                        }
                    }
                }
                break (answer.bytes, file);
            }
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    };
    if length == 0 {
        return Ok(None);
    }
    if length < HEAD {
        return Err(Errno::EPROTO);
    }
    bytes.truncate(length);
    let rest = bytes.split_off(HEAD);
    let words = to_words(&bytes);
    let mut numbers = [0; NUMBERS];
    numbers.copy_from_slice(&words[1..]);
    Ok(Some(Message { head: words[0], numbers, bytes: rest, file }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn a_message_arrives_whole_with_its_descriptor() {
        let kind = SockType::SeqPacket;
        let (one, other) =
            socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).expect("sockets");
        let message = Message::ask(Ask::Map, &[1, 2, u64::MAX], &[7; 1000]);
        send(one.as_raw_fd(), &message, Some(one.as_fd())).expect("sent");
        let came = receive(other.as_raw_fd()).expect("received").expect("a message");
        assert_eq!(Ask::from_raw(came.head), Some(Ask::Map));
        assert_eq!((came.numbers, came.bytes), ([1, 2, u64::MAX, 0], vec![7; 1000]));
        assert!(came.file.is_some());
        drop((one, came.file));
        assert!(receive(other.as_raw_fd()).expect("the end").is_none());
    }

    #[test]
    fn every_question_has_a_number() {
        for (number, ask) in Ask::ALL.into_iter().enumerate() {
            assert_eq!((ask as u64, Ask::from_raw(number as u64)), (number as u64, Some(ask)));
        }
        assert_eq!(Ask::from_raw(Ask::ALL.len() as u64), None);
    }
}
