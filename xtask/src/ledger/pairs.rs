//! Pairs of programs that send to each other on one simulated machine: rdma-core's, perftest's,
//! UCX's, ours.

use std::path::Path;
use std::time::{Duration, Instant};

use super::door::{DEVICE, Door, Ended, Link, SECOND, is_listened_to};
use super::rows::{MACHINE, Outcome, Reason, Row};
use super::suites::{INTEROP, PERFTEST, PINGPONG, UCX};
use crate::build::{self, Profile};
use crate::failure::Failure;
use crate::provider::Provider;
use crate::wire::Host;

/// Time limit of either program.
const SECONDS: u32 = 120;
/// Time limit until the first program waits for the second, and the interval of the checks.
const WAIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// TCP port of the first pair; each pair has a port of its own.
const FIRST_PORT: u16 = 18600;

/// A program and its arguments in one line. `DEVICE` stands for the device, `SECOND` for another
/// device on the same wire, `PORT` for the TCP port of the pair, and `GID` for the option with the
/// index of a GID, where the link needs one.
type Line = &'static str;

/// Two programs.
struct Pair {
    suite: &'static str,
    test: &'static str,
    server: Line,
    client: Line,
    /// Text that the client prints if the run succeeded.
    said: &'static str,
}

macro_rules! pairs {
    ($($suite:ident { $($test:literal: $server:literal, $client:literal, $said:literal;)* })*) => {
        &[$($(Pair {
            suite: $suite,
            test: $test,
            server: $server,
            client: $client,
            said: $said,
        }),*),*]
    };
}

/// Pairs of perftest: the same program with the same options on either side. The second literal has
/// further options that are not part of the name.
macro_rules! perftest {
    ($($test:literal $more:literal, $said:literal;)*) => {
        &[$(Pair {
            suite: PERFTEST,
            test: $test,
            server: concat!($test, " ", $more, " -F -d DEVICE -p PORT"),
            client: concat!($test, " ", $more, " -F -d DEVICE -p PORT localhost"),
            said: $said,
        }),*]
    };
}

/// perftest does not check the data that arrives, but it ends only if all of it does.
#[rustfmt::skip]
const PERFTEST_PAIRS: &[Pair] = perftest! {
    "ib_send_lat" "-n 500", "t_typical";
    "ib_send_lat -c UC" "-n 500", "t_typical";
    "ib_send_lat -c UD" "-n 500", "t_typical";
    "ib_send_lat -c XRC" "-n 500", "t_typical";
    "ib_send_lat --use-srq" "-n 500", "t_typical";
    "ib_send_lat -a" "-n 20", "8388608";
    "ib_send_lat --use_old_post_send" "-n 500", "t_typical";
    "ib_send_lat -I 0 -s 64" "-n 500", "t_typical";
    "ib_send_lat -I 64 -s 64" "-n 500", "t_typical";
    "ib_send_lat -m 512 -s 4096" "-n 500", "t_typical";
    "ib_send_lat -r 16" "-n 500", "t_typical";
    "ib_send_lat -H" "-n 500", "t_typical";
    "ib_send_lat -D 1" "", "t_avg";
    "ib_write_lat" "-n 500", "t_typical";
    "ib_write_lat -c UC" "-n 500", "t_typical";
    "ib_write_lat -c XRC" "-n 500", "t_typical";
    "ib_write_lat -I 0 -s 64" "-n 500", "t_typical";
    "ib_write_lat --use_old_post_send" "-n 500", "t_typical";
    "ib_write_lat -a" "-n 20", "8388608";
    "ib_read_lat" "-n 500", "t_typical";
    "ib_read_lat -c XRC" "-n 500", "t_typical";
    "ib_read_lat -o 1" "-n 500", "t_typical";
    "ib_atomic_lat" "-n 500", "t_typical";
    "ib_atomic_lat -A CMP_AND_SWAP" "-n 500", "t_typical";
    "ib_atomic_lat -c XRC" "-n 500", "t_typical";
    "ib_read_lat -a" "-n 20", "8388608";
    "ib_send_bw" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -c UC" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -c UD -s 1024" "-n 1000", "BW average";
    "ib_send_bw -c XRC" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -q 4" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -q 4 -e" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -q 4 --use-srq" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -b" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -b -q 4 -c UD -s 1024" "-n 1000", "BW average";
    "ib_send_bw -l 8" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -l 8 --recv_post_list 8" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -Q 8" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -Q 1 -e" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -t 16 -r 32" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -m 512" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -I 64 -s 64" "-n 1000", "BW average";
    "ib_send_bw --inline_recv 64 -s 64" "-n 1000", "BW average";
    "ib_send_bw --use_old_post_send" "-n 1000 -s 4096", "BW average";
    "ib_send_bw --mr_per_qp -q 4" "-n 1000 -s 4096", "BW average";
    "ib_send_bw --reversed" "-n 1000 -s 4096", "BW average";
    "ib_send_bw --report-both -b" "-n 1000 -s 4096", "BW average";
    "ib_send_bw -a" "-n 20", "8388608";
    "ib_send_bw -D 1" "-s 4096", "BW average";
    "ib_write_bw" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -c UC" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -c XRC" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -q 4" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -q 4 -b" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -l 8" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -Q 8" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -t 16" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -I 64 -s 64" "-n 1000", "BW average";
    "ib_write_bw --use_old_post_send" "-n 1000 -s 4096", "BW average";
    "ib_write_bw --disable_pcie_relaxed" "-n 1000 -s 4096", "BW average";
    "ib_write_bw --rate_limit 1 --rate_limit_type SW" "-n 1000 -s 4096", "BW average";
    "ib_write_bw -a" "-n 20", "8388608";
    "ib_write_bw -D 1" "-s 4096", "BW average";
    "ib_read_bw" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -c XRC" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -q 4" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -e" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -o 1" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -b" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -l 8" "-n 1000 -s 4096", "BW average";
    "ib_read_bw -a" "-n 5", "8388608";
    "ib_atomic_bw" "-n 1000", "BW average";
    "ib_atomic_bw -A CMP_AND_SWAP" "-n 1000", "BW average";
    "ib_atomic_bw -c XRC" "-n 1000", "BW average";
    "ib_atomic_bw -q 4" "-n 1000", "BW average";
    "ib_atomic_bw -e" "-n 1000", "BW average";
    "ib_atomic_bw -b" "-n 1000", "BW average";
};

