//! Ports: the settings of a subnet manager or a network configuration, and multicast groups.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::port::{
    AttachToMcgIn, DetachFromMcgIn, QueryHcaVportContextIn, QueryHcaVportContextOut,
    QueryHcaVportGidIn, QueryHcaVportGidOut, QueryHcaVportPkeyIn, QueryRoceAddressIn,
    QueryRoceAddressOut, QueryVportStateIn, QueryVportStateOut, RoceL3Type, RoceVersion,
    SetRoceAddressIn,
};

use crate::config::LinkLayer;
use crate::engine::{Device, Error, GidEntry, GidType, Port, Transport};
use crate::firmware::{Answer, Failure, syndrome};

/// An index that asks for a whole table.
const WHOLE_TABLE: u32 = 0xffff;
/// Bytes of a P_Key in an answer: the key stands in the lower half of a dword.
const PKEY_BYTES: usize = 4;
/// The numbers of logical port states, `enum ib_port_state`.
const PORT_DOWN: u32 = 1;
const PORT_ACTIVE: u32 = 4;
/// The numbers of physical port states.
const PHYSICAL_DISABLED: u32 = 3;
const PHYSICAL_LINK_UP: u32 = 5;
/// `CapabilityMask` of a port: a subnet manager is there, automatic migration and notices are not.
const PORT_CAPABILITIES: u32 = 0x2001_8848;
/// `subnet_timeout` of a port.
const SUBNET_TIMEOUT: u32 = 18;

/// Port 0 of a command stands for port 1.
fn number(asked: u32) -> u8 {
    (asked as u8).max(1)
}

fn port(device: &Device, asked: u32) -> Result<&Port, Failure> {
    device.port(number(asked)).ok_or(Failure::param(syndrome::PORT_NUMBER))
}

fn infiniband(device: &Device, asked: u32) -> Result<&Port, Failure> {
    let port = port(device, asked)?;
    if port.link_layer != LinkLayer::InfiniBand {
        return Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::PORT_NUMBER));
    }
    Ok(port)
}

pub(super) fn attach(device: &mut Device, input: &AttachToMcgIn) -> Answer {
    let qp = device.qp(input.qpn()).ok_or(Error::NotFound)?;
    if qp.transport != Transport::Ud {
        return Err(Failure::param(syndrome::NOT_A_DATAGRAM_QP));
    }
    Ok(device.attach_multicast(input.qpn(), *input.multicast_gid())?)
}

pub(super) fn detach(device: &mut Device, input: &DetachFromMcgIn) -> Answer {
    Ok(device.detach_multicast(input.qpn(), input.multicast_gid())?)
}

pub(super) fn vport_state(
    device: &mut Device,
    input: &QueryVportStateIn,
    out: &mut QueryVportStateOut,
) -> Answer {
    if input.other_vport() {
        return Err(Failure::param(syndrome::PORT_NUMBER));
    }
    out.set_admin_state(1).set_state(port(device, 1)?.active.into());
    Ok(())
}

pub(super) fn hca_vport_context(
    device: &mut Device,
    input: &QueryHcaVportContextIn,
    out: &mut QueryHcaVportContextOut,
) -> Answer {
    let guid = device.system_guid();
    let port = infiniband(device, input.port_num())?;
    let (state, physical) = match port.active {
        true => (PORT_ACTIVE, PHYSICAL_LINK_UP),
        false => (PORT_DOWN, PHYSICAL_DISABLED),
    };
    out.hca_vport_context_mut()
        .set_port_state(state)
        .set_vport_state(state)
        .set_port_physical_state(physical)
        .set_system_image_guid(guid)
        .set_node_guid(guid)
        .set_port_guid(port.guid)
        .set_cap_mask1(PORT_CAPABILITIES)
        .set_lid(port.lid.into())
        .set_lmc(port.lmc.into())
        .set_sm_lid(port.sm_lid.into())
        .set_subnet_timeout(SUBNET_TIMEOUT);
    Ok(())
}

