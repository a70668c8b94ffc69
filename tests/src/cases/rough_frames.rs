//! Frames that are too short, too long, or have headers with false lengths; and receive buffers
//! that are missing or too small.

use crate::frames::{ETHERNET, Flow, plain};
use crate::prelude::*;

pub(crate) const CASES: &[Case] = cases![
    frames_without_a_receive_are_dropped_and_counted_and_nothing_stalls: RAW_PACKETS,
    a_frame_longer_than_its_buffer_is_an_error_of_that_receive_alone: RAW_PACKETS,
    a_frame_shorter_than_its_header_is_an_error_of_the_request: RAW_PACKETS,
    a_frame_longer_than_the_port_allows_is_not_sent: RAW_PACKETS,
    headers_that_lie_about_lengths_do_no_harm: RAW_PACKETS,
    a_frame_cut_anywhere_is_received_as_it_is: RAW_PACKETS,
    lost_frames_are_not_sent_again: RAW_PACKETS | SIMULATOR,
];

fn frames_without_a_receive_are_dropped_and_counted_and_nothing_stalls(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule } = bed.stations()?;
    drop(rule);
    let counters = b.context.create_flow_counters()?;
    let _rule = b.qp.attach(b.port, &to_group().count(&counters))?;
    let dropped = || match bed.is_simulated() {
        true => bed.simulator().fabric().lock().device(0).frame_counts().out_of_buffer,
        false => 0,
    };
    b.recv(3);
    for length in 60..80 {
        a.send(bed, &plain(length));
    }
    for length in 60..63 {
        assert_eq!(b.next(bed).frame, plain(length));
    }
    b.hears_nothing(bed);
    assert_eq!(counters.read()?.packets, 20, "the rule took all");
    if bed.is_simulated() {
        assert_eq!(dropped(), 17);
    }
    // Reception continues with the next frame.
    b.recv(1);
    a.send(bed, &plain(99));
    assert_eq!(b.next(bed).frame, plain(99));
    Ok(())
}

fn a_frame_longer_than_its_buffer_is_an_error_of_that_receive_alone(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    b.recv_short(1, 99);
    b.recv_short(1, 100);
    b.recv(1);
    for _ in 0..3 {
        a.send(bed, &plain(100));
    }
    let completions = bed.poll(&mut b.recv_cq, 3);
    assert_eq!(wr_ids(&completions), [0, 1, 2]);
    assert_eq!(syndrome(&completions[0]), Some(Syndrome::LocalLength));
    for completion in &completions[1..] {
        assert_eq!(b.received(*completion).frame, plain(100));
    }
    untouched(&b.memory, b.slot(0)..b.slot(0) + SLOT);
    Ok(())
}

fn a_frame_shorter_than_its_header_is_an_error_of_the_request(bed: &Bed) -> Outcome {
    for length in [1, ETHERNET - 1] {
        let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
        b.recv(1);
        let sge = a.at(0, &plain(60)[..length]);
        a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().sge(sge))?;
        let failed = syndrome(&bed.poll_one(&mut a.send_cq));
        assert_eq!(failed, Some(Syndrome::LocalQpOperation), "{length} bytes");
        b.hears_nothing(bed);
    }
    Ok(())
}

fn a_frame_longer_than_the_port_allows_is_not_sent(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    b.recv_short(2, SLOT);
    // Longer than a jumbo frame.
    let long = plain(20_000);
    a.send(bed, &long);
    b.hears_nothing(bed);
    a.send(bed, &plain(60));
    assert_eq!(b.next(bed).frame, plain(60));
    Ok(())
}

fn headers_that_lie_about_lengths_do_no_harm(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    for flow in [Flow::UDP4, Flow::TCP4, Flow::UDP6, Flow::TCP6] {
        let good = flow.frame(&[5; 64]);
        let length = if flow.six { ETHERNET + 4 } else { ETHERNET + 2 };
        let transport = if flow.six { ETHERNET + 40 } else { ETHERNET + 20 };
        for (at, lie) in [
            (length, [0xff, 0xff]),
            (length, [0, 0]),
            (length, [0, 21]),
            (ETHERNET, [0x4f, 0]),
            (ETHERNET, [0x41, 0]),
            (transport + 4, [0xff, 0xff]),
            (transport + 4, [0, 0]),
            (transport + 12, [0xf0, 0]),
            (transport + 12, [0x10, 0]),
        ] {
            let mut frame = good.clone();
            frame[at..at + 2].copy_from_slice(&lie);
            for flags in [SendFlags::empty(), SendFlags::IP_CSUM] {
                b.recv(1);
                a.send_with(bed, &frame, flags);
                let received = b.next(bed);
                assert_eq!(received.frame.len(), frame.len());
                if flags.is_empty() {
                    assert_eq!(received.frame, frame);
                    let whole = received.completion().checksum_ok();
                    assert_eq!(whole, Some(false), "{flow:?} with {lie:?} at {at}");
                }
            }
        }
    }
    Ok(())
}

fn a_frame_cut_anywhere_is_received_as_it_is(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    for flow in [Flow::UDP4, Flow::TCP6] {
        let whole = flow.frame(&[6; 30]);
        for length in ETHERNET..whole.len() {
            b.recv(1);
            a.send_with(bed, &whole[..length], SendFlags::IP_CSUM);
            let received = b.next(bed);
            assert_eq!(received.frame.len().max(60), length.max(60));
            assert_eq!(received.completion().checksum_ok(), Some(false), "{length} bytes");
        }
    }
    Ok(())
}

fn lost_frames_are_not_sent_again(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    b.recv(2);
    bed.simulator().inject(0, Fault::DropPackets(1));
    a.send(bed, &plain(60));
    b.hears_nothing(bed);
    a.send(bed, &plain(61));
    assert_eq!(b.next(bed).frame, plain(61));
    Ok(())
}
