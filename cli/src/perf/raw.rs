//! `mlx5 perf --raw`: frames from one queue of a port to another, through the device.

use crate::device::{Port, packets_refused};
use crate::failure::Failure;
use crate::link::{Flow, Goal, Patience, Rate};
use crate::numbers::{Size, Times};
use crate::perf::measure::{Measurement, Plan, WARM_UP, WARM_UP_PART, goal_of, show};
use crate::perf::progress::Progress;
use mlx5::ethernet::{EthernetQueue, Frame};
use mlx5::flow::{Ethernet, FlowRule, Ipv4, Ports, Rule};
use mlx5::{Context, Gid};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The shortest frame on a wire, and the longest of a port with jumbo frames; without check
/// sequences.
pub(crate) const SHORTEST: usize = 60;
const LONGEST: usize = 9014;
/// The sizes of frames that can be sent.
pub(crate) const FRAMES: RangeInclusive<usize> = SHORTEST..=LONGEST;
/// The longest frame of a network interface in its default configuration.
pub(crate) const USUAL: usize = 1514;

/// Bytes of the headers of Ethernet, IPv4 and UDP.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Bytes of all headers; the mark follows them.
const HEADERS: usize = ETHERNET + IPV4 + UDP;
/// Turns of a run at full rate between looks at the clock.
const TURNS: u32 = 64;
/// The first of the UDP ports that are assigned to no service.
const FIRST_PORT: u16 = 0xc000;

/// The address of an end. The MAC address is the port's own, so that frames stay in the device; the
/// IP addresses are of documentation.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    mac: [u8; 6],
    ip: [u8; 4],
    port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        let [i, j, k, l] = self.ip;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} {i}.{j}.{k}.{l}:{}", self.port)
    }
}

impl Address {
    /// The frames for it.
    fn rule(&self) -> Rule {
        Rule::new()
            .ethernet(Ethernet::new().dst_mac(self.mac))
            .ipv4(Ipv4::new().dst_ip(self.ip))
            .udp(Ports::new().dst_port(self.port))
    }

    /// A frame with a UDP datagram, without checksums: the device computes them.
    fn frame(&self, to: &Self, mark: Mark, size: usize) -> Vec<u8> {
        let ip = ((size - ETHERNET) as u16).to_be_bytes();
        let udp = ((size - ETHERNET - IPV4) as u16).to_be_bytes();
        let head = [0x45, 0, ip[0], ip[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
        let ports = [self.port.to_be_bytes(), to.port.to_be_bytes(), udp, [0, 0]].concat();
        let mut frame = [&to.mac[..], &self.mac, &[8, 0], &head, &self.ip, &to.ip, &ports].concat();
        frame.extend(mark.0);
        frame.resize(size, 0x5a);
        frame
    }
}

/// A mark in the frames of one run: two runs may have the same ports.
#[derive(Clone, Copy)]
struct Mark([u8; 8]);

impl Mark {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0_u8).to_be_bytes())
    }

    fn is_in(self, frame: &[u8]) -> bool {
        frame.get(HEADERS..).is_some_and(|payload| payload.starts_with(&self.0))
    }
}

/// A queue with a rule.
struct End {
    queue: EthernetQueue,
    _rule: FlowRule,
    address: Address,
    mark: Mark,
    /// The bytes of a frame, and the frames that are about to be sent.
    frame: Vec<u8>,
    frames: Vec<Frame>,
}

impl End {
    fn new(
        context: &Context,
        port: u8,
        (address, mark): (Address, Mark),
        (depth, largest): (u32, usize),
    ) -> Result<Self, Failure> {
        let builder = context.create_ethernet_queue(port).receives(depth.max(64) * 2);
        let builder = builder.frames(depth.max(64) * 2).sends(depth.max(64) * 2);
        let size = largest.max(2048).next_power_of_two() as u32;
        let queue = builder.buffer_size(size).build().map_err(packets_refused)?;
        let rule = queue.attach(&address.rule()).map_err(packets_refused)?;
        Ok(Self { queue, _rule: rule, address, mark, frame: Vec::new(), frames: Vec::new() })
    }

