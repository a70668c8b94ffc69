//! The firmware: the command interface of a device.
//!
//! It knows mailboxes but not their source, so that every door (the in-process kernel, preloaded
//! programs, a real kernel over PCI) commands the same device. The [engine](crate::engine) moves
//! the data; the firmware checks commands, keeps contexts, and configures the engine.

mod alloc;
mod buffer;
pub(crate) mod caps;
mod counters;
mod cq;
mod ethernet;
mod events;
mod hca;
mod mad;
mod memic;
mod mkey;
mod pages;
mod port;
mod qp;
mod qp_modify;
mod raw;
pub(crate) mod register;
mod srq;
pub mod syndrome;
mod umem;

pub use events::EventRings;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use mlx5_prm::cmd::caps::HcaCap;
use mlx5_prm::cmd::cq::CqContext;
use mlx5_prm::cmd::eq::EqContext;
use mlx5_prm::cmd::mkey::MkeyContext;
use mlx5_prm::cmd::{
    CommandInHead, CommandInput, CommandOpcode, CommandOutHead, CommandStatus, alloc as prm_alloc,
    caps as prm_caps, cq as prm_cq, eq as prm_eq, ethernet as prm_ethernet, flow as prm_flow,
    hca as prm_hca, mkey as prm_mkey, port as prm_port, qp as prm_qp, srq as prm_srq,
    steering as prm_steering,
};
use mlx5_prm::fields::{FromBytes, IntoBytes};

use crate::engine::{Device, Error};
use crate::firmware::ethernet::flow;
pub(crate) use crate::firmware::ethernet::qos_caps;

/// The reason why a command was refused: the first eight bytes of its output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The kind of failure.
    pub status: CommandStatus,
    /// The firmware's own code, one of [`syndrome`].
    pub syndrome: u32,
}

impl Failure {
    const fn new(status: CommandStatus, syndrome: u32) -> Self {
        Self { status, syndrome }
    }

    const fn param(syndrome: u32) -> Self {
        Self::new(CommandStatus::BAD_PARAM_ERR, syndrome)
    }

    const fn resource(syndrome: u32) -> Self {
        Self::new(CommandStatus::BAD_RES_ERR, syndrome)
    }

    const fn busy(syndrome: u32) -> Self {
        Self::new(CommandStatus::RES_BUSY, syndrome)
    }

    const fn state(syndrome: u32) -> Self {
        Self::new(CommandStatus::BAD_RES_STATE_ERR, syndrome)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::resource(syndrome::NO_SUCH_OBJECT),
            Error::Busy => Self::busy(syndrome::IN_USE),
            Error::Exhausted => Self::new(CommandStatus::LIM_ERR, syndrome::TOO_MANY_OBJECTS),
            Error::Invalid(_) => Self::param(syndrome::INVALID_VALUE),
            Error::State(_) => Self::state(syndrome::WRONG_STATE),
            Error::Memory(_) => Self::param(syndrome::UNREACHABLE_MEMORY),
        }
    }
}

type Answer = Result<(), Failure>;

/// Numbers of a device's objects of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub pds: usize,
    pub mkeys: usize,
    pub cqs: usize,
    pub qps: usize,
    pub srqs: usize,
    pub uars: usize,
    pub multicast_attachments: usize,
    pub eqs: usize,
    pub xrcds: usize,
    pub transport_domains: usize,
    pub contexts: usize,
    pub umems: usize,
    pub psvs: usize,
    pub device_memories: usize,
    pub counter_sets: usize,
    pub ethernet: usize,
}

/// Numbers of objects that have no other state.
#[derive(Debug, Default)]
struct Numbers {
    used: BTreeSet<u32>,
    last: u32,
}

impl Numbers {
    /// Allocates an unused number from 1 to `limit`; numbers are reused as late as possible.
    fn take(&mut self, limit: u32) -> Result<u32, Failure> {
        if self.used.len() >= limit as usize {
            return Err(Error::Exhausted.into());
        }
        loop {
            self.last = self.last % limit + 1;
            if self.used.insert(self.last) {
                return Ok(self.last);
            }
        }
    }

    fn give_back(&mut self, number: u32) -> Answer {
        if self.used.remove(&number) { Ok(()) } else { Err(Error::NotFound.into()) }
    }
}

