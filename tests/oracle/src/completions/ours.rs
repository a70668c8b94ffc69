//! The same entries, read by this provider.

use mlx5::mkey::{
    BlockSize, Crc, Domain, Mkey, MkeyAccess, Seed, Signature, SignatureBlock, SignatureBytes,
};
use mlx5::transport::{RawPacket, Rc, Ud};
use mlx5::window::TypeTwo;
use mlx5::{
    Access, AddressHandle, Clock, CompletionErrorKind, CompletionOpcode, CompletionQueue,
    ConnectOptions, CqeSize, MemoryRegion, MemoryWindow, NetworkHeader, Opcode, OpsWr,
    OwnedCompletion, ProtectionDomain, Psn, QueuePair, QueuePairTransport, RawWqe, ReceiveWr,
    RemoteAddress, Segmented, SendFlags, Sge, SharedReceiveQueue, Syndrome, TagAdd, TagHandle,
    TagMatchingQueue, WorkCompletion, WorkQueue, XrcDomain, devices_on,
};
use mlx5_prm::cqe::DESCRIPTOR;
use mlx5_prm::wqe::{BLOCK, UNIT};
use mlx5_sim::Simulator;
use mlx5_uapi::ioctl::method;
use mlx5_uapi::mlx5::ClockInfo;
use zerocopy::IntoBytes;

use super::rows::{ENTRY, Posted, Row, Sent, TagOperation, Target};
use super::{Fields, flag};
use crate::failure::Failure;
use crate::memory::{CompletionRing, Memory, SendRing};
use crate::ours::{address_at, driver_input, u32_at};
use crate::watch::Watch;

/// Bytes of each buffer, as in the C program.
const BUFFER: u32 = 64;
const COMPLETIONS: u32 = 255;
/// Bytes of the headers of a packet that the device segments.
const HEADERS: u32 = 54;

/// A queue pair, and the addresses that the device would know.
struct Pair<T: QueuePairTransport> {
    qp: QueuePair<T>,
    user_index: u32,
    ring: SendRing,
    record: Memory,
    /// Blocks posted, and receives.
    head: u16,
    received: u16,
}

/// A shared receive queue, with the addresses that the device would know.
struct Shared {
    user_index: u32,
    ring: Memory,
    stride: usize,
    /// The request that the device takes next.
    next: u16,
}

/// The objects that a machine's rows need. A field comes before those that it depends on, so that
/// it is dropped first.
struct Side {
    tags: Option<(TagMatchingQueue, Shared, SendRing)>,
    handle: Option<TagHandle>,
    operations: u16,
    packets: Option<(Pair<RawPacket>, WorkQueue, u32, u16)>,
    rc: Pair<Rc>,
    ud: Pair<Ud>,
    served: Pair<Rc>,
    srq: (SharedReceiveQueue, Shared),
    xrc: (SharedReceiveQueue, Shared),
    ah: AddressHandle,
    keys: [Mkey; 2],
    window: MemoryWindow<TypeTwo>,
    mr: MemoryRegion,
    cq: CompletionQueue,
    ring: CompletionRing,
    clock: Clock,
    clock_page: Memory,
}

fn shared(watch: &Watch, requests: u32, entries: u32) -> Result<Shared, Failure> {
    let driver = driver_input(&watch.take(), method::SRQ_CREATE)?.to_vec();
    let stride = (entries as usize + 1) * UNIT;
    // SAFETY: the queue owns its ring, and the caller keeps both together. The driver writes the
    // ring only in calls of this thread.
    let ring = unsafe { Memory::new(address_at(&driver, 0), stride * (requests as usize + 1)) };
    Ok(Shared { user_index: u32_at(&driver, 24), ring, stride, next: 0 })
}

