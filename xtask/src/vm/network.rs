//! Steps for the kernel's network interfaces and for its connection manager.

use super::filters::{self, Keeper};
use super::guest::Step;
use super::initramfs::VERBS;

/// Our own client and server for the connection manager's programs (`cm/examples/peer`).
pub(super) const PEER: &str = "peer";

/// The example that answers TCP without the kernel (`examples/ethernet/http_server.rs`).
pub(super) const HTTP_SERVER: &str = "http_server";

/// A step between two namespaces; it creates them if no earlier step did.
fn step(name: &str, seconds: u64, script: &str) -> Step {
    let before = ". /guest/network.sh\nis_apart || apart || exit 1";
    Step::new(name, seconds, format!("{before}\n{script}"))
}

/// The step after which the wire has carried the frames that [`super::capture`] expects.
pub(super) const LAST_OF_TRAFFIC: &str = "net-jumbo";

/// The VLAN whose frames the wire carries.
pub(super) const VLAN: u16 = 5;

/// The step that moves a hundred megabytes; it takes longer than all others together.
pub(super) const HUNDRED_MEGABYTES: &str = "net-hundred-megabytes";

fn long() -> Step {
    step(
        HUNDRED_MEGABYTES,
        600,
        "repeated && remember && moved 0 1 10.9.0.2 /tmp/hundred &&
        counted 0 tx_tso_bytes -ge 90000000 && counted 0 tx_csum_none -le 20 &&
        counted 1 rx_vport_unicast_packets -ge 69000 && counted 1 rx_csum_none -le 20 && no_errors",
    )
}

fn ping() -> Step {
    step(
        "net-ping",
        60,
        "remember
        inside 0 ping -A -c 5 -w 10 10.9.0.2 && inside 1 ping -A -c 5 -w 10 10.9.0.1 &&
        inside 0 ping -A -c 5 -w 10 fd09:0::2 && inside 0 ping -A -c 5 -w 10 -s 8000 10.9.0.2 &&
        counted 1 rx_csum_complete -ge 10 && counted 1 rx_csum_none -le 20 && no_errors",
    )
}

/// Steps in which the kernel's TCP/IP checks the devices. `all` adds those that take long.
fn traffic(all: bool) -> Vec<Step> {
    let mut steps = vec![
        ping(),
        // The engine computes the checksums and cuts the segments, and the other end gets frames of
        // at most 1514 bytes. The kernel decides how much data the engine cuts: data that a program
        // writes in small pieces goes out in packets of one segment.
        step(
            "net-tcp",
            120,
            "remember
            moved 0 1 10.9.0.2 /tmp/ten && moved 1 0 fd09:0::1 /tmp/two &&
            counted 0 tx_tso_bytes -ge 5000000 && counted 1 tx_tso_bytes -ge 200000 && counted 0 tx_csum_none -le 20 &&
            counted 0 tx_vport_unicast_packets -ge 6900 && counted 1 rx_vport_unicast_packets -ge 6900 &&
            counted 1 rx_csum_complete -ge 6900 && counted 1 rx_csum_none -le 20 && no_errors",
        ),
        step(
            "net-tcp-without-offloads",
            120,
            "both_ends ethtool -K INTERFACE tx off rx off tso off gso off gro off && remember &&
            moved 0 1 10.9.0.2 /tmp/two &&
            counted 0 tx_tso_packets -eq 0 && counted 0 tx_csum_partial -eq 0 &&
            counted 1 rx_csum_none -ge 1380 && no_errors &&
            both_ends ethtool -K INTERFACE tx on rx on tso on gso on gro on",
        ),
        // The same with a widely used benchmark.
        step(
            "net-iperf3",
            120,
            "remember && streamed 0 1 10.9.0.2 10M &&
            counted 0 tx_tso_bytes -ge 5000000 && counted 0 tx_csum_none -le 20 &&
            counted 0 tx_vport_unicast_packets -ge 6900 && counted 1 rx_vport_unicast_packets -ge 6900 &&
            counted 1 rx_csum_complete -ge 6900 && counted 1 rx_csum_none -le 20 && no_errors",
        ),
        step(
            "net-iperf3-without-offloads",
            120,
            "both_ends ethtool -K INTERFACE tx off rx off tso off gso off gro off && remember &&
            streamed 0 1 10.9.0.2 3M &&
            counted 0 tx_tso_packets -eq 0 && counted 0 tx_csum_partial -eq 0 &&
            counted 0 tx_vport_unicast_packets -ge 1900 && counted 1 rx_csum_none -ge 1900 && no_errors &&
            both_ends ethtool -K INTERFACE tx on rx on tso on gso on gro on",
        ),
        step("net-capture", 120, "captured"),
        step("net-vlan", 120, VLANS),
        step(
            LAST_OF_TRAFFIC,
            120,
            "both_ends ip link set INTERFACE mtu 9000 && wait_for 20 carried 0 && wait_for 20 carried 1 &&
            remember && inside 0 ping -A -c 5 -w 10 -s 8900 10.9.0.2 &&
            moved 0 1 10.9.0.2 /tmp/ten &&
            counted 0 tx_tso_bytes -ge 5000000 && counted 1 rx_csum_none -le 20 &&
            counted 1 rx_vport_unicast_packets -le 3000 && no_errors &&
            both_ends ip link set INTERFACE mtu 1500",
        ),
    ];
    steps.extend(all.then(long));
    steps
}

