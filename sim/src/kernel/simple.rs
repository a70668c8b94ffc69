//! Small objects: protection domains and address handles.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::AllocPdIn;
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::attr;
use mlx5_uapi::mlx5;
use mlx5_uapi::write_cmd::{AllocPdResp, CreateAh, CreateAhResp};

use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::objects::Body;
use crate::kernel::path;
use crate::kernel::write_call::WriteCall;

/// The bytes of CREATE_AH's driver response that are needed: up to the MAC address.
const AH_RESPONSE: u32 = 10;

pub(crate) fn alloc_pd(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    let context = state.context()?;
    let mut input = AllocPdIn::request();
    input.set_uid(context.uid);
    let pdn = file.hca.command(&input)?.pd();
    let handle = state.objects.add(Body::Pd { pdn }, &[]);
    call.respond(&AllocPdResp { pd_handle: handle })?;
    call.respond_driver(&mlx5::AllocPdResp { pdn })
}

/// Returns the device's number of a domain.
pub(crate) fn query_pd(
    _file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let pdn = state.objects.pdn(request.handle(attr::query_pd::HANDLE)?)?;
    request.answer(attr::query_pd::RESP_PDN, &pdn)
}

pub(crate) fn create_ah(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: CreateAh = call.request();
    let attr = request.attr;
    if attr.port_num == 0 || attr.port_num > file.hca.ports() {
        return Err(Errno::EINVAL);
    }
    state.objects.pdn(request.pd_handle)?;
    let dmac = path::destination(&file.hca, attr.port_num, attr.is_global != 0, &attr.grh)?;
    let handle = state.objects.add(Body::Ah, &[request.pd_handle]);
    call.respond(&CreateAhResp { ah_handle: handle })?;
    match dmac {
        Some(dmac) => call.respond_driver(&mlx5::CreateAhResp {
            response_length: AH_RESPONSE,
            dmac,
            reserved: [0; 6],
        }),
        None => Ok(()),
    }
}