fn pair<T: QueuePairTransport>(watch: &Watch, qp: QueuePair<T>) -> Result<Pair<T>, Failure> {
    let driver = driver_input(&watch.take(), method::QP_CREATE)?.to_vec();
    let (blocks, receives) = (u32_at(&driver, 16), u32_at(&driver, 20));
    // Packets are sent from a separate ring.
    let start = match address_at(&driver, 40) {
        0 => address_at(&driver, 0) + (receives << u32_at(&driver, 24)) as usize,
        own => own,
    };
    // SAFETY: the queue pair owns the ring and the record, and the caller keeps them together. The
    // driver writes them only in calls of this thread.
    let (ring, record) = unsafe {
        (
            SendRing(Memory::new(start, blocks as usize * BLOCK)),
            Memory::new(address_at(&driver, 8), 8),
        )
    };
    Ok(Pair { qp, user_index: u32_at(&driver, 32), ring, record, head: 0, received: 0 })
}

impl<T: QueuePairTransport> Pair<T> {
    /// The block of the last request that the doorbell record announces.
    fn last(&mut self) -> u16 {
        let record = self.record.read(0, 8);
        let (end, mut last) = (u16::from_be_bytes([record[6], record[7]]), self.head);
        while self.head != end {
            last = self.head;
            self.head = self.ring.request(self.head).1;
        }
        last
    }

    fn receive(&mut self, list: &[ReceiveWr<'_>]) -> Result<u16, Failure> {
        self.qp.post_recv(list).map_err(|_| Failure::Missing("room for a receive"))?;
        self.received = self.received.wrapping_add(1);
        Ok(self.received.wrapping_sub(1))
    }
}

impl Shared {
    /// The request that was posted last.
    fn posted(&mut self) -> u16 {
        let index = self.next;
        let next = self.ring.read(usize::from(index) * self.stride + 2, 2);
        self.next = u16::from_be_bytes([next[0], next[1]]);
        index
    }
}

fn builder<'a, T: QueuePairTransport>(
    pd: &'a ProtectionDomain,
    cq: &'a CompletionQueue,
) -> mlx5::QueuePairBuilder<'a, T> {
    pd.create_qp::<T>(cq, cq).max_send_wr(32).max_recv_wr(16).max_send_sge(4).max_recv_sge(2)
}

