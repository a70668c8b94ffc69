//! Capabilities of the device and its ports.

use super::Link;
use crate::error::Error;
use mlx5_uapi::{
    DeviceFile, Errno,
    cmd::{context::GetContext, query},
    mlx5::{self, UcontextRespMask},
    verbs::{AtomicCap, CoreSupport, LinkLayer, QueryPortRespEx},
    write_cmd::ExQueryDeviceResp,
};

/// Capabilities, queried when the device was opened.
pub(crate) struct Caps {
    /// ib_core's answer to QUERY_DEVICE.
    pub(crate) device: ExQueryDeviceResp,
    /// mlx5_ib's answer to QUERY_DEVICE.
    pub(crate) driver: mlx5::QueryDeviceResp,
    /// Number of completion vectors.
    pub(crate) num_comp_vectors: u32,
    /// Optional features that ib_core supports.
    pub(crate) core_support: CoreSupport,
    /// The ports, in order. Their properties do not change.
    ports: Vec<PortCaps>,
}

/// The constant properties of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortCaps {
    /// Whether the port is Ethernet, that is RoCE; otherwise it is InfiniBand.
    pub(crate) ethernet: bool,
    /// Whether every path needs a GRH.
    pub(crate) grh_required: bool,
    /// Maximum message size in bytes.
    pub(crate) max_msg_sz: u32,
}

impl PortCaps {
    /// Reads the kernel's answer to QUERY_PORT.
    pub(crate) fn of(answer: &QueryPortRespEx) -> Self {
        const GRH_REQUIRED: u8 = 1 << 0;
        let port = &answer.legacy_resp;
        Self {
            ethernet: LinkLayer::from_raw(port.link_layer) == Some(LinkLayer::Ethernet),
            grh_required: port.flags & GRH_REQUIRED != 0,
            max_msg_sz: port.max_msg_sz,
        }
    }
}

impl Caps {
    pub(super) fn query(file: &dyn DeviceFile, context: &GetContext) -> Result<Self, Errno> {
        let (device, driver) = query::device(file)?;
        let ports = (1..=context.driver.num_ports.min(u8::MAX.into()))
            .map(|port| Ok(PortCaps::of(&query::port(file, port as u8)?)))
            .collect::<Result<_, Errno>>()?;
        Ok(Self {
            device,
            driver,
            num_comp_vectors: context.num_comp_vectors,
            core_support: context.core_support,
            ports,
        })
    }
}

impl Link {
    /// Whether mlx5_ib reported this feature when the device was opened.
    pub(crate) fn kernel_can(&self, what: UcontextRespMask) -> bool {
        UcontextRespMask::from_bits_retain(self.limits.comp_mask).contains(what)
    }

    /// Number of completion vectors.
    pub(crate) fn num_comp_vectors(&self) -> u32 {
        self.caps.num_comp_vectors
    }

    /// Maximum number of CQEs of a completion queue.
    pub(crate) fn max_cqe(&self) -> u32 {
        self.caps.device.base.max_cqe
    }

    /// Whether the device supports atomics.
    pub(crate) fn has_atomics(&self) -> bool {
        AtomicCap::from_raw(self.caps.device.base.atomic_cap)
            .is_some_and(|cap| cap != AtomicCap::None)
    }

    /// Maximum message size that all ports support, in bytes.
    pub(crate) fn max_message(&self) -> u32 {
        self.caps.ports.iter().map(|port| port.max_msg_sz).min().unwrap_or(0)
    }

    /// Number of ports.
    pub(crate) fn num_ports(&self) -> usize {
        self.caps.ports.len()
    }

    /// Returns the properties of a port, counted from 1.
    pub(crate) fn port(&self, operation: &'static str, port_num: u8) -> Result<PortCaps, Error> {
        let port = usize::from(port_num).checked_sub(1).and_then(|i| self.caps.ports.get(i));
        port.copied().ok_or_else(|| {
            let there = match self.num_ports() {
                1 => "the device has port 1 alone".to_owned(),
                count => format!("ports are 1 to {count}"),
            };
            let what = format!("port {port_num} does not exist: {there}");
            Error::invalid(operation, what)
        })
    }
}