/// Prefix of the steps' names in machines with strides.
pub(super) const STRIDING: &str = "striding-";

/// Steps of a machine whose network interfaces have striding receive queues.
pub(super) fn striding_steps(all: bool) -> Vec<Step> {
    let mut steps = vec![
        Step::new("load", 120, "load && ready").needed(),
        step("net-strides", 60, "both_stride on"),
    ];
    steps.extend(traffic(all));
    steps.push(step("net-strides-of-64-bytes", 120, FILLED));
    steps.push(step("net-strides-off-and-on", 120, SWITCHED));
    steps.push(step("net-together", 60, "together"));
    steps.push(Step::new("unload", 60, "unload"));
    named(STRIDING, steps)
}

/// Prefix of the steps' names in machines with virtual functions.
pub(super) const FILTERED: &str = "filtered-";

/// Steps of a machine whose devices give an interface only frames for the addresses that its driver
/// has listed. Resolving an IPv4 address needs broadcast, and resolving an IPv6 address needs
/// multicast.
pub(super) fn filtered_steps() -> Vec<Step> {
    let mut steps = vec![Step::new("load", 120, "load && ready").needed(), ping()];
    steps.extend(filters::scripts(Keeper::Switch).map(|(name, script)| step(name, 180, &script)));
    steps.push(step("net-together", 60, "together"));
    steps.push(Step::new("unload", 60, "unload"));
    named(FILTERED, steps)
}

/// The same steps with a prefix that names the machine.
fn named(before: &str, steps: Vec<Step>) -> Vec<Step> {
    let named = |step: Step| Step { name: format!("{before}{}", step.name), ..step };
    steps.into_iter().map(named).collect()
}

/// A long frame takes many strides and does not cross the end of a receive buffer: the rest of that
/// buffer is skipped. A frame of 1500 bytes takes one stride.
const FILLED: &str = "\
    remember && moved 0 1 10.9.0.2 /tmp/ten && counted 1 rx_mpwqe_filler_cqes -eq 0 && no_errors || exit 1
    both_ends ip link set INTERFACE mtu 9000 && wait_for 20 carried 0 && wait_for 20 carried 1 && remember &&
        moved 0 1 10.9.0.2 /tmp/ten && counted 1 rx_mpwqe_filler_cqes -ge 20 &&
        counted 1 rx_mpwqe_filler_strides -ge 20 && no_errors || exit 1
    both_ends ip link set INTERFACE mtu 1500 && wait_for 20 carried 0 && wait_for 20 carried 1";

/// Switches between the two kinds of receive queue.
const SWITCHED: &str = "\
    for turn in off on; do
        both_ends ethtool --set-priv-flags INTERFACE rx_striding_rq $turn && both_stride $turn &&
            wait_for 20 carried 0 && wait_for 20 carried 1 && remember &&
            moved 0 1 10.9.0.2 /tmp/two && moved 1 0 fd09:0::1 /tmp/two && no_errors || exit 1
    done";

/// Steps of a machine with Ethernet ports. They end with the interfaces in the namespace where they
/// started. `all` adds those that take long, `ours` those in which one side runs over our
/// libibverbs.
pub(super) fn steps(all: bool, ours: bool) -> Vec<Step> {
    let mut steps = traffic(all);
    steps.extend(filters::scripts(Keeper::Tables).map(|(name, script)| step(name, 180, &script)));
    steps.push(step(
        "net-http",
        120,
        "served 'http_server mlx5_1 --mac 02:00:00:00:09:09 --ip 10.9.0.9/24' 10.9.0.9",
    ));
    for one in MANAGED {
        steps.push(one.step("", "", ""));
    }
    for one in MANAGED {
        let Managed { name, server, client, .. } = one;
        let [ours_serves, ours_calls] = ["server", "client"].map(|side| one.ours(side));
        let pair = |which: &str, server: &str, client: &str| {
            let script = format!("managed '{server}' '{client}'");
            step(&format!("{name}-{PEER}-{which}"), 60, &script)
        };
        steps.push(pair("serves", &ours_serves, client));
        steps.push(pair("calls", server, &ours_calls));
    }
    // The client gives up if the server takes longer than a second to listen for the second
    // connection.
    steps.push(step(
        "ib_write_bw-R",
        300,
        "for attempt in 1 2 3 4 5; do
            managed 'ib_write_bw -R -F -n 20' 'ib_write_bw -R -F -n 20 10.9.0.2' >/tmp/attempt && break
            cat /tmp/attempt
        done
        cat /tmp/attempt && [ $(grep -c '65536      20' /tmp/attempt) -eq 2 ]",
    ));
    if ours {
        let ours = format!("LD_LIBRARY_PATH=/{VERBS} ");
        for one in MANAGED {
            steps.push(one.step("-ours-serves", &ours, ""));
            steps.push(one.step("-ours-calls", "", &ours));
        }
    }
    steps.push(step("net-together", 120, "together && ours_works"));
    steps
}

