//! Messages of the simulator on standard error, which several processes share: those of the
//! preloaded library, and the process that has their devices.

use std::fmt;
use std::io::{self, Write};

/// Writes one line to standard error: the program's name and a message.
///
/// The line is one write, so that processes that share standard error, as those of a test do,
/// cannot mix their lines.
pub fn say(program: &str, what: fmt::Arguments<'_>) {
    say_to(&mut io::stderr(), program, what);
}

/// A line that cannot be written is lost: there is no other place to report it.
fn say_to(out: &mut impl Write, program: &str, what: fmt::Arguments<'_>) {
    let _ = out.write_all(format!("{program}: {what}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores the bytes of each write.
    #[derive(Default)]
    struct Writes(Vec<String>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_write() {
        let mut writes = Writes::default();
        say_to(&mut writes, "program", format_args!("{} of {:?}", 1, [2, 3]));
        assert_eq!(writes.0, ["program: 1 of [2, 3]\n"]);
    }
}
