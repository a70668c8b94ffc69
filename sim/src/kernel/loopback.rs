//! Loopback of frames to the function that sends them: on while two programs have contexts, or a
//! queue pair asks for it (`mlx5_ib_enable_lb`).

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;

use crate::kernel::hca::Hca;
use crate::kernel::lock;
use crate::kernel::steered::{Loopback, Users};

/// From this number of contexts on, they may send to one another.
const SEVERAL: u32 = 2;

impl Loopback {
    /// Sets the state in which a driver starts.
    pub(crate) fn start(hca: &Hca) {
        set(hca, false);
    }

    fn change(&self, hca: &Hca, change: impl FnOnce(&mut Users)) {
        let mut users = lock(&self.users);
        change(&mut users);
        let wanted = users.contexts >= SEVERAL || users.queues > 0;
        if std::mem::replace(&mut users.enabled, wanted) != wanted {
            set(hca, wanted);
        }
    }

    pub(crate) fn enter_context(&self, hca: &Hca) {
        self.change(hca, |users| users.contexts += 1);
    }

    pub(crate) fn leave_context(&self, hca: &Hca) {
        self.change(hca, |users| users.contexts -= 1);
    }

    pub(crate) fn enter_queue(&self, hca: &Hca) {
        self.change(hca, |users| users.queues += 1);
    }

    pub(crate) fn leave_queue(&self, hca: &Hca) {
        self.change(hca, |users| users.queues -= 1);
    }
}

fn set(hca: &Hca, enabled: bool) {
    if !hca.caps.disable_local_lb_uc() {
        return;
    }
    let mut input = ModifyNicVportContextIn::request();
    input.set_select_disable_mc_local_lb(true).set_select_disable_uc_local_lb(true);
    input
        .nic_vport_context_mut()
        .set_disable_mc_local_lb(!enabled)
        .set_disable_uc_local_lb(!enabled);
    // If the device is gone, this fails, and there are no frames.
    let _ = hca.command(&input);
}
