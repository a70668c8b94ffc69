//! The objects that both sides make, and the requests that they post.

use std::fmt;

use mlx5::flow::{Ethernet, Gre, Ipv4, Ipv6, Mpls, Ports, Rule, Vxlan};
use mlx5::{RxHashFields, Sge};

use crate::compare::STRIDES;
use crate::completions::Random;

/// A piece of a packet: its offset in the memory of both sides, and its length.
pub(super) type Piece = (u32, u32);

/// The data of a packet, and the operation on it.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    Send(Vec<Piece>),
    Inline(Piece),
    /// A packet to segment: payload of a segment, bytes of headers, payload.
    Tso(u16, u32, Vec<Piece>),
}

/// A packet to be sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    /// Letters, or `-`: S for signaled, C for checksums.
    pub(super) flags: &'static str,
    pub(super) packet: Packet,
}

/// A receive request: the lengths of its entries.
pub(super) type Receive = Vec<u32>;

/// The numbers in the entries of a receive, by their positions.
pub(super) fn receive_sges(number: usize, lengths: &[u32]) -> Vec<Sge> {
    let entry = |(at, length): (usize, &u32)| {
        let addr = 0x7f12_0000_0000 + (number as u64) * 0x10_0000 + at as u64 * 0x1_0000;
        Sge { addr, length: *length, lkey: 0x1100 + at as u32 }
    };
    lengths.iter().enumerate().map(entry).collect()
}

/// A work queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) requests: u32,
    pub(super) sges: u32,
    pub(super) strips: bool,
    pub(super) scatters_fcs: bool,
    /// Logarithms: bytes of a stride, strides of a request.
    pub(super) strides: Option<(u32, u32)>,
}

/// A rule in the forms of the C program and of this driver.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) label: String,
    /// Type, priority, flags, specifications.
    pub(super) text: (u32, u16, u32, Vec<String>),
    pub(super) rule: Rule,
    pub(super) counts: bool,
}

/// A step of a section.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Post(String, Vec<Request>),
    Drain,
    Receive(String, Vec<Receive>),
    ReceiveDrain,
    Work(Work),
    State(usize, u32),
    Strip(usize, bool),
    WorkReceive(usize, String, Vec<Receive>),
    WorkDrain(usize),
    Table(Vec<usize>),
    Hash { fields: RxHashFields, own: u32, key: [u8; 40] },
    Counters,
    Count(u32, u32),
    Rule(Named),
    Matcher { criteria: u8, priority: u16, mask: Vec<u8> },
    Match { label: String, value: Vec<u8>, tag: u32 },
    Unmake,
}

/// The options of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) builder: bool,
    pub(super) header: u32,
    pub(super) strips: bool,
    pub(super) scatters_fcs: bool,
    /// Flags of mlx5dv_create_qp.
    pub(super) own: u32,
}

/// A part of the script, on a device of its own.
pub(super) struct Section {
    pub(super) name: String,
    /// Whether the device needs the Ethernet header in a request.
    pub(super) needs_header: bool,
    pub(super) queue: Option<Queue>,
    pub(super) steps: Vec<Step>,
    /// Whether this driver can run the whole section by its own interface, and by C's.
    pub(super) by_own: bool,
    pub(super) by_c: bool,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pieces(f: &mut fmt::Formatter<'_>, list: &[Piece]) -> fmt::Result {
    write!(f, "{:x}", list.len())?;
    list.iter().try_for_each(|(at, length)| write!(f, " {at:x} {length:x} {LKEY:x}"))
}

/// The key of the memory of packets; nothing is executed.
pub(super) const LKEY: u32 = 0x1234;

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wr_id, flags, packet } = self;
        write!(f, "op {wr_id:x} {flags} ")?;
        match packet {
            Packet::Send(list) => {
                f.write_str("send ")?;
                pieces(f, list)
            }
            Packet::Inline((at, length)) => write!(f, "inline {at:x} {length:x}"),
            Packet::Tso(mss, header, list) => {
                write!(f, "tso {mss:x} {header:x} ")?;
                pieces(f, list)
            }
        }
    }
}

