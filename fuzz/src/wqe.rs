//! Posts WQEs of arbitrary content raw to the simulated device, which must cope with them.

use crate::numbers::Numbers;
use crate::session::{connect, device};
use mlx5::transport::Rc;
use mlx5::{Access, Context, Error, RawWqe, SendFlags};
use mlx5_prm::wqe::{Opcode, UNIT};
use mlx5_sim::{SimConfig, Simulator};

/// Maximum number of units in a WQE here; the queue refuses longer ones.
const MOST_UNITS: usize = 20;
/// Requests in a row.
const REQUESTS: usize = 4;

/// A meaningful segment, whose keys and addresses are mostly valid.
fn segment(numbers: &mut Numbers, keys: &[u32; 2], address: u64) -> [u8; UNIT] {
    let mut bytes = [0; UNIT];
    let key = numbers.pick(keys).to_be_bytes();
    let length = numbers.pick(&[0, 1, 8, 64, 1 << 31, 0x8000_0010, u32::MAX]).to_be_bytes();
    match numbers.below(4) {
        // Remote address.
        0 => {
            bytes[..8].copy_from_slice(&address.to_be_bytes());
            bytes[8..12].copy_from_slice(&key);
        }
        // Data, translation entry, inline data.
        1 => {
            bytes[..4].copy_from_slice(&length);
            bytes[4..8].copy_from_slice(&key);
            bytes[8..].copy_from_slice(&address.to_be_bytes());
        }
        // The start of a UMR: flags and what changes.
        2 => {
            bytes[0] = numbers.next() as u8;
            bytes[5] = numbers.below(9) as u8;
            bytes[8..].copy_from_slice(&(numbers.next() & 0x2fff_ffff).to_be_bytes());
        }
        _ => bytes.copy_from_slice(&[numbers.next().to_be_bytes(); 2].concat()),
    }
    bytes
}

fn wqe(numbers: &mut Numbers, keys: &[u32; 2], address: u64) -> Vec<u8> {
    let units = 1 + numbers.below(MOST_UNITS);
    let opcode = numbers.pick(Opcode::ALL) as u8;
    let modifier = numbers.pick(&[0, 0, 0, 1, 2, 8, 9, 10, 0xff]);
    let mut bytes = vec![modifier, 0, 0, opcode, 0, 0, 0, units as u8, 0, 0, 0];
    let any = numbers.next() as u8;
    bytes.push(numbers.pick(&[0x08, 0x88, 0x2a, 0x0c, any]));
    bytes.extend(numbers.pick(keys).to_be_bytes());
    for _ in 1..units {
        bytes.extend(segment(numbers, keys, address));
    }
    if !numbers.one_in(3) {
        numbers.spoil(&mut bytes[8..]);
    }
    if numbers.one_in(8) {
        numbers.spoil(&mut bytes[..8]);
    }
    bytes
}

pub(crate) fn run(numbers: &mut Numbers) {
    let simulator = Simulator::new(SimConfig::new().step(true));
    if let Err(error) = post(numbers, &simulator) {
        panic!("all calls are good, and yet: {error}");
    }
}

fn post(numbers: &mut Numbers, simulator: &Simulator) -> Result<(), Error> {
    let context: Context = device(simulator.kernel())?.open()?;
    let pd = context.alloc_pd()?;
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let mr = pd.memory(4096).access(access).register()?;
    let mut cq = context.create_cq(64).build()?;
    let mut one = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(256).build()?;
    let mut other = pd.create_qp::<Rc>(&cq, &cq).build()?;
    connect(&context, &mut one, &mut other)?;
    for _ in 0..REQUESTS {
        let bytes = wqe(numbers, &[mr.lkey(), mr.rkey() ^ 1], mr.addr() + 8);
        // SAFETY: only the simulated device reads the WQE, and it checks every address.
        let Ok(wqe) = (unsafe { RawWqe::new(&bytes) }) else { continue };
        let mut batch = one.wr_start();
        batch.wr(1, SendFlags::SIGNALED).raw_wqe(wqe);
        if batch.complete().is_err() {
            break;
        }
        for _ in 0..64 {
            if !simulator.step() {
                break;
            }
        }
        // The completion may be corrupt, because a raw request determines it; the poll may at most
        // report that.
        let _ = cq.poll(16, |completion| _ = completion.status());
    }
    Ok(())
}
