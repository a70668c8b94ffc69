//! The requests of the table, in the form of this provider's interfaces.

use std::collections::VecDeque;
use std::ops::Range;

use mlx5::mkey::{Configure, Interleaved, Mkey, MkeyAccess};
use mlx5::operation::{BindWindow, Supports};
use mlx5::transport::{Rc, XrcSend};
use mlx5::window::{TypeOne, TypeTwo};
use mlx5::{
    Access, AccessFlags, Binding, Data, ListTransport, MemoryRegion, MemoryWindow,
    Operation as ListOperation, ProtectionDomain, QueuePair, QueuePairTransport, RawWqe, SendFlags,
    SendWr, Sge,
};

use super::table::{Layout, Line, Operation, Signing};
use crate::event::Outcome;
use crate::failure::Failure;

fn flags(text: &str) -> SendFlags {
    text.chars().fold(SendFlags::empty(), |flags, letter| {
        flags
            | match letter {
                'S' => SendFlags::SIGNALED,
                'O' => SendFlags::SOLICITED,
                'F' => SendFlags::FENCE,
                _ => SendFlags::empty(),
            }
    })
}

/// Rights, by the bits of `enum ibv_access_flags`.
fn access(bits: u32) -> MkeyAccess {
    let mut access = MkeyAccess::empty();
    let of = |flag: AccessFlags| bits & flag.bits() != 0;
    access.set(MkeyAccess::LOCAL_WRITE, of(AccessFlags::LOCAL_WRITE));
    access.set(MkeyAccess::REMOTE_WRITE, of(AccessFlags::REMOTE_WRITE));
    access.set(MkeyAccess::REMOTE_READ, of(AccessFlags::REMOTE_READ));
    access.set(MkeyAccess::REMOTE_ATOMIC, of(AccessFlags::REMOTE_ATOMIC));
    access
}

/// The lists of a line of the table.
struct Lists {
    sges: Vec<Sge>,
    turns: Vec<Interleaved>,
}

impl Lists {
    fn of(line: &Line) -> Self {
        let (sges, turns) = match &line.operation {
            Operation::Configure { layout: Layout::List(sges), .. } => (sges.clone(), Vec::new()),
            Operation::Configure { layout: Layout::Turns(_, turns), .. } => {
                (Vec::new(), turns.clone())
            }
            operation => (operation.sges().to_vec(), Vec::new()),
        };
        Self { sges, turns }
    }
}

/// Two windows, and the region that they show.
pub(super) struct Windows {
    by_request: MemoryWindow<TypeTwo>,
    by_call: MemoryWindow<TypeOne>,
    region: MemoryRegion,
}

/// The address of the windows' region on both sides.
const WINDOW_ADDRESS: u64 = 0x7f55_0000_0000;

#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "a device's, if it did anything")] [u8; 4096]);

