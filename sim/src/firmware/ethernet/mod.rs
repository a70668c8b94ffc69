//! Ethernet: capabilities, queues, transport interfaces, flow tables, the function's address lists.

pub(super) mod flow;
mod interfaces;
mod queues;

use std::collections::BTreeMap;

use mlx5_prm::cmd::ethernet::{
    EthernetCaps, EthernetInlineMode, FlowTableCaps, ModifyNicVportContextIn, QosCaps,
    ReceiveQueueContext, SendQueueContext,
};
use mlx5_prm::cmd::port::{NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut};
use mlx5_prm::cmd::steering::{TirContext, TisContext};
use mlx5_prm::ethernet::InlineMode;

pub(super) use interfaces::{create_rqt, destroy_rqt, modify_rqt, query_rqt};

use crate::config::SimConfig;
use crate::engine::{
    Device, ETHERNET_MTU, Error, FRAME, LEVELS, LOG_ENTRIES, LOG_RQ_TABLE, LOG_SEGMENTED, Mac,
    RateLimit,
};
use crate::firmware::{Answer, Failure, Firmware, syndrome};

/// Base-two logarithm of the objects of a kind that a device has, as capabilities have it.
pub(super) const LOG_OBJECTS: u32 = 16;
/// Bytes of an address in the lists of a function: two bytes in front of it are free.
const LISTED: usize = 8;
/// `NicVportContext::allowed_list_type`: addresses of single stations.
const UNICAST_LIST: u32 = 0;
/// The same: addresses of groups.
const MULTICAST_LIST: u32 = 1;

/// What there is of Ethernet: contexts as the driver gave them, by number.
#[derive(Debug, Default)]
pub(super) struct Ethernet {
    sqs: BTreeMap<u32, SendQueueContext>,
    rqs: BTreeMap<u32, ReceiveQueueContext>,
    tirs: BTreeMap<u32, TirContext>,
    tises: BTreeMap<u32, TisContext>,
    /// The function as the driver has set it, and whether it wants RoCE.
    vport: NicVportContext,
    roce: Option<bool>,
    /// Addresses of groups that the function listens to.
    groups: Vec<Mac>,
}

pub(super) fn caps(config: &SimConfig, caps: &mut EthernetCaps) {
    let inline = match config.inline_mode {
        InlineMode::None => EthernetInlineMode::NOT_REQUIRED,
        _ => EthernetInlineMode::VPORT_CONTEXT,
    };
    caps.set_csum_cap(true)
        .set_vlan_cap(true)
        .set_wqe_vlan_insert(true)
        .set_scatter_fcs(true)
        .set_reg_umr_sq(config.striding)
        .set_self_lb_en_modifiable(true)
        .set_max_lso_cap(LOG_SEGMENTED)
        .set_multi_pkt_send_wqe(1)
        .set_enhanced_multi_pkt_send_wqe(true)
        .set_wqe_inline_mode(inline.0)
        .set_rss_ind_tbl_cap(LOG_RQ_TABLE);
}

/// Limits of the rate of send queues. Objects of programs with a limit there are not.
pub(crate) fn qos_caps(caps: &mut QosCaps) {
    caps.set_packet_pacing(true)
        .set_packet_pacing_burst_bound(true)
        .set_packet_pacing_typical_size(true)
        .set_packet_pacing_min_rate(*RateLimit::RATES.start())
        .set_packet_pacing_max_rate(*RateLimit::RATES.end())
        .set_packet_pacing_rate_table_size(RateLimit::TABLE.into());
}

