//! Properties of devices and ports, and their GID and P_Key tables.

use crate::abi::*;
use crate::caps::capabilities;
use crate::context::ContextObject;
use crate::device::text;
use crate::object::Blank;
use crate::refusal::{Refusal, Verb, number, set_errno, status};
use mlx5_prm::cmd::caps::{AtomicCaps, CapGroup};
use mlx5_uapi::{cmd::query, verbs as kernel, write_cmd};
use std::ffi::c_void;
use std::mem::offset_of;

fn attributes(of: &write_cmd::QueryDeviceResp, file_version: &str) -> ibv_device_attr {
    // Fields that the kernel does not report are zero.
    let mut to = ibv_device_attr::blank();
    to.fw_ver = text(file_version);
    to.node_guid = Be64::from_ne_bytes(of.node_guid);
    to.sys_image_guid = Be64::from_ne_bytes(of.sys_image_guid);
    macro_rules! copy {
        ($($name:ident)*) => { $(to.$name = of.$name as _;)* };
    }
    copy! {
        max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags
        max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom
        max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw
        max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach
        max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr max_srq_sge
        max_pkeys local_ca_ack_delay phys_port_cnt
    }
    to
}

fn firmware(raw: u64) -> String {
    format!("{}.{}.{:04}", raw >> 32 & 0xffff, raw >> 16 & 0xffff, raw & 0xffff)
}

fn device_ex(context: &ContextObject) -> Verb<ibv_device_attr_ex> {
    let (of, driver) = query::device(context.file())?;
    let mut to = ibv_device_attr_ex::blank();
    to.orig_attr = attributes(&of.base, &firmware(of.base.fw_ver));
    to.odp_caps.general_caps = of.odp_caps.general_caps;
    to.odp_caps.per_transport_caps = ibv_odp_caps_per_transport_caps {
        rc_odp_caps: of.odp_caps.rc_odp_caps,
        uc_odp_caps: of.odp_caps.uc_odp_caps,
        ud_odp_caps: of.odp_caps.ud_odp_caps,
    };
    to.completion_timestamp_mask = of.timestamp_mask;
    to.hca_core_clock = of.hca_core_clock;
    to.device_cap_flags_ex = match of.device_cap_flags_ex {
        0 => of.base.device_cap_flags.into(),
        flags => flags,
    };
    to.tso_caps = ibv_tso_caps {
        max_tso: driver.tso_caps.max_tso,
        supported_qpts: driver.tso_caps.supported_qpts,
    };
    // Field by field: a copy of the whole structure would include its padding.
    to.rss_caps.supported_qpts = of.rss_caps.supported_qpts;
    to.rss_caps.max_rwq_indirection_tables = of.rss_caps.max_rwq_indirection_tables;
    to.rss_caps.max_rwq_indirection_table_size = of.rss_caps.max_rwq_indirection_table_size;
    to.rss_caps.rx_hash_fields_mask = driver.rss_caps.rx_hash_fields_mask;
    to.rss_caps.rx_hash_function = driver.rss_caps.rx_hash_function;
    to.max_wq_type_rq = of.max_wq_type_rq;
    to.packet_pacing_caps = ibv_packet_pacing_caps {
        qp_rate_limit_min: driver.packet_pacing_caps.qp_rate_limit_min,
        qp_rate_limit_max: driver.packet_pacing_caps.qp_rate_limit_max,
        supported_qpts: driver.packet_pacing_caps.supported_qpts,
    };
    to.raw_packet_caps = of.raw_packet_caps;
    to.tm_caps = ibv_tm_caps {
        max_rndv_hdr_size: of.tm_caps.max_rndv_hdr_size,
        max_num_tags: of.tm_caps.max_num_tags,
        flags: of.tm_caps.flags,
        max_ops: of.tm_caps.max_ops,
        max_sge: of.tm_caps.max_sge,
    };
    to.cq_mod_caps = ibv_cq_moderation_caps {
        max_cq_count: of.cq_moderation_caps.max_cq_moderation_count,
        max_cq_period: of.cq_moderation_caps.max_cq_moderation_period,
    };
    to.max_dm_size = of.max_dm_size;
    to.xrc_odp_caps = of.xrc_odp_caps;
    to.phys_port_cnt_ex = of.base.phys_port_cnt.into();
    Ok(to)
}

/// The atomic operations of PCI that reach the host's memory, and whether they make those of the
/// device atomic for the host's processors, too.
fn pci_atomics(to: &mut ibv_device_attr_ex, of: &AtomicCaps) {
    let caps = ibv_pci_atomic_caps {
        fetch_add: of.fetch_add_pci_atomic() as u16,
        swap: of.swap_pci_atomic() as u16,
        compare_swap: of.compare_swap_pci_atomic() as u16,
    };
    let both = c_uint::from(caps.fetch_add & caps.compare_swap);
    if to.orig_attr.atomic_cap == IBV_ATOMIC_HCA
        && both & IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP != 0
    {
        to.orig_attr.atomic_cap = IBV_ATOMIC_GLOB;
    }
    to.pci_atomic_caps = caps;
}

