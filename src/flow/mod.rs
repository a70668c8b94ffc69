//! Flow rules: they steer received packets to queue pairs.
//!
//! A queue pair for raw packets receives only packets that match its rules. All other packets go to
//! the network interface: a program's rules come before those of the kernel.

mod counters;
mod matcher;
mod rule;

pub use counters::{CounterValues, FlowCounters};
pub use matcher::{HeaderFields, MatchFields, Matcher, MatcherBuilder};
pub use mlx5_uapi::flow::MatcherType;
pub use rule::{Ethernet, Gre, Ipv4, Ipv6, Mpls, Ports, Rule, Vxlan};

use crate::context::{Context, Inner};
use crate::error::{DestroyError, Error, ErrorKind, RAW_PACKETS};
use crate::qp::{QpInner, QueuePair};
use crate::rss::{HashInner, HashQueuePair};
use counters::CountersInner;
use mlx5_uapi::cmd::flow as command;
use mlx5_uapi::verbs::LinkLayer;
use mlx5_wqe::transport::RawPacket;
use std::fmt;
use std::sync::Arc;

/// The object that a rule keeps alive: its queue pair is destroyed after it.
enum Target {
    Queue(Arc<QpInner>),
    Hash(Arc<HashInner>),
    /// Its packets reach no queue pair.
    Untargeted(Arc<Inner>),
}

impl Target {
    fn context(&self) -> &Arc<Inner> {
        match self {
            Self::Queue(inner) => &inner.context,
            Self::Hash(inner) => &inner.context,
            Self::Untargeted(context) => context,
        }
    }

    fn live(&self) -> Result<u32, Error> {
        match self {
            Self::Queue(inner) => inner.live_handle(CREATE),
            Self::Hash(inner) => inner.live(CREATE),
            Self::Untargeted(_) => Err(Error::invalid(CREATE, "there is no queue pair".into())),
        }
    }
}

const CREATE: &str = "create_flow";
const DESTROY: &str = "destroy_flow";

/// A flow rule in force (`struct ibv_flow`). Dropping it ends it: later packets go to the next
/// matching rule, or to the network interface.
///
/// It keeps its queue pair alive: a queue pair that is dropped before its rules continues to
/// receive until the last one is dropped.
#[must_use = "a rule ends when its handle is dropped"]
pub struct FlowRule {
    handle: Option<u32>,
    target: Target,
    counters: Option<Arc<CountersInner>>,
    /// The matcher of a rule that has one: it is destroyed after the rule.
    _matcher: Option<Matcher>,
}

impl fmt::Debug for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowRule")
            .field("handle", &self.handle)
            .field("counted", &self.counters.is_some())
            .finish_non_exhaustive()
    }
}

impl QueuePair<RawPacket> {
    /// Steers the packets of a rule that arrive at a port to the queue pair (`ibv_create_flow`). It
    /// needs CAP_NET_RAW.
    ///
    /// ```no_run
    /// # use mlx5::{Error, QueuePair, flow::{Ethernet, Ipv4, Ports, Rule}, transport::RawPacket};
    /// # fn f(qp: &QueuePair<RawPacket>, mac: [u8; 6]) -> Result<(), Error> {
    /// let rule = Rule::new()
    ///     .ethernet(Ethernet::new().dst_mac(mac))
    ///     .ipv4(Ipv4::new().dst_ip([192, 0, 2, 1]))
    ///     .udp(Ports::new().dst_port(7))
    ///     .tag(1);
    /// let echo = qp.attach(1, &rule)?;
    /// // ... until the rule is dropped.
    /// drop(echo);
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach(&self, port_num: u8, rule: &Rule) -> Result<FlowRule, Error> {
        attach(Target::Queue(Arc::clone(&self.control.inner)), port_num, rule)
    }
}

impl HashQueuePair {
    /// Spreads the packets of a rule over the work queues. See
    /// [`QueuePair::attach`](QueuePair::<RawPacket>::attach).
    pub fn attach(&self, port_num: u8, rule: &Rule) -> Result<FlowRule, Error> {
        attach(Target::Hash(Arc::clone(&self.inner)), port_num, rule)
    }
}

/// Checks that flow rules are supported at all.
fn supported(verb: &'static str, context: &Arc<Inner>) -> Result<(), Error> {
    context.check(verb)?;
    if !(Context { inner: Arc::clone(context) }).query_device().ethernet.flow_rules {
        let what = "the device, its firmware or the kernel has no flow rules";
        return Err(Error::not_supported(verb, what).asked_for(RAW_PACKETS));
    }
    Ok(())
}

fn attach(target: Target, port_num: u8, rule: &Rule) -> Result<FlowRule, Error> {
    let context = Arc::clone(target.context());
    context.check(CREATE)?;
    if !context.port(CREATE, port_num)?.ethernet {
        let what = format!("port {port_num} is not an Ethernet port ({:?})", LinkLayer::InfiniBand);
        return Err(Error::new(CREATE, ErrorKind::NotSupported, what));
    }
    supported(CREATE, &context)?;
    let counters = rule.counters();
    if counters.is_some_and(|counters| !Arc::ptr_eq(&counters.context, &context)) {
        let what = "counters and queue pair belong to different contexts";
        return Err(Error::invalid(CREATE, what.into()));
    }
    let qp = target.live()?;
    let make = |counters: Option<u32>, described: Option<&[_]>| {
        let built = rule.build(counters);
        let built = built.map_err(|error| Error::invalid(CREATE, error.to_string()))?;
        let request = command::CreateFlow {
            qp,
            kind: built.kind,
            priority: built.priority,
            port: port_num,
            flags: built.flags,
            spec_count: built.spec_count,
            specs: &built.specs,
            counters: described,
        };
        command::create(&*context.file, &request)
            .map_err(|errno| context.fail(CREATE, errno).asked_for(RAW_PACKETS))
    };
    let handle = match counters {
        Some(counters) => counters.describe_with(make)?,
        None => make(None, None)?,
    };
    Ok(FlowRule { handle: Some(handle), target, counters: counters.cloned(), _matcher: None })
}

impl FlowRule {
    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.handle
    }

    fn end(&mut self) -> Result<(), Error> {
        if let Some(handle) = self.handle {
            let context = self.target.context();
            let end = || context.run_destroy(DESTROY, |file| command::destroy(file, handle));
            match &self.counters {
                Some(counters) => counters.end_rule(DESTROY, end)?,
                None => end()?,
            }
            self.handle = None;
        }
        Ok(())
    }

    /// Ends the rule (`ibv_destroy_flow`). If the kernel refuses, the error returns the rule.
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        self.end().map_err(|error| DestroyError::new(self, error))
    }
}

impl Drop for FlowRule {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel ends it when the file is closed.
        let _ = self.end();
    }
}
