//! Queries of the device and its ports.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::port::{
    AccessRegIn, AccessRegMode, AccessRegOut, HcaVportContext, QueryHcaVportContextIn,
    QueryHcaVportGidIn, QueryHcaVportGidOut, QueryRoceAddressIn, RegisterId, RoceVersion,
};
use mlx5_prm::fields::set_bits;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5;
use mlx5_uapi::mlx5::{MultiPacketSend, RxHashFields, RxHashFunctions, TunnelOffloads};
use mlx5_uapi::verbs::{
    AtomicCap, DeviceCapFlags, GidEntry, GidType, LinkLayer as VerbsLinkLayer, Mtu, PortState,
    QueryPortResp, QueryPortRespEx, RawPacketCaps,
};
use mlx5_uapi::write_cmd::{ExQueryDevice, ExQueryDeviceResp, QueryDeviceResp, RssCaps, TmCaps};
use zerocopy::IntoBytes;

use crate::config::LinkLayer;
use crate::engine::LOG_SEGMENTED;
use crate::firmware::register::{LOCAL_PORT, ptys};
use crate::kernel::cq::LONGEST_PERIOD;
use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::rates;
use crate::kernel::wq::{self, LOG_TABLE, RAW_PACKET_TYPE};
use crate::kernel::write_call::WriteCall;

/// Mellanox's IEEE number, from QUERY_DEVICE.
const IEEE_VENDOR: u32 = 0x02c9;
/// Bytes of a scatter/gather entry, of the segments before the entries in a send WQE, and of the
/// longest send WQE that the driver counts with, even if the device takes a longer one.
const SGE: u32 = 16;
const CONTROL_AND_RDMA: u32 = 32;
const LONGEST_SEND: u32 = 512;
/// Scatter/gather elements of a read, as the driver reports them.
const READ_SGES: u32 = 30;
/// Scatter/gather elements of a tag, the longest rendezvous request, and that the data of those
/// that arrive on an RC queue pair is fetched.
const TAG_SGES: u32 = 1;
const RENDEZVOUS_REQUEST: u32 = 64;
const TAG_RENDEZVOUS_RC: u32 = 1;
/// Bits of a completion's timestamp: one is spared for the format (every recorded device).
const TIMESTAMPS: u64 = u64::MAX >> 1;
/// The longest CQ moderation.
const MODERATION: u16 = 0xffff;
/// Width of a link: 4 lanes.
const WIDTH_4X: u8 = 2;
/// Physical states.
const LINK_UP: u8 = 5;
const DISABLED: u8 = 3;
/// Capabilities of a RoCE port: IP based GIDs, and communication management.
const ROCE_PORT_CAPS: u32 = 0x0401_0000;
/// Virtual lanes: VL0 to VL3.
const VIRTUAL_LANES: u8 = 3;
/// The first network interface that a RoCE port could have; loopback is the one before.
const FIRST_INTERFACE: u32 = 2;

/// The properties of a port, gathered from the firmware.
pub(crate) struct PortFacts {
    pub(crate) link_layer: LinkLayer,
    pub(crate) active: bool,
    pub(crate) mtu: Mtu,
    pub(crate) context: HcaVportContext,
    pub(crate) pkeys: Vec<u16>,
    pub(crate) gids: usize,
}

impl Hca {
    /// Gathers the properties of a port.
    pub(crate) fn port_facts(&self, port: u8) -> Result<PortFacts, Errno> {
        let link_layer = self.link_layer(port)?;
        let context = match link_layer {
            LinkLayer::InfiniBand => {
                let mut input = QueryHcaVportContextIn::request();
                input.set_port_num(port.into());
                *self.command(&input)?.hca_vport_context()
            }
            LinkLayer::Ethernet => {
                self.query_link(port)?;
                HcaVportContext::default()
            }
        };
        // The MTU and a RoCE port's link are the network interface's, not the firmware's.
        let engine = self.fabric.lock();
        let device = engine.device(self.id).port(port).ok_or(Errno::EINVAL)?;
        let mtu = (1..=5).filter_map(Mtu::from_raw).find(|mtu| mtu.bytes() == device.mtu);
        let pkeys = match link_layer {
            LinkLayer::InfiniBand => device.pkeys.clone(),
            // A RoCE port has the default key alone.
            LinkLayer::Ethernet => vec![0xffff],
        };
        Ok(PortFacts {
            link_layer,
            active: device.active,
            mtu: mtu.unwrap_or(Mtu::Mtu1024),
            context,
            pkeys,
            gids: device.gids.len(),
        })
    }

