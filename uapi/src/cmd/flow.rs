//! Flow rules of the verbs.

use zerocopy::{FromZeros, IntoBytes};

use super::destroy as destroy_object;
use crate::{
    Errno,
    flow::{FlowFlags, FlowType},
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    write_cmd::{self, CreateFlowResp, FlowAttr, WriteCommand, exchange_bytes},
};

/// The arguments of CREATE_FLOW. Handles are those of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct CreateFlow<'a> {
    /// The QP that gets the packets.
    pub qp: u32,
    /// The packets that the rule matches.
    pub kind: FlowType,
    /// Priority; zero is the highest.
    pub priority: u16,
    /// Port.
    pub port: u8,
    /// Flags.
    pub flags: FlowFlags,
    /// The number of specifications.
    pub spec_count: u8,
    /// The specifications: structures of [`crate::flow`], one after the other.
    pub specs: &'a [u8],
    /// The values that the counters of a counting specification count. Given with the first rule of
    /// a counters object; later rules use the same.
    pub counters: Option<&'a [mlx5::FlowCountersDesc]>,
}

/// Creates a flow rule (CREATE_FLOW) and returns its handle. `EPERM` without CAP_NET_RAW, `EEXIST`
/// if there is a rule for the same packets, `ENOMEM` or `ENOSPC` if the table is full.
pub fn create(file: &dyn DeviceFile, what: &CreateFlow<'_>) -> Result<u32, Errno> {
    let size = u16::try_from(what.specs.len()).map_err(|_| Errno::EINVAL)?;
    let head = write_cmd::CreateFlow {
        comp_mask: 0,
        qp_handle: what.qp,
        flow_attr: FlowAttr {
            kind: what.kind.raw(),
            size,
            priority: what.priority,
            num_of_specs: what.spec_count,
            reserved: [0; 2],
            port: what.port,
            flags: what.flags.bits(),
        },
    };
    let request = [head.as_bytes(), what.specs].concat();
    let driver = what.counters.map(|described| {
        let data = mlx5::FlowCountersData {
            counters_data: described.as_ptr().expose_provenance() as u64,
            ncounters: described.len() as u32,
            reserved: 0,
        };
        let head = mlx5::CreateFlow { ncounters_data: 1, reserved: 0 };
        [head.as_bytes(), data.as_bytes()].concat()
    });
    let mut answer = CreateFlowResp::new_zeroed();
    exchange_bytes(
        file,
        WriteCommand::CREATE_FLOW_EX,
        &request,
        answer.as_mut_bytes(),
        driver.as_deref().unwrap_or_default(),
        &mut [],
    )?;
    Ok(answer.flow_handle)
}

/// Destroys a flow rule (FLOW_DESTROY), including one of a matcher.
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy_object(file, method::FLOW_DESTROY, attr::destroy_flow::HANDLE, handle)
}
