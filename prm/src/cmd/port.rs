//! Ports: vport contexts, GIDs, P_Keys, RoCE addresses, MADs, registers, multicast groups.

use super::commands;
use crate::fields::{codes, layouts};

layouts! {
    /// A MAC address, right-aligned in eight bytes.
    ///
    /// `mlx5_ifc_mac_address_layout_bits`.
    pub struct MacAddress [0x40] {
        mac_addr_47_32, set_mac_addr_47_32: 0x10, 16;
        mac_addr_31_0, set_mac_addr_31_0: 0x20, 32;
    }

    /// A VLAN in a list of allowed ones.
    ///
    /// `mlx5_ifc_vlan_layout_bits`.
    pub struct VlanEntry [0x40] {
        vlan, set_vlan: 0x14, 12;
    }

    /// The packets and octets of one kind of traffic that a vport has received and sent.
    ///
    /// Two of `mlx5_ifc_traffic_counter_bits`.
    pub struct TrafficCounterPair [0x100] {
        received_packets, set_received_packets: 0x0, 64;
        received_octets, set_received_octets: 0x40, 64;
        transmitted_packets, set_transmitted_packets: 0x80, 64;
        transmitted_octets, set_transmitted_octets: 0xc0, 64;
    }

    /// Input of QUERY_VPORT_COUNTER.
    ///
    /// `mlx5_ifc_query_vport_counter_in_bits`.
    pub struct QueryVportCounterIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        port_num, set_port_num: 0x4c, 4;
        vport_number, set_vport_number: 0x50, 16;
        clear, set_clear: 0xc0, 1;
    }

    /// Output of QUERY_VPORT_COUNTER.
    ///
    /// `mlx5_ifc_query_vport_counter_out_bits`.
    pub struct QueryVportCounterOut [0x1080] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        errors, errors_mut: 0x80 => TrafficCounterPair;
        ib_unicast, ib_unicast_mut: 0x180 => TrafficCounterPair;
        ib_multicast, ib_multicast_mut: 0x280 => TrafficCounterPair;
        eth_broadcast, eth_broadcast_mut: 0x380 => TrafficCounterPair;
        eth_unicast, eth_unicast_mut: 0x480 => TrafficCounterPair;
        eth_multicast, eth_multicast_mut: 0x580 => TrafficCounterPair;
    }

    /// Error counters of a vport.
    ///
    /// `mlx5_ifc_vnic_diagnostic_statistics_bits`.
    pub struct VnicDiagnosticStatistics [0x1000] {
        counter_error_queues, set_counter_error_queues: 0x0, 32;
        total_error_queues, set_total_error_queues: 0x20, 32;
        send_queue_priority_update_flow, set_send_queue_priority_update_flow: 0x40, 32;
        nic_receive_steering_discard, set_nic_receive_steering_discard: 0x80, 64;
        receive_discard_vport_down, set_receive_discard_vport_down: 0xc0, 64;
        transmit_discard_vport_down, set_transmit_discard_vport_down: 0x100, 64;
    }

    /// Input of QUERY_VNIC_ENV.
    ///
    /// `mlx5_ifc_query_vnic_env_in_bits`.
    pub struct QueryVnicEnvIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
    }

    /// Output of QUERY_VNIC_ENV.
    ///
    /// `mlx5_ifc_query_vnic_env_out_bits`.
    pub struct QueryVnicEnvOut [0x1080] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        vport_env, vport_env_mut: 0x80 => VnicDiagnosticStatistics;
    }

    /// Context of an InfiniBand vport.
    ///
    /// `mlx5_ifc_hca_vport_context_bits`.
    pub struct HcaVportContext [0x1000] {
        field_select, set_field_select: 0x0, 32;
        sm_virt_aware, set_sm_virt_aware: 0x100, 1;
        has_smi, set_has_smi: 0x101, 1;
        has_raw, set_has_raw: 0x102, 1;
        grh_required, set_grh_required: 0x103, 1;
        port_physical_state, set_port_physical_state: 0x110, 4;
        vport_state_policy, set_vport_state_policy: 0x114, 4;
        port_state, set_port_state: 0x118, 4;
        vport_state, set_vport_state: 0x11c, 4;
        system_image_guid, set_system_image_guid: 0x140, 64;
        port_guid, set_port_guid: 0x180, 64;
        node_guid, set_node_guid: 0x1c0, 64;
        cap_mask1, set_cap_mask1: 0x200, 32;
        cap_mask1_field_select, set_cap_mask1_field_select: 0x220, 32;
        cap_mask2, set_cap_mask2: 0x240, 32;
        cap_mask2_field_select, set_cap_mask2_field_select: 0x260, 32;
        lid, set_lid: 0x300, 16;
        init_type_reply, set_init_type_reply: 0x314, 4;
        lmc, set_lmc: 0x318, 3;
        subnet_timeout, set_subnet_timeout: 0x31b, 5;
        sm_lid, set_sm_lid: 0x320, 16;
        sm_sl, set_sm_sl: 0x330, 4;
        qkey_violation_counter, set_qkey_violation_counter: 0x340, 16;
        pkey_violation_counter, set_pkey_violation_counter: 0x350, 16;
    }

    /// Context of an Ethernet vport.
    ///
    /// `mlx5_ifc_nic_vport_context_bits`. Followed by the list of allowed addresses or VLANs, 64
    /// bits each.
    pub struct NicVportContext [0x800] {
        min_wqe_inline_mode, set_min_wqe_inline_mode: 0x5, 3;
        disable_mc_local_lb, set_disable_mc_local_lb: 0x1d, 1;
        disable_uc_local_lb, set_disable_uc_local_lb: 0x1e, 1;
        roce_en, set_roce_en: 0x1f, 1;
        arm_change_event, set_arm_change_event: 0x20, 1;
        event_on_mtu, set_event_on_mtu: 0x3b, 1;
        event_on_promisc_change, set_event_on_promisc_change: 0x3c, 1;
        event_on_vlan_change, set_event_on_vlan_change: 0x3d, 1;
        event_on_mc_address_change, set_event_on_mc_address_change: 0x3e, 1;
        event_on_uc_address_change, set_event_on_uc_address_change: 0x3f, 1;
        vhca_id_type, set_vhca_id_type: 0x40, 1;
        affiliation_criteria, set_affiliation_criteria: 0x4c, 4;
        affiliated_vhca_id, set_affiliated_vhca_id: 0x50, 16;
        mtu, set_mtu: 0x130, 16;
        system_image_guid, set_system_image_guid: 0x140, 64;
        port_guid, set_port_guid: 0x180, 64;
        node_guid, set_node_guid: 0x1c0, 64;
        qkey_violation_counter, set_qkey_violation_counter: 0x340, 16;
        promisc_uc, set_promisc_uc: 0x780, 1;
        promisc_mc, set_promisc_mc: 0x781, 1;
        promisc_all, set_promisc_all: 0x782, 1;
        /// An [`AllowedListType`].
        allowed_list_type, set_allowed_list_type: 0x785, 3;
        allowed_list_size, set_allowed_list_size: 0x794, 12;
        permanent_address, permanent_address_mut: 0x7a0 => MacAddress;
    }

    /// An entry of the RoCE address table.
    ///
    /// `mlx5_ifc_roce_addr_layout_bits`.
    pub struct RoceAddress [0x100] {
        source_l3_address, source_l3_address_mut: 0x0 => [u8; 16];
        vlan_valid, set_vlan_valid: 0x83, 1;
        vlan_id, set_vlan_id: 0x84, 12;
        source_mac_47_32, set_source_mac_47_32: 0x90, 16;
        source_mac_31_0, set_source_mac_31_0: 0xa0, 32;
        roce_l3_type, set_roce_l3_type: 0xd4, 4;
        roce_version, set_roce_version: 0xd8, 8;
    }

    /// Input of ATTACH_TO_MCG.
    ///
    /// `mlx5_ifc_attach_to_mcg_in_bits`.
    pub struct AttachToMcgIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        multicast_gid, multicast_gid_mut: 0x80 => [u8; 16];
    }

    /// Output of ATTACH_TO_MCG.
    ///
    /// `mlx5_ifc_attach_to_mcg_out_bits`.
    pub struct AttachToMcgOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of DETACH_FROM_MCG.
    ///
    /// `mlx5_ifc_detach_from_mcg_in_bits`.
    pub struct DetachFromMcgIn [0x100] {
        opcode, set_opcode: 0x0, 16;
        uid, set_uid: 0x10, 16;
        op_mod, set_op_mod: 0x30, 16;
        qpn, set_qpn: 0x48, 24;
        multicast_gid, multicast_gid_mut: 0x80 => [u8; 16];
    }

    /// Output of DETACH_FROM_MCG.
    ///
    /// `mlx5_ifc_detach_from_mcg_out_bits`.
    pub struct DetachFromMcgOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_VPORT_STATE.
    ///
    /// `mlx5_ifc_query_vport_state_in_bits`.
    pub struct QueryVportStateIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
    }

    /// Output of QUERY_VPORT_STATE.
    ///
    /// `mlx5_ifc_query_vport_state_out_bits`.
    pub struct QueryVportStateOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        admin_state, set_admin_state: 0x78, 4;
        state, set_state: 0x7c, 4;
    }

    /// Input of QUERY_HCA_VPORT_CONTEXT.
    ///
    /// `mlx5_ifc_query_hca_vport_context_in_bits`.
    pub struct QueryHcaVportContextIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        port_num, set_port_num: 0x4c, 4;
        vport_number, set_vport_number: 0x50, 16;
    }

    /// Output of QUERY_HCA_VPORT_CONTEXT.
    ///
    /// `mlx5_ifc_query_hca_vport_context_out_bits`.
    pub struct QueryHcaVportContextOut [0x1080] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        hca_vport_context, hca_vport_context_mut: 0x80 => HcaVportContext;
    }

    /// Input of QUERY_HCA_VPORT_GID.
    ///
    /// `mlx5_ifc_query_hca_vport_gid_in_bits`.
    pub struct QueryHcaVportGidIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        port_num, set_port_num: 0x4c, 4;
        vport_number, set_vport_number: 0x50, 16;
        gid_index, set_gid_index: 0x70, 16;
    }

    /// Output of QUERY_HCA_VPORT_GID.
    ///
    /// `mlx5_ifc_query_hca_vport_gid_out_bits`. Followed by the GIDs, 16 bytes each.
    pub struct QueryHcaVportGidOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        gids_num, set_gids_num: 0x60, 16;
    }

    /// Input of QUERY_HCA_VPORT_PKEY.
    ///
    /// `mlx5_ifc_query_hca_vport_pkey_in_bits`.
    pub struct QueryHcaVportPkeyIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        port_num, set_port_num: 0x4c, 4;
        vport_number, set_vport_number: 0x50, 16;
        pkey_index, set_pkey_index: 0x70, 16;
    }

    /// Output of QUERY_HCA_VPORT_PKEY.
    ///
    /// `mlx5_ifc_query_hca_vport_pkey_out_bits`. Followed by the P_Keys, 32 bits each: 16 zero
    /// bits, then the P_Key.
    pub struct QueryHcaVportPkeyOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of QUERY_NIC_VPORT_CONTEXT.
    ///
    /// `mlx5_ifc_query_nic_vport_context_in_bits`.
    pub struct QueryNicVportContextIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        other_vport, set_other_vport: 0x40, 1;
        vport_number, set_vport_number: 0x50, 16;
        /// An [`AllowedListType`].
        allowed_list_type, set_allowed_list_type: 0x65, 3;
    }

    /// Output of QUERY_NIC_VPORT_CONTEXT.
    ///
    /// `mlx5_ifc_query_nic_vport_context_out_bits`.
    pub struct QueryNicVportContextOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        nic_vport_context, nic_vport_context_mut: 0x80 => NicVportContext;
    }

    /// Input of QUERY_ROCE_ADDRESS.
    ///
    /// `mlx5_ifc_query_roce_address_in_bits`.
    pub struct QueryRoceAddressIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        roce_address_index, set_roce_address_index: 0x40, 16;
        vhca_port_num, set_vhca_port_num: 0x5c, 4;
    }

    /// Output of QUERY_ROCE_ADDRESS.
    ///
    /// `mlx5_ifc_query_roce_address_out_bits`.
    pub struct QueryRoceAddressOut [0x180] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        roce_address, roce_address_mut: 0x80 => RoceAddress;
    }

    /// Input of SET_ROCE_ADDRESS.
    ///
    /// `mlx5_ifc_set_roce_address_in_bits`.
    pub struct SetRoceAddressIn [0x180] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        roce_address_index, set_roce_address_index: 0x40, 16;
        vhca_port_num, set_vhca_port_num: 0x5c, 4;
        roce_address, roce_address_mut: 0x80 => RoceAddress;
    }

    /// Output of SET_ROCE_ADDRESS.
    ///
    /// `mlx5_ifc_set_roce_address_out_bits`.
    pub struct SetRoceAddressOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }

    /// Input of MAD_IFC.
    ///
    /// `mlx5_ifc_mad_ifc_in_bits`.
    pub struct MadIfcIn [0x880] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        remote_lid, set_remote_lid: 0x40, 16;
        port, set_port: 0x58, 8;
        mad, mad_mut: 0x80 => [u8; 256];
    }

    /// Output of MAD_IFC.
    ///
    /// `mlx5_ifc_mad_ifc_out_bits`.
    pub struct MadIfcOut [0x880] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
        response_mad_packet, response_mad_packet_mut: 0x80 => [u8; 256];
    }

    /// Input of ACCESS_REG.
    ///
    /// `mlx5_ifc_access_register_in_bits`. Followed by the register (`register_data`).
    pub struct AccessRegIn [0x80] {
        opcode, set_opcode: 0x0, 16;
        op_mod, set_op_mod: 0x30, 16;
        register_id, set_register_id: 0x50, 16;
        argument, set_argument: 0x60, 32;
    }

    /// Output of ACCESS_REG.
    ///
    /// `mlx5_ifc_access_register_out_bits`. Followed by the register (`register_data`).
    pub struct AccessRegOut [0x80] {
        status, set_status: 0x0, 8;
        syndrome, set_syndrome: 0x20, 32;
    }
}

