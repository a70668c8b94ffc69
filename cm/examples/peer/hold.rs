//! A connection made by the calls of identifiers, step by step, and messages over it.

use std::io::{BufRead, stdin};
use std::net::SocketAddr;
use std::time::Instant;

use clap::ValueEnum;
use mlx5::transport::Rc;
use mlx5::{MemoryRegion, QueuePair, QueueState, ReceiveWr, SendFlags};
use mlx5_cm::{ConnectParam, EventChannel, EventKind, Id, PortSpace};

use crate::{LIMIT, Outcome, RECEIVE, SEND, Side, Site, event, expect};

/// A step of a connection. Both sides reach the steps from [`Step::Connected`] on.
#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub(crate) enum Step {
    /// The server listens.
    Listening,
    /// The server has read a request.
    Request,
    /// The identifier has a channel of its own.
    Migrated,
    /// The server has accepted.
    Accepted,
    /// The client knows the route.
    Resolved,
    /// The client has asked.
    Asked,
    /// The client knows that the server has accepted.
    Answered,
    /// Both can send.
    Connected,
    /// A message has arrived, and others may be in flight.
    Traffic,
    /// The connection is being ended.
    Disconnecting,
}

/// The step at which the program stops.
#[derive(Clone, Copy)]
struct Stop(Option<Step>);

impl Stop {
    fn at(self, step: Step) -> Outcome {
        println!("at {step:?}");
        if self.0 == Some(step) {
            stdin().lock().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

/// Bytes of a message.
const MESSAGE: usize = 64;
/// Number of receives that stay posted, and of outstanding sends.
const DEPTH: u32 = 8;

struct End {
    id: Id,
    qp: QueuePair<Rc>,
    channel: EventChannel,
    site: Site,
    memory: MemoryRegion,
}

/// Connects, and passes messages until the peer ends the connection, or until the user asks for
/// that.
pub(crate) fn hold(side: Side, address: SocketAddr, stop_at: Option<Step>) -> Outcome {
    let stop = Stop(stop_at);
    let mut end = match side {
        Side::Server => serve(address, stop)?,
        Side::Client => call(address, stop)?,
    };
    stop.at(Step::Connected)?;
    if end.pass_messages(side, stop)? {
        end.qp.to_error()?;
        end.id.disconnect()?;
        stop.at(Step::Disconnecting)?;
        loop {
            match event(&end.channel)? {
                EventKind::Disconnected(_) => return Ok(()),
                other => expect(other, |event| matches!(event, EventKind::TimewaitExit))?,
            }
        }
    }
    Ok(())
}

fn queue_pair(id: &Id) -> Outcome<(Site, MemoryRegion, QueuePair<Rc>)> {
    let site = Site::open(&id.device()?)?;
    let memory = site.region(2 * MESSAGE)?;
    let mut qp =
        site.pd.create_qp::<Rc>(&site.cq, &site.cq).max_send_wr(16).max_recv_wr(16).build()?;
    id.init(&mut qp)?;
    for _ in 0..DEPTH {
        post(&mut qp, &memory)?;
    }
    Ok((site, memory, qp))
}

fn post(qp: &mut QueuePair<Rc>, memory: &MemoryRegion) -> Outcome {
    let sges = [memory.sge(..MESSAGE)?];
    Ok(qp.post_recv(&[ReceiveWr { wr_id: RECEIVE, sges: &sges }])?)
}

fn serve(address: SocketAddr, stop: Stop) -> Outcome<End> {
    let listening = EventChannel::open()?;
    let listener = listening.create_id(PortSpace::Tcp)?;
    listener.bind(address)?;
    listener.listen(1)?;
    stop.at(Step::Listening)?;
    let mut id = match event(&listening)? {
        EventKind::ConnectRequest { id, .. } => id,
        other => return Err(format!("{other:?} instead of a request").into()),
    };
    stop.at(Step::Request)?;
    let channel = EventChannel::open()?;
    id.migrate(&channel)?;
    stop.at(Step::Migrated)?;
    let (site, memory, mut qp) = queue_pair(&id)?;
    let param = ConnectParam::new(qp.qp_num());
    id.accept_qp(&mut qp, &param)?;
    stop.at(Step::Accepted)?;
    expect(event(&channel)?, |event| matches!(event, EventKind::Established))?;
    Ok(End { id, qp, channel, site, memory })
}

fn call(address: SocketAddr, stop: Stop) -> Outcome<End> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, address, LIMIT)?;
    expect(event(&channel)?, |event| matches!(event, EventKind::AddressResolved))?;
    id.resolve_route(LIMIT)?;
    expect(event(&channel)?, |event| matches!(event, EventKind::RouteResolved))?;
    stop.at(Step::Resolved)?;
    let (site, memory, mut qp) = queue_pair(&id)?;
    id.connect(&ConnectParam::new(qp.qp_num()))?;
    stop.at(Step::Asked)?;
    match event(&channel)? {
        EventKind::ConnectResponse(_) => {}
        EventKind::Rejected(why) => {
            return Err(format!("rejected for reason {}", why.reason).into());
        }
        other => return Err(format!("{other:?} instead of an answer").into()),
    }
    stop.at(Step::Answered)?;
    id.to_rts(&mut qp)?;
    id.ready()?;
    Ok(End { id, qp, channel, site, memory })
}

impl End {
    fn send(&mut self) -> Outcome {
        let mut batch = self.qp.wr_start();
        batch.wr(SEND, SendFlags::SIGNALED).send().sge(self.memory.sge(MESSAGE..)?);
        Ok(batch.complete()?)
    }

    /// The client sends, and the server sends each message back. Returns `true` if this end stopped
    /// and is to end the connection, `false` if the peer has ended it.
    fn pass_messages(&mut self, side: Side, stop: Stop) -> Outcome<bool> {
        if side == Side::Client {
            self.send()?;
        }
        let (start, mut count) = (Instant::now(), 0_u32);
        loop {
            if let Some(event) = self.channel.poll()? {
                expect(event.kind, |event| matches!(event, EventKind::Disconnected(_)))?;
                if self.qp.state() != QueueState::Error {
                    self.qp.to_error()?;
                }
                self.id.disconnect()?;
                return Ok(false);
            }
            let Some(completion) = self.site.poll()? else {
                if start.elapsed() > LIMIT {
                    return Err("neither a message nor the end came in time".into());
                }
                std::thread::yield_now();
                continue;
            };
            let completion = completion.as_completion();
            completion.status().map_err(|error| format!("the connection has failed: {error}"))?;
            if completion.wr_id() == RECEIVE {
                post(&mut self.qp, &self.memory)?;
                self.send()?;
                count += 1;
                if count == 1 {
                    stop.at(Step::Traffic)?;
                }
                if stop.0 == Some(Step::Disconnecting) {
                    return Ok(true);
                }
            }
        }
    }
}