fn receives(f: &mut fmt::Formatter<'_>, list: &[Receive]) -> fmt::Result {
    write!(f, "{:x}", list.len())?;
    list.iter().enumerate().try_for_each(|(number, lengths)| {
        write!(f, "\nrwr {number:x} {:x}", lengths.len())?;
        receive_sges(number, lengths)
            .iter()
            .try_for_each(|Sge { addr, length, lkey }| write!(f, " {addr:x} {length:x} {lkey:x}"))
    })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post(label, list) => {
                write!(f, "pkpost {label} {:x}", list.len())?;
                list.iter().try_for_each(|request| write!(f, "\n{request}"))
            }
            Self::Drain => f.write_str("drain"),
            Self::Receive(label, list) => {
                write!(f, "recv {label} ")?;
                receives(f, list)
            }
            Self::ReceiveDrain => f.write_str("rdrain"),
            Self::Work(Work { requests, sges, strips, scatters_fcs, strides }) => {
                let flags = u32::from(*strips) | u32::from(*scatters_fcs) << 1;
                let (stride, strides) = strides.unwrap_or_default();
                write!(f, "work {requests:x} {sges:x} {flags:x} {stride:x} {strides:x}")
            }
            Self::State(which, state) => write!(f, "state {which:x} {state:x}"),
            Self::Strip(which, is) => write!(f, "strip {which:x} {}", u8::from(*is)),
            Self::WorkReceive(which, label, list) => {
                write!(f, "wrecv {which:x} {label} ")?;
                receives(f, list)
            }
            Self::WorkDrain(which) => write!(f, "wdrain {which:x}"),
            Self::Table(list) => {
                write!(f, "table {:x}", list.len().ilog2())?;
                list.iter().try_for_each(|which| write!(f, " {which:x}"))
            }
            Self::Hash { fields, own, key } => {
                write!(f, "hash {:x} {own:x} {}", fields.bits(), hex(key))
            }
            Self::Counters => f.write_str("counters"),
            Self::Count(what, index) => write!(f, "count {what:x} {index:x}"),
            Self::Rule(Named { label, text: (kind, priority, flags, specs), .. }) => {
                write!(f, "rule {label} {kind:x} {priority:x} {flags:x} {:x}", specs.len())?;
                specs.iter().try_for_each(|spec| write!(f, " {spec}"))
            }
            Self::Matcher { criteria, priority, mask } => {
                write!(f, "matcher {criteria:x} {priority:x} {}", hex(mask))
            }
            Self::Match { label, value, tag } => write!(f, "match {label} {} {tag:x}", hex(value)),
            Self::Unmake => f.write_str("unmake"),
        }
    }
}

/// Pieces of packets. Some end inside the Ethernet header, at its end, or after it.
const FORMS: &[&[Piece]] = &[
    &[(0, 60)],
    &[(100, 1514)],
    &[(7, 18)],
    &[(0, 18), (64, 46)],
    &[(0, 14), (64, 46)],
    &[(0, 10), (32, 4), (64, 46)],
    &[(0, 6), (16, 6), (32, 6), (48, 42)],
    &[(0, 64), (1024, 4096)],
    &[(0, 200), (0, 0), (512, 9)],
];
/// Too short where the device needs the header.
const SHORT: &[&[Piece]] = &[&[(0, 17)], &[(0, 8), (8, 9)]];
const INLINE: &[Piece] = &[(3, 19), (0, 60), (9, 44), (9, 45), (0, 64), (5, 28)];
/// Payload of a segment, headers, payload.
const CUT: &[(u16, u32, &[Piece])] = &[
    (1448, 54, &[(1024, 20_000)]),
    (1, 14, &[(0, 64)]),
    (100, 18, &[(0, 64)]),
    (536, 66, &[(0, 1000), (2000, 1000)]),
    (1460, 78, &[(0, 60_000), (100, 1), (200, 2)]),
    (65_535, 128, &[(0, 9)]),
    (9000, 127, &[(0, 9), (9, 9), (18, 9), (27, 9)]),
    (8, 30, &[(0, 9)]),
    (8, 31, &[(0, 9)]),
];

