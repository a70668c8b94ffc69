//! The steps of the whole run, for each machine.

use super::guest::{Link, Receives, Step};
use super::initramfs::{BESIDE_PYTHON, VERBS};
use super::network;
use super::version::Version;
use crate::ledger::pyverbs;

/// Iterations of a program that polls. They are few: with one processor, each end has to wait until
/// it gets the processor.
const POLLING: &str = "-n 50";

/// Iterations of a program that sleeps until an event.
const ASLEEP: &str = "-e -n 200";

/// A program of ours that polls. It runs until a step stops it.
const POLLER: &str = "mlx5 pingpong --device mlx5_0 -n 1000000000";

/// A program of ours that sleeps until an event. It runs until a step stops it.
const SLEEPER: &str = "mlx5 pingpong --device mlx5_0 -n 1000000000 --events";

/// Machines of a run whose arguments name none: one for each kernel, alternating between the two
/// kinds of port.
const CHOICE: [(Version, Link); 4] = [
    (Version::V5_10, Link::Ib),
    (Version::V6_1, Link::Eth),
    (Version::V6_12, Link::Ib),
    (Version::Newest, Link::Eth),
];

/// Machines of a run: those that match the arguments.
pub(super) fn machines(
    version: Option<Version>,
    link: Option<Link>,
    all: bool,
) -> Vec<(Version, Link)> {
    if version.is_none() && link.is_none() && !all {
        return CHOICE.to_vec();
    }
    let every = Version::ALL.into_iter().flat_map(|version| Link::ALL.map(|link| (version, link)));
    let fits = |of: &(Version, Link)| {
        version.is_none_or(|version| version == of.0) && link.is_none_or(|link| link == of.1)
    };
    every.filter(fits).collect()
}

/// The ways in which the kernel's network interfaces receive on this kind of port: all, or only the
/// `named` one. Each way has a machine of its own.
pub(super) fn receives(link: Link, named: Option<Receives>) -> Vec<(Link, Receives)> {
    let ways: &[Receives] = match link {
        Link::Ib => &[Receives::Cyclic],
        Link::Eth => &[Receives::Cyclic, Receives::Striding, Receives::Filtered],
    };
    let wanted = ways.iter().filter(|way| named.is_none_or(|named| named == **way));
    wanted.map(|way| (link, *way)).collect()
}

/// Steps of a machine with two devices; `all` adds the steps that take long.
pub(super) fn steps(version: Version, link: Link, tests: &[String], all: bool) -> Vec<Step> {
    let mut steps = vec![
        Step::new("load", 120, "load && ready").needed(),
        Step::new("suite", 300, suite("--ledger /tmp/one")),
        Step::new("suite-two-devices", 300, suite("--second mlx5_1 --ledger /tmp/two")),
        Step::new(
            "suite-two-hosts",
            120,
            "both 'mlx5-conformance --device mlx5_1 --serve' \
             'mlx5-conformance --device mlx5_0 --peer localhost --ledger /tmp/hosts'",
        ),
        Step::new(SUITES[0].1, 20, "cat /tmp/one.json"),
        Step::new(SUITES[1].1, 20, "cat /tmp/two.json"),
        Step::new(SUITES[2].1, 20, "cat /tmp/hosts.json"),
    ];
    steps.extend(programs(link));
    steps.extend(interop(link));
    let ours = has_ours(version) && CHOICE.contains(&(version, link));
    if link == Link::Eth {
        steps.extend(network::steps(all, ours));
    }
    let modules = modules(version, link, tests);
    steps.extend(pyverbs(PYVERBS, "", &modules));
    if ours {
        steps.extend(over_ours(link, &modules));
    }
    steps.extend(removals());
    steps
}

/// Name of each suite in the ledger, and the step that prints the results of its cases.
pub(super) const SUITES: [(&str, &str); 3] = [
    ("conformance", "ledger"),
    ("conformance, two devices", "ledger-two-devices"),
    ("conformance, two hosts", "ledger-two-hosts"),
];

/// The step that runs rdma-core's tests; the ledger has a row for each test.
pub(super) const PYVERBS: &str = "pyverbs";

/// Prefix of the names of the steps that run over our libibverbs.
pub(super) const OVER_OURS: &str = "rust-";
/// The step that runs rdma-core's tests over our libibverbs.
pub(super) const PYVERBS_OVER_OURS: &str = "rust-pyverbs";

