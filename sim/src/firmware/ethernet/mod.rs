//! Ethernet: capabilities, queues, transport interfaces, flow tables, the function's context.

pub(super) mod flow;
mod interfaces;
mod queues;
pub(super) mod vport;

use std::collections::BTreeMap;

use mlx5_prm::cmd::ethernet::{
    EthernetCaps, EthernetInlineMode, FlowTableCaps, FlowTableProperties, QosCaps,
    ReceiveQueueContext, SendQueueContext,
};
use mlx5_prm::cmd::steering::{TirContext, TisContext};
use mlx5_prm::ethernet::InlineMode;

pub(super) use interfaces::{create_rqt, destroy_rqt, modify_rqt, query_rqt};

use crate::config::SimConfig;
use crate::engine::{LEVELS, LOG_ENTRIES, LOG_RQ_TABLE, LOG_SEGMENTED, RateLimit};

/// Base-two logarithm of the objects of a kind that a device has, as in its capabilities.
pub(super) const LOG_OBJECTS: u32 = 16;

/// The Ethernet objects: contexts as the driver gave them, by number.
#[derive(Debug, Default)]
pub(super) struct Ethernet {
    sqs: BTreeMap<u32, SendQueueContext>,
    rqs: BTreeMap<u32, ReceiveQueueContext>,
    tirs: BTreeMap<u32, TirContext>,
    tises: BTreeMap<u32, TisContext>,
    vport: vport::Context,
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

/// Capabilities of the rate limits of send queues. Programs have no objects of their own with a
/// limit.
pub(crate) fn qos_caps(caps: &mut QosCaps) {
    caps.set_packet_pacing(true)
        .set_packet_pacing_uid(true)
        .set_packet_pacing_burst_bound(true)
        .set_packet_pacing_typical_size(true)
        .set_packet_pacing_min_rate(*RateLimit::RATES.start())
        .set_packet_pacing_max_rate(*RateLimit::RATES.end())
        .set_packet_pacing_rate_table_size(RateLimit::TABLE.into());
}

pub(super) fn flow_table_caps(caps: &mut FlowTableCaps) {
    caps.set_nic_rx_multi_path_tirs(true).set_allow_sniffer_and_nic_rx_shared_tir(true);
    flow_table_properties(caps.nic_receive_mut());
    flow_table_properties(caps.nic_receive_sniffer_mut());
    flow_table_properties(caps.nic_transmit_sniffer_mut());
}

/// Tables of every kind have the same capabilities.
fn flow_table_properties(kind: &mut FlowTableProperties) {
    kind.set_ft_support(true)
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
    kind.ft_field_support_mut().fill(0xff);
    kind.ft_field_bitmask_support_mut().fill(0xff);
}