commands! {
    ATTACH_TO_MCG: AttachToMcgIn => AttachToMcgOut;
    DETACH_FROM_MCG: DetachFromMcgIn => DetachFromMcgOut;
    QUERY_VPORT_STATE: QueryVportStateIn => QueryVportStateOut;
    QUERY_VPORT_COUNTER: QueryVportCounterIn => QueryVportCounterOut;
    QUERY_VNIC_ENV: QueryVnicEnvIn => QueryVnicEnvOut;
    QUERY_HCA_VPORT_CONTEXT: QueryHcaVportContextIn => QueryHcaVportContextOut;
    QUERY_HCA_VPORT_GID: QueryHcaVportGidIn => QueryHcaVportGidOut;
    QUERY_HCA_VPORT_PKEY: QueryHcaVportPkeyIn => QueryHcaVportPkeyOut;
    QUERY_NIC_VPORT_CONTEXT: QueryNicVportContextIn => QueryNicVportContextOut;
    QUERY_ROCE_ADDRESS: QueryRoceAddressIn => QueryRoceAddressOut;
    SET_ROCE_ADDRESS: SetRoceAddressIn => SetRoceAddressOut;
    MAD_IFC: MadIfcIn => MadIfcOut;
    ACCESS_REG: AccessRegIn => AccessRegOut;
}