    /// Sends at most `count` frames, with one doorbell. Returns the number that the queue had room
    /// for.
    fn send(&mut self, count: u64) -> Result<u64, Failure> {
        self.queue.reap()?;
        for _ in 0..count {
            let Some(mut frame) = self.queue.frame() else { break };
            frame.fill(&self.frame);
            self.frames.push(frame);
        }
        let taken = self.queue.send(self.frames.drain(..))?;
        let counts = self.queue.counts();
        if counts.failed + counts.not_sent > 0 {
            return Err(Failure::new("the device refused frames").hint(TOO_LONG));
        }
        Ok(taken as u64)
    }

    /// Takes the frames of this run that have arrived, and sends them back if `back` is set.
    /// Returns their number.
    fn take(&mut self, back: bool) -> Result<u64, Failure> {
        let (size, mark, mut count, mut odd) = (self.frame.len(), self.mark, 0, None);
        self.queue.receive(|packets| {
            packets.for_each(|mut packet| {
                if !mark.is_in(&packet) {
                    return;
                }
                count += 1;
                if packet.len() != size {
                    odd = Some(packet.len());
                } else if back {
                    // Addresses and ports are exchanged. Checksums stay right, as they are sums of
                    // the same words.
                    for (one, other, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                        let (before, after) = packet.split_at_mut(other);
                        before[one..one + length].swap_with_slice(&mut after[..length]);
                    }
                    packet.send();
                }
            });
        })?;
        match odd {
            None => Ok(count),
            Some(length) => {
                Err(Failure::new(format!("{size} bytes were sent, {length} have arrived")))
            }
        }
    }
}

const TOO_LONG: &str = "is a frame longer than the network interface takes? `ip link` shows its MTU, to \
                        which 14 bytes are added";

/// Both ends.
pub(crate) struct Ends {
    near: End,
    far: End,
    patience: Patience,
}

impl Ends {
    /// Makes two queues on a port. They belong to two contexts, for a device does not deliver a
    /// context's packets to itself.
    pub(crate) fn open(port: &Port, plan: &Plan, patience: Patience) -> Result<Self, Failure> {
        let number = port.local.port_num;
        let mac = own_address(&port.opened.context, number)?;
        // Two runs at the same time rarely have the same ports, and mark their frames.
        let mark = Mark::new();
        let first = FIRST_PORT | (u16::from_be_bytes([mark.0[0], mark.0[1]]) & 0x1fff) << 1;
        let near = Address { mac, ip: [192, 0, 2, 1], port: first };
        let far = Address { mac, ip: [192, 0, 2, 2], port: first + 1 };
        let other = port.opened.device.open()?;
        let room = (plan.depth, plan.sizes.largest());
        Ok(Self {
            near: End::new(&port.opened.context, number, (near, mark), room)?,
            far: End::new(&other, number, (far, mark), room)?,
            patience,
        })
    }

    /// Their addresses.
    pub(crate) fn addresses(&self) -> (Address, Address) {
        (self.near.address, self.far.address)
    }

