//! Faults of rdma-core's provider, with the answers of both sides.

/// A fault.
pub(super) struct Fault {
    /// The number is that of `docs/CANCEL.md`, if the fault is listed there.
    pub(super) name: &'static str,
    /// The effect, in a sentence.
    pub(super) about: &'static str,
    /// The commands of `peer/faults.c`; `N x` before commands joined by `+` repeats them.
    script: &'static str,
    pub(super) peer: &'static [&'static str],
    pub(super) ours: &'static [&'static str],
}

impl Fault {
    /// One command after the other.
    pub(super) fn commands(&self) -> Vec<String> {
        let mut commands = Vec::new();
        for part in self.script.split(',').map(str::trim) {
            let (times, list) = match part.split_once(" x ") {
                Some((times, list)) => (times.parse().expect("a number of times"), list),
                None => (1, part),
            };
            for _ in 0..times {
                commands.extend(list.split('+').map(|command| command.trim().to_owned()));
            }
        }
        commands
    }
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "c_provider_01_walks_behind_its_array_from_the_last_slot",
        about: "Two requests are pending, in the ring's last block and in its first; the second is \
                cancelled. An unreadable page follows the array of heads.",
        script: "guard 100, make 100 3, 255 x send 7 1 + complete, send 8 1, send 9 1, drained ff, \
                 target 100, cancel 9, look",
        peer: &["killed by a read behind the array"],
        ours: &["answer 1", "target cancelled; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_02_cancels_what_was_executed_once_the_ring_wrapped",
        about: "Sixteen requests with one identifier fill the ring and complete. The identifier is \
                cancelled when nothing is pending.",
        script: "make 10 3, 16 x send 7 1 + complete, drained 10, target 0, cancel 7, look",
        peer: &["answer 16", "target cancelled; 15 words changed elsewhere"],
        ours: &["answer 0", "target live; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_02_never_returns_when_sizes_are_mixed",
        about: "Requests of one and of two blocks wrap twice, and all complete. An identifier that \
                no request had is cancelled.",
        script: "make 10 4, 16 x send 7 1 + complete, 8 x send 7 4 + complete, \
                 3 x send 7 1 + complete, drained 23, target 0, cancel 999, look",
        peer: &["never returns; another post waits"],
        ours: &["answer 0", "target live; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_03_misses_a_request_after_a_reset",
        about: "Requests of one block complete, the queue pair is reset, and requests of two \
                blocks are pending. The second is cancelled.",
        script: "make 20 4, 8 x send 7 1, complete, reset, send 11 4, send 12 4, send 13 4, \
                 send 14 4, drained 0, target 2, cancel 12, look",
        peer: &["answer 0", "target live; 0 words changed elsewhere"],
        ours: &["answer 1", "target cancelled; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_03_rewrites_data_after_a_reset",
        about: "The same; an identifier from before the reset is cancelled. The changed word is in \
                the middle of a pending request.",
        script: "make 20 4, send 1 1, send 2 1, send 3 1, send 4 1, complete, reset, send 11 4, \
                 send 12 4, drained 0, target 0, cancel 2, look",
        peer: &["answer 1", "target live; 1 words changed elsewhere"],
        ours: &["answer 0", "target live; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_04_misses_a_request_after_an_abort",
        about: "A batch of requests of one block is aborted, and requests of two blocks are \
                pending. The second is cancelled.",
        script: "make 20 4, abort 8 1, send 11 4, send 12 4, send 13 4, send 14 4, drained 0, \
                 target 2, cancel 12, look",
        peer: &["answer 0", "target live; 0 words changed elsewhere"],
        ours: &["answer 1", "target cancelled; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_05_fails_to_cancel_again",
        about: "A request is cancelled twice.",
        script: "make 10 3, send 1 1, send 2 1, drained 0, target 1, cancel 2, cancel 2, look",
        peer: &["answer 1", "answer -22", "target cancelled; 0 words changed elsewhere"],
        ours: &["answer 1", "answer 0", "target cancelled; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_05_leaves_what_was_posted_again",
        about: "A request is cancelled, posted again with its identifier, and cancelled again.",
        script: "make 10 3, send 1 1, send 2 1, drained 0, cancel 2, send 2 1, target 2, cancel 2, \
                 look",
        peer: &["answer 1", "answer -22", "target live; 0 words changed elsewhere"],
        ours: &["answer 1", "answer 1", "target cancelled; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_08_counts_unposted_requests",
        about: "A request of three WQEs, which configures a key signed in both domains, is \
                cancelled.",
        script: "make 40 8, configure 5, drained 0, target 0, cancel 5, look",
        peer: &["answer 3", "target cancelled; 2 words changed elsewhere"],
        ours: &["answer 1", "target cancelled; 2 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_09_keeps_the_key_of_a_binding_that_was_cancelled",
        about: "A request that binds a type 1 window is cancelled: the device keeps the old key.",
        script: "make 40 8, window 5, drained 0, cancel 5, window-key",
        peer: &["answer 1", "window key new"],
        ours: &["answer 1", "window key old"],
    },
    Fault {
        name: "c_provider_10_leaves_a_wrong_signature",
        about: "Requests are signed (`MLX5_QP_SIGNATURE`); one is cancelled.",
        script: "signatures, make 10 3, send 1 1, send 2 1, drained 0, target 1, signature, \
                 cancel 2, signature",
        peer: &["signature right", "answer 1", "signature wrong"],
        ours: &["signature right", "answer 1", "signature right"],
    },
    Fault {
        name: "c_provider_12_holds_its_lock_while_the_firmware_is_asked",
        about: "Another thread posts while the firmware is queried whether the queue is drained.",
        script: "make 10 3, send 1 1, drained 0, post-meanwhile 9, cancel 1",
        peer: &["meanwhile waits", "answer 1"],
        ours: &["meanwhile posted", "answer 1"],
    },
    Fault {
        name: "c_provider_13_asks_for_each_identifier",
        about: "Three requests are cancelled.",
        script: "make 10 3, send 1 1, send 2 1, send 3 1, drained 0, cancel 1, cancel 2, cancel 3, \
                 questions",
        peer: &["answer 1", "answer 1", "answer 1", "questions 3"],
        ours: &["answer 1", "answer 1", "answer 1", "questions 1"],
    },
    Fault {
        name: "c_provider_overwrites_a_request_in_flight_when_the_queue_is_full",
        about: "A batch on a full queue is refused; the ring is compared.",
        script: "make 10 3, 16 x send 7 1, target f, batch 3, look",
        peer: &["batch refused", "target live; 9 words changed elsewhere"],
        ours: &["batch refused", "target live; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_is_killed_by_a_batch_on_a_queue_that_lists_filled",
        about: "The same on a queue that only `ibv_post_send` has filled, without any batch.",
        script: "make 10 3, 16 x list 7, target f, batch 3, look",
        peer: &["killed"],
        ours: &["batch refused", "target live; 0 words changed elsewhere"],
    },
    Fault {
        name: "c_provider_posts_raw_requests_over_those_in_flight",
        about: "Four raw requests of sixteen blocks fill a ring of 64; a fifth is posted.",
        script: "make 40 8, 4 x raw 3f, target 0, raw 3f, look",
        peer: &[
            "raw posted",
            "raw posted",
            "raw posted",
            "raw posted",
            "raw posted",
            "target gone; 248 words changed elsewhere",
        ],
        ours: &[
            "raw posted",
            "raw posted",
            "raw posted",
            "raw posted",
            "raw refused",
            "target live; 0 words changed elsewhere",
        ],
    },
    Fault {
        name: "c_provider_cuts_the_lengths_of_an_interleaved_layout",
        about: "An interleaved layout gets an entry of 65,552 bytes; the field has 16 bits.",
        script: "make 40 8, interleaved 10010",
        peer: &["interleaved 10"],
        ours: &["interleaved refused"],
    },
    Fault {
        name: "c_provider_forgets_a_signature_error_when_another_comes",
        about: "Two bad signatures are found, at bytes 0x200 and 0x400; then the key is checked \
                twice.",
        script: "make 40 8, configure 5, errors",
        peer: &["errors 400 none"],
        ours: &["errors 200 400"],
    },
];

/// Faults for which this driver's answer through the C API is another one, and the reason.
pub(super) const AT_DOOR: &[(&str, &[&str], &str)] = &[(
    "c_provider_13_asks_for_each_identifier",
    &["answer 1", "answer 1", "answer 1", "questions 3"],
    "A call of the C API has one identifier, and each call has to ask: between two of them the \
         program may have changed the state by a firmware command of its own.",
)];
