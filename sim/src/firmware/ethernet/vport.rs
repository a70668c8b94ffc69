//! The function's context: the settings that its driver passes to the switch of frames.
//!
//! A driver writes down the addresses and VLANs that it listens to, and whether it listens to all
//! (MODIFY_NIC_VPORT_CONTEXT). The manager of the embedded switch reads this, and fills the tables
//! of the switch (Linux: `esw_update_vport_addr_list`, `eswitch.c`). This function manages none, as
//! a host's function on a BlueField: `eswitch_manager` is 0, and mlx5e then sends no
//! SET_L2_TABLE_ENTRY either (`mlx5_mpfs_init`, `lib/mpfs.c`), by which physical functions share a
//! port. No other function is on this port. So a frame from the wire goes to the root of the
//! function's flow tables, whatever the lists have: mlx5e writes the same addresses into these
//! tables (`mlx5e_execute_l2_action`, `en_fs.c`). The list of unicast addresses decides which of
//! the function's own frames come back to it ([`Vport`](crate::engine::Vport)).
//!
//! With [`SimConfig::vport_filter`](crate::SimConfig::vport_filter) the function is a virtual one,
//! which the manager of a switch in legacy mode trusts. Then lists and flags decide which frames
//! reach the flow tables (`esw_apply_vport_rx_mode`, `__esw_fdb_set_vport_rule`). The broadcast
//! address is a group like others: mlx5e lists it (`mlx5e_fill_addr_array`). `promisc_uc`, which
//! mlx5e never sets and Linux's switch ignores, does what its name says. The list of VLANs has no
//! effect: no switch of Linux reads it.
//!
//! The lists are kept and returned as they were written. Firmware does not check the addresses:
//! Linux reads lists back and skips those of the wrong kind itself.

use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;
use mlx5_prm::cmd::port::{
    AllowedListType, MacAddress, NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut,
    VlanEntry,
};

use crate::engine::{Device, ETHERNET_MTU, FRAME, Mac, Promiscuous};
use crate::firmware::{Answer, Failure, Firmware, syndrome};
use crate::frame::headers::is_multicast;

/// Base-two logarithm of the longest list of unicast addresses.
pub(in crate::firmware) const LOG_UNICAST: u32 = 7;
/// The same of multicast addresses. The length of a list has twelve bits, so that a list of the
/// largest size can be described.
pub(in crate::firmware) const LOG_MULTICAST: u32 = 11;
/// The same of VLANs. Of the 4096 one is reserved, so that the length fits.
pub(in crate::firmware) const LOG_VLANS: u32 = 12;

/// Bytes of an entry of a list, of either kind.
const ENTRY: usize = MacAddress::BYTES;

/// The context as the driver has set it.
#[derive(Debug)]
pub(super) struct Context {
    fields: NicVportContext,
    /// The driver's choice of RoCE, once it has made one.
    roce: Option<bool>,
    vlans: Vec<u16>,
}

impl Default for Context {
    fn default() -> Self {
        let mut fields = NicVportContext::default();
        fields.set_mtu(ETHERNET_MTU + FRAME);
        Self { fields, roce: None, vlans: Vec::new() }
    }
}

/// A list that a driver has written.
enum List {
    Unicast(Vec<Mac>),
    Multicast(Vec<Mac>),
    Vlans(Vec<u16>),
}

impl List {
    fn read(context: &NicVportContext, tail: &[u8]) -> Result<Self, Failure> {
        let kind = AllowedListType(context.allowed_list_type());
        let log_most = match kind {
            AllowedListType::UNICAST => LOG_UNICAST,
            AllowedListType::MULTICAST => LOG_MULTICAST,
            AllowedListType::VLAN => LOG_VLANS,
            _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
        };
        let count = context.allowed_list_size() as usize;
        // No public source shows how firmware refuses this; Linux never sends longer lists.
        if count > 1 << log_most {
            return Err(Failure::param(syndrome::LIST_TOO_LONG));
        }
        let entries = tail.as_chunks::<ENTRY>().0.get(..count);
        let short = Failure::new(CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT);
        let entries = entries.ok_or(short)?.iter();
        let macs = entries.clone().map(|[_, _, mac @ ..]| *mac).collect();
        Ok(match kind {
            AllowedListType::UNICAST => Self::Unicast(macs),
            AllowedListType::MULTICAST => Self::Multicast(macs),
            _ => Self::Vlans(entries.map(vlan).collect()),
        })
    }
}

fn vlan(entry: &[u8; ENTRY]) -> u16 {
    VlanEntry::from_bytes(entry).map_or(0, VlanEntry::vlan) as u16
}

/// The manager of a switch uses the same two commands for other functions.
fn own(other_vport: bool, op_mod: u32) -> Answer {
    if op_mod != 0 {
        return Err(Failure::new(CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_MODIFIER));
    }
    if other_vport {
        return Err(Failure::param(syndrome::NO_SWITCH));
    }
    Ok(())
}