    /// Reads the protocol of a RoCE port's link (PTYS), the command with which mlx5_ib begins a
    /// query of such a port: a device that failed does not answer it.
    fn query_link(&self, port: u8) -> Result<(), Errno> {
        const ANSWER: usize = AccessRegOut::BYTES + ptys::BYTES;
        let mut head = AccessRegIn::request();
        head.set_op_mod(AccessRegMode::READ.0).set_register_id(RegisterId::PTYS.0);
        let mut register = [0; ptys::BYTES];
        set_bits(&mut register, LOCAL_PORT.0, LOCAL_PORT.1, port.into());
        set_bits(&mut register, ptys::PROTO_MASK.0, ptys::PROTO_MASK.1, ptys::EN);
        self.command_raw::<ANSWER>(&[head.as_bytes(), &register[..]].concat()).map(drop)
    }

    /// The index of a port's network interface.
    pub(crate) fn interface(&self, port: u8) -> u32 {
        FIRST_INTERFACE + self.id as u32 * 2 + u32::from(port) - 1
    }

    /// The GID table of a port, without the empty places.
    pub(crate) fn gids(&self, port: u8) -> Result<Vec<GidEntry>, Errno> {
        let facts = self.port_facts(port)?;
        if facts.link_layer == LinkLayer::InfiniBand {
            let gids = self.infiniband_gids(port, facts.gids)?;
            let entries = gids.into_iter().enumerate();
            return Ok(entries
                .filter_map(|(index, gid)| self.entry(port, index, gid, GidType::InfiniBand))
                .collect());
        }
        let entries = (0..facts.gids).map(|index| self.gid(port, &facts, index));
        entries.filter_map(Result::transpose).collect()
    }

    /// One place of a port's GID table, if it is not empty.
    pub(crate) fn gid(
        &self,
        port: u8,
        facts: &PortFacts,
        index: usize,
    ) -> Result<Option<GidEntry>, Errno> {
        let (gid, kind) = match facts.link_layer {
            LinkLayer::Ethernet => self.roce_gid(port, index)?,
            LinkLayer::InfiniBand => {
                let gids = self.infiniband_gids(port, facts.gids)?;
                (*gids.get(index).ok_or(Errno::EINVAL)?, GidType::InfiniBand)
            }
        };
        Ok(self.entry(port, index, gid, kind))
    }

    fn entry(&self, port: u8, index: usize, gid: [u8; 16], kind: GidType) -> Option<GidEntry> {
        (gid != [0; 16]).then(|| GidEntry {
            gid,
            gid_index: index as u32,
            port_num: port.into(),
            gid_type: kind.raw(),
            netdev_ifindex: if kind == GidType::InfiniBand { 0 } else { self.interface(port) },
        })
    }

    fn infiniband_gids(&self, port: u8, count: usize) -> Result<Vec<[u8; 16]>, Errno> {
        let mut input = QueryHcaVportGidIn::request();
        input.set_port_num(port.into()).set_gid_index(0xffff);
        let output = self.command_long(&input, QueryHcaVportGidOut::BYTES + 16 * count)?;
        let (_, gids) = QueryHcaVportGidOut::split_from(&output).ok_or(Errno::EIO)?;
        Ok(gids.as_chunks::<16>().0.to_vec())
    }

    fn roce_gid(&self, port: u8, index: usize) -> Result<([u8; 16], GidType), Errno> {
        let mut input = QueryRoceAddressIn::request();
        input.set_vhca_port_num(port.into()).set_roce_address_index(index as u32);
        let output = self.command(&input)?;
        let address = output.roce_address();
        let kind = match RoceVersion(address.roce_version()) {
            RoceVersion::V1 => GidType::RoceV1,
            _ => GidType::RoceV2,
        };
        Ok((*address.source_l3_address(), kind))
    }
}

fn port_number(number: u64, hca: &Hca) -> Result<u8, Errno> {
    let port = u8::try_from(number).map_err(|_| Errno::EINVAL)?;
    if port == 0 || port > hca.ports() { Err(Errno::EINVAL) } else { Ok(port) }
}

