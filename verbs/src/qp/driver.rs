//! The functions of `mlx5dv_qp_ex`: requests that configure memory keys, and requests that the
//! program writes itself.
//!
//! A configuration is kept from `mlx5dv_wr_mkey_configure` until as many setters have followed as
//! that call announced. The last one adds it to the batch.

use super::building::{Open, open};
use super::configuring::{Configuring, Layout};
use super::flags::{by_bits, driver_flags};
use super::{CTransport, QpObject};
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::mkey::MkeyObject;
use crate::refusal::{Refusal, Verb};
use crate::request::entries;
use mlx5::mkey::{
    BlockSize, Configure, Crc, Domain, Escape, Guard, Interleaved, MkeyAccess, Seed, Signature,
    SignatureBlock, SignatureBytes, T10Dif,
};
use mlx5::transport::Rc;
use mlx5::{CancelError, RawWqe, SendFlags};
use std::mem::offset_of;

type Ex = *mut mlx5dv_qp_ex;

/// The operations that a queue pair can be asked for.
pub(crate) const SUPPORTED: u64 = (MLX5DV_QP_EX_WITH_MR_INTERLEAVED
    | MLX5DV_QP_EX_WITH_MR_LIST
    | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE
    | MLX5DV_QP_EX_WITH_RAW_WQE) as u64;

/// Those of [`SUPPORTED`] that configure memory keys.
pub(crate) const CONFIGURE: u64 = SUPPORTED & !(MLX5DV_QP_EX_WITH_RAW_WQE as u64);

/// The queue pair of the functions.
fn qp_of(dv: Ex) -> *mut ibv_qp_ex {
    dv.wrapping_byte_sub(offset_of!(QpObject, dv)).cast()
}

/// `mlx5dv_qp_ex_from_ibv_qp_ex`.
///
/// # Safety
/// `qp` was made with send operations, and not destroyed.
pub unsafe extern "C" fn from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    qp.wrapping_byte_add(offset_of!(QpObject, dv)).cast()
}

/// Runs a setter: refuses the batch if no configuration waits for it, or as it says. The last one
/// finishes the request.
///
/// # Safety
/// The program has started a batch on this queue pair.
#[inline(always)]
unsafe fn set(dv: Ex, setter: impl FnOnce(&mut Configuring) -> Verb) {
    // SAFETY: the caller promises that the program started a batch on this queue pair.
    let mut open = unsafe { open::<Rc>(qp_of(dv)) };
    let Some(waiting) = waiting(&mut open) else {
        // The batch was refused already, or nothing is configured.
        return give_up(&mut open, Refusal::INVALID);
    };
    if let Err(refusal) = setter(waiting) {
        return give_up(&mut open, refusal);
    }
    waiting.left = waiting.left.saturating_sub(1);
    if waiting.left == 0 {
        // SAFETY: a configuration waits, and the caller promises that a batch was started.
        unsafe { finish(&mut open) };
    }
}

/// The configuration that waits for setters, if there is one.
#[inline(always)]
fn waiting<'a>(open: &'a mut Open<'_, Rc>) -> Option<&'a mut Configuring> {
    open.kept.configuring.as_deref_mut().filter(|waiting| !waiting.mkey.is_null())
}

/// The configuration without layout and signature.
///
/// # Safety
/// The key exists.
#[inline(always)]
unsafe fn without_signature<'a>(waiting: &mut Configuring) -> Configure<'a> {
    let mkey = std::mem::replace(&mut waiting.mkey, std::ptr::null_mut());
    // SAFETY: the caller promises that the key exists.
    let (key, tag) = unsafe {
        MkeyObject::clear_unreported(mkey);
        MkeyObject::key(mkey)
    };
    let configure = key.configure().tag(tag);
    match waiting.access {
        Some(access) => configure.access(access),
        None => configure,
    }
}

/// The configuration without the layout.
///
/// # Safety
/// The key exists.
unsafe fn without_layout<'a>(waiting: &mut Configuring) -> Configure<'a> {
    // SAFETY: the caller promises that the key exists.
    let mut configure = unsafe { without_signature(waiting) };
    let Some(more) = waiting.more() else { return configure };
    if more.reset {
        configure = configure.reset_signature();
    }
    if let Some(block) = &more.signature {
        configure = configure.signature(block);
    }
    configure
}

