//! Operations on a list of tags, through both providers.
//!
//! Programs cannot reach the command queue pair, but both providers give the kernel the address of
//! its ring.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use mlx5::{OpsFlags, OpsWr, Sge, TagAdd, TagHandle, devices_on};
use mlx5_prm::wqe::{BLOCK, UNIT};
use mlx5_sim::Simulator;
use mlx5_uapi::ioctl::{attr, method};

use crate::compare::{Comparison, Difference};
use crate::failure::Failure;
use crate::memory::Memory;
use crate::watch::Watch;

/// Tags and operations of the list.
const TAGS: u32 = 15;
const OPERATIONS: u32 = 64;

/// An operation of the script.
#[derive(Clone, Copy)]
enum Operation {
    Add {
        tag: u64,
        mask: u64,
        sge: Sge,
    },
    /// The tag that an earlier operation added, by its number among those.
    Del(usize),
    Sync,
}

/// An operation, with its flags and its count.
struct Line {
    operation: Operation,
    flags: OpsFlags,
    count: u32,
}

/// Every operation with every set of flags; all tags, masks, counts and entries differ.
fn script() -> Vec<Line> {
    let all = [
        OpsFlags::empty(),
        OpsFlags::SIGNALED,
        OpsFlags::TM_SYNC,
        OpsFlags::SIGNALED.union(OpsFlags::TM_SYNC),
    ];
    let counts = [0, 1, 0x1234, 0xffff, 0x1_0002, u32::MAX];
    let mut lines = Vec::new();
    let mut line = |operation, n: usize, m: usize| {
        lines.push(Line { operation, flags: all[n % 4], count: counts[m % counts.len()] });
    };
    for n in 0..12_usize {
        let tag = 0x1122_3344_5566_7788_u64.rotate_left(n as u32 * 5);
        let mask = [u64::MAX, 0xffff, 0, 1 << 63][n % 4];
        let length = [4096, 0, 1, 0x7fff_ffff][n / 3];
        let sge = Sge { addr: 0x7f00_1234_5000 + n as u64, length, lkey: 0x0102_0300 + n as u32 };
        line(Operation::Add { tag, mask, sge }, n, n);
    }
    for n in 0..8 {
        line(Operation::Sync, n, n + 2);
    }
    for n in 0..8 {
        line(Operation::Del(11 - n), n, n + 1);
    }
    lines
}

/// A block of the ring, and the send counter of the doorbell record, after each operation.
type Posted = (Vec<u8>, Vec<u8>);

fn theirs(program: &Path, library: &Path, lines: &[Line]) -> Result<Vec<Posted>, Failure> {
    let mut process = Command::new(program);
    process.env("LD_PRELOAD", library).env("MLX5_SIM", "step,link=ib");
    process.args([format!("{TAGS:x}"), format!("{OPERATIONS:x}")]);
    let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut script = String::new();
    for (n, Line { operation, flags, count }) in lines.iter().enumerate() {
        let flags = flags.bits();
        script += &match operation {
            Operation::Add { tag, mask, sge: Sge { addr, length, lkey } } => {
                format!(
                    "add {n:x} {flags:x} {count:x} {tag:x} {mask:x} {addr:x} {length:x} {lkey:x}\n"
                )
            }
            Operation::Del(which) => format!("del {flags:x} {count:x} {which:x}\n"),
            Operation::Sync => format!("sync {n:x} {flags:x} {count:x}\n"),
        };
    }
    let mut input = child.stdin.take().ok_or(Failure::Missing("the C program's input"))?;
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(Failure::Peer(output.status));
    }
    if !matches!(writer.join(), Ok(Ok(()))) {
        return Err(Failure::Missing("a reader of the whole script"));
    }
    let hex = |text: &str| -> Option<Vec<u8>> {
        let byte = |at| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        (0..text.len()).step_by(2).map(byte).collect()
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            let (block, record) = line.split_once(' ').unwrap_or_default();
            hex(block).zip(hex(record)).ok_or_else(|| Failure::Said(line.to_owned()))
        })
        .collect()
}

