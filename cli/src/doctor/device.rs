//! Checks of a device, its port and the network.

use super::machine::Machine;
use super::{Finding, Report};
use crate::device::{Opened, Port, PortArgs};
use crate::failure::Failure;
use crate::info::gid_type;
use crate::link::{EndArgs, Session, Shape, Transport};
use crate::pingpong::bounce;
use mlx5::{Context, GidEntry, GidType, LinkLayer, PortAttr, mtu_bytes};
use std::io::{self, Write};

/// Messages that are bounced, and their bytes.
const MESSAGES: u64 = 100;
const BYTES: usize = 4096;
const DEPTH: u32 = 16;
/// Seconds to wait for one.
const PATIENCE: u64 = 5;

/// Checks a device and one of its ports.
pub(super) fn check<W: Write>(
    report: &mut Report<'_, W>,
    machine: Option<&Machine>,
    opened: &Opened,
    chosen: &PortArgs,
    peer: Option<&str>,
) -> io::Result<()> {
    let (context, port) = (&opened.context, chosen.port);
    report.add(identity(opened))?;
    report.add(placement(machine, opened))?;
    let attributes = match context.query_port(port) {
        Ok(attributes) => attributes,
        Err(error) => {
            let remedy = format!("--port takes 1 to {}", context.num_ports());
            let finding = Finding::failed(&format!("port {port}"), &error.into(), &remedy);
            return report.add([finding]);
        }
    };
    report.add([state(port, &attributes)])?;
    if !attributes.is_active() {
        return Ok(());
    }
    if attributes.link_layer == LinkLayer::Ethernet {
        report.add(addresses(machine, context, port))?;
    }
    report.add([mtu(machine, context, port, &attributes)])?;
    report.add([messages(opened, chosen, None)])?;
    if let Some(peer) = peer {
        let finding = match opened.simulator {
            None => messages(opened, chosen, Some(peer)),
            Some(_) => Finding::failure(
                format!("{peer} cannot be reached from a device that is simulated in this process"),
                "omit --sim, on a machine with a device",
            ),
        };
        report.add([finding])?;
    }
    Ok(())
}

fn identity(opened: &Opened) -> [Finding; 2] {
    let firmware = Finding::fine(format!("firmware {}", opened.context.query_device().fw_ver));
    let devx = match opened.context.has_devx() {
        true => Finding::fine("DEVX: posted requests can be cancelled"),
        false => Finding::warning(
            "no DEVX: posted requests cannot be cancelled",
            "DEVX depends on the firmware: update it",
        ),
    };
    [firmware, devx]
}

fn placement(machine: Option<&Machine>, opened: &Opened) -> Option<Finding> {
    let node = opened.device.numa_node()?;
    let (list, meets) = machine?.processors(node)?;
    Some(match meets {
        true => Finding::fine(format!("NUMA node {node}, processors {list}")),
        false => Finding::warning(
            format!("NUMA node {node}, whose processors ({list}) this process may not run on"),
            format!("each access to the device crosses nodes: `numactl --cpunodebind={node}`"),
        ),
    })
}

fn state(port: u8, attributes: &PortAttr) -> Finding {
    let state = crate::device::state(attributes);
    let layer = crate::device::link_name(attributes.link_layer);
    let text = format!("port {port} is {state}, {layer}");
    match (attributes.is_active(), attributes.link_layer) {
        (true, _) => Finding::fine(match attributes.mbps() {
            Some(mbps) => format!("{text}, {} Gb/s", f64::from(mbps) / 1000.0),
            None => text,
        }),
        (false, LinkLayer::Ethernet) => Finding::failure(
            text,
            "bring its network interface up (`ip link set DEV up`), and look at the cable",
        ),
        (false, _) => {
            Finding::failure(text, "is the cable plugged in, and does a subnet manager run?")
        }
    }
}

