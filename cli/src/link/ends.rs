//! Where the two ends are.

use crate::device::{Port, note};
use crate::failure::Failure;
use crate::link::exchange::{self, Exchange, unexpected};
use crate::link::message::Message;
use crate::link::patience::Patience;
use crate::link::peer::{Local, Peer, Remote};
use crate::link::responder::Responder;
use crate::link::side::{Shape, Side};
use crate::numbers::LARGEST;
use clap::Args;
use mlx5::{CompletionChannel, Endpoint};
use std::net::TcpListener;
use std::time::Duration;

/// Options that say where the other end is.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Other end")]
pub(crate) struct EndArgs {
    /// Serve a peer that runs the same command with --connect [default: 0.0.0.0:18515]
    ///
    /// The peer's options apply, apart from those of the device.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "",
          conflicts_with = "connect")]
    listen: Option<String>,
    /// Connect to a peer that runs with --listen [default port: 18515]
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// Give up after this time without progress
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// The end that measures, and the connection to its peer.
pub(crate) struct Initiator {
    pub(crate) side: Side,
    pub(crate) peer: Box<dyn Peer>,
    pub(crate) waiter: Waiter,
    /// This end's address.
    pub(crate) local: Endpoint,
    /// The peer's address.
    pub(crate) remote: Endpoint,
}

/// How to wait for completions: busy polling, or asleep.
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
    /// It measures.
    Initiator(Box<Initiator>),
    /// It served a peer, which is done.
    Served,
}

impl EndArgs {
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
            "without --listen and --connect both ends run in this process; between two hosts, \
             or two processes, both need a real device",
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

    /// How to wait for completions on a port.
    pub(crate) fn waiter(&self, port: &Port, events: bool) -> Result<Waiter, Failure> {
        let simulated = port.opened.simulator.is_some();
        let patience = Patience::new(Duration::from_secs(self.timeout), simulated);
        let channel = match events {
            true => Some(port.opened.context.create_comp_channel()?),
            false => None,
        };
        Ok(Waiter { patience, channel, armed: false })
    }

    /// Makes the ends and connects them. A serving process answers until its peer is done.
    pub(crate) fn open(&self, port: &Port, shape: Shape, events: bool) -> Result<Session, Failure> {
        self.reach(port)?;
        let waiter = self.waiter(port, events)?;
        match (&self.listen, &self.connect) {
            (Some(address), _) => serve(port, &exchange::complete(address, "0.0.0.0"), waiter),
            (None, Some(address)) => {
                let exchange = Exchange::connect(address)?;
                connect(port, exchange, shape, waiter).map(Session::of)
            }
            (None, None) => both(port, shape, waiter).map(Session::of),
        }
    }
}

impl Session {
    fn of(initiator: Initiator) -> Self {
        Self::Initiator(Box::new(initiator))
    }
}

/// Makes both ends here.
pub(crate) fn both(port: &Port, shape: Shape, waiter: Waiter) -> Result<Initiator, Failure> {
    let mut side = Side::new(port, shape, waiter.channel.as_ref())?;
    let mut other = Side::new(port, shape, waiter.channel.as_ref())?;
    let (here, there) = (side.invitation()?, other.invitation()?);
    side.join(port, there)?;
    other.join(port, here)?;
    let simulated = port.opened.simulator.is_some();
    let patience = waiter.patience.clone();
    let peer = Local { responder: Responder::new(other), patience, simulated };
    let (local, remote) = (here.endpoint, there.endpoint);
    Ok(Initiator { side, peer: Box::new(peer), waiter, local, remote })
}

/// Makes the end here that measures.
pub(crate) fn connect(
    port: &Port,
    mut exchange: Exchange,
    shape: Shape,
    waiter: Waiter,
) -> Result<Initiator, Failure> {
    let mut side = Side::new(port, shape, waiter.channel.as_ref())?;
    let here = side.invitation()?;
    exchange.send(&Message::Hello(shape))?;
    let there = match exchange.receive()? {
        Message::Invite(invitation) => invitation,
        other => return Err(unexpected(&other)),
    };
    side.join(port, there)?;
    exchange.send(&Message::Invite(here))?;
    exchange.expect_ready()?;
    let peer = Box::new(Remote::new(exchange));
    Ok(Initiator { side, peer, waiter, local: here.endpoint, remote: there.endpoint })
}

/// Waits for a peer that measures, and answers it.
fn serve(port: &Port, address: &str, waiter: Waiter) -> Result<Session, Failure> {
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::new(format!("cannot listen on {address}: {error}"))
            .hint("name another port: --listen PORT, and --connect HOST:PORT on the other side")
    })?;
    note(&format!("listening on {address}"));
    let (exchange, from) = Exchange::accept(&listener)?;
    note(&format!("serving {from}"));
    answer(port, exchange, waiter)?;
    Ok(Session::Served)
}

/// Answers on `exchange` until the peer is done. Failures here are sent to it.
pub(crate) fn answer(port: &Port, mut exchange: Exchange, waiter: Waiter) -> Result<(), Failure> {
    let done = converse(port, &mut exchange, waiter);
    if let Err(failure) = &done {
        // If this cannot be sent, the peer sees the closed connection.
        let _ = exchange.send(&Message::Error(failure.cause().to_owned()));
    }
    done
}

fn converse(port: &Port, exchange: &mut Exchange, mut waiter: Waiter) -> Result<(), Failure> {
    let shape = match exchange.receive()? {
        Message::Hello(shape) if shape.message <= LARGEST => shape,
        other => return Err(unexpected(&other)),
    };
    let mut side = Side::new(port, shape, waiter.channel.as_ref())?;
    exchange.send(&Message::Invite(side.invitation()?))?;
    match exchange.receive()? {
        Message::Invite(invitation) => side.join(port, invitation)?,
        other => return Err(unexpected(&other)),
    }
    exchange.send(&Message::Ready)?;
    let mut responder = Responder::new(side);
    let simulated = port.opened.simulator.is_some();
    // The interval between two reads of the connection.
    let nap = Patience::new(Duration::from_millis(20), simulated);
    let limit = std::mem::replace(&mut waiter.patience, nap);
    loop {
        if responder.turn()? {
            waiter.patience.refresh();
            continue;
        }
        let look = match &waiter.channel {
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
            Some(Message::End) => {
                let count = responder.end(&limit, simulated)?;
                exchange.send(&Message::Received(count))?;
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