/// `struct mlx5_ib_uapi_query_port`.
pub(crate) const VPORT_BYTES: usize = 40;

/// Returns the virtual port behind a port. Only an embedded switch has one, so that the answer is
/// zero.
pub(crate) fn vport(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    state.context()?;
    port_number(request.number(attr::mlx5_query_port::QUERY_PORT_PORT_NUM)?, &file.hca)?;
    request.answer(attr::mlx5_query_port::QUERY_PORT, &[0_u8; VPORT_BYTES])
}

pub(crate) fn port(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    state.context()?;
    let hca = &file.hca;
    let port = port_number(request.number(attr::query_port::PORT_NUM)?, hca)?;
    let facts = hca.port_facts(port)?;
    let ethernet = facts.link_layer == LinkLayer::Ethernet;
    let context = &facts.context;
    let legacy_resp = QueryPortResp {
        port_cap_flags: if ethernet { ROCE_PORT_CAPS } else { context.cap_mask1() },
        max_msg_sz: 1 << hca.caps.log_max_msg(),
        bad_pkey_cntr: context.pkey_violation_counter(),
        qkey_viol_cntr: context.qkey_violation_counter(),
        gid_tbl_len: facts.gids as u32,
        pkey_tbl_len: facts.pkeys.len() as u16,
        lid: context.lid() as u16,
        sm_lid: context.sm_lid() as u16,
        state: if facts.active { PortState::Active } else { PortState::Down }.raw(),
        max_mtu: Mtu::Mtu4096.raw(),
        active_mtu: facts.mtu.raw(),
        lmc: context.lmc() as u8,
        max_vl_num: if ethernet { 0 } else { VIRTUAL_LANES },
        sm_sl: context.sm_sl() as u8,
        subnet_timeout: context.subnet_timeout() as u8,
        init_type_reply: context.init_type_reply() as u8,
        active_width: WIDTH_4X,
        active_speed: hca.fabric.config().capabilities.lane,
        phys_state: if facts.active { LINK_UP } else { DISABLED },
        link_layer: match facts.link_layer {
            LinkLayer::InfiniBand => VerbsLinkLayer::InfiniBand,
            LinkLayer::Ethernet => VerbsLinkLayer::Ethernet,
        }
        .raw(),
        flags: u8::from(ethernet),
        ..QueryPortResp::default()
    };
    let answer = QueryPortRespEx { legacy_resp, ..QueryPortRespEx::default() };
    request.answer(attr::query_port::RESP, &answer)
}

pub(crate) fn gid_table(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::query_gid_table as id;
    state.context()?;
    let entry_size = request.number(id::ENTRY_SIZE)? as usize;
    if request.number(id::FLAGS)? != 0 || entry_size == 0 {
        return Err(Errno::EINVAL);
    }
    let mut entries = Vec::new();
    for port in 1..=file.hca.ports() {
        entries.extend(file.hca.gids(port)?);
    }
    if entries.len() > request.room(id::RESP_ENTRIES) / entry_size {
        return Err(Errno::EINVAL);
    }
    // An older caller's entries are shorter, a newer one's longer.
    let mut bytes = Vec::with_capacity(entries.len() * entry_size);
    for entry in &entries {
        let known = entry.as_bytes();
        bytes.extend_from_slice(&known[..known.len().min(entry_size)]);
        bytes.resize(bytes.len() + entry_size.saturating_sub(known.len()), 0);
    }
    request.answer_bytes(id::RESP_ENTRIES, &bytes)?;
    request.answer(id::RESP_NUM_ENTRIES, &(entries.len() as u64))
}

pub(crate) fn gid_entry(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::query_gid_entry as id;
    state.context()?;
    if request.number(id::FLAGS)? != 0 {
        return Err(Errno::EINVAL);
    }
    let port = port_number(request.number(id::PORT)?, &file.hca)?;
    let index = request.number_u32(id::GID_INDEX)?;
    if index as usize >= file.hca.port_facts(port)?.gids {
        return Err(Errno::EINVAL);
    }
    let entries = file.hca.gids(port)?;
    let entry = entries.iter().find(|entry| entry.gid_index == index).ok_or(Errno::ENODATA)?;
    request.answer(id::RESP_ENTRY, entry)
}

pub(crate) fn device(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    call.respond(&base(&file.hca))
}

