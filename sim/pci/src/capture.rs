//! The Ethernet frames on the wire, in a file that tcpdump reads.

use std::io::{self, BufWriter, Write};

/// Times are in nanoseconds. The format is that of `pcap-savefile(5)`.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// The longest frame that is written; the wire has no longer ones.
const LONGEST: u32 = 1 << 16;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;
/// Bytes before each frame.
const HEAD: u64 = 16;

/// Writes frames to a file, up to a size.
#[derive(Debug)]
pub struct Capture<W: Write> {
    out: BufWriter<W>,
    left: u64,
}

impl<W: Write> Capture<W> {
    /// Begins a file of at most `most` bytes of frames.
    pub fn new(out: W, most: u64) -> io::Result<Self> {
        let mut out = BufWriter::new(out);
        out.write_all(&MAGIC.to_le_bytes())?;
        for number in VERSION {
            out.write_all(&number.to_le_bytes())?;
        }
        // The zone of the times and their accuracy, which writers leave zero.
        out.write_all(&[0; 8])?;
        for number in [LONGEST, ETHERNET] {
            out.write_all(&number.to_le_bytes())?;
        }
        out.flush()?;
        Ok(Self { out, left: most })
    }

    /// Writes a frame. After the first frame that does not fit or cannot be written, it writes no
    /// more: a capture has no gaps.
    pub fn frame(&mut self, now_ns: u64, frame: &[u8]) {
        let bytes = HEAD + frame.len() as u64;
        self.left = match self.left.checked_sub(bytes) {
            Some(left) if self.write(now_ns, frame).is_ok() => left,
            _ => 0,
        };
    }

    fn write(&mut self, now_ns: u64, frame: &[u8]) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        let length = frame.len() as u32;
        for number in [(now_ns / SECOND) as u32, (now_ns % SECOND) as u32, length, length] {
            self.out.write_all(&number.to_le_bytes())?;
        }
        self.out.write_all(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_a_header_and_frames_with_their_times() {
        let mut file = Vec::new();
        let mut capture = Capture::new(&mut file, 1000).expect("a file");
        capture.frame(3_000_000_007, &[0xab; 60]);
        drop(capture);
        let head =
            [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
        assert_eq!(file[..24], head);
        assert_eq!(file[24..40], [3, 0, 0, 0, 7, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
        assert_eq!(file[40..], [0xab; 60]);
    }

    #[test]
    fn behind_the_first_frame_without_room_there_is_none() {
        let mut file = Vec::new();
        let mut capture = Capture::new(&mut file, 200).expect("a file");
        for length in [60, 120, 120, 14] {
            capture.frame(0, &vec![1; length]);
        }
        drop(capture);
        assert_eq!(file.len(), 24 + 16 + 60);
    }
}
