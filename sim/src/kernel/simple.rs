//! Objects that are little more than a number: protection domains, XRC domains, address handles.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::{AllocPdIn, AllocXrcdIn, DeallocPdIn, DeallocXrcdIn};
use mlx5_uapi::Errno;
use mlx5_uapi::ioctl::AttrId;
use mlx5_uapi::mlx5;
use mlx5_uapi::write_cmd::{AllocPdResp, CreateAh, CreateAhResp, OpenXrcd, OpenXrcdResp};

use crate::kernel::decode::Request;
use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::objects::Body;
use crate::kernel::path;
use crate::kernel::write::WriteCall;

/// The bytes of CREATE_AH's driver response that count: up to the MAC address.
const AH_RESPONSE: u32 = 10;

/// A method that only ends the object in the attribute `HANDLE`.
pub(crate) fn destroy<const HANDLE: u16>(
    file: &OpenFile,
    state: &mut State,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    file.destroy(state, request.handle(AttrId(HANDLE))?).map(drop)
}

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

pub(crate) fn dealloc_pd(hca: &Hca, pdn: u32) -> Result<(), Errno> {
    let mut input = DeallocPdIn::request();
    input.set_pd(pdn);
    hca.command(&input).map(drop)
}

/// Domains are not shared by inode: each call makes one.
pub(crate) fn open_xrcd(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: OpenXrcd = call.request();
    if request.fd != -1 {
        return Err(Errno::EOPNOTSUPP);
    }
    let xrcd = file.hca.command(&AllocXrcdIn::request())?.xrcd();
    let handle = state.objects.add(Body::Xrcd { xrcd }, &[]);
    call.respond(&OpenXrcdResp { xrcd_handle: handle })
}

pub(crate) fn dealloc_xrcd(hca: &Hca, xrcd: u32) -> Result<(), Errno> {
    let mut input = DeallocXrcdIn::request();
    input.set_xrcd(xrcd);
    hca.command(&input).map(drop)
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