/// Adds the configuration to the batch.
///
/// # Safety
/// As for [`set`]; a configuration waits.
#[inline(never)]
unsafe fn finish(open: &mut Open<'_, Rc>) {
    open.leave_driver_request();
    let Some(mut waiting) = open.kept.configuring.take() else { return };
    // SAFETY: the program keeps the key until the batch is completed.
    let configure = unsafe { without_layout(&mut waiting) };
    let configure = match waiting.more().map_or(Layout::None, |more| more.layout) {
        Layout::None => configure,
        Layout::List => configure.layout_list(&waiting.pieces),
        Layout::Interleaved { repeat } => {
            configure.layout_interleaved(repeat, &waiting.interleaved)
        }
    };
    open.add(|batch| batch.wr(waiting.wr_id, waiting.flags).mkey_configure(configure));
    // Its memory is used again.
    open.kept.configuring = Some(waiting);
}

/// Refuses the batch, and forgets the configuration.
#[cold]
fn give_up(open: &mut Open<'_, Rc>, refusal: Refusal) {
    open.leave_driver_request();
    if let Some(waiting) = waiting(open) {
        waiting.mkey = std::ptr::null_mut();
    }
    open.refuse(refusal);
}

/// `mlx5dv_wr_mkey_configure`.
unsafe extern "C" fn wr_mkey_configure(
    dv: Ex,
    mkey: *mut mlx5dv_mkey,
    num_setters: u8,
    attr: *mut mlx5dv_mkey_conf_attr,
) {
    let qp = qp_of(dv);
    // SAFETY: the program started a batch on this queue pair, and `attr` is readable.
    unsafe {
        let mut open = open::<Rc>(qp);
        open.begin_driver_request();
        let (wr_id, wr_flags) = ((*qp).wr_id, (*qp).wr_flags);
        let mlx5dv_mkey_conf_attr { conf_flags, comp_mask } = *attr;
        let known = conf_flags & !MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR == 0 && comp_mask == 0;
        if wr_flags & IBV_SEND_INLINE == 0 || !known {
            return give_up(&mut open, Refusal::NOT_SUPPORTED);
        }
        let reset = conf_flags & MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR != 0;
        let waiting = open.kept.configuring.get_or_insert_with(|| Box::new(Configuring::new()));
        waiting.begin(mkey, wr_id, driver_flags(wr_flags), num_setters);
        if reset {
            waiting.more_mut().reset = true;
        }
        if num_setters == 0 {
            finish(&mut open);
        }
    }
}

/// Rights by C's bits.
const RIGHTS: [MkeyAccess; 16] = by_bits! { MkeyAccess[16]:
    IBV_ACCESS_LOCAL_WRITE LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE REMOTE_WRITE,
    IBV_ACCESS_REMOTE_READ REMOTE_READ,
    IBV_ACCESS_REMOTE_ATOMIC REMOTE_ATOMIC,
};

fn rights(access_flags: u32) -> Verb<MkeyAccess> {
    RIGHTS.get(access_flags as usize).copied().ok_or(Refusal::INVALID)
}

/// `mlx5dv_wr_set_mkey_access_flags`.
unsafe extern "C" fn wr_set_mkey_access_flags(dv: Ex, access_flags: u32) {
    // SAFETY: the program started a batch on this queue pair.
    unsafe {
        set(dv, |waiting| {
            let twice = waiting.access.replace(rights(access_flags)?).is_some();
            if twice { Err(Refusal::INVALID) } else { Ok(()) }
        });
    }
}

/// Sets the layout, once.
fn set_layout(waiting: &mut Configuring, layout: Layout) -> Verb {
    match std::mem::replace(&mut waiting.more_mut().layout, layout) {
        Layout::None => Ok(()),
        _ => Err(Refusal::INVALID),
    }
}

