//! `mlx5 cancel`.

mod block;
mod ring;
mod scene;

use crate::device::{Opened, PortArgs};
use crate::failure::Failure;
use crate::json::{self, JsonArgs};
use crate::numbers::count;
use crate::table::{Align, Table};
use block::Part;
use mlx5::CancelMode;
use mlx5::mkey::{SignatureCaps, SignatureErrorKind};
use scene::{Came, Scene, failure, response};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Shows step by step how posted work requests are cancelled, and why.

A storage target answers reads with RDMA writes of signed blocks (T10-DIF, stripped
on the wire), followed by fenced responses. One block is corrupt. The device finds
the bad signature while it sends, after the response was posted; it drains the send
queue and reports SQ_DRAINED. The target polls, checks the memory keys for the failed
transfer, cancels its response, posts one that says \"failed\", and resumes the queue.
The command shows the send ring before and after, the completions, and what the
initiator received. With --json: one object with all of it, written at the end.

Target and initiator are two queue pairs on one port, in this process. It takes a
device that can drain a send queue on a signature error (ConnectX-6 Dx or later,
Linux 5.13, DEVX), or a simulated one of these models.";

const EXAMPLES: &str = "\
Examples:
  mlx5 cancel                              4 transfers of 2 blocks, the 2nd is corrupt
  mlx5 cancel --transfers 6 --corrupt 2,5  two fail, in one drain
  mlx5 cancel --corrupt 2,3 --interleaved  each drains the queue, one after the other
  mlx5 cancel --blocks 8 --corrupt 1:5 --part reference-tag
  mlx5 cancel --sim                        use the simulated device";

/// Options of `mlx5 cancel`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Number of transfers
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 4,
          value_parser = count::<u16>(1, 16))]
    transfers: u16,
    /// Blocks per transfer
    #[arg(short, long, value_name = "COUNT", default_value_t = 2,
          value_parser = count::<u16>(1, 8))]
    blocks: u16,
    /// Corrupt transfers, and the block if not the last; from 1 [default: 2]
    #[arg(short, long, value_name = "TRANSFER[:BLOCK]", value_delimiter = ',',
          value_parser = parse_corrupt)]
    corrupt: Vec<Corrupt>,
    /// Part of the block to corrupt
    #[arg(long, value_enum, default_value_t = Part::Data)]
    part: Part,
    /// Post each response behind its own transfer, instead of all responses at the end
    #[arg(short, long)]
    interleaved: bool,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    port: PortArgs,
}

/// A corrupt block, as given on the command line.
#[derive(Clone, Copy, Debug)]
struct Corrupt {
    transfer: u16,
    block: Option<u16>,
}

fn parse_corrupt(text: &str) -> Result<Corrupt, String> {
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("{text:?} is not a number: write 3, or 3:1 for its first block"))
    };
    let (transfer, block) = match text.split_once(':') {
        Some((transfer, block)) => (transfer, Some(number(block)?)),
        None => (text, None),
    };
    Ok(Corrupt { transfer: number(transfer)?, block })
}

/// A corrupt block; both numbers count from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Bad {
    transfer: u16,
    block: u16,
}

impl Args {
    fn bad(&self) -> Result<BTreeSet<Bad>, Failure> {
        if self.corrupt.is_empty() {
            return Ok([Bad { transfer: self.transfers.min(2), block: self.blocks }].into());
        }
        let find = |corrupt: &Corrupt| {
            let bad =
                Bad { transfer: corrupt.transfer, block: corrupt.block.unwrap_or(self.blocks) };
            let missing = match bad {
                Bad { transfer, .. } if !(1..=self.transfers).contains(&transfer) => {
                    format!("transfer {transfer}: they are 1 to {}", self.transfers)
                }
                Bad { block, .. } if !(1..=self.blocks).contains(&block) => {
                    format!("block {block}: they are 1 to {}", self.blocks)
                }
                _ => return Ok(bad),
            };
            Err(Failure::usage(format!("--corrupt: there is no {missing}"))
                .hint("--transfers and --blocks say how many there are"))
        };
        self.corrupt.iter().map(find).collect()
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let bad = args.bad()?;
    let port = args.port.open()?;
    check(&port.opened)?;
    let mut scene = Scene::new(&port, args)?;
    // JSON has the same facts as the text, and is written at the end.
    let reported = match args.json.json {
        true => tell(&mut scene, args, &bad, &mut io::sink()),
        false => tell(&mut scene, args, &bad, out),
    };
    let mut document = reported.map_err(|failure| port.opened.because(failure))?;
    if args.json.json {
        document["device"] = port.opened.device.name().into();
        json::write(out, &json::of_device(document, port.opened.simulator.is_some()))?;
    }
    Ok(())
}

/// Fails on a device without the needed capabilities.
fn check(opened: &Opened) -> Result<(), Failure> {
    let name = opened.device.name();
    let caps = opened.context.signature_caps().map_err(|error| {
        Failure::from(error).during(format!("query of {name}'s signature capabilities"))
    })?;
    able(name, caps)
}

fn able(name: &str, caps: SignatureCaps) -> Result<(), Failure> {
    let missing = if !caps.contains(SignatureCaps::BLOCKS) {
        "does not support signed memory keys"
    } else if !caps.contains(SignatureCaps::PIPELINING) {
        "cannot drain a send queue on a signature error: it requires Linux 5.13 and ConnectX-6 Dx \
         or later"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("{name} {missing}"))
        .hint("`mlx5 cancel --sim-model cx7` shows it on a simulated ConnectX-7"))
}