/// All other pairs. The programs of rdma-core check the received data with `-c`. UCX drives the
/// queues itself, from the addresses that `mlx5dv_init_obj` returns.
#[rustfmt::skip]
const PAIRS: &[Pair] = pairs! {
    PINGPONG {
        "ibv_rc_pingpong": "ibv_rc_pingpong -c -d DEVICE -p PORT GID", "ibv_rc_pingpong -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_rc_pingpong -e": "ibv_rc_pingpong -e -c -d DEVICE -p PORT GID", "ibv_rc_pingpong -e -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_rc_pingpong -t": "ibv_rc_pingpong -t -d DEVICE -p PORT GID", "ibv_rc_pingpong -t -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_rc_pingpong -N": "ibv_rc_pingpong -N -c -d DEVICE -p PORT GID", "ibv_rc_pingpong -N -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_rc_pingpong -j": "ibv_rc_pingpong -j -c -d DEVICE -p PORT GID", "ibv_rc_pingpong -j -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_uc_pingpong": "ibv_uc_pingpong -c -d DEVICE -p PORT GID", "ibv_uc_pingpong -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_uc_pingpong -e": "ibv_uc_pingpong -e -c -d DEVICE -p PORT GID", "ibv_uc_pingpong -e -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_ud_pingpong": "ibv_ud_pingpong -c -d DEVICE -p PORT GID", "ibv_ud_pingpong -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_ud_pingpong -e": "ibv_ud_pingpong -e -c -d DEVICE -p PORT GID", "ibv_ud_pingpong -e -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_srq_pingpong": "ibv_srq_pingpong -c -d DEVICE -p PORT GID", "ibv_srq_pingpong -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_srq_pingpong -e": "ibv_srq_pingpong -e -c -d DEVICE -p PORT GID", "ibv_srq_pingpong -e -c -d DEVICE -p PORT GID localhost", "1000 iters";
        "ibv_xsrq_pingpong": "ibv_xsrq_pingpong -d DEVICE -p PORT GID", "ibv_xsrq_pingpong -d DEVICE -p PORT GID localhost", "success";
        "ibv_xsrq_pingpong -e": "ibv_xsrq_pingpong -e -d DEVICE -p PORT GID", "ibv_xsrq_pingpong -e -d DEVICE -p PORT GID localhost", "success";
    }
    UCX {
        "ucx_perftest -t tag_lat, UCX_TLS=rc_x": "env UCX_TLS=rc_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT", "env UCX_TLS=rc_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT -t tag_lat -n 500 -w 10 localhost", "Final:";
        "ucx_perftest -t tag_bw -s 65536, UCX_TLS=rc_x": "env UCX_TLS=rc_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT", "env UCX_TLS=rc_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT -t tag_bw -s 65536 -n 100 -w 10 localhost", "Final:";
        "ucx_perftest -t ucp_put_lat, UCX_TLS=rc_x": "env UCX_TLS=rc_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT", "env UCX_TLS=rc_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT -t ucp_put_lat -n 500 -w 10 localhost", "Final:";
        "ucx_perftest -t tag_lat, UCX_TLS=ud_x": "env UCX_TLS=ud_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT", "env UCX_TLS=ud_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT -t tag_lat -n 500 -w 10 localhost", "Final:";
        "ucx_perftest -t tag_bw -s 4096, UCX_TLS=ud_x": "env UCX_TLS=ud_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT", "env UCX_TLS=ud_x UCX_NET_DEVICES=DEVICE:1 ucx_perftest -p PORT -t tag_bw -s 4096 -n 200 -w 10 localhost", "Final:";
    }
    INTEROP {
        "mlx5 pingpong, ibv_rc_pingpong": "ibv_rc_pingpong -c -n 500 -d DEVICE -p PORT GID", "mlx5 pingpong --ibv -n 500 -d DEVICE --connect localhost:PORT", "every byte verified";
        "ibv_rc_pingpong, mlx5 pingpong": "mlx5 pingpong --ibv -n 500 -d DEVICE --listen 0.0.0.0:PORT", "ibv_rc_pingpong -c -n 500 -d DEVICE -p PORT GID localhost", "500 iters";
        "mlx5 pingpong, ibv_uc_pingpong": "ibv_uc_pingpong -c -n 500 -d DEVICE -p PORT GID", "mlx5 pingpong --ibv -t uc -n 500 -d DEVICE --connect localhost:PORT", "every byte verified";
        "ibv_uc_pingpong, mlx5 pingpong": "mlx5 pingpong --ibv -t uc -n 500 -d DEVICE --listen 0.0.0.0:PORT", "ibv_uc_pingpong -c -n 500 -d DEVICE -p PORT GID localhost", "500 iters";
        "mlx5 pingpong, ibv_ud_pingpong": "ibv_ud_pingpong -c -n 500 -s 1024 -d DEVICE -p PORT GID", "mlx5 pingpong --ibv -t ud -s 1024 -n 500 -d DEVICE --connect localhost:PORT", "every byte verified";
        "ibv_ud_pingpong, mlx5 pingpong": "mlx5 pingpong --ibv -t ud -s 1024 -n 500 -d DEVICE --listen 0.0.0.0:PORT", "ibv_ud_pingpong -c -n 500 -s 1024 -d DEVICE -p PORT GID localhost", "500 iters";
        "mlx5 pingpong -e, ibv_rc_pingpong -e": "ibv_rc_pingpong -e -c -n 500 -d DEVICE -p PORT GID", "mlx5 pingpong --ibv -e -n 500 -d DEVICE --connect localhost:PORT", "every byte verified";
        "mlx5 pingpong, mlx5 pingpong": "mlx5 pingpong -d DEVICE --listen 0.0.0.0:PORT", "mlx5 pingpong -n 500 -d DEVICE --connect localhost:PORT", "every byte verified";
        "mlx5 perf, mlx5 perf": "mlx5 perf -d DEVICE --listen 0.0.0.0:PORT", "mlx5 perf -n 100 -s 8,4k -d DEVICE --connect localhost:PORT", "   4k ";
        "mlx5 perf --op write, mlx5 perf": "mlx5 perf -d DEVICE --listen 0.0.0.0:PORT", "mlx5 perf --op write -n 100 -s 8,4k -d DEVICE --connect localhost:PORT", "   4k ";
    }
};

