//! The queues that a call creates, changes or destroys, from the view of a tracer.
//!
//! A tracer reads the words of a call, and the memory that its attributes point to, from another
//! process; the preload library reads them from its own. Both decode them into a [`QueueCall`], and
//! the library passes it to the tracer as a line of text.

use core::{fmt, str::FromStr};

use zerocopy::{FromBytes, IntoBytes};

use crate::{
    ioctl::{AttrId, IoctlAttr, IoctlHeader, Method, attr, method, object},
    mlx5::{self, CreateWqMask},
    verbs::{QpAttrMask, QpType},
    write_cmd::{
        CreateCqResp, CreateQp, CreateQpResp, CreateSrqResp, CreateWqResp, DestroyObject,
        DestroyWq, ExCreateQp, ModifyQp, ResizeCq, ResizeCqResp, WriteCommand,
    },
};

/// Bytes of the segment that starts a WQE of a shared receive queue, and of each entry after it.
const SRQ_UNIT: u64 = 16;

/// Memory of the process that made a call.
pub trait CallerMemory {
    /// Fills `to` from an address. `false` if not all of it could be read.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;
}

macro_rules! queue_calls {
    ($(
        $(#[$meta:meta])*
        $variant:ident / $structure:ident = $word:literal { $( $field:ident => $doc:literal ),* $(,)? }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $structure { $( #[doc = $doc] pub $field: u64, )* }
        )*

        /// The effect of a call on the queues of the process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum QueueCall { $( $(#[$meta])* $variant($structure), )* }

        /// One line of words: `end object=3 handle=1`.
        impl fmt::Display for QueueCall {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(
                    #[allow(unused_variables, reason = "one has no fields")]
                    Self::$variant(fields) => {
                        f.write_str($word)?;
                        $( write!(f, concat!(" ", stringify!($field), "={}"), fields.$field)?; )*
                        Ok(())
                    }
                )* }
            }
        }

        /// Fails for a line that is no call, lacks a word or has one too many.
        impl FromStr for QueueCall {
            type Err = UnknownCall;

            fn from_str(line: &str) -> Result<Self, UnknownCall> {
                let mut words = line.split(' ');
                let call = match words.next() {
                    $( Some($word) => Self::$variant($structure {
                        $( $field: number(words.next(), stringify!($field))?, )*
                    }), )*
                    _ => return Err(UnknownCall),
                };
                if words.next().is_some() { Err(UnknownCall) } else { Ok(call) }
            }
        }

        #[cfg(test)]
        impl QueueCall {
            /// One sample of each, with other numbers in all fields.
            fn samples() -> Vec<Self> {
                let mut next = 0_u64;
                let mut number = || { next += 0x1_0000_0001; next };
                vec![$( Self::$variant($structure { $( $field: number(), )* }), )*]
            }
        }
    };
}

queue_calls! {
    /// A completion queue was made.
    Cq / MadeCq = "cq" {
        handle => "The kernel's handle.",
        number => "The device's number.",
        ring => "Address of its ring.",
        record => "Address of its doorbell record.",
        entries => "CQEs in the ring.",
        entry_size => "Bytes of a CQE.",
        compressed => "[`mlx5::CqeCompFormat`] if the device may compress CQEs; zero if not.",
    }

    /// A completion queue has another ring.
    Resized / ResizedCq = "resize" {
        handle => "The kernel's handle.",
        ring => "Address of its ring.",
        entries => "CQEs in the ring.",
        entry_size => "Bytes of a CQE.",
    }

    /// A queue pair was made.
    Qp / MadeQp = "qp" {
        handle => "The kernel's handle.",
        number => "The device's number.",
        kind => "[`QpType`].",
        send_ring => "Address of its send ring.",
        send_blocks => "Blocks of its send ring; zero without one.",
        receive_ring => "Address of its receive ring.",
        receives => "WQEs of its receive ring; zero without one.",
        receive_size => "Bytes of a receive WQE.",
        record => "Address of its doorbell record.",
        user_index => "The index that CQEs name it by.",
    }

    /// A shared receive queue was made.
    Srq / MadeSrq = "srq" {
        handle => "The kernel's handle.",
        number => "The device's number.",
        ring => "Address of its ring.",
        record => "Address of its doorbell record.",
        entries => "WQEs in the ring.",
        entry_size => "Bytes of a WQE.",
        user_index => "The index that CQEs name it by.",
    }

    /// A work queue was made: a receive queue without a queue pair.
    Wq / MadeWq = "wq" {
        handle => "The kernel's handle.",
        number => "The device's number.",
        ring => "Address of its ring.",
        record => "Address of its doorbell record.",
        entries => "WQEs in the ring.",
        entry_size => "Bytes of a WQE.",
        user_index => "The index that CQEs name it by.",
        strides => "Strides of a WQE; zero if each packet has a WQE of its own.",
        stride_size => "Bytes of a stride.",
    }

    /// A queue pair changed its state.
    State / ChangedQp = "state" {
        handle => "The kernel's handle.",
        state => "[`crate::verbs::QpState`].",
    }

    /// A queue was destroyed.
    End / EndedQueue = "end" {
        object => "Kind of the object, from [`object`].",
        handle => "The kernel's handle.",
    }

    /// The device was closed, and its queues were destroyed.
    Closed / ClosedDevice = "close" {}
}

/// A call, which the preload library writes to the file [`Noted::FILE`] of its process's device
/// tree. A tracer reads that file of a running process, and gets each line when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The number of the device, among those that the process has open.
    pub device: u64,
    /// Whether the call is about to be made, rather than done.
    pub before: bool,
    /// The effect of the call.
    pub call: QueueCall,
}

