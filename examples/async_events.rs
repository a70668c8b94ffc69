//! Awaiting completions: the channel's descriptor in tokio's `AsyncFd`.
//!
//! The same as the `events` example, in a task instead of a thread: arm, poll once more, and only
//! then wait for the descriptor.
//!
//! Run it with `cargo run --example async_events`.

mod common;

use common::Done;
use common::async_channel::AsyncChannel;
use common::one_way::{self, MESSAGES, Receiver};
use std::error::Error;

/// Takes messages until all have come; gives how often it was woken.
async fn receive(
    mut receiver: Receiver,
    channel: AsyncChannel,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let (mut received, mut wakes) = (0, 0);
    while received < MESSAGES {
        let count = receiver.drain()?;
        received += count;
        if count > 0 {
            continue;
        }
        receiver.cq.arm(false)?;
        if !receiver.cq.is_ready() {
            channel.event().await?;
            wakes += 1;
        }
    }
    Ok(wakes)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let setup = common::open()?;
    let (channel, receiver, mut sender) = one_way::connect(&setup)?;
    let channel = AsyncChannel::new(channel)?;
    let sending = async {
        for number in 1..=MESSAGES {
            sender.send(number)?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let (wakes, sent) = tokio::join!(receive(receiver, channel), sending);
    sent?;
    println!("the receiver was woken {} times", wakes.map_err(|error| error.to_string())?);
    let mut done = 0;
    while done < MESSAGES {
        done += sender.done()?;
        tokio::task::yield_now().await;
    }
    println!("{done} sends are done");
    Ok(())
}