/// perftest's programs for raw packets, which run on Ethernet alone. They have no connection beside
/// the frames: the server is ready when it prints the head of its table. No frame is sent again, so
/// each program posts receives for all of them. A flow rule needs no peer.
#[rustfmt::skip]
const RAW_PAIRS: &[Pair] = pairs! {
    PERFTEST {
        "raw_ethernet_lat": "raw_ethernet_lat -d DEVICE -F --server -n 100 -B 24:8a:07:a5:28:c8 -E 24:8a:07:a5:28:c9", "raw_ethernet_lat -d SECOND -F --client -n 100 -B 24:8a:07:a5:28:c9 -E 24:8a:07:a5:28:c8", "t_typical";
        "raw_ethernet_bw": "raw_ethernet_bw -d DEVICE -F --server -n 400 -r 512 -B 24:8a:07:a5:28:c8 -E 24:8a:07:a5:28:c9", "raw_ethernet_bw -d SECOND -F --client -n 400 -B 24:8a:07:a5:28:c9 -E 24:8a:07:a5:28:c8", "BW average";
        "raw_ethernet_bw -J -j -K -k": "raw_ethernet_bw -d DEVICE -F --server -n 400 -r 512 -s 1500 -B 24:8a:07:a5:28:c8 -E 24:8a:07:a5:28:c9 -J 192.0.2.2 -j 192.0.2.1 -K 2000 -k 3000", "raw_ethernet_bw -d SECOND -F --client -n 400 -s 1500 -B 24:8a:07:a5:28:c9 -E 24:8a:07:a5:28:c8 -J 192.0.2.2 -j 192.0.2.1 -K 2000 -k 3000", "BW average";
        "raw_ethernet_fs_rate": "true", "raw_ethernet_fs_rate -d DEVICE -F --server -n 100 -B 24:8a:07:a5:28:c8 -E 24:8a:07:a5:28:c9 -J 192.0.2.2 -j 192.0.2.1 -K 2000 -k 3000", "fs_typical_time";
    }
};

