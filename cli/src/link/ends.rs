//! The two ends of a link, in one process or in two.

use crate::device::{Port, note};
use crate::failure::Failure;
use crate::link::exchange::{self, Exchange, unexpected};
use crate::link::message::{Hello, Message};
use crate::link::patience::Patience;
use crate::link::peer::{Local, Peer, Remote};
use crate::link::receiver::Receiver;
use crate::link::responder::Responder;
use crate::link::side::{Invitation, Shape, Side};
use crate::numbers::count;
use clap::Args;
use mlx5::{CompletionChannel, Endpoint};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// Time limit without progress, if `--timeout` is not given.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Turns of an end that sends between two reads of the connection.
const TURNS: u32 = 64;
/// Time limit for the further connections of a peer.
const FURTHER: Duration = Duration::from_secs(10);

/// Options that say where the other end is.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Other end")]
pub(crate) struct EndArgs {
    /// Serve a peer that runs the same command with --connect [default: 0.0.0.0:18515]
    ///
    /// The peer's options apply, apart from those of the device.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "",
          value_parser = exchange::parse_address, conflicts_with = "connect")]
    listen: Option<String>,
    /// Connect to a peer that runs with --listen [default port: 18515]
    #[arg(long, value_name = "HOST:PORT", value_parser = exchange::parse_address)]
    connect: Option<String>,
    /// Whole seconds without progress after which to give up, 1 to 3600 [default: 10]
    ///
    /// Without it a peer may take 30 seconds to answer, and any time to connect.
    #[arg(long, value_name = "SECONDS",
          value_parser = count::<u64>(1, 3600))]
    timeout: Option<u64>,
}

/// The end that measures, and the connection to its peer. Each thread has one.
pub(crate) struct Initiator {
    pub(crate) side: Side,
    pub(crate) receiver: Receiver,
    pub(crate) peer: Box<dyn Peer>,
    pub(crate) waiter: Waiter,
    /// Whether the device is simulated in this process.
    pub(crate) simulated: bool,
    /// The address of this end's first queue pair.
    pub(crate) local: Endpoint,
    /// The address of the peer's first queue pair.
    pub(crate) remote: Endpoint,
}

impl Initiator {
    fn new(
        port: &Port,
        side: Side,
        peer: Box<dyn Peer>,
        waiter: Waiter,
        here: &[Invitation],
        there: &[Invitation],
    ) -> Result<Self, Failure> {
        let ([here, ..], [there, ..]) = (here, there) else {
            return Err(Failure::new("an end without queue pairs"));
        };
        let (local, remote) = (here.endpoint, there.endpoint);
        let receiver = Receiver::new(&side);
        let simulated = port.opened.simulator.is_some();
        Ok(Self { side, receiver, peer, waiter, simulated, local, remote })
    }
}

/// Waits for completions: by busy polling, or asleep.
pub(crate) struct Waiter {
    pub(crate) patience: Patience,
    pub(crate) channel: Option<CompletionChannel>,
    armed: bool,
}

impl Waiter {
    /// Waits for progress.
    pub(crate) fn idle(
        &mut self,
        what: &str,
        arm: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(channel) = &self.channel else { return self.patience.wait(what).map(drop) };
        // A completion before the arming causes no event: poll once more after it.
        if !self.armed {
            arm()?;
            self.armed = true;
            return Ok(());
        }
        self.armed = false;
        match channel.wait(Some(self.patience.limit()))? {
            Some(_) => Ok(()),
            None => Err(self.patience.over(what)),
        }
    }
}

/// The role of this process.
pub(crate) enum Session {
    /// It measures, with an end for each thread.
    Initiators(Vec<Initiator>),
    /// It served a peer, which is done.
    Served,
}

impl EndArgs {
    /// The other end is this peer, or in this process.
    pub(crate) fn of(peer: Option<&str>, timeout: u64) -> Self {
        Self { listen: None, connect: peer.map(str::to_owned), timeout: Some(timeout) }
    }

    /// Whether the other end is in this process.
    pub(crate) fn is_local(&self) -> bool {
        self.listen.is_none() && self.connect.is_none()
    }

    /// Refuses a peer process if the device exists only in this one.
    pub(crate) fn reach(&self, port: &Port) -> Result<(), Failure> {
        if port.opened.simulator.is_none() || self.is_local() {
            return Ok(());
        }
        Err(Failure::new(
            "the device is simulated inside this process: no other process can reach it, nor \
             it another",
        )
        .hint(
            "without --listen and --connect both ends run in this process; two processes need a \
             real device each, or one that they share: in the checkout \
             `cargo xtask with-sim --sim wire=SOCKET -- target/debug/mlx5 ...`",
        ))
    }