/// RoCE sends from an address of a network interface.
fn addresses(machine: Option<&Machine>, context: &Context, port: u8) -> Vec<Finding> {
    const ADDRESS: &str =
        "give the port's network interface an IP address: `ip addr add … dev DEV`";
    let table = match context.gid_table() {
        Ok(table) => table,
        Err(error) => return vec![Finding::failed("the GID table", &error.into(), ADDRESS)],
    };
    let of_port: Vec<&GidEntry> =
        table.iter().filter(|gid| gid.port_num == u32::from(port)).collect();
    if of_port.is_empty() {
        return vec![Finding::failure(format!("port {port} has no GID"), ADDRESS)];
    }
    let is_link_local = |gid: &GidEntry| gid.gid.to_bytes()[..2] == [0xfe, 0x80];
    let routed: Vec<&&GidEntry> = of_port
        .iter()
        .filter(|gid| gid.gid_type == GidType::RoceV2 && !is_link_local(gid))
        .collect();
    if routed.is_empty() {
        let text =
            format!("port {port} has {} GIDs, none of RoCE v2 with an address", of_port.len());
        return vec![Finding::warning(text, ADDRESS)];
    }
    let reported = |gid: &&&GidEntry| {
        let interface = context.net_interface(gid).ok().flatten();
        let place = interface.map_or_else(String::new, |name| {
            match machine.and_then(|machine| machine.vlan(&name)) {
                Some(vlan) => format!(", {name}, VLAN {vlan}"),
                None => format!(", {name}"),
            }
        });
        let kind = gid_type(gid.gid_type);
        Finding::fine(format!("GID {}: {}, {kind}{place}", gid.gid_index, gid.gid.ip()))
    };
    routed.iter().map(reported).collect()
}

fn mtu(machine: Option<&Machine>, context: &Context, port: u8, attributes: &PortAttr) -> Finding {
    let (Some(active), Some(most)) = (attributes.active_mtu, attributes.max_mtu) else {
        return Finding::fine("the port does not tell its path MTU");
    };
    let (active, most) = (mtu_bytes(active), mtu_bytes(most));
    let text = format!("path MTU {active}");
    if active >= most {
        return Finding::fine(text);
    }
    let text = format!("{text} of {most}");
    if attributes.link_layer != LinkLayer::Ethernet {
        return Finding::warning(text, "the subnet manager sets it");
    }
    if machine.is_none() {
        return Finding::warning(
            text,
            "a program that simulates it sets `PortConfig::mtu` to 4096",
        );
    }
    let interface = context.net_interfaces(port).ok().and_then(|names| names.into_iter().next());
    let interface = interface.as_deref().unwrap_or("DEV");
    let has = machine
        .and_then(|machine| machine.mtu(interface))
        .map_or_else(String::new, |mtu| format!(", which has {mtu}"));
    Finding::warning(
        text,
        format!(
            "larger frames give more bandwidth: `ip link set {interface} mtu {}`{has}, at both ends \
             and in the switch",
            // Headers of RoCE and VLAN.
            most + 104
        ),
    )
}

/// Sends messages to this device itself, or to a peer.
fn messages(opened: &Opened, chosen: &PortArgs, peer: Option<&str>) -> Finding {
    let whom = peer.unwrap_or("itself");
    match exchanged(opened, chosen, peer) {
        Ok(microseconds) => Finding::fine(format!(
            "{MESSAGES} messages of {BYTES} bytes to {whom} and back, every byte verified; median \
             {microseconds} µs"
        )),
        Err(failure) => {
            let what = format!("messages to {whom}");
            // Hints of the exchange with a peer name options of other commands.
            match peer {
                Some(_) => Finding::failure(
                    format!("{what}: {}", failure.cause()),
                    "does `mlx5 pingpong --listen` run there, and does `ping` reach it?",
                ),
                None => Finding::failed(&what, &failure, "`dmesg | grep mlx5` may say why"),
            }
        }
    }
}

fn exchanged(opened: &Opened, chosen: &PortArgs, peer: Option<&str>) -> Result<String, Failure> {
    let context = opened.context.clone();
    let local = chosen.local_port(&context)?;
    let port = Port {
        opened: Opened {
            context,
            device: opened.device.clone(),
            simulator: opened.simulator.clone(),
        },
        local,
    };
    let ends = EndArgs::of(peer, PATIENCE);
    let shape = Shape {
        transport: Transport::Rc,
        queues: 1,
        message: BYTES,
        depth: DEPTH,
        receives: DEPTH,
        inline: 0,
    };
    let Session::Initiators(mut ends) = ends.open(&port, shape, 1, false)? else {
        return Err(Failure::new("nobody to send to"));
    };
    let initiator = &mut ends[0];
    let times = bounce(initiator, BYTES, MESSAGES)?;
    initiator.peer.part()?;
    Ok(crate::numbers::microseconds(times.quantile(0.5) as f64))
}