codes! {
    /// `op_mod` of QUERY_VPORT_STATE. `MLX5_VPORT_STATE_OP_MOD_*`, `mlx5_ifc.h`.
    pub struct VportStateMode {
        VNIC_VPORT = 0;
        ESW_VPORT = 1;
        UPLINK = 2;
    }

    /// The type of the list after a `NicVportContext`. `MLX5_NVPRT_LIST_TYPE_*`, `device.h`.
    pub struct AllowedListType {
        UNICAST = 0;
        MULTICAST = 1;
        VLAN = 2;
    }

    /// `op_mod` of ACCESS_REG. `MLX5_ACCESS_REGISTER_IN_OP_MOD_*`, `mlx5_ifc.h`.
    pub struct AccessRegMode {
        WRITE = 0;
        READ = 1;
    }

    /// `RoceAddress::roce_version`. `MLX5_ROCE_VERSION_*`, `device.h`.
    pub struct RoceVersion {
        V1 = 0;
        V2 = 2;
    }

    /// `RoceAddress::roce_l3_type`. `MLX5_ROCE_L3_TYPE_*`, `device.h`.
    pub struct RoceL3Type {
        IPV4 = 0;
        IPV6 = 1;
    }

    /// A register that ACCESS_REG reads or writes. `MLX5_REG_*`, `driver.h`.
    pub struct RegisterId {
        PCAP = 0x5001;
        PMLP = 0x5002;
        PMTU = 0x5003;
        PTYS = 0x5004;
        PAOS = 0x5006;
        PFCC = 0x5007;
        PPCNT = 0x5008;
        PVLC = 0x500f;
        PCMR = 0x5041;
        PCAM = 0x507f;
        NODE_DESC = 0x6001;
        HOST_ENDIANNESS = 0x7004;
        MCIA = 0x9014;
        MFRL = 0x9028;
        MTUTC = 0x9055;
        MCAM = 0x907f;
        DTOR = 0xc00e;
    }
}
