//! JSON, for programs: one option for it, and one key in every document.

use serde_json::Value;
use std::io::{self, Write};

/// The option of a command that writes text otherwise.
#[derive(clap::Args, Debug, Clone, Copy, Default)]
pub(crate) struct JsonArgs {
    /// Write JSON to stdout in place of the text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The object with the key that says whether its device is simulated: a program must not take it
/// for hardware.
pub(crate) fn of_device(mut object: Value, simulated: bool) -> Value {
    object["simulated"] = simulated.into();
    object
}

/// Writes a document.
pub(crate) fn write(out: &mut impl Write, document: &Value) -> io::Result<()> {
    writeln!(out, "{document:#}")
}
