//! Completion queues whose counter wraps: the 24 bits of it that the device sees, or all 32.

use super::waiting::lone_from;
use crate::prelude::*;
use mlx5::{CqeCompression, Data, PollError};
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    completions_go_on_where_the_counter_wraps: SIMULATOR,
    events_go_on_where_the_counter_wraps: SIMULATOR,
    a_queue_overruns_where_it_is_full_wherever_its_counter_wraps: SIMULATOR,
    a_queue_is_resized_where_its_counter_wraps: SIMULATOR,
];

/// Just below a wrap, or below the point where the difference of two counters changes its sign: of
/// the 24 bits, and of all.
const STARTS: [u32; 5] =
    [(1 << 23) - 9, (1 << 24) - 9, (0xab << 24) - 9, (1 << 31) - 9, 0_u32.wrapping_sub(9)];

/// Posts an RDMA write of a few bytes for each identifier.
fn write(pair: &mut Pair<Rc>, wr_ids: std::ops::Range<u64>) -> Outcome {
    let to = pair.b.mr.remote(..)?;
    for wr_id in wr_ids {
        let post = Post::new(Op::Write, wr_id, Data::Inline(&[b"something"])).remote(to);
        pair.a.post(Form::Typed, post)?;
    }
    Ok(())
}

fn completions_go_on_where_the_counter_wraps(bed: &Bed) -> Outcome {
    for (start, compression) in
        STARTS.into_iter().flat_map(|start| [(start, None), (start, Some(CqeCompression::Hash))])
    {
        let options = PairOptions::default()
            .cq_entries(7)
            .consumed(start)
            .compression(compression)
            .one_context(true);
        let mut pair = bed.pair::<Rc>(&options)?;
        for round in 0..10 {
            let wr_ids = round * 5..round * 5 + 5;
            for wr_id in wr_ids.clone() {
                pair.b.recv(wr_id, 0..64);
                pair.a.post(Form::Typed, Post::new(Op::Send, wr_id, Data::Inline(&[b"data"])))?;
            }
            let expected = Vec::from_iter(wr_ids);
            assert_eq!(wr_ids_of(bed, &mut pair.a.send_cq), expected, "from {start:#x}");
            assert_eq!(wr_ids_of(bed, pair.b.recv_cq()), expected, "from {start:#x}");
        }
    }
    Ok(())
}

fn wr_ids_of(bed: &Bed, cq: &mut CompletionQueue) -> Vec<u64> {
    wr_ids(&bed.poll_good(cq, 5))
}

fn events_go_on_where_the_counter_wraps(bed: &Bed) -> Outcome {
    for start in STARTS {
        let context = bed.context();
        let channel = context.create_comp_channel()?;
        let (mut lone, mut cq) = lone_from(bed, &context, &channel, start)?;
        let announced = || channel.wait(Some(Duration::from_secs(10)));
        for wr_id in 0..20 {
            // The queue is armed before the completion comes or after it; and once when none comes.
            if wr_id % 2 == 0 {
                cq.arm(false)?;
                bed.settle();
                assert_eq!(channel.get_event()?, None, "from {start:#x}, before {wr_id}");
                lone.write(wr_id)?;
            } else {
                lone.write(wr_id)?;
                bed.settle();
                assert_eq!(channel.get_event()?, None, "it was not armed");
                cq.arm(false)?;
            }
            assert_eq!(announced()?, Some(cq.id()), "from {start:#x}, of {wr_id}");
            assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [wr_id]);
        }
    }
    Ok(())
}

fn a_queue_overruns_where_it_is_full_wherever_its_counter_wraps(bed: &Bed) -> Outcome {
    for start in STARTS {
        let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(15).consumed(start))?;
        let full = u64::from(pair.a.send_cq.capacity()) + 1;
        for round in 0..3 {
            write(&mut pair, round * full..(round + 1) * full)?;
            bed.settle();
            let found = bed.poll_good(&mut pair.a.send_cq, full as usize);
            assert_eq!(wr_ids(&found), Vec::from_iter(round * full..(round + 1) * full));
        }
        write(&mut pair, 0..full + 1)?;
        bed.settle();
        let event = pair.a.context.async_events().wait(Some(Duration::from_secs(10)))?;
        assert_eq!(event, Some(mlx5::AsyncEvent::CqError(pair.a.send_cq.id())));
        assert_eq!(bed.poll_good(&mut pair.a.send_cq, full as usize).len(), full as usize);
        assert_eq!(bed.poll_err(&mut pair.a.send_cq), PollError::Overrun);
    }
    Ok(())
}

fn a_queue_is_resized_where_its_counter_wraps(bed: &Bed) -> Outcome {
    // Each position of the wrap among the waiting completions.
    for before in 0..=12 {
        let start = (1 << 24) - before;
        let mut pair = bed.pair::<Rc>(&PairOptions::default().cq_entries(15).consumed(start))?;
        let mut next = 0;
        for entries in [31, 15, 63] {
            write(&mut pair, next..next + 10)?;
            bed.settle();
            pair.a.send_cq.resize(entries)?;
            write(&mut pair, next + 10..next + 14)?;
            let found = bed.poll_good(&mut pair.a.send_cq, 14);
            assert_eq!(wr_ids(&found), Vec::from_iter(next..next + 14), "{before} before");
            next += 14;
        }
    }
    Ok(())
}