fn tell(
    scene: &mut Scene,
    args: &Args,
    bad: &BTreeSet<Bad>,
    out: &mut impl Write,
) -> Result<Value, Failure> {
    scene.store(bad, args.part)?;
    let each = if args.interleaved { "each behind its own transfer" } else { "behind all of them" };
    writeln!(
        out,
        "Posted, with one doorbell: {} transfers, RDMA WRITEs of {} signed blocks through a key\n\
         (wr_id 1 to {0}), and, {each}, the responses, SEND with FENCE (wr_id {} to {}).",
        args.transfers,
        args.blocks,
        response(1),
        response(args.transfers)
    )?;
    for Bad { transfer, block } in bad {
        let part = args.part.name();
        writeln!(out, "Corrupt in memory: the {part} of transfer {transfer}, block {block}.")?;
    }
    scene.post(args.interleaved)?;
    scene.wait_drained()?;
    let mut drains = Vec::new();
    loop {
        drains.push(recover(scene, args, out)?);
        if scene.go_on()? == Came::Done {
            break;
        }
    }
    writeln!(out, "\nCompletions at the target:")?;
    show_completions(scene, out)?;
    writeln!(out, "\nResponses at the initiator, as they came:")?;
    let responses = scene.responses()?;
    for text in &responses {
        writeln!(out, "   {text:?}")?;
    }
    writeln!(out, "\nData at the initiator, without signatures:")?;
    let mut data = Vec::new();
    for transfer in 1..=args.transfers {
        let wrong = scene.wrong(transfer)?;
        data.push(json!({ "transfer": transfer, "wrong_blocks": wrong }));
        let what = match wrong[..] {
            [] => "as it was stored".to_owned(),
            _ => format!("not what was stored, in block {}", list(&wrong)),
        };
        writeln!(out, "   transfer {transfer}: {what}")?;
    }
    let corrupt = |bad: &Bad| json!({ "transfer": bad.transfer, "block": bad.block });
    let completion = |reported: &scene::Reported| {
        json!({
            "wr_id": reported.wr_id,
            "opcode": reported.opcode,
            "status": reported.status,
            "cancelled": reported.cancelled,
        })
    };
    Ok(json!({
        "command": "mlx5 cancel",
        "transfers": args.transfers,
        "blocks": args.blocks,
        "corrupt": bad.iter().map(corrupt).collect::<Vec<_>>(),
        "part": args.part.name(),
        "drains": drains,
        "completions": scene.reported.iter().map(completion).collect::<Vec<_>>(),
        "responses": responses,
        "data": data,
    }))
}