/// `mlx5dv_wr_set_mkey_layout_list`, if it is the last setter and nothing is said of a signature:
/// the list need not be copied. Otherwise [`keep_layout_list`] does it.
unsafe extern "C" fn wr_set_mkey_layout_list(dv: Ex, num_sges: u16, sge: *const ibv_sge) {
    // SAFETY: the caller of `mlx5dv_wr_set_mkey_layout_list` passes a list of `num_sges` entries,
    // and the key exists until the batch is completed.
    unsafe {
        let mut open = open::<Rc>(qp_of(dv));
        let usual = |waiting: &&mut Configuring| waiting.left == 1 && waiting.more().is_none();
        let Some(waiting) = waiting(&mut open).filter(usual) else {
            return keep_layout_list(dv, num_sges, sge);
        };
        let (wr_id, flags) = (waiting.wr_id, waiting.flags);
        let configure = without_signature(waiting).layout_list(entries(sge, num_sges.into()));
        open.leave_driver_request();
        open.add(|batch| batch.wr(wr_id, flags).mkey_configure(configure));
    }
}

/// [`wr_set_mkey_layout_list`] of a list that is kept until the last setter, or refused.
#[cold]
#[inline(never)]
unsafe extern "C" fn keep_layout_list(dv: Ex, num_sges: u16, sge: *const ibv_sge) {
    // SAFETY: the caller of `mlx5dv_wr_set_mkey_layout_list` passes a list of `num_sges` entries.
    unsafe {
        set(dv, |waiting| {
            waiting.pieces.clear();
            waiting.pieces.extend_from_slice(entries(sge, num_sges.into()));
            set_layout(waiting, Layout::List)
        });
    }
}

unsafe extern "C" fn wr_set_mkey_layout_interleaved(
    dv: Ex,
    repeat: u32,
    num_interleaved: u16,
    data: *const mlx5dv_mr_interleaved,
) {
    // SAFETY: the caller of `mlx5dv_wr_set_mkey_layout_interleaved` passes `num_interleaved`
    // entries.
    unsafe {
        set(dv, |waiting| {
            waiting.interleaved.clear();
            waiting.interleaved.extend((0..usize::from(num_interleaved)).map(|at| {
                let mlx5dv_mr_interleaved { addr, bytes_count, bytes_skip, lkey } = *data.add(at);
                Interleaved { addr, bytes: bytes_count, skip: bytes_skip, lkey }
            }));
            set_layout(waiting, Layout::Interleaved { repeat })
        });
    }
}

/// The two values that a seed may have.
fn seed(value: u64, ones: u64) -> Verb<Seed> {
    match value {
        0 => Ok(Seed::Zeros),
        value if value == ones => Ok(Seed::Ones),
        _ => Err(Refusal::INVALID),
    }
}

fn t10_dif(dif: &mlx5dv_sig_t10dif) -> Verb<Signature> {
    let flags = c_uint::from(dif.flags);
    const KNOWN: c_uint = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP
        | MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE
        | MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE;
    if flags & !KNOWN != 0 {
        return Err(Refusal::INVALID);
    }
    let escape = if flags & MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE != 0 {
        Escape::ApplicationAndReferenceTag
    } else if flags & MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE != 0 {
        Escape::ApplicationTag
    } else {
        Escape::None
    };
    Ok(Signature::T10Dif(T10Dif {
        guard: match dif.bg_type {
            MLX5DV_SIG_T10DIF_CRC => Guard::Crc,
            MLX5DV_SIG_T10DIF_CSUM => Guard::IpChecksum,
            _ => return Err(Refusal::INVALID),
        },
        seed: seed(dif.bg.into(), 0xffff)?,
        application_tag: dif.app_tag,
        reference_tag: dif.ref_tag,
        increment_reference_tag: flags & MLX5DV_SIG_T10DIF_FLAG_REF_REMAP != 0,
        escape,
    }))
}

fn crc(crc: &mlx5dv_sig_crc) -> Verb<Signature> {
    Ok(Signature::Crc(match crc.r#type {
        MLX5DV_SIG_CRC_TYPE_CRC32 => Crc::Crc32(seed(crc.seed, u32::MAX.into())?),
        MLX5DV_SIG_CRC_TYPE_CRC32C => Crc::Crc32c(seed(crc.seed, u32::MAX.into())?),
        MLX5DV_SIG_CRC_TYPE_CRC64_XP10 => Crc::Crc64Xp10(seed(crc.seed, u64::MAX)?),
        _ => return Err(Refusal::INVALID),
    }))
}