impl Side {
    fn new(
        simulator: &Simulator,
        size: CqeSize,
        tags: bool,
        packets: bool,
    ) -> Result<Self, Failure> {
        let watch = Watch::default();
        let device = devices_on(watch.kernel(simulator.kernel()))?.into_iter().next();
        let context = device.ok_or(Failure::Missing("a device"))?.open()?;
        let pd = context.alloc_pd()?;
        let clock = context.clock()?;
        let page = watch.clock_page().ok_or(Failure::Missing("the clock page"))?;
        let cq = context.create_cq(COMPLETIONS).cqe_size(size).build()?;
        let driver = driver_input(&watch.take(), method::CQ_CREATE)?.to_vec();
        let entry = u32_at(&driver, 16) as usize;
        // SAFETY: the completion queue owns its ring and the context its clock page; `Side` keeps
        // both. The driver only reads them, by volatile and by atomic loads.
        let (memory, clock_page) = unsafe {
            (
                Memory::new(address_at(&driver, 0), (COMPLETIONS as usize + 1) * entry),
                Memory::new(page, size_of::<ClockInfo>()),
            )
        };
        let ring = CompletionRing { memory, entry, written: 0 };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.memory(4096).access(access | Access::MW_BIND).register()?;

        let srq = pd.create_srq(16).max_sge(2).build()?;
        let srq = (shared(&watch, srq.capacity(), srq.max_sge())?, srq);
        let domain: XrcDomain = context.open_xrcd()?;
        let xrc = pd.create_srq(16).max_sge(2).xrc(&domain, &cq).build()?;
        let xrc = (shared(&watch, xrc.capacity(), xrc.max_sge())?, xrc);
        let tags = if tags {
            let queue =
                pd.create_tm_srq(&cq, 16).max_sge(2).max_num_tags(15).max_ops(64).build()?;
            let calls = watch.take();
            let driver = driver_input(&calls, method::QP_CREATE)?;
            let blocks = u32_at(driver, 16) as usize;
            // SAFETY: the queue owns its rings; `Side` keeps it. The driver writes them only in
            // calls of this thread.
            let commands = unsafe { SendRing(Memory::new(address_at(driver, 0), blocks * BLOCK)) };
            let driver = driver_input(&calls, method::SRQ_CREATE)?;
            // The link to the next request and two entries, rounded up to a power of two.
            let stride = 4 * UNIT;
            let length = stride * (queue.capacity() as usize + 1);
            // SAFETY: the queue owns this ring, too, and the driver writes it only in calls of this
            // thread.
            let ring = unsafe { Memory::new(address_at(driver, 0), length) };
            let shared = Shared { user_index: u32_at(driver, 24), ring, stride, next: 0 };
            Some((queue, shared, commands))
        } else {
            None
        };
        let keys = [pd.create_mkey(4).build()?, pd.create_mkey(4).block_signature().build()?];
        let window = pd.alloc_mw::<TypeTwo>()?;

        let packets = if packets {
            watch.take();
            let mut qp = builder::<RawPacket>(&pd, &cq).max_tso_header(HEADERS).build()?;
            qp.activate(1)?;
            let pair = pair(&watch, qp)?;
            let mut work = pd.create_wq(&cq).max_wr(16).max_sge(2).build()?;
            let user_index = u32_at(driver_input(&watch.take(), method::WQ_CREATE)?, 24);
            work.start()?;
            Some((pair, work, user_index, 0))
        } else {
            None
        };

        let port = context.local_port(1, None)?;
        let (psn, options) = (Psn::wrapping(0), ConnectOptions::default());
        watch.take();
        let mut rc = pair(&watch, builder::<Rc>(&pd, &cq).max_inline_data(512).build()?)?;
        let mut ud = pair(&watch, builder::<Ud>(&pd, &cq).build()?)?;
        let mut served = pair(&watch, builder::<Rc>(&pd, &cq).srq(&srq.1).build()?)?;
        let nowhere = rc.qp.endpoint(&port, psn, &options);
        rc.qp.connect(&port, psn, &nowhere, &options)?;
        served.qp.connect(&port, psn, &nowhere, &options)?;
        ud.qp.activate(&port, psn, &options)?;
        let ah = pd.create_ah_to(&port, &nowhere, &options)?;
        let (srq, xrc) = ((srq.1, srq.0), (xrc.1, xrc.0));
        let (handle, operations) = (None, 0);
        Ok(Self {
            tags,
            handle,
            operations,
            packets,
            rc,
            ud,
            served,
            srq,
            xrc,
            ah,
            keys,
            window,
            mr,
            cq,
            ring,
            clock,
            clock_page,
        })
    }

    fn sge(&self) -> Result<Sge, Failure> {
        Ok(self.mr.sge(0..BUFFER as usize)?)
    }

    fn request(&mut self, sent: Sent, wr_id: u64) -> Result<(u32, u16), Failure> {
        let sge = self.sge()?;
        let word = Sge { length: 8, ..sge };
        let remote: RemoteAddress = self.mr.remote(..)?;
        let crc = Domain {
            signature: Signature::Crc(Crc::Crc32c(Seed::Zeros)),
            block_size: BlockSize::B512,
        };
        let block = SignatureBlock::new().wire(crc).check(SignatureBytes::ALL);
        let raw = {
            let mut raw = [0; UNIT];
            raw[7] = 1;
            raw[11] = 8;
            raw
        };
        let binding = match sent {
            Sent::BindWindow => {
                Some(self.window.binding(&self.mr, 0..BUFFER as usize, Access::REMOTE_READ)?)
            }
            _ => None,
        };
        let [plain, signed] = &self.keys;
        let mut batch = self.rc.qp.wr_start();
        let wr = batch.wr(wr_id, SendFlags::SIGNALED);
        let immediate = 7_u32.to_be_bytes();
        match sent {
            Sent::Send => wr.send().sge(sge),
            Sent::SendImm => wr.send_imm(immediate).sge(sge),
            Sent::SendInvalidate => wr.send_inv(7).sge(sge),
            Sent::Write => wr.rdma_write(remote).sge(sge),
            Sent::WriteImm => wr.rdma_write_imm(remote, immediate).sge(sge),
            Sent::Read => wr.rdma_read(remote).sge(sge),
            Sent::CompareSwap => wr.atomic_cmp_swp(remote, 1, 2).sge(word),
            Sent::FetchAdd => wr.atomic_fetch_add(remote, 1).sge(word),
            Sent::LocalInvalidate => wr.local_inv(7),
            Sent::BindWindow => wr.bind_mw(binding.ok_or(Failure::Missing("a binding"))?),
            Sent::Mkey => {
                wr.mkey_configure(plain.configure().access(MkeyAccess::LOCAL_WRITE));
            }
            Sent::SignedMkey => {
                let to = signed.configure().access(MkeyAccess::LOCAL_WRITE).signature(&block);
                wr.mkey_configure(to);
            }
            Sent::Cut => return Err(Failure::Missing("a queue pair of packets")),
            Sent::Raw => {
                // SAFETY: the simulated device executes nothing, so the WQE has no effect.
                let wqe = unsafe { RawWqe::new(&raw) };
                wr.raw_wqe(wqe.map_err(|_| Failure::Missing("a raw request"))?);
            }
        }
        batch.complete().map_err(|_| Failure::Missing("room for a request"))?;
        Ok((self.rc.user_index, self.rc.last()))
    }