/// An event queue in its initial state.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// Its context.
    pub context: EqContext,
    /// The pages of its ring.
    pub pages: Vec<u64>,
    /// The events that it takes.
    pub events: [u64; 4],
}

/// The firmware's state of one device, beside the engine's objects.
#[derive(Debug, Default)]
pub struct Firmware {
    /// The page of plain memory that backs the next UAR.
    next_uar_memory: Option<u64>,
    memic: memic::Memic,
    cqs: BTreeMap<u32, CqContext>,
    eqs: BTreeMap<u32, EventQueue>,
    qps: BTreeMap<u32, qp::Record>,
    srqs: BTreeMap<u32, srq::Record>,
    mkeys: BTreeMap<u32, MkeyContext>,
    xrcds: Numbers,
    transport_domains: Numbers,
    contexts: Numbers,
    umems: umem::Umems,
    counter_sets: Numbers,
    /// The rings of event queues, if a driver reads them.
    rings: Option<EventRings>,
    pages: pages::Pages,
    /// The general capabilities as the driver has set them.
    caps: Option<Box<HcaCap>>,
    /// Whether INIT_HCA was executed.
    initialized: bool,
    /// The administrator's name for the node.
    description: Vec<u8>,
    ethernet: ethernet::Ethernet,
}

/// Whether a command only queries. Firmware truncates its answer to the caller's room.
fn asks(opcode: CommandOpcode) -> bool {
    opcode.name().is_some_and(|name| name.starts_with("QUERY_"))
}

/// Runs a command with fixed heads of input and output, and the bytes that follow both.
fn run<I: CommandInput>(
    input: &[u8],
    output: &mut [u8],
    command: impl FnOnce(&I, &[u8], &mut I::Output, &mut [u8]) -> Answer,
) -> Answer {
    let Ok((head, tail)) = I::ref_from_prefix(input) else {
        return Err(Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT));
    };
    let room = output.len();
    if let Ok((out, out_tail)) = I::Output::mut_from_prefix(output) {
        return command(head, tail, out, out_tail);
    }
    if !asks(CommandOpcode(CommandInHead::from_short(input).opcode()))
        || room < size_of::<CommandOutHead>()
    {
        return Err(Failure::new(CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT));
    }
    let mut whole = Box::new(I::Output::default());
    command(head, tail, &mut whole, &mut [])?;
    output.copy_from_slice(&whole.as_bytes()[..room]);
    Ok(())
}

/// Commands that end an object. A device that failed has no objects, and drivers treat these as
/// done.
fn ends_something(opcode: CommandOpcode) -> bool {
    use CommandOpcode as Op;
    matches!(
        opcode,
        Op::DEALLOC_PD
            | Op::DEALLOC_UAR
            | Op::DEALLOC_XRCD
            | Op::DEALLOC_TRANSPORT_DOMAIN
            | Op::DEALLOC_Q_COUNTER
            | Op::DESTROY_UCTX
            | Op::DESTROY_UMEM
            | Op::DESTROY_MKEY
            | Op::DESTROY_PSV
            | Op::DEALLOC_MEMIC
            | Op::DESTROY_EQ
            | Op::DESTROY_CQ
            | Op::DESTROY_QP
            | Op::DESTROY_SRQ
            | Op::DESTROY_XRC_SRQ
            | Op::DESTROY_RMP
            | Op::DESTROY_XRQ
            | Op::DETACH_FROM_MCG
            | Op::TEARDOWN_HCA
            | Op::DISABLE_HCA
            | Op::DESTROY_SQ
            | Op::DESTROY_RQ
            | Op::DESTROY_TIR
            | Op::DESTROY_TIS
            | Op::DESTROY_RQT
            | Op::DESTROY_FLOW_TABLE
            | Op::DESTROY_FLOW_GROUP
            | Op::DELETE_FLOW_TABLE_ENTRY
            | Op::DEALLOC_FLOW_COUNTER
            | Op::MANAGE_PAGES
            | Op::TO_ERR_QP
            | Op::TO_RST_QP
    )
}