pub(super) fn hca_vport_gid(
    device: &mut Device,
    input: &QueryHcaVportGidIn,
    out: &mut QueryHcaVportGidOut,
    tail: &mut [u8],
) -> Answer {
    let port = infiniband(device, input.port_num())?;
    let asked = input.gid_index();
    let entries = match asked {
        WHOLE_TABLE => &port.gids[..],
        _ => port.gids.get(asked as usize..=asked as usize).ok_or(Error::Invalid("GID index"))?,
    };
    let mut count = 0;
    for (slot, entry) in tail.chunks_exact_mut(size_of_val(&[0u8; 16])).zip(entries) {
        slot.copy_from_slice(&entry.map_or([0; 16], |entry| entry.gid));
        count += 1;
    }
    out.set_gids_num(count);
    Ok(())
}

pub(super) fn hca_vport_pkey(
    device: &mut Device,
    input: &QueryHcaVportPkeyIn,
    tail: &mut [u8],
) -> Answer {
    let port = port(device, input.port_num())?;
    let asked = input.pkey_index();
    let keys = match asked {
        WHOLE_TABLE => &port.pkeys[..],
        _ => port
            .pkeys
            .get(asked as usize..=asked as usize)
            .ok_or(Failure::param(syndrome::PKEY_INDEX))?,
    };
    for (slot, key) in tail.chunks_exact_mut(PKEY_BYTES).zip(keys) {
        slot[2..].copy_from_slice(&key.to_be_bytes());
    }
    Ok(())
}

pub(super) fn query_roce_address(
    device: &mut Device,
    input: &QueryRoceAddressIn,
    out: &mut QueryRoceAddressOut,
) -> Answer {
    let port = port(device, input.vhca_port_num())?;
    let index = input.roce_address_index() as usize;
    let entry = port.gids.get(index).ok_or(Failure::param(syndrome::GID_INDEX))?;
    let Some(entry) = entry else { return Ok(()) };
    let (version, l3) = match entry.kind {
        GidType::RoceV2 if entry.is_ipv4() => (RoceVersion::V2, RoceL3Type::IPV4),
        GidType::RoceV2 => (RoceVersion::V2, RoceL3Type::IPV6),
        GidType::RoceV1 | GidType::Ib => (RoceVersion::V1, RoceL3Type::IPV6),
    };
    let [a, b, low @ ..] = entry.mac;
    let address = out.roce_address_mut();
    *address.source_l3_address_mut() = entry.gid;
    address
        .set_vlan_valid(entry.vlan.is_some())
        .set_vlan_id(entry.vlan.unwrap_or(0).into())
        .set_source_mac_47_32(u16::from_be_bytes([a, b]).into())
        .set_source_mac_31_0(u32::from_be_bytes(low))
        .set_roce_l3_type(l3.0)
        .set_roce_version(version.0);
    Ok(())
}

pub(super) fn set_roce_address(device: &mut Device, input: &SetRoceAddressIn) -> Answer {
    let address = input.roce_address();
    let index = input.roce_address_index() as usize;
    let kind = match RoceVersion(address.roce_version()) {
        RoceVersion::V1 => GidType::RoceV1,
        RoceVersion::V2 => GidType::RoceV2,
        _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
    };
    let mut mac = [0; 6];
    mac[..2].copy_from_slice(&(address.source_mac_47_32() as u16).to_be_bytes());
    mac[2..].copy_from_slice(&address.source_mac_31_0().to_be_bytes());
    let gid = *address.source_l3_address();
    let entry =
        GidEntry { gid, kind, mac, vlan: address.vlan_valid().then(|| address.vlan_id() as u16) };
    let port = device
        .port_mut(number(input.vhca_port_num()))
        .ok_or(Failure::param(syndrome::PORT_NUMBER))?;
    if port.link_layer != LinkLayer::Ethernet {
        return Err(Failure::param(syndrome::PORT_NUMBER));
    }
    let slot = port.gids.get_mut(index).ok_or(Failure::param(syndrome::GID_INDEX))?;
    // A GID of zeros clears the entry.
    *slot = (gid != [0; 16]).then_some(entry);
    Ok(())
}
