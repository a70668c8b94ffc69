//! Completion queues.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::cq::{
    CqeSize, CreateCqIn, ModifyCqFields, ModifyCqIn, ModifyCqMode, ResizeCqFields,
};
use mlx5_prm::cqe::MiniFormat;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5;
use mlx5_uapi::mlx5::{CqeCompFormat, CreateCqFlags};
use mlx5_uapi::verbs::CqFlags;
use mlx5_uapi::write_cmd::{ExModifyCq, ResizeCq, ResizeCqResp};

use crate::kernel::buffer::{self, QueueMemory};
use crate::kernel::decode::{Request, is_clear_behind};
use crate::kernel::events::Subscription;
use crate::kernel::file::{Channel, OpenFile, State};
use crate::kernel::hca::{COMPLETION_VECTORS, Hca};
use crate::kernel::lock;
use crate::kernel::objects::{Body, Cq};
use crate::kernel::write_call::WriteCall;

/// The shortest request of the driver, in bytes.
const SHORTEST_REQUEST: usize = core::mem::offset_of!(mlx5::CreateCq, flags);
/// Most of the queue's place in its page, in 64ths.
const MOST_OFFSET: u32 = 63;
/// The longest time of moderation, in microseconds (`MLX5_MAX_CQ_PERIOD`, `mlx5_ifc.h`'s 12 bits).
pub(crate) const LONGEST_PERIOD: u16 = 0xfff;
/// MODIFY_CQ of moderation.
const MODERATION: u32 = 1;

fn cqe_size_code(bytes: u32, padded: bool) -> CqeSize {
    match (bytes, padded) {
        (64, _) => CqeSize::BYTES_64,
        (_, false) => CqeSize::BYTES_128,
        (_, true) => CqeSize::BYTES_128_PADDED,
    }
}