/// Copies as much of `value` as the caller has room for, and fills the rest of the room with zeros.
///
/// # Safety
/// `to` is writable for `room` bytes.
unsafe fn copy_out<T: Copy>(value: &T, to: *mut c_void, room: usize) {
    let size = size_of::<T>().min(room);
    // SAFETY: the caller promises that `to` is writable for `room` bytes.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(std::ptr::from_ref(value).cast(), size);
        to.cast::<u8>().add(size).write_bytes(0, room - size);
    }
}

/// `ibv_query_device`.
///
/// # Safety
/// `context` is open, `attr` writable.
pub unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `attr` is writable.
    let found = device_ex(unsafe { ContextObject::of(context) });
    // SAFETY: the caller promises that `attr` is writable.
    status(found.map(|found| unsafe { attr.write(found.orig_attr) }))
}

/// The operation of `ibv_query_device_ex`: writes `attr_size` bytes.
///
/// # Safety
/// `context` is open, `input` NULL or readable, `attr` writable for `attr_size` bytes.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: the caller promises that `input` is NULL or readable; it is not NULL here.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return status(Err(Refusal::INVALID));
    }
    if attr_size < size_of::<ibv_device_attr>() {
        return status(Err(Refusal::INVALID));
    }
    const PCI_ATOMICS: usize =
        offset_of!(ibv_device_attr_ex, pci_atomic_caps) + size_of::<ibv_pci_atomic_caps>();
    // SAFETY: the caller promises that `context` is open and that `attr` is writable for
    // `attr_size` bytes.
    let context = unsafe { ContextObject::of(context) };
    let found = device_ex(context).map(|mut found| {
        // Ask the firmware only if the caller has room for the answer.
        if attr_size >= PCI_ATOMICS
            && let Some(answer) = capabilities(context, CapGroup::ATOMIC)
        {
            pci_atomics(&mut found, answer.atomic_caps());
        }
        found
    });
    // SAFETY: the caller promises that `attr` is writable for `attr_size` bytes.
    status(found.map(|found| unsafe { copy_out(&found, attr.cast(), attr_size) }))
}

fn port(context: &ContextObject, port_num: u8) -> Verb<ibv_port_attr> {
    let of = query::port(context.file(), port_num)?;
    let mut to = ibv_port_attr::blank();
    macro_rules! copy {
        ($($name:ident)*) => { $(to.$name = of.legacy_resp.$name as _;)* };
    }
    copy! {
        state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr
        pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width
        active_speed phys_state link_layer flags
    }
    to.port_cap_flags2 = of.port_cap_flags2;
    to.active_speed_ex = of.active_speed_ex;
    Ok(to)
}

/// The operation of the header's `ibv_query_port`: writes `size` bytes.
///
/// # Safety
/// `context` is open, `attr` writable for `size` bytes.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `attr` is writable for `size`
    // bytes.
    let found = port(unsafe { ContextObject::of(context) }, port_num);
    // SAFETY: the caller promises that `attr` is writable for `size` bytes.
    status(found.map(|found| unsafe { copy_out(&found, attr.cast(), size) }))
}

/// The symbol `ibv_query_port`: writes the structure of programs that were compiled before it grew.
///
/// # Safety
/// `context` is open, `attr` writable for 48 bytes.
pub unsafe extern "C" fn query_port_compat(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    const OLD: usize = offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller promises that `context` is open and that `attr` is writable for 48 bytes.
    unsafe { query_port(context, port_num, attr, OLD) }
}

fn gid_entry(context: &ContextObject, port: u32, index: u32) -> Verb<ibv_gid_entry> {
    let entry = query::gid_entry(context.file(), port, index)?;
    Ok(to_entry(&entry))
}

fn to_entry(of: &kernel::GidEntry) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: of.gid },
        gid_index: of.gid_index,
        port_num: of.port_num,
        gid_type: of.gid_type,
        ndev_ifindex: of.netdev_ifindex,
    }
}

/// `ibv_query_gid`. An entry that is empty is a GID of zeros.
///
/// # Safety
/// `context` is open, `gid` writable.
pub unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `gid` is writable.
    let found = gid_entry(unsafe { ContextObject::of(context) }, port_num.into(), index as u32);
    let found = match found {
        Ok(entry) => entry.gid,
        Err(Refusal(libc::ENODATA)) => ibv_gid { raw: [0; 16] },
        Err(refusal) => return number(Err(refusal)),
    };
    // SAFETY: the caller promises that `gid` is writable.
    unsafe { gid.write(found) };
    0
}

