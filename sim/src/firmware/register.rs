//! Registers of the ports and of the node: ACCESS_REG.

use mlx5_prm::cmd::port::{AccessRegIn, AccessRegMode, RegisterId};
use mlx5_prm::fields::{get_bits, set_bits};

use crate::config::LinkLayer;
use crate::engine::{Device, FRAME, Port};
use crate::firmware::{Answer, Failure, Firmware, counters, syndrome};

/// A field of a register: first bit and width.
type Field = (usize, usize);

/// `local_port` of every port register.
pub(crate) const LOCAL_PORT: Field = (0x8, 8);

/// `mlx5_ifc_pmtu_reg_bits`.
mod pmtu {
    use super::Field;
    pub(super) const BYTES: usize = 0x80 / 8;
    pub(super) const MAX: Field = (0x20, 16);
    pub(super) const ADMIN: Field = (0x40, 16);
    pub(super) const OPER: Field = (0x60, 16);
}

/// `mlx5_ifc_ptys_reg_bits`.
pub(crate) mod ptys {
    use super::Field;
    pub(crate) const BYTES: usize = 0x200 / 8;
    pub(crate) const PROTO_MASK: Field = (0x1d, 3);
    /// Capability, administrator's choice, and current state.
    pub(super) const ETHERNET: [Field; 3] = [(0x60, 32), (0xc0, 32), (0x120, 32)];
    pub(super) const IB_WIDTH: [Field; 3] = [(0x80, 16), (0xe0, 16), (0x140, 16)];
    pub(super) const IB_PROTO: [Field; 3] = [(0x90, 16), (0xf0, 16), (0x150, 16)];
    /// `MLX5_PTYS_IB`, `MLX5_PTYS_EN`.
    pub(super) const IB: u64 = 1;
    pub(crate) const EN: u64 = 4;
    /// Width 4x, `MLX5_PTYS_WIDTH_4X`.
    pub(super) const WIDTH_4X: u64 = 4;
    /// EDR, `MLX5_PTYS_RATE_EDR`.
    pub(super) const EDR: u64 = 1 << 5;
    /// 100GBASE-CR4, `MLX5E_100GBASE_CR4`.
    pub(super) const CR4_100G: u64 = 1 << 20;
}

/// `mlx5_ifc_pvlc_reg_bits`.
mod pvlc {
    use super::Field;
    pub(super) const BYTES: usize = 0x80 / 8;
    pub(super) const HW_CAP: Field = (0x3c, 4);
    pub(super) const ADMIN: Field = (0x5c, 4);
    pub(super) const OPERATIONAL: Field = (0x7c, 4);
    /// VL 0 to 3: the field is the number of lanes.
    pub(super) const FOUR: u64 = 4;
}

/// `mlx5_ifc_paos_reg_bits`.
mod paos {
    use super::Field;
    pub(super) const BYTES: usize = 0x80 / 8;
    pub(super) const ADMIN: Field = (0x14, 4);
    pub(super) const OPER: Field = (0x1c, 4);
    pub(super) const UP: u64 = 1;
    pub(super) const DOWN: u64 = 2;
}

/// `mlx5_ifc_pmlp_reg_bits`.
mod pmlp {
    use super::Field;
    pub(super) const BYTES: usize = 0x200 / 8;
    pub(super) const WIDTH: Field = (0x18, 8);
}

/// Registers that read as zero, and to which writes have no effect, with their bytes.
const QUIET: &[(RegisterId, usize)] = &[
    (RegisterId::PCAP, 0xa0 / 8),
    (RegisterId::PFCC, 0x80 / 8),
    (RegisterId::PCMR, 0x60 / 8),
    (RegisterId::HOST_ENDIANNESS, 0x80 / 8),
];

/// Bytes of `mlx5_ifc_ppcnt_reg_bits`.
const PPCNT: usize = 0x800 / 8;
/// Bytes of a node's description.
const DESCRIPTION: usize = 64;
/// The largest frame of an Ethernet port.
const JUMBO: u32 = 9978;
/// The most bytes of RoCE around its payload: GRH or IP, UDP, BTH, an XRC and an atomic header,
/// ICRC.
const ROCE_HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

fn fill(register: &mut [u8], fields: &[(Field, u64)]) {
    for ((bit, width), value) in fields {
        set_bits(register, *bit, *width, *value);
    }
}

fn port<'a>(device: &'a Device, input: &[u8]) -> Result<&'a Port, Failure> {
    let number = get_bits(input, LOCAL_PORT.0, LOCAL_PORT.1) as u8;
    device.port(number.max(1)).ok_or(Failure::param(syndrome::PORT_NUMBER))
}