/// Every packet with all flags, alone and with others, until the ring wraps.
fn sends(cuts: bool, headed: bool, builder: bool) -> Vec<Step> {
    let mut packets: Vec<Packet> = Vec::new();
    packets.extend(FORMS.iter().map(|form| Packet::Send(form.to_vec())));
    packets.extend(INLINE.iter().map(|form| Packet::Inline(*form)));
    if cuts {
        packets.extend(
            CUT.iter().map(|(mss, header, list)| Packet::Tso(*mss, *header, list.to_vec())),
        );
    }
    let mut steps = Vec::new();
    let mut wr_id = 0;
    for round in 0..3 {
        for flags in ["SC", "S"] {
            for (n, packet) in packets.iter().enumerate() {
                let mut list = Vec::new();
                let before = &packets[(n + 5) % packets.len()];
                // rdma-core loses pieces of a packet to segment after a request with a header in
                // the same list.
                let loses = headed
                    && !builder
                    && matches!(
                        (before, packet),
                        (Packet::Send(_) | Packet::Inline(_), Packet::Tso(..))
                    );
                if round == 1 && !loses {
                    let quiet = if flags == "S" { "C" } else { "-" };
                    list.push((quiet, before.clone()));
                }
                list.push((flags, packet.clone()));
                let list = list.into_iter().map(|(flags, packet)| {
                    wr_id += 1;
                    Request { wr_id, flags, packet }
                });
                let label = format!("{round}-{flags}-{n}");
                steps.extend([Step::Post(label, list.collect()), Step::Drain]);
            }
        }
    }
    if headed {
        for (n, form) in SHORT.iter().enumerate() {
            let packet = Packet::Send(form.to_vec());
            let list = vec![Request { wr_id: 1, flags: "S", packet }];
            steps.push(Step::Post(format!("short-{n}"), list));
        }
    }
    steps
}

/// Receives of one entry, of several, and of none.
fn received() -> Vec<Receive> {
    vec![vec![1514], vec![64, 9000], vec![], vec![1], vec![2048, 0], vec![0, 128]]
}

/// The specifications of a header: random words for the fields that this driver sets, and for their
/// masks.
struct Headers<'a>(&'a mut Random);

