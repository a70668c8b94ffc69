//! Raw packet queue pairs: the completion of a received frame has the tag of a rule where other
//! completions have the number of their queue pair.

use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::transport::RawPacket;
use mlx5::{QueueState, SendFlags, Sge};
use mlx5_async::{AsyncQueuePair, Done};
use mlx5_sim::{PortConfig, SimConfig};

use crate::rig::Rig;

const NONE: SendFlags = SendFlags::empty();
/// A group address, so that the device loops frames back.
const GROUP: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa7];

fn rig() -> Rig {
    Rig::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true).step(true))
}

/// A queue pair that receives frames to the group, with a tag.
fn station(rig: &Rig, tag: u32) -> (AsyncQueuePair<RawPacket, u32>, FlowRule) {
    let builder = rig.hub.create_qp::<RawPacket>(&rig.pd).max_send_wr(4).max_recv_wr(4);
    let mut qp = builder.self_loopback(false, true).build().unwrap();
    qp.activate(1).unwrap();
    let rule = Rule::new().ethernet(Ethernet::new().dst_mac(GROUP)).tag(tag);
    let rule = qp.attach(1, &rule).unwrap();
    (rig.hub.adopt(qp).unwrap(), rule)
}

#[test]
fn a_frame_completes_its_request_whatever_its_tag() {
    let mut rig = rig();
    let (qp, rule) = station(&rig, 0xface);
    let frame: Vec<u8> = GROUP.into_iter().chain(6..60).collect();
    rig.memory.write_at(0, &frame).unwrap();
    let (from, to) = (rig.memory.sge(..60).unwrap(), rig.memory.sge(4096..4196).unwrap());
    for number in 0..8 {
        let received = rig.block_on(qp.submit_recv(number, to)).unwrap();
        let sent = rig.block_on(qp.submit(100 + number, NONE, |wr| wr.send().sge(from))).unwrap();
        assert_eq!(rig.block_on(sent).unwrap().keep, 100 + number);
        let Done { keep, completion } = rig.block_on(received).unwrap();
        assert_eq!((keep, completion.byte_len()), (number, Some(60)));
        assert_eq!(completion.as_completion().flow_tag(), Some(0xface));
    }
    let mut bytes = [0; 60];
    rig.memory.read_at(4096, &mut bytes).unwrap();
    assert_eq!((&bytes[..], rig.hub.strays()), (&frame[..], 0));
    drop((qp, rule));
    assert_eq!(rig.simulator.violations(), []);
}

#[test]
fn closing_flushes_the_receives_that_no_frame_came_for() {
    let mut rig = rig();
    let (qp, rule) = station(&rig, 1);
    let awaited = rig.block_on(qp.submit_recv(1, Sge::default())).unwrap();
    qp.try_post_recv(2, Sge::default()).unwrap();
    let mut receives = qp.receives();
    let closed = rig.block_on(qp.close()).unwrap();
    assert_eq!(closed.state(), QueueState::Error);
    for (flushed, buffer) in
        [(rig.block_on(awaited), 1), (rig.block_on(receives.next()).unwrap(), 2)]
    {
        let flushed = flushed.unwrap_err();
        assert!(flushed.is_flushed(), "{flushed}");
        assert_eq!(flushed.keep, Some(buffer));
    }
    assert!(rig.block_on(receives.next()).is_none());
    drop((closed, rule));
    assert_eq!(rig.queue_pairs(), 0);
}
