//! Flow rules, their actions and counters.
//!
//! `infiniband/verbs.h`.

use super::*;

abi! {
    struct ibv_flow_eth_filter [16] {
        0 dst_mac: [u8; 6],
        6 src_mac: [u8; 6],
        12 ether_type: u16,
        14 vlan_tag: u16,
    }

    struct ibv_flow_spec_eth [40] {
        0 r#type: c_uint,
        4 size: u16,
        6 val: ibv_flow_eth_filter,
        22 mask: ibv_flow_eth_filter,
    }

    struct ibv_flow_ipv4_filter [8] {
        0 src_ip: u32,
        4 dst_ip: u32,
    }

    struct ibv_flow_spec_ipv4 [24] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_ipv4_filter,
        16 mask: ibv_flow_ipv4_filter,
    }

    struct ibv_flow_ipv4_ext_filter [12] {
        0 src_ip: u32,
        4 dst_ip: u32,
        8 proto: u8,
        9 tos: u8,
        10 ttl: u8,
        11 flags: u8,
    }

    struct ibv_flow_spec_ipv4_ext [32] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_ipv4_ext_filter,
        20 mask: ibv_flow_ipv4_ext_filter,
    }

    struct ibv_flow_ipv6_filter [40] {
        0 src_ip: [u8; 16],
        16 dst_ip: [u8; 16],
        32 flow_label: u32,
        36 next_hdr: u8,
        37 traffic_class: u8,
        38 hop_limit: u8,
    }

    struct ibv_flow_spec_ipv6 [88] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_ipv6_filter,
        48 mask: ibv_flow_ipv6_filter,
    }

    struct ibv_flow_esp_filter [8] {
        0 spi: u32,
        4 seq: u32,
    }

    struct ibv_flow_spec_esp [24] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_esp_filter,
        16 mask: ibv_flow_esp_filter,
    }

    struct ibv_flow_tcp_udp_filter [4] {
        0 dst_port: u16,
        2 src_port: u16,
    }

    struct ibv_flow_spec_tcp_udp [16] {
        0 r#type: c_uint,
        4 size: u16,
        6 val: ibv_flow_tcp_udp_filter,
        10 mask: ibv_flow_tcp_udp_filter,
    }

    struct ibv_flow_gre_filter [8] {
        0 c_ks_res0_ver: u16,
        2 protocol: u16,
        4 key: u32,
    }

    struct ibv_flow_spec_gre [24] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_gre_filter,
        16 mask: ibv_flow_gre_filter,
    }

    struct ibv_flow_mpls_filter [4] {
        0 label: u32,
    }

    struct ibv_flow_spec_mpls [16] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_mpls_filter,
        12 mask: ibv_flow_mpls_filter,
    }

    struct ibv_flow_tunnel_filter [4] {
        0 tunnel_id: u32,
    }

    struct ibv_flow_spec_tunnel [16] {
        0 r#type: c_uint,
        4 size: u16,
        8 val: ibv_flow_tunnel_filter,
        12 mask: ibv_flow_tunnel_filter,
    }

    struct ibv_flow_spec_action_tag [12] {
        0 r#type: c_uint,
        4 size: u16,
        8 tag_id: u32,
    }

    struct ibv_flow_spec_action_drop [8] {
        0 r#type: c_uint,
        4 size: u16,
    }

    struct ibv_flow_spec_action_handle [16] {
        0 r#type: c_uint,
        4 size: u16,
        8 action: *mut ibv_flow_action,
    }

    struct ibv_flow_spec_counter_action [16] {
        0 r#type: c_uint,
        4 size: u16,
        8 counters: *mut ibv_counters,
    }

    struct ibv_flow_spec_u0_hdr {
        r#type: c_uint,
        size: u16,
    }

    union ibv_flow_spec_spec {
        hdr: ibv_flow_spec_u0_hdr,
        eth: ibv_flow_spec_eth,
        ipv4: ibv_flow_spec_ipv4,
        tcp_udp: ibv_flow_spec_tcp_udp,
        ipv4_ext: ibv_flow_spec_ipv4_ext,
        ipv6: ibv_flow_spec_ipv6,
        esp: ibv_flow_spec_esp,
        tunnel: ibv_flow_spec_tunnel,
        gre: ibv_flow_spec_gre,
        mpls: ibv_flow_spec_mpls,
        flow_tag: ibv_flow_spec_action_tag,
        drop: ibv_flow_spec_action_drop,
        handle: ibv_flow_spec_action_handle,
        flow_count: ibv_flow_spec_counter_action,
    }

    struct ibv_flow_spec [88] {
        0 spec: ibv_flow_spec_spec,
    }

    struct ibv_flow_attr [20] {
        0 comp_mask: u32,
        4 r#type: c_uint,
        8 size: u16,
        10 priority: u16,
        12 num_of_specs: u8,
        13 port: u8,
        16 flags: u32,
    }

    struct ibv_flow [24] {
        0 comp_mask: u32,
        8 context: *mut ibv_context,
        16 handle: u32,
    }

    struct ibv_flow_action [8] {
        0 context: *mut ibv_context,
    }

    struct ibv_flow_action_esp_attr [56] {
        0 esp_attr: *mut ibv_flow_action_esp,
        8 keymat_proto: c_uint,
        12 keymat_len: u16,
        16 keymat_ptr: *mut c_void,
        24 replay_proto: c_uint,
        28 replay_len: u16,
        32 replay_ptr: *mut c_void,
        40 esp_encap: *mut ibv_flow_action_esp_encap,
        48 comp_mask: u32,
        52 esn: u32,
    }

    struct ibv_counters_init_attr [4] {
        0 comp_mask: u32,
    }

    struct ibv_counters [8] {
        0 context: *mut ibv_context,
    }

    struct ibv_counter_attach_attr [12] {
        0 counter_desc: c_uint,
        4 index: u32,
        8 comp_mask: u32,
    }
}
