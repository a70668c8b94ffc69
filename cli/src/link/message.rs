//! The messages between two ends over TCP: one JSON object per line.

use crate::failure::Failure;
use crate::link::sender::Pace;
use crate::link::side::{Invitation, Shape};
use crate::link::{Op, Transport};
use crate::numbers::LARGEST;
use mlx5::{Endpoint, RemoteAddress};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Version of the protocol.
const VERSION: u64 = 2;

/// The most queue pairs of a thread.
pub(crate) const QUEUES: u32 = 1024;
/// The most threads.
pub(crate) const THREADS: u32 = 64;

/// The kind of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One message at a time; sends are answered with sends.
    Latency,
    /// As many as possible.
    Rate,
}

/// A run of messages of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phase {
    pub(crate) kind: Kind,
    pub(crate) op: Op,
    pub(crate) size: usize,
    /// Whether the other end sends as well; only at full rate.
    pub(crate) both: Option<Pace>,
}

/// The first message on a connection. Each thread has a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// A random number, the same on all connections of a command.
    pub(crate) session: u64,
    pub(crate) threads: u32,
    pub(crate) shape: Shape,
}

/// The other end's counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Account {
    /// Messages that it received.
    pub(crate) received: u64,
    /// Messages that it sent, apart from answers.
    pub(crate) sent: u64,
    /// From its first request to its last completion.
    pub(crate) elapsed: Duration,
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// The size of the ends.
    Hello(Hello),
    /// The address of this end's next queue pair.
    Invite(Invitation),
    /// Done.
    Ready,
    /// A run begins.
    Begin(Phase),
    /// The run is over, after this number of messages.
    End(u64),
    /// The other end's counts of the run.
    Account(Account),
    /// All is done.
    Bye,
    /// A failure.
    Error(String),
}

impl Message {
    /// Formats a line, without the newline.
    pub(crate) fn to_line(&self) -> String {
        let object = match self {
            Self::Hello(Hello { session, threads, shape }) => json!({
                "mlx5": VERSION,
                "session": session,
                "threads": threads,
                "transport": shape.transport.name(),
                "queues": shape.queues,
                "message": shape.message,
                "depth": shape.depth,
                "receives": shape.receives,
                "inline": shape.inline,
            }),
            Self::Invite(invitation) => json!({
                "endpoint": invitation.endpoint.to_string(),
                "addr": invitation.memory.addr,
                "rkey": invitation.memory.rkey,
            }),
            Self::Ready => json!({ "ready": true }),
            Self::Begin(phase) => json!({
                "begin": match phase.kind {
                    Kind::Latency => "latency",
                    Kind::Rate => "rate",
                },
                "op": phase.op.name(),
                "size": phase.size,
                "both": phase.both.map(|pace| [pace.signal_every, pace.batch, pace.depth]),
            }),
            Self::End(sent) => json!({ "end": sent }),
            Self::Account(account) => json!({
                "received": account.received,
                "sent": account.sent,
                "nanoseconds": u64::try_from(account.elapsed.as_nanos()).unwrap_or(u64::MAX),
            }),
            Self::Bye => json!({ "bye": true }),
            Self::Error(text) => json!({ "error": text }),
        };
        object.to_string()
    }

    /// Parses a line.
    pub(crate) fn from_line(line: &str) -> Result<Self, Failure> {
        let strange = || {
            Failure::new("the other side is not an `mlx5` command")
                .hint("use the same release of mlx5 on both sides; is it the right port?")
        };
        let Ok(Value::Object(object)) = serde_json::from_str(line) else { return Err(strange()) };
        read(&object).ok_or_else(strange)?
    }
}

