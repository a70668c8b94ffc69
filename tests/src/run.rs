//! The runner: selects the cases and the device.

use crate::bed::{Bed, Place};
use crate::case::{Case, Need};
use crate::cases;
use crate::hosts::{self, HostCase, Peer};
use crate::ledger::{self, Ledger, Outcome};
use crate::options::{Options, find};
use crate::plan;
use crate::replug::replug;
use crate::report::{self, Report};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mlx5::flow::Rule;
use mlx5::transport::{RawPacket, Rc, Ud};
use mlx5::{Context, CqeSize, DoorbellChoice, ErrorKind, Timestamps};
use mlx5_sim::{LinkLayer, Model, PortConfig, SimConfig};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// The needs of a case that must be alone on a device that other cases use, too. Rules of two cases
/// for the same packets would contradict each other (EEXIST), and each case would get the other's
/// frames.
const ALONE: Need = Need::SERIAL.union(Need::RAW_PACKETS);

/// Locked for reading by a case that allows others beside it, for writing by one that does not.
static COMPANY: RwLock<()> = RwLock::new(());

/// A simulated device to run on.
#[derive(Clone, Copy)]
struct Variant {
    label: &'static str,
    model: Model,
    port: PortConfig,
    cqe_size: CqeSize,
}

/// The devices on which a case with `EVERY_MODEL` runs; the first is for all others.
const VARIANTS: [Variant; 7] = {
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
        variant("cx7-roce-cqe64", Model::ConnectX7, ROCE, Bytes64),
        variant("cx6dx-roce-cqe64", Model::ConnectX6Dx, ROCE, Bytes64),
        variant("cx6dx-roce-cqe128", Model::ConnectX6Dx, ROCE, Bytes128),
        variant("cx5-ib-cqe64", Model::ConnectX5, IB, Bytes64),
        variant("cx5-ib-cqe128", Model::ConnectX5, IB, Bytes128),
    ]
};

/// The devices of one model.
fn variants_of(model: Model) -> Vec<Variant> {
    let (port, key) = (model.port(), model.key());
    let variant = |label, cqe_size| Variant { label, model, port, cqe_size };
    let large = match model {
        Model::ConnectX5 => "cx5-cqe128",
        Model::ConnectX6 => "cx6-cqe128",
        Model::ConnectX6Dx => "cx6dx-cqe128",
        Model::ConnectX7 => "cx7-cqe128",
    };
    vec![variant(key, CqeSize::Bytes64), variant(large, CqeSize::Bytes128)]
}

impl Variant {
    /// The reason why this device cannot run a case, if it cannot.
    fn lacks(&self, need: Need) -> Option<&'static str> {
        if need.contains(Need::INFINIBAND) && !self.model.has(LinkLayer::InfiniBand) {
            return Some("the model has no InfiniBand ports");
        }
        need.lacking(Need::of_simulated(&self.config(need)))
    }

    /// The fabric for a case with these needs.
    fn config(&self, need: Need) -> SimConfig {
        let port = match () {
            () if need.intersects(Need::ROCE | Need::RAW_PACKETS) => PortConfig::ROCE,
            () if need.contains(Need::INFINIBAND) => PortConfig::INFINIBAND,
            () => self.port,
        };
        let ports = if need.contains(Need::TWO_PORTS) { vec![port; 2] } else { vec![port] };
        let config = SimConfig::new().model(self.model).ports(ports);
        config.step(need.contains(Need::STEP)).raw_packets(need.contains(Need::RAW_PACKETS))
    }
}

/// The reason why a real device cannot run a case, if it cannot.
fn lacks(place: &Place, other: Option<&Place>, need: Need) -> Result<Option<String>, mlx5::Error> {
    if need.intersects(plan::SIMULATED) {
        return Ok(Some(plan::SIMULATED_ALONE.to_owned()));
    }
    let context = place.device.open()?;
    let ethernet = context.query_port(place.port)?.link_layer == mlx5::LinkLayer::Ethernet;
    let ports = if need.contains(Need::TWO_PORTS) && context.num_ports() < 2 {
        Some("the device has one port")
    } else if need.contains(Need::INFINIBAND) && ethernet {
        Some("the port is Ethernet")
    } else if need.intersects(Need::ROCE | Need::RAW_PACKETS) && !ethernet {
        Some("the port is InfiniBand")
    } else {
        None
    };
    if let Some(reason) = ports {
        return Ok(Some(reason.to_owned()));
    }
    // A device may have a capability on ports of one kind only, so the kind of the port is checked
    // first.
    if need.intersects(Need::capabilities())
        && let Some(missing) = need.lacking(Need::of_real(&context)?)
    {
        return Ok(Some(missing.to_owned()));
    }
    if need.contains(Need::BLUEFLAME) && !has_blueflame(place, other)? {
        return Ok(Some("the device grants no BlueFlame register".to_owned()));
    }
    refused(&context, place.port, need)
}