/// The format of the mini CQEs of compressed receives: one that the device has.
fn mini_format(hca: &Hca, driver: &mlx5::CreateCq) -> Result<MiniFormat, Errno> {
    let caps = &hca.caps;
    let compresses = match driver.cqe_size {
        128 => caps.cqe_compression_128(),
        _ => caps.cqe_compression(),
    };
    if !compresses {
        return Err(Errno::EOPNOTSUPP);
    }
    match CqeCompFormat::from_bits(driver.cqe_comp_res_format.into()) {
        Some(CqeCompFormat::HASH) => Ok(MiniFormat::Hash),
        Some(CqeCompFormat::CSUM) => Ok(MiniFormat::Checksum),
        Some(CqeCompFormat::CSUM_STRIDX) if caps.mini_cqe_resp_stride_index() => {
            Ok(MiniFormat::ChecksumStride)
        }
        Some(CqeCompFormat::CSUM_STRIDX) => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// The entries of a ring for `cqe` CQEs: one more, rounded up to a power of two.
fn entries(hca: &Hca, cqe: u32) -> Result<u32, Errno> {
    let most = 1 << hca.caps.log_max_cq_sz();
    if cqe > most {
        return Err(Errno::EINVAL);
    }
    let entries = (cqe + 1).next_power_of_two();
    if entries > most { Err(Errno::EINVAL) } else { Ok(entries) }
}

pub(crate) fn create(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    use attr::create_cq as id;
    let context = state.context()?;
    let hca = &file.hca;
    let vector = request.number_u32(id::COMP_VECTOR)?;
    if vector >= COMPLETION_VECTORS {
        return Err(Errno::EINVAL);
    }
    let flags = CqFlags::from_bits(request.number_u32(id::FLAGS)?).ok_or(Errno::EINVAL)?;
    let user_handle = request.number(id::USER_HANDLE)?;
    let channel = match request.object(id::COMP_CHANNEL) {
        Some(fd) => Some(state.channel(fd, Channel::Completion)?),
        None => None,
    };
    let async_events = state.async_events(request.object(id::EVENT_FD))?;
    let driver_bytes = request.input(attr::uhw::IN)?;
    if driver_bytes.len() < SHORTEST_REQUEST {
        return Err(Errno::EINVAL);
    }
    let driver: mlx5::CreateCq = request.structure(attr::uhw::IN)?;
    let driver_flags = CreateCqFlags::from_bits(driver.flags).ok_or(Errno::EINVAL)?;
    if driver.reserved0 != 0
        || driver.reserved1 != 0
        || !matches!(driver.cqe_size, 64 | 128)
        || !is_clear_behind(&driver_bytes, size_of::<mlx5::CreateCq>())
    {
        return Err(Errno::EINVAL);
    }
    let padded = driver_flags.contains(CreateCqFlags::CQE_128B_PAD);
    if padded && driver.cqe_size != 128 {
        return Err(Errno::EOPNOTSUPP);
    }
    // Any other number means no, as it does to the kernel.
    let compression = match driver.cqe_comp_en {
        1 => Some(mini_format(hca, &driver)?),
        _ => None,
    };
    let uar = match request.has(attr::mlx5_create_cq::UAR_INDEX) {
        true => request.number_u32(attr::mlx5_create_cq::UAR_INDEX)?,
        false if driver_flags.contains(CreateCqFlags::UAR_PAGE_INDEX) => {
            driver.uar_page_index.into()
        }
        // The UARs of a context are the driver's to allocate.
        false => return Err(Errno::EINVAL),
    };
    let entries = entries(hca, request.number_u32(id::CQE)?)?;
    let bytes = u64::from(entries) * u64::from(driver.cqe_size);
    let memory = QueueMemory::new(driver.buf_addr, bytes, MOST_OFFSET)?;
    let record = buffer::record(driver.db_addr)?;
    let mut input = CreateCqIn::request();
    input.set_uid(context.uid);
    input
        .cqc_mut()
        .set_cqe_sz(cqe_size_code(driver.cqe_size, padded).0)
        .set_oi(flags.contains(CqFlags::IGNORE_OVERRUN))
        .set_cqe_comp_en(compression.is_some())
        .set_mini_cqe_res_format(compression.map_or(0, |format| format as u32))
        .set_log_cq_size(entries.ilog2())
        .set_log_page_size(QueueMemory::LOG_PAGE_SIZE)
        .set_page_offset(memory.page_offset)
        .set_uar_page(uar)
        .set_c_eqn_or_apu_element(hca.eqn(vector).ok_or(Errno::EINVAL)?)
        .set_dbr_addr(record);
    let cqn = hca.command_with(&input, &memory.pages)?.cqn();
    let cq = Cq {
        cqn,
        cqe: entries - 1,
        cqe_size: driver.cqe_size,
        padded,
        real_time: driver_flags.contains(CreateCqFlags::REAL_TIME_TS),
        completions: Subscription::new(channel, user_handle),
        asynchronous: Subscription::new(async_events, user_handle),
    };
    {
        let mut routes = lock(&hca.hub.routes);
        if let Some(route) = &cq.completions {
            routes.completions.insert(cqn, route.clone());
        }
        if let Some(route) = &cq.asynchronous {
            routes.cqs.insert(cqn, route.clone());
        }
    }
    let cqe = cq.cqe;
    let handle = state.objects.add(Body::Cq(cq), &[]);
    request.made(id::HANDLE, handle.into());
    request.answer(id::RESP_CQE, &cqe)?;
    let driver = mlx5::CreateCqResp { cqn, reserved: 0 };
    request.answer_bytes(attr::uhw::OUT, zerocopy::IntoBytes::as_bytes(&driver))
}

pub(crate) fn resize(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let context = state.context()?;
    let request: ResizeCq = call.request();
    let cq = state.objects.cq_mut(request.cq_handle)?;
    if request.cqe == 0 {
        return Err(Errno::EINVAL);
    }
    let entries = entries(&file.hca, request.cqe)?;
    if entries - 1 != cq.cqe {
        let driver: mlx5::ResizeCq = call.driver_request();
        if driver.reserved0 != 0
            || driver.reserved1 != 0
            || u32::from(driver.cqe_size) != cq.cqe_size
        {
            return Err(Errno::EINVAL);
        }
        let bytes = u64::from(entries) * u64::from(cq.cqe_size);
        let memory = QueueMemory::new(driver.buf_addr, bytes, MOST_OFFSET)?;
        let fields = ResizeCqFields::LOG_CQ_SIZE
            | ResizeCqFields::PAGE_OFFSET
            | ResizeCqFields::LOG_PAGE_SIZE;
        let mut input = ModifyCqIn::request();
        input
            .set_uid(context.uid)
            .set_op_mod(ModifyCqMode::RESIZE.0)
            .set_cqn(cq.cqn)
            .set_resize_field_select(fields.bits());
        input
            .cqc_mut()
            .set_cqe_sz(cqe_size_code(cq.cqe_size, cq.padded).0)
            .set_log_cq_size(entries.ilog2())
            .set_log_page_size(QueueMemory::LOG_PAGE_SIZE)
            .set_page_offset(memory.page_offset);
        file.hca.command_with(&input, &memory.pages)?;
        cq.cqe = entries - 1;
    }
    let cqe = cq.cqe;
    call.respond(&ResizeCqResp { cqe, reserved: 0 })
}

pub(crate) fn moderate(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: ExModifyCq = call.request();
    if request.attr_mask == 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask != MODERATION {
        return Err(Errno::EOPNOTSUPP);
    }
    if request.cq_period > LONGEST_PERIOD {
        return Err(Errno::EINVAL);
    }
    let cq = state.objects.cq(request.cq_handle)?;
    let fields = ModifyCqFields::CQ_PERIOD | ModifyCqFields::CQ_MAX_COUNT;
    let mut input = ModifyCqIn::request();
    input.set_op_mod(ModifyCqMode::MODIFY.0).set_cqn(cq.cqn).set_modify_field_select(fields.bits());
    input
        .cqc_mut()
        .set_cq_period(request.cq_period.into())
        .set_cq_max_count(request.cq_count.into());
    file.hca.command(&input).map(drop)
}
