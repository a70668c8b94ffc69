//! Queries of the device, its ports and its GID tables.

use zerocopy::FromZeros;

use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    verbs::{GidEntry, QueryPortRespEx},
    write_cmd::{ExQueryDevice, ExQueryDeviceResp, Nothing, WriteCommand, exchange_with_driver},
};

/// The largest number of GIDs that one call can return: an attribute has at most 65535 bytes.
pub const MAX_GIDS: usize = u16::MAX as usize / size_of::<GidEntry>();

/// Queries the device (extended QUERY_DEVICE). Returns the response of the core and that of the
/// driver.
///
/// Fields beyond the `response_length` of a response are zero, which means "not supported" in each
/// of them.
pub fn device(file: &dyn DeviceFile) -> Result<(ExQueryDeviceResp, mlx5::QueryDeviceResp), Errno> {
    exchange_with_driver::<_, _, Nothing, _>(
        file,
        WriteCommand::QUERY_DEVICE_EX,
        &ExQueryDevice::default(),
        &[],
    )
}

/// Queries a port (QUERY_PORT).
pub fn port(file: &dyn DeviceFile, port: u8) -> Result<QueryPortRespEx, Errno> {
    use attr::query_port as id;
    let mut answer = QueryPortRespEx::new_zeroed();
    Call::new(method::QUERY_PORT)
        .input_u64(id::PORT_NUM, u64::from(port))
        .output(id::RESP, &mut answer)
        .make(file)?;
    Ok(answer)
}

/// Queries the driver's data about a port (MLX5_QUERY_PORT): `struct mlx5_ib_uapi_query_port`, of
/// which newer kernels write more. Bytes that the kernel does not write keep their value.
pub fn mlx5_port(file: &dyn DeviceFile, port: u32, answer: &mut [u8]) -> Result<(), Errno> {
    use attr::mlx5_query_port as id;
    Call::new(method::MLX5_QUERY_PORT)
        .input_u32(id::QUERY_PORT_PORT_NUM, port)
        .output_bytes(id::QUERY_PORT, answer)
        .make(file)
        .map(drop)
}

/// Returns the GIDs of all ports, without empty entries (QUERY_GID_TABLE).
///
/// `room` is the largest number of GIDs to return, clamped to between 1 and [`MAX_GIDS`]. `EINVAL`
/// if there are more GIDs.
pub fn gid_table(file: &dyn DeviceFile, room: usize) -> Result<Vec<GidEntry>, Errno> {
    use attr::query_gid_table as id;
    let mut entries = vec![GidEntry::new_zeroed(); room.clamp(1, MAX_GIDS)];
    let mut count = 0_u64;
    Call::new(method::QUERY_GID_TABLE)
        .input_u64(id::ENTRY_SIZE, size_of::<GidEntry>() as u64)
        .input_u32(id::FLAGS, 0)
        .output(id::RESP_ENTRIES, entries.as_mut_slice())
        .output(id::RESP_NUM_ENTRIES, &mut count)
        .make(file)?;
    entries.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(entries)
}

/// Returns an entry of a port's GID table (QUERY_GID_ENTRY). `ENODATA` if it is empty.
pub fn gid_entry(file: &dyn DeviceFile, port: u32, index: u32) -> Result<GidEntry, Errno> {
    use attr::query_gid_entry as id;
    let mut entry = GidEntry::new_zeroed();
    Call::new(method::QUERY_GID_ENTRY)
        .input_u64(id::PORT, u64::from(port))
        .input_u64(id::GID_INDEX, u64::from(index))
        .input_u32(id::FLAGS, 0)
        .output(id::RESP_ENTRY, &mut entry)
        .make(file)?;
    Ok(entry)
}
