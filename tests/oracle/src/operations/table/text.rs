//! Requests in the form of the script.

use std::fmt;

use mlx5::mkey::{BlockSize, Crc, Domain, Escape, Guard, Interleaved, Seed, Signature};
use mlx5::{RemoteAddress, Sge};

use super::request::{BadSignature, Layout, Line, Operation, Signing};

impl fmt::Display for BadSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sigerr {:x} ", self.key)?;
        hex(f, &self.entry)
    }
}

fn sges(f: &mut fmt::Formatter<'_>, list: &[Sge]) -> fmt::Result {
    write!(f, "{:x}", list.len())?;
    list.iter()
        .try_for_each(|Sge { addr, length, lkey }| write!(f, " {addr:x} {length:x} {lkey:x}"))
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn domain(f: &mut fmt::Formatter<'_>, domain: Option<Domain>) -> fmt::Result {
    let Some(Domain { signature, block_size }) = domain else { return f.write_str(" -") };
    match signature {
        Signature::T10Dif(dif) => {
            let guard = if dif.guard == Guard::Crc { 0 } else { 1 };
            let seed = if dif.seed == Seed::Ones { 0xffff } else { 0 };
            let flags = u8::from(dif.increment_reference_tag)
                | match dif.escape {
                    Escape::None => 0,
                    Escape::ApplicationTag => 2,
                    Escape::ApplicationAndReferenceTag => 4,
                };
            let (app, reference) = (dif.application_tag, dif.reference_tag);
            write!(f, " dif {guard} {seed:x} {app:x} {reference:x} {flags:x}")?;
        }
        Signature::Crc(crc) => {
            let (kind, seed, ones) = match crc {
                Crc::Crc32(seed) => (0, seed, u64::from(u32::MAX)),
                Crc::Crc32c(seed) => (1, seed, u64::from(u32::MAX)),
                Crc::Crc64Xp10(seed) => (2, seed, u64::MAX),
            };
            write!(f, " crc {kind} {:x}", if seed == Seed::Ones { ones } else { 0 })?;
        }
    }
    let size = match block_size {
        BlockSize::B512 => 0,
        BlockSize::B520 => 1,
        BlockSize::B4048 => 2,
        BlockSize::B4096 => 3,
        BlockSize::B4160 => 4,
    };
    write!(f, " {size}")
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configure { key, access, layout, signing } => {
                write!(f, "mkey {key:x} {}", u8::from(matches!(signing, Signing::Reset)))?;
                match access {
                    None => f.write_str(" -")?,
                    Some(bits) => write!(f, " {bits:x}")?,
                }
                match layout {
                    Layout::Keep => f.write_str(" -")?,
                    Layout::List(list) => {
                        f.write_str(" list ")?;
                        sges(f, list)?;
                    }
                    Layout::Turns(repeat, turns) => {
                        write!(f, " turns {repeat:x} {:x}", turns.len())?;
                        for Interleaved { addr, bytes, skip, lkey } in turns {
                            write!(f, " {addr:x} {bytes:x} {skip:x} {lkey:x}")?;
                        }
                    }
                }
                let Signing::Set(block) = signing else { return f.write_str(" -") };
                write!(f, " sig {:x}", block.check.bits())?;
                match block.copy {
                    None => f.write_str(" -")?,
                    Some(copy) => write!(f, " {:x}", copy.bits())?,
                }
                domain(f, block.memory)?;
                domain(f, block.wire)
            }
            Self::Send(list) => {
                f.write_str("send ")?;
                sges(f, list)
            }
            Self::SendInvalidate(rkey, list) => {
                write!(f, "send_inv {rkey:x} ")?;
                sges(f, list)
            }
            Self::CompareSwap { remote, compare, swap, to } => {
                let RemoteAddress { addr, rkey } = remote;
                write!(f, "cs {addr:x} {rkey:x} {compare:x} {swap:x} ")?;
                sges(f, to)
            }
            Self::FetchAdd { remote, add, to } => {
                let RemoteAddress { addr, rkey } = remote;
                write!(f, "fa {addr:x} {rkey:x} {add:x} ")?;
                sges(f, to)
            }
            Self::SendImm(immediate, list) => {
                write!(f, "send_imm {immediate:x} ")?;
                sges(f, list)
            }
            Self::SendInline(bytes) => {
                f.write_str("send_inline ")?;
                hex(f, bytes)
            }
            Self::Write(RemoteAddress { addr, rkey }, list) => {
                write!(f, "write {addr:x} {rkey:x} ")?;
                sges(f, list)
            }
            Self::WriteImm(RemoteAddress { addr, rkey }, immediate, list) => {
                write!(f, "write_imm {addr:x} {rkey:x} {immediate:x} ")?;
                sges(f, list)
            }
            Self::Read(RemoteAddress { addr, rkey }, list) => {
                write!(f, "read {addr:x} {rkey:x} ")?;
                sges(f, list)
            }
            Self::LocalInvalidate(rkey) => write!(f, "local_inv {rkey:x}"),
            Self::Bind(range, rights) => {
                write!(f, "bind {:x} {:x} {rights:x}", range.start, range.len())
            }
            Self::BindCall(range, rights) => {
                write!(f, "call {:x} {:x} {rights:x}", range.start, range.len())
            }
            Self::MaskedCompareSwap { .. } | Self::MaskedFetchAdd { .. } => {
                unreachable!("written with the flags, which are part of it")
            }
            Self::Raw(bytes) => {
                f.write_str("raw ")?;
                hex(f, bytes)
            }
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op {:x} {} ", self.wr_id, self.flags)?;
        if let Some(srqn) = self.srqn {
            write!(f, "{srqn:x} ")?;
        }
        match self.operation.masked(self.flags) {
            Some(wqe) => write!(f, "{}", Operation::Raw(wqe)),
            None => write!(f, "{}", self.operation),
        }
    }
}