/// The tag matching capabilities of the device.
fn tag_matching(hca: &Hca) -> TmCaps {
    let mut caps = TmCaps::default();
    if hca.caps.tag_matching() {
        caps.max_num_tags = (1 << hca.caps.log_tag_matching_list_sz()) - 1;
        caps.max_ops = 1 << hca.caps.log_max_qp_sz();
        caps.max_sge = TAG_SGES;
        if hca.caps.rndv_offload_rc() {
            caps.flags = TAG_RENDEZVOUS_RC;
            caps.max_rndv_hdr_size = RENDEZVOUS_REQUEST;
        }
    }
    caps
}

pub(crate) fn device_ex(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: ExQueryDevice = call.request();
    if request.comp_mask != 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let hca = &file.hca;
    let ethernet = hca.has_raw_packets();
    let answer = ExQueryDeviceResp {
        base: base(hca),
        response_length: call.room().min(size_of::<ExQueryDeviceResp>()) as u32,
        timestamp_mask: TIMESTAMPS,
        hca_core_clock: hca.caps.device_frequency_khz().into(),
        device_cap_flags_ex: device_flags(hca).bits(),
        max_dm_size: Hca::DEVICE_MEMORY,
        cq_moderation_caps: mlx5_uapi::write_cmd::CqModerationCaps {
            max_cq_moderation_count: MODERATION,
            max_cq_moderation_period: LONGEST_PERIOD,
            reserved: 0,
        },
        tm_caps: tag_matching(hca),
        rss_caps: if ethernet { spreading(hca) } else { RssCaps::default() },
        max_wq_type_rq: if ethernet { 1 << hca.caps.log_max_rq() } else { 0 },
        raw_packet_caps: if ethernet { RAW_PACKETS.bits() } else { 0 },
        ..ExQueryDeviceResp::default()
    };
    let driver = mlx5::QueryDeviceResp {
        response_length: call.driver_room().min(size_of::<mlx5::QueryDeviceResp>()) as u32,
        flags: (mlx5::QueryDeviceFlags::CQE_128B_PAD | mlx5::QueryDeviceFlags::CQE_128B_COMP)
            .bits(),
        cqe_comp_caps: mlx5::CqeCompCaps {
            max_num: hca.caps.cqe_compression_max_num(),
            supported_format: mlx5::CqeCompFormat::all().bits(),
        },
        tso_caps: mlx5::TsoCaps {
            max_tso: if ethernet { 1 << LOG_SEGMENTED } else { 0 },
            supported_qpts: if ethernet { RAW_PACKET_TYPE } else { 0 },
        },
        rss_caps: mlx5::RssCaps {
            rx_hash_fields_mask: if ethernet { RxHashFields::all().bits() } else { 0 },
            rx_hash_function: if ethernet { RxHashFunctions::TOEPLITZ.bits() } else { 0 },
            reserved: [0; 7],
        },
        packet_pacing_caps: if ethernet { pacing() } else { Default::default() },
        support_multi_pkt_send_wqes: if ethernet { MultiPacketSend::all().bits() } else { 0 },
        tunnel_offloads_caps: if ethernet { TUNNELS.bits() } else { 0 },
        striding_rq_caps: if ethernet { wq::strides(hca) } else { Default::default() },
        ..mlx5::QueryDeviceResp::default()
    };
    call.respond(&answer)?;
    call.respond_driver(&driver)
}

/// The offloads for raw packets.
const RAW_PACKETS: RawPacketCaps =
    RawPacketCaps::CVLAN_STRIPPING.union(RawPacketCaps::SCATTER_FCS).union(RawPacketCaps::IP_CSUM);
/// The tunnels that the device looks into.
const TUNNELS: TunnelOffloads = TunnelOffloads::VXLAN.union(TunnelOffloads::GRE);

/// The capabilities of receive-side scaling.
fn spreading(hca: &Hca) -> RssCaps {
    RssCaps {
        supported_qpts: RAW_PACKET_TYPE,
        max_rwq_indirection_tables: 1 << hca.caps.log_max_rqt(),
        max_rwq_indirection_table_size: 1 << LOG_TABLE,
        reserved: 0,
    }
}

