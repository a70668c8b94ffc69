//! `mlx5 explain`: what an error of the kernel, the firmware or a program says, and what to do.

use crate::dump;
use crate::failure::Failure;
use crate::json::JsonArgs;
use std::io::Write;
use std::path::PathBuf;

/// `--help`.
pub(crate) const LONG_ABOUT: &str = "\
Explains error texts of mlx5 devices: the command that the firmware refused, with its
status and syndrome; the request that failed, with its syndrome, vendor code and
hardware syndrome. For each it says the cause, what to try and where that is known
from; of codes that the vendor has not published, it says how to report them.

The text is a line as it was printed, or a whole log: of the kernel, UCX, NCCL, DPDK,
libmlx5, perftest. It comes from the command line, from a file or from stdin. A number
alone is a syndrome of the firmware.

With --json: one object, whose items have a title, fields and notes.";

const EXAMPLES: &str = "\
Examples:
  mlx5 explain \"status bad parameter(0x3), syndrome (0x4bb88f)\"
  mlx5 explain 0x4bb88f
  mlx5 explain \"Local protection on mlx5_0:1/RoCE (synd 0x4 vend 0x51 hw_synd 0/2)\"
  dmesg | mlx5 explain";

/// Options of `mlx5 explain`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The text; `-` or nothing reads stdin
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    text: Vec<String>,
    /// Read the text from a file, or with `-` from stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let missing = Failure::usage("there is no text to explain")
        .hint("give it as arguments, with --file or on stdin");
    let text = dump::input(&args.text, args.file.as_deref(), missing)?;
    let explained = dump::explain(&text);
    if explained.is_empty() {
        let hint = "give the line as it was printed, with its codes; `mlx5 dump` takes bytes apart";
        return Err(Failure::new("no error of an mlx5 device is in this text").hint(hint));
    }
    dump::write("mlx5 explain", &explained, args.json, out)
}
