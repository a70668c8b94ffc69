//! Address handles: destinations of datagrams.

use super::{AhAttr, GlobalRoute, UdpSourcePort};
use crate::error::DestroyError;
use crate::{
    context::{Context, Gid, Inner},
    error::{Error, ErrorKind},
    link::PortCaps,
    memory::ProtectionDomain,
};
use mlx5_prm::wqe::AddressVector;
use mlx5_uapi::{cmd::ah as command, mlx5::CmdsSuppUhw, verbs::GidType};
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    net::Ipv4Addr,
};

const VERB: &str = "create_ah";

/// The device's rate code, indexed by `enum ibv_rate`. A rate that the device lacks maps to the
/// next higher one, or to unlimited.
const RATES: [u8; 23] = {
    const UNLIMITED: u8 = 0;
    const GBPS_2_5: u8 = 7;
    const GBPS_10: u8 = 8;
    const GBPS_30: u8 = 9;
    const GBPS_5: u8 = 10;
    const GBPS_20: u8 = 11;
    const GBPS_40: u8 = 12;
    const GBPS_60: u8 = 13;
    const GBPS_80: u8 = 14;
    const GBPS_120: u8 = 15;
    let mut rates = [UNLIMITED; 23];
    rates[2] = GBPS_2_5;
    rates[3] = GBPS_10;
    rates[4] = GBPS_30;
    rates[5] = GBPS_5;
    rates[6] = GBPS_20;
    rates[7] = GBPS_40;
    rates[8] = GBPS_60;
    rates[9] = GBPS_80;
    rates[10] = GBPS_120;
    rates[11] = GBPS_20; // 14 Gbit/s
    rates[12] = GBPS_60; // 56 Gbit/s
    rates[13] = GBPS_120; // 112 Gbit/s
    rates[15] = GBPS_30; // 25 Gbit/s
    rates[16] = GBPS_120; // 100 Gbit/s
    rates[19] = GBPS_30; // 28 Gbit/s
    rates[20] = GBPS_60; // 50 Gbit/s
    rates
};

fn random_udp_source_port() -> u16 {
    UdpSourcePort::MIN.get() | RandomState::new().hash_one(0_u8) as u16
}

/// Returns the address vector of a path on InfiniBand.
fn infiniband_vector(path: &AhAttr) -> AddressVector {
    let mut vector = AddressVector {
        stat_rate_sl: rate(path) << 4 | path.sl & 0xf,
        fl_mlid: path.src_path_bits & 0x7f,
        rlid: path.dlid.into(),
        ..AddressVector::default()
    };
    if let Some(grh) = &path.grh {
        set_route(&mut vector, grh, AddressVector::GRH);
    }
    vector
}

/// Returns the address vector of a path on Ethernet. Every packet there has a GRH or an IP header,
/// and the device needs the MAC address of the next hop.
fn roce_vector(
    path: &AhAttr,
    grh: &GlobalRoute,
    mac: [u8; 6],
    udp_source_port: u16,
) -> AddressVector {
    let mut vector = AddressVector {
        stat_rate_sl: rate(path) << 4 | (path.sl & 7) << 1,
        rlid: udp_source_port.into(),
        rmac: mac,
        ..AddressVector::default()
    };
    set_route(&mut vector, grh, 0);
    vector
}

fn rate(path: &AhAttr) -> u8 {
    RATES.get(usize::from(path.static_rate)).copied().unwrap_or(0)
}

fn set_route(vector: &mut AddressVector, grh: &GlobalRoute, flag: u32) {
    let index = u32::from(grh.sgid_index) << AddressVector::GID_INDEX_SHIFT;
    vector.tclass = grh.traffic_class;
    vector.hop_limit = grh.hop_limit;
    vector.grh_gid_fl = (flag | index | grh.flow_label & AddressVector::FLOW_LABEL_MASK).into();
    vector.rgid = grh.dgid.to_bytes();
}

