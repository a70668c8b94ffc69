//! Sleeps until a request completes.
//!
//! A completion queue with a channel can be armed: the next completion then makes the channel's
//! descriptor readable. The receiver of this example is a thread that blocks on the channel and
//! uses no processor time while it waits. An event loop would instead wait for this descriptor,
//! which `AsFd` returns, together with other descriptors: see the example `async_events`.
//!
//! A completion that came before the queue was armed causes no event. Therefore
//! `CompletionQueue::wait` arms the queue, checks it once more, and only then sleeps.
//!
//! Run it with `cargo run --example events`.

mod common;

use common::Done;
use common::one_way::{self, MESSAGES, Receiver};
use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Receives all messages; returns the number of waits.
fn receive(mut receiver: Receiver) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let (mut received, mut waits) = (0, 0);
    while received < MESSAGES {
        if !receiver.cq.wait(false, Some(Duration::from_secs(10)))? {
            return Err("nothing came for ten seconds".into());
        }
        waits += 1;
        received += receiver.drain()?;
    }
    Ok(waits)
}

fn main() -> ExitCode {
    common::start("A receiver that sleeps until a message has come.", run)
}

fn run() -> Done {
    let setup = common::open()?;
    let (_channel, receiver, mut sender) = one_way::connect(&setup)?;
    let receiver = thread::spawn(move || receive(receiver));
    for number in 1..=MESSAGES {
        // Gives the receiver time to fall asleep.
        thread::sleep(Duration::from_millis(20));
        sender.send(number)?;
    }
    let waits = receiver.join().map_err(|_| "the receiver panicked")?;
    println!("the receiver waited {} times", waits.map_err(|error| error.to_string())?);
    let mut done = 0;
    while done < MESSAGES {
        done += sender.done()?;
        thread::yield_now();
    }
    println!("{done} of {MESSAGES} sends succeeded");
    Ok(())
}
