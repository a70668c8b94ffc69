//! Commands for the device as a whole: set its capabilities, start it, and stop it.

use mlx5_prm::cmd::caps::{CapGroup, HcaCap, SetHcaCapIn};
use mlx5_prm::cmd::hca::{TeardownHcaIn, TeardownProfile};

use crate::engine::Device;
use crate::firmware::{Answer, Failure, Firmware, caps, syndrome};

/// A function that reads one number from the general capabilities.
type Number = fn(&HcaCap) -> u32;

/// Readers of the numbers that a driver may lower but not raise.
const AT_MOST: &[Number] = &[
    HcaCap::log_max_qp,
    HcaCap::log_max_cq,
    HcaCap::log_max_srq,
    HcaCap::log_max_mkey,
    HcaCap::log_max_eq,
    HcaCap::log_max_msg,
    HcaCap::cqe_version,
];

impl Firmware {
    pub(super) fn set_hca_cap(&mut self, device: &Device, input: &SetHcaCapIn) -> Answer {
        if self.initialized {
            return Err(Failure::state(syndrome::WRONG_STATE));
        }
        match CapGroup::from_op_mod(input.op_mod()).0 {
            CapGroup::GENERAL => {
                let (wanted, most) = (input.hca_cap(), caps::general_caps(device.config()));
                if AT_MOST.iter().any(|number| number(wanted) > number(&most)) {
                    return Err(Failure::param(syndrome::INVALID_VALUE));
                }
                self.caps = Some(Box::new(*wanted));
                Ok(())
            }
            // The device ignores the input: whatever a driver could enable here is always enabled.
            CapGroup::ATOMIC | CapGroup::ROCE | CapGroup::ODP | CapGroup::GENERAL_2 => Ok(()),
            _ => Err(Failure::param(syndrome::UNKNOWN_MODIFIER)),
        }
    }

    pub(super) fn init_hca(&mut self) -> Answer {
        if self.initialized {
            return Err(Failure::state(syndrome::WRONG_STATE));
        }
        self.initialized = true;
        Ok(())
    }

    /// Stops the device, and destroys the objects that are left. The firmware keeps the pages that
    /// the host gave it.
    pub(super) fn teardown_hca(&mut self, device: &mut Device, input: &TeardownHcaIn) -> Answer {
        if TeardownProfile(input.profile()) == TeardownProfile::PREPARE_FAST_TEARDOWN {
            return Err(Failure::param(syndrome::INVALID_VALUE));
        }
        let pages = std::mem::take(&mut self.pages);
        self.reset(device);
        self.pages = pages;
        Ok(())
    }

    pub(super) fn disable_hca(&mut self) -> Answer {
        if self.initialized {
            return Err(Failure::state(syndrome::WRONG_STATE));
        }
        Ok(())
    }
}