impl Headers<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.0.next() as u8)
    }

    fn eth(&mut self) -> (String, Ethernet) {
        let [value, mask]: [[u8; 16]; 2] = [self.bytes(), self.bytes()];
        let mac = |from: &[u8; 16], at: usize| -> [u8; 6] {
            from[at..at + 6].try_into().expect("six bytes")
        };
        let word = |from: &[u8; 16], at: usize| u16::from_be_bytes([from[at], from[at + 1]]);
        let header = Ethernet::new()
            .dst_mac_masked(mac(&value, 0), mac(&mask, 0))
            .src_mac_masked(mac(&value, 6), mac(&mask, 6))
            .ether_type_masked(word(&value, 12), word(&mask, 12))
            .vlan_tag_masked(word(&value, 14), word(&mask, 14));
        (format!("eth {} {}", hex(&value), hex(&mask)), header)
    }

    /// With the protocol and the type of service if it is `longer`.
    fn ipv4(&mut self, longer: bool) -> (String, Ipv4) {
        let [value, mask]: [[u8; 10]; 2] = [self.bytes(), self.bytes()];
        let ip = |from: &[u8; 10], at: usize| -> [u8; 4] {
            from[at..at + 4].try_into().expect("four bytes")
        };
        let header = Ipv4::new()
            .src_ip_masked(ip(&value, 0), ip(&mask, 0))
            .dst_ip_masked(ip(&value, 4), ip(&mask, 4));
        if !longer {
            return (format!("ipv4 {} {}", hex(&value[..8]), hex(&mask[..8])), header);
        }
        let header = header.proto_masked(value[8], mask[8]).tos_masked(value[9], mask[9]);
        (format!("ipv4x {}0000 {}0000", hex(&value), hex(&mask)), header)
    }

    fn ipv6(&mut self) -> (String, Ipv6) {
        let [mut value, mut mask]: [[u8; 38]; 2] = [self.bytes(), self.bytes()];
        // A flow label has twenty bits.
        for bytes in [&mut value, &mut mask] {
            bytes[32] = 0;
            bytes[33] &= 0xf;
        }
        let ip = |from: &[u8; 38], at: usize| -> [u8; 16] {
            from[at..at + 16].try_into().expect("sixteen bytes")
        };
        let label = |from: &[u8; 38]| u32::from_be_bytes([0, from[33], from[34], from[35]]);
        let header = Ipv6::new()
            .src_ip_masked(ip(&value, 0), ip(&mask, 0))
            .dst_ip_masked(ip(&value, 16), ip(&mask, 16))
            .flow_label_masked(label(&value), label(&mask))
            .next_hdr_masked(value[36], mask[36])
            .traffic_class_masked(value[37], mask[37]);
        (format!("ipv6 {}0000 {}0000", hex(&value), hex(&mask)), header)
    }

    fn ports(&mut self, kind: &str) -> (String, Ports) {
        let [value, mask]: [[u8; 4]; 2] = [self.bytes(), self.bytes()];
        let port = |from: &[u8; 4], at: usize| u16::from_be_bytes([from[at], from[at + 1]]);
        let header = Ports::new()
            .dst_port_masked(port(&value, 0), port(&mask, 0))
            .src_port_masked(port(&value, 2), port(&mask, 2));
        (format!("{kind} {} {}", hex(&value), hex(&mask)), header)
    }

    fn vxlan(&mut self) -> (String, Vxlan) {
        let [value, mask] = [self.0.next() as u32 & 0xff_ffff, self.0.next() as u32 & 0xff_ffff];
        (format!("vxlan {value:08x} {mask:08x}"), Vxlan::new().tunnel_id_masked(value, mask))
    }

    fn gre(&mut self) -> (String, Gre) {
        let [value, mask]: [[u8; 8]; 2] = [self.bytes(), self.bytes()];
        let word = |from: &[u8; 8], at: usize| u16::from_be_bytes([from[at], from[at + 1]]);
        let key = |from: &[u8; 8]| u32::from_be_bytes([from[4], from[5], from[6], from[7]]);
        let header = Gre::new()
            .c_ks_res0_ver_masked(word(&value, 0), word(&mask, 0))
            .protocol_masked(word(&value, 2), word(&mask, 2))
            .key_masked(key(&value), key(&mask));
        (format!("gre {} {}", hex(&value), hex(&mask)), header)
    }

    fn mpls(&mut self) -> (String, Mpls) {
        let [value, mask] = [self.0.next() as u32, self.0.next() as u32];
        (format!("mpls {value:08x} {mask:08x}"), Mpls::new().label_masked(value, mask))
    }
}

/// The types of rules (`enum ibv_flow_attr_type`).
const NORMAL: u32 = 0;
const ALL_DEFAULT: u32 = 1;
const MC_DEFAULT: u32 = 2;
const SNIFFER: u32 = 3;
/// `IBV_FLOW_ATTR_FLAGS_DONT_TRAP`.
const DONT_TRAP: u32 = 1 << 1;

fn named(label: &str, kind: u32, specs: Vec<String>, rule: Rule) -> Named {
    let text = (kind, 0, 0, specs);
    Named { label: label.into(), text, rule, counts: false }
}

