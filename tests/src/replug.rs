//! A device that is removed and inserted again and again while a process has memory and queues on
//! it. The process continues, and its memory does not grow.
//!
//! Another program removes the device, once this process says that it holds objects.

use crate::failed::{Failed, Outcome};
use crate::options::find;
use mlx5::transport::Rc;
use mlx5::{Access, Context, ErrorKind};
use std::any::Any;
use std::time::{Duration, Instant};

/// Time limit for the device's removal, and for its return.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of memory in a round.
const BYTES: usize = 32 << 20;
/// The growth that the process may have from its first round to its last: much less than a round's
/// memory.
const GROWTH: usize = BYTES / 4;

/// Holds objects on a device for `rounds` rounds.
pub(crate) fn replug(device: &str, rounds: usize) -> Outcome {
    let mut after = Vec::new();
    for round in 1..=rounds {
        let (context, held) = hold(device)?;
        say(&format!("round {round} holds {} KiB", resident()? >> 10));
        wait_until_gone(&context)?;
        drop(held);
        let kept = context.leaked();
        drop(context);
        after.push(resident()?);
        say(&format!(
            "round {round} has let go: {kept} pieces were kept until the context closed, {} for good, \
             {} KiB are left",
            mlx5::leaked(),
            resident()? >> 10
        ));
    }
    if mlx5::leaked() != 0 {
        return Err(Failed::new("memory is kept for good"));
    }
    match (after.first(), after.last()) {
        (Some(first), Some(last)) if *last > first + GROWTH => {
            Err(Failed::new(format!("the process grew from {first} to {last} bytes")))
        }
        _ => Ok(()),
    }
}

/// Opens the device, once it is there, and makes one of each object that has memory.
fn hold(device: &str) -> Result<(Context, Vec<Box<dyn Any>>), Failed> {
    let start = Instant::now();
    let context = loop {
        match find(device).map(|found| found.device.open()) {
            Ok(Ok(context)) => break context,
            last if start.elapsed() > PATIENCE => {
                return Err(Failed::new(format!("it is not there: {last:?}")));
            }
            _ => std::thread::yield_now(),
        }
    };
    let pd = context.alloc_pd()?;
    let region = pd.memory(BYTES).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
    // Touches every page.
    for offset in (0..BYTES).step_by(4096) {
        region.write_at(offset, &[1])?;
    }
    let mut held: Vec<Box<dyn Any>> = vec![Box::new(region)];
    let cq = context.create_cq(4096).build()?;
    let srq = pd.create_srq(1024).build()?;
    for _ in 0..16 {
        held.push(Box::new(pd.create_qp::<Rc>(&cq, &cq).max_send_wr(1024).build()?));
        held.push(Box::new(pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?));
    }
    held.push(Box::new(srq));
    held.push(Box::new(cq));
    held.push(Box::new(pd));
    Ok((context, held))
}

fn wait_until_gone(context: &Context) -> Outcome {
    let events = context.async_events();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match events.wait(Some(PATIENCE)) {
            Ok(event) => println!("{event:?}"),
            Err(error) if error.kind() == ErrorKind::DeviceGone => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failed::new("the device was not taken away"))
}

/// Resident memory of the process, in bytes.
fn resident() -> Result<usize, Failed> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    Ok(pages.ok_or("statm has no resident pages")? * 4096)
}

/// Prints a line for the program that removes the device.
fn say(what: &str) {
    use std::io::Write;
    println!("{what}");
    let _ = std::io::stdout().flush();
}
