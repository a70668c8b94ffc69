//! The device's objects of a raw packet queue pair.

use mlx5_uapi::mlx5::{CreateQpResp, CreateQpRespMask};

/// Numbers of the device's objects of a raw packet queue pair. Zero stands for an object that it
/// does not have, or whose number the kernel does not report: it does so only for contexts with
/// DEVX.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PacketObjects {
    /// Its receiving end, to which rules steer packets (TIR).
    pub tirn: u32,
    /// Its sending end (TIS).
    pub tisn: u32,
    /// Its receive queue.
    pub rqn: u32,
    /// Its send queue.
    pub sqn: u32,
    /// Address of the receiving end in the device's memory.
    pub tir_icm_addr: u64,
}

impl PacketObjects {
    pub(crate) fn new(answer: &CreateQpResp) -> Self {
        let mask = CreateQpRespMask::from_bits_retain(answer.comp_mask);
        let number = |bit, number| if mask.contains(bit) { number } else { 0 };
        Self {
            tirn: number(CreateQpRespMask::TIRN, answer.tirn),
            tisn: number(CreateQpRespMask::TISN, answer.tisn),
            rqn: number(CreateQpRespMask::RQN, answer.rqn),
            sqn: number(CreateQpRespMask::SQN, answer.sqn),
            tir_icm_addr: match mask.contains(CreateQpRespMask::TIR_ICM_ADDR) {
                true => answer.tir_icm_addr,
                false => 0,
            },
        }
    }
}