/// Rules of every kind, with random headers.
fn rules(random: &mut Random) -> Vec<Named> {
    let of = &mut Headers(random);
    let mut list = vec![
        named("all-default", ALL_DEFAULT, vec![], Rule::all_default()),
        named("multicast-default", MC_DEFAULT, vec![], Rule::multicast_default()),
        named("sniffer", SNIFFER, vec![], Rule::sniffer()),
    ];
    let mut add = |label: &str, specs: Vec<String>, rule: Rule| {
        list.push(named(label, NORMAL, specs, rule));
    };
    let full = [0xff_u8; 6];
    let mac = [0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8];
    let exact = format!("eth {}00000000000000000000 {}00000000000000000000", hex(&mac), hex(&full));
    add("mac", vec![exact], Rule::new().ethernet(Ethernet::new().dst_mac(mac)));
    let vlan = format!("eth {:024}81000123 {:024}ffffffff", 0, 0);
    let tagged = Ethernet::new().ether_type(0x8100).vlan_tag(0x123);
    add("vlan", vec![vlan], Rule::new().ethernet(tagged));
    for n in 0..4 {
        let (a, eth) = of.eth();
        add(&format!("eth-{n}"), vec![a.clone()], Rule::new().ethernet(eth));
        let (b, ip) = of.ipv4(true);
        let rule = Rule::new().ethernet(eth).ipv4(ip);
        add(&format!("ipv4-{n}"), vec![a.clone(), b.clone()], rule.clone());
        let (c, ports) = of.ports("tcp");
        add(&format!("tcp-{n}"), vec![a.clone(), b.clone(), c], rule.clone().tcp(ports));
        let (c, ports) = of.ports("udp");
        let rule = rule.udp(ports);
        add(&format!("udp-{n}"), vec![a.clone(), b.clone(), c.clone()], rule.clone());
        let (d, vxlan) = of.vxlan();
        let rule = rule.vxlan(vxlan);
        let outer = vec![a.clone(), b.clone(), c, d];
        add(&format!("vxlan-{n}"), outer.clone(), rule.clone());
        let (e, inner) = of.eth();
        let (f, inner_ip) = of.ipv6();
        let (g, inner_ports) = of.ports("tcp");
        let specs = [outer, vec![format!("in-{e}"), format!("in-{f}"), format!("in-{g}")]].concat();
        let rule = rule.ethernet(inner).ipv6(inner_ip).tcp(inner_ports);
        add(&format!("in-vxlan-{n}"), specs, rule);
        let (c, gre) = of.gre();
        let (d, inner_ip) = of.ipv4(true);
        let rule = Rule::new().ethernet(eth).ipv4(ip).gre(gre).ipv4(inner_ip);
        add(&format!("gre-{n}"), vec![a.clone(), b.clone(), c, format!("in-{d}")], rule);
        let (c, mpls) = of.mpls();
        let rule = Rule::new().ethernet(eth).ipv4(ip).mpls(mpls);
        add(&format!("mpls-{n}"), vec![a.clone(), b, c], rule);
        let (b, ip) = of.ipv6();
        let (c, ports) = of.ports("udp");
        let rule = Rule::new().ethernet(eth).ipv6(ip).udp(ports);
        add(&format!("ipv6-{n}"), vec![a.clone(), b, c], rule);
        let tag = of.0.next() as u32 & 0xff_ffff;
        let rule = Rule::new().ethernet(eth).tag(tag);
        add(&format!("tag-{n}"), vec![a.clone(), format!("tag {tag:x}")], rule);
        let rule = Rule::new().ethernet(eth).drop_packets();
        add(&format!("drop-{n}"), vec![a, "drop".into()], rule);
    }
    let (a, eth) = of.eth();
    let mut last = named("last", NORMAL, vec![a.clone()], Rule::new().ethernet(eth).priority(15));
    last.text.1 = 15;
    list.push(last);
    let mut on = named("goes-on", NORMAL, vec![a], Rule::new().ethernet(eth).dont_trap());
    on.text.2 = DONT_TRAP;
    list.push(on);
    list
}

/// A rule whose IPv4 header ends after the addresses, as C's shorter structure does.
fn short(random: &mut Random) -> Vec<Step> {
    let (text, ip) = Headers(random).ipv4(false);
    vec![Step::Rule(named("short-ipv4", NORMAL, vec![text], Rule::new().ipv4(ip))), Step::Unmake]
}

/// Rules with counters; the first one describes them to the kernel.
fn counted(random: &mut Random) -> Vec<Step> {
    let of = &mut Headers(random);
    let mut steps = vec![Step::Counters];
    // C describes the last counter first.
    steps.extend([Step::Count(1, 1), Step::Count(0, 0)]);
    for n in 0..3 {
        let (text, eth) = of.eth();
        let specs = vec![text, "tag 77".into(), "count".into()];
        let rule = Rule::new().ethernet(eth).tag(0x77);
        let mut rule = named(&format!("count-{n}"), NORMAL, specs, rule);
        rule.counts = true;
        steps.push(Step::Rule(rule));
    }
    steps
}

