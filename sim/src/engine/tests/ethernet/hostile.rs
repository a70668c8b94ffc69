//! Random frames and requests: the device survives all of them.

use super::*;
use crate::frame::headers::Headers;
use crate::frame::samples::{gre, plain, tagged, tcp4, tcp6, udp4, udp6, vxlan};
use crate::frame::segment::Plan;
use crate::frame::{checksum, matching};

/// A generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

fn frames() -> Vec<Vec<u8>> {
    vec![
        tcp4(b"data"),
        udp6(b"data"),
        tagged(&tagged(&tcp6(b"data"), 0x8100, 5), 0x88a8, 6),
        vxlan(&tcp4(b"inside"), 7),
        gre(&udp4(b"inside")[14..], 0x0800, Some(3)),
        gre(&udp4(b"inside"), 0x6558, None),
        plain(60),
    ]
}

#[test]
fn headers_at_random_are_read_within_their_frame() {
    let seed = 0x5eed_0001;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let whole = frames();
    for _ in 0..20_000 {
        let mut frame = whole[random.below(whole.len())].clone();
        for _ in 0..random.below(4) {
            let at = random.below(frame.len());
            frame[at] = random.next() as u8;
        }
        frame.truncate(random.below(frame.len() + 1));
        let Some(headers) = Headers::of(&frame) else {
            assert!(frame.len() < 14);
            continue;
        };
        matching::parameters(&frame, &headers, None);
        for layers in [Some(&headers.outer), headers.inner.as_ref()].into_iter().flatten() {
            checksum::verdict(&frame, layers);
            let mut filled = frame.clone();
            checksum::fill_network(&mut filled, layers);
            checksum::fill_transport(&mut filled, layers);
            assert_eq!(filled.len(), frame.len());
        }
        let header = &frame[..random.below(frame.len() + 1)];
        if let Ok(plan) = Plan::new(header, random.next() as u16) {
            let payload = vec![1; random.below(3000)];
            let count = plan.count(payload.len());
            let bytes: usize = (0..count).map(|n| plan.segment(&payload, n).len()).sum();
            assert_eq!(bytes, payload.len() + count * header.len());
        }
    }
}

#[test]
fn requests_at_random_complete_once_each() {
    let seed = 0x5eed_0002;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    for round in 0..300 {
        let rig = rig(2);
        let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
        two.fill(8);
        let opcodes = [Opcode::Send, Opcode::Tso, Opcode::EnhancedMpw];
        for _ in 0..4 {
            let mut wqe = Wqe::new(opcodes[random.below(3)]);
            let mut body: Vec<u8> =
                (0..16 * (1 + random.below(3))).map(|_| random.next() as u8).collect();
            if random.below(4) > 0 {
                // A segment that is nearly valid.
                body[..12].fill(0);
                body[4] = random.next() as u8;
                body[12..14].copy_from_slice(&[0, random.below(40) as u8]);
            }
            wqe.body = body;
            if random.below(2) == 0 {
                wqe = wqe.data(one.sent.at(0), random.next() as u32, one.sent.key);
            }
            one.sq.post(&wqe);
        }
        rig.run();
        for _ in 0..4 {
            one.send_cq.expect();
        }
        one.send_cq.expect_none();
        let counts = rig.lock().device(1).frame_counts();
        let delivered = std::iter::from_fn(|| two.cq.poll()).count() as u64;
        assert_eq!(counts.delivered + counts.too_long, delivered, "round {round}");
    }
}