    fn datagram(&mut self, sent: Sent, wr_id: u64) -> Result<(u32, u16), Failure> {
        let sge = self.sge()?;
        let vector = self.ah.vector();
        let mut batch = self.ud.qp.wr_start();
        let wr = batch.wr(wr_id, SendFlags::SIGNALED);
        match sent {
            Sent::Send => wr.send().ud_addr(vector, 0x11, 1).sge(sge),
            _ => wr.send_imm([0; 4]).ud_addr(vector, 0x11, 1).sge(sge),
        }
        batch.complete().map_err(|_| Failure::Missing("room for a request"))?;
        Ok((self.ud.user_index, self.ud.last()))
    }

    fn packet(&mut self, sent: Sent, wr_id: u64) -> Result<(u32, u16), Failure> {
        let payload = [self.sge()?];
        let (pair, ..) = self.packets.as_mut().ok_or(Failure::Missing("packets"))?;
        let mut batch = pair.qp.wr_start();
        let wr = batch.wr(wr_id, SendFlags::SIGNALED);
        match sent {
            Sent::Send => wr.send().sge(payload[0]),
            _ => {
                let header = &[0; HEADERS as usize];
                wr.send_tso(Segmented { header, mss: 100, payload: &payload });
            }
        }
        batch.complete().map_err(|_| Failure::Missing("room for a request"))?;
        Ok((pair.user_index, pair.last()))
    }

    fn receive(&mut self, target: Target, wr_id: u64) -> Result<(u32, u16), Failure> {
        let sges = [self.sge()?];
        let list = [ReceiveWr { wr_id, sges: &sges }];
        let full = |_| Failure::Missing("room for a receive");
        Ok(match target {
            Target::Rc => (self.rc.user_index, self.rc.receive(&list)?),
            Target::Ud => (self.ud.user_index, self.ud.receive(&list)?),
            Target::Shared => {
                self.srq.0.post_recv(&list).map_err(full)?;
                (self.served.user_index, self.srq.1.posted())
            }
            Target::Extended => {
                self.xrc.0.post_recv(&list).map_err(full)?;
                (self.xrc.1.user_index, self.xrc.1.posted())
            }
            Target::Packets | Target::Work => {
                let packets = self.packets.as_mut().ok_or(Failure::Missing("packets"))?;
                let (pair, work, user_index, received) = packets;
                if target == Target::Packets {
                    return Ok((pair.user_index, pair.receive(&list)?));
                }
                work.post_recv(&list).map_err(full)?;
                *received = received.wrapping_add(1);
                (*user_index, received.wrapping_sub(1))
            }
            Target::Tags => {
                let (queue, shared, _) =
                    self.tags.as_mut().ok_or(Failure::Missing("a list of tags"))?;
                queue.post_recv(&list).map_err(full)?;
                (shared.user_index, shared.posted())
            }
        })
    }