    /// Makes all measurements of the plan, until `stop` is set.
    pub(crate) fn measure(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
    ) -> Result<Vec<Measurement>, Failure> {
        let mut progress = Some(Progress::new());
        let (mut results, sizes) = (Vec::new(), &plan.sizes.0);
        for (index, &size) in sizes.iter().enumerate() {
            // The first size has a result in any case, if only of one message.
            let over = || index > 0 && stop.load(Ordering::Relaxed);
            let what = format!("{} bytes, {} of {} sizes", Size(size), index + 1, sizes.len());
            let (near, far) = self.addresses();
            self.near.frame = near.frame(&far, self.near.mark, size);
            self.far.frame.resize(size, 0);
            let latency = match plan.latencies {
                Some(amount) if !over() => {
                    Some(self.latencies(goal_of(amount, stop), |goal, done, spent| {
                        show(&mut progress, &what, "latency", goal, done, spent);
                    })?)
                }
                _ => None,
            };
            let rate = match plan.rate(size) {
                Some(amount) if !over() => {
                    Some(self.rate(plan, goal_of(amount, stop), |goal, done, spent| {
                        show(&mut progress, &what, "rate", goal, done, spent);
                    })?)
                }
                _ => None,
            };
            if latency.is_none() && rate.is_none() {
                break;
            }
            let whole = !stop.load(Ordering::Relaxed);
            results.push(Measurement { size, latency, rate, whole });
        }
        Ok(results)
    }