    /// The host to connect to, if there is one.
    pub(crate) fn connects_to(&self) -> Option<&str> {
        self.connect.as_deref()
    }

    /// The address to listen on, if this process serves.
    pub(crate) fn listens_at(&self) -> Option<&str> {
        self.listen.as_deref()
    }

    /// The time limit, if one was given.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }

    /// Time limit for an answer of the other side.
    pub(crate) fn answer(&self) -> Duration {
        self.timeout().unwrap_or(exchange::ANSWER)
    }

    /// A stream to the other side, whose answers may take as long as the options say.
    pub(crate) fn reached(&self, address: &str) -> Result<TcpStream, Failure> {
        let stream = exchange::dial(address, self.timeout().unwrap_or(DEFAULT_TIMEOUT))?;
        stream.set_read_timeout(Some(self.answer()))?;
        Ok(stream)
    }

    /// The patience of a poller on a port.
    pub(crate) fn patience(&self, port: &Port) -> Patience {
        let simulated = port.opened.simulator.is_some();
        Patience::new(self.timeout().unwrap_or(DEFAULT_TIMEOUT), simulated)
    }

    /// Makes a waiter for completions on a port.
    pub(crate) fn waiter(&self, port: &Port, events: bool) -> Result<Waiter, Failure> {
        let patience = self.patience(port);
        let channel = match events {
            true => Some(port.opened.context.create_comp_channel()?),
            false => None,
        };
        Ok(Waiter { patience, channel, armed: false })
    }

    /// Makes the ends of `threads` threads and connects them. A serving process answers until its
    /// peer is done.
    pub(crate) fn open(
        &self,
        port: &Port,
        shape: Shape,
        threads: u32,
        events: bool,
    ) -> Result<Session, Failure> {
        self.reach(port)?;
        let ends: Result<Vec<_>, Failure> = match (&self.listen, &self.connect) {
            (Some(address), _) => {
                let address = exchange::complete(address, "0.0.0.0");
                return self.serve(port, &address, events);
            }
            (None, Some(address)) => {
                let session = RandomState::new().hash_one(0_u8);
                let hello = Hello { session, threads, shape };
                // The other end answers none of these connections before it has all of them.
                let one = |_| {
                    let exchange = Exchange::new(self.reached(address)?, self.answer())?;
                    greet(exchange, hello)
                };
                let connections: Result<Vec<_>, Failure> = (0..threads).map(one).collect();
                let end = |exchange| connect(port, exchange, shape, self.waiter(port, events)?);
                connections?.into_iter().map(end).collect()
            }
            (None, None) => {
                (0..threads).map(|_| both(port, shape, self.waiter(port, events)?)).collect()
            }
        };
        Ok(Session::Initiators(ends?))
    }

    /// Waits for a peer that measures, and serves each of its threads in a thread.
    fn serve(&self, port: &Port, address: &str, events: bool) -> Result<Session, Failure> {
        let listener = exchange::listen(address)?;
        note(&format!("listening on {address}"));
        let (mut exchange, from) = Exchange::accept(&listener, self.timeout(), self.answer())?;
        note(&format!("serving {from}"));
        let hello = greeted(&mut exchange)?;
        let mut connections = vec![(exchange, hello)];
        while connections.len() < hello.threads as usize {
            let (mut exchange, _) = Exchange::accept(&listener, Some(FURTHER), self.answer())?;
            match greeted(&mut exchange) {
                Ok(other) if (other.session, other.threads) == (hello.session, hello.threads) => {
                    connections.push((exchange, other));
                }
                // It belongs to another command: reject it with a reason.
                _ => _ = exchange.send(&Message::Error("this side serves another one".to_owned())),
            }
        }
        thread::scope(|scope| {
            let serving: Vec<_> = connections
                .into_iter()
                .map(|(exchange, hello)| {
                    scope.spawn(move || answer(port, exchange, hello, self.waiter(port, events)?))
                })
                .collect();
            let mut done = Ok(());
            for one in serving {
                let ended = one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                done = done.and(ended);
            }
            done
        })?;
        Ok(Session::Served)
    }
}

/// Makes both ends in this process.
pub(crate) fn both(port: &Port, shape: Shape, waiter: Waiter) -> Result<Initiator, Failure> {
    let mut side = Side::new(port, shape, waiter.channel.as_ref())?;
    let mut other = Side::new(port, shape, waiter.channel.as_ref())?;
    let (here, there) = (side.invitations()?, other.invitations()?);
    side.join(port, &there)?;
    other.join(port, &here)?;
    let simulated = port.opened.simulator.is_some();
    let patience = waiter.patience.clone();
    let peer = Box::new(Local { responder: Responder::new(other), patience, simulated });
    Initiator::new(port, side, peer, waiter, &here, &there)
}

