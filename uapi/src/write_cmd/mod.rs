//! `rdma/ib_user_verbs.h`: the commands in the format of write(2), carried by the ioctl
//! INVOKE_WRITE.
//!
//! With write(2), the `response` field of a request is the address of the response. Through the
//! ioctl the kernel ignores it.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
};

#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
mod layouts;

pub use layouts::*;

/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
const EXTENDED: u32 = 0x8000_0000;

/// The command that INVOKE_WRITE executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteCommand(pub u32);

macro_rules! commands {
    ($($name:ident = $number:literal => $kernel:literal),* $(,)?) => {
        impl WriteCommand {
            $(
                #[doc = concat!("`IB_USER_VERBS_", $kernel, "`.")]
                pub const $name: Self = Self(commands!(@ $kernel, $number));
            )*

            /// Returns the kernel's name, `None` for a number that is not in the table.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$name => Some(concat!("IB_USER_VERBS_", $kernel)), )*
                    _ => None,
                }
            }
        }
    };
    (@ $kernel:literal, $number:literal) => {
        if is_extended($kernel) { EXTENDED | $number } else { $number }
    };
}

const fn is_extended(kernel: &str) -> bool {
    matches!(kernel.as_bytes(), [b'E', b'X', ..])
}

commands! {
    GET_CONTEXT = 0 => "CMD_GET_CONTEXT",
    QUERY_DEVICE = 1 => "CMD_QUERY_DEVICE",
    QUERY_PORT = 2 => "CMD_QUERY_PORT",
    ALLOC_PD = 3 => "CMD_ALLOC_PD",
    DEALLOC_PD = 4 => "CMD_DEALLOC_PD",
    CREATE_AH = 5 => "CMD_CREATE_AH",
    MODIFY_AH = 6 => "CMD_MODIFY_AH",
    QUERY_AH = 7 => "CMD_QUERY_AH",
    DESTROY_AH = 8 => "CMD_DESTROY_AH",
    REG_MR = 9 => "CMD_REG_MR",
    REG_SMR = 10 => "CMD_REG_SMR",
    REREG_MR = 11 => "CMD_REREG_MR",
    QUERY_MR = 12 => "CMD_QUERY_MR",
    DEREG_MR = 13 => "CMD_DEREG_MR",
    ALLOC_MW = 14 => "CMD_ALLOC_MW",
    BIND_MW = 15 => "CMD_BIND_MW",
    DEALLOC_MW = 16 => "CMD_DEALLOC_MW",
    CREATE_COMP_CHANNEL = 17 => "CMD_CREATE_COMP_CHANNEL",
    CREATE_CQ = 18 => "CMD_CREATE_CQ",
    RESIZE_CQ = 19 => "CMD_RESIZE_CQ",
    DESTROY_CQ = 20 => "CMD_DESTROY_CQ",
    POLL_CQ = 21 => "CMD_POLL_CQ",
    PEEK_CQ = 22 => "CMD_PEEK_CQ",
    REQ_NOTIFY_CQ = 23 => "CMD_REQ_NOTIFY_CQ",
    CREATE_QP = 24 => "CMD_CREATE_QP",
    QUERY_QP = 25 => "CMD_QUERY_QP",
    MODIFY_QP = 26 => "CMD_MODIFY_QP",
    DESTROY_QP = 27 => "CMD_DESTROY_QP",
    POST_SEND = 28 => "CMD_POST_SEND",
    POST_RECV = 29 => "CMD_POST_RECV",
    ATTACH_MCAST = 30 => "CMD_ATTACH_MCAST",
    DETACH_MCAST = 31 => "CMD_DETACH_MCAST",
    CREATE_SRQ = 32 => "CMD_CREATE_SRQ",
    MODIFY_SRQ = 33 => "CMD_MODIFY_SRQ",
    QUERY_SRQ = 34 => "CMD_QUERY_SRQ",
    DESTROY_SRQ = 35 => "CMD_DESTROY_SRQ",
    POST_SRQ_RECV = 36 => "CMD_POST_SRQ_RECV",
    OPEN_XRCD = 37 => "CMD_OPEN_XRCD",
    CLOSE_XRCD = 38 => "CMD_CLOSE_XRCD",
    CREATE_XSRQ = 39 => "CMD_CREATE_XSRQ",
    OPEN_QP = 40 => "CMD_OPEN_QP",
    QUERY_DEVICE_EX = 1 => "EX_CMD_QUERY_DEVICE",
    CREATE_CQ_EX = 18 => "EX_CMD_CREATE_CQ",
    CREATE_QP_EX = 24 => "EX_CMD_CREATE_QP",
    MODIFY_QP_EX = 26 => "EX_CMD_MODIFY_QP",
    CREATE_FLOW_EX = 50 => "EX_CMD_CREATE_FLOW",
    DESTROY_FLOW_EX = 51 => "EX_CMD_DESTROY_FLOW",
    CREATE_WQ_EX = 52 => "EX_CMD_CREATE_WQ",
    MODIFY_WQ_EX = 53 => "EX_CMD_MODIFY_WQ",
    DESTROY_WQ_EX = 54 => "EX_CMD_DESTROY_WQ",
    CREATE_RWQ_IND_TBL_EX = 55 => "EX_CMD_CREATE_RWQ_IND_TBL",
    DESTROY_RWQ_IND_TBL_EX = 56 => "EX_CMD_DESTROY_RWQ_IND_TBL",
    MODIFY_CQ_EX = 57 => "EX_CMD_MODIFY_CQ",
}