/// The driver's error for a feature that a case needs, if the device or its kernel does not have
/// it.
fn refused(context: &Context, port: u8, need: Need) -> Result<Option<String>, mlx5::Error> {
    let asked = Need::UPDATE_TAG | Need::PIPELINING | Need::REAL_TIME | Need::RAW_PACKETS;
    if !need.intersects(asked) {
        return Ok(None);
    }
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(4).build()?);
    let mut answers = Vec::new();
    if need.contains(Need::UPDATE_TAG) {
        answers.push(pd.create_mkey(1).update_tag().build().map(drop));
    }
    if need.contains(Need::PIPELINING) {
        answers.push(pd.create_qp::<Rc>(&cq, &cq).signature_pipelining().build().map(drop));
    }
    if need.contains(Need::REAL_TIME) {
        answers.push(context.create_cq(4).timestamps(Timestamps::RealTime).build().map(drop));
    }
    if need.contains(Need::RAW_PACKETS) {
        answers.push(pd.create_qp::<RawPacket>(&cq, &cq).build().map(drop));
    }
    if need.contains(Need::SNIFFER) {
        let qp = pd.create_qp::<RawPacket>(&cq, &cq).build();
        answers.push(qp.and_then(|qp| qp.attach(port, &Rule::sniffer())).map(drop));
    }
    for answer in answers {
        match answer {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotSupported | ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether queue pairs get a BlueFlame register, on both devices.
fn has_blueflame(place: &Place, other: Option<&Place>) -> Result<bool, mlx5::Error> {
    for place in [Some(place), other].into_iter().flatten() {
        let context = place.device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4).build()?);
        let asked = pd.create_qp::<Ud>(&cq, &cq).doorbell(DoorbellChoice::BlueFlame).build();
        match asked {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ResourceLimit => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Runs a case on its bed; alone, if it has a need in `serial`.
fn run(
    case: &Case,
    serial: Need,
    bed: impl FnOnce() -> Result<Bed, crate::failed::Failed>,
) -> Result<(), Failed> {
    let (alone, beside);
    if case.need.intersects(serial) {
        alone = COMPANY.write().unwrap_or_else(PoisonError::into_inner);
        let _ = &alone;
    } else {
        beside = COMPANY.read().unwrap_or_else(PoisonError::into_inner);
        let _ = &beside;
    }
    let as_text = |error: crate::failed::Failed| Failed::from(error.to_string());
    let bed = bed().map_err(as_text)?;
    if case.need.contains(Need::DIRTY) {
        bed.leave_dirty();
    }
    (case.run)(&bed).map_err(as_text)?;
    plan::check(case.need, bed.ack_timeouts(), bed.settled_timeouts())?;
    bed.verdict().map_err(as_text)
}

/// The name of a case: its file and its sentence.
fn name(case: &'static Case) -> &'static str {
    case.name.split_once("cases::").map_or(case.name, |(_, name)| name)
}

/// Every case on the first of the devices, and on all of them if it wants that.
fn on_simulators(variants: &[Variant], named: bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in cases::all() {
        let all = case.need.contains(Need::EVERY_MODEL);
        for variant in &variants[..if all { variants.len() } else { 1 }] {
            let variant = *variant;
            let label = match all || named {
                true => format!("{}[{}]", name(case), variant.label),
                false => name(case).into(),
            };
            trials.push(Trial::ignorable_test(label, move || {
                if let Some(reason) = variant.lacks(case.need) {
                    return Ok(Completion::ignored_with(reason));
                }
                let bed = || Bed::simulated(variant.config(case.need), variant.cqe_size);
                run(case, Need::SERIAL, bed).map(|()| Completion::Completed)
            }));
        }
    }
    for case in hosts::all() {
        for variant in variants.iter().copied() {
            trials.push(Trial::test(format!("{}[{}]", case.name, variant.label), move || {
                let bed = Bed::simulated(variant.config(Need::empty()), variant.cqe_size);
                let outcome = bed.and_then(|bed| hosts::simulated(case, &bed));
                outcome.map_err(|error| error.to_string().into())
            }));
        }
    }
    trials
}

/// The real device on which cases run, with the ledger of their outcomes.
struct Real {
    here: Place,
    second: Option<Place>,
    /// The other host, if there is one.
    peer: Option<Peer>,
    ledger: Ledger,
    report: Report,
}

impl Real {
    fn open(device: &str, options: &Options) -> Result<Self, String> {
        let second = options.second.as_deref().map(find).transpose()?;
        let peer = options.peer.as_deref().map(Peer::call).transpose();
        let peer = peer.map_err(|error| error.to_string())?;
        let (here, ledger) = (find(device)?, Ledger::default());
        let guids = [here.device.guid(), here.device.sys_image_guid()];
        let report = Report::begin(options.peer.as_deref(), &guids.map(|guid| guid.to_string()));
        Ok(Self { here, second, peer, ledger, report })
    }

    /// The cases for two hosts if there is another one, else those for one, the riskiest first.
    fn trials(self: &Arc<Self>) -> Vec<Trial> {
        match &self.peer {
            Some(_) => hosts::all().map(|case| self.with_peer(case)).collect(),
            None => {
                let mut cases: Vec<_> = cases::all().collect();
                cases.sort_by_key(|case| plan::rank(name(case)));
                cases.into_iter().map(|case| self.alone(case)).collect()
            }
        }
    }

    /// Says how many cases will run, and how long they will take.
    fn announce(self: &Arc<Self>, arguments: &Arguments) -> String {
        let trials = self.trials();
        let chosen: BTreeSet<&str> = trials
            .iter()
            .filter(|trial| !arguments.is_filtered_out(trial))
            .map(Trial::name)
            .collect();
        let alone = cases::all().map(|case| (name(case), case.need));
        let with_peer = hosts::all().map(|case| (case.name, Need::empty()));
        let needs = alone.chain(with_peer).filter(|(name, _)| chosen.contains(name));
        plan::announcement(needs.map(|(_, need)| need))
    }

    fn alone(self: &Arc<Self>, case: &'static Case) -> Trial {
        self.trial(name(case), move |real| real.run(case))
    }

    fn with_peer(self: &Arc<Self>, case: &'static HostCase) -> Trial {
        self.trial(case.name, move |real| {
            let peer = real.peer.as_ref().ok_or("there is no other host")?;
            let outcome = peer.run(case, &Bed::real(real.here.clone(), None));
            outcome.map(|()| Completion::Completed).map_err(|error| error.to_string().into())
        })
    }

    /// A case whose outcome goes into the ledger.
    fn trial(
        self: &Arc<Self>,
        name: &'static str,
        run: impl FnOnce(&Self) -> Result<Completion, Failed> + Send + 'static,
    ) -> Trial {
        let real = Arc::clone(self);
        Trial::ignorable_test(name, move || {
            let start = Instant::now();
            let done = catch_unwind(AssertUnwindSafe(|| run(&real)));
            real.report.took(name, start.elapsed());
            match done {
                Ok(result) => {
                    real.ledger.note(name, Outcome::of(&result));
                    result
                }
                Err(panic) => {
                    let words = panic.downcast_ref::<String>().map(String::as_str);
                    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
                    let outcome = Outcome::Fail(words.unwrap_or("a panic").to_owned());
                    real.ledger.note(name, outcome);
                    resume_unwind(panic)
                }
            }
        })
    }

    fn run(&self, case: &Case) -> Result<Completion, Failed> {
        if let Some(reason) = lacks(&self.here, self.second.as_ref(), case.need)? {
            return Ok(Completion::ignored_with(reason));
        }
        let bed = || Ok(Bed::real(self.here.clone(), self.second.clone()));
        run(case, ALONE, bed).map(|()| Completion::Completed)
    }
}

/// Runs the suite with the options from the arguments and the environment of the process.
pub fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    let done = Options::take(&mut arguments).and_then(|options| {
        let arguments = Arguments::from_iter(arguments);
        match &options.device {
            None => {
                let trials = match options.models.as_slice() {
                    [] => on_simulators(&VARIANTS, false),
                    models => models
                        .iter()
                        .flat_map(|model| on_simulators(&variants_of(*model), true))
                        .collect(),
                };
                Ok(libtest_mimic::run(&arguments, trials).exit_code())
            }
            Some(device) => on_device(&arguments, device, &options),
        }
    });
    done.unwrap_or_else(|what| {
        eprintln!("{what}");
        ExitCode::FAILURE
    })
}

/// Runs the suite on a device that must be there.
fn on_device(arguments: &Arguments, device: &str, options: &Options) -> Result<ExitCode, String> {
    if let Some(address) = &options.serve {
        return serve(device, address);
    }
    if let Some(rounds) = options.replug {
        return replug(device, rounds)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| error.to_string());
    }
    let real = Arc::new(Real::open(device, options)?);
    if arguments.list {
        return Ok(libtest_mimic::run(arguments, real.trials()).exit_code());
    }
    let part = real.here.device.part().unwrap_or("unknown part");
    println!("running on {} ({part})", real.here.device.name());
    println!("{}", real.announce(arguments));
    let conclusion = libtest_mimic::run(arguments, real.trials());
    if let Some(path) = &options.ledger {
        let facts = ledger::facts(&real.here, real.second.as_ref())?;
        real.ledger.write(path, &facts)?;
        let link = report::link(&real.here)?;
        real.report.write(path, &facts, &link, &real.ledger.outcomes())?;
    }
    if conclusion.num_passed == 0 {
        return Err(
            "no case could run on this device: that proves nothing, and is a failure".into()
        );
    }
    Ok(conclusion.exit_code())
}

/// Serves another host on a device that must be there.
fn serve(device: &str, address: &str) -> Result<ExitCode, String> {
    let here = find(device)?;
    let served = hosts::serve(address, &Bed::real(here, None));
    let (count, failed) = served.map_err(|error| error.to_string())?;
    println!("served {count} cases, {} failed", failed.len());
    match failed.as_slice() {
        [] if count == 0 => {
            Err("no case was asked for: that proves nothing, and is a failure".into())
        }
        [] => Ok(ExitCode::SUCCESS),
        failed => Err(failed.join("\n")),
    }
}
