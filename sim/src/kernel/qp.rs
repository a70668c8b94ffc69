//! Queue pairs: creation, query, multicast, end.

use std::sync::Arc;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::port::AttachToMcgIn;
use mlx5_prm::cmd::qp::{
    CreateQpIn, OffloadType, PathMigrationState, QpContext, QpState as DeviceState, QueryQpIn,
    RqType, ScatterToCqeRequester, ScatterToCqeResponder, ServiceType, TimestampFormat,
};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5;
use mlx5_uapi::mlx5::QpFlags;
use mlx5_uapi::verbs::{
    AccessFlags, MigState, QpCap, QpCreateFlags, QpDest, QpState, QpType, SrqType,
};
use mlx5_uapi::write_cmd::{CreateQpResp, Mcast, OpenQp, QueryQp, QueryQpResp};
use zerocopy::IntoBytes;

use crate::engine::is_multicast;
use crate::kernel::buffer::{self, QueueMemory};
use crate::kernel::decode::{Request, is_clear_behind};
use crate::kernel::events::Subscription;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::known::Target;
use crate::kernel::objects::qp::leave;
use crate::kernel::objects::{Body, Objects, Qp};
use crate::kernel::rings::{LOG_SMALLEST_STRIDE, NO_USER_INDEX, Rings, user_index};
use crate::kernel::write_call::WriteCall;
use crate::kernel::{lock, path, raw_qp, wq};

/// Most of the queues' place in their page, in 64ths.
const MOST_OFFSET: u32 = 63;
/// The shortest request of the driver, in bytes.
const SHORTEST_REQUEST: usize = core::mem::offset_of!(mlx5::CreateQp, sq_buf_addr);

/// Handles of the objects that a queue pair uses. Its type decides which of them exist.
#[derive(Default)]
struct Parents {
    pd: Option<u32>,
    send_cq: Option<u32>,
    recv_cq: Option<u32>,
    srq: Option<u32>,
    xrcd: Option<u32>,
    table: Option<u32>,
}

impl Parents {
    fn read(request: &Request<'_>, kind: QpType) -> Result<Self, Errno> {
        use attr::create_qp as id;
        let any = |ids: &[_]| ids.iter().any(|id| request.has(*id));
        if kind == QpType::XrcTgt {
            let own = [id::PD_HANDLE, id::SEND_CQ_HANDLE, id::RECV_CQ_HANDLE, id::SRQ_HANDLE];
            if any(&own) || any(&[id::IND_TABLE_HANDLE]) {
                return Err(Errno::EINVAL);
            }
            return Ok(Self { xrcd: Some(request.handle(id::XRCD_HANDLE)?), ..Self::default() });
        }
        if kind == QpType::RawPacket && any(&[id::IND_TABLE_HANDLE]) {
            if any(&[id::SEND_CQ_HANDLE, id::RECV_CQ_HANDLE, id::SRQ_HANDLE, id::XRCD_HANDLE]) {
                return Err(Errno::EINVAL);
            }
            let (pd, table) =
                (request.handle(id::PD_HANDLE)?, request.handle(id::IND_TABLE_HANDLE)?);
            return Ok(Self { pd: Some(pd), table: Some(table), ..Self::default() });
        }
        if any(&[id::XRCD_HANDLE, id::IND_TABLE_HANDLE]) {
            return Err(Errno::EINVAL);
        }
        let receives = kind != QpType::XrcIni;
        Ok(Self {
            pd: Some(request.handle(id::PD_HANDLE)?),
            send_cq: Some(request.handle(id::SEND_CQ_HANDLE)?),
            recv_cq: match receives {
                true => Some(request.handle(id::RECV_CQ_HANDLE)?),
                false => None,
            },
            srq: if receives { request.handle_if_any(id::SRQ_HANDLE)? } else { None },
            xrcd: None,
            table: None,
        })
    }