/// Match parameters of the outer headers (`fte_match_set_lyr_2_4`).
const PARAMETERS: usize = 64;

fn matches() -> Vec<Step> {
    let mut mask = vec![0; PARAMETERS];
    // The destination address.
    mask[8..14].fill(0xff);
    let mut steps = vec![Step::Matcher { criteria: 1, priority: 5, mask }];
    for n in 0..3_u8 {
        let mut value = vec![0; PARAMETERS];
        value[8..14].copy_from_slice(&[1, 0x50, 0x56, 0x19, 0x20, n]);
        let tag = if n == 0 { 0 } else { 0x1000 + u32::from(n) };
        steps.push(Step::Match { label: format!("match-{n}"), value, tag });
    }
    steps.push(Step::Unmake);
    steps
}

/// `RESET`, `RDY` and `ERR` of `enum ibv_wq_state`.
const READY: u32 = 1;
const ERROR: u32 = 2;
const RESET: u32 = 0;

fn work(requests: u32, sges: u32) -> Work {
    Work { requests, sges, strips: false, scatters_fcs: false, strides: None }
}

/// Work queues, the requests posted to them, and their states.
fn works() -> Vec<Step> {
    let mut steps = vec![
        Step::Work(work(16, 2)),
        Step::Work(Work { strips: true, ..work(5, 1) }),
        Step::Work(Work { scatters_fcs: true, ..work(1, 7) }),
    ];
    for which in 0..3 {
        steps.push(Step::State(which, READY));
    }
    for lap in 0..9 {
        steps.push(Step::WorkReceive(0, format!("lap-{lap}"), received()));
        steps.push(Step::WorkDrain(0));
    }
    for lap in 0..3 {
        steps.push(Step::WorkReceive(2, format!("six-{lap}"), vec![(1..=6).collect()]));
        steps.push(Step::WorkDrain(2));
    }
    steps.extend([
        Step::WorkReceive(1, "too-many".into(), vec![vec![9]; 9]),
        Step::WorkReceive(1, "too-long".into(), vec![vec![1, 2]]),
        Step::WorkDrain(1),
        Step::Strip(1, false),
        Step::Strip(0, true),
        Step::State(0, ERROR),
        Step::State(0, RESET),
        Step::State(0, READY),
        Step::State(1, ERROR),
        Step::Unmake,
    ]);
    steps
}

/// Work queues whose packets share requests.
fn striding() -> Vec<Step> {
    let mut steps = Vec::new();
    for (requests, stride, strides) in [(16, 6, 9), (4, 8, 10), (1, 13, 9)] {
        let strides = Some((stride, strides));
        steps.push(Step::Work(Work { strides, ..work(requests, 1) }));
    }
    for which in 0..3 {
        steps.push(Step::State(which, READY));
    }
    steps.extend([
        Step::WorkReceive(0, "one".into(), vec![vec![1 << 15]]),
        Step::WorkReceive(0, "some".into(), vec![vec![1 << 15]; 5]),
        Step::WorkReceive(1, "four".into(), vec![vec![1 << 18]; 4]),
        Step::WorkReceive(2, "last".into(), vec![vec![1 << 22]]),
        Step::Unmake,
    ]);
    steps
}

