use std::net::TcpListener;
use std::thread;

use nix::sys::socket::{setsockopt, sockopt};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn pair(timeout: Duration) -> (Bootstrap, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let other = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
    let (one, _) = listener.accept().expect("a peer");
    (Bootstrap::new(one, timeout).expect("a stream"), other)
}

#[test]
fn both_sides_get_what_the_other_gave() {
    let (mut one, other) = pair(LONG);
    let mut other = Bootstrap::new(other, LONG).expect("a stream");
    let given = thread::spawn(move || {
        other.ready().expect("ready");
        other.data(b"from there").expect("data")
    });
    one.ready().expect("ready");
    assert_eq!(one.data(b"from here").expect("data"), b"from there");
    assert_eq!(given.join().expect("the other side"), b"from here");
}

#[test]
fn a_silent_peer_is_given_up() {
    let (mut one, _other) = pair(Duration::from_millis(20));
    let error = one.ready().expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn the_time_limit_is_that_of_the_whole_call_however_much_has_come() {
    let (mut one, mut other) = pair(Duration::ZERO);
    other.write_all(&MAGIC).expect("sent");
    let error = one.ready().expect_err("no time is left");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn peer_that_hangs_up_is_reported() {
    let (mut one, other) = pair(LONG);
    drop(other);
    let error = one.ready().expect_err("no peer");
    assert_eq!(error.kind(), ErrorKind::Disconnected);
}

#[test]
fn another_version_another_order_and_another_program_are_noticed() {
    let answer = |bytes: &[u8]| {
        let (mut one, mut other) = pair(LONG);
        other.write_all(bytes).expect("sent");
        one.ready().expect_err("not what was expected").to_string()
    };
    assert!(answer(b"mlxB\0\x02\0\x03\0\0\0\0").contains("version 2"));
    assert!(answer(b"mlxB\0\x01\0\x02\0\0\0\0").contains("regions"));
    assert!(answer(b"GET / HTTP/1.1\r\n").contains("another program"));
    assert!(answer(b"mlxB\0\x01\0\x03\xff\xff\xff\xff").contains("announced"));
}

#[test]
fn an_exchange_that_broke_off_is_not_taken_up_again() {
    let (mut one, mut other) = pair(Duration::from_millis(20));
    let first = one.ready().expect_err("no answer");
    assert!(first.to_string().contains("connect again"), "{first}");
    // The answer comes late: what is next on the stream is not what the next call waits for.
    other.write_all(b"mlxB\0\x01\0\x03\0\0\0\0").expect("sent");
    for error in [one.ready().expect_err("broken off"), one.data(b"").expect_err("broken off")] {
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(error.to_string().contains("broke off"), "{error}");
    }
    let mut sent = Vec::new();
    one.into_stream().shutdown(std::net::Shutdown::Write).expect("shut down");
    other.read_to_end(&mut sent).expect("read");
    assert_eq!(sent.len(), size_of::<Header>(), "the second call sends nothing");
}

#[test]
fn the_rest_of_a_header_is_not_read_as_a_header() {
    let (mut one, mut other) = pair(Duration::from_millis(20));
    other.write_all(b"mlxB\0").expect("sent");
    assert_eq!(one.ready().expect_err("half a header").kind(), ErrorKind::TimedOut);
    other.write_all(b"\x01\0\x03\0\0\0\0").expect("sent");
    assert_eq!(one.ready().expect_err("broken off").kind(), ErrorKind::Disconnected);
}

#[test]
fn a_call_that_is_refused_for_its_arguments_breaks_nothing_off() {
    let (mut one, other) = pair(LONG);
    let error = one.data(&[0; LONGEST + 1]).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let mut other = Bootstrap::new(other, LONG).expect("a stream");
    let there = thread::spawn(move || other.ready());
    one.ready().expect("ready");
    there.join().expect("the other side").expect("ready");
}

#[test]
fn a_stream_of_an_asynchronous_runtime_works_and_comes_back_as_an_ordinary_one() {
    let (one, other) = pair(LONG);
    let streams = [one.into_stream(), other].map(|stream| {
        stream.set_nonblocking(true).expect("set");
        stream
    });
    let [one, other] = streams.map(|stream| Bootstrap::new(stream, LONG).expect("a stream"));
    let there = thread::spawn(move || {
        let mut other = other;
        other.ready().expect("ready");
        other.into_stream()
    });
    let mut one = one;
    one.ready().expect("ready");
    let mut one = one.into_stream();
    let mut other = there.join().expect("the other side");
    assert_eq!((one.read_timeout().ok(), one.write_timeout().ok()), (Some(None), Some(None)));
    // It blocks until something comes.
    let reader = thread::spawn(move || one.read(&mut [0]));
    other.write_all(b"x").expect("sent");
    assert_eq!(reader.join().expect("the reader").expect("read"), 1);
}

#[test]
fn messages_that_fit_in_no_buffer_cross() {
    let (one, other) = pair(LONG);
    let [one, other] = [one.into_stream(), other].map(|stream| {
        setsockopt(&stream, sockopt::SndBuf, &4096).expect("set");
        setsockopt(&stream, sockopt::RcvBuf, &4096).expect("set");
        Bootstrap::new(stream, LONG).expect("a stream")
    });
    let send = |mut end: Bootstrap, byte: u8| {
        thread::spawn(move || end.data(&[byte; LONGEST]).expect("data"))
    };
    let (one, other) = (send(one, 1), send(other, 2));
    assert_eq!(one.join().expect("one side"), [2; LONGEST]);
    assert_eq!(other.join().expect("the other side"), [1; LONGEST]);
}