/// The device inserts and removes the tag, then the kernel does.
const VLANS: &str = "\
    for end in 0 1; do
        inside $end ip link add link \"$(interface $end)\" name vlan5 type vlan id 5 &&
            addressed_as vlan5 $end 5 && inside $end ip link set vlan5 up || exit 1
    done
    remember
    inside 0 ping -A -c 5 -w 10 10.9.5.2 && inside 0 ping -A -c 5 -w 10 fd09:5::2 &&
        moved 0 1 10.9.5.2 /tmp/two &&
        counted 0 tx_added_vlan_packets -ge 10 && counted 1 rx_removed_vlan_packets -ge 1380 &&
        counted 1 rx_csum_none -le 20 && no_errors || exit 1
    both_ends ethtool -K INTERFACE rxvlan off txvlan off && remember &&
        inside 0 ping -A -c 5 -w 10 10.9.5.2 && moved 0 1 10.9.5.2 /tmp/two &&
        counted 1 rx_removed_vlan_packets -eq 0 && counted 1 rx_csum_none -le 20 && no_errors &&
        both_ends ethtool -K INTERFACE rxvlan on txvlan on || exit 1
    for end in 0 1; do inside $end ip link del vlan5 || exit 1; done";

/// A program of rdma-core whose client connects to its own server.
#[derive(Clone, Copy)]
struct Managed {
    name: &'static str,
    server: &'static str,
    client: &'static str,
    port: u16,
}

/// Programs that use the kernel's connection manager.
const MANAGED: [Managed; 3] = [
    Managed {
        name: "rping",
        server: "rping -s -a 10.9.0.2 -C 10 -V",
        client: "rping -c -a 10.9.0.2 -C 10 -V",
        port: 7174,
    },
    Managed {
        name: "ucmatose",
        server: "ucmatose -b 10.9.0.2",
        client: "ucmatose -b 10.9.0.1 -s 10.9.0.2",
        port: 7471,
    },
    Managed {
        name: "udaddy",
        server: "udaddy -b 10.9.0.2",
        client: "udaddy -b 10.9.0.1 -s 10.9.0.2",
        port: 7174,
    },
];

impl Managed {
    /// The step that runs client and server, each with assignments before its command.
    fn step(self, which: &str, for_server: &str, for_client: &str) -> Step {
        let Self { name, server, client, .. } = self;
        let script = format!("managed '{for_server}{server}' '{for_client}{client}'");
        step(&format!("{name}{which}"), 60, &script)
    }

    /// Our program for one side.
    fn ours(self, side: &str) -> String {
        let Self { name, port, .. } = self;
        format!("{PEER} {name} {side} 10.9.0.2 --port {port} --count 10")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Otherwise only a machine would find a mistake in a script.
    #[test]
    fn every_script_is_one_that_a_shell_understands() {
        let common = [
            ("network.sh".into(), include_str!("guest/network.sh").into()),
            ("filters.sh".into(), include_str!("guest/filters.sh").into()),
        ];
        let steps =
            steps(true, true).into_iter().chain(striding_steps(true)).chain(filtered_steps());
        let scripts = steps.map(|step| (step.name, step.script));
        for (name, script) in scripts.chain(common) {
            let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn();
            let shell = shell.as_mut().expect("a shell");
            let mut into = shell.stdin.take().expect("it is piped");
            into.write_all(script.as_bytes()).expect("the shell reads");
            drop(into);
            assert!(shell.wait().expect("the shell ends").success(), "{name}:\n{script}");
        }
    }

    #[test]
    fn every_step_has_a_name_and_the_last_one_brings_the_interfaces_back() {
        let steps = steps(true, true);
        let others = [(STRIDING, striding_steps(true)), (FILTERED, filtered_steps())];
        let all = || steps.iter().chain(others.iter().flat_map(|(_, steps)| steps));
        let names: BTreeSet<&str> = all().map(|step| step.name.as_str()).collect();
        assert_eq!(names.len(), all().count());
        assert!(names.contains(LAST_OF_TRAFFIC));
        // The step's name is all that identifies the machine in the ledger's rows.
        for (before, others) in &others {
            assert!(others.iter().all(|step| step.name.starts_with(before)));
            assert!(steps.iter().all(|step| !step.name.starts_with(before)));
        }
        let last = steps.last().expect("a step");
        assert!(last.script.contains("\ntogether &&"), "{}", last.script);
    }
}
