//! A kernel's network interface on an Ethernet port, as far as the function sees it.

use std::sync::Arc;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;
use mlx5_prm::cmd::port::AllowedListType;
use mlx5_uapi::Errno;

use crate::engine::DeviceId;
use crate::fabric::Fabric;
use crate::kernel::bar::Bar;
use crate::kernel::hca::Hca;

/// An entry of the list: two bytes of zero, and the broadcast address.
const BROADCAST: u64 = 0xffff_ffff_ffff;

/// Starts the driver of a device, and its network interface.
pub(crate) fn start(fabric: &Fabric, id: DeviceId, bar: &Bar) -> Result<Arc<Hca>, Errno> {
    let hca = Hca::start(fabric, id, bar)?;
    up(&hca)?;
    Ok(hca)
}

/// Lists the addresses of an interface that is up: its own, and the broadcast address
/// (`mlx5e_fill_addr_array`).
fn up(hca: &Hca) -> Result<(), Errno> {
    let caps = &hca.caps;
    let own = hca.fabric.lock().device(hca.id).port(1).map_or([0; 6], |port| port.mac);
    let [a, b, c, d, e, f] = own;
    let own = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    for (most, kind, address) in [
        (caps.log_max_current_uc_list(), AllowedListType::UNICAST, own),
        (caps.log_max_current_mc_list(), AllowedListType::MULTICAST, BROADCAST),
    ] {
        if most == 0 {
            continue;
        }
        let mut input = ModifyNicVportContextIn::request();
        input.set_select_addresses_list(true);
        input.nic_vport_context_mut().set_allowed_list_type(kind.0).set_allowed_list_size(1);
        hca.command_with(&input, &[address])?;
    }
    Ok(())
}
