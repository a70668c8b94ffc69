//! `mlx5 info`.

use crate::device::{self, DeviceArgs, Found, announce, describe, link_name};
use crate::failure::Failure;
use crate::info::sheet::{Json, Sheet, Table, Text};
use crate::json::{self, JsonArgs};
use mlx5::{
    AtomicCap, Context, Device, DeviceAttr, DeviceCapFlags, GidEntry, GidType, LinkLayer, Mtu,
    NodeType, PortAttr, mtu_bytes,
};
use serde_json::{Value, json};
use std::io::{self, Write};

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Shows a device and its ports. With -v: the limits of every kind of object, the
capabilities of queues and completions, and the GIDs and P_Keys of its ports.

Without --device it shows every device.

With --json: an array of devices, each with simulated: true or false, and strings, numbers
and booleans under the names of the text. What a device does not have is null, or its name
is missing.
Rates are in Gb/s, clocks in kHz, registers of BlueFlame and MTUs in bytes. The ports of a
device are an array, and gids and pkeys are arrays of each port.";

mod sheet;

/// Options of `mlx5 info`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show limits, capabilities, GIDs and P_Keys, too
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Found { devices, simulator } = args.device.select()?;
    let mut documents = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        announce(&describe(device, simulator.is_some()));
        let context = device.open()?;
        if args.json.json {
            let mut document = Json::default();
            describe_device(&mut document, device, &context, args.verbose)?;
            documents.push(json::of_device(document.into_value(), simulator.is_some()));
            continue;
        }
        if index > 0 {
            writeln!(out)?;
        }
        describe_device(&mut Text(out), device, &context, args.verbose)?;
    }
    if args.json.json {
        json::write(out, &documents.into())?;
    }
    Ok(())
}

fn describe_device(
    out: &mut impl Sheet,
    device: &Device,
    context: &Context,
    verbose: bool,
) -> Result<(), Failure> {
    identity(out, device, context)?;
    if verbose {
        limits(out, context)?;
        capabilities(out, context)?;
    }
    let gids = context.gid_table()?;
    for number in 1..=context.num_ports() as u8 {
        let attributes = context.query_port(number)?;
        port(out, number, &attributes, verbose)?;
        if verbose {
            let of_port = gids.iter().filter(|gid| gid.port_num == u32::from(number));
            addresses(out, context, of_port)?;
            partitions(out, context, number, attributes.pkey_tbl_len)?;
        }
    }
    Ok(())
}

/// The device's identity.
fn identity(out: &mut impl Sheet, device: &Device, context: &Context) -> io::Result<()> {
    let attributes = context.query_device();
    out.field(0, "hca_id", device.name())?;
    let text = match device.node_type() {
        NodeType::ChannelAdapter => "InfiniBand (0)".to_owned(),
        NodeType::Switch => "InfiniBand, a switch".to_owned(),
        NodeType::Router => "InfiniBand, a router".to_owned(),
        NodeType::Rnic => "iWARP (1)".to_owned(),
        NodeType::Usnic => "usNIC (3)".to_owned(),
        NodeType::UsnicUdp => "usNIC over UDP (4)".to_owned(),
        other => format!("unknown ({})", other.raw()),
    };
    let word = text.split(" (").next().unwrap_or_default();
    out.reported(4, "transport", word.into(), &text)?;
    if let Some(part) = device.part() {
        out.field(4, "part", part)?;
    }
    out.field(4, "fw_ver", attributes.fw_ver.as_str())?;
    out.field(4, "node_guid", attributes.node_guid.to_string())?;
    out.field(4, "sys_image_guid", attributes.sys_image_guid.to_string())?;
    out.bits(4, "vendor_id", attributes.vendor_id.into(), 4)?;
    let part = attributes.vendor_part_id;
    out.reported(4, "vendor_part_id", part.into(), format_args!("{part} ({part:#06x})"))?;
    out.bits(4, "hw_ver", attributes.hw_ver.into(), 0)?;
    if !device.board_id().is_empty() {
        out.field(4, "board_id", device.board_id())?;
    }
    if let Some(pci) = device.pci().filter(|pci| !pci.address.is_empty()) {
        out.field(4, "pci", pci.address.as_str())?;
    }
    if let Some(node) = device.numa_node() {
        out.field(4, "numa_node", node)?;
    }
    out.field(4, "uverbs", format!("/dev/infiniband/{}", device.uverbs()))?;
    out.field(4, "phys_port_cnt", attributes.phys_port_cnt)
}