/// An address handle (`struct ibv_ah`): the destination of a datagram.
///
/// Posting copies the address vector into the WQE; the handle may be dropped right after.
///
/// ```no_run
/// # use mlx5::{ConnectOptions, Endpoint, LocalPort, ProtectionDomain, QueuePair, SendFlags};
/// # use mlx5::transport::Ud;
/// # fn f(pd: &ProtectionDomain, qp: &mut QueuePair<Ud>, port: &LocalPort, to: &Endpoint)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let options = ConnectOptions::default();
/// let ah = pd.create_ah_to(port, to, &options)?;
/// let mut batch = qp.wr_start();
/// let request = batch.wr(1, SendFlags::SIGNALED).send();
/// request.ud_addr(ah.vector(), to.qp_num.get(), options.qkey).inline_data(b"a datagram");
/// batch.complete()?;
/// # Ok(())
/// # }
/// ```
pub struct AddressHandle {
    vector: AddressVector,
    path: AhAttr,
    /// The kernel's object, on Ethernet. It keeps the source GID at its index.
    handle: Option<u32>,
    pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Creates an address handle (`ibv_create_ah`).
    pub fn create_ah(&self, path: &AhAttr) -> Result<AddressHandle, Error> {
        self.context.check(VERB)?;
        let caps = self.context.port(VERB, path.port_num)?;
        path.check(VERB, &caps)?;
        self.create_ah_raw(path)
    }

    /// Like [`ProtectionDomain::create_ah`], but leaves it to kernel and device to refuse invalid
    /// paths: a path without a destination, or with more bits than a header has, which are cut off.
    pub fn create_ah_raw(&self, path: &AhAttr) -> Result<AddressHandle, Error> {
        let context = &self.context;
        context.check(VERB)?;
        let caps = context.port(VERB, path.port_num)?;
        let (vector, handle) = match &path.grh {
            Some(grh) if caps.ethernet => {
                let (vector, handle) = self.resolve(path, grh)?;
                (vector, Some(handle))
            }
            None if caps.ethernet => {
                let what = "the port is Ethernet: the path needs a global route (a GID)";
                return Err(Error::invalid(VERB, what.into()));
            }
            _ => (infiniband_vector(path), None),
        };
        Ok(AddressHandle { vector, path: *path, handle, pd: self.clone() })
    }

    /// Makes the kernel resolve the MAC address of the next hop.
    fn resolve(&self, path: &AhAttr, grh: &GlobalRoute) -> Result<(AddressVector, u32), Error> {
        let context = &self.context;
        let supported = CmdsSuppUhw::from_bits_retain(context.limits.cmds_supp_uhw);
        if !supported.contains(CmdsSuppUhw::CREATE_AH) {
            let cause = "the kernel's driver does not resolve addresses; a newer one does";
            return Err(Error::new(VERB, ErrorKind::NotSupported, cause));
        }
        let gid = context.query_gid(path.port_num, grh.sgid_index.into())?;
        let port = match gid.gid_type {
            GidType::RoceV2 => UdpSourcePort::of_flow_label(grh.flow_label)
                .map_or_else(random_udp_source_port, UdpSourcePort::get),
            _ => 0,
        };
        let attr = path.to_uverbs();
        let (handle, mac) =
            context.run(VERB, |file| command::create(file, self.handle(), &attr))?;
        Ok((roce_vector(path, grh, mac, port), handle))
    }

    /// Creates an address handle for the reply to a datagram received on `port_num`
    /// (`ibv_create_ah_from_wc`).
    pub fn create_ah_from_received(
        &self,
        port_num: u8,
        received: &Received<'_>,
    ) -> Result<AddressHandle, Error> {
        let context = &self.context;
        let caps = context.port(VERB, port_num)?;
        let path = AhAttr::from_received(context, port_num, &caps, received)?;
        self.create_ah(&path)
    }
}

impl AddressHandle {
    /// Returns the kernel's handle, for calls that this crate does not wrap; none on InfiniBand,
    /// where the kernel does not know the address. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.handle
    }

    /// Returns the address vector, without the queue pair number and the Q_Key.
    pub fn vector(&self) -> &AddressVector {
        &self.vector
    }

    /// Returns the path.
    pub fn path(&self) -> &AhAttr {
        &self.path
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    fn release(&mut self) -> Result<(), Error> {
        if let Some(handle) = self.handle {
            self.pd.context.run_destroy("destroy_ah", |file| command::destroy(file, handle))?;
            self.handle = None;
        }
        Ok(())
    }

    /// Destroys the address handle (`ibv_destroy_ah`). If the kernel refuses, the error returns it.
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        self.release().map_err(|error| DestroyError::new(self, error))
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // On failure no memory is at stake, and the kernel destroys the object when the file is
        // closed.
        let _ = self.release();
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The source of a received datagram, as the completion reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// The sender's LID, on InfiniBand.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the destination LID.
    pub dlid_path_bits: u8,
    /// The first 40 bytes of the receive buffer, if the completion reports a GRH.
    pub grh: Option<&'a [u8; 40]>,
}