/// Whether the machines with this kernel run programs over our libibverbs. That library was linked
/// on the host, so the guest's C library must be new enough for it. Two kernels are enough for this
/// test.
pub(super) fn has_ours(version: Version) -> bool {
    matches!(version, Version::V6_1 | Version::V6_12)
}

/// Steps that run programs in C, and rdma-core's tests, over our libibverbs.
fn over_ours(link: Link, modules: &[&str]) -> Vec<Step> {
    let ours = format!("export LD_LIBRARY_PATH=/{VERBS}\n");
    let mut steps: Vec<Step> = programs(link)
        .into_iter()
        .filter(|step| step.name.starts_with("ib"))
        .map(|step| {
            let script = format!("{ours}{}", step.script);
            Step { name: format!("{OVER_OURS}{}", step.name), script, ..step }
        })
        .collect();
    steps.extend(pyverbs(PYVERBS_OVER_OURS, &ours, modules));
    steps
}

/// Number of huge pages (2 MB) to reserve for the tests that need them.
const HUGE_PAGES: u32 = 16;

/// Modules of rdma-core's tests that every machine runs, if its release of rdma-core has them and
/// its kind of port supports them. The machine that [`CHOICE`] names for a kernel runs all modules
/// that are not left out.
const SHORT: [&str; 2] = ["test_mlx5_mkey", "test_tag_matching"];

/// Modules of rdma-core's tests that no machine runs, in addition to those that the ledger leaves
/// out.
const NO_MACHINE: [(&str, &str); 5] = [
    ("test_mlx5_dmabuf", "needs a GPU"),
    ("test_mlx5_dc", "needs dynamically connected transport, which the device model has not"),
    ("test_mlx5_rdmacm", "needs dynamically connected transport, which the device model has not"),
    ("test_mlx5_dma_memcpy", "needs an engine that copies memory, which the device model has not"),
    (
        "test_mlx5_dr",
        "needs steering entries that programs write (SW steering), which the device model does not offer",
    ),
];

/// Modules left out on an InfiniBand port.
const NO_INFINIBAND: [(&str, &str); 1] =
    [("test_rdmacm", "needs an address of the port, and the machines load no IPoIB")];

/// Modules left out on an Ethernet port.
const NO_ETHERNET: [(&str, &str); 1] = [(
    "test_tag_matching",
    "needs an InfiniBand port: libmlx5 connects a tag-matching queue's command queue pair to \
         itself by LID",
)];

/// Modules of rdma-core's tests that are left out in every machine.
pub(super) fn left_out_everywhere() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    pyverbs::LEFT_OUT.iter().chain(&NO_MACHINE)
}

/// Modules left out on one kind of port.
pub(super) fn left_out_on(link: Link) -> &'static [(&'static str, &'static str)] {
    match link {
        Link::Ib => &NO_INFINIBAND,
        Link::Eth => &NO_ETHERNET,
    }
}

/// Reason why a machine does not run a module of rdma-core's tests; `None` if it may run it.
fn left_out(link: Link, module: &str) -> Option<&'static str> {
    let mut all = left_out_everywhere().chain(left_out_on(link));
    all.find(|(name, _)| *name == module).map(|(_, why)| *why)
}

/// Modules of rdma-core's tests that a machine runs.
fn modules(version: Version, link: Link, tests: &[String]) -> Vec<&str> {
    let whole = CHOICE.contains(&(version, link));
    let wanted =
        |module: &&str| (whole || SHORT.contains(module)) && left_out(link, module).is_none();
    tests.iter().map(String::as_str).filter(wanted).collect()
}

/// Runs modules of rdma-core's tests in one process, because each start of Python takes seconds.
/// Without modules there is no step, because the script runs all modules if none is named.
fn pyverbs(step: &str, before: &str, modules: &[&str]) -> Option<Step> {
    if modules.is_empty() {
        return None;
    }
    let names: Vec<String> = modules.iter().map(|module| format!("tests.{module}")).collect();
    let script = format!(
        "{before}export PATH=/{BESIDE_PYTHON}:$PATH\n\
         echo {HUGE_PAGES} >/proc/sys/vm/nr_hugepages\n\
         python3 tests/run_tests.py --dev mlx5_0 -v {}",
        names.join(" ")
    );
    Some(Step::new(step, 300, script))
}

fn suite(options: &str) -> String {
    format!("mlx5-conformance --device mlx5_0 {options}")
}