impl Noted {
    /// The name of the file.
    pub const FILE: &str = "queues";
    /// Prefix of the tree's name, in the folder for temporary files; the number of the process, a
    /// hyphen and a number follow.
    pub const TREE: &str = "mlx5-sim-";
    /// Prefix of each line.
    pub const MARK: &str = "mlx5-queue ";
}

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.before { "before" } else { "after" };
        write!(f, "{}{} {when} {}", Self::MARK, self.device, self.call)
    }
}

impl FromStr for Noted {
    type Err = UnknownCall;

    fn from_str(line: &str) -> Result<Self, UnknownCall> {
        let rest = line.strip_prefix(Self::MARK).ok_or(UnknownCall)?;
        let (device, rest) = rest.split_once(' ').ok_or(UnknownCall)?;
        let (when, call) = rest.split_once(' ').ok_or(UnknownCall)?;
        let before = match when {
            "before" => true,
            "after" => false,
            _ => return Err(UnknownCall),
        };
        Ok(Self { device: device.parse().map_err(|_| UnknownCall)?, before, call: call.parse()? })
    }
}

/// The line is no [`QueueCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCall;

impl fmt::Display for UnknownCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no line about a queue")
    }
}

impl std::error::Error for UnknownCall {}

fn number(word: Option<&str>, name: &str) -> Result<u64, UnknownCall> {
    let (named, value) = word.and_then(|word| word.split_once('=')).ok_or(UnknownCall)?;
    if named == name { value.parse().map_err(|_| UnknownCall) } else { Err(UnknownCall) }
}

impl QueueCall {
    /// Reads header and attributes of a call after its return, and the memory that they point to.
    /// `None` for a call that does not concern queues, or cannot be read.
    ///
    /// [`State`](Self::State) and [`End`](Self::End) can be read before the call is made, too.
    pub fn read(words: &[u64], memory: &dyn CallerMemory) -> Option<Self> {
        let call = Seen::new(words, memory)?;
        let end = |object: u16, id| {
            Some(Self::End(EndedQueue { object: object.into(), handle: call.handle(id)? }))
        };
        match call.method {
            method::CQ_CREATE => call.cq(),
            method::QP_CREATE => call.qp(),
            method::SRQ_CREATE => call.srq(),
            method::WQ_CREATE => call.wq(),
            method::CQ_DESTROY => end(object::CQ, attr::destroy_cq::HANDLE),
            method::QP_DESTROY => end(object::QP, attr::destroy_qp::HANDLE),
            method::SRQ_DESTROY => end(object::SRQ, attr::destroy_srq::HANDLE),
            method::WQ_DESTROY => end(object::WQ, attr::destroy_wq::HANDLE),
            method::INVOKE_WRITE => call.command()?.read(),
            _ => None,
        }
    }

    /// Reads a write(2) to a device after its return; libraries older than the ioctl make such
    /// calls. `bytes` are the bytes written.
    pub fn read_written(bytes: &[u8], memory: &dyn CallerMemory) -> Option<Self> {
        Command::written(bytes, memory)?.read()
    }

    /// Whether a tracer must see it before the kernel gets it, because the rings may be gone, or
    /// empty, afterwards.
    #[must_use]
    pub fn ends_something(&self) -> bool {
        matches!(self, Self::State(_) | Self::End(_) | Self::Resized(_) | Self::Closed(_))
    }
}

/// A call, and the memory that its attributes point to.
struct Seen<'a> {
    method: Method,
    attrs: Vec<IoctlAttr>,
    memory: &'a dyn CallerMemory,
}

