//! `MLX5_SIM`: the settings of a simulated machine, in one line.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::network::{MILLION, Network};
use crate::{PortConfig, SimConfig, UnknownFault};
use mlx5_prm::ethernet::InlineMode;

/// The environment variable that has the settings.
pub const VARIABLE: &str = "MLX5_SIM";

/// Settings of a simulated machine, parsed from a list like `model=cx6dx,link=roce,devices=2`.
/// Settings that the list omits are as in [`SimConfig::new`].
///
/// | setting | values | meaning |
/// |---|---|---|
/// | `off` | | simulate nothing: the program sees the real machine |
/// | `trace` | | trace every call to a device on standard error |
/// | `wire=` | path | use the machine that is served at this socket, with other processes |
/// | `model=` | `cx5`, `cx6`, `cx6dx`, `cx7` | the device |
/// | `devices=` | number | number of devices |
/// | `link=` | `ib`, `roce`; joined with `+` for two ports | link layer of each port |
/// | `mtu=` | bytes | active MTU of all ports |
/// | `cqe=` | `0`, `1` | version of completion entries |
/// | `blueflame=` | `on`, `off` | BlueFlame registers in UAR pages |
/// | `devx=` | `on`, `off` | whether contexts can use DEVX |
/// | `devx_events=` | `on`, `off` | whether programs can have DEVX event files; off by default |
/// | `raw=` | `on`, `off` | whether programs can use raw packets on Ethernet ports; off by default |
/// | `inline=` | `none`, `l2`, `ip`, `tcp` | the headers that each send request must contain |
/// | `striding=` | `on`, `off` | whether a real kernel's network interface can have receive queues with strides; off by default |
/// | `vport_filter=` | `on`, `off` | whether frames from the wire reach the raw packet queues of a function only if its driver has listed their address, or is promiscuous, as with a virtual function; off by default |
/// | `net_raw=` | `on`, `off` | whether programs may use raw packets (CAP_NET_RAW) |
/// | `memory=` | `direct`, `checked` | whether an access to unmapped memory crashes, or is checked for |
/// | `step` | | the machine stands still until `mlx5_sim_settle` is called |
/// | `latency=`, `jitter=` | time: `500ns`, `2us`, `1ms` | time that a packet takes, and its greatest random addition |
/// | `gbps=` | number | rate of a port in gigabits per second |
/// | `loss=` | number | packets of a million that are lost between devices: a connection inside one device loses none, so name `devices=2` |
/// | `latency=`, `jitter=`, `gbps=`, `loss=` | two devices and a value: `0-1:2us` | the same between these two devices, in both directions; overrides the general setting |
/// | `cut=` | two devices: `0-1` | nothing arrives between these two devices, in both directions; may be given more than once, like all settings of a link |
/// | `ipv4=` | addresses, joined with `+` | the addresses of the ports, device by device |
/// | `longest_timer=` | time: `2ms` | longest retry timer, which limits the timeouts of queue pairs |
/// | `fault=` | name of a [`Fault`](crate::Fault#impl-FromStr-for-Fault) | a fault that every device starts with; may be given more than once |
/// | `seed=` | number | seed of the GUIDs, so that they differ from another machine's, and of the network's randomness |
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine; `None` for `off`.
    pub machine: Option<SimConfig>,
    /// Whether calls are traced on standard error.
    pub trace: bool,
    /// The socket of a machine that several processes share.
    pub wire: Option<PathBuf>,
    /// The settings that describe the machine, in their order.
    pub about_machine: String,
}

/// Format of a time, for error texts.
const TIME: &str = "a time such as 500ns, 2us or 1ms";
/// The same for a setting that may be that of a single link.
const LINK_TIME: &str =
    "a time such as 500ns, 2us or 1ms, of one link as 0-1:2us with two devices that there are";

