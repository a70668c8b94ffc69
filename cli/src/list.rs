//! `mlx5 list`.

use crate::device::{DeviceArgs, Found, announce, state};
use crate::failure::Failure;
use crate::json::{self, JsonArgs};
use crate::table::{Align, Table};
use mlx5::{Device, LinkLayer, PortAttr};
use serde_json::{Value, json};
use std::io::Write;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Lists the mlx5 devices of this machine with part, firmware, and the state of their
ports. Without a device it lists the simulated one, which the other commands use
then. With --json: an array of devices, each with simulated: true or false.";

/// Options of `mlx5 list`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Found { devices, simulator } = args.device.select()?;
    announce(match simulator {
        Some(_) => "simulated, in this process",
        None => "of this machine",
    });
    if args.json.json {
        let document = |device| json::of_device(document(device), simulator.is_some());
        let devices: Vec<Value> = devices.iter().map(document).collect();
        return Ok(json::write(out, &devices.into())?);
    }
    let mut table = Table::new(&[
        ("DEVICE", Align::Left),
        ("PART", Align::Left),
        ("PCI", Align::Left),
        ("FIRMWARE", Align::Left),
        ("NODE GUID", Align::Left),
        ("NUMA", Align::Right),
        ("PORT", Align::Right),
        ("STATE", Align::Left),
        ("LINK", Align::Left),
    ]);
    for device in &devices {
        match ports(device) {
            Ok(ports) => {
                for (index, port) in ports.iter().enumerate() {
                    let mut row =
                        if index == 0 { of_device(device) } else { vec![String::new(); 6] };
                    row.extend([(index + 1).to_string(), state(port).to_owned(), link(port)]);
                    table.row(row);
                }
            }
            Err(error) => {
                let mut row = of_device(device);
                row.extend(["-".to_owned(), format!("cannot be opened: {error}")]);
                table.row(row);
            }
        }
    }
    Ok(table.write(out, 0)?)
}

fn ports(device: &Device) -> Result<Vec<PortAttr>, mlx5::Error> {
    let context = device.open()?;
    (1..=context.num_ports()).map(|port| context.query_port(port as u8)).collect()
}

/// A device as JSON. One that cannot be opened says why.
fn document(device: &Device) -> Value {
    let (ports, error) = match ports(device) {
        Ok(ports) => (ports, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let port = |(index, port): (usize, &PortAttr)| {
        json!({
            "number": index + 1,
            "state": state(port),
            "link": layer(port),
            "gbit_per_second": port.mbps().map(|mbps| f64::from(mbps) / 1000.0),
        })
    };
    json!({
        "name": device.name(),
        "part": device.part(),
        "pci": device.pci().map(|pci| &pci.address),
        "firmware": device.fw_version(),
        "node_guid": device.guid().to_string(),
        "numa_node": device.numa_node(),
        "uverbs": device.uverbs(),
        "error": error,
        "ports": ports.iter().enumerate().map(port).collect::<Vec<_>>(),
    })
}

fn of_device(device: &Device) -> Vec<String> {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    vec![
        device.name().to_owned(),
        or_dash(device.part().unwrap_or_default()),
        or_dash(device.pci().map_or("", |pci| &pci.address)),
        or_dash(device.fw_version()),
        device.guid().to_string(),
        device.numa_node().map_or("-".to_owned(), |node| node.to_string()),
    ]
}

fn layer(port: &PortAttr) -> &'static str {
    match port.link_layer {
        LinkLayer::Ethernet => "RoCE",
        _ => "InfiniBand",
    }
}

fn link(port: &PortAttr) -> String {
    let layer = layer(port);
    match port.mbps() {
        Some(mbps) => format!("{layer}, {} Gb/s", f64::from(mbps) / 1000.0),
        None => layer.to_owned(),
    }
}