    fn all(&self) -> Vec<u32> {
        let all = [self.pd, self.send_cq, self.recv_cq, self.srq, self.xrcd, self.table];
        all.into_iter().flatten().collect()
    }
}

fn driver_request(request: &Request<'_>, kind: QpType) -> Result<(mlx5::CreateQp, QpFlags), Errno> {
    let bytes = request.input(attr::uhw::IN)?;
    if bytes.len() < SHORTEST_REQUEST || !is_clear_behind(&bytes, size_of::<mlx5::CreateQp>()) {
        return Err(Errno::EINVAL);
    }
    let driver: mlx5::CreateQp = request.structure(attr::uhw::IN)?;
    let flags = QpFlags::from_bits(driver.flags).ok_or(Errno::EINVAL)?;
    let mut understood = QpFlags::UAR_PAGE_INDEX
        | QpFlags::SCATTER_CQE
        | QpFlags::ALLOW_SCATTER_CQE
        | QpFlags::SIGNATURE;
    if kind == QpType::RawPacket {
        understood |= raw_qp::DRIVER_FLAGS;
    }
    // The driver allocates UARs itself; packet-based credits and signatures of receive requests are
    // not supported.
    if flags.contains(QpFlags::SIGNATURE) && driver.rq_wqe_count != 0 {
        return Err(Errno::EINVAL);
    }
    let rings = kind != QpType::XrcTgt;
    if rings && !flags.contains(QpFlags::UAR_PAGE_INDEX) || !understood.contains(flags) {
        return Err(Errno::EINVAL);
    }
    Ok((driver, flags))
}

/// Sets the form of the completions, which follows from flags and from the kinds of completion
/// queue.
fn completion(
    hca: &Hca,
    parents: &Parents,
    objects: &Objects,
    kind: QpType,
    flags: QpCreateFlags,
    driver_flags: QpFlags,
    qpc: &mut QpContext,
) -> Result<(), Errno> {
    let Some(send) = parents.send_cq else { return Ok(()) };
    let (send, receive) = (objects.cq(send)?, objects.cq(parents.recv_cq.unwrap_or(send))?);
    if send.real_time != receive.real_time || send.real_time && !hca.has_real_time() {
        return Err(Errno::EOPNOTSUPP);
    }
    if send.real_time {
        qpc.set_ts_format(TimestampFormat::REAL_TIME.0);
    }
    if !driver_flags.contains(QpFlags::SCATTER_CQE) || kind != QpType::Rc {
        return Ok(());
    }
    qpc.set_cs_res(match receive.cqe_size {
        128 => ScatterToCqeResponder::UP_TO_64B.0,
        _ => ScatterToCqeResponder::UP_TO_32B.0,
    });
    // Without a completion for every request, CQEs have data only if the program asks for it:
    // others do not look there.
    if driver_flags.contains(QpFlags::ALLOW_SCATTER_CQE)
        || flags.contains(QpCreateFlags::SQ_SIG_ALL)
    {
        qpc.set_cs_req(match send.cqe_size {
            128 => ScatterToCqeRequester::UP_TO_64B.0,
            _ => ScatterToCqeRequester::UP_TO_32B.0,
        });
    }
    Ok(())
}

