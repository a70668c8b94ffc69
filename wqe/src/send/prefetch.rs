//! Loading what the next post on a queue uses.

use crate::request::transport::Transport;
use crate::send::queue::SendQueue;
use core::ptr::NonNull;

impl<T: Transport> SendQueue<T> {
    /// Starts loading what the next post uses into the first-level cache. Does nothing else.
    ///
    /// Called a few posts ahead, for a queue among thousands: none of it is in a cache then.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.next_lines().into_iter().for_each(line);
    }

    /// What the next post uses besides the queue itself: the next block of the ring, its record, the
    /// doorbell record, and the counter that the poller reads.
    #[inline(always)]
    fn next_lines(&self) -> [NonNull<u8>; 4] {
        [
            self.at(self.head),
            self.slots.at(self.mask, self.sequence),
            self.record.as_non_null(),
            self.records().committed_line(),
        ]
    }
}

/// Starts loading the cache line at an address, to be written. Never faults, whatever is there.
#[inline(always)]
fn line(at: NonNull<u8>) {
    let at = at.as_ptr();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is of the x86-64 baseline; it accesses nothing that the program can see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use crate::send::records::Slots;
    use crate::{Gate, QueueState, Rc, SendFlags, SendLayout, SendParts, SendQueue, SendRecords};
    use core::ptr::NonNull;
    use mlx5_doorbell::{QueuePairRecord, SendRegister};

    #[repr(align(64))]
    struct Aligned([u8; 8 * 64]);

    #[test]
    fn what_the_next_post_writes_is_loaded() {
        let layout = SendLayout::new::<Rc>(8, 1, 0).unwrap();
        let records = SendRecords::new(layout.blocks);
        let mut memory = [Aligned([0; 512]), Aligned([0; 512]), Aligned([0; 512])];
        let [ring, uar, words] =
            memory.each_mut().map(|part| NonNull::from(&mut part.0).cast::<u8>());
        // SAFETY: each pointer is to its own aligned part of the memory, which outlives the queue.
        let mut queue = unsafe {
            let gate = Gate::new(words.byte_add(64).cast());
            gate.set_state(QueueState::ReadyToSend);
            SendQueue::<Rc>::new(SendParts {
                ring,
                layout,
                qpn: 1,
                max_message: 1 << 30,
                signal_all: true,
                atomics: true,
                gate,
                record: QueuePairRecord::new(words),
                register: SendRegister::doorbell(uar),
                records: NonNull::from(&records),
            })
        };
        let Slots(first) = records.slots();
        // More than a lap: the last place is followed by the first.
        for post in 0..11_usize {
            queue.prefetch();
            let [block, record, doorbell, _] = queue.next_lines();
            let place = post % 8;
            // SAFETY: a block of the ring.
            let next = unsafe { ring.byte_add(64 * place) };
            assert_eq!((block, doorbell), (next, words));
            // Sixteen bytes each.
            assert_eq!(record.addr().get(), first.addr().get() + 16 * place);
            // SAFETY: as above; nobody else uses it.
            let before: [u8; 64] = unsafe { next.cast().read() };
            let mut batch = queue.wr_start();
            batch.wr(post as u64, SendFlags::empty()).send().inline_data(b"x");
            batch.complete().unwrap();
            // SAFETY: as above.
            let after: [u8; 64] = unsafe { next.cast().read() };
            assert_ne!(before, after);
            records.retire(post as u16).unwrap();
        }
    }
}
