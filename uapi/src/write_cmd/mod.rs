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
    QUERY_DEVICE = 1 => "CMD_QUERY_DEVICE",
    ALLOC_PD = 3 => "CMD_ALLOC_PD",
    CREATE_AH = 5 => "CMD_CREATE_AH",
    REG_MR = 9 => "CMD_REG_MR",
    REREG_MR = 11 => "CMD_REREG_MR",
    ALLOC_MW = 14 => "CMD_ALLOC_MW",
    CREATE_COMP_CHANNEL = 17 => "CMD_CREATE_COMP_CHANNEL",
    RESIZE_CQ = 19 => "CMD_RESIZE_CQ",
    QUERY_QP = 25 => "CMD_QUERY_QP",
    MODIFY_QP = 26 => "CMD_MODIFY_QP",
    ATTACH_MCAST = 30 => "CMD_ATTACH_MCAST",
    DETACH_MCAST = 31 => "CMD_DETACH_MCAST",
    MODIFY_SRQ = 33 => "CMD_MODIFY_SRQ",
    QUERY_SRQ = 34 => "CMD_QUERY_SRQ",
    OPEN_XRCD = 37 => "CMD_OPEN_XRCD",
    OPEN_QP = 40 => "CMD_OPEN_QP",
    QUERY_DEVICE_EX = 1 => "EX_CMD_QUERY_DEVICE",
    MODIFY_QP_EX = 26 => "EX_CMD_MODIFY_QP",
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
    transfer(file, command, core_in, core_out, driver_in, driver_out)
}

/// [`invoke_write`] for this crate's own functions; see [`Call::make`].
fn transfer(
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
    transfer(
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
        transfer(&file, WriteCommand::DETACH_MCAST, &[5; 24], &mut [], &[], &mut []).unwrap();
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
        transfer(&file, command, &[1; 120], &mut core, &[2; 16], &mut driver).unwrap();
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