/// The network header before a datagram: GRH, IPv6 or IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    source: Gid,
    destination: Gid,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    gid_type: GidType,
}

impl Header {
    /// Parses the 40 bytes before a datagram. They hold a GRH, an IPv6 header (same layout), or an
    /// IPv4 header in the last 20 bytes.
    fn parse(bytes: &[u8; 40], ethernet: bool) -> Option<Self> {
        let (head, ipv4) = bytes.split_first_chunk::<20>()?;
        let ipv4: &[u8; 20] = ipv4.try_into().ok()?;
        if ethernet && is_ipv4(ipv4, head[0] >> 4 == 6) {
            let address = |at: usize| {
                Gid::from(Ipv4Addr::new(ipv4[at], ipv4[at + 1], ipv4[at + 2], ipv4[at + 3]))
            };
            return Some(Self {
                source: address(12),
                destination: address(16),
                flow_label: 0,
                hop_limit: ipv4[8],
                traffic_class: ipv4[1],
                gid_type: GidType::RoceV2,
            });
        }
        const NEXT_HEADER_UDP: u8 = 17;
        const NEXT_HEADER_IBA: u8 = 0x1b;
        let first = u32::from_be_bytes(*head.first_chunk()?);
        let gid = |at: usize| Some(Gid::from_bytes(*bytes[at..].first_chunk()?));
        if first >> 28 != 6 {
            return None;
        }
        Some(Self {
            source: gid(8)?,
            destination: gid(24)?,
            flow_label: first & 0xf_ffff,
            hop_limit: bytes[7],
            traffic_class: (first >> 20) as u8,
            gid_type: match bytes[6] {
                _ if !ethernet => GidType::InfiniBand,
                NEXT_HEADER_UDP => GidType::RoceV2,
                NEXT_HEADER_IBA => GidType::RoceV1,
                _ => return None,
            },
        })
    }
}

/// Whether the 20 bytes are an IPv4 header. If the bytes before them look like an IPv6 header
/// (`ambiguous`), they may also be the end of one; then the checksum must match, too.
fn is_ipv4(header: &[u8; 20], ambiguous: bool) -> bool {
    const VERSION_AND_LENGTH: u8 = 0x45;
    let sum: u32 =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[0] == VERSION_AND_LENGTH && (!ambiguous || folded == 0xffff)
}

impl AhAttr {
    /// Returns the path back to the sender of a datagram that arrived on `port_num`
    /// (`ibv_init_ah_from_wc`). See [`ProtectionDomain::create_ah_from_received`].
    pub fn to_sender(
        context: &Context,
        port_num: u8,
        received: &Received<'_>,
    ) -> Result<Self, Error> {
        let caps = context.inner.port(VERB, port_num)?;
        Self::from_received(&context.inner, port_num, &caps, received)
    }

    /// Returns the path back to the sender.
    fn from_received(
        context: &Inner,
        port_num: u8,
        caps: &PortCaps,
        received: &Received<'_>,
    ) -> Result<Self, Error> {
        let path = Self {
            sl: received.sl,
            src_path_bits: received.dlid_path_bits,
            ..Self::infiniband(port_num, received.slid)
        };
        let Some(bytes) = received.grh else { return Ok(path) };
        let Some(header) = Header::parse(bytes, caps.ethernet) else {
            let what = "the 40 bytes before the datagram are neither a GRH nor an IP header";
            return Err(Error::invalid(VERB, what.into()));
        };
        if header.destination.is_multicast() {
            let what = "the datagram was sent to a multicast group and does not contain this \
                        port's GID: create the path from the sender's address";
            return Err(Error::invalid(VERB, what.into()));
        }
        let index = context.find_gid(VERB, port_num, header.destination, header.gid_type)?;
        let sgid_index = u8::try_from(index)
            .map_err(|_| Error::invalid(VERB, format!("GID index {index} is above 255")))?;
        Ok(path.with_grh(GlobalRoute {
            dgid: header.source,
            flow_label: header.flow_label,
            sgid_index,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
        }))
    }
}

#[cfg(test)]
mod tests;