/// `None` if it is not understood.
fn read(object: &Map<String, Value>) -> Option<Result<Message, Failure>> {
    let text = |key: &str| object.get(key)?.as_str();
    let number = |key: &str| object.get(key)?.as_u64();
    let short = |key: &str| number(key)?.try_into().ok();
    let size = |key: &str| number(key)?.try_into().ok();
    Some(Ok(if let Some(version) = number("mlx5") {
        if version != VERSION {
            let cause = format!("the other side speaks version {version}, this one {VERSION}");
            return Some(Err(
                Failure::new(cause).hint("use the same release of mlx5 on both sides")
            ));
        }
        let shape = Shape {
            transport: Transport::from_name(text("transport")?)?,
            queues: short("queues").filter(|queues| (1..=QUEUES).contains(queues))?,
            message: size("message").filter(|message| *message <= LARGEST)?,
            depth: short("depth")?,
            receives: short("receives")?,
            inline: short("inline")?,
        };
        let threads = short("threads").filter(|threads| (1..=THREADS).contains(threads))?;
        Message::Hello(Hello { session: number("session")?, threads, shape })
    } else if let Some(endpoint) = text("endpoint") {
        match endpoint.parse::<Endpoint>() {
            Ok(endpoint) => {
                let memory = RemoteAddress { addr: number("addr")?, rkey: short("rkey")? };
                Message::Invite(Invitation { endpoint, memory })
            }
            Err(error) => return Some(Err(error.into())),
        }
    } else if let Some(kind) = text("begin") {
        Message::Begin(Phase {
            kind: match kind {
                "latency" => Kind::Latency,
                "rate" => Kind::Rate,
                _ => return None,
            },
            op: Op::from_name(text("op")?)?,
            size: size("size")?,
            both: match object.get("both")? {
                Value::Null => None,
                pace => Some(Pace {
                    signal_every: pace.get(0)?.as_u64().filter(|every| *every > 0)?,
                    batch: pace.get(1)?.as_u64().filter(|batch| *batch > 0)?,
                    depth: pace.get(2)?.as_u64().filter(|depth| *depth > 0)?,
                }),
            },
        })
    } else if let Some(received) = number("received") {
        let elapsed = Duration::from_nanos(number("nanoseconds")?);
        Message::Account(Account { received, sent: number("sent")?, elapsed })
    } else if let Some(error) = text("error") {
        Message::Error(error.to_owned())
    } else if object.contains_key("ready") {
        Message::Ready
    } else if let Some(sent) = number("end") {
        Message::End(sent)
    } else if object.contains_key("bye") {
        Message::Bye
    } else {
        return None;
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_way() {
        let endpoint = "mlx5-endpoint/1 transport=rc qpn=0x0001a2 psn=0x000007 lid=0x0001 \
                        gid=fe80::1 gid_type=ib gid_index=0 mtu=4096 rd_atomic=16";
        let endpoint = endpoint.parse().expect("an endpoint");
        let memory = RemoteAddress { addr: u64::MAX, rkey: u32::MAX };
        let pace = Pace { signal_every: 16, batch: 4, depth: 64 };
        let phase = Phase { kind: Kind::Rate, op: Op::Write, size: 64, both: Some(pace) };
        let shape = Shape {
            transport: Transport::Ud,
            queues: 3,
            message: 4096,
            depth: 64,
            receives: 8,
            inline: 0,
        };
        let account =
            Account { received: 7, sent: 9, elapsed: Duration::from_nanos(1_000_000_001) };
        for message in [
            Message::Hello(Hello { session: u64::MAX, threads: 2, shape }),
            Message::Invite(Invitation { endpoint, memory }),
            Message::Ready,
            Message::Begin(phase),
            Message::Begin(Phase { kind: Kind::Latency, op: Op::FetchAdd, both: None, ..phase }),
            Message::End(1000),
            Message::Account(account),
            Message::Bye,
            Message::Error("no \"luck\"\n".to_owned()),
        ] {
            let line = message.to_line();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Message::from_line(&line).expect("a message"), message);
        }
    }

    #[test]
    fn strangers_are_told_apart() {
        let crowd = r#"{"mlx5":2,"session":1,"threads":65,"transport":"rc","queues":1,
            "message":8,"depth":16,"receives":16,"inline":0}"#
            .replace('\n', "");
        for line in ["", "GET / HTTP/1.1", "{}", "[1]", r#"{"begin":"tea"}"#, &crowd] {
            let failure = Message::from_line(line).expect_err("not a message");
            assert!(failure.cause().contains("is not an `mlx5` command"), "{line}");
        }
        let failure = Message::from_line(r#"{"mlx5":1}"#).expect_err("another version");
        assert!(failure.cause().contains("version 1"));
    }
}
