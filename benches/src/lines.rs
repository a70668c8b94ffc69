//! Counts the cache lines that a post uses, from a trace of its reads and writes (valgrind's
//! lackey).

use crate::operations::post;
use crate::round::ROUND;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The case: it has enough queue pairs that each post of a round uses another one.
pub(crate) const CASE: &str = "post_inline8_on_100";

/// Prefix of the line with the operation's address, which is printed before the trace.
const FUNCTION: &str = "function ";

/// Prints the address of the operation; the rounds follow.
pub(crate) fn announce() {
    println!("{FUNCTION}{:x}", post::inline8 as *const () as usize);
}

/// The cache lines of one operation; true for a line of the register.
type Lines = HashMap<u64, bool>;

/// Average number of lines of a post.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Used {
    /// Lines that only some posts use: those of the queue pair.
    pub(crate) own: f64,
    /// The register's line, which is written in pieces of 16 bytes.
    pub(crate) register: f64,
    /// Lines that every post uses: stack and constants.
    pub(crate) common: f64,
}

/// Runs the case under lackey, and reads the trace.
pub(crate) fn measure() -> Result<Used, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=1"])
        .arg(program)
        .args(["traced", CASE])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("valgrind does not run ({error}); install it"))?;
    let out = valgrind.stdout.take().ok_or("no output of valgrind")?;
    let used = read(BufReader::with_capacity(1 << 20, out));
    let status = valgrind.wait().map_err(|error| error.to_string())?;
    match used {
        Some(used) if status.success() => Ok(used),
        _ => Err(format!("no trace of {CASE}: {status}")),
    }
}

/// Parses a trace. An operation begins at the function's first instruction and ends at the return
/// to its caller.
fn read(mut trace: impl BufRead) -> Option<Used> {
    let mut line = Vec::new();
    let (mut function, mut behind, mut back) = (None, 0, None);
    let mut now = Lines::new();
    let mut all: Vec<Lines> = Vec::new();
    loop {
        line.clear();
        if trace.read_until(b'\n', &mut line).ok()? == 0 {
            break;
        }
        let text = str::from_utf8(&line).unwrap_or("").trim_end();
        if let Some(address) = text.strip_prefix(FUNCTION) {
            function = u64::from_str_radix(address, 16).ok();
            continue;
        }
        let Some((kind, place)) = text.split_at_checked(3) else { continue };
        let Some((address, size)) = place.split_once(',') else { continue };
        let (Ok(address), Ok(size)) = (u64::from_str_radix(address, 16), size.parse::<u64>())
        else {
            continue;
        };
        match kind {
            "I  " => {
                if back.is_none() && Some(address) == function {
                    back = Some(behind);
                } else if back == Some(address) {
                    back = None;
                    all.push(std::mem::take(&mut now));
                }
                behind = address + size;
            }
            " L " | " S " | " M " if back.is_some() => {
                let is_register = kind != " L " && size == 16 && address % 4096 >= 2048;
                for number in address / 64..=(address + size - 1) / 64 {
                    *now.entry(number).or_default() |= is_register;
                }
            }
            _ => {}
        }
    }
    used(&all)
}

/// Average number of lines in the last round.
fn used(all: &[Lines]) -> Option<Used> {
    let round = all.split_at_checked(all.len().checked_sub(ROUND as usize)?)?.1;
    let is_common = |line| round.iter().all(|lines| lines.contains_key(line));
    let (mut own, mut register, mut common) = (0, 0, 0);
    for (line, is_register) in round.iter().flatten() {
        *match (is_common(line), is_register) {
            (true, _) => &mut common,
            (false, true) => &mut register,
            (false, false) => &mut own,
        } += 1;
    }
    let each = |count: i32| f64::from(count) / round.len() as f64;
    Some(Used { own: each(own), register: each(register), common: each(common) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_once_from_the_call_to_the_return() {
        let mut trace = String::from("==1== Lackey\nfunction 1000\nI  500,4\n S 77700,8\n");
        for post in 0..ROUND {
            let own = 0x10_0000 + post * 4096;
            trace += "I  600,5\nI  1000,3\n S 8000,8\n";
            trace += &format!(" L {own:x},8\n M {:x},4\n S {:x},8\n", own + 8, own + 60);
            trace += &format!("I  2000,3\n S {:x},16\n", own + 2048);
            trace += "I  605,5\n L 99900,8\n";
        }
        let used = read(trace.as_bytes()).expect("a round");
        // Two of the queue pair, because one write crosses a line's end.
        assert_eq!(used, Used { own: 2.0, register: 1.0, common: 1.0 });
    }

    #[test]
    fn less_than_a_round_is_not_readable() {
        assert_eq!(read(&b"function 1000\nI  600,5\nI  1000,3\nI  605,5\n"[..]), None);
    }
}