/// # Safety
/// The signature that the domain names is readable.
unsafe fn domain(from: &mlx5dv_sig_block_domain) -> Verb<Domain> {
    let block_size = match from.block_size {
        MLX5DV_BLOCK_SIZE_512 => BlockSize::B512,
        MLX5DV_BLOCK_SIZE_520 => BlockSize::B520,
        MLX5DV_BLOCK_SIZE_4048 => BlockSize::B4048,
        MLX5DV_BLOCK_SIZE_4096 => BlockSize::B4096,
        MLX5DV_BLOCK_SIZE_4160 => BlockSize::B4160,
        _ => return Err(Refusal::INVALID),
    };
    if from.comp_mask != 0 {
        return Err(Refusal::INVALID);
    }
    // SAFETY: `sig_type` names the member of the union, and the caller promises that it is
    // readable.
    let signature = unsafe {
        match from.sig_type {
            MLX5DV_SIG_TYPE_T10DIF => t10_dif(&*from.sig.dif)?,
            MLX5DV_SIG_TYPE_CRC => crc(&*from.sig.crc)?,
            _ => return Err(Refusal::INVALID),
        }
    };
    Ok(Domain { signature, block_size })
}

/// # Safety
/// What the attributes name is readable.
unsafe fn block(attr: &mlx5dv_sig_block_attr) -> Verb<SignatureBlock> {
    let copies = attr.flags & MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK != 0;
    let unknown = attr.flags & !MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK != 0;
    if unknown || attr.comp_mask != 0 || attr.mem.is_null() && attr.wire.is_null() {
        return Err(Refusal::INVALID);
    }
    let mut block = SignatureBlock::new().check(SignatureBytes::from_bits_retain(attr.check_mask));
    // SAFETY: the caller promises that the domains and their signatures are readable, if not NULL.
    unsafe {
        if let Some(memory) = attr.mem.as_ref() {
            block = block.memory(domain(memory)?);
        }
        if let Some(wire) = attr.wire.as_ref() {
            block = block.wire(domain(wire)?);
        }
    }
    Ok(if copies { block.copy(SignatureBytes::from_bits_retain(attr.copy_mask)) } else { block })
}

unsafe extern "C" fn wr_set_mkey_sig_block(dv: Ex, attr: *const mlx5dv_sig_block_attr) {
    // SAFETY: the program started a batch, and `attr` is readable with the domains that it names.
    unsafe {
        set(dv, |waiting| {
            let twice = waiting.more_mut().signature.replace(block(&*attr)?).is_some();
            if twice { Err(Refusal::INVALID) } else { Ok(()) }
        });
    }
}

/// No key is made for encryption.
unsafe extern "C" fn wr_set_mkey_crypto(dv: Ex, _attr: *const mlx5dv_crypto_attr) {
    // SAFETY: the program started a batch on this queue pair.
    unsafe { set(dv, |_| Err(Refusal::INVALID)) };
}

/// The configuration of the functions that configure a whole key at once.
const PLAIN: mlx5dv_mkey_conf_attr = mlx5dv_mkey_conf_attr { conf_flags: 0, comp_mask: 0 };

unsafe extern "C" fn wr_mr_interleaved(
    dv: Ex,
    mkey: *mut mlx5dv_mkey,
    access_flags: u32,
    repeat: u32,
    num_interleaved: u16,
    data: *mut mlx5dv_mr_interleaved,
) {
    // SAFETY: the program started a batch; the key exists, and `data` has `num_interleaved`
    // entries.
    unsafe {
        wr_mkey_configure(dv, mkey, 2, &mut { PLAIN });
        if waits(dv) {
            wr_set_mkey_access_flags(dv, access_flags);
        }
        if waits(dv) {
            wr_set_mkey_layout_interleaved(dv, repeat, num_interleaved, data);
        }
    }
}

unsafe extern "C" fn wr_mr_list(
    dv: Ex,
    mkey: *mut mlx5dv_mkey,
    access_flags: u32,
    num_sges: u16,
    sge: *mut ibv_sge,
) {
    // SAFETY: the program started a batch; the key exists, and `sge` has `num_sges` entries.
    unsafe {
        wr_mkey_configure(dv, mkey, 2, &mut { PLAIN });
        if waits(dv) {
            wr_set_mkey_access_flags(dv, access_flags);
        }
        if waits(dv) {
            wr_set_mkey_layout_list(dv, num_sges, sge);
        }
    }
}