pub(crate) fn create(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::create_qp as id;
    let context = state.context()?;
    let hca = &file.hca;
    let kind = u8::try_from(request.number(id::TYPE)?).ok().and_then(QpType::from_raw);
    let service = match kind.ok_or(Errno::EINVAL)? {
        QpType::Rc => ServiceType::RC,
        QpType::Uc => ServiceType::UC,
        QpType::Ud => ServiceType::UD,
        QpType::XrcIni | QpType::XrcTgt => ServiceType::XRC,
        QpType::RawPacket => return create_raw(file, state, request),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let kind = kind.ok_or(Errno::EINVAL)?;
    let parents = Parents::read(request, kind)?;
    let flags = QpCreateFlags::from_bits(request.number_u32(id::FLAGS)?).ok_or(Errno::EINVAL)?;
    let understood = QpCreateFlags::BLOCK_MULTICAST_LOOPBACK | QpCreateFlags::SQ_SIG_ALL;
    if !understood.contains(flags) || request.has(id::SOURCE_QPN) {
        return Err(Errno::EOPNOTSUPP);
    }
    let user_handle = request.number(id::USER_HANDLE)?;
    let events = state.async_events(request.object(id::EVENT_FD))?;
    let mut cap: QpCap = request.structure(id::CAP)?;
    let (driver, driver_flags) = driver_request(request, kind)?;
    let extended = matches!(kind, QpType::XrcIni | QpType::XrcTgt);
    // A target of an extended connection has no completions that name its own user index.
    let uidx = match kind {
        QpType::XrcTgt => NO_USER_INDEX,
        _ => user_index(context.cqe_version, driver.uidx)?,
    };
    let has_rq = parents.srq.is_none() && cap.max_recv_wr > 0 && !extended;
    let rings = match kind {
        QpType::XrcTgt => Rings { send_blocks: 0, receive_wqes: 0, log_stride: 0 },
        _ => Rings::new(hca, &driver, &cap, has_rq)?,
    };
    if !has_rq {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }

    let mut input = CreateQpIn::request();
    input.set_uid(context.uid);
    let qpc = input.qpc_mut();
    qpc.set_st(service.0)
        .set_pm_state(PathMigrationState::MIGRATED.0)
        .set_block_lb_mc(flags.contains(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK))
        .set_uar_page(driver.bfreg_index)
        .set_user_index(uidx)
        .set_log_page_size(QueueMemory::LOG_PAGE_SIZE);
    if let Some(pd) = parents.pd {
        qpc.set_pd(state.objects.pdn(pd)?);
    }
    if let Some(cq) = parents.send_cq {
        let cqn = state.objects.cq(cq)?.cqn;
        // A queue pair that only sends has no receive CQ, and names this one twice.
        qpc.set_cqn_snd(cqn).set_cqn_rcv(cqn);
    }
    if let Some(cq) = parents.recv_cq {
        qpc.set_cqn_rcv(state.objects.cq(cq)?.cqn);
    }
    if let Some(domain) = parents.xrcd {
        qpc.set_xrcd(state.objects.xrcd(domain)?);
    }
    let tags = match parents.srq {
        Some(srq) => state.objects.srq(srq)?.kind == SrqType::Tm,
        None => false,
    };
    if rings.send_blocks == 0 {
        // A queue pair with tag matching has a send side on the device, which fetches the data of
        // rendezvous.
        let offload = if tags { OffloadType::RNDV } else { OffloadType::NONE };
        qpc.set_no_sq(true).set_offload_type(offload.0);
    } else {
        qpc.set_log_sq_size(rings.send_blocks.ilog2());
    }
    completion(hca, &parents, &state.objects, kind, flags, driver_flags, qpc)?;
    qpc.set_wq_signature(driver_flags.contains(QpFlags::SIGNATURE));
    match parents.srq {
        Some(srq) => {
            qpc.set_rq_type(RqType::SRQ.0).set_srqn_rmpn_xrqn(state.objects.srq(srq)?.srqn);
        }
        None if has_rq => {
            qpc.set_rq_type(RqType::NON_ZERO_RQ.0)
                .set_log_rq_size(rings.receive_wqes.ilog2())
                .set_log_rq_stride(rings.log_stride - LOG_SMALLEST_STRIDE);
        }
        None => _ = qpc.set_rq_type(RqType::ZERO_LENGTH_RQ.0),
    }
    let memory = match rings.bytes() {
        0 => QueueMemory { pages: Vec::new(), page_offset: 0 },
        bytes => QueueMemory::new(driver.buf_addr, bytes, MOST_OFFSET)?,
    };
    qpc.set_page_offset(memory.page_offset);
    if kind != QpType::XrcTgt {
        qpc.set_dbr_addr(buffer::record(driver.db_addr)?);
    }
    let qpn = hca.command_with(&input, &memory.pages)?.qpn();

    let given =
        QpCap { max_recv_wr: rings.receive_wqes, max_recv_sge: rings.receive_sges(), ..cap };
    let qp = Qp {
        qpn,
        kind,
        known: Arc::default(),
        cap: given,
        signal_all: flags.contains(QpCreateFlags::SQ_SIG_ALL),
        groups: Vec::new(),
        events: Subscription::new(events, user_handle),
        raw: None,
    };
    if let Some(route) = &qp.events {
        lock(&hca.hub.routes).add_qp(qpn, route);
    }
    if let Some(domain) = parents.xrcd {
        let xrcd = state.objects.xrcd(domain)?;
        let target = Target { xrcd, users: 1, known: Arc::clone(&qp.known) };
        lock(&hca.targets).insert(qpn, target);
    }
    let handle = state.objects.add(Body::Qp(Box::new(qp)), &parents.all());
    request.made(id::HANDLE, handle.into());
    request.answer(id::RESP_CAP, &cap)?;
    request.answer(id::RESP_QP_NUM, &qpn)?;
    let answer =
        mlx5::CreateQpResp { bfreg_index: driver.bfreg_index, ..mlx5::CreateQpResp::default() };
    request.answer_bytes(attr::uhw::OUT, answer.as_bytes())
}

/// Makes a raw packet queue pair, which consists of other objects on the device.
fn create_raw(file: &OpenFile, state: &mut State, request: &mut Request<'_>) -> Result<(), Errno> {
    use attr::create_qp as id;
    let context = state.context()?;
    let hca = &file.hca;
    hca.raw_packets()?;
    let kind = QpType::RawPacket;
    let parents = Parents::read(request, kind)?;
    let flags = QpCreateFlags::from_bits(request.number_u32(id::FLAGS)?).ok_or(Errno::EINVAL)?;
    if !raw_qp::FLAGS.union(QpCreateFlags::SQ_SIG_ALL).contains(flags)
        || request.has(id::SOURCE_QPN)
        || parents.srq.is_some()
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let user_handle = request.number(id::USER_HANDLE)?;
    let events = state.async_events(request.object(id::EVENT_FD))?;
    let mut cap: QpCap = request.structure(id::CAP)?;
    let mut answer = mlx5::CreateQpResp::default();
    let raw = match parents.table {
        Some(table) => {
            if !flags.is_empty() {
                return Err(Errno::EOPNOTSUPP);
            }
            cap = QpCap::default();
            let driver = wq::hashed(request)?;
            wq::create_hash(hca, context, state.objects.table(table)?, &driver)?
        }
        None => {
            if context.cqe_version == 0 {
                return Err(Errno::EINVAL);
            }
            let (driver, driver_flags) = driver_request(request, kind)?;
            let rings = Rings::new(hca, &driver, &cap, cap.max_recv_wr > 0)?;
            if rings.send_blocks == 0 && rings.receive_wqes == 0 {
                return Err(Errno::EINVAL);
            }
            let pd = parents.pd.ok_or(Errno::EINVAL)?;
            let send = state.objects.cq(parents.send_cq.ok_or(Errno::EINVAL)?)?;
            let receive = state.objects.cq(parents.recv_cq.ok_or(Errno::EINVAL)?)?;
            if send.real_time != receive.real_time {
                return Err(Errno::EOPNOTSUPP);
            }
            answer.bfreg_index = driver.bfreg_index;
            cap.max_recv_wr = rings.receive_wqes;
            cap.max_recv_sge = rings.receive_sges();
            raw_qp::create(
                hca,
                &raw_qp::Parts {
                    context,
                    pdn: state.objects.pdn(pd)?,
                    send_cqn: send.cqn,
                    recv_cqn: receive.cqn,
                    uidx: user_index(context.cqe_version, driver.uidx)?,
                    real_time: send.real_time,
                    flags,
                    driver: &driver,
                    driver_flags,
                    rings: &rings,
                },
            )?
        }
    };
    raw_qp::answer(context, &raw, &mut answer);
    let numbers = [raw.sq, raw.rq];
    let qpn = raw.sq.or(raw.rq).unwrap_or(0);
    let qp = Qp {
        qpn,
        kind,
        known: Arc::default(),
        cap,
        signal_all: flags.contains(QpCreateFlags::SQ_SIG_ALL),
        groups: Vec::new(),
        events: Subscription::new(events, user_handle),
        raw: Some(raw),
    };
    if let Some(route) = &qp.events {
        for number in numbers.into_iter().flatten() {
            lock(&hca.hub.routes).add_qp(number, route);
        }
    }
    let handle = state.objects.add(Body::Qp(Box::new(qp)), &parents.all());
    request.made(id::HANDLE, handle.into());
    request.answer(id::RESP_CAP, &cap)?;
    request.answer(id::RESP_QP_NUM, &qpn)?;
    request.answer_bytes(attr::uhw::OUT, answer.as_bytes())
}

/// OPEN_QP: makes one more handle of a target, which another program may have created.
pub(crate) fn open(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: OpenQp = call.request();
    // The core passes the XRC domain's handle in the field of the protection domain's.
    let xrcd = state.objects.xrcd(request.pd_handle)?;
    if QpType::from_raw(request.qp_type) != Some(QpType::XrcTgt) {
        return Err(Errno::EINVAL);
    }
    let mut targets = lock(&file.hca.targets);
    let target = targets.get_mut(&request.qpn).filter(|target| target.xrcd == xrcd);
    let target = target.ok_or(Errno::EINVAL)?;
    target.users += 1;
    let qp = Qp {
        qpn: request.qpn,
        kind: QpType::XrcTgt,
        known: Arc::clone(&target.known),
        cap: QpCap::default(),
        signal_all: false,
        groups: Vec::new(),
        events: Subscription::new(state.async_events(None)?, request.user_handle),
        raw: None,
    };
    if let Some(route) = &qp.events {
        lock(&file.hca.hub.routes).add_qp(request.qpn, route);
    }
    let qp_handle = state.objects.add(Body::Qp(Box::new(qp)), &[request.pd_handle]);
    call.respond(&CreateQpResp { qp_handle, qpn: request.qpn, ..CreateQpResp::default() })
}

fn verbs_state(state: DeviceState) -> QpState {
    match state {
        DeviceState::INIT => QpState::Init,
        DeviceState::RTR => QpState::Rtr,
        DeviceState::RTS => QpState::Rts,
        DeviceState::SQER => QpState::Sqe,
        DeviceState::SQD | DeviceState::SQ_DRAINING => QpState::Sqd,
        DeviceState::ERR => QpState::Err,
        _ => QpState::Reset,
    }
}

/// QUERY_QP. With it the driver learns of a state that the device entered by itself.
pub(crate) fn query(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: QueryQp = call.request();
    let qp = state.objects.qp(request.qp_handle)?;
    let mut known = lock(&qp.known);
    if let Some(raw) = &qp.raw {
        if raw.sq.is_none() && raw.rq.is_none() {
            return Err(Errno::EOPNOTSUPP);
        }
        known.state = raw_qp::state(&file.hca, raw, known.state)?;
        let answer = QueryQpResp {
            max_send_wr: qp.cap.max_send_wr,
            max_recv_wr: qp.cap.max_recv_wr,
            max_send_sge: qp.cap.max_send_sge,
            max_recv_sge: qp.cap.max_recv_sge,
            max_inline_data: qp.cap.max_inline_data,
            qp_state: known.state.raw(),
            cur_qp_state: known.state.raw(),
            port_num: known.port,
            sq_sig_all: qp.signal_all.into(),
            ..QueryQpResp::default()
        };
        return call.respond(&answer);
    }
    let mut input = QueryQpIn::request();
    input.set_qpn(qp.qpn);
    let out = file.hca.command(&input)?;
    let qpc = out.qpc();
    let device_state = DeviceState(qpc.state());
    known.state = verbs_state(device_state);
    let rights = [
        (qpc.rre(), AccessFlags::REMOTE_READ),
        (qpc.rwe(), AccessFlags::REMOTE_WRITE),
        (qpc.rae(), AccessFlags::REMOTE_ATOMIC),
    ];
    let access: AccessFlags =
        rights.into_iter().filter_map(|(given, right)| given.then_some(right)).collect();
    let migration = match PathMigrationState(qpc.pm_state()) {
        PathMigrationState::ARMED => MigState::Armed,
        PathMigrationState::REARM => MigState::Rearm,
        _ => MigState::Migrated,
    };
    let primary = qpc.primary_address_path();
    let connected = qp.kind != QpType::Ud;
    let link_layer = file.hca.link_layer(known.port.max(1))?;
    let dest = match connected {
        true => path::read(primary, link_layer),
        false => QpDest::default(),
    };
    let answer = QueryQpResp {
        dest,
        max_recv_wr: qp.cap.max_recv_wr,
        max_recv_sge: qp.cap.max_recv_sge,
        max_inline_data: qp.cap.max_inline_data,
        qkey: qpc.q_key(),
        rq_psn: qpc.next_rcv_psn(),
        sq_psn: qpc.next_send_psn(),
        dest_qp_num: qpc.remote_qpn(),
        qp_access_flags: access.bits(),
        pkey_index: primary.pkey_index() as u16,
        qp_state: known.state.raw(),
        cur_qp_state: known.state.raw(),
        path_mtu: qpc.mtu() as u8,
        path_mig_state: migration.raw(),
        sq_draining: (device_state == DeviceState::SQ_DRAINING).into(),
        max_rd_atomic: 1 << qpc.log_sra_max(),
        max_dest_rd_atomic: 1 << qpc.log_rra_max(),
        min_rnr_timer: qpc.min_rnr_nak() as u8,
        port_num: primary.vhca_port_num() as u8,
        timeout: primary.ack_timeout() as u8,
        retry_cnt: qpc.retry_count() as u8,
        rnr_retry: qpc.rnr_retry() as u8,
        sq_sig_all: qp.signal_all.into(),
        ..QueryQpResp::default()
    };
    call.respond(&answer)
}

fn group(state: &mut State, call: &WriteCall<'_, '_>) -> Result<(u32, Mcast), Errno> {
    state.context()?;
    let request: Mcast = call.request();
    let qp = state.objects.qp(request.qp_handle)?;
    if !is_multicast(&request.gid) || qp.kind != QpType::Ud {
        return Err(Errno::EINVAL);
    }
    Ok((qp.qpn, request))
}

pub(crate) fn attach(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let (qpn, request) = group(state, call)?;
    let qp = state.objects.qp_mut(request.qp_handle)?;
    if qp.groups.contains(&request.gid) {
        return Ok(());
    }
    let mut input = AttachToMcgIn::request();
    input.set_qpn(qpn);
    *input.multicast_gid_mut() = request.gid;
    file.hca.command(&input)?;
    qp.groups.push(request.gid);
    Ok(())
}

pub(crate) fn detach(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let (_, request) = group(state, call)?;
    let qp = state.objects.qp_mut(request.qp_handle)?;
    if !qp.groups.contains(&request.gid) {
        return Err(Errno::EINVAL);
    }
    leave(&file.hca, qp.qpn, request.gid)?;
    qp.groups.retain(|gid| *gid != request.gid);
    Ok(())
}