/// The capabilities of rate limits of send queues.
fn pacing() -> mlx5::PacketPacingCaps {
    let caps = rates::caps();
    let bursts = caps.packet_pacing_burst_bound() && caps.packet_pacing_typical_size();
    mlx5::PacketPacingCaps {
        qp_rate_limit_min: caps.packet_pacing_min_rate(),
        qp_rate_limit_max: caps.packet_pacing_max_rate(),
        supported_qpts: RAW_PACKET_TYPE,
        cap_flags: bursts.into(),
        reserved: [0; 3],
    }
}

/// The flags as kernels tell them since 6.0, which keep to themselves those that only kernels have
/// a use for: 0x25321c36 on Ethernet, 0x21361c36 on InfiniBand.
fn device_flags(hca: &Hca) -> DeviceCapFlags {
    let mut flags = DeviceCapFlags::CHANGE_PHY_PORT
        | DeviceCapFlags::PORT_ACTIVE_EVENT
        | DeviceCapFlags::SYS_IMAGE_GUID
        | DeviceCapFlags::RC_RNR_NAK_GEN
        | DeviceCapFlags::BAD_PKEY_CNTR
        | DeviceCapFlags::BAD_QKEY_CNTR
        | DeviceCapFlags::MEM_MGT_EXTENSIONS
        | DeviceCapFlags::MEM_WINDOW
        | DeviceCapFlags::MEM_WINDOW_TYPE_2B;
    flags.set(DeviceCapFlags::AUTO_PATH_MIG, hca.caps.apm());
    flags.set(DeviceCapFlags::XRC, hca.caps.xrc());
    let infiniband = hca.link_layer(1) == Ok(LinkLayer::InfiniBand);
    flags.set(DeviceCapFlags::UD_IP_CSUM, infiniband);
    // An InfiniBand port has flow tables as well, for the kernel's own use.
    flags.set(DeviceCapFlags::MANAGED_FLOW_STEERING, infiniband || hca.has_raw_packets());
    if hca.has_raw_packets() {
        flags |= DeviceCapFlags::RAW_IP_CSUM
            | DeviceCapFlags::RAW_SCATTER_FCS
            | DeviceCapFlags::PCI_WRITE_END_PADDING;
    }
    flags
}

fn base(hca: &Hca) -> QueryDeviceResp {
    let config = hca.fabric.config();
    let caps = &hca.caps;
    let [major, minor, sub] = config.model.firmware_version().map(u64::from);
    let guid = hca.fabric.lock().device(hca.id).system_guid().to_be_bytes();
    let send_sges = (caps.max_wqe_sz_sq().min(LONGEST_SEND) - CONTROL_AND_RDMA) / SGE;
    let receive_sges = caps.max_wqe_sz_rq() / SGE;
    let groups = 1 << caps.log_max_mcg();
    QueryDeviceResp {
        fw_ver: major << 32 | minor << 16 | sub,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: IEEE_VENDOR,
        vendor_part_id: config.model.pci_device_id().into(),
        hw_ver: 0,
        max_qp: 1 << caps.log_max_qp(),
        max_qp_wr: 1 << caps.log_max_qp_sz(),
        device_cap_flags: device_flags(hca).bits() as u32,
        max_sge: send_sges.min(receive_sges),
        max_sge_rd: READ_SGES,
        max_cq: 1 << caps.log_max_cq(),
        max_cqe: (1 << caps.log_max_cq_sz()) - 1,
        max_mr: 1 << caps.log_max_mkey(),
        max_pd: 1 << caps.log_max_pd(),
        max_qp_rd_atom: 1 << caps.log_max_ra_req_qp(),
        max_res_rd_atom: (1 << caps.log_max_ra_req_qp()) << caps.log_max_qp(),
        max_qp_init_rd_atom: 1 << caps.log_max_ra_res_qp(),
        atomic_cap: AtomicCap::Hca.raw(),
        max_mw: 1 << caps.log_max_mkey(),
        max_mcast_grp: groups,
        max_mcast_qp_attach: caps.max_qp_mcg(),
        max_total_mcast_qp_attach: caps.max_qp_mcg() * groups,
        max_ah: i32::MAX as u32,
        max_srq: 1 << caps.log_max_srq(),
        max_srq_wr: (1 << caps.log_max_srq_sz()) - 1,
        max_srq_sge: receive_sges - 1,
        max_pkeys: config.limits.pkeys as u16,
        local_ca_ack_delay: caps.local_ca_ack_delay() as u8,
        phys_port_cnt: hca.ports(),
        ..QueryDeviceResp::default()
    }
}