pub(super) fn flow_table_caps(caps: &mut FlowTableCaps) {
    caps.set_nic_rx_multi_path_tirs(true);
    let receive = caps.nic_receive_mut();
    receive
        .set_ft_support(true)
        .set_flow_counter(true)
        .set_flow_modify_en(true)
        .set_modify_root(true)
        .set_identified_miss_table_mode(true)
        .set_flow_table_modify(true)
        .set_log_max_ft_size(LOG_ENTRIES)
        .set_max_ft_level(LEVELS)
        .set_log_max_ft_num(LOG_OBJECTS)
        .set_log_max_flow_counter(LOG_OBJECTS)
        .set_log_max_destination(LOG_OBJECTS)
        .set_log_max_flow(LOG_ENTRIES);
    receive.ft_field_support_mut().fill(0xff);
    receive.ft_field_bitmask_support_mut().fill(0xff);
}

impl Firmware {
    pub(super) fn nic_vport_context(
        &mut self,
        device: &Device,
        input: &QueryNicVportContextIn,
        out: &mut QueryNicVportContextOut,
        tail: &mut [u8],
    ) -> Answer {
        let port = device.port(1).ok_or(Failure::param(syndrome::PORT_NUMBER))?;
        let context = out.nic_vport_context_mut();
        *context = self.ethernet.vport;
        context
            .set_system_image_guid(device.system_guid())
            .set_node_guid(device.system_guid())
            .set_port_guid(port.guid)
            .set_min_wqe_inline_mode(device.config().inline_mode as u32)
            // Addresses that are there from the start are RoCE's.
            .set_roce_en(self.ethernet.roce.unwrap_or(device.config().addresses));
        if context.mtu() == 0 {
            context.set_mtu(ETHERNET_MTU + FRAME);
        }
        let [a, b, low @ ..] = port.mac;
        context
            .permanent_address_mut()
            .set_mac_addr_47_32(u16::from_be_bytes([a, b]).into())
            .set_mac_addr_31_0(u32::from_be_bytes(low));
        let list = match input.allowed_list_type() {
            UNICAST_LIST => device.vport().addresses.clone(),
            MULTICAST_LIST => self.ethernet.groups.clone(),
            _ => Vec::new(),
        };
        context.set_allowed_list_size(list.len() as u32);
        for (slot, mac) in tail.chunks_exact_mut(LISTED).zip(list) {
            slot[LISTED - mac.len()..].copy_from_slice(&mac);
        }
        Ok(())
    }

    pub(super) fn modify_nic_vport_context(
        &mut self,
        device: &mut Device,
        input: &ModifyNicVportContextIn,
        tail: &[u8],
    ) -> Answer {
        let wanted = input.nic_vport_context();
        if input.select_roce_en() {
            self.ethernet.roce = Some(wanted.roce_en());
        }
        let vport = &mut self.ethernet.vport;
        if input.select_mtu() {
            vport.set_mtu(wanted.mtu());
        }
        if input.select_promisc() {
            vport
                .set_promisc_uc(wanted.promisc_uc())
                .set_promisc_mc(wanted.promisc_mc())
                .set_promisc_all(wanted.promisc_all());
        }
        if input.select_disable_uc_local_lb() {
            vport.set_disable_uc_local_lb(wanted.disable_uc_local_lb());
            device.vport_mut().no_unicast_loopback = wanted.disable_uc_local_lb();
        }
        if input.select_disable_mc_local_lb() {
            vport.set_disable_mc_local_lb(wanted.disable_mc_local_lb());
            device.vport_mut().no_multicast_loopback = wanted.disable_mc_local_lb();
        }
        if input.select_addresses_list() {
            let count = wanted.allowed_list_size() as usize;
            let list = tail.get(..count * LISTED).ok_or(Error::Invalid("list of addresses"))?;
            let list = list.as_chunks::<LISTED>().0.iter();
            let macs = list.map(|[_, _, mac @ ..]| *mac).collect();
            match wanted.allowed_list_type() {
                UNICAST_LIST => device.vport_mut().addresses = macs,
                MULTICAST_LIST => self.ethernet.groups = macs,
                // VLANs are the flow tables' to tell apart.
                _ => {}
            }
        }
        Ok(())
    }
}