    fn latencies(
        &mut self,
        goal: Goal<'_>,
        mut progress: impl FnMut(Goal<'_>, u64, Duration),
    ) -> Result<Times, Failure> {
        let warm_up = Goal {
            messages: Some(goal.messages.map_or(WARM_UP, |count| WARM_UP.min(count))),
            duration: goal.duration.map(|time| time / WARM_UP_PART),
            ..goal
        };
        self.trips(warm_up, |_, _, _| ())?;
        let (mut times, mut spent) = (Times::new(), Duration::ZERO);
        self.trips(goal, |goal, done, time| {
            times.record(time / 2);
            spent += time;
            progress(goal, done, spent);
        })?;
        Ok(times)
    }

    /// Sends frames there and back, one at a time.
    fn trips(
        &mut self,
        goal: Goal<'_>,
        mut after: impl FnMut(Goal<'_>, u64, Duration),
    ) -> Result<(), Failure> {
        let (begun, mut index) = (Instant::now(), 0);
        while goal.messages.is_none_or(|messages| index < messages) {
            let start = Instant::now();
            self.patience.refresh();
            while self.near.send(1)? == 0 {
                wait(&mut self.patience)?;
            }
            while self.far.take(true)? == 0 {
                wait(&mut self.patience)?;
            }
            while self.near.take(false)? == 0 {
                wait(&mut self.patience)?;
            }
            let end = Instant::now();
            index += 1;
            after(goal, index, end - start);
            if goal.is_over(begun, end) {
                break;
            }
        }
        Ok(())
    }

    /// Sends at full rate.
    fn rate(
        &mut self,
        plan: &Plan,
        goal: Goal<'_>,
        mut progress: impl FnMut(Goal<'_>, u64, Duration),
    ) -> Result<Rate, Failure> {
        let Self { near, far, patience } = self;
        let (depth, batch) = (u64::from(plan.depth), plan.pace.batch);
        let mut wanted = goal.messages.unwrap_or(u64::MAX);
        let (mut sent, mut arrived, mut turns) = (0, 0, 0_u32);
        patience.refresh();
        let begun = Instant::now();
        while arrived < wanted {
            let left = batch.min(wanted - sent);
            let mut more = 0;
            // A batch is sent once there is room for all of it.
            if left > 0 && depth - sent.saturating_sub(arrived) >= left {
                more = near.send(left)?;
                sent += more;
            }
            let came = far.take(false)?;
            arrived += came;
            if more + came > 0 {
                patience.refresh();
                progress(goal, arrived, begun.elapsed());
            } else {
                wait(patience)?;
            }
            turns = turns.wrapping_add(1);
            // Frames in flight still arrive.
            if turns.is_multiple_of(TURNS) && goal.is_over(begun, Instant::now()) {
                wanted = wanted.min(sent.max(1));
            }
        }
        Ok(Rate { out: Flow { messages: arrived, lost: 0, elapsed: begun.elapsed() }, back: None })
    }
}

fn wait(patience: &mut Patience) -> Result<(), Failure> {
    match patience.wait("frames") {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.hint(TOO_LONG)),
    }
}

/// The MAC address of a port: RoCE's link-local GID has it.
fn own_address(context: &Context, port: u8) -> Result<[u8; 6], Failure> {
    let table = context.gid_table()?;
    let of_port = table.iter().filter(|entry| entry.port_num == u32::from(port));
    of_port.filter_map(|entry| mac_in(&entry.gid)).next().ok_or_else(|| {
        Failure::new(format!("the MAC address of port {port} is not known"))
            .hint(
                "`mlx5 info -v` shows the GIDs, of which one that begins with fe80 has it: is the network \
                 interface up?",
            )
    })
}

/// The MAC address in a link-local GID, which has `ff:fe` between its halves.
fn mac_in(gid: &Gid) -> Option<[u8; 6]> {
    match gid.to_bytes() {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some([a ^ 2, b, c, d, e, f])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_sim::{PortConfig, SimConfig, Simulator};

    #[test]
    fn a_link_local_gid_has_the_mac_address() {
        let gid = |text: &str| Gid::from(text.parse::<std::net::Ipv6Addr>().expect("an address"));
        let mac = [0xb8, 0x59, 0x9f, 1, 2, 3];
        assert_eq!(mac_in(&gid("fe80::ba59:9fff:fe01:203")), Some(mac));
        for other in ["fe80::ba59:9f03:0:1", "::ffff:10.0.0.1", "fe81::ba59:9fff:fe01:203"] {
            assert_eq!(mac_in(&gid(other)), None, "{other}");
        }
    }

    #[test]
    fn frames_of_a_run_at_the_same_ports_are_not_counted() {
        let config = SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true);
        let simulator = Simulator::new(config);
        let device = mlx5::devices_on(simulator.kernel()).expect("a device").remove(0);
        let contexts = [(); 3].map(|()| device.open().expect("a context"));
        let mac = own_address(&contexts[0], 1).expect("an address");
        let address = |last, port| Address { mac, ip: [192, 0, 2, last], port };
        let (near, far) = (address(1, 0xc000), address(2, 0xc001));
        let (ours, theirs) = (Mark([1; 8]), Mark([2; 8]));
        let mut contexts = contexts.iter();
        let [mut own, mut stranger, mut arrives] =
            [(near, ours), (near, theirs), (far, ours)].map(|end| {
                let context = contexts.next().expect("one for each");
                End::new(context, 1, end, (8, 64)).expect("a queue")
            });
        arrives.frame.resize(64, 0);
        for (end, counted) in [(&mut stranger, 0), (&mut own, 3)] {
            end.frame = near.frame(&far, end.mark, 64);
            assert_eq!(end.send(3).expect("room"), 3);
            simulator.run_until_idle();
            assert_eq!(arrives.take(false).expect("a queue that works"), counted);
        }
        assert_eq!(arrives.queue.counts().received, 6, "all have arrived");
    }

    #[test]
    fn a_frame_says_how_long_it_is() {
        let address = |port| Address { mac: [2, 0, 0, 0, 0, 9], ip: [192, 0, 2, 1], port };
        for size in [SHORTEST, 1514, LONGEST] {
            let frame = address(7).frame(&address(9), Mark([3; 8]), size);
            assert_eq!(frame.len(), size);
            assert_eq!(u16::from_be_bytes([frame[16], frame[17]]) as usize, size - 14);
            assert_eq!(u16::from_be_bytes([frame[38], frame[39]]) as usize, size - 34);
            assert_eq!((&frame[34..36], &frame[36..38]), (&[0, 7][..], &[0, 9][..]));
            assert!(Mark([3; 8]).is_in(&frame) && !Mark([4; 8]).is_in(&frame));
        }
        assert!(!Mark([3; 8]).is_in(&[3; 49]), "too short for a mark");
        assert_eq!(address(7).to_string(), "02:00:00:00:00:09 192.0.2.1:7");
    }
}
