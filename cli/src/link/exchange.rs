//! The TCP connection over which two processes exchange addresses.

use crate::failure::Failure;
use crate::link::message::Message;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time limit for an answer, if `--timeout` is not given.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// The longest line.
const LONGEST: usize = 4096;

/// The default port.
pub(crate) const PORT: u16 = 18515;

/// Completes `ADDR`, `PORT`, `:PORT` or `ADDR:PORT`.
pub(crate) fn complete(address: &str, host: &str) -> String {
    match address.rsplit_once(':') {
        _ if address.is_empty() => format!("{host}:{PORT}"),
        _ if address.parse::<u16>().is_ok() => format!("{host}:{address}"),
        Some(("", port)) => format!("{host}:{port}"),
        // A bare IPv6 address has colons, too.
        _ if address.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{address}]:{PORT}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => address.to_owned(),
        _ => format!("{address}:{PORT}"),
    }
}

/// Checks what [`complete`] completes. A name is not looked up.
pub(crate) fn parse_address(address: &str) -> Result<String, String> {
    let whole = complete(address, "0.0.0.0");
    let good = whole.rsplit_once(':').is_some_and(|(host, port)| {
        let is_number = host.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = !host.contains(|letter: char| letter == ':' || letter.is_whitespace());
        let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_ipv6 = inside.is_some_and(|host| {
            let host = host.split_once('%').map_or(host, |(host, _)| host);
            host.parse::<std::net::Ipv6Addr>().is_ok()
        });
        (is_name && !is_number || is_ipv6) && port.parse::<u16>().is_ok()
    });
    match good {
        true => Ok(address.to_owned()),
        false => {
            Err(format!("{address:?} is not an address: write host, host:1234, 1234 or [::1]:1234"))
        }
    }
}

/// Listens on an address of this machine.
pub(crate) fn listen(address: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let failure = Failure::new(format!("cannot listen on {address}: {error}"));
        failure.hint(match error.kind() {
            ErrorKind::AddrNotAvailable => {
                "no interface of this machine has the address; --listen PORT listens on all of them"
            }
            _ => "name another port: --listen PORT, and --connect HOST:PORT on the other side",
        })
    })
}

/// Accepts a connection; without a `timeout` it may wait forever.
pub(crate) fn accept(
    listener: &TcpListener,
    timeout: Option<Duration>,
) -> Result<(TcpStream, SocketAddr), Failure> {
    const PAUSE: Duration = Duration::from_millis(10);
    let Some(timeout) = timeout else { return Ok(listener.accept()?) };
    let begun = Instant::now();
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, from));
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if begun.elapsed() >= timeout => {
                let cause = format!("nobody connected within {} s", timeout.as_secs_f64());
                let failure = Failure::new(cause);
                return Err(
                    failure.hint("start the other side with --connect, or wait longer: --timeout")
                );
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Connects to a host and a port. All addresses of the host share the time limit.
pub(crate) fn dial(address: &str, limit: Duration) -> Result<TcpStream, Failure> {
    let address = complete(address, "127.0.0.1");
    let failed = |error: &io::Error| Failure::new(format!("cannot connect to {address}: {error}"));
    let hint = "start the other side first, with --listen; does a firewall stand between? or wait \
                longer: --timeout";
    let found = address.to_socket_addrs().map_err(|error| {
        failed(&error).hint("is the name right? an address does without: --connect 192.0.2.1")
    })?;
    let found: Vec<SocketAddr> = found.collect();
    let begun = Instant::now();
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for (place, one) in found.iter().enumerate() {
        let left = limit.saturating_sub(begun.elapsed()) / (found.len() - place) as u32;
        // A timeout of zero would be an invalid argument.
        match TcpStream::connect_timeout(one, left.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(&last).hint(hint))
}

/// A connection to the peer.
pub(crate) struct Exchange {
    stream: TcpStream,
    /// Time limit for an answer.
    patience: Duration,
    /// Bytes of an incomplete line.
    pending: Vec<u8>,
}

impl Exchange {
    /// Uses `stream`. `patience` is the time limit for each answer.
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Result<Self, Failure> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, patience, pending: Vec::new() })
    }

    /// Accepts a peer.
    pub(crate) fn accept(
        listener: &TcpListener,
        timeout: Option<Duration>,
        patience: Duration,
    ) -> Result<(Self, String), Failure> {
        let (stream, from) = accept(listener, timeout)?;
        Ok((Self::new(stream, patience)?, from.to_string()))
    }

    /// Time limit for an answer.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let mut line = message.to_line();
        line.push('\n');
        self.stream.set_nonblocking(false)?;
        self.stream.write_all(line.as_bytes()).map_err(|_| gone())
    }

    /// Receives the next message. The peer's failure is returned as an error.
    pub(crate) fn receive(&mut self) -> Result<Message, Failure> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(self.patience))?;
        loop {
            if let Some(message) = self.line()? {
                return Ok(message);
            }
            if !self.read()? {
                return Err(silent(self.patience));
            }
        }
    }

    /// Receives a message if one has arrived.
    pub(crate) fn poll(&mut self) -> Result<Option<Message>, Failure> {
        if let Some(message) = self.line()? {
            return Ok(Some(message));
        }
        self.stream.set_nonblocking(true)?;
        self.read()?;
        self.line()
    }

    /// Waits for exactly this message.
    pub(crate) fn expect_ready(&mut self) -> Result<(), Failure> {
        match self.receive()? {
            Message::Ready => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads available bytes; false on a timeout.
    fn read(&mut self) -> Result<bool, Failure> {
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(gone()),
            Ok(count) => {
                self.pending.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(false),
                ErrorKind::Interrupted => Ok(true),
                _ => Err(gone()),
            },
        }
    }

    fn line(&mut self) -> Result<Option<Message>, Failure> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else {
            return match self.pending.len() {
                0..=LONGEST => Ok(None),
                _ => Message::from_line("").map(Some),
            };
        };
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        match Message::from_line(String::from_utf8_lossy(&line).trim_end())? {
            Message::Error(error) => Err(Failure::new(error).during("the other side")),
            message => Ok(Some(message)),
        }
    }
}