    fn operate(&mut self, row: &Row) -> Result<(u32, u16), Failure> {
        let Posted::Tag { operation, flags, count } = row.posted else {
            return Err(Failure::Missing("an operation"));
        };
        let sges = [self.sge()?];
        let (queue, shared, ring) = self.tags.as_mut().ok_or(Failure::Missing("a list of tags"))?;
        let mut wr = match operation {
            TagOperation::Add => {
                let recv_wr_id = row.wr_id.wrapping_add(1 << 32);
                let add = TagAdd { recv_wr_id, sges: &sges, tag: 0x1234, mask: u64::MAX };
                OpsWr::add(row.wr_id, add)
            }
            TagOperation::Delete => {
                OpsWr::del(row.wr_id, self.handle.ok_or(Failure::Missing("a tag"))?)
            }
            TagOperation::Sync => OpsWr::sync(row.wr_id, count),
        };
        (wr.flags, wr.unexpected_cnt) = (flags, count);
        let mut list = [wr];
        queue.post_srq_ops(&mut list).map_err(|_| Failure::Missing("room for an operation"))?;
        self.handle = list[0].handle.or(self.handle);
        let block = self.operations;
        self.operations = ring.request(block).1;
        Ok((shared.user_index, block))
    }

    fn post(&mut self, row: &Row) -> Result<(u32, u16), Failure> {
        match row.posted {
            Posted::Request(Target::Ud, sent) => self.datagram(sent, row.wr_id),
            Posted::Request(Target::Packets, sent) => self.packet(sent, row.wr_id),
            Posted::Request(_, sent) => self.request(sent, row.wr_id),
            Posted::Receive(target) => self.receive(target, row.wr_id),
            Posted::Tag { .. } => self.operate(row),
            Posted::Match => {
                let tags = self.tags.as_ref().ok_or(Failure::Missing("a list of tags"))?;
                Ok((tags.1.user_index, 0))
            }
        }
    }

    /// Posts, completes and reads. The clock page gets the values that `theirs` reports.
    fn run(&mut self, row: &Row, theirs: &Fields) -> Result<Fields, Failure> {
        let (user_index, counter) = self.post(row)?;
        let mut entry = row.entry.clone();
        let cqe = &mut entry[ENTRY - DESCRIPTOR..];
        cqe[33..36].copy_from_slice(&user_index.to_be_bytes()[1..]);
        cqe[60..62].copy_from_slice(&counter.to_be_bytes());
        if matches!(row.posted, Posted::Tag { .. } | Posted::Match) {
            let place = self.handle.map_or(0, TagHandle::place);
            cqe[42..44].copy_from_slice(&place.to_be_bytes());
        }
        self.ring.put(&mut entry);
        let info = ClockInfo {
            nsec: theirs.number("clock_ns").unwrap_or(0),
            cycles: theirs.number("clock_cycles").unwrap_or(0),
            frac: theirs.number("clock_frac").unwrap_or(0),
            mult: theirs.number("clock_mult").unwrap_or(0) as u32,
            shift: theirs.number("clock_shift").unwrap_or(0) as u32,
            mask: theirs.number("clock_mask").unwrap_or(0),
            ..ClockInfo::default()
        };
        self.clock_page.write(0, info.as_bytes());
        let mut polled = [OwnedCompletion::default(); 2];
        let count = self.cq.poll_into(&mut polled)?;
        let mut fields = Fields::default();
        if count == 1 {
            read(&polled[0].as_completion(), &self.clock, &mut fields)?;
        }
        Ok(fields)
    }
}

/// `enum ibv_wc_status`.
fn status(kind: CompletionErrorKind) -> u64 {
    use CompletionErrorKind as Kind;
    match kind {
        Kind::Known(syndrome) => match syndrome {
            Syndrome::LocalLength => 1,
            Syndrome::LocalQpOperation => 2,
            Syndrome::LocalProtection => 4,
            Syndrome::WorkRequestFlushed => 5,
            Syndrome::MemoryWindowBind => 6,
            Syndrome::BadResponse => 7,
            Syndrome::LocalAccess => 8,
            Syndrome::RemoteInvalidRequest => 9,
            Syndrome::RemoteAccess => 10,
            Syndrome::RemoteOperation => 11,
            Syndrome::RetryExceeded => 12,
            Syndrome::RnrRetryExceeded => 13,
            Syndrome::RemoteAborted => 16,
        },
        Kind::Unknown(_) => 21,
        Kind::TagConsumed => 22,
        Kind::RendezvousIncomplete | Kind::MessageCanceled => 23,
    }
}