/// Every setting, and the value it takes; empty if it takes none.
const SETTINGS: [(&str, &str); 27] = [
    ("off", ""),
    ("trace", ""),
    ("wire", "the path of a socket"),
    ("model", "one of cx5, cx6, cx6dx, cx7"),
    ("devices", "a number"),
    ("link", "ib or roce; two joined with + for two ports"),
    ("mtu", "256, 512, 1024, 2048 or 4096"),
    ("cqe", "0 or 1"),
    ("blueflame", "on or off"),
    ("devx", "on or off"),
    ("devx_events", "on or off"),
    ("raw", "on or off"),
    ("inline", "none, l2, ip or tcp"),
    ("striding", "on or off"),
    ("vport_filter", "on or off"),
    ("net_raw", "on or off"),
    ("memory", "direct or checked"),
    ("step", ""),
    ("latency", LINK_TIME),
    ("jitter", LINK_TIME),
    ("gbps", "a number, of one link as 0-1:100 with two devices that there are"),
    (
        "loss",
        "a number of packets of a million, of one link as 0-1:20 with two devices that there are",
    ),
    ("cut", "two devices that there are, as 0-1"),
    ("ipv4", "IPv4 addresses, joined with +"),
    ("longest_timer", TIME),
    ("fault", "the name of a fault, such as drop-packets:3 or stall"),
    ("seed", "a number"),
];

/// A setting that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsError {
    setting: String,
    /// Error of its value, if one more precise than the setting's format is known.
    fault: Option<UnknownFault>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        write!(f, "cannot understand \"{setting}\"; ")?;
        if let Some(fault) = &self.fault {
            return fault.fmt(f);
        }
        let name = setting.split_once('=').map_or(setting.as_str(), |(name, _)| name);
        match SETTINGS.iter().find(|(known, _)| *known == name) {
            Some((name, "")) => write!(f, "{name} takes no value"),
            Some((name, takes)) => write!(f, "{name}= takes {takes}"),
            None => {
                let known = SETTINGS.map(|(name, takes)| match takes {
                    "" => name.to_owned(),
                    _ => format!("{name}="),
                });
                write!(f, "known settings are {}", known.join(", "))
            }
        }
    }
}

impl Error for SettingsError {}

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(list: &str) -> Result<Self, SettingsError> {
        let mut machine = SimConfig::new();
        let (mut off, mut trace, mut wire, mut mtu) = (false, false, None, None);
        let (mut about_machine, mut links) = (Vec::new(), Vec::new());
        for setting in list.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let wrong = || SettingsError { setting: setting.to_owned(), fault: None };
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "off" if value.is_empty() => off = true,
                "trace" if value.is_empty() => trace = true,
                "wire" if !value.is_empty() => wire = Some(PathBuf::from(value)),
                "step" if value.is_empty() => machine.step = true,
                "model" => machine = machine.model(number(value).ok_or_else(wrong)?),
                "devices" => machine.devices = number(value).ok_or_else(wrong)?,
                "link" => machine.ports = ports(value).ok_or_else(wrong)?,
                "mtu" => mtu = Some(number(value).and_then(known_mtu).ok_or_else(wrong)?),
                "cqe" => machine.cqe_version = number(value).ok_or_else(wrong)?,
                "blueflame" => machine.blueflame = switch(value).ok_or_else(wrong)?,
                "devx" => machine.devx = switch(value).ok_or_else(wrong)?,
                "devx_events" => machine.devx_events = switch(value).ok_or_else(wrong)?,
                "raw" => machine.raw_packets = switch(value).ok_or_else(wrong)?,
                "inline" => machine.inline_mode = headers(value).ok_or_else(wrong)?,
                "striding" => machine.striding = switch(value).ok_or_else(wrong)?,
                "vport_filter" => {
                    machine.vport_filter = switch(value).ok_or_else(wrong)?;
                }
                "net_raw" => machine.net_raw = switch(value).ok_or_else(wrong)?,
                "memory" => machine.checked_memory = checked(value).ok_or_else(wrong)?,
                "latency" | "jitter" | "gbps" | "loss" if value.contains(':') => {
                    let (ends, value) = link(value).ok_or_else(wrong)?;
                    let mut tried = Network::INSTANT;
                    set(&mut tried, name, value).ok_or_else(wrong)?;
                    links.push((setting, ends, Some((name, value))));
                }
                "latency" | "jitter" | "gbps" | "loss" => {
                    set(&mut machine.network, name, value).ok_or_else(wrong)?;
                }
                "cut" => links.push((setting, ends(value).ok_or_else(wrong)?, None)),
                "ipv4" => {
                    let addresses = value.split('+').map(|address| address.parse().ok());
                    machine.ipv4 = addresses.collect::<Option<_>>().ok_or_else(wrong)?;
                }
                "longest_timer" => {
                    let longest = time(value).ok_or_else(wrong)?;
                    machine.longest_timer_us =
                        longest.as_micros().try_into().map_err(|_| wrong())?;
                }
                "fault" => machine.faults.push(
                    value
                        .parse()
                        .map_err(|fault| SettingsError { fault: Some(fault), ..wrong() })?,
                ),
                "seed" => machine.seed = number(value).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
            if !matches!(name, "off" | "trace" | "wire") {
                about_machine.push(setting);
            }
        }
        for port in &mut machine.ports {
            port.mtu = mtu.unwrap_or(port.mtu);
        }
        // A link's settings override the general ones, whatever their order in the list.
        for (setting, (one, other), what) in links {
            let wrong = || SettingsError { setting: setting.to_owned(), fault: None };
            if one.max(other) >= machine.devices || one == other {
                return Err(wrong());
            }
            for way in [(one, other), (other, one)] {
                let Some((name, value)) = what else {
                    machine.cuts.insert(way);
                    continue;
                };
                let network = machine.links.entry(way).or_insert(machine.network);
                set(network, name, value).ok_or_else(wrong)?;
            }
        }
        let about_machine = about_machine.join(",");
        Ok(Self { machine: (!off).then_some(machine), trace, wire, about_machine })
    }
}