/// The failure for an unexpected message.
pub(crate) fn unexpected(message: &Message) -> Failure {
    Failure::new(format!("unexpected message from the other side: {}", message.to_line()))
}

/// The failure for a peer that sends nothing within the time limit.
pub(crate) fn silent(patience: Duration) -> Failure {
    Failure::new(format!("the other side has not answered for {} s", patience.as_secs_f64()))
        .hint("is it stopped, or is the network between cut? or wait longer: --timeout")
}

fn gone() -> Failure {
    Failure::new("the other side hung up").hint("its own output says why")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::message::Account;

    fn pair() -> (Exchange, Exchange) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its number").to_string();
        let client = dial(&address, ANSWER).and_then(|stream| Exchange::new(stream, ANSWER));
        let (server, _) = Exchange::accept(&listener, None, ANSWER).expect("accepted");
        (client.expect("connected"), server)
    }

    #[test]
    fn a_peer_that_says_nothing_is_given_up() {
        let (client, _server) = pair();
        let mut client = Exchange { patience: Duration::from_millis(20), ..client };
        let failure = client.receive().expect_err("nothing is said");
        assert_eq!(failure.cause(), "the other side has not answered for 0.02 s");
        assert!(failure.remedy().is_some_and(|hint| hint.contains("--timeout")), "{failure:?}");
    }

    #[test]
    fn a_host_that_is_not_there_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its number").to_string();
        drop(listener);
        let failure = dial(&address, ANSWER).expect_err("nobody listens");
        assert!(failure.cause().starts_with(&format!("cannot connect to {address}: ")));
        // Also if the time is over before the first try.
        dial(&address, Duration::ZERO).expect_err("nobody listens");
    }

    #[test]
    fn lines_arrive_whole_and_in_order() {
        let (mut client, mut server) = pair();
        assert_eq!(server.poll().expect("nothing yet"), None);
        client.stream.write_all(b"{\"ready\":true}\n{\"rec").expect("sent");
        assert_eq!(server.receive().expect("a line"), Message::Ready);
        assert_eq!(server.poll().expect("half a line"), None);
        client.stream.write_all(b"eived\":3,\"sent\":0,\"nanoseconds\":0}\n").expect("sent");
        let account = Account { received: 3, ..Account::default() };
        assert_eq!(server.receive().expect("a line"), Message::Account(account));
    }

    #[test]
    fn the_other_sides_failure_and_departure_are_told() {
        let (mut client, mut server) = pair();
        client.send(&Message::Error("no device".to_owned())).expect("sent");
        let failure = server.receive().expect_err("an error");
        assert_eq!(failure.cause(), "the other side: no device");
        drop(client);
        assert!(server.receive().expect_err("gone").cause().contains("hung up"));
    }

    #[test]
    fn a_peer_is_not_waited_for_longer_than_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let waited = accept(&listener, Some(Duration::ZERO)).expect_err("nobody is there");
        assert_eq!(waited.cause(), "nobody connected within 0 s");
        let address = listener.local_addr().expect("its number");
        let _client = TcpStream::connect(address).expect("connected");
        accept(&listener, Some(Duration::from_secs(60))).expect("a peer");
    }

    #[test]
    fn an_address_is_completed() {
        for (given, whole) in [
            ("", "0.0.0.0:18515"),
            ("1234", "0.0.0.0:1234"),
            (":1234", "0.0.0.0:1234"),
            ("host", "host:18515"),
            ("host:1234", "host:1234"),
            ("::1", "[::1]:18515"),
            ("[::1]:1234", "[::1]:1234"),
        ] {
            assert_eq!(complete(given, "0.0.0.0"), whole);
            assert_eq!(parse_address(given).as_deref(), Ok(given));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for good in ["[::1]", "[fe80::1%2]:7", "10.0.0.1", "a-b.example.org:0"] {
            assert_eq!(parse_address(good).as_deref(), Ok(good));
        }
        for bad in [
            "host:x",
            "127.0.0.1:99999",
            ":99999",
            "99999",
            "host:",
            "host:1:2",
            "a host",
            "[::1]:x",
            "[host]:x",
            "[::1",
            "::1::",
        ] {
            let refused = parse_address(bad).expect_err(bad);
            assert!(refused.contains("is not an address"), "{refused}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_listened_on_has_its_remedy() {
        let remedy = |address: &str| {
            let failure = listen(address).map(drop).expect_err("it cannot be listened on");
            assert!(failure.cause().starts_with(&format!("cannot listen on {address}: ")));
            failure.remedy().unwrap_or_default().to_owned()
        };
        // An address of documentation, which no machine has.
        assert!(remedy("192.0.2.1:0").starts_with("no interface of this machine has the address"));
        let taken = listen("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address").to_string();
        assert!(remedy(&address).starts_with("name another port"));
    }
}
