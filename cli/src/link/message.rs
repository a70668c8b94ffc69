//! The messages between two ends over TCP: one JSON object per line.

use crate::failure::Failure;
use crate::link::side::{Invitation, Shape};
use crate::link::{Op, Transport};
use mlx5::{Endpoint, RemoteAddress};
use serde_json::{Map, Value, json};

/// Version of the protocol.
const VERSION: u64 = 1;

/// What is measured.
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
    pub(crate) messages: u64,
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// The size of the ends.
    Hello(Shape),
    /// This end's address.
    Invite(Invitation),
    /// Done.
    Ready,
    /// A run begins.
    Begin(Phase),
    /// The run is over.
    End,
    /// The number of messages that arrived in the run.
    Received(u64),
    /// All is done.
    Bye,
    /// A failure.
    Error(String),
}

impl Message {
    /// Formats a line, without the newline.
    pub(crate) fn to_line(&self) -> String {
        let object = match self {
            Self::Hello(shape) => json!({
                "mlx5": VERSION,
                "transport": shape.transport.name(),
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
                "messages": phase.messages,
            }),
            Self::End => json!({ "end": true }),
            Self::Received(count) => json!({ "received": count }),
            Self::Bye => json!({ "bye": true }),
            Self::Error(text) => json!({ "error": text }),
        };
        object.to_string()
    }

    /// Parses a line.
    pub(crate) fn from_line(line: &str) -> Result<Self, Failure> {
        let strange = || {
            Failure::new("the other side is not an `mlx5` command")
                .hint("use the same release of mlx5 on both hosts; is it the right port?")
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
                Failure::new(cause).hint("use the same release of mlx5 on both hosts")
            ));
        }
        Message::Hello(Shape {
            transport: Transport::from_name(text("transport")?)?,
            message: size("message")?,
            depth: short("depth")?,
            receives: short("receives")?,
            inline: short("inline")?,
        })
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
            messages: number("messages")?,
        })
    } else if let Some(count) = number("received") {
        Message::Received(count)
    } else if let Some(error) = text("error") {
        Message::Error(error.to_owned())
    } else if object.contains_key("ready") {
        Message::Ready
    } else if object.contains_key("end") {
        Message::End
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
        let phase = Phase { kind: Kind::Rate, op: Op::Write, size: 64, messages: 1000 };
        let shape =
            Shape { transport: Transport::Ud, message: 4096, depth: 64, receives: 8, inline: 0 };
        for message in [
            Message::Hello(shape),
            Message::Invite(Invitation { endpoint, memory }),
            Message::Ready,
            Message::Begin(phase),
            Message::Begin(Phase { kind: Kind::Latency, ..phase }),
            Message::End,
            Message::Received(7),
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
        for line in ["", "GET / HTTP/1.1", "{}", "[1]", r#"{"begin":"tea"}"#] {
            let failure = Message::from_line(line).expect_err("not a message");
            assert!(failure.cause().contains("is not an `mlx5` command"), "{line}");
        }
        let failure = Message::from_line(r#"{"mlx5":2}"#).expect_err("another version");
        assert!(failure.cause().contains("version 2"));
    }
}
