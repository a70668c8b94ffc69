//! The command queue pair, which posts operations on a tag list.

use crate::address::{AhAttr, GlobalRoute};
use crate::context::Inner;
use crate::cq::CompletionTarget;
use crate::error::{Error, ErrorKind};
use crate::memory::ProtectionDomain;
use crate::qp::{
    AckTimeout, Psn, QpAttributes, QpInner, QpNumber, RetryCount, RnrTimer, SendHalf, Tags,
};
use mlx5_uapi::verbs::{AccessFlags, GidType, LinkLayer, Mtu};
use mlx5_wqe::transport::Rc;
use mlx5_wqe::{QueueState, SendQueue};
use std::sync::Arc;

const VERB: &str = "create_srq_ex";

/// Returns a path from a port to itself: `port_num`, or the first active port.
pub(super) fn path_to_itself(context: &Inner, port_num: Option<u8>) -> Result<AhAttr, Error> {
    let ports = match port_num {
        Some(port) => port..=port,
        None => 1..=context.num_ports() as u8,
    };
    for port_num in ports {
        let port = context.query_port(port_num)?;
        if !port.is_active() {
            continue;
        }
        let caps = context.port(VERB, port_num)?;
        let mut path =
            AhAttr { port_num, dlid: port.lid, sl: 0, src_path_bits: 0, static_rate: 0, grh: None };
        if port.link_layer == LinkLayer::Ethernet || caps.grh_required {
            let mut own = context.gid_table()?;
            own.retain(|entry| entry.port_num == u32::from(port_num) && !entry.gid.is_zero());
            // Any GID works; prefer routable ones.
            own.sort_by_key(|entry| (entry.gid_type != GidType::RoceV2, entry.gid_index));
            let Some((gid, Ok(index))) =
                own.first().map(|entry| (entry.gid, u8::try_from(entry.gid_index)))
            else {
                continue;
            };
            path.grh = Some(GlobalRoute::new(gid, index));
        }
        return Ok(path);
    }
    let which = match port_num {
        Some(port) => format!("port {port} is not active, or has no address"),
        None => "no port is active and has an address".to_owned(),
    };
    let what = format!("{which}: the command queue pair cannot be connected");
    Err(Error::new(VERB, ErrorKind::NotFound, what))
}

/// Creates the queue pair and connects it to itself. Its requests never leave the device, but the
/// device accepts none from a queue pair that is not connected.
pub(super) fn create(
    pd: &ProtectionDomain,
    cq: &CompletionTarget,
    tags: Tags,
    max_ops: u32,
    path: AhAttr,
) -> Result<(SendQueue<Rc>, Arc<QpInner>), Error> {
    let mut qp =
        pd.create_qp_on::<Rc>(cq.clone(), cq.clone()).tags(tags).max_send_wr(max_ops).build()?;
    let (none, never) = (RetryCount::new(0), AckTimeout::new(0));
    let (Ok(none), Ok(never), Ok(timer), Ok(psn), Ok(itself)) =
        (none, never, RnrTimer::new(0), Psn::new(0), QpNumber::new(qp.qp_num()))
    else {
        return Err(Error::invalid(
            VERB,
            "the device returned an invalid queue pair number".into(),
        ));
    };
    let init = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(0)
        .port_num(path.port_num)
        .qp_access_flags(AccessFlags::empty());
    let ready_to_receive = QpAttributes::new()
        .qp_state(QueueState::ReadyToReceive)
        .ah_attr(path)
        .path_mtu(Mtu::Mtu256)
        .dest_qp_num(itself)
        .rq_psn(psn)
        .max_dest_rd_atomic(0)
        .min_rnr_timer(timer);
    let ready_to_send = QpAttributes::new()
        .qp_state(QueueState::ReadyToSend)
        .timeout(never)
        .retry_cnt(none)
        .rnr_retry(none)
        .sq_psn(psn)
        .max_rd_atomic(0);
    for attributes in [init, ready_to_receive, ready_to_send] {
        qp.modify(&attributes)?;
    }
    let (SendHalf { queue, inner }, ..) = qp.split();
    Ok((queue, inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices_on;
    use crate::testing::Altered;
    use mlx5_sim::{PortConfig, SimConfig, Simulator};
    use mlx5_uapi::Kernel;
    use mlx5_uapi::ioctl::{attr, method};

    #[test]
    fn a_path_to_itself_has_a_grh_where_the_port_needs_one() {
        // Port, whether the kernel reports that every path needs a GRH, whether the path has one.
        for (port, required, has) in [
            (PortConfig::INFINIBAND, false, false),
            (PortConfig::INFINIBAND, true, true),
            (PortConfig::ROCE, true, true),
        ] {
            let simulator = Simulator::new(SimConfig::new().ports([port]));
            let kernel = Altered::new(simulator.kernel(), move |call| {
                call.pass()?;
                if call.method == method::QUERY_PORT {
                    // `ib_uverbs_query_port_resp::flags`.
                    call.output(attr::query_port::RESP)[38] = required.into();
                }
                Ok(())
            });
            let device = devices_on(kernel as Arc<dyn Kernel>).unwrap().remove(0);
            let context = device.open().unwrap();
            let path = path_to_itself(&context.inner, None).unwrap();
            assert_eq!(path.grh.is_some(), has, "{port:?} {required}");
            // A routable address if the port has one.
            let mut gids = context.gid_table().unwrap();
            gids.retain(|entry| entry.gid_type == GidType::RoceV2 && !entry.gid.is_zero());
            if let (Some(grh), Some(first)) = (path.grh, gids.first()) {
                assert_eq!(u32::from(grh.sgid_index), first.gid_index);
            }
        }
    }
}