impl<'a> Seen<'a> {
    fn new(words: &[u64], memory: &'a dyn CallerMemory) -> Option<Self> {
        let (header, rest) = IoctlHeader::read_from_prefix(words.as_bytes()).ok()?;
        let attrs = rest
            .chunks_exact(size_of::<IoctlAttr>())
            .take(header.num_attrs.into())
            .filter_map(|attr| IoctlAttr::read_from_bytes(attr).ok());
        Some(Self { method: Method::of(&header), attrs: attrs.collect(), memory })
    }

    fn attr(&self, id: AttrId) -> Option<&IoctlAttr> {
        self.attrs.iter().find(|attr| attr.attr_id == id.0)
    }

    fn handle(&self, id: AttrId) -> Option<u64> {
        Some(self.attr(id)?.data & u64::from(u32::MAX))
    }

    /// The bytes of an input: up to eight are in the attribute.
    fn input(&self, id: AttrId) -> Option<Vec<u8>> {
        let attr = self.attr(id)?;
        let mut bytes = vec![0; attr.len.into()];
        if let Some(inline) = attr.data.as_bytes().get(..bytes.len()) {
            bytes.copy_from_slice(inline);
        } else if !self.memory.read(attr.data, &mut bytes) {
            return None;
        }
        Some(bytes)
    }

    /// The bytes that the kernel wrote.
    fn output(&self, id: AttrId) -> Option<Vec<u8>> {
        let attr = self.attr(id)?;
        let mut bytes = vec![0; attr.len.into()];
        self.memory.read(attr.data, &mut bytes).then_some(bytes)
    }

    fn output_u32(&self, id: AttrId) -> Option<u64> {
        let bytes = self.output(id)?;
        Some(u32::from_ne_bytes(*bytes.first_chunk()?).into())
    }

    fn cq(&self) -> Option<QueueCall> {
        use attr::create_cq as id;
        let (request, response) = (self.input(attr::uhw::IN)?, self.output(attr::uhw::OUT)?);
        cq(self.handle(id::HANDLE)?, self.output_u32(id::RESP_CQE)?, &request, &response)
    }

    fn qp(&self) -> Option<QueueCall> {
        use attr::create_qp as id;
        // A QP with an indirection table has no rings.
        if self.attr(id::IND_TABLE_HANDLE).is_some() {
            return None;
        }
        let kind = *self.input(id::TYPE)?.first()?;
        let number = self.output_u32(id::RESP_QP_NUM)?;
        qp(self.handle(id::HANDLE)?, number, kind, &self.input(attr::uhw::IN)?)
    }

    fn srq(&self) -> Option<QueueCall> {
        use attr::create_srq as id;
        let sizes = (self.output_u32(id::RESP_MAX_WR)?, self.output_u32(id::RESP_MAX_SGE)?);
        let response: mlx5::CreateSrqResp = padded(&self.output(attr::uhw::OUT)?);
        let request = self.input(attr::uhw::IN)?;
        Some(srq(self.handle(id::HANDLE)?, response.srqn, sizes, &request))
    }

    fn wq(&self) -> Option<QueueCall> {
        use attr::create_wq as id;
        let number = self.output_u32(id::RESP_WQ_NUM)?;
        Some(wq(self.handle(id::HANDLE)?, number, &self.input(attr::uhw::IN)?))
    }

    fn command(&self) -> Option<Command> {
        use attr::invoke_write as id;
        let command = self.input(id::WRITE_CMD)?;
        let command = WriteCommand(u32::from_ne_bytes(*command.first_chunk()?));
        let input = |id| self.input(id).unwrap_or_default();
        let output = |id| self.output(id).unwrap_or_default();
        Some(Command {
            command,
            request: input(id::CORE_IN),
            response: output(id::CORE_OUT),
            driver_request: input(attr::uhw::IN),
            driver_response: output(attr::uhw::OUT),
        })
    }
}

/// Decodes a structure of which the caller may have an older or a newer version.
fn padded<T: FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut whole = T::new_zeroed();
    let room = whole.as_mut_bytes();
    let known = bytes.len().min(room.len());
    room[..known].copy_from_slice(&bytes[..known]);
    whole
}

fn cq(handle: u64, cqe: u64, request: &[u8], response: &[u8]) -> Option<QueueCall> {
    let driver: mlx5::CreateCq = padded(request);
    let answer: mlx5::CreateCqResp = padded(response);
    Some(QueueCall::Cq(MadeCq {
        handle,
        number: answer.cqn.into(),
        ring: driver.buf_addr,
        record: driver.db_addr,
        entries: cqe.checked_add(1)?,
        entry_size: driver.cqe_size.into(),
        // Any other number means no, as for the kernel.
        compressed: if driver.cqe_comp_en == 1 { driver.cqe_comp_res_format.into() } else { 0 },
    }))
}

