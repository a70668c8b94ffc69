//! Work queues, indirection tables, and the raw packet queue pairs that have one.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::{CreateRqIn, QueueState};
use mlx5_prm::cmd::qp::TimestampFormat;
use mlx5_prm::cmd::srq::WorkQueueType;
use mlx5_prm::cmd::steering::{
    CreateRqtIn, CreateRqtOut, CreateTirIn, HashFields, HashFunction, TirDispatch, hash_fields,
};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5::{
    self, CreateQpRss, CreateWqMask, QpFlags, RxHashFields, RxHashFunctions, StridingRqCaps,
};
use mlx5_uapi::verbs::{QpType, WqAttrMask, WqFlags, WqState, WqType};
use mlx5_uapi::write_cmd::{CreateRwqIndTable, CreateRwqIndTableResp, ModifyWq};
use zerocopy::IntoBytes;

use crate::engine::Strides;
use crate::kernel::buffer::{self, QueueMemory};
use crate::kernel::decode::{Request, from_short, is_clear_behind};
use crate::kernel::events::Subscription;
use crate::kernel::file::{Context, OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::lock;
use crate::kernel::objects::Body;
use crate::kernel::objects::raw::{IndirectionTable, Raw, Wq, modify_rq};
use crate::kernel::raw_qp;
use crate::kernel::rings::user_index;
use crate::kernel::write_call::WriteCall;

/// Most of a queue's place in its page, in 64ths.
const MOST_OFFSET: u32 = 31;
/// The largest receive WQE, as a logarithm.
const LOG_LARGEST_STRIDE: u32 = 11;
/// Base-two logarithm of the largest indirection table.
pub(crate) const LOG_TABLE: u32 = 11;
/// Bytes of the key of the hash.
const KEY: usize = 40;
/// The shortest request of the driver for a queue pair with an indirection table, in bytes.
const SHORTEST_RSS: usize = core::mem::offset_of!(CreateQpRss, flags);
/// Bytes of a scatter entry.
const SGE: u32 = 16;

/// Raw packet queue pairs, in a mask of types.
pub(crate) const RAW_PACKET_TYPE: u32 = 1 << QpType::RawPacket as u32;

const WQ_FLAGS: WqFlags =
    WqFlags::CVLAN_STRIPPING.union(WqFlags::SCATTER_FCS).union(WqFlags::PCI_WRITE_END_PADDING);

/// The strides of receive WQEs.
pub(crate) fn strides(hca: &Hca) -> StridingRqCaps {
    let fewest = match hca.caps.ext_stride_num_range() {
        true => *Strides::LOG_COUNT.start(),
        false => Strides::LOG_COUNT_BASE,
    };
    StridingRqCaps {
        min_single_stride_log_num_of_bytes: *Strides::LOG_BYTES.start(),
        max_single_stride_log_num_of_bytes: *Strides::LOG_BYTES.end(),
        min_single_wqe_log_num_of_strides: fewest,
        max_single_wqe_log_num_of_strides: *Strides::LOG_COUNT.end(),
        supported_qpts: RAW_PACKET_TYPE,
        reserved: 0,
    }
}

/// Whether the device supports a WQE's strides.
fn have(hca: &Hca, driver: &mlx5::CreateWq) -> bool {
    let caps = strides(hca);
    (caps.min_single_stride_log_num_of_bytes..=caps.max_single_stride_log_num_of_bytes)
        .contains(&driver.single_stride_log_num_of_bytes)
        && (caps.min_single_wqe_log_num_of_strides..=caps.max_single_wqe_log_num_of_strides)
            .contains(&driver.single_wqe_log_num_of_strides)
}

/// Makes a work queue.
pub(crate) fn create(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::create_wq as id;
    let context = state.context()?;
    let hca = &file.hca;
    if !hca.has_raw_packets() {
        return Err(Errno::EOPNOTSUPP);
    }
    let (pd, cq) = (request.handle(id::PD_HANDLE)?, request.handle(id::CQ_HANDLE)?);
    if request.number(id::TYPE)? != u64::from(WqType::Rq.raw()) {
        return Err(Errno::EINVAL);
    }
    let flags = WqFlags::from_bits(request.number_u32(id::FLAGS)?).ok_or(Errno::EINVAL)?;
    if !WQ_FLAGS.contains(flags) {
        return Err(Errno::EOPNOTSUPP);
    }
    let user_handle = request.number(id::USER_HANDLE)?;
    let events = state.async_events(request.object(id::EVENT_FD))?;
    let bytes = request.input(attr::uhw::IN)?;
    let driver: mlx5::CreateWq = from_short(&bytes);
    let striding = driver.comp_mask == CreateWqMask::STRIDING_RQ.bits();
    if !is_clear_behind(&bytes, size_of::<mlx5::CreateWq>())
        || driver.comp_mask != 0 && !(striding && hca.caps.striding_rq())
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if striding && !have(hca, &driver) {
        return Err(Errno::EINVAL);
    }
    if driver.flags != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let uidx = user_index(context.cqe_version, driver.user_index)?;
    let (wqes, log_stride) = (driver.rq_wqe_count, driver.rq_wqe_shift);
    let max_wr = request.number_u32(id::MAX_WR)?;
    if !wqes.is_power_of_two()
        || wqes > 1 << hca.caps.log_max_wq_sz()
        || max_wr > wqes
        || !(4..=LOG_LARGEST_STRIDE).contains(&log_stride)
    {
        return Err(Errno::EINVAL);
    }
    let (pdn, queue) = (state.objects.pdn(pd)?, state.objects.cq(cq)?);
    let memory = QueueMemory::new(driver.buf_addr, u64::from(wqes) << log_stride, MOST_OFFSET)?;
    let mut input = CreateRqIn::request();
    input.set_uid(context.uid);
    input
        .ctx_mut()
        .set_vsd(!flags.contains(WqFlags::CVLAN_STRIPPING))
        .set_scatter_fcs(flags.contains(WqFlags::SCATTER_FCS))
        .set_flush_in_error_en(true)
        .set_user_index(uidx)
        .set_cqn(queue.cqn);
    if queue.real_time {
        input.ctx_mut().set_ts_format(TimestampFormat::REAL_TIME.0);
    }
    let wq = input.ctx_mut().wq_mut();
    if striding {
        wq.set_wq_type(WorkQueueType::CYCLIC_STRIDING_RQ.0)
            .set_two_byte_shift_en(driver.two_byte_shift_en != 0)
            .set_log_wqe_stride_size(
                driver.single_stride_log_num_of_bytes - Strides::LOG_BYTES.start(),
            )
            // Four bits with a sign.
            .set_log_wqe_num_of_strides(
                driver.single_wqe_log_num_of_strides.wrapping_sub(Strides::LOG_COUNT_BASE) & 0xf,
            );
    } else {
        wq.set_wq_type(WorkQueueType::CYCLIC.0);
    }
    wq.set_end_padding_mode(flags.contains(WqFlags::PCI_WRITE_END_PADDING).into())
        .set_pd(pdn)
        .set_dbr_addr(buffer::record(driver.db_addr)?)
        .set_page_offset(memory.page_offset)
        .set_log_wq_pg_sz(QueueMemory::LOG_PAGE_SIZE)
        .set_log_wq_stride(log_stride)
        .set_log_wq_sz(wqes.ilog2());
    let rqn = hca.command_with(&input, &memory.pages)?.rqn();
    let wq = Wq { rqn, state: WqState::Reset, events: Subscription::new(events, user_handle) };
    if let Some(route) = &wq.events {
        lock(&hca.hub.routes).wqs.insert(rqn, route.clone());
    }
    let handle = state.objects.add(Body::Wq(wq), &[pd, cq]);
    request.made(id::HANDLE, handle.into());
    request.answer(id::RESP_MAX_WR, &wqes)?;
    request.answer(id::RESP_MAX_SGE, &((1u32 << log_stride) / SGE))?;
    request.answer(id::RESP_WQ_NUM, &rqn)?;
    let answer =
        mlx5::LengthResp { response_length: size_of::<mlx5::LengthResp>() as u32, reserved: 0 };
    request.answer_bytes(attr::uhw::OUT, answer.as_bytes())
}

/// Changes the state of a work queue, or whether it strips tags.
pub(crate) fn modify(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: ModifyWq = call.request();
    let driver: mlx5::ModifyWq = call.driver_request();
    if driver.comp_mask != 0 || driver.reserved != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mask = WqAttrMask::from_bits(request.attr_mask).ok_or(Errno::EINVAL)?;
    let wq = state.objects.wq_mut(request.wq_handle)?;
    let stated = |told, number| match mask.contains(told) {
        true => WqState::from_raw(number).map(Some).ok_or(Errno::EINVAL),
        false => Ok(None),
    };
    let from = stated(WqAttrMask::CUR_STATE, request.curr_wq_state)?.unwrap_or(wq.state);
    let to = stated(WqAttrMask::STATE, request.wq_state)?.unwrap_or(from);
    let keep_vlan = if mask.contains(WqAttrMask::FLAGS) {
        let (flags, changed) = (
            WqFlags::from_bits_retain(request.flags),
            WqFlags::from_bits_retain(request.flags_mask),
        );
        if changed != WqFlags::CVLAN_STRIPPING {
            return Err(Errno::EOPNOTSUPP);
        }
        Some(!flags.contains(WqFlags::CVLAN_STRIPPING))
    } else {
        None
    };
    // The driver names the state that the program gave, or the one that it remembers; the device
    // checks it.
    modify_rq(&file.hca, wq.rqn, (device_state(from), device_state(to)), keep_vlan)?;
    wq.state = to;
    Ok(())
}

fn device_state(state: WqState) -> QueueState {
    match state {
        WqState::Reset => QueueState::RST,
        WqState::Ready => QueueState::RDY,
        WqState::Error => QueueState::ERR,
    }
}

/// Makes an indirection table of work queues.
pub(crate) fn create_table(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: CreateRwqIndTable = call.request();
    if request.comp_mask != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let log_size = request.log_ind_tbl_size;
    if log_size > LOG_TABLE {
        return Err(Errno::EINVAL);
    }
    let listed = &call.core_in()[size_of::<CreateRwqIndTable>()..];
    let listed = listed.as_chunks::<4>().0;
    let listed = listed.get(..1 << log_size).ok_or(Errno::EINVAL)?;
    let handles: Vec<u32> = listed.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let mut input = CreateRqtIn::request();
    input.rqt_context_mut().set_rqt_max_size(1 << log_size).set_rqt_actual_size(1 << log_size);
    let mut mailbox = input.as_bytes().to_vec();
    for handle in &handles {
        mailbox.extend(state.objects.wq(*handle)?.rqn.to_be_bytes());
    }
    let mut output = CreateRqtOut::default();
    file.hca.command_bytes(&mailbox, output.as_mut_bytes())?;
    let table = IndirectionTable { rqtn: output.rqtn(), log_size };
    let number = table.rqtn;
    let handle = state.objects.add(Body::IndirectionTable(table), &handles);
    call.respond(&CreateRwqIndTableResp {
        comp_mask: 0,
        response_length: size_of::<CreateRwqIndTableResp>() as u32,
        ind_tbl_handle: handle,
        ind_tbl_num: number,
    })
}

/// The fields of the hash for the program's mask; an error if it names two of a kind.
fn fields(mask: RxHashFields) -> Result<HashFields, Errno> {
    let any = |fields: RxHashFields| mask.intersects(fields);
    let (four, six) = (
        any(RxHashFields::SRC_IPV4 | RxHashFields::DST_IPV4),
        any(RxHashFields::SRC_IPV6 | RxHashFields::DST_IPV6),
    );
    let (tcp, udp) = (
        any(RxHashFields::SRC_PORT_TCP | RxHashFields::DST_PORT_TCP),
        any(RxHashFields::SRC_PORT_UDP | RxHashFields::DST_PORT_UDP),
    );
    let spi = any(RxHashFields::IPSEC_SPI);
    if four && six || [tcp, udp, spi].into_iter().filter(|one| *one).count() > 1 {
        return Err(Errno::EINVAL);
    }
    let pairs = [
        (RxHashFields::SRC_IPV4 | RxHashFields::SRC_IPV6, hash_fields::SRC_IP),
        (RxHashFields::DST_IPV4 | RxHashFields::DST_IPV6, hash_fields::DST_IP),
        (RxHashFields::SRC_PORT_TCP | RxHashFields::SRC_PORT_UDP, hash_fields::L4_SPORT),
        (RxHashFields::DST_PORT_TCP | RxHashFields::DST_PORT_UDP, hash_fields::L4_DPORT),
        (RxHashFields::IPSEC_SPI, hash_fields::IPSEC_SPI),
    ];
    let selected = pairs.into_iter().filter(|(fields, _)| any(*fields)).map(|(_, bit)| bit).sum();
    let mut select = HashFields::default();
    select.set_l3_prot_type(six).set_l4_prot_type(udp).set_selected_fields(selected);
    Ok(select)
}

/// The driver's request for a queue pair with an indirection table.
pub(crate) fn hashed(request: &Request<'_>) -> Result<CreateQpRss, Errno> {
    let bytes = request.input(attr::uhw::IN)?;
    if bytes.len() < SHORTEST_RSS {
        return Err(Errno::EINVAL);
    }
    let driver: CreateQpRss = from_short(&bytes);
    if driver.comp_mask != 0
        || driver.reserved != [0; 6]
        || !is_clear_behind(&bytes, size_of::<CreateQpRss>())
        || !raw_qp::DRIVER_FLAGS.contains(QpFlags::from_bits_retain(driver.flags))
    {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(driver)
}

/// Makes the TIR, which is the whole of a queue pair with an indirection table.
pub(crate) fn create_hash(
    hca: &Hca,
    context: Context,
    table: &IndirectionTable,
    driver: &CreateQpRss,
) -> Result<Raw, Errno> {
    let flags = QpFlags::from_bits_retain(driver.flags);
    let mask = RxHashFields::from_bits(driver.rx_hash_fields_mask).ok_or(Errno::EOPNOTSUPP)?;
    let inner = mask.contains(RxHashFields::INNER);
    if inner && !flags.contains(QpFlags::TUNNEL_OFFLOADS)
        || driver.rx_hash_function != RxHashFunctions::TOEPLITZ.bits()
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if usize::from(driver.rx_key_len) != KEY {
        return Err(Errno::EINVAL);
    }
    let mut input = CreateTirIn::request();
    let tir = input.ctx_mut();
    tir.set_disp_type(TirDispatch::INDIRECT.0)
        .set_indirect_table(table.rqtn)
        .set_transport_domain(context.transport_domain)
        .set_tunneled_offload_en(flags.contains(QpFlags::TUNNEL_OFFLOADS))
        .set_self_lb_block(raw_qp::own_frames(flags));
    if mask.difference(RxHashFields::INNER).is_empty() {
        // With one queue no hash is needed.
        if table.log_size != 0 {
            return Err(Errno::EINVAL);
        }
    } else {
        tir.set_rx_hash_fn(HashFunction::TOEPLITZ.0);
        tir.rx_hash_toeplitz_key_mut().copy_from_slice(&driver.rx_hash_key[..KEY]);
        let select = fields(mask)?;
        match inner {
            true => *tir.rx_hash_field_selector_inner_mut() = select,
            false => *tir.rx_hash_field_selector_outer_mut() = select,
        }
    }
    let mut raw = Raw { tir: Some(hca.command(&input)?.tirn()), ..Raw::default() };
    if raw_qp::own_frames(flags) != 0 {
        hca.loopback.enter_queue(hca);
        raw.loops_back = true;
    }
    Ok(raw)
}
