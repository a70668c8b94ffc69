//! The choice of a device: a real one, or the simulated one.

use crate::failure::Failure;
use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser,
};
use clap::{Args, ValueEnum};
use mlx5::{Context, Device, ErrorKind, LinkLayer, LocalPort, PortAttr, PortState};
use mlx5_sim::{Model, PortConfig, SimConfig, Simulator};
use std::io::{self, Write};

/// Options that choose the device.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Device to use, as in `mlx5 list` [default: the first one; list and info: all]
    #[arg(short, long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    device: Option<String>,
    /// Use the simulated device even if there is a real one
    #[arg(long)]
    sim: bool,
    /// Model to simulate [default: cx7]; implies --sim
    #[arg(long, value_name = "MODEL", value_parser = models())]
    sim_model: Option<Model>,
    /// Network of the simulated device [default: ib, cx6dx: roce]; implies --sim
    #[arg(long, value_name = "LINK")]
    sim_link: Option<SimLink>,
    /// Whether a simulated device has raw packets, and Ethernet ports unless the options say
    /// otherwise.
    #[arg(skip)]
    packets: bool,
}

/// Options that choose a port of it.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Device")]
pub(crate) struct PortArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Port of the device
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) port: u8,
    /// GID index to use, as in `mlx5 info -v` [default: chosen by type and scope]
    #[arg(long, value_name = "INDEX")]
    gid_index: Option<u8>,
}

