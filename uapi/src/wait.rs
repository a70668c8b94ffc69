//! Waiting for event files.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::Errno;

/// Waits until `fd` is readable, for at most `timeout` (`None`: no limit). Returns whether it is
/// readable.
///
/// A descriptor with an error or a hang-up counts as readable, because a read reports which it is.
/// A signal neither ends nor prolongs the wait.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, Errno> {
    wait_any_readable([fd], timeout).map(|[readable]| readable)
}

/// Waits for several descriptors, and returns whether each is readable. After a timeout, none is.
pub fn wait_any_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Result<[bool; N], Errno> {
    wait_any(fds.map(|fd| (fd, PollFlags::POLLIN)), timeout)
}

/// Descriptors that are waited for together, through one: the descriptor behind [`AsFd`] is
/// readable while any of them is.
#[derive(Debug)]
pub struct WaitSet(Epoll);

impl WaitSet {
    /// Creates an empty set.
    pub fn new() -> Result<Self, Errno> {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(Self)
    }

    /// Adds a descriptor. It leaves the set when its file is closed.
    pub fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
    }
}

impl AsFd for WaitSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

/// A timer as a descriptor, which is readable once the time is over.
#[derive(Debug)]
pub struct Timer(TimerFd);

impl Timer {
    /// Creates a timer that is not set.
    pub fn new() -> Result<Self, Errno> {
        TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).map(Self)
    }

    /// Sets the timer, from now on. A century stands for any longer time.
    pub fn set(&self, time: Duration) -> Result<(), Errno> {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        // Zero would disarm the timer.
        let time = time.clamp(Duration::from_nanos(1), CENTURY);
        let once = Expiration::OneShot(TimeSpec::from_duration(time));
        self.0.set(once, TimerSetTimeFlags::empty())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until a stream can be read or written, for at most `timeout` (`None`: no limit), and
/// returns whether either is possible. An error or a hang-up counts as both.
pub fn wait_readable_or_writable(
    fd: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> Result<bool, Errno> {
    wait_any([(fd, PollFlags::POLLIN | PollFlags::POLLOUT)], timeout).map(|[ready]| ready)
}

fn wait_any<const N: usize>(
    fds: [(BorrowedFd<'_>, PollFlags); N],
    timeout: Option<Duration>,
) -> Result<[bool; N], Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = match deadline {
            Some(deadline) => millis_until(deadline),
            None => PollTimeout::NONE,
        };
        let mut fds = fds.map(|(fd, events)| PollFd::new(fd, events));
        match poll(&mut fds, left) {
            Ok(0) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok([false; N]);
                }
            }
            Ok(_) => {
                let events = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
                if events.iter().any(|events| events.contains(PollFlags::POLLNVAL)) {
                    return Err(Errno::EBADF);
                }
                return Ok(events.map(|events| !events.is_empty()));
            }
            // A signal interrupted the wait. Without a deadline, it continues.
            Err(Errno::EINTR) => {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok([false; N]);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns the time until `deadline` in milliseconds: rounded up, so that a short rest does not
/// spin, and limited to what poll(2) takes (the caller loops).
fn millis_until(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    let millis = left.as_nanos().div_ceil(1_000_000);
    PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

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
    fn wait_reports_the_readable_descriptors() {
        let (one, _one) = std::io::pipe().unwrap();
        let (other, mut writer) = std::io::pipe().unwrap();
        let fds = || [one.as_fd(), other.as_fd()];
        assert_eq!(wait_any_readable(fds(), Some(Duration::ZERO)), Ok([false; 2]));
        writer.write_all(&[1]).unwrap();
        assert_eq!(wait_any_readable(fds(), None), Ok([false, true]));
    }

    #[test]
    fn a_set_is_readable_while_one_of_it_is() {
        let (mut one, mut to_one) = std::io::pipe().unwrap();
        let (other, _other) = std::io::pipe().unwrap();
        let set = WaitSet::new().unwrap();
        for fd in [one.as_fd(), other.as_fd()] {
            set.add(fd).unwrap();
        }
        let readable = || wait_readable(set.as_fd(), Some(Duration::ZERO));
        assert_eq!(readable(), Ok(false));
        to_one.write_all(&[1]).unwrap();
        assert_eq!((readable(), readable()), (Ok(true), Ok(true)));
        one.read_exact(&mut [0]).unwrap();
        assert_eq!(readable(), Ok(false));
    }

    #[test]
    fn a_timer_is_readable_once_its_time_is_over() {
        let timer = Timer::new().unwrap();
        let readable = |limit| wait_readable(timer.as_fd(), limit);
        assert_eq!(readable(Some(Duration::ZERO)), Ok(false));
        timer.set(Duration::MAX).unwrap();
        assert_eq!(readable(Some(Duration::ZERO)), Ok(false));
        let start = Instant::now();
        timer.set(Duration::from_millis(2)).unwrap();
        assert_eq!(readable(Some(Duration::from_secs(60))), Ok(true));
        assert!(start.elapsed() >= Duration::from_millis(2));
        timer.set(Duration::ZERO).unwrap();
        assert_eq!(readable(Some(Duration::from_secs(60))), Ok(true));
    }

    #[test]
    fn a_stream_is_ready_when_it_can_be_written_or_read() {
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let ready = || wait_readable_or_writable(one.as_fd(), Some(Duration::ZERO));
        assert_eq!(ready(), Ok(true));
        one.set_nonblocking(true).unwrap();
        while (&one).write(&[0; 4096]).is_ok() {}
        assert_eq!(ready(), Ok(false));
        other.write_all(&[1]).unwrap();
        assert_eq!(ready(), Ok(true));
    }

    #[test]
    fn a_hang_up_counts_as_readable() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert_eq!(wait_readable(reader.as_fd(), None), Ok(true));
    }
}
