//! The TCP connection that keeps two hosts in step.

use crate::failed::{Failed, Outcome};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Time limit for the other host's next frame.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest frame.
const LONGEST: usize = 1 << 16;

/// A frame: one of these bytes, four bytes of length in big-endian order, and the content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    /// The name of the next case, for both hosts.
    Case = b'c',
    /// Data that the other host needs during a case.
    Words = b'w',
    /// The case passed on this side.
    Good = b'g',
    /// The case failed on this side, with the reason.
    Bad = b'b',
}

impl Kind {
    const ALL: [Self; 4] = [Self::Case, Self::Words, Self::Good, Self::Bad];
}

/// A conversation with the other host.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: TcpStream,
    /// The outcome of the current case on the other side, if it has ended there.
    ended: Option<Result<(), String>>,
}

impl Conversation {
    fn new(stream: TcpStream) -> Result<Self, Failed> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(Self { stream, ended: None })
    }

    /// Calls a host.
    pub(crate) fn call(address: &str) -> Result<Self, Failed> {
        let failed = |error| Failed::new(format!("cannot connect to {address}: {error}"));
        Self::new(TcpStream::connect(address).map_err(failed)?)
    }

    /// Waits for a call.
    pub(crate) fn answer(listener: &TcpListener) -> Result<Self, Failed> {
        Self::new(listener.accept()?.0)
    }

    /// Sends the name of the next case.
    pub(crate) fn begin(&mut self, case: &str) -> Outcome {
        self.ended = None;
        self.send(Kind::Case, case.as_bytes())
    }

    /// Receives the name of the next case; `None` if there are no more.
    pub(crate) fn next_case(&mut self) -> Result<Option<String>, Failed> {
        self.ended = None;
        // Between two cases the other host may take its time.
        self.stream.set_read_timeout(None)?;
        let frame = self.receive();
        self.stream.set_read_timeout(Some(SILENCE))?;
        match frame? {
            None => Ok(None),
            Some((Kind::Case, name)) => Ok(Some(String::from_utf8_lossy(&name).into_owned())),
            Some((kind, _)) => Err(Failed::new(format!("{kind:?} where a case should begin"))),
        }
    }

    /// Sends words to the other host, and receives the words that it sends at the same point of the
    /// case.
    pub(crate) fn swap(&mut self, words: &[u8]) -> Result<Vec<u8>, Failed> {
        self.send(Kind::Words, words)?;
        match self.frame()? {
            (Kind::Words, words) => Ok(words),
            (Kind::Good, _) => {
                self.ended = Some(Ok(()));
                Err(Failed::new("the other host is through with this case already"))
            }
            (Kind::Bad, why) => {
                let why = String::from_utf8_lossy(&why).into_owned();
                self.ended = Some(Err(why.clone()));
                Err(Failed::new(format!("on the other host: {why}")))
            }
            (Kind::Case, _) => Err(Failed::new("the other host has begun another case")),
        }
    }

    /// Exchanges the outcomes of the case; it passes if it did on both sides.
    pub(crate) fn end(&mut self, here: Outcome) -> Outcome {
        match &here {
            Ok(()) => self.send(Kind::Good, &[])?,
            Err(why) => {
                let why = why.to_string();
                self.send(Kind::Bad, &why.as_bytes()[..why.len().min(LONGEST)])?;
            }
        }
        while self.ended.is_none() {
            match self.frame()? {
                (Kind::Good, _) => self.ended = Some(Ok(())),
                (Kind::Bad, why) => {
                    self.ended = Some(Err(String::from_utf8_lossy(&why).into_owned()));
                }
                (Kind::Words | Kind::Case, _) => {}
            }
        }
        here?;
        match self.ended.take() {
            Some(Err(why)) => Err(Failed::new(format!("on the other host: {why}"))),
            _ => Ok(()),
        }
    }

    fn send(&mut self, kind: Kind, bytes: &[u8]) -> Outcome {
        let mut frame = vec![kind as u8];
        frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        frame.extend_from_slice(bytes);
        Ok(self.stream.write_all(&frame)?)
    }

    /// A frame that must come.
    fn frame(&mut self) -> Result<(Kind, Vec<u8>), Failed> {
        self.receive()?.ok_or_else(|| Failed::new("the other host hung up"))
    }

    /// The next frame; `None` if the other host has closed the connection.
    fn receive(&mut self) -> Result<Option<(Kind, Vec<u8>)>, Failed> {
        let mut head = [0; 5];
        match self.stream.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [kind, length @ ..] = head;
        let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or("the other host does not run this suite")?;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
            return Err(Failed::new(format!("a frame of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(Some((kind, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Conversation, Conversation) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its number").to_string();
        let caller = Conversation::call(&address).expect("connected");
        (caller, Conversation::answer(&listener).expect("accepted"))
    }

    /// Runs a case on both sides, with these outcomes.
    fn ends(first: Outcome, second: Outcome) -> (Outcome, Outcome) {
        let (mut a, mut b) = both();
        a.begin("x").expect("sent");
        assert_eq!(b.next_case().expect("a case").as_deref(), Some("x"));
        std::thread::scope(|scope| {
            let other = scope.spawn(move || b.end(second));
            (a.end(first), other.join().expect("no panic"))
        })
    }

    #[test]
    fn a_case_holds_if_it_does_on_both_sides() {
        assert!(matches!(ends(Ok(()), Ok(())), (Ok(()), Ok(()))));
        let (first, second) = ends(Ok(()), Err(Failed::new("no")));
        assert!(first.expect_err("failed").to_string().contains("on the other host: no"));
        assert!(second.is_err());
    }

    #[test]
    fn a_side_that_waits_hears_that_the_other_has_failed() {
        let (mut a, mut b) = both();
        std::thread::scope(|scope| {
            scope.spawn(move || b.end(Err(Failed::new("no memory"))));
            let error = a.swap(b"hello").expect_err("it has failed");
            assert!(error.to_string().contains("no memory"));
            assert!(a.end(Err(error)).is_err());
        });
    }

    #[test]
    fn the_end_of_the_conversation_is_no_failure_between_cases() {
        let (a, mut b) = both();
        drop(a);
        assert_eq!(b.next_case().expect("the end"), None);
    }
}