fn qp(handle: u64, number: u64, kind: u8, request: &[u8]) -> Option<QueueCall> {
    // Neither the receiving side of XRC nor a DCT has rings of its own.
    if kind == QpType::XrcTgt.raw() {
        return None;
    }
    let driver: mlx5::CreateQp = padded(request);
    let receive_size = 1_u64.checked_shl(driver.rq_wqe_shift)?;
    let receives = u64::from(driver.rq_wqe_count);
    let raw = kind == QpType::RawPacket.raw();
    let behind = driver.buf_addr.checked_add(receives.checked_mul(receive_size)?)?;
    Some(QueueCall::Qp(MadeQp {
        handle,
        number,
        kind: kind.into(),
        send_ring: if raw { driver.sq_buf_addr } else { behind },
        send_blocks: driver.sq_wqe_count.into(),
        receive_ring: driver.buf_addr,
        receives,
        receive_size,
        record: driver.db_addr,
        user_index: driver.uidx.into(),
    }))
}

fn srq(handle: u64, number: u32, (max_wr, max_sge): (u64, u64), request: &[u8]) -> QueueCall {
    let driver: mlx5::CreateSrq = padded(request);
    QueueCall::Srq(MadeSrq {
        handle,
        number: number.into(),
        ring: driver.buf_addr,
        record: driver.db_addr,
        entries: max_wr.saturating_add(1),
        entry_size: srq_stride(max_sge),
        user_index: driver.uidx.into(),
    })
}

/// Bytes of a WQE with `max_sge` entries: a power of two, and two units at least.
fn srq_stride(max_sge: u64) -> u64 {
    let units = max_sge.min(u64::from(u16::MAX)) + 1;
    (units * SRQ_UNIT).next_power_of_two().max(2 * SRQ_UNIT)
}

fn wq(handle: u64, number: u64, request: &[u8]) -> QueueCall {
    let driver: mlx5::CreateWq = padded(request);
    let power = |log| 1_u64.checked_shl(log).unwrap_or(0);
    let (strides, stride_size) = match CreateWqMask::from_bits_retain(driver.comp_mask)
        .contains(CreateWqMask::STRIDING_RQ)
    {
        true => (
            power(driver.single_wqe_log_num_of_strides),
            power(driver.single_stride_log_num_of_bytes),
        ),
        false => (0, 0),
    };
    QueueCall::Wq(MadeWq {
        handle,
        number,
        ring: driver.buf_addr,
        record: driver.db_addr,
        entries: driver.rq_wqe_count.into(),
        entry_size: power(driver.rq_wqe_shift),
        user_index: driver.user_index.into(),
        strides,
        stride_size,
    })
}

/// A command in the format of write(2), and its response.
struct Command {
    command: WriteCommand,
    request: Vec<u8>,
    response: Vec<u8>,
    driver_request: Vec<u8>,
    driver_response: Vec<u8>,
}

/// Bytes of `struct ib_uverbs_cmd_hdr`, and of `struct ib_uverbs_ex_cmd_hdr` after it.
const HEADER: usize = 8;
const EXTENDED_HEADER: usize = 16;

