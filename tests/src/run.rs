//! The runner: which cases, on which device.

use crate::bed::Bed;
use crate::case::{Case, Need};
use crate::cases;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mlx5::{CqeSize, Device, LinkLayer};
use mlx5_sim::{Model, PortConfig, SimConfig};
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};

/// Names the real device to run on.
const DEVICE: &str = "MLX5_TEST_DEVICE";

/// Taken for reading by a case that suffers others beside it, for writing by one that does not.
static COMPANY: RwLock<()> = RwLock::new(());

/// A simulated device to run on.
#[derive(Clone, Copy)]
struct Variant {
    label: &'static str,
    model: Model,
    port: PortConfig,
    cqe_size: CqeSize,
}

/// The devices that cases run on which run on every one; the first for all others.
const VARIANTS: [Variant; 6] = {
    const fn variant(
        label: &'static str,
        model: Model,
        port: PortConfig,
        cqe_size: CqeSize,
    ) -> Variant {
        Variant { label, model, port, cqe_size }
    }
    use CqeSize::{Bytes64, Bytes128};
    const IB: PortConfig = PortConfig::INFINIBAND;
    const ROCE: PortConfig = PortConfig::ROCE;
    [
        variant("cx7-ib-cqe64", Model::ConnectX7, IB, Bytes64),
        variant("cx7-ib-cqe128", Model::ConnectX7, IB, Bytes128),
        variant("cx6dx-roce-cqe64", Model::ConnectX6Dx, ROCE, Bytes64),
        variant("cx6dx-roce-cqe128", Model::ConnectX6Dx, ROCE, Bytes128),
        variant("cx5-ib-cqe64", Model::ConnectX5, IB, Bytes64),
        variant("cx5-ib-cqe128", Model::ConnectX5, IB, Bytes128),
    ]
};

impl Variant {
    /// The fabric for a case with these needs.
    fn config(&self, need: Need) -> SimConfig {
        let port = match () {
            () if need.contains(Need::ROCE) => PortConfig::ROCE,
            () if need.contains(Need::INFINIBAND) => PortConfig::INFINIBAND,
            () => self.port,
        };
        let ports = if need.contains(Need::TWO_PORTS) { vec![port; 2] } else { vec![port] };
        SimConfig::new().model(self.model).ports(ports).step(need.contains(Need::STEP))
    }
}

/// Why a real device cannot run a case, if it cannot.
fn lacks(device: &Device, need: Need) -> Result<Option<&'static str>, mlx5::Error> {
    if need.intersects(Need::SIMULATOR | Need::STEP | Need::DIRTY) {
        return Ok(Some("needs controls that only a simulated device has"));
    }
    let context = device.open()?;
    let ethernet = context.query_port(1)?.link_layer == LinkLayer::Ethernet;
    Ok(if need.contains(Need::DEVX) && !context.has_devx() {
        Some("the kernel grants no DEVX")
    } else if need.contains(Need::TWO_PORTS) && context.num_ports() < 2 {
        Some("the device has one port")
    } else if need.contains(Need::INFINIBAND) && ethernet {
        Some("the port is Ethernet")
    } else if need.contains(Need::ROCE) && !ethernet {
        Some("the port is InfiniBand")
    } else {
        None
    })
}

/// Runs a case on its bed.
fn run(
    case: &Case,
    bed: impl FnOnce() -> Result<Bed, crate::failed::Failed>,
) -> Result<(), Failed> {
    let (alone, beside);
    if case.need.contains(Need::SERIAL) {
        alone = COMPANY.write().unwrap_or_else(PoisonError::into_inner);
        let _ = &alone;
    } else {
        beside = COMPANY.read().unwrap_or_else(PoisonError::into_inner);
        let _ = &beside;
    }
    let told = |error: crate::failed::Failed| Failed::from(error.to_string());
    let bed = bed().map_err(told)?;
    if case.need.contains(Need::DIRTY) {
        bed.leave_dirty();
    }
    (case.run)(&bed).map_err(told)?;
    bed.verdict().map_err(told)
}

/// The name of a case: its file and its sentence.
fn name(case: &'static Case) -> &'static str {
    case.name.split_once("cases::").map_or(case.name, |(_, name)| name)
}

fn on_simulators() -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in cases::all() {
        let all = case.need.contains(Need::EVERY_MODEL);
        for variant in &VARIANTS[..if all { VARIANTS.len() } else { 1 }] {
            let label =
                if all { format!("{}[{}]", name(case), variant.label) } else { name(case).into() };
            trials.push(Trial::test(label, move || {
                run(case, || Bed::simulated(variant.config(case.need), variant.cqe_size))
            }));
        }
    }
    trials
}

fn on_device(device: &Arc<Device>) -> Vec<Trial> {
    let trial = |case: &'static Case| {
        let device = Arc::clone(device);
        Trial::ignorable_test(name(case), move || {
            if let Some(reason) = lacks(&device, case.need)? {
                return Ok(Completion::ignored_with(reason));
            }
            run(case, || Ok(Bed::real((*device).clone()))).map(|()| Completion::Completed)
        })
    };
    cases::all().map(trial).collect()
}

/// Takes `--device NAME` out of the arguments; the environment names one otherwise.
fn device_argument(arguments: &mut Vec<String>) -> Result<Option<String>, String> {
    let Some(at) = arguments.iter().position(|a| a == "--device" || a.starts_with("--device="))
    else {
        return Ok(std::env::var(DEVICE).ok().filter(|name| !name.is_empty()));
    };
    let argument = arguments.remove(at);
    match argument.split_once('=') {
        Some((_, name)) => Ok(Some(name.to_owned())),
        None if at < arguments.len() => Ok(Some(arguments.remove(at))),
        None => Err("--device needs the name of a device: mlx5_0, say".into()),
    }
}

fn find(name: &str) -> Result<Device, String> {
    let devices = mlx5::devices().map_err(|error| error.to_string())?;
    let found = devices.iter().find(|device| device.name() == name).cloned();
    found.ok_or_else(|| {
        let names: Vec<_> = devices.iter().map(Device::name).collect();
        format!("there is no device named {name}; there are {names:?}")
    })
}

/// Runs the suite as the arguments and the environment of the process say.
pub fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    let device = match device_argument(&mut arguments) {
        Ok(device) => device,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::FAILURE;
        }
    };
    let arguments = Arguments::from_iter(arguments);
    let (trials, real) = match device.as_deref().map(find) {
        None => (on_simulators(), false),
        Some(Ok(device)) => {
            if !arguments.list {
                println!(
                    "running on {} ({})",
                    device.name(),
                    device.part().unwrap_or("unknown part")
                );
            }
            (on_device(&Arc::new(device)), true)
        }
        Some(Err(what)) => {
            eprintln!("{what}");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    if real && !arguments.list && conclusion.num_passed == 0 {
        eprintln!("no case could run on this device: that proves nothing, and is a failure");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