/// The fields of its context that a function may change. GUIDs, the inline mode and events are the
/// switch manager's.
fn changeable() -> u32 {
    let mut all = ModifyNicVportContextIn::default();
    all.set_select_disable_uc_local_lb(true)
        .set_select_disable_mc_local_lb(true)
        .set_select_mtu(true)
        .set_select_promisc(true)
        .set_select_permanent_address(true)
        .set_select_addresses_list(true)
        .set_select_roce_en(true);
    all.field_select()
}

/// An address that one station can have.
fn station(address: &MacAddress) -> Result<Mac, Failure> {
    let [_, _, mac @ ..] = *address.as_bytes();
    if is_multicast(&mac) || mac == [0; 6] {
        return Err(Failure::param(syndrome::INVALID_VALUE));
    }
    Ok(mac)
}

fn address(mac: Mac) -> MacAddress {
    let [a, b, low @ ..] = mac;
    let mut address = MacAddress::default();
    address
        .set_mac_addr_47_32(u16::from_be_bytes([a, b]).into())
        .set_mac_addr_31_0(u32::from_be_bytes(low));
    address
}

/// Writes a list after an answer, up to the room for it. Returns the length of the whole list.
fn write<T>(list: &[T], entry: impl Fn(&T) -> [u8; ENTRY], tail: &mut [u8]) -> u32 {
    for (slot, listed) in tail.chunks_exact_mut(ENTRY).zip(list) {
        slot.copy_from_slice(&entry(listed));
    }
    list.len() as u32
}

fn mac_entry(mac: &Mac) -> [u8; ENTRY] {
    *address(*mac).as_bytes()
}

fn vlan_entry(vlan: &u16) -> [u8; ENTRY] {
    *VlanEntry::default().set_vlan((*vlan).into()).as_bytes()
}

impl Firmware {
    pub(in crate::firmware) fn nic_vport_context(
        &mut self,
        device: &Device,
        input: &QueryNicVportContextIn,
        out: &mut QueryNicVportContextOut,
        tail: &mut [u8],
    ) -> Answer {
        own(input.other_vport(), input.op_mod())?;
        let port = device.port(1).ok_or(Failure::param(syndrome::PORT_NUMBER))?;
        let own = &self.ethernet.vport;
        let kind = AllowedListType(input.allowed_list_type());
        let length = match kind {
            AllowedListType::UNICAST => write(&device.vport().addresses, mac_entry, tail),
            AllowedListType::MULTICAST => write(&device.vport().groups, mac_entry, tail),
            AllowedListType::VLAN => write(&own.vlans, vlan_entry, tail),
            _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
        };
        let context = out.nic_vport_context_mut();
        *context = own.fields;
        let Promiscuous { unicast, multicast, all } = device.vport().promiscuous;
        context
            .set_promisc_uc(unicast)
            .set_promisc_mc(multicast)
            .set_promisc_all(all)
            .set_system_image_guid(device.system_guid())
            .set_node_guid(device.system_guid())
            .set_port_guid(port.guid)
            .set_min_wqe_inline_mode(device.config().inline_mode as u32)
            // A port with addresses from the start has RoCE enabled.
            .set_roce_en(own.roce.unwrap_or(device.config().addresses))
            .set_allowed_list_type(kind.0)
            .set_allowed_list_size(length);
        *context.permanent_address_mut() = address(port.mac);
        Ok(())
    }

    pub(in crate::firmware) fn modify_nic_vport_context(
        &mut self,
        device: &mut Device,
        input: &ModifyNicVportContextIn,
        tail: &[u8],
    ) -> Answer {
        own(input.other_vport(), input.op_mod())?;
        if input.field_select() & !changeable() != 0 {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let wanted = input.nic_vport_context();
        // Check the list first: a refused command changes nothing.
        let list = input.select_addresses_list().then(|| List::read(wanted, tail)).transpose()?;
        if input.select_permanent_address() {
            let mac = station(wanted.permanent_address())?;
            device.port_mut(1).ok_or(Failure::param(syndrome::PORT_NUMBER))?.mac = mac;
        }
        let Context { fields, roce, vlans } = &mut self.ethernet.vport;
        match list {
            Some(List::Unicast(macs)) => device.vport_mut().addresses = macs,
            Some(List::Multicast(macs)) => device.vport_mut().groups = macs,
            Some(List::Vlans(listed)) => *vlans = listed,
            None => {}
        }
        if input.select_roce_en() {
            *roce = Some(wanted.roce_en());
        }
        if input.select_mtu() {
            fields.set_mtu(wanted.mtu());
        }
        if input.select_promisc() {
            device.vport_mut().promiscuous = Promiscuous {
                unicast: wanted.promisc_uc(),
                multicast: wanted.promisc_mc(),
                all: wanted.promisc_all(),
            };
        }
        if input.select_disable_uc_local_lb() {
            fields.set_disable_uc_local_lb(wanted.disable_uc_local_lb());
            device.vport_mut().no_unicast_loopback = wanted.disable_uc_local_lb();
        }
        if input.select_disable_mc_local_lb() {
            fields.set_disable_mc_local_lb(wanted.disable_mc_local_lb());
            device.vport_mut().no_multicast_loopback = wanted.disable_mc_local_lb();
        }
        Ok(())
    }
}