/// Steps that run our programs, and those of rdma-core and perftest, of which most run in pairs.
fn programs(link: Link) -> Vec<Step> {
    let layer = match link {
        Link::Ib => "InfiniBand",
        Link::Eth => "Ethernet",
    };
    // rdma-core's programs and perftest's take the index of a GID in the port's table. RoCE
    // requires one.
    let (example, perftest) = match link {
        Link::Ib => ("", ""),
        Link::Eth => ("-g $(gid_index HCA)", "-x $(gid_index HCA)"),
    };
    let pair = |name: &str, program: &str, gid: &str| {
        let end = |hca: &str| format!("{program} -d mlx5_{hca} {}", gid.replace("HCA", hca));
        let script = format!("both \"{}\" \"{} localhost\"", end("0"), end("1"));
        Step::new(name, 60, script)
    };
    let mut steps = vec![
        Step::new("mlx5-list", 20, "mlx5 list && mlx5 list | grep mlx5_1"),
        Step::new(
            "mlx5-info",
            20,
            format!("mlx5 info -v --device mlx5_0 | tee /tmp/info && grep -q {layer} /tmp/info"),
        ),
        Step::new("mlx5-pingpong", 60, "mlx5 pingpong --device mlx5_0 -n 100 --events"),
        Step::new("mlx5-perf", 60, "mlx5 perf --device mlx5_0 --sizes 8..4k --iters 100"),
        Step::new("mlx5-dump", 30, "mlx5 dump --live --device mlx5_0"),
        Step::new(
            "ibv_devices",
            20,
            "ibv_devices | tee /tmp/devices && grep -q mlx5_1 /tmp/devices",
        ),
        Step::new(
            "ibv_devinfo",
            20,
            format!(
                "ibv_devinfo -v | tee /tmp/devinfo && grep -q PORT_ACTIVE /tmp/devinfo && \
                 grep -q {layer} /tmp/devinfo"
            ),
        ),
    ];
    for (name, more) in [("", POLLING), ("-events", ASLEEP)] {
        for transport in ["rc", "uc", "ud", "srq"] {
            // The pingpong for shared receive queues has the option to check data only since
            // rdma-core 44, and one kernel runs with rdma-core 33.
            let check = if transport == "srq" { "" } else { "-c" };
            let program = format!("ibv_{transport}_pingpong {check} {more} -s 1024");
            steps.push(pair(&format!("ibv_{transport}_pingpong{name}"), &program, example));
        }
    }
    for (name, program) in [
        ("ib_send_lat", "ib_send_lat -F -n 50 -s 64"),
        ("ib_send_lat-ud", "ib_send_lat -F -c UD -n 50 -s 64"),
        ("ib_write_bw-q4", "ib_write_bw -F -q 4 -n 100 -s 4096"),
        ("ib_read_lat", "ib_read_lat -F -n 50 -s 4096"),
        ("ib_atomic_lat", "ib_atomic_lat -F -n 50"),
    ] {
        steps.push(pair(name, program, perftest));
    }
    steps
}

/// Steps that connect our pingpong and rdma-core's. Each of the two is the client once, and the
/// server once.
fn interop(link: Link) -> Vec<Step> {
    let gid = match link {
        Link::Ib => "",
        Link::Eth => "-g $(gid_index HCA)",
    };
    let mut steps = Vec::new();
    for (name, more) in [("", POLLING), ("-events", ASLEEP)] {
        for transport in ["rc", "uc", "ud"] {
            for size in [1, 1024] {
                let theirs = |hca: &str| {
                    let gid = gid.replace("HCA", hca);
                    format!("ibv_{transport}_pingpong -c -s {size} {more} -d mlx5_{hca} {gid}")
                };
                let ours = |hca: &str| {
                    format!(
                        "mlx5 pingpong --ibv -t {transport} --size {size} {more} --device mlx5_{hca}"
                    )
                };
                let step = |name: String, server: String, client: String| {
                    Step::new(name, 60, format!("both \"{server}\" \"{client}\""))
                };
                steps.push(step(
                    format!("interop-{transport}-{size}{name}-c-serves"),
                    theirs("0"),
                    format!("{} --connect localhost", ours("1")),
                ));
                steps.push(step(
                    format!("interop-{transport}-{size}{name}-c-calls"),
                    format!("{} --listen", ours("0")),
                    format!("{} localhost", theirs("1")),
                ));
            }
        }
    }
    // A message of many packets.
    let theirs =
        format!("ibv_rc_pingpong -c -s 65536 {ASLEEP} -d mlx5_0 {}", gid.replace("HCA", "0"));
    let ours =
        format!("mlx5 pingpong --ibv --size 64k {ASLEEP} --device mlx5_1 --connect localhost");
    steps.push(Step::new(
        "interop-rc-64k-events-c-serves",
        60,
        format!("both \"{theirs}\" \"{ours}\""),
    ));
    steps
}

