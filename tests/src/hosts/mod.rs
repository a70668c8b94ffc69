//! Two hosts, or two processes, each with a device of its own. Both run the same case, and keep
//! step over TCP.

mod cases;
mod conversation;

use crate::bed::Bed;
use crate::failed::{Failed, Outcome};
use crate::pair::{End, PairOptions, Wired};
use conversation::Conversation;
use mlx5::{Endpoint, RemoteAddress};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// The port on which the serving host listens by default.
const PORT: u16 = 18515;

/// A case for two hosts: the sentence, and the function that checks it on each of them.
pub(crate) struct HostCase {
    pub(crate) name: &'static str,
    run: fn(&mut Host<'_>) -> Outcome,
}

/// Every such case.
pub(crate) fn all() -> impl Iterator<Item = &'static HostCase> {
    cases::CASES.iter()
}

/// One of the two hosts during a case.
pub(crate) struct Host<'a> {
    pub(crate) bed: &'a Bed,
    /// Whether this is the host that called the other.
    pub(crate) first: bool,
    conversation: &'a mut Conversation,
}

/// An end whose other end is on the other host.
pub(crate) struct Far<T: Wired> {
    pub(crate) end: End<T>,
    /// The other end's memory.
    pub(crate) remote: RemoteAddress,
    /// The other end's queue pair.
    pub(crate) qp_num: u32,
}

impl Host<'_> {
    /// Waits until the other host reaches the same point.
    pub(crate) fn meet(&mut self) -> Outcome {
        self.conversation.swap(&[]).map(drop)
    }

    /// An end connected to the one that the other host makes at the same point.
    pub(crate) fn far<T: Wired>(&mut self, options: &PairOptions) -> Result<Far<T>, Failed> {
        let end = self.bed.end::<T>(options)?;
        self.connected(end, options)
    }

    /// Connects an existing end to the one that the other host has at the same point.
    pub(crate) fn connected<T: Wired>(
        &mut self,
        mut end: End<T>,
        options: &PairOptions,
    ) -> Result<Far<T>, Failed> {
        let mut words = end.endpoint(options).to_bytes().to_vec();
        words.extend_from_slice(&end.mr.addr().to_be_bytes());
        words.extend_from_slice(&end.mr.rkey().to_be_bytes());
        let words = self.conversation.swap(&words)?;
        let (endpoint, memory) =
            words.split_at_checked(Endpoint::BYTES).ok_or("too few words from the other host")?;
        let endpoint = Endpoint::from_bytes(endpoint).map_err(|error| error.to_string())?;
        let (addr, rkey) = memory.split_at_checked(8).ok_or("too few words for an address")?;
        let remote = RemoteAddress {
            addr: u64::from_be_bytes(addr.try_into().map_err(|_| "no address")?),
            rkey: u32::from_be_bytes(rkey.try_into().map_err(|_| "no key")?),
        };
        T::wire(&mut end, &endpoint, options)?;
        // The other end must be ready before this side sends.
        self.meet()?;
        Ok(Far { end, remote, qp_num: endpoint.qp_num.get() })
    }
}

/// Runs a case on this side. A panic is a failure, which is reported to the other side.
fn run(case: &HostCase, bed: &Bed, first: bool, conversation: &mut Conversation) -> Outcome {
    let here = catch_unwind(AssertUnwindSafe(|| {
        (case.run)(&mut Host { bed, first, conversation: &mut *conversation })
    }));
    let here = here.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failed::new(words.unwrap_or("a panic")))
    });
    conversation.end(here)
}

/// The serving host, from the caller's side.
pub(crate) struct Peer(Mutex<Conversation>);

impl Peer {
    /// Calls the host that serves.
    pub(crate) fn call(address: &str) -> Result<Self, Failed> {
        let address =
            if address.contains(':') { address.to_owned() } else { format!("{address}:{PORT}") };
        Ok(Self(Mutex::new(Conversation::call(&address)?)))
    }

    /// Runs a case with it.
    pub(crate) fn run(&self, case: &HostCase, bed: &Bed) -> Outcome {
        let mut conversation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        conversation.begin(case.name)?;
        run(case, bed, true, &mut conversation)
    }
}

/// Serves one host until it has no more cases. Returns the number of cases, and those that failed.
pub(crate) fn serve(address: &str, bed: &Bed) -> Result<(usize, Vec<String>), Failed> {
    let address = if address.is_empty() { format!("[::]:{PORT}") } else { address.to_owned() };
    let listener = TcpListener::bind(&address)
        .map_err(|error| Failed::new(format!("cannot listen on {address}: {error}")))?;
    println!("serving on {address}");
    serve_on(&listener, bed)
}

fn serve_on(listener: &TcpListener, bed: &Bed) -> Result<(usize, Vec<String>), Failed> {
    let mut conversation = Conversation::answer(listener)?;
    let (mut count, mut failed) = (0, Vec::new());
    while let Some(name) = conversation.next_case()? {
        let Some(case) = all().find(|case| case.name == name) else {
            conversation.end(Err(Failed::new("not in this host's suite")))?;
            continue;
        };
        count += 1;
        if let Err(why) = run(case, bed, false, &mut conversation) {
            failed.push(format!("{name}: {why}"));
        }
    }
    Ok((count, failed))
}

/// Runs a case on two devices of one simulated fabric.
pub(crate) fn simulated(case: &HostCase, bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.devices(2))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::scope(|scope| {
        let there = bed.on_device(1);
        let other = scope.spawn(move || serve_on(&listener, &there));
        let outcome = Peer::call(&address).and_then(|peer| peer.run(case, &bed));
        let (_, failed) = other.join().map_err(|_| "the other side panicked")??;
        outcome?;
        failed.into_iter().next().map_or(Ok(()), |why| Err(Failed::new(why)))
    })
}
