//! Options of raw packet queue pairs.

use super::QueuePairBuilder;
use crate::context::Context;
use crate::error::{Error, ErrorKind};
use mlx5_uapi::mlx5::QpFlags;
use mlx5_uapi::verbs::{QpCreateFlags, RawPacketCaps};
use mlx5_wqe::transport::RawPacket;

/// Options of raw packet queue pairs.
#[derive(Clone, Copy, Default)]
pub(super) struct PacketOptions {
    /// Maximum length of the headers of packets that the device segments.
    pub(super) max_tso_header: u32,
    pub(super) flags: QpFlags,
}

/// Options of raw packet queue pairs, which need CAP_NET_RAW.
///
/// ```no_run
/// # use mlx5::{CompletionQueue, Error, ProtectionDomain, SendFlags, Sge, transport::RawPacket};
/// # fn f(pd: &ProtectionDomain, cq: &CompletionQueue, frame: Sge)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let mut qp = pd.create_qp::<RawPacket>(cq, cq).vlan_stripping(true).build()?;
/// qp.activate(1)?;
/// qp.post(|batch| {
///     batch.wr(1, SendFlags::SIGNALED | SendFlags::IP_CSUM).send().sge(frame);
/// })?;
/// # Ok(())
/// # }
/// ```
impl QueuePairBuilder<'_, RawPacket> {
    /// Maximum length of the headers of packets that the device cuts into segments
    /// ([`Wr::send_tso`](crate::Wr::send_tso)). Default: 0, no TSO. `build` refuses it on a device
    /// without TSO, and headers that do not fit into a request with the SGEs.
    pub fn max_tso_header(mut self, bytes: u32) -> Self {
        self.packet.max_tso_header = bytes;
        self
    }

    /// Removes the VLAN tag from received packets; the completion has it
    /// ([`WorkCompletion::vlan`](crate::WorkCompletion::vlan)). Default: false. `build` refuses it
    /// on a device that lacks it.
    pub fn vlan_stripping(mut self, strip: bool) -> Self {
        self.flags.set(QpCreateFlags::CVLAN_STRIPPING, strip);
        self
    }

    /// Receives packets with their frame check sequence, four bytes that count toward their length.
    /// Default: false. `build` refuses it on a device that lacks it.
    pub fn scatter_fcs(mut self, scatter: bool) -> Self {
        self.flags.set(QpCreateFlags::SCATTER_FCS, scatter);
        self
    }

    /// Pads the device's writes to a whole cache line. Default: false. The kernel refuses it on a
    /// device that lacks it.
    pub fn end_padding(mut self, pad: bool) -> Self {
        self.flags.set(QpCreateFlags::PCI_WRITE_END_PADDING, pad);
        self
    }

    /// Computes checksums and hashes of received tunneled packets over their inner headers.
    /// Default: false. The kernel refuses it on a device that lacks it.
    pub fn tunnel_offloads(mut self, inner: bool) -> Self {
        self.packet.flags.set(QpFlags::TUNNEL_OFFLOADS, inner);
        self
    }

    /// Receives packets that this process sends to its own port: unicast, multicast. Default:
    /// neither.
    pub fn self_loopback(mut self, unicast: bool, multicast: bool) -> Self {
        self.packet.flags.set(QpFlags::TIR_ALLOW_SELF_LB_UC, unicast);
        self.packet.flags.set(QpFlags::TIR_ALLOW_SELF_LB_MC, multicast);
        self
    }
}

impl PacketOptions {
    /// Refuses options that the device lacks.
    pub(super) fn check(
        &self,
        verb: &'static str,
        context: &Context,
        flags: QpCreateFlags,
    ) -> Result<(), Error> {
        let caps = context.query_device().ethernet;
        let lacks =
            |what| Err(Error::new(verb, ErrorKind::NotSupported, format!("the device {what}")));
        let stripping = caps.packets.contains(RawPacketCaps::CVLAN_STRIPPING);
        if flags.contains(QpCreateFlags::CVLAN_STRIPPING) && !stripping {
            return lacks("cannot strip VLAN tags: omit `vlan_stripping`");
        }
        let fcs = caps.packets.contains(RawPacketCaps::SCATTER_FCS);
        if flags.contains(QpCreateFlags::SCATTER_FCS) && !fcs {
            return lacks("does not hand out the frame check sequence: omit `scatter_fcs`");
        }
        if self.max_tso_header != 0 && caps.max_tso == 0 {
            return lacks("cannot cut packets into segments (TSO): omit `max_tso_header`");
        }
        Ok(())
    }
}