/// Steps that kill processes, and remove drivers and devices, while they are in use.
fn removals() -> Vec<Step> {
    let killed = |name: &str, program: &str| {
        Step::new(name, 60, format!("killed \"{program}\" && ours_works"))
    };
    let removed = |name: &str, program: &str, what: &str| {
        Step::new(name, 60, format!("removed '{program}' take_{what} give_{what}"))
    };
    let replugged =
        |name: &str, what: &str| Step::new(name, 240, format!("replugged take_{what} give_{what}"));
    vec![
        killed("kill-poller", POLLER),
        killed("kill-sleeper", SLEEPER),
        killed("kill-datagrams", "mlx5 pingpong --device mlx5_0 -t ud -n 1000000000"),
        Step::new("kill-peer", 60, "peer_killed"),
        removed("rmmod-while-polling", POLLER, "driver"),
        removed("rmmod-while-asleep", SLEEPER, "driver"),
        removed("unplug-while-polling", POLLER, "function"),
        replugged("rmmod-again-and-again", "driver"),
        replugged("unplug-again-and-again", "function"),
        Step::new("reload", 120, "unload && load && ready && ours_works && ibv_devinfo"),
        Step::new("unload", 60, "unload"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: [&str; 5] =
        ["test_efadv", "test_mlx5_mkey", "test_pd", "test_rdmacm", "test_tag_matching"];

    fn run(version: Version, link: Link) -> Vec<String> {
        let tests = TESTS.map(str::to_owned);
        modules(version, link, &tests).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_run_without_a_name_has_every_kernel_and_both_kinds_of_port() {
        let chosen = machines(None, None, false);
        assert!(Version::ALL.iter().all(|version| chosen.iter().any(|(of, _)| of == version)));
        assert!(Link::ALL.iter().all(|link| chosen.iter().any(|(_, of)| of == link)));
        assert_eq!(machines(None, None, true).len(), Version::ALL.len() * Link::ALL.len());
        let named = machines(Some(Version::V5_10), None, false);
        assert_eq!(named, [(Version::V5_10, Link::Ib), (Version::V5_10, Link::Eth)]);
        assert_eq!(machines(None, Some(Link::Ib), false).len(), Version::ALL.len());
    }

    #[test]
    fn ethernet_has_a_machine_of_each_configuration() {
        let all = [Receives::Cyclic, Receives::Striding, Receives::Filtered];
        let [cyclic, striding, _] = all;
        assert_eq!(receives(Link::Ib, None), [(Link::Ib, cyclic)]);
        assert_eq!(receives(Link::Eth, None), all.map(|receives| (Link::Eth, receives)));
        assert_eq!(receives(Link::Eth, Some(striding)), [(Link::Eth, striding)]);
        assert_eq!(receives(Link::Ib, Some(striding)), []);
    }

    #[test]
    fn every_machine_runs_the_tests_of_memory_keys_and_one_of_each_kernel_what_it_can() {
        let all = ["test_mlx5_mkey", "test_pd", "test_tag_matching"];
        assert_eq!(run(Version::V5_10, Link::Ib), all);
        assert_eq!(run(Version::V5_10, Link::Eth), all[..1]);
        assert_eq!(run(Version::V6_1, Link::Eth), [all[0], all[1], "test_rdmacm"]);
        assert_eq!(run(Version::V6_1, Link::Ib), [all[0], all[2]]);
    }

    #[test]
    fn a_release_without_a_test_to_run_has_no_step_that_would_run_all() {
        let tests = ["test_pd".to_owned()];
        let names = |link| {
            let steps = steps(Version::V5_10, link, &tests, false);
            steps
                .iter()
                .filter(|step| step.name == PYVERBS)
                .map(|step| step.script.clone())
                .collect()
        };
        let [ib, eth]: [Vec<String>; 2] = [names(Link::Ib), names(Link::Eth)];
        assert!(ib.len() == 1 && ib[0].ends_with(" tests.test_pd"), "{ib:?}");
        assert_eq!(eth, [""; 0]);
    }
}