fn ours(simulator: &Simulator, lines: &[Line]) -> Result<Vec<Posted>, Failure> {
    let watch = Watch::default();
    let device = devices_on(watch.kernel(simulator.kernel()))?.into_iter().next();
    let context = device.ok_or(Failure::Missing("a device"))?.open()?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(255).build()?);
    let mut queue = pd.create_tm_srq(&cq, 16).max_num_tags(TAGS).max_ops(OPERATIONS).build()?;
    let calls = watch.take();
    let made = method::QP_CREATE;
    let call = calls.iter().rev().find(|call| (call.object, call.method) == (made.object, made.id));
    let input = call.and_then(|call| call.inputs.get(&attr::uhw::IN.0));
    let input = input.ok_or(Failure::Missing("the command queue pair"))?;
    let address =
        |at: usize| u64::from_ne_bytes(input[at..at + 8].try_into().expect("eight bytes")) as usize;
    // SAFETY: the queue owns the ring and the record, and lives to the end of this function. The
    // driver writes them only in calls of this thread.
    let (ring, record) = unsafe {
        (Memory::new(address(0), OPERATIONS as usize * BLOCK), Memory::new(address(8), 8))
    };
    let mut handles: Vec<TagHandle> = Vec::new();
    let mut posted = Vec::new();
    for (n, Line { operation, flags, count }) in lines.iter().enumerate() {
        let sges;
        let mut wr = match operation {
            Operation::Add { tag, mask, sge } => {
                sges = [*sge];
                OpsWr::add(n as u64, TagAdd { recv_wr_id: 0, sges: &sges, tag: *tag, mask: *mask })
            }
            Operation::Del(which) => OpsWr::del(0, handles[*which]),
            Operation::Sync => OpsWr::sync(n as u64, 0),
        };
        (wr.flags, wr.unexpected_cnt) = (*flags, *count);
        let mut list = [wr];
        queue.post_srq_ops(&mut list).map_err(|_| Failure::Missing("room for an operation"))?;
        handles.extend(list[0].handle);
        posted.push((ring.read(n * BLOCK, BLOCK), record.read(4, 4)));
    }
    Ok(posted)
}

/// Posts the same operations on both sides, and compares the memory that they wrote.
pub(crate) fn compare(
    program: &Path,
    library: &Path,
    simulator: &Simulator,
) -> Result<Vec<Comparison>, Failure> {
    let lines = script();
    let (theirs, ours) = (theirs(program, library, &lines)?, ours(simulator, &lines)?);
    if theirs.len() != lines.len() {
        return Err(Failure::Missing("an answer to every operation"));
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let both = theirs.iter().zip(&ours).zip(&lines).enumerate();
    Ok(both
        .map(|(n, ((peer, own), line))| {
            let mut differences = Vec::new();
            let mut add = |what: &str, peer: String, ours: String| {
                let (id, place) = (format!("tags/{what}"), format!("operation {n}"));
                differences.push(Difference { id, place, peer, ours });
            };
            if peer.1 != own.1 {
                add("record", hex(&peer.1), hex(&own.1));
            }
            // The request's own length says where it ends; the number of the queue pair differs
            // between the sides.
            let request = |block: &[u8]| {
                let mut request = block[..usize::from(block[7] & 0x3f) * UNIT].to_vec();
                request[4..7].fill(0);
                request
            };
            let (mut a, b) = (request(&peer.0), request(&own.0));
            let removal = matches!(line.operation, Operation::Del(_));
            if removal && a.get(17) != b.get(17) && !line.flags.contains(OpsFlags::SIGNALED) {
                add("unsignaled-removal", hex(&a[17..18]), hex(&b[17..18]));
                a[17] = b[17];
            }
            if a != b {
                add("request", hex(&a), hex(&b));
            }
            Comparison { kind: "tag operation", differences }
        })
        .collect())
}
