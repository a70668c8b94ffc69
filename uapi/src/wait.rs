//! Sleeping until an event file has something to read.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::Errno;

/// Waits until `fd` can be read, or for `timeout` (`None`: without end); answers whether it can.
///
/// A descriptor with an error or a hang-up counts as readable, for the read is what tells which.
/// Signals neither end the wait nor lengthen it.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = match deadline {
            Some(deadline) => millis_until(deadline),
            None => PollTimeout::NONE,
        };
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut fds, left) {
            Ok(0) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(false);
                }
            }
            Ok(_) => {
                let events = fds[0].revents().unwrap_or(PollFlags::empty());
                if events.contains(PollFlags::POLLNVAL) {
                    return Err(Errno::EBADF);
                }
                return Ok(true);
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// What is left until `deadline`, rounded up so that a short rest does not spin, and cut to what
/// poll(2) can take (the caller loops).
fn millis_until(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    let millis = left.as_nanos().div_ceil(1_000_000);
    PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd};

    use super::*;

    #[test]
    fn an_empty_pipe_times_out_and_not_early() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let timeout = Duration::from_millis(3);
        let start = Instant::now();
        assert_eq!(wait_readable(reader.as_fd(), Some(timeout)), Ok(false));
        assert!(start.elapsed() >= timeout);
        assert_eq!(wait_readable(reader.as_fd(), Some(Duration::ZERO)), Ok(false));
    }

    #[test]
    fn a_byte_ends_the_wait() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[1]).unwrap();
        assert_eq!(wait_readable(reader.as_fd(), Some(Duration::ZERO)), Ok(true));
        assert_eq!(wait_readable(reader.as_fd(), None), Ok(true));
        assert_eq!(wait_readable(reader.as_fd(), Some(Duration::MAX)), Ok(true));
    }

    #[test]
    fn a_byte_from_another_thread_ends_an_endless_wait() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let waiter = std::thread::spawn(move || wait_readable(reader.as_fd(), None));
        writer.write_all(&[1]).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(true));
    }

    #[test]
    fn a_hang_up_counts_as_readable() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert_eq!(wait_readable(reader.as_fd(), None), Ok(true));
    }
}
