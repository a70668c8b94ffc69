//! The function that posts faulted requests again is dropped with its shared receive queue.

use super::*;
use crate::qp::create::{create_qp, destroy_qp};
use crate::{close, cq, device, domain, open, pd};
use mlx5_sim::{SimConfig, Simulator};
use std::ptr::null_mut;

/// A completion queue remembers a destroyed queue pair until it is polled, and with it the requests
/// of the shared queue. The function that posts them again has the address of the queue, so it must
/// be dropped with the queue.
#[test]
fn reposting_handler_is_dropped_with_its_queue() {
    let simulator = Simulator::new(SimConfig::new().seed(0x5179));
    // SAFETY: the test follows the rules for C programs: objects exist, and are not used after they
    // are destroyed.
    unsafe {
        let list = device::get_device_list_on(simulator.kernel(), null_mut());
        let context = open::open_device(*list);
        device::free_device_list(list);
        let domain = pd::alloc_pd(context);
        let cq = cq::create_cq(context, 4, null_mut(), null_mut(), 0);
        let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
        let mut wanted = ibv_srq_init_attr { srq_context: null_mut(), attr };
        let srq = create_srq(domain, &mut wanted);
        let cap = ibv_qp_cap {
            max_send_wr: 1,
            max_recv_wr: 0,
            max_send_sge: 1,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        let mut init = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq,
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let qp = create_qp(domain, &mut init);
        assert!(!srq.is_null() && !qp.is_null());
        // Replaces the library's function by one that shows when it is dropped.
        let held = std::sync::Arc::new(());
        let has = std::sync::Arc::clone(&held);
        let control = SrqObject::of(srq).control.clone();
        let repost = move |_: Faulted<'_>| drop(has.clone());
        control.on_page_fault(Some(Box::new(repost))).expect("a queue");
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        assert_eq!(destroy_qp(qp), 0);
        assert_eq!(destroy_srq(srq), 0);
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "the function is there still");
        assert_eq!(cq::destroy_cq(cq), 0);
        assert_eq!(domain::dealloc_pd(domain), 0);
        assert_eq!(close::close_device(context), 0);
    }
}