/// Sends the first message on a connection.
pub(crate) fn greet(mut exchange: Exchange, hello: Hello) -> Result<Exchange, Failure> {
    exchange.send(&Message::Hello(hello))?;
    Ok(exchange)
}

/// Makes the measuring end, on a connection on which this end has sent its first message.
pub(crate) fn connect(
    port: &Port,
    mut exchange: Exchange,
    shape: Shape,
    waiter: Waiter,
) -> Result<Initiator, Failure> {
    let mut side = Side::new(port, shape, waiter.channel.as_ref())?;
    let here = side.invitations()?;
    let there = invited(&mut exchange, shape)?;
    side.join(port, &there)?;
    invite(&mut exchange, &here)?;
    exchange.expect_ready()?;
    let peer = Box::new(Remote::new(exchange));
    Initiator::new(port, side, peer, waiter, &here, &there)
}

/// Sends the address of each queue pair.
fn invite(exchange: &mut Exchange, here: &[Invitation]) -> Result<(), Failure> {
    here.iter().try_for_each(|here| exchange.send(&Message::Invite(*here)))
}

/// Receives the address of each queue pair.
fn invited(exchange: &mut Exchange, shape: Shape) -> Result<Vec<Invitation>, Failure> {
    let one = |_| match exchange.receive()? {
        Message::Invite(invitation) => Ok(invitation),
        other => Err(unexpected(&other)),
    };
    (0..shape.queues).map(one).collect()
}

/// Receives the first message of a peer.
pub(crate) fn greeted(exchange: &mut Exchange) -> Result<Hello, Failure> {
    let hello = match exchange.receive() {
        Ok(Message::Hello(hello)) => Ok(hello),
        Ok(other) => Err(unexpected(&other)),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = &hello {
        // If this cannot be sent, the peer sees the closed connection.
        let _ = exchange.send(&Message::Error(failure.cause().to_owned()));
    }
    hello
}

/// Answers on `exchange` until the peer is done. Failures here are sent to it.
pub(crate) fn answer(
    port: &Port,
    mut exchange: Exchange,
    hello: Hello,
    waiter: Waiter,
) -> Result<(), Failure> {
    let done = converse(port, &mut exchange, hello, waiter);
    if let Err(failure) = &done {
        // If this cannot be sent, the peer sees the closed connection.
        let _ = exchange.send(&Message::Error(failure.cause().to_owned()));
    }
    done
}

fn converse(
    port: &Port,
    exchange: &mut Exchange,
    hello: Hello,
    mut waiter: Waiter,
) -> Result<(), Failure> {
    let mut side = Side::new(port, hello.shape, waiter.channel.as_ref())?;
    invite(exchange, &side.invitations()?)?;
    let there = invited(exchange, hello.shape)?;
    side.join(port, &there)?;
    exchange.send(&Message::Ready)?;
    let mut responder = Responder::new(side);
    let simulated = port.opened.simulator.is_some();
    // The interval between two reads of the connection.
    let nap = Patience::new(Duration::from_millis(20), simulated);
    let limit = std::mem::replace(&mut waiter.patience, nap);
    let mut turns = 0_u32;
    loop {
        let busy = responder.turn(|_| None)?;
        turns = turns.wrapping_add(1);
        if busy {
            waiter.patience.refresh();
        }
        let look = match &waiter.channel {
            // An end that sends is busy until the peer asks it to stop.
            _ if busy => responder.sends() && turns.is_multiple_of(TURNS),
            // Silence is no failure: the peer may be busy.
            Some(_) => waiter.idle("messages", || responder.arm()).is_err(),
            None => !matches!(waiter.patience.wait("messages"), Ok(false)),
        };
        if !look {
            continue;
        }
        match exchange.poll()? {
            None => {}
            Some(Message::Begin(phase)) => {
                responder.begin(phase);
                exchange.send(&Message::Ready)?;
            }
            Some(Message::End(sent)) => {
                let account = responder.end(sent, &limit, simulated, None)?;
                exchange.send(&Message::Account(account))?;
            }
            Some(Message::Bye) => return Ok(()),
            Some(other) => return Err(unexpected(&other)),
        }
        waiter.patience.refresh();
    }
}

impl Waiter {
    /// Waits by polling, or asleep on `channel`.
    #[cfg(test)]
    pub(crate) fn new(patience: Patience, channel: Option<CompletionChannel>) -> Self {
        Self { patience, channel, armed: false }
    }
}