/// Handles a drained queue: poll, check the keys, cancel, resume. Returns the JSON of these steps.
fn recover(scene: &mut Scene, args: &Args, out: &mut impl Write) -> Result<Value, Failure> {
    let drained = scene.qp.drained()?;
    writeln!(
        out,
        "\nSQ_DRAINED: the device stopped at block {} of the send ring.",
        drained.block()
    )?;
    let before = ring::show(out, &scene.qp, &drained, &scene.posted)?;

    let polled = scene.poll()?;
    writeln!(out, "\nStep 1, poll; requests that have completed since: {polled}. Completions do")?;
    writeln!(out, "   not report the bad block; the keys do.")?;

    writeln!(out, "\nStep 2, check the keys:")?;
    let (failed, errors) = ask(scene, args, out)?;

    let wr_ids: Vec<u64> = failed.iter().map(|transfer| response(*transfer)).collect();
    writeln!(out, "\nStep 3, cancel the response of what failed, wr_id {}:", list(&wr_ids))?;
    let cancelled = scene.qp.cancel_set(&drained, &wr_ids, CancelMode::AllOrNothing)?;
    let ids: Vec<u64> = cancelled.requests().iter().map(|request| request.wr_id).collect();
    writeln!(out, "   {} cancelled: {}", cancelled.count(), list(&ids))?;
    scene.post_failures(&failed)?;
    for transfer in &failed {
        let wr_id = failure(*transfer);
        writeln!(out, "   posted instead: wr_id {wr_id}, \"transfer {transfer} failed\"")?;
    }
    let after = ring::show(out, &scene.qp, &drained, &scene.posted)?;

    writeln!(out, "\nStep 4, resume: the queue resumes, in RTS.")?;
    scene.qp.resume()?;
    let posted: Vec<u64> = failed.iter().map(|transfer| failure(*transfer)).collect();
    Ok(json!({
        "block": drained.block(),
        "ring": before,
        "polled": polled,
        "signature_errors": errors,
        "cancelled": ids,
        "posted": posted,
        "ring_after": after,
    }))
}

/// Checks each key. Returns the transfers that failed, each with its failure.
fn ask(
    scene: &Scene,
    args: &Args,
    out: &mut impl Write,
) -> Result<(Vec<u16>, Vec<Value>), Failure> {
    let mut table = Table::new(&[
        ("transfer", Align::Right),
        ("key", Align::Left),
        ("kind", Align::Left),
        ("expected", Align::Left),
        ("actual", Align::Left),
        ("offset", Align::Left),
    ]);
    let (mut failed, mut errors) = (Vec::new(), Vec::new());
    for (transfer, key) in (1..=args.transfers).zip(&scene.keys) {
        let head = [transfer.to_string(), format!("{:#x}", key.lkey())];
        let Some(error) = key.check()? else {
            table.row(head.into_iter().chain(["no error".to_owned()]));
            continue;
        };
        failed.push(transfer);
        let kind = match error.kind {
            SignatureErrorKind::Guard => "guard".to_owned(),
            SignatureErrorKind::ReferenceTag => "reference tag".to_owned(),
            SignatureErrorKind::ApplicationTag => "application tag".to_owned(),
            SignatureErrorKind::Unchecked => "not checked".to_owned(),
            SignatureErrorKind::Lost => "not kept".to_owned(),
            SignatureErrorKind::Other(code) => format!("code {code:#x}"),
            _ => "unknown".to_owned(),
        };
        let number = error.offset / block::SIGNED as u64 + 1;
        errors.push(json!({
            "transfer": transfer,
            "key": key.lkey(),
            "kind": kind,
            "expected": error.expected,
            "actual": error.actual,
            "offset": error.offset,
            "block": number,
        }));
        table.row(head.into_iter().chain([
            kind,
            format!("{:#x}", error.expected),
            format!("{:#x}", error.actual),
            format!("{}, block {number}", error.offset),
        ]));
    }
    table.write(out, 3)?;
    if failed.is_empty() {
        return Err(Failure::new("the send queue drained, but no key has a signature error")
            .hint("`mlx5 cancel --sim` shows what should happen"));
    }
    Ok((failed, errors))
}

fn show_completions(scene: &Scene, out: &mut impl Write) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("wr_id", Align::Right),
        ("posted as", Align::Left),
        ("status", Align::Left),
        ("", Align::Left),
    ]);
    for reported in &scene.reported {
        let cancelled = if reported.cancelled { "cancelled" } else { "" };
        table.row([
            reported.wr_id.to_string(),
            reported.opcode.clone(),
            reported.status.clone(),
            cancelled.to_owned(),
        ]);
    }
    Ok(table.write(out, 3)?)
}

/// Numbers with commas between them.
fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_play_is_told_what_it_lacks() {
        let all = SignatureCaps::BLOCKS | SignatureCaps::PIPELINING;
        assert!(able("mlx5_7", all).is_ok());
        for (caps, lacks) in [
            (SignatureCaps::PIPELINING, "not support signed memory keys"),
            (SignatureCaps::BLOCKS, "ConnectX-6 Dx"),
        ] {
            let failure = able("mlx5_7", caps).expect_err("something is missing");
            assert!(failure.cause().starts_with("mlx5_7 "), "{failure:?}");
            assert!(failure.cause().contains(lacks), "{failure:?}");
        }
    }
}