impl Firmware {
    /// A firmware that has executed nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A firmware whose event queues are rings in the host's memory.
    #[must_use]
    pub fn with_rings(rings: EventRings) -> Self {
        Self { rings: Some(rings), ..Self::default() }
    }

    /// Forgets everything, as a function-level reset does.
    pub fn reset(&mut self, device: &mut Device) {
        device.reset();
        let rings = self.rings.take();
        if let Some(rings) = &rings {
            rings.clear();
        }
        *self = Self { rings, memic: self.memic.untaken(), ..Self::default() };
    }

    /// Pages of the host that the firmware holds.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.count()
    }

    /// Maps the next ALLOC_UAR to a page of plain memory, in which the engine then polls for
    /// doorbells. Without one, doorbells reach the engine one by one.
    pub fn offer_uar_memory(&mut self, page: u64) {
        self.next_uar_memory = Some(page);
    }

    /// Gives the device memory of its own: `bytes` bytes, whole pages, at `start` as the driver
    /// sees it, and at `bus` as the engine does.
    pub fn offer_device_memory(&mut self, start: u64, bus: u64, bytes: u64) {
        self.memic.offer(start, bus, bytes);
    }

    /// An event queue, so that a door can write its entries.
    #[must_use]
    pub fn event_queue(&self, eqn: u32) -> Option<&EventQueue> {
        self.eqs.get(&eqn)
    }

    /// Numbers of the objects.
    #[must_use]
    pub fn counts(&self, device: &Device) -> Counts {
        let census = device.census();
        Counts {
            pds: census.pds,
            mkeys: census.mkeys,
            cqs: census.cqs,
            qps: census.qps,
            srqs: census.srqs,
            uars: census.uars,
            multicast_attachments: census.attachments,
            eqs: self.eqs.len(),
            xrcds: self.xrcds.used.len(),
            transport_domains: self.transport_domains.used.len(),
            contexts: self.contexts.used.len(),
            umems: self.umems.count(),
            psvs: device.psvs.len(),
            device_memories: self.memic.count(),
            counter_sets: self.counter_sets.used.len(),
            ethernet: device.ethernet_objects(),
        }
    }

    /// Executes one command. The output always begins with status and syndrome; the rest of it is
    /// zero if the command failed.
    pub fn execute(
        &mut self,
        device: &mut Device,
        input: &[u8],
        output: &mut [u8],
    ) -> CommandStatus {
        output.fill(0);
        let head = CommandInHead::from_short(input);
        let opcode = CommandOpcode(head.opcode());
        let result = if device.is_fatal() && !ends_something(opcode) {
            Err(Failure::new(CommandStatus::INT_ERR, syndrome::DEVICE_FAILED))
        } else {
            self.dispatch(device, opcode, input, output)
        };
        if self.rings.is_some() {
            self.balance_pages(&self.counts(device));
        }
        match result {
            Ok(()) => CommandStatus::OK,
            Err(failure) => {
                output.fill(0);
                if let Some(head) = CommandOutHead::from_bytes_mut(output) {
                    head.set_status(failure.status.0).set_syndrome(failure.syndrome);
                }
                failure.status
            }
        }
    }

    /// One line a command.
    #[rustfmt::skip]
    fn dispatch(&mut self, dev: &mut Device, opcode: CommandOpcode, i: &[u8], o: &mut [u8]) -> Answer {
        use CommandOpcode as Op;
        match opcode {
            Op::QUERY_HCA_CAP => run(i, o, |i: &prm_caps::QueryHcaCapIn, _, o, _| caps::query(dev, &self.memic, self.caps.as_deref(), i, o)),
            Op::SET_HCA_CAP => run(i, o, |i: &prm_caps::SetHcaCapIn, _, _, _| self.set_hca_cap(dev, i)),
            Op::ENABLE_HCA => run(i, o, |_: &prm_hca::EnableHcaIn, _, _, _| Ok(())),
            Op::DISABLE_HCA => run(i, o, |_: &prm_hca::DisableHcaIn, _, _, _| self.disable_hca()),
            Op::INIT_HCA => run(i, o, |_: &prm_hca::InitHcaIn, _, _, _| self.init_hca()),
            Op::TEARDOWN_HCA => run(i, o, |i: &prm_hca::TeardownHcaIn, _, _, _| self.teardown_hca(dev, i)),
            Op::QUERY_PAGES => run(i, o, |i: &prm_hca::QueryPagesIn, _, o, _| self.query_pages(i, o)),
            Op::MANAGE_PAGES => run(i, o, |i: &prm_hca::ManagePagesIn, t, o, ot| self.manage_pages(i, t, o, ot)),
            Op::SET_DRIVER_VERSION => run(i, o, |_: &prm_hca::SetDriverVersionIn, _, _, _| Ok(())),
            Op::ACCESS_REG => run(i, o, |i: &prm_port::AccessRegIn, t, _, ot| self.access_reg(dev, i, t, ot)),
            Op::MAD_IFC => run(i, o, |i: &prm_port::MadIfcIn, _, o, _| self.mad_ifc(dev, i, o)),
            Op::QUERY_ADAPTER => run(i, o, |_: &prm_hca::QueryAdapterIn, _, o, _| caps::adapter(dev, o)),
            Op::QUERY_ISSI => run(i, o, |_: &prm_hca::QueryIssiIn, _, o, _| caps::query_issi(o)),
            Op::SET_ISSI => run(i, o, |i: &prm_hca::SetIssiIn, _, _, _| caps::set_issi(i)),
            Op::NOP => run(i, o, |_: &prm_hca::NopIn, _, _, _| Ok(())),

            Op::ALLOC_PD => run(i, o, |_: &prm_alloc::AllocPdIn, _, o, _| self.alloc_pd(dev, o)),
            Op::DEALLOC_PD => run(i, o, |i: &prm_alloc::DeallocPdIn, _, _, _| self.dealloc_pd(dev, i)),
            Op::ALLOC_UAR => run(i, o, |_: &prm_alloc::AllocUarIn, _, o, _| self.alloc_uar(dev, o)),
            Op::DEALLOC_UAR => run(i, o, |i: &prm_alloc::DeallocUarIn, _, _, _| Ok(dev.dealloc_uar(i.uar())?)),
            Op::ALLOC_XRCD => run(i, o, |_: &prm_alloc::AllocXrcdIn, _, o, _| self.alloc_xrcd(o)),
            Op::DEALLOC_XRCD => run(i, o, |i: &prm_alloc::DeallocXrcdIn, _, _, _| self.dealloc_xrcd(i)),
            Op::ALLOC_TRANSPORT_DOMAIN => run(i, o, |_: &prm_alloc::AllocTransportDomainIn, _, o, _| self.alloc_transport_domain(o)),
            Op::DEALLOC_TRANSPORT_DOMAIN => run(i, o, |i: &prm_alloc::DeallocTransportDomainIn, _, _, _| self.transport_domains.give_back(i.transport_domain())),
            Op::ALLOC_Q_COUNTER => run(i, o, |_: &prm_alloc::AllocQCounterIn, _, o, _| self.alloc_q_counter(o)),
            Op::DEALLOC_Q_COUNTER => run(i, o, |i: &prm_alloc::DeallocQCounterIn, _, _, _| self.counter_sets.give_back(i.counter_set_id())),
            Op::QUERY_Q_COUNTER => run(i, o, |i: &prm_alloc::QueryQCounterIn, _, o, _| self.query_q_counter(dev, i, o)),
            Op::CREATE_UCTX => self.create_uctx(i, o),
            Op::DESTROY_UCTX => self.destroy_uctx(i, o),
            Op::CREATE_UMEM => self.create_umem(i, o),
            Op::DESTROY_UMEM => self.destroy_umem(i, o),

            Op::CREATE_MKEY => run(i, o, |i: &prm_mkey::CreateMkeyIn, t, o, _| self.create_mkey(dev, i, t, o)),
            Op::QUERY_MKEY => run(i, o, |i: &prm_mkey::QueryMkeyIn, _, o, _| self.query_mkey(dev, i, o)),
            Op::DESTROY_MKEY => run(i, o, |i: &prm_mkey::DestroyMkeyIn, _, _, _| self.destroy_mkey(dev, i)),
            Op::ALLOC_MEMIC => run(i, o, |i: &prm_mkey::AllocMemicIn, _, o, _| self.memic.alloc(i, o)),
            Op::DEALLOC_MEMIC => run(i, o, |i: &prm_mkey::DeallocMemicIn, _, _, _| self.memic.dealloc(i)),
            Op::CREATE_PSV => run(i, o, |i: &prm_mkey::CreatePsvIn, _, o, _| self.create_psv(dev, i, o)),
            Op::DESTROY_PSV => run(i, o, |i: &prm_mkey::DestroyPsvIn, _, _, _| Ok(dev.destroy_psv(i.psvn())?)),

            Op::CREATE_EQ => run(i, o, |i: &prm_eq::CreateEqIn, t, o, _| self.create_eq(i, t, o)),
            Op::DESTROY_EQ => run(i, o, |i: &prm_eq::DestroyEqIn, _, _, _| self.destroy_eq(dev, i)),
            Op::QUERY_EQ => run(i, o, |i: &prm_eq::QueryEqIn, _, o, _| self.query_eq(i, o)),
            Op::CREATE_CQ => run(i, o, |i: &prm_cq::CreateCqIn, t, o, _| self.create_cq(dev, i, t, o)),
            Op::DESTROY_CQ => run(i, o, |i: &prm_cq::DestroyCqIn, _, _, _| self.destroy_cq(dev, i)),
            Op::QUERY_CQ => run(i, o, |i: &prm_cq::QueryCqIn, _, o, _| self.query_cq(dev, i, o)),
            Op::MODIFY_CQ => run(i, o, |i: &prm_cq::ModifyCqIn, t, _, _| self.modify_cq(dev, i, t)),

            Op::CREATE_QP => run(i, o, |i: &prm_qp::CreateQpIn, t, o, _| self.create_qp(dev, i, t, o)),
            Op::DESTROY_QP => run(i, o, |i: &prm_qp::DestroyQpIn, _, _, _| self.destroy_qp(dev, i)),
            Op::QUERY_QP => run(i, o, |i: &prm_qp::QueryQpIn, _, o, _| self.query_qp(dev, i, o)),
            Op::RST2INIT_QP | Op::INIT2INIT_QP | Op::INIT2RTR_QP | Op::RTR2RTS_QP | Op::RTS2RTS_QP
            | Op::SQERR2RTS_QP | Op::SQD_RTS_QP | Op::TO_ERR_QP | Op::TO_RST_QP => self.modify_qp(dev, opcode, i, o),

            Op::CREATE_SRQ => run(i, o, |i: &prm_srq::CreateSrqIn, t, o, _| self.create_srq(dev, i, t, o)),
            Op::DESTROY_SRQ => run(i, o, |i: &prm_srq::DestroySrqIn, _, _, _| self.destroy_shared(dev, i.srqn(), srq::Kind::Srq)),
            Op::QUERY_SRQ => run(i, o, |i: &prm_srq::QuerySrqIn, _, o, _| self.query_srq(dev, i, o)),
            Op::ARM_RQ => run(i, o, |i: &prm_srq::ArmRqIn, _, _, _| self.arm_rq(dev, i)),
            Op::CREATE_XRC_SRQ => run(i, o, |i: &prm_srq::CreateXrcSrqIn, t, o, _| self.create_xrc_srq(dev, i, t, o)),
            Op::DESTROY_XRC_SRQ => run(i, o, |i: &prm_srq::DestroyXrcSrqIn, _, _, _| self.destroy_shared(dev, i.xrc_srqn(), srq::Kind::XrcSrq)),
            Op::QUERY_XRC_SRQ => run(i, o, |i: &prm_srq::QueryXrcSrqIn, _, o, _| self.query_xrc_srq(dev, i, o)),
            Op::ARM_XRC_SRQ => run(i, o, |i: &prm_srq::ArmXrcSrqIn, _, _, _| self.arm_xrc_srq(dev, i)),
            Op::CREATE_RMP => run(i, o, |i: &prm_srq::CreateRmpIn, t, o, _| self.create_rmp(dev, i, t, o)),
            Op::MODIFY_RMP => run(i, o, |i: &prm_srq::ModifyRmpIn, _, _, _| self.modify_rmp(dev, i)),
            Op::DESTROY_RMP => run(i, o, |i: &prm_srq::DestroyRmpIn, _, _, _| self.destroy_shared(dev, i.rmpn(), srq::Kind::Rmp)),
            Op::QUERY_RMP => run(i, o, |i: &prm_srq::QueryRmpIn, _, o, _| self.query_rmp(dev, i, o)),

            Op::CREATE_XRQ => run(i, o, |i: &prm_srq::CreateXrqIn, t, o, _| self.create_xrq(dev, i, t, o)),
            Op::DESTROY_XRQ => run(i, o, |i: &prm_srq::DestroyXrqIn, _, _, _| self.destroy_shared(dev, i.xrqn(), srq::Kind::Xrq)),
            Op::QUERY_XRQ => run(i, o, |i: &prm_srq::QueryXrqIn, _, o, _| self.query_xrq(dev, i, o)),

            Op::ATTACH_TO_MCG => run(i, o, |i: &prm_port::AttachToMcgIn, _, _, _| port::attach(dev, i)),
            Op::DETACH_FROM_MCG => run(i, o, |i: &prm_port::DetachFromMcgIn, _, _, _| port::detach(dev, i)),
            Op::QUERY_VPORT_STATE => run(i, o, |i: &prm_port::QueryVportStateIn, _, o, _| port::vport_state(dev, i, o)),
            Op::QUERY_HCA_VPORT_CONTEXT => run(i, o, |i: &prm_port::QueryHcaVportContextIn, _, o, _| port::hca_vport_context(dev, i, o)),
            Op::QUERY_HCA_VPORT_GID => run(i, o, |i: &prm_port::QueryHcaVportGidIn, _, o, t| port::hca_vport_gid(dev, i, o, t)),
            Op::QUERY_HCA_VPORT_PKEY => run(i, o, |i: &prm_port::QueryHcaVportPkeyIn, _, _, t| port::hca_vport_pkey(dev, i, t)),
            Op::QUERY_NIC_VPORT_CONTEXT => run(i, o, |i: &prm_port::QueryNicVportContextIn, _, o, ot| self.nic_vport_context(dev, i, o, ot)),
            Op::QUERY_ROCE_ADDRESS => run(i, o, |i: &prm_port::QueryRoceAddressIn, _, o, _| port::query_roce_address(dev, i, o)),
            Op::SET_ROCE_ADDRESS => run(i, o, |i: &prm_port::SetRoceAddressIn, _, _, _| port::set_roce_address(dev, i)),

            Op::MODIFY_NIC_VPORT_CONTEXT => run(i, o, |i: &prm_ethernet::ModifyNicVportContextIn, t, _, _| self.modify_nic_vport_context(dev, i, t)),

            Op::SET_PP_RATE_LIMIT => run(i, o, |i: &prm_ethernet::SetPpRateLimitIn, _, _, _| Self::set_pp_rate_limit(dev, i)),
            Op::CREATE_SQ => run(i, o, |i: &prm_ethernet::CreateSqIn, t, o, _| self.create_sq(dev, i, t, o)),
            Op::MODIFY_SQ => run(i, o, |i: &prm_ethernet::ModifySqIn, _, _, _| self.modify_sq(dev, i)),
            Op::DESTROY_SQ => run(i, o, |i: &prm_ethernet::DestroySqIn, _, _, _| self.destroy_sq(dev, i)),
            Op::QUERY_SQ => run(i, o, |i: &prm_ethernet::QuerySqIn, _, o, _| self.query_sq(dev, i, o)),
            Op::CREATE_RQ => run(i, o, |i: &prm_ethernet::CreateRqIn, t, o, _| self.create_rq(dev, i, t, o)),
            Op::MODIFY_RQ => run(i, o, |i: &prm_ethernet::ModifyRqIn, _, _, _| self.modify_rq(dev, i)),
            Op::DESTROY_RQ => run(i, o, |i: &prm_ethernet::DestroyRqIn, _, _, _| self.destroy_rq(dev, i)),
            Op::QUERY_RQ => run(i, o, |i: &prm_ethernet::QueryRqIn, _, o, _| self.query_rq(dev, i, o)),
            Op::CREATE_TIR => run(i, o, |i: &prm_steering::CreateTirIn, _, o, _| self.create_tir(dev, i, o)),
            Op::MODIFY_TIR => run(i, o, |i: &prm_steering::ModifyTirIn, _, _, _| self.modify_tir(dev, i)),
            Op::QUERY_TIR => run(i, o, |i: &prm_steering::QueryTirIn, _, o, _| self.query_tir(i, o)),
            Op::DESTROY_TIR => run(i, o, |i: &prm_steering::DestroyTirIn, _, _, _| self.destroy_tir(dev, i)),
            Op::CREATE_TIS => run(i, o, |i: &prm_steering::CreateTisIn, _, o, _| self.create_tis(dev, i, o)),
            Op::MODIFY_TIS => run(i, o, |i: &prm_steering::ModifyTisIn, _, _, _| self.modify_tis(dev, i)),
            Op::QUERY_TIS => run(i, o, |i: &prm_steering::QueryTisIn, _, o, _| self.query_tis(i, o)),
            Op::DESTROY_TIS => run(i, o, |i: &prm_steering::DestroyTisIn, _, _, _| self.destroy_tis(dev, i)),
            Op::CREATE_RQT => run(i, o, |i: &prm_steering::CreateRqtIn, t, o, _| ethernet::create_rqt(dev, i, t, o)),
            Op::MODIFY_RQT => run(i, o, |i: &prm_steering::ModifyRqtIn, t, _, _| ethernet::modify_rqt(dev, i, t)),
            Op::QUERY_RQT => run(i, o, |i: &prm_steering::QueryRqtIn, _, o, ot| ethernet::query_rqt(dev, i, o, ot)),
            Op::DESTROY_RQT => run(i, o, |i: &prm_steering::DestroyRqtIn, _, _, _| ethernet::destroy_rqt(dev, i)),

            Op::CREATE_FLOW_TABLE => run(i, o, |i: &prm_flow::CreateFlowTableIn, _, o, _| flow::create_table(dev, i, o)),
            Op::MODIFY_FLOW_TABLE => run(i, o, |i: &prm_flow::ModifyFlowTableIn, _, _, _| flow::modify_table(dev, i)),
            Op::SET_FLOW_TABLE_ROOT => run(i, o, |i: &prm_flow::SetFlowTableRootIn, _, _, _| flow::set_root(dev, i)),
            Op::DESTROY_FLOW_TABLE => run(i, o, |i: &prm_flow::DestroyFlowTableIn, _, _, _| flow::destroy_table(dev, i)),
            Op::CREATE_FLOW_GROUP => run(i, o, |i: &prm_flow::CreateFlowGroupIn, _, o, _| flow::create_group(dev, i, o)),
            Op::DESTROY_FLOW_GROUP => run(i, o, |i: &prm_flow::DestroyFlowGroupIn, _, _, _| flow::destroy_group(dev, i)),
            Op::SET_FLOW_TABLE_ENTRY => run(i, o, |i: &prm_flow::SetFlowTableEntryIn, t, _, _| flow::set_entry(dev, i, t)),
            Op::DELETE_FLOW_TABLE_ENTRY => run(i, o, |i: &prm_flow::DeleteFlowTableEntryIn, _, _, _| flow::delete_entry(dev, i)),
            Op::ALLOC_FLOW_COUNTER => run(i, o, |i: &prm_flow::AllocFlowCounterIn, _, o, _| flow::alloc_counter(dev, i, o)),
            Op::DEALLOC_FLOW_COUNTER => run(i, o, |i: &prm_flow::DeallocFlowCounterIn, _, _, _| flow::dealloc_counter(dev, i)),
            Op::QUERY_FLOW_COUNTER => run(i, o, |i: &prm_flow::QueryFlowCounterIn, _, _, ot| flow::query_counter(dev, i, ot)),
            Op::QUERY_VPORT_COUNTER => run(i, o, |i: &prm_port::QueryVportCounterIn, _, o, _| counters::of_vport(dev, i, o)),
            Op::QUERY_VNIC_ENV => run(i, o, |i: &prm_port::QueryVnicEnvIn, _, o, _| counters::of_steering(dev, i, o)),
            Op::SET_L2_TABLE_ENTRY | Op::QUERY_L2_TABLE_ENTRY | Op::DELETE_L2_TABLE_ENTRY => Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::NO_SWITCH)),

            _ => Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_OPCODE)),
        }
    }
}