impl Command {
    /// A command with its header. The driver's request follows the core's, and its response the
    /// core's.
    fn written(bytes: &[u8], memory: &dyn CallerMemory) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let half =
            |at: usize| Some(usize::from(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)));
        let address = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let command = WriteCommand(word(0)?);
        let (sizes, response, lengths) = if command.is_extended() {
            // Lengths in units of eight bytes: the core's, and the driver's.
            let (core, driver) = (8 * half(4)?, 8 * half(16)?);
            let start = HEADER + EXTENDED_HEADER;
            let sizes = (start..start + core, start + core..start + core + driver);
            (sizes, address(8)?, (8 * half(6)?, 8 * half(18)?))
        } else {
            let (core, answer) = command.plain_sizes()?;
            let (end, room) = (4 * half(4)?, 4 * half(6)?);
            let sizes = (HEADER..HEADER + core, HEADER + core..end);
            (sizes, address(HEADER)?, (answer, room.checked_sub(answer)?))
        };
        let mut answer = vec![0; lengths.0 + lengths.1];
        if !memory.read(response, &mut answer) {
            return None;
        }
        let driver_response = answer.split_off(lengths.0);
        Some(Self {
            command,
            request: bytes.get(sizes.0)?.to_vec(),
            response: answer,
            driver_request: bytes.get(sizes.1)?.to_vec(),
            driver_response,
        })
    }

    fn read(&self) -> Option<QueueCall> {
        let end = |object: u16, handle: u32| {
            QueueCall::End(EndedQueue { object: object.into(), handle: handle.into() })
        };
        let named = || padded::<DestroyObject>(&self.request).handle;
        Some(match self.command {
            WriteCommand::CREATE_CQ | WriteCommand::CREATE_CQ_EX => {
                let answer: CreateCqResp = padded(&self.response);
                let (driver, answered) = (&self.driver_request, &self.driver_response);
                cq(answer.cq_handle.into(), answer.cqe.into(), driver, answered)?
            }
            WriteCommand::CREATE_QP => self.qp(padded::<CreateQp>(&self.request).qp_type)?,
            WriteCommand::CREATE_QP_EX => {
                let request: ExCreateQp = padded(&self.request);
                if request.rwq_ind_tbl_handle != 0 {
                    return None;
                }
                self.qp(request.qp_type)?
            }
            WriteCommand::CREATE_SRQ | WriteCommand::CREATE_XSRQ => {
                let answer: CreateSrqResp = padded(&self.response);
                let driver: mlx5::CreateSrqResp = padded(&self.driver_response);
                let sizes = (answer.max_wr.into(), answer.max_sge.into());
                srq(answer.srq_handle.into(), driver.srqn, sizes, &self.driver_request)
            }
            WriteCommand::CREATE_WQ_EX => {
                let answer: CreateWqResp = padded(&self.response);
                wq(answer.wq_handle.into(), answer.wqn.into(), &self.driver_request)
            }
            WriteCommand::RESIZE_CQ => {
                let request: ResizeCq = padded(&self.request);
                let answer: ResizeCqResp = padded(&self.response);
                let driver: mlx5::ResizeCq = padded(&self.driver_request);
                QueueCall::Resized(ResizedCq {
                    handle: request.cq_handle.into(),
                    ring: driver.buf_addr,
                    entries: u64::from(answer.cqe) + 1,
                    entry_size: driver.cqe_size.into(),
                })
            }
            WriteCommand::MODIFY_QP | WriteCommand::MODIFY_QP_EX => {
                let request: ModifyQp = padded(&self.request);
                if request.attr_mask & QpAttrMask::STATE.bits() == 0 {
                    return None;
                }
                let (handle, state) = (request.qp_handle.into(), request.qp_state.into());
                QueueCall::State(ChangedQp { handle, state })
            }
            WriteCommand::DESTROY_CQ => end(object::CQ, named()),
            WriteCommand::DESTROY_QP => end(object::QP, named()),
            WriteCommand::DESTROY_SRQ => end(object::SRQ, named()),
            WriteCommand::DESTROY_WQ_EX => {
                end(object::WQ, padded::<DestroyWq>(&self.request).wq_handle)
            }
            _ => return None,
        })
    }

    fn qp(&self, kind: u8) -> Option<QueueCall> {
        let answer: CreateQpResp = padded(&self.response);
        qp(answer.qp_handle.into(), answer.qpn.into(), kind, &self.driver_request)
    }
}

impl WriteCommand {
    const fn is_extended(self) -> bool {
        self.0 >> 31 != 0
    }

    /// Bytes of the core's request and response of a command about queues that is not extended.
    const fn plain_sizes(self) -> Option<(usize, usize)> {
        Some(match self {
            Self::CREATE_CQ => (CREATE_CQ, size_of::<CreateCqResp>()),
            Self::CREATE_QP => (size_of::<CreateQp>(), size_of::<CreateQpResp>()),
            Self::CREATE_SRQ => (CREATE_SRQ, size_of::<CreateSrqResp>()),
            Self::CREATE_XSRQ => (CREATE_XSRQ, size_of::<CreateSrqResp>()),
            Self::RESIZE_CQ => (size_of::<ResizeCq>(), size_of::<ResizeCqResp>()),
            Self::MODIFY_QP => (size_of::<ModifyQp>(), 0),
            Self::DESTROY_CQ | Self::DESTROY_QP | Self::DESTROY_SRQ => {
                (size_of::<DestroyObject>(), 0)
            }
            _ => return None,
        })
    }
}

/// Bytes of `struct ib_uverbs_create_cq`, `_create_srq` and `_create_xsrq`, of which nothing is
/// read.
const CREATE_CQ: usize = 32;
const CREATE_SRQ: usize = 32;
const CREATE_XSRQ: usize = 48;

#[cfg(test)]
mod tests;