/// Writes fields of a structure under their own names.
macro_rules! fields {
    ($out:ident, $of:expr, $($name:ident),+ $(,)?) => {
        $($out.field(4, stringify!($name), $of.$name)?;)+
    };
}

/// The device's limits.
fn limits(out: &mut impl Sheet, context: &Context) -> io::Result<()> {
    let device = context.query_device();
    out.bits(4, "max_mr_size", device.max_mr_size, 0)?;
    out.bits(4, "page_size_cap", device.page_size_cap, 0)?;
    fields!(
        out,
        device,
        max_qp,
        max_qp_wr,
        max_sge,
        max_sge_rd,
        max_cq,
        max_cqe,
        max_mr,
        max_pd,
        max_mw,
        max_ah,
        max_srq,
        max_srq_wr,
        max_srq_sge,
        max_qp_rd_atom,
        max_qp_init_rd_atom,
        max_res_rd_atom,
        max_mcast_grp,
        max_mcast_qp_attach,
        max_total_mcast_qp_attach,
        max_pkeys,
        local_ca_ack_delay,
        max_dm_size,
    );
    out.field(4, "num_comp_vectors", context.num_comp_vectors())?;
    fields!(
        out,
        device.queues,
        max_send_wqebb,
        max_sq_desc_sz,
        max_recv_wr,
        max_srq_recv_wr,
        max_rq_desc_sz,
        num_dyn_bfregs,
    );
    Ok(())
}

/// The device's capabilities.
fn capabilities(out: &mut impl Sheet, context: &Context) -> io::Result<()> {
    let device = context.query_device();
    let (word, atomics) = match device.atomic_cap {
        AtomicCap::None => ("none", "none (0)"),
        AtomicCap::Hca => ("device", "among the queue pairs of the device (1)"),
        AtomicCap::Global => ("machine", "to the whole machine (2)"),
    };
    out.reported(4, "atomic_cap", word.into(), atomics)?;
    out.reported(4, "blueflame", device.queues.bf_reg_size.into(), blueflame(&device))?;
    out.flag(4, "devx", context.has_devx())?;
    let clock = device.hca_core_clock;
    out.reported(4, "hca_core_clock", clock.into(), format_args!("{clock} kHz"))?;
    out.bits(4, "timestamp_mask", device.timestamp_mask, 0)?;
    let completions = &device.completions;
    out.field(4, "cqe_version", completions.cqe_version)?;
    match completions.max_compressed {
        0 => out.reported(4, "cqe_compression", Value::Null, "no")?,
        most => {
            let formats = completions.compression_formats;
            let formats: Vec<String> =
                formats.iter_names().map(|(name, _)| name.to_lowercase()).collect();
            let text = format!("up to {most} in a run, {}", formats.join(", "));
            let value = json!({ "max": most, "formats": formats });
            out.reported(4, "cqe_compression", value, text)?;
        }
    }
    match (completions.max_moderation_count, completions.max_moderation_period) {
        (0, _) => out.reported(4, "cq_moderation", Value::Null, "no")?,
        (count, period) => {
            let text = format!("up to {count} completions, {period} µs");
            let value = json!({ "completions": count, "microseconds": period });
            out.reported(4, "cq_moderation", value, text)?;
        }
    }
    let (rc, uc, ud) = (device.odp.rc, device.odp.uc, device.odp.ud);
    let (value, text) = match (device.odp.supported, device.odp.implicit) {
        (false, _) => (Value::Null, "no".to_owned()),
        (true, implicit) => (
            json!({ "rc": rc, "uc": uc, "ud": ud, "implicit": implicit }),
            format!(
                "rc {rc:#x}, uc {uc:#x}, ud {ud:#x}{}",
                if implicit { ", implicit" } else { "" }
            ),
        ),
    };
    out.reported(4, "on_demand_paging", value, text)?;
    let flags = device.device_cap_flags;
    out.bits(4, "device_cap_flags", flags.bits(), 0)?;
    for (name, _) in flags.iter_names() {
        out.item(name)?;
    }
    let unnamed = flags.difference(DeviceCapFlags::all());
    if !unnamed.is_empty() {
        out.item(&format!("others: {:#x}", unnamed.bits()))?;
    }
    Ok(())
}