/// Tables of work queues, and queue pairs that spread over them.
fn hashes(random: &mut Random) -> Vec<Section> {
    let addresses = RxHashFields::SRC_IPV4 | RxHashFields::DST_IPV4;
    let longer = RxHashFields::SRC_IPV6 | RxHashFields::DST_IPV6;
    let tcp = RxHashFields::SRC_PORT_TCP | RxHashFields::DST_PORT_TCP;
    let udp = RxHashFields::SRC_PORT_UDP | RxHashFields::DST_PORT_UDP;
    // Flags of mlx5dv_create_qp: tunnels, and loopback of the queue pair's own packets.
    let [tunnels, unicast, multicast] = [1 << 0, 1 << 1, 1 << 2];
    let all: [(RxHashFields, u32, &[usize]); 6] = [
        (RxHashFields::empty(), 0, &[0]),
        (addresses, 0, &[0, 1]),
        (addresses | tcp, unicast, &[0, 1, 1, 0]),
        (longer | udp, multicast, &[1, 0, 0, 1, 1, 1, 0, 0]),
        (addresses | udp | RxHashFields::INNER, tunnels, &[0, 1]),
        (RxHashFields::DST_IPV6, unicast | multicast, &[1, 0]),
    ];
    let section = |(n, (fields, own, table)): (usize, (RxHashFields, u32, &[usize]))| {
        let key = std::array::from_fn(|_| random.next() as u8);
        let mut steps = vec![
            Step::Work(work(4, 1)),
            Step::Work(work(8, 1)),
            Step::Table(table.to_vec()),
            Step::Hash { fields, own, key },
        ];
        let (text, eth) = Headers(random).eth();
        steps.push(Step::Rule(named("rule", NORMAL, vec![text], Rule::new().ethernet(eth))));
        steps.push(Step::Unmake);
        Section {
            name: format!("hash-{n}"),
            needs_header: false,
            queue: None,
            steps,
            by_own: true,
            by_c: true,
        }
    };
    all.into_iter().enumerate().map(section).collect()
}

/// All of them.
pub(super) fn sections(seed: u64) -> Vec<Section> {
    let random = &mut Random(seed);
    let queue = Queue { builder: false, header: 0, strips: false, scatters_fcs: false, own: 0 };
    let mut sections = Vec::new();
    for needs_header in [false, true] {
        for builder in [false, true] {
            for cuts in [false, true] {
                let api = if builder { "builder" } else { "list" };
                let device = if needs_header { "headed-" } else { "" };
                let more = if cuts { "-cut" } else { "" };
                let mut steps = sends(cuts, needs_header, builder);
                for lap in 0..4 {
                    steps.push(Step::Receive(format!("recv-{lap}"), received()));
                    steps.push(Step::ReceiveDrain);
                }
                steps.push(Step::Unmake);
                let header = if cuts { 128 } else { 0 };
                sections.push(Section {
                    name: format!("packets-{device}{api}{more}"),
                    needs_header,
                    queue: Some(Queue { builder, header, ..queue }),
                    steps,
                    // A list has no place for the header there.
                    by_own: builder || !needs_header,
                    by_c: true,
                });
            }
        }
    }
    let lost = vec![
        Request { wr_id: 1, flags: "S", packet: Packet::Send(vec![(7, 18)]) },
        Request { wr_id: 2, flags: "S", packet: Packet::Tso(8, 30, vec![(0, 9), (16, 32)]) },
    ];
    sections.push(Section {
        name: "cut-behind-header".into(),
        needs_header: true,
        queue: Some(Queue { header: 128, ..queue }),
        steps: vec![Step::Post("lost".into(), lost), Step::Unmake],
        by_own: false,
        by_c: true,
    });
    let mut add = |name: &str, queue, steps, by_own, by_c| {
        let name = name.to_owned();
        sections.push(Section { name, needs_header: false, queue, steps, by_own, by_c });
    };
    // Queue pairs that are only made.
    for (name, queue) in [
        ("stripping", Queue { strips: true, ..queue }),
        ("sequences", Queue { scatters_fcs: true, ..queue }),
        ("loopback", Queue { own: 1 << 1 | 1 << 2, ..queue }),
        ("tunnels", Queue { own: 1 << 0, ..queue }),
    ] {
        add(name, Some(queue), vec![Step::Unmake], true, true);
    }
    let mut steps: Vec<_> = rules(random).into_iter().map(Step::Rule).collect();
    steps.extend(counted(random));
    steps.push(Step::Unmake);
    add("rules", Some(queue), steps, true, true);
    // This driver's interface has one IPv4 header.
    add("short-rule", Some(queue), short(random), false, true);
    add("matches", Some(queue), matches(), false, true);
    add("works", None, works(), true, true);
    // This driver's library for C programs has none.
    add(STRIDES, None, striding(), true, false);
    sections.extend(hashes(random));
    sections
}