/// The empty request or response of a command that has none.
pub type Nothing = [u8; 0];

/// Executes a command. Empty buffers become no attribute.
///
/// # Safety
/// The requests are those that the command defines. Memory that they name by address is free for
/// the device to use as the command defines, until a later call ends that use.
pub unsafe fn invoke_write(
    file: &dyn DeviceFile,
    command: WriteCommand,
    core_in: &[u8],
    core_out: &mut [u8],
    driver_in: &[u8],
    driver_out: &mut [u8],
) -> Result<(), Errno> {
    exchange_bytes(file, command, core_in, core_out, driver_in, driver_out)
}

/// [`invoke_write`] for this crate's own functions; see [`Call::make`].
pub(crate) fn exchange_bytes(
    file: &dyn DeviceFile,
    command: WriteCommand,
    core_in: &[u8],
    core_out: &mut [u8],
    driver_in: &[u8],
    driver_out: &mut [u8],
) -> Result<(), Errno> {
    let mut call = Call::new(method::INVOKE_WRITE);
    call.input_u64(attr::invoke_write::WRITE_CMD, u64::from(command.0));
    if !core_in.is_empty() {
        call.input_bytes(attr::invoke_write::CORE_IN, core_in);
    }
    if !core_out.is_empty() {
        call.output_bytes(attr::invoke_write::CORE_OUT, core_out);
    }
    if !driver_in.is_empty() {
        call.input_bytes(attr::uhw::IN, driver_in);
    }
    if !driver_out.is_empty() {
        call.output_bytes(attr::uhw::OUT, driver_out);
    }
    call.make(file).map(drop)
}

/// Executes a command without driver request and response.
pub(crate) fn exchange<I, O>(
    file: &dyn DeviceFile,
    command: WriteCommand,
    request: &I,
) -> Result<O, Errno>
where
    I: IntoBytes + Immutable,
    O: FromBytes + IntoBytes,
{
    exchange_with_driver::<I, O, Nothing, Nothing>(file, command, request, &[])
        .map(|(core, _)| core)
}

/// Executes a command with requests to and responses from core and driver.
pub(crate) fn exchange_with_driver<I, O, DI, DO>(
    file: &dyn DeviceFile,
    command: WriteCommand,
    request: &I,
    driver_request: &DI,
) -> Result<(O, DO), Errno>
where
    I: IntoBytes + Immutable,
    O: FromBytes + IntoBytes,
    DI: IntoBytes + Immutable,
    DO: FromBytes + IntoBytes,
{
    let mut core = O::new_zeroed();
    let mut driver = DO::new_zeroed();
    exchange_bytes(
        file,
        command,
        request.as_bytes(),
        core.as_mut_bytes(),
        driver_request.as_bytes(),
        driver.as_mut_bytes(),
    )?;
    Ok((core, driver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Script;

    #[test]
    fn buffers_without_bytes_are_left_out() {
        let file = Script::new().then(|call| {
            assert_eq!(call.method, method::INVOKE_WRITE);
            assert_eq!(
                call.ids(),
                [attr::invoke_write::CORE_IN.0, attr::invoke_write::WRITE_CMD.0]
            );
            assert_eq!(call.u64(attr::invoke_write::WRITE_CMD), 31);
            assert_eq!(call.input(attr::invoke_write::CORE_IN), [5; 24]);
            Ok(())
        });
        exchange_bytes(&file, WriteCommand::DETACH_MCAST, &[5; 24], &mut [], &[], &mut []).unwrap();
        file.done();
    }

    #[test]
    fn the_driver_speaks_in_attributes_of_its_own() {
        let file = Script::new().then(|call| {
            assert_eq!(call.input(attr::uhw::IN), [2; 16]);
            call.answer(attr::invoke_write::CORE_OUT, &[3; 8]);
            call.answer(attr::uhw::OUT, &[4; 8]);
            Ok(())
        });
        let (mut core, mut driver) = ([0; 8], [0; 8]);
        let command = WriteCommand::MODIFY_QP_EX;
        exchange_bytes(&file, command, &[1; 120], &mut core, &[2; 16], &mut driver).unwrap();
        assert_eq!((core, driver), ([3; 8], [4; 8]));
    }

    #[test]
    fn extended_commands_carry_the_flag() {
        assert_eq!(WriteCommand::QUERY_DEVICE.0, 1);
        assert_eq!(WriteCommand::QUERY_DEVICE_EX.0, 0x8000_0001);
        assert_eq!(WriteCommand::MODIFY_QP_EX.0, 0x8000_001a);
        assert_eq!(WriteCommand::MODIFY_CQ_EX.0, 0x8000_0039);
    }
}