/// Rights, by the bits of `enum ibv_access_flags`.
fn rights(bits: u32) -> Access {
    let all = [
        (AccessFlags::LOCAL_WRITE, Access::LOCAL_WRITE),
        (AccessFlags::REMOTE_WRITE, Access::REMOTE_WRITE),
        (AccessFlags::REMOTE_READ, Access::REMOTE_READ),
        (AccessFlags::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    all.into_iter().filter(|(flag, _)| bits & flag.bits() != 0).map(|(_, right)| right).collect()
}

impl Windows {
    pub(super) fn new(pd: &ProtectionDomain) -> Result<Self, Failure> {
        let page = Box::leak(Box::new(Page([0; 4096])));
        let access = rights(0xf) | Access::MW_BIND;
        let start = std::ptr::from_mut(page).cast();
        // SAFETY: the page is leaked, so it stays valid, and no reference to it is used after this.
        let region = unsafe { pd.reg_mr_iova(start, 4096, WINDOW_ADDRESS, access) }?;
        Ok(Self { by_request: pd.alloc_mw()?, by_call: pd.alloc_mw()?, region })
    }

    fn binding(&mut self, range: &Range<usize>, bits: u32) -> Option<Binding> {
        self.by_request.binding(&self.region, range.clone(), rights(bits)).ok()
    }
}

fn configure<'a>(keys: &'a [Mkey], operation: &Operation, lists: &'a Lists) -> Configure<'a> {
    let Operation::Configure { key, access: rights, layout, signing } = operation else {
        unreachable!("asked of configurations alone");
    };
    let mut to = keys[*key].configure();
    if let Some(bits) = rights {
        to = to.access(access(*bits));
    }
    to = match layout {
        Layout::Keep => to,
        Layout::List(_) => to.layout_list(&lists.sges),
        Layout::Turns(repeat, _) => to.layout_interleaved(*repeat, &lists.turns),
    };
    match signing {
        Signing::Keep => to,
        Signing::Reset => to.reset_signature(),
        Signing::Set(block) => to.signature(&block.signature()),
    }
}

/// The requests that a transport can carry.
pub(super) trait Carrier:
    QueuePairTransport + ListTransport + Supports<BindWindow> + Sized
{
    const EXTENDED: bool;
    fn build(qp: &mut QueuePair<Self>, side: &mut Side, lines: &[Line]) -> bool;
}

/// The keys and windows that requests use.
pub(super) struct Side {
    pub(super) keys: Vec<Mkey>,
    pub(super) windows: Windows,
}

impl Side {
    /// The bindings that lines ask for, in their order.
    fn bindings(&mut self, lines: &[Line]) -> VecDeque<Binding> {
        let ranges = lines.iter().filter_map(|line| match &line.operation {
            Operation::Bind(range, bits) => Some((range, *bits)),
            _ => None,
        });
        ranges.filter_map(|(range, bits)| self.windows.binding(range, bits)).collect()
    }
}

impl Carrier for Rc {
    const EXTENDED: bool = false;

    fn build(qp: &mut QueuePair<Self>, side: &mut Side, lines: &[Line]) -> bool {
        let mut bindings = side.bindings(lines);
        let mut batch = qp.wr_start();
        for line in lines {
            let lists = Lists::of(line);
            let wr = batch.wr(line.wr_id, flags(line.flags));
            let sges = &lists.sges;
            match &line.operation {
                configuration @ Operation::Configure { .. } => {
                    wr.mkey_configure(configure(&side.keys, configuration, &lists));
                }
                Operation::Send(_) => wr.send().sge_list(sges),
                Operation::SendInvalidate(rkey, _) => wr.send_inv(*rkey).sge_list(sges),
                Operation::CompareSwap { remote, compare, swap, .. } => {
                    wr.atomic_cmp_swp(*remote, *compare, *swap).sge_list(sges);
                }
                Operation::FetchAdd { remote, add, .. } => {
                    wr.atomic_fetch_add(*remote, *add).sge_list(sges);
                }
                Operation::MaskedCompareSwap { remote, operands, .. } => {
                    wr.masked_cmp_swp(*remote, *operands).sge_list(sges);
                }
                Operation::MaskedFetchAdd { remote, add, boundary, .. } => {
                    wr.masked_fetch_add(*remote, *add, *boundary).sge_list(sges);
                }
                Operation::LocalInvalidate(rkey) => wr.local_inv(*rkey),
                Operation::Bind(..) => wr.bind_mw(bindings.pop_front().expect("a binding")),
                Operation::Raw(bytes) => {
                    // SAFETY: the simulated device executes nothing, so the WQE has no effect.
                    let wqe = unsafe { RawWqe::new(bytes) };
                    wr.raw_wqe(wqe.unwrap_or_else(|error| panic!("{error}")));
                }
                _ => unreachable!("the other tables have these"),
            }
        }
        batch.complete().is_ok()
    }
}

impl Carrier for XrcSend {
    const EXTENDED: bool = true;

    fn build(qp: &mut QueuePair<Self>, _: &mut Side, lines: &[Line]) -> bool {
        let mut batch = qp.wr_start();
        for line in lines {
            let wr = batch.wr(line.wr_id, flags(line.flags));
            let (sges, srqn) = (line.operation.sges(), line.srqn.expect("a queue"));
            match &line.operation {
                Operation::Send(_) => wr.send().xrc_srqn(srqn).sge_list(sges),
                Operation::SendInline(bytes) => wr.send().xrc_srqn(srqn).inline_data(bytes),
                Operation::SendImm(immediate, _) => {
                    wr.send_imm(immediate.to_be_bytes()).xrc_srqn(srqn).sge_list(sges);
                }
                Operation::SendInvalidate(rkey, _) => {
                    wr.send_inv(*rkey).xrc_srqn(srqn).sge_list(sges);
                }
                Operation::Write(remote, _) => {
                    wr.rdma_write(*remote).xrc_srqn(srqn).sge_list(sges);
                }
                Operation::WriteImm(remote, immediate, _) => {
                    let wr = wr.rdma_write_imm(*remote, immediate.to_be_bytes());
                    wr.xrc_srqn(srqn).sge_list(sges);
                }
                Operation::Read(remote, _) => wr.rdma_read(*remote).xrc_srqn(srqn).sge_list(sges),
                Operation::CompareSwap { remote, compare, swap, .. } => {
                    wr.atomic_cmp_swp(*remote, *compare, *swap).xrc_srqn(srqn).sge_list(sges);
                }
                Operation::FetchAdd { remote, add, .. } => {
                    wr.atomic_fetch_add(*remote, *add).xrc_srqn(srqn).sge_list(sges);
                }
                _ => unreachable!("extended connections lack these"),
            }
        }
        batch.complete().is_ok()
    }
}

pub(super) fn list<T: Carrier>(qp: &mut QueuePair<T>, side: &mut Side, lines: &[Line]) -> Outcome {
    if let [Line { wr_id, flags: letters, operation: Operation::BindCall(range, bits), .. }] = lines
    {
        let Windows { by_call, region, .. } = &mut side.windows;
        let bound = match range.is_empty() {
            true => by_call.unbind(qp, *wr_id, flags(letters)).is_ok(),
            false => by_call
                .bind(qp, *wr_id, flags(letters), region, range.clone(), rights(*bits))
                .is_ok(),
        };
        return if bound { Outcome::Posted } else { Outcome::Refused(0) };
    }
    let mut bindings = side.bindings(lines);
    let messages: Vec<[&[u8]; 1]> = lines
        .iter()
        .map(|line| match &line.operation {
            Operation::SendInline(bytes) => [&bytes[..]],
            _ => [&[][..]],
        })
        .collect();
    let wrs: Vec<_> = lines
        .iter()
        .zip(&messages)
        .map(|(line, message)| {
            let operation = match &line.operation {
                Operation::Send(_) | Operation::SendInline(_) => ListOperation::Send,
                Operation::SendImm(immediate, _) => ListOperation::SendImm(immediate.to_be_bytes()),
                Operation::SendInvalidate(rkey, _) => ListOperation::SendInvalidate(*rkey),
                Operation::Write(remote, _) => ListOperation::RdmaWrite(*remote),
                Operation::WriteImm(remote, immediate, _) => {
                    ListOperation::RdmaWriteImm(*remote, immediate.to_be_bytes())
                }
                Operation::Read(remote, _) => ListOperation::RdmaRead(*remote),
                &Operation::CompareSwap { remote, compare, swap, .. } => {
                    ListOperation::CompareSwap { remote, compare, swap }
                }
                &Operation::FetchAdd { remote, add, .. } => ListOperation::FetchAdd { remote, add },
                Operation::LocalInvalidate(rkey) => ListOperation::LocalInvalidate(*rkey),
                Operation::Bind(..) => {
                    ListOperation::BindWindow(bindings.pop_front().expect("a binding"))
                }
                _ => unreachable!("lists have no such operation on both sides"),
            };
            let data = match &line.operation {
                Operation::SendInline(_) => Data::Inline(message),
                operation => Data::Sges(operation.sges()),
            };
            SendWr {
                wr_id: line.wr_id,
                flags: flags(line.flags),
                operation,
                data,
                xrc_srqn: line.srqn,
                ..SendWr::default()
            }
        })
        .collect();
    match qp.post_send(&wrs) {
        Ok(()) => Outcome::Posted,
        Err(error) => Outcome::Refused(error.index()),
    }
}