/// `enum ibv_wc_opcode`.
fn opcode(opcode: CompletionOpcode) -> u64 {
    use CompletionOpcode as Is;
    match opcode {
        Is::Send => 0,
        Is::RdmaWrite => 1,
        Is::RdmaRead => 2,
        Is::CompareSwap => 3,
        Is::FetchAdd => 4,
        Is::BindWindow => 5,
        Is::LocalInvalidate => 6,
        Is::Tso => 7,
        Is::Receive => 128,
        Is::ReceiveRdmaWithImm => 129,
        Is::TmAdd => 130,
        Is::TmDel => 131,
        Is::TmSync => 132,
        Is::TmReceive => 133,
        Is::TmNoTag => 134,
        // IBV_WC_DRIVER1: the request that configures a key. IBV_WC_DRIVER2: a raw request.
        Is::Other(Opcode::Umr | Opcode::SetPsv) => 135,
        Is::Other(Opcode::Nop) | Is::Unnamed(_) => 136,
        _ => u64::MAX,
    }
}

fn read(wc: &WorkCompletion<'_>, clock: &Clock, to: &mut Fields) -> Result<(), Failure> {
    to.set("wr_id", Some(wc.wr_id()));
    to.set("status", Some(wc.status().map_or_else(|error| status(error.kind), |()| 0)));
    to.set("vendor", wc.status().err().map(|error| error.vendor.into()));
    to.set("opcode", Some(opcode(wc.opcode())));
    to.set("qpn", Some(wc.qp_num().into()));
    to.set("length", wc.byte_len().map(Into::into));
    let immediate = wc.imm_data().map(u32::from_be_bytes);
    to.set("imm", immediate.or(wc.invalidated_rkey()).map(Into::into));
    to.set("src_qp", wc.src_qp().map(Into::into));
    to.set("slid", wc.slid().map(Into::into));
    to.set("sl", wc.service_level().map(Into::into));
    to.set("path", wc.dlid_path_bits().map(Into::into));
    to.set("vlan", wc.vlan().map(Into::into));
    to.set("flow_tag", wc.flow_tag().map(Into::into));
    if let Some(headers) = wc.packet_headers() {
        to.set("network_ok", Some(headers.network_ok().into()));
        to.set("transport_ok", Some(headers.transport_ok().into()));
        let network = match headers.network() {
            Some(NetworkHeader::Ipv4) => 4,
            Some(NetworkHeader::Ipv6) => 6,
            None => 0,
        };
        to.set("network", Some(network));
    }
    to.set("pkey", wc.pkey_index().map(Into::into));
    to.set("time", wc.timestamp());
    let relation = clock.now()?;
    to.set("wallclock", wc.timestamp().map(|time| relation.nanoseconds(time)));
    to.set("tm_tag", wc.tm_info().map(|info| info.tag));
    to.set("tm_priv", wc.tm_info().map(|info| info.app_ctx.into()));
    to.data = wc.inline_data().map(|data| data.bytes().collect());
    for (name, is) in [
        (flag::GRH, wc.has_grh()),
        (flag::WITH_IMM, Some(wc.imm_data().is_some())),
        (flag::CHECKSUM_OK, wc.checksum_ok()),
        (flag::WITH_INV, Some(wc.invalidated_rkey().is_some())),
        (flag::TM_SYNC, Some(wc.tm_sync_required())),
        (flag::TM_MATCH, Some(wc.tm_match())),
        (flag::TM_DATA, Some(wc.tm_data_valid())),
    ] {
        to.set(name.0, is.map(Into::into));
    }
    Ok(())
}

/// Runs the rows.
pub(super) fn run(
    simulator: &Simulator,
    size: CqeSize,
    (tags, packets): (bool, bool),
    rows: &[Row],
    theirs: &[Fields],
) -> Result<Vec<Fields>, Failure> {
    let mut side = Side::new(simulator, size, tags, packets)?;
    rows.iter().zip(theirs).map(|(row, theirs)| side.run(row, theirs)).collect()
}