impl Firmware {
    pub(super) fn access_reg(
        &mut self,
        device: &mut Device,
        input: &AccessRegIn,
        data: &[u8],
        out: &mut [u8],
    ) -> Answer {
        let id = RegisterId(input.register_id());
        let write = AccessRegMode(input.op_mod()) == AccessRegMode::WRITE;
        let bytes = match id {
            RegisterId::PMTU => pmtu::BYTES,
            RegisterId::PTYS => ptys::BYTES,
            RegisterId::PVLC => pvlc::BYTES,
            RegisterId::PAOS => paos::BYTES,
            RegisterId::PMLP => pmlp::BYTES,
            RegisterId::PPCNT => PPCNT,
            RegisterId::NODE_DESC => DESCRIPTION,
            _ => {
                let quiet = QUIET.iter().find(|(quiet, _)| *quiet == id);
                quiet.ok_or(Failure::param(syndrome::UNKNOWN_REGISTER))?.1
            }
        };
        let data = data.get(..bytes.min(data.len())).unwrap_or_default();
        let mut register = vec![0; bytes];
        register[..data.len()].copy_from_slice(data);
        match id {
            RegisterId::NODE_DESC if write => self.description = register.clone(),
            RegisterId::NODE_DESC => {
                register.fill(0);
                let known = &self.description;
                register[..known.len()].copy_from_slice(known);
                if known.is_empty() {
                    let name = device.config().model.name().as_bytes();
                    register[..name.len()].copy_from_slice(name);
                }
            }
            RegisterId::PMTU if write => {
                let number = get_bits(&register, LOCAL_PORT.0, LOCAL_PORT.1) as u8;
                let frame = get_bits(&register, pmtu::ADMIN.0, pmtu::ADMIN.1) as u32;
                let port = device.port_mut(number.max(1));
                let port = port.ok_or(Failure::param(syndrome::PORT_NUMBER))?;
                port.frame = frame.min(JUMBO);
                if port.link_layer == LinkLayer::Ethernet {
                    port.mtu = roce_mtu(port.frame);
                }
            }
            RegisterId::PMTU => read_pmtu(port(device, &register)?, &mut register),
            RegisterId::PTYS if !write => read_ptys(port(device, &register)?, &mut register)?,
            RegisterId::PVLC if !write => {
                let all = [pvlc::HW_CAP, pvlc::ADMIN, pvlc::OPERATIONAL];
                fill(&mut register, &all.map(|field| (field, pvlc::FOUR)));
            }
            RegisterId::PAOS if write => {
                let number = get_bits(&register, LOCAL_PORT.0, LOCAL_PORT.1) as u8;
                let up = get_bits(&register, paos::ADMIN.0, paos::ADMIN.1) == paos::UP;
                if device.port(number.max(1)).is_some_and(|port| port.active != up) {
                    device.set_port_active(number.max(1), up);
                }
            }
            RegisterId::PAOS => {
                let state = if port(device, &register)?.active { paos::UP } else { paos::DOWN };
                fill(&mut register, &[(paos::ADMIN, state), (paos::OPER, state)]);
            }
            RegisterId::PPCNT if !write => {
                port(device, &register)?;
                counters::of_port(device, &mut register);
            }
            RegisterId::PMLP if !write => fill(&mut register, &[(pmlp::WIDTH, 4)]),
            _ => {}
        }
        let shown = out.len().min(register.len());
        out[..shown].copy_from_slice(&register[..shown]);
        Ok(())
    }
}

/// The largest path MTU whose packets fit a frame with all headers that RoCE may have.
fn roce_mtu(frame: u32) -> u32 {
    let room = frame.saturating_sub(FRAME + ROCE_HEADERS);
    [4096, 2048, 1024, 512].into_iter().find(|mtu| *mtu <= room).unwrap_or(256)
}

fn read_pmtu(port: &Port, register: &mut [u8]) {
    let (most, now) = match port.link_layer {
        LinkLayer::InfiniBand => (port.mtu, port.mtu),
        LinkLayer::Ethernet => (JUMBO, port.frame),
    };
    let all = [(pmtu::MAX, most), (pmtu::ADMIN, now), (pmtu::OPER, now)];
    fill(register, &all.map(|(field, bytes)| (field, bytes.into())));
}

fn read_ptys(port: &Port, register: &mut [u8]) -> Answer {
    let ask = get_bits(register, ptys::PROTO_MASK.0, ptys::PROTO_MASK.1);
    match (port.link_layer, ask) {
        (LinkLayer::InfiniBand, ptys::IB) => {
            fill(register, &ptys::IB_WIDTH.map(|field| (field, ptys::WIDTH_4X)));
            fill(register, &ptys::IB_PROTO.map(|field| (field, ptys::EDR)));
        }
        (LinkLayer::Ethernet, ptys::EN) => {
            fill(register, &ptys::ETHERNET.map(|field| (field, ptys::CR4_100G)));
        }
        _ => return Err(Failure::param(syndrome::INVALID_VALUE)),
    }
    Ok(())
}