/// `_ibv_query_gid_ex`.
///
/// # Safety
/// `context` is open, `entry` writable for `entry_size` bytes.
pub unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    if flags != 0 || entry_size != size_of::<ibv_gid_entry>() {
        return status(Err(Refusal(if flags != 0 { libc::EOPNOTSUPP } else { libc::EINVAL })));
    }
    // SAFETY: the caller promises that `context` is open and that `entry` is writable for
    // `entry_size` bytes.
    let found = gid_entry(unsafe { ContextObject::of(context) }, port_num, gid_index);
    // SAFETY: the caller promises that `entry` is writable for `entry_size` bytes.
    status(found.map(|found| unsafe { entry.write(found) }))
}

/// `_ibv_query_gid_table`: returns the number of entries, or a negative errno.
///
/// # Safety
/// `context` is open, `entries` writable for `max_entries` entries.
pub unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    if flags != 0 || entry_size != size_of::<ibv_gid_entry>() {
        return if flags != 0 { -libc::EOPNOTSUPP as isize } else { -libc::EINVAL as isize };
    }
    if max_entries == 0 {
        return -libc::EINVAL as isize;
    }
    // SAFETY: the caller promises that `context` is open and that `entries` is writable for
    // `max_entries` entries.
    let context = unsafe { ContextObject::of(context) };
    let table = match query::gid_table(context.file(), max_entries) {
        Ok(table) => table,
        Err(errno) => {
            set_errno(errno as c_int);
            return -(errno as isize);
        }
    };
    let table = &table[..table.len().min(max_entries)];
    for (place, entry) in table.iter().enumerate() {
        // SAFETY: `place` is below `max_entries`, for which the caller promises room.
        unsafe { entries.add(place).write(to_entry(entry)) };
    }
    table.len() as isize
}

/// `ibv_query_gid_type`, which has two types: RoCE v2, and the other.
///
/// # Safety
/// `context` is open, `gid_type` writable.
pub unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    gid_type: *mut c_uint,
) -> c_int {
    const OTHER: c_uint = 0;
    const ROCE_V2: c_uint = 1;
    // SAFETY: the caller promises that `context` is open and that `gid_type` is writable.
    let found = gid_entry(unsafe { ContextObject::of(context) }, port_num.into(), index);
    let found = match found {
        Ok(entry) if entry.gid_type == IBV_GID_TYPE_ROCE_V2 => ROCE_V2,
        Ok(_) | Err(Refusal(libc::ENODATA)) => OTHER,
        Err(refusal) => return number(Err(refusal)),
    };
    // SAFETY: the caller promises that `gid_type` is writable.
    unsafe { gid_type.write(found) };
    0
}

fn pkey(context: &ContextObject, port_num: u8, index: c_int) -> Verb<u16> {
    let index = u32::try_from(index).map_err(|_| Refusal::INVALID)?;
    Ok(context.context.query_pkey(port_num, index)?)
}

/// `ibv_query_pkey`, in network order.
///
/// # Safety
/// `context` is open, `to` writable.
pub unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    to: *mut Be16,
) -> c_int {
    // SAFETY: the caller promises that `context` is open and that `to` is writable.
    let found = pkey(unsafe { ContextObject::of(context) }, port_num, index);
    // SAFETY: the caller promises that `to` is writable.
    number(found.map(|pkey| unsafe { to.write(pkey.to_be()) }).map(|()| 0))
}

/// `ibv_get_pkey_index`: the index of a P_Key; full membership takes precedence over partial.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn get_pkey_index(
    context: *mut ibv_context,
    port_num: u8,
    wanted: Be16,
) -> c_int {
    // SAFETY: the caller promises that `context` is open.
    let context = unsafe { ContextObject::of(context) };
    let wanted = u16::from_be(wanted);
    let mut index = 0;
    loop {
        match pkey(context, port_num, index) {
            Ok(found) if found == wanted => return index,
            Ok(_) => index += 1,
            Err(refusal) => return number(Err(refusal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_are_global_if_eight_bytes_can_be_added_and_swapped_over_pci() {
        let cases = [
            (IBV_ATOMIC_HCA, 0b010, 0b111, IBV_ATOMIC_GLOB),
            (IBV_ATOMIC_HCA, 0b101, 0b111, IBV_ATOMIC_HCA),
            (IBV_ATOMIC_HCA, 0b111, 0b101, IBV_ATOMIC_HCA),
            (IBV_ATOMIC_NONE, 0b111, 0b111, IBV_ATOMIC_NONE),
        ];
        for (had, fetch_add, compare_swap, has) in cases {
            let mut attr = ibv_device_attr_ex::blank();
            attr.orig_attr.atomic_cap = had;
            let mut caps = AtomicCaps::default();
            caps.set_fetch_add_pci_atomic(fetch_add).set_compare_swap_pci_atomic(compare_swap);
            caps.set_swap_pci_atomic(0b010);
            pci_atomics(&mut attr, &caps);
            assert_eq!(attr.orig_attr.atomic_cap, has, "{had} {fetch_add:b} {compare_swap:b}");
            let reported = attr.pci_atomic_caps;
            assert_eq!((reported.fetch_add, reported.swap), (fetch_add as u16, 0b010));
            assert_eq!(reported.compare_swap, compare_swap as u16);
        }
    }
}