/// Text that the server of a pair of raw packets prints once it is ready.
const READY: &str = "#bytes";

/// Programs that are left out, and why.
pub(super) const LEFT_OUT: [(&str, &str); 5] = [
    (
        "ib_send_lat -e",
        "fails by chance wherever it runs: perftest 4.5 waits for the events of both its completion \
         queues at one channel, and takes the one's for the other's; later versions have two",
    ),
    (
        "ib_read_lat -e, ib_atomic_lat -e",
        "the side that is read from ends with an error over rdma-core's libraries as well",
    ),
    (
        "ib_send_bw -g",
        "its second program does not find the first over rdma-core's libraries either",
    ),
    (
        "ib_write_bw --perform_warm_up",
        "the side that is written to does not end over rdma-core's libraries either",
    ),
    (
        "raw_ethernet_burst_lat",
        "ends before it opens a device: perftest 4.5 sets a limit of the rate in software for it, and \
         refuses that limit of a test of latency",
    ),
];

/// The program of a pair that runs over C's libibverbs while the other runs over ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Neither,
    Server,
    Client,
}

impl Way {
    const ALL: [Self; 3] = [Self::Neither, Self::Server, Self::Client];

    fn name(self, test: &str) -> String {
        match self {
            Self::Neither => test.to_owned(),
            Self::Server => format!("{test}, the server over C"),
            Self::Client => format!("{test}, the client over C"),
        }
    }
}

/// The ways in which a pair runs over one provider. Over our libibverbs, the programs of rdma-core,
/// perftest and UCX also run with either side over C's.
fn ways(pair: &Pair, provider: Provider) -> &'static [Way] {
    let also_over_c = provider == Provider::Rust && [PINGPONG, PERFTEST, UCX].contains(&pair.suite);
    if also_over_c { &Way::ALL } else { &[Way::Neither] }
}

/// Returns whether a sample contains this way of the pair at this place: one way of three by turns,
/// and every third of the pairs that run in one way, a different third for each provider. Pairs
/// with our own programs always run.
fn in_sample(provider: Provider, place: usize, pair: &Pair, way: Way) -> bool {
    let turn = match provider {
        Provider::C => place,
        Provider::Rust => place + 1,
    };
    pair.suite == INTEROP || Way::ALL[turn % Way::ALL.len()] == way
}

fn both_links() -> impl Iterator<Item = (usize, &'static Pair)> {
    PAIRS.iter().chain(PERFTEST_PAIRS).enumerate()
}

/// Names of the tests over one provider that a sample leaves out, with their suites.
pub(super) fn left_out_of_sample(provider: Provider) -> Vec<(&'static str, String)> {
    let mut names = Vec::new();
    for (place, pair) in both_links() {
        let others =
            ways(pair, provider).iter().filter(|way| !in_sample(provider, place, pair, **way));
        names.extend(others.map(|way| (pair.suite, way.name(pair.test))));
    }
    names
}