/// Whether a configuration waits for setters: it was not refused.
unsafe fn waits(dv: Ex) -> bool {
    // SAFETY: the callers have started a batch on this queue pair.
    let mut open = unsafe { open::<Rc>(qp_of(dv)) };
    waiting(&mut open).is_some()
}

/// Bytes of a unit of a WQE, and where its control segment has how many there are.
const UNIT: usize = 16;
const UNITS_AT: usize = 7;

unsafe extern "C" fn wr_raw_wqe<T: CTransport>(dv: Ex, wqe: *const c_void) {
    let qp = qp_of(dv);
    // SAFETY: the program started a batch; the WQE is readable for the number of units in its
    // control segment, and the program answers for its effect.
    unsafe {
        let mut open = open::<T>(qp);
        open.begin_driver_request();
        open.leave_driver_request();
        let units = usize::from(wqe.cast::<u8>().add(UNITS_AT).read() & 0x3f);
        match RawWqe::new(std::slice::from_raw_parts(wqe.cast(), units * UNIT)) {
            Ok(wqe) => {
                let wr_id = (*qp).wr_id;
                open.add(|batch| batch.wr(wr_id, SendFlags::empty()).raw_wqe(wqe.unnamed()));
            }
            Err(_) => open.refuse(Refusal::INVALID),
        }
    }
}

/// There is no engine here that copies memory.
unsafe extern "C" fn wr_memcpy(dv: Ex, _: u32, _: u64, _: u32, _: u64, _: usize) {
    // SAFETY: the program started a batch on this queue pair.
    unsafe { open::<Rc>(qp_of(dv)) }.refuse(Refusal::NOT_SUPPORTED);
}

/// Fills in the functions of a queue pair that was made with any of these operations. Those of
/// dynamic connections stay NULL, and so do those that only queue pairs of reliable connections
/// have.
pub(super) fn fill<T: CTransport>(dv: &mut mlx5dv_qp_ex) {
    dv.wr_raw_wqe = Some(wr_raw_wqe::<T>);
    if !T::CONFIGURES {
        return;
    }
    dv.wr_mkey_configure = Some(wr_mkey_configure);
    dv.wr_set_mkey_access_flags = Some(wr_set_mkey_access_flags);
    dv.wr_set_mkey_layout_list = Some(wr_set_mkey_layout_list);
    dv.wr_set_mkey_layout_interleaved = Some(wr_set_mkey_layout_interleaved);
    dv.wr_set_mkey_sig_block = Some(wr_set_mkey_sig_block);
    dv.wr_set_mkey_crypto = Some(wr_set_mkey_crypto);
    dv.wr_mr_interleaved = Some(wr_mr_interleaved);
    dv.wr_mr_list = Some(wr_mr_list);
    dv.wr_memcpy = Some(wr_memcpy);
}

unsafe fn cancel(dv: Ex, wr_id: u64) -> Verb<usize> {
    // SAFETY: the caller of `cancel_posted_send_wrs` promises that the queue pair was not
    // destroyed; only a queue pair of this transport has the function.
    let this = unsafe { super::QpOf::<Rc>::of(qp_of(dv).cast()) };
    if this.head.qp_type() != IBV_QPT_RC {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let refused = |error| match error {
        CancelError::Query(error) => Refusal::from(&error),
        _ => Refusal::INVALID,
    };
    let drained = this.head.with_control(|control| control.drained().map_err(refused))?;
    // If the state changes now, that it was drained proves nothing any more.
    this.head.send_lock.hold(|| {
        // SAFETY: the lock is held.
        let cancelled = unsafe { this.send() }.cancel(&drained, wr_id).map_err(refused)?;
        Ok(cancelled.count())
    })
}

/// `mlx5dv_qp_cancel_posted_send_wrs`: how many requests of this identifier were cancelled, or a
/// negative errno. The queue pair must be in SQD.
///
/// # Safety
/// The queue pair was not destroyed.
pub unsafe extern "C" fn cancel_posted_send_wrs(dv: *mut mlx5dv_qp_ex, wr_id: u64) -> c_int {
    // SAFETY: the caller promises that the queue pair was not destroyed.
    match unsafe { cancel(dv, wr_id) } {
        Ok(count) => count as c_int,
        Err(refusal) => -refusal.0,
    }
}