/// The models, by their usual names.
fn models() -> impl TypedValueParser<Value = Model> {
    let named = |model: Model| PossibleValue::new(model.key()).help(model.name());
    PossibleValuesParser::new(Model::ALL.map(named))
        .try_map(|name| name.parse::<Model>().map_err(|error| error.to_string()))
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum SimLink {
    /// InfiniBand
    Ib,
    /// Ethernet with RoCE
    Roce,
}

impl From<SimLink> for PortConfig {
    fn from(link: SimLink) -> Self {
        match link {
            SimLink::Ib => Self::INFINIBAND,
            SimLink::Roce => Self::ROCE,
        }
    }
}

/// The usable devices, and their simulator if they are simulated.
pub(crate) struct Found {
    pub(crate) devices: Vec<Device>,
    pub(crate) simulator: Option<Simulator>,
}

impl DeviceArgs {
    /// The same, for a command that needs raw packets.
    pub(crate) fn with_packets(&self) -> Self {
        Self { packets: true, ..self.clone() }
    }

    /// Whether the options ask for the simulated device.
    pub(crate) fn wants_simulated(&self) -> bool {
        self.sim || self.sim_model.is_some() || self.sim_link.is_some()
    }

    fn simulate(&self) -> Result<Found, Failure> {
        let model = self.sim_model.unwrap_or(Model::ConnectX7);
        let usual = if self.packets { PortConfig::ROCE } else { model.port() };
        let port = self.sim_link.map_or(usual, PortConfig::from);
        if !model.has(port.link_layer) {
            let failure = Failure::usage(format!("a {} has no InfiniBand port", model.name()));
            return Err(failure.hint("--sim-link roce is what it has"));
        }
        let config = SimConfig::new().model(model).ports([port]).raw_packets(self.packets);
        let simulator = Simulator::new(config);
        let devices = mlx5::devices_on(simulator.kernel())?;
        Ok(Found { devices, simulator: Some(simulator) })
    }

    /// The real devices. Simulated ones if there are none and none is named, or if the options ask
    /// for them.
    pub(crate) fn find(&self) -> Result<Found, Failure> {
        if self.wants_simulated() {
            return self.simulate();
        }
        let devices = match mlx5::devices() {
            Ok(devices) => devices,
            // Without a list there are no real devices.
            Err(error) if self.device.is_none() => {
                note(&format!("the devices of this machine cannot be listed: {error}"));
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        // If the devices cannot be listed, the note above already reports it.
        for skipped in mlx5::skipped_devices().unwrap_or_default() {
            note(&skipped.to_string());
        }
        if devices.is_empty() && self.device.is_none() {
            return self.simulate();
        }
        Ok(Found { devices, simulator: None })
    }

    /// The named device, or all.
    pub(crate) fn select(&self) -> Result<Found, Failure> {
        let mut found = self.find()?;
        let Some(name) = &self.device else { return Ok(found) };
        let known: Vec<String> = found.devices.iter().map(|d| d.name().to_owned()).collect();
        found.devices.retain(|device| device.name() == name);
        if !found.devices.is_empty() {
            return Ok(found);
        }
        let failure = Failure::new(format!("there is no mlx5 device named {name}"));
        Err(match (known.is_empty(), &found.simulator) {
            (false, Some(_)) => {
                failure.hint(format!("the simulated device is named {}", known.join(", ")))
            }
            (false, None) => failure.hint(format!("there is {}", known.join(", "))),
            (true, _) => failure.hint(
                "this machine has no mlx5 device; without --device, or with --sim, the simulated \
                 one is used",
            ),
        })
    }

    /// Opens the chosen device, and prints its name.
    pub(crate) fn open(&self) -> Result<Opened, Failure> {
        let Found { devices, simulator } = self.select()?;
        let Some(device) = devices.into_iter().next() else {
            return Err(Failure::new("there is no mlx5 device"));
        };
        announce(&describe(&device, simulator.is_some()));
        let context = device.open()?;
        Ok(Opened { context, device, simulator })
    }
}

/// A device in a few words.
pub(crate) fn describe(device: &Device, simulated: bool) -> String {
    let part = device.part().unwrap_or("mlx5 device");
    let pci = device.pci().map(|pci| pci.address.as_str()).filter(|address| !address.is_empty());
    match (simulated, pci) {
        (true, _) => format!("{}: simulated {part}, in this process", device.name()),
        (false, Some(pci)) => format!("{}: {part} at {pci}", device.name()),
        (false, None) => format!("{}: {part}", device.name()),
    }
}

/// Prints which device is used, on stderr.
pub(crate) fn announce(what: &str) {
    note(&format!("device {what}"));
}

/// Prints a note on stderr; a closed stderr is no error.
pub(crate) fn note(what: &str) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// An open device.
pub(crate) struct Opened {
    pub(crate) context: Context,
    pub(crate) device: Device,
    pub(crate) simulator: Option<Simulator>,
}

impl Opened {
    /// The state of a port. Fails for one that does not exist.
    pub(crate) fn port(&self, port: u8) -> Result<PortAttr, Failure> {
        let ports = self.context.num_ports();
        if !(1..=ports).contains(&port.into()) {
            let has =
                if ports == 1 { "port 1 alone".to_owned() } else { format!("ports 1 to {ports}") };
            let cause = format!("port {port} does not exist: {} has {has}", self.device.name());
            return Err(Failure::new(cause).hint("--port chooses one; `mlx5 info` shows them"));
        }
        Ok(self.context.query_port(port)?)
    }

    /// Fails for a port without Ethernet.
    pub(crate) fn wants_ethernet(&self, port: u8) -> Result<(), Failure> {
        if self.port(port)?.link_layer == LinkLayer::Ethernet {
            return Ok(());
        }
        let failure = Failure::new(format!("port {port} is not an Ethernet port"));
        Err(failure.hint(match self.simulator {
            Some(_) => "--sim-link roce simulates one",
            None => "`mlx5 info` shows the ports; --port chooses one",
        }))
    }

    /// The cause of a failure: `DeviceGone` if the device is gone, whatever failed first.
    pub(crate) fn because(&self, failure: Failure) -> Failure {
        match self.context.query_port(1) {
            Err(error) if error.kind() == ErrorKind::DeviceGone => error.into(),
            _ => failure,
        }
    }
}

/// The failure of a call that needs raw packets.
pub(crate) fn packets_refused(error: mlx5::Error) -> Failure {
    let denied = error.kind() == ErrorKind::PermissionDenied;
    let failure = Failure::from(error);
    if denied { failure.hint("try as root, or with CAP_NET_RAW") } else { failure }
}

/// A port to connect queue pairs on.
pub(crate) struct Port {
    pub(crate) opened: Opened,
    pub(crate) local: LocalPort,
}

impl PortArgs {
    /// The same, for a command that needs raw packets.
    pub(crate) fn with_packets(&self) -> Self {
        Self { device: self.device.with_packets(), ..self.clone() }
    }

    /// Opens the chosen port.
    pub(crate) fn open(&self) -> Result<Port, Failure> {
        let opened = self.device.open()?;
        let state = opened.port(self.port)?;
        if !state.is_active() {
            let is = self::state(&state);
            let cause = format!("port {} is not active: it is {is}", self.port);
            let hint = match state.link_layer {
                LinkLayer::Ethernet => "bring the network interface up: `ip link set DEV up`",
                _ => "is the cable plugged in, and does a subnet manager run?",
            };
            return Err(Failure::new(cause).hint(hint));
        }
        let local = self.local_port(&opened.context)?;
        Ok(Port { opened, local })
    }

    /// The chosen port of an open device, with the chosen GID.
    pub(crate) fn local_port(&self, context: &Context) -> Result<LocalPort, Failure> {
        context
            .local_port(self.port, self.gid_index)
            .map_err(|error| Failure::from(error).hint("`mlx5 info -v` lists the port's GIDs"))
    }
}

/// The usual name of a kind of link.
pub(crate) fn link_name(link: LinkLayer) -> &'static str {
    match link {
        LinkLayer::Ethernet => "Ethernet (RoCE)",
        _ => "InfiniBand",
    }
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