fn blueflame(device: &DeviceAttr) -> String {
    match device.queues.bf_reg_size {
        0 => "no".to_owned(),
        size => format!("registers of {size} bytes"),
    }
}

fn port(out: &mut impl Sheet, number: u8, port: &PortAttr, verbose: bool) -> io::Result<()> {
    let mtu = |mtu: Option<Mtu>| match mtu {
        Some(mtu) => format!("{} ({})", mtu_bytes(mtu), mtu.raw()),
        None => "unknown".to_owned(),
    };
    let state = device::state(port);
    out.port(number)?;
    out.reported(8, "state", state.into(), format_args!("{state} ({})", port.state.raw()))?;
    out.reported(8, "max_mtu", port.max_mtu.map(mtu_bytes).into(), mtu(port.max_mtu))?;
    out.reported(8, "active_mtu", port.active_mtu.map(mtu_bytes).into(), mtu(port.active_mtu))?;
    out.field(8, "sm_lid", port.sm_lid)?;
    out.field(8, "port_lid", port.lid)?;
    out.bits(8, "port_lmc", port.lmc.into(), 2)?;
    out.field(8, "link_layer", link_name(port.link_layer))?;
    if let (Some(width), Some(speed)) = (port.active_width, port.active_speed) {
        let gbps = f64::from(port.mbps().unwrap_or(0)) / 1000.0;
        out.reported(8, "rate", gbps.into(), format_args!("{gbps} Gb/s ({width}X {speed})"))?;
    }
    if !verbose {
        return Ok(());
    }
    out.field(8, "phys_state", port.phys_state.to_string())?;
    out.bits(8, "max_msg_sz", port.max_msg_sz.into(), 0)?;
    out.bits(8, "port_cap_flags", port.port_cap_flags.into(), 8)?;
    out.bits(8, "port_cap_flags2", port.port_cap_flags2.into(), 4)?;
    out.field(8, "max_vl_num", port.max_vl_num)?;
    out.field(8, "bad_pkey_cntr", port.bad_pkey_cntr)?;
    out.field(8, "qkey_viol_cntr", port.qkey_viol_cntr)?;
    out.field(8, "sm_sl", port.sm_sl)?;
    out.field(8, "subnet_timeout", port.subnet_timeout)?;
    out.field(8, "init_type_reply", port.init_type_reply)?;
    let routed = port.grh_required || port.link_layer == LinkLayer::Ethernet;
    out.flag(8, "grh_required", routed)?;
    out.field(8, "gid_tbl_len", port.gid_tbl_len)?;
    out.field(8, "pkey_tbl_len", port.pkey_tbl_len)
}

fn addresses<'a>(
    out: &mut impl Sheet,
    context: &Context,
    gids: impl Iterator<Item = &'a GidEntry>,
) -> io::Result<()> {
    for entry in gids {
        // An interface that is going away has no name.
        let (number, name) = (entry.netdev_ifindex, context.net_interface(entry).ok().flatten());
        let interface = match (number, &name) {
            (Some(index), Some(name)) => format!(", interface {name} ({index})"),
            (Some(index), None) => format!(", interface {index}"),
            (None, _) => String::new(),
        };
        let kind = gid_type(entry.gid_type);
        let text = format!("{}, {kind}{interface}", entry.gid);
        let value = json!({
            "gid": entry.gid.to_string(), "type": kind, "interface": name, "ifindex": number,
        });
        out.entry(Table::Gids, entry.gid_index, value, &text)?;
    }
    Ok(())
}

/// The usual name of a type of GID.
pub(crate) fn gid_type(gid_type: GidType) -> &'static str {
    match gid_type {
        GidType::InfiniBand => "InfiniBand",
        GidType::RoceV1 => "RoCE v1",
        GidType::RoceV2 => "RoCE v2",
    }
}

fn partitions(
    out: &mut impl Sheet,
    context: &Context,
    port: u8,
    places: u16,
) -> Result<(), Failure> {
    for index in 0..u32::from(places) {
        // The table may be shorter than its advertised length.
        let Ok(key) = context.query_pkey(port, index) else { break };
        if key != 0 {
            out.entry(Table::PKeys, index, json!({ "pkey": key }), &format!("{key:#06x}"))?;
        }
    }
    Ok(())
}