/// Parses a value that has a name or is a number.
fn number<T: FromStr>(value: &str) -> Option<T> {
    value.parse().ok()
}

fn time(value: &str) -> Option<Duration> {
    let unit = value.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = value.split_at(unit);
    let ns: u64 = match unit {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(count.parse::<u64>().ok()?.checked_mul(ns)?))
}

/// Sets a property of a network by the name of its setting.
fn set(network: &mut Network, name: &str, value: &str) -> Option<()> {
    match name {
        "latency" => network.latency = time(value)?,
        "jitter" => network.jitter = time(value)?,
        "gbps" => network.gigabits = number(value)?,
        _ => network.loss = loss(value)?,
    }
    Some(())
}

/// Two devices, as `0-1`.
fn ends(value: &str) -> Option<(usize, usize)> {
    let (one, other) = value.split_once('-')?;
    Some((number(one)?, number(other)?))
}

/// Two devices, and the value for their link: `0-1:2us`.
fn link(value: &str) -> Option<((usize, usize), &str)> {
    let (link, value) = value.split_once(':')?;
    Some((ends(link)?, value))
}

fn loss(value: &str) -> Option<u32> {
    number(value).filter(|loss| *loss <= MILLION)
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn headers(value: &str) -> Option<InlineMode> {
    Some(match value {
        "none" => InlineMode::None,
        "l2" => InlineMode::L2,
        "ip" => InlineMode::Ip,
        "tcp" => InlineMode::TcpUdp,
        _ => return None,
    })
}

fn checked(value: &str) -> Option<bool> {
    match value {
        "checked" => Some(true),
        "direct" => Some(false),
        _ => None,
    }
}

fn known_mtu(bytes: u32) -> Option<u32> {
    matches!(bytes, 256 | 512 | 1024 | 2048 | 4096).then_some(bytes)
}

fn ports(value: &str) -> Option<Vec<PortConfig>> {
    let port = |name| match name {
        "ib" => Some(PortConfig::INFINIBAND),
        "roce" => Some(PortConfig::ROCE),
        _ => None,
    };
    let ports: Vec<_> = value.split('+').map(port).collect::<Option<_>>()?;
    (ports.len() <= 2).then_some(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, LinkLayer, Model};

    fn machine(list: &str) -> SimConfig {
        list.parse::<Settings>().expect("settings").machine.expect("a machine")
    }

    #[test]
    fn nothing_set_is_the_usual_machine() {
        let settings: Settings = "".parse().expect("settings");
        assert!(!settings.trace);
        let machine = settings.machine.expect("a machine");
        assert_eq!((machine.model, machine.devices), (Model::ConnectX7, 1));
        assert_eq!(machine.ports, [PortConfig::INFINIBAND]);
    }

    #[test]
    fn each_setting_is_heard() {
        let machine = machine(
            "model=cx6dx,devices=3,link=roce+ib,mtu=2048,cqe=0,blueflame=off,devx=off,\
             memory=checked,seed=7,step,latency=2us,jitter=500ns,gbps=100,loss=20,\
             inline=tcp,striding=on,vport_filter=on,fault=drop-packets:3,fault=stall,ipv4=10.1.2.3+192.168.0.1,longest_timer=700ms",
        );
        assert_eq!((machine.model, machine.devices), (Model::ConnectX6Dx, 3));
        let links: Vec<_> = machine.ports.iter().map(|port| port.link_layer).collect();
        assert_eq!(links, [LinkLayer::Ethernet, LinkLayer::InfiniBand]);
        assert!(machine.ports.iter().all(|port| port.mtu == 2048));
        assert_eq!((machine.cqe_version, machine.seed), (0, 7));
        let network = machine.network;
        assert_eq!((network.latency.as_nanos(), network.jitter.as_nanos()), (2000, 500));
        assert_eq!((network.gigabits, network.loss), (100, 20));
        assert_eq!(machine.faults, [Fault::DropPackets(3), Fault::Stall]);
        assert_eq!(machine.ipv4, [[10, 1, 2, 3].into(), std::net::Ipv4Addr::new(192, 168, 0, 1)]);
        assert_eq!((machine.longest_timer_us, machine.inline_mode), (700_000, InlineMode::TcpUdp));
        assert!(!machine.blueflame && !machine.devx && machine.checked_memory && machine.step);
        assert!(machine.striding && machine.vport_filter);
    }

    #[test]
    fn every_model_is_called_by_its_name() {
        for model in Model::ALL {
            assert_eq!(machine(&format!("model={}", model.key())).model, model);
            assert!(SETTINGS[3].1.contains(model.key()));
        }
    }

    #[test]
    fn a_wrong_value_is_told_the_right_ones() {
        for (setting, right) in [
            ("model=connectx7", "cx5, cx6, cx6dx, cx7"),
            ("link=eth", "ib or roce"),
            ("mtu=1500", "256, 512"),
            ("step=1", "no value"),
            ("latency=2", "500ns, 2us or 1ms"),
            ("loss=1000001", "of a million"),
            ("ipv4=10.0.0.1+here", "joined with +"),
            ("fault=rust", "known are "),
            ("fault=overrun:1", "overrun-cq:"),
            ("fast", "trace, wire=, model="),
        ] {
            let error = setting.parse::<Settings>().expect_err(setting).to_string();
            assert!(error.contains(setting) && error.contains(right), "{error}");
            // The reader of the variable adds its name to the message.
            assert!(!error.contains(VARIABLE), "{error}");
        }
    }

    #[test]
    fn a_link_has_its_own_network_and_may_be_cut() {
        let machine = machine(
            "latency=0-1:2us,gbps=1-0:10,cut=0-2,loss=2-1:30,devices=3,latency=1us,jitter=5ns",
        );
        let rest = Network::INSTANT.latency(Duration::from_micros(1));
        let rest = rest.jitter(Duration::from_nanos(5));
        assert_eq!(machine.network, rest);
        let slow = rest.latency(Duration::from_micros(2)).gigabits(10);
        for (way, network) in
            [((0, 1), slow), ((1, 0), slow), ((1, 2), rest.loss(30)), ((2, 1), rest.loss(30))]
        {
            assert_eq!(machine.links.get(&way), Some(&network), "{way:?}");
        }
        assert_eq!(machine.links.len(), 4);
        assert_eq!(machine.cuts.iter().copied().collect::<Vec<_>>(), [(0, 2), (2, 0)]);
        assert!(machine.takes_time());
    }

    #[test]
    fn a_link_between_devices_that_are_not_there_is_refused() {
        for setting in [
            "latency=0-2:2us",
            "latency=0-1:2",
            "latency=0:2us",
            "gbps=0-0:1",
            "loss=0-1:1000001",
            "cut=0",
            "cut=0-2",
            "cut=1-1",
            "cut=0-1:2us",
        ] {
            let error = format!("{setting},devices=2").parse::<Settings>().expect_err(setting);
            let error = error.to_string();
            assert!(error.contains(setting) && error.contains("devices that there are"), "{error}");
        }
    }

    #[test]
    fn off_simulates_nothing() {
        assert!("off".parse::<Settings>().expect("settings").machine.is_none());
        assert!("trace".parse::<Settings>().expect("settings").trace);
    }

    #[test]
    fn a_shared_machine_is_named_by_its_socket() {
        let settings: Settings =
            "trace, wire=/tmp/w,link=roce ,devices=2".parse().expect("settings");
        assert_eq!(settings.wire, Some(PathBuf::from("/tmp/w")));
        assert_eq!(settings.about_machine, "link=roce,devices=2");
        assert!("".parse::<Settings>().expect("settings").wire.is_none());
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for setting in
            ["wire=", "model=connectx3", "mtu=1500", "link=ib+ib+ib", "fast", "devx=1", "off=1"]
        {
            let error = format!("devices=1,{setting}").parse::<Settings>().expect_err(setting);
            assert!(error.to_string().contains(setting), "{error}");
        }
    }
}
