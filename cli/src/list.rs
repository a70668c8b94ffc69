//! `mlx5 list`.

use crate::device::{DeviceArgs, Found, announce};
use crate::failure::Failure;
use crate::table::{Align, Table};
use mlx5::{Device, LinkLayer, PortAttr, PortState};
use std::io::Write;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Lists the mlx5 devices of this machine with part, firmware, and the state of their
ports. Without a device it lists the simulated one, which the other commands use
then.";

/// Options of `mlx5 list`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Found { devices, simulator } = args.device.select()?;
    announce(match simulator {
        Some(_) => "simulated, in this process",
        None => "of this machine",
    });
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
        let ports = match device.open() {
            Ok(context) => (1..=context.num_ports())
                .map(|port| context.query_port(port as u8))
                .collect::<Result<Vec<PortAttr>, mlx5::Error>>(),
            Err(error) => Err(error),
        };
        match ports {
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

/// A port's state in a word.
pub(crate) fn state(port: &PortAttr) -> &'static str {
    match port.state {
        PortState::Active | PortState::ActiveDefer => "active",
        PortState::Armed => "armed",
        PortState::Init => "initializing",
        PortState::Down => "down",
        _ => "unknown",
    }
}

fn link(port: &PortAttr) -> String {
    let layer = match port.link_layer {
        LinkLayer::Ethernet => "RoCE",
        _ => "InfiniBand",
    };
    match port.mbps() {
        Some(mbps) => format!("{layer}, {} Gb/s", f64::from(mbps) / 1000.0),
        None => layer.to_owned(),
    }
}