/// Runs the pairs on one link, one after the other, all on one machine. A sample runs a third of
/// them.
pub(super) fn run(door: &Door, link: Link, sample: bool) -> Result<Vec<Row>, Failure> {
    let ours = build::program("mlx5-cli", Profile::Release)?;
    let mut host = door.machine(&format!("{},devices=2,raw=on", link.settings), link)?;
    let mut rows = Vec::new();
    let row = |suite, test: &str, trouble: Option<String>| Row {
        suite,
        test: test.to_owned(),
        link: link.name,
        provider: door.provider,
        outcome: if trouble.is_none() { Outcome::Pass } else { Outcome::Fail },
        reason: trouble.map(Reason::Unexplained),
    };
    let c = door.over(Provider::C);
    let mut ports = FIRST_PORT..;
    let mut meet = |pair: &Pair, [server, client]: [&Door; 2]| {
        meet([server, client], link, &host, &ours, pair, ports.next().unwrap_or(FIRST_PORT))
    };
    for (place, pair) in both_links() {
        for way in ways(pair, door.provider) {
            if sample && !in_sample(door.provider, place, pair, *way) {
                continue;
            }
            let over = match way {
                Way::Neither => [door, door],
                Way::Server => [&c, door],
                Way::Client => [door, &c],
            };
            rows.push(row(pair.suite, &way.name(pair.test), meet(pair, over)?));
        }
    }
    if link.layer == "Ethernet" {
        for pair in RAW_PAIRS {
            rows.push(row(pair.suite, pair.test, meet(pair, [door, door])?));
        }
    }
    let status = host.wait()?;
    let trouble = (!status.success()).then(|| format!("the machine ended with {status}"));
    rows.push(row(PINGPONG, MACHINE, trouble));
    Ok(rows)
}

/// Runs a pair; returns the failure, if there is one.
fn meet(
    [over, client_over]: [&Door; 2],
    link: Link,
    host: &Host,
    ours: &Path,
    pair: &Pair,
    port: u16,
) -> Result<Option<String>, Failure> {
    let settings = host.settings();
    let folder = std::env::temp_dir();
    let raw = !pair.server.contains("PORT");
    let start = |door: &Door, line: Line| {
        let line = line.replace("DEVICE", DEVICE).replace("SECOND", SECOND);
        let line = line.replace("PORT", &port.to_string());
        // Line buffering, so that `says` gets each line as soon as it is printed.
        let line = if raw { format!("stdbuf -oL {line}") } else { line };
        let line = line.replace("GID", link.gid);
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        let program = if program == "mlx5" { ours } else { Path::new(program) };
        door.start(&settings, &folder, SECONDS, program, &words.collect::<Vec<_>>())
    };
    let mut server = start(over, pair.server)?;
    if raw {
        server.says(READY)?;
    } else {
        let begun = Instant::now();
        while !is_listened_to(port) && !server.has_ended()? && begun.elapsed() < WAIT {
            std::thread::sleep(LOOK);
        }
    }
    let client = start(client_over, pair.client)?.wait()?;
    let server = server.wait()?;
    let missing = !client.stdout.contains(pair.said);
    let trouble = |who: &str, ended: &Ended| {
        let last = ended.stderr.lines().last().unwrap_or_default().to_owned();
        ended.trouble.as_ref().map(|trouble| format!("{who}: {trouble}: {last}"))
    };
    Ok(trouble("the first", &server)
        .or_else(|| trouble("the second", &client))
        .or_else(|| missing.then(|| format!("the second says no \"{}\"", pair.said))))
}

#[cfg(test)]
mod tests {
    use super::super::suites;
    use super::*;

    #[test]
    fn a_sample_is_a_third_and_has_each_way() {
        for provider in Provider::ALL {
            let of = |in_it: bool| {
                let all = both_links().flat_map(|(place, pair)| {
                    ways(pair, provider).iter().map(move |way| (place, pair, *way))
                });
                all.filter(move |(place, pair, way)| {
                    !in_it || in_sample(provider, *place, pair, *way)
                })
            };
            let (whole, sample) = (of(false).count(), of(true).count());
            assert_eq!(whole - sample, left_out_of_sample(provider).len());
            assert!(sample.abs_diff(whole / 3) <= 10, "{sample} of {whole}");
            for way in Way::ALL {
                let has = |in_it| of(in_it).any(|(_, _, one)| one == way);
                assert_eq!(has(true), has(false));
            }
        }
    }

    #[test]
    fn over_either_provider_another_third_is_in_the_sample() {
        for (place, pair) in both_links() {
            let has = |provider| in_sample(provider, place, pair, Way::Neither);
            assert!(
                pair.suite == INTEROP || !(has(Provider::C) && has(Provider::Rust)),
                "{}",
                pair.test
            );
        }
    }

    #[test]
    fn every_pair_is_of_a_suite_and_named_once() {
        let mut names: Vec<_> = PAIRS
            .iter()
            .chain(PERFTEST_PAIRS)
            .chain(RAW_PAIRS)
            .map(|pair| (pair.suite, pair.test))
            .collect();
        assert!(names.iter().all(|(suite, _)| suites::ALL.contains(suite)));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
