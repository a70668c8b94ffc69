//! Operations of fixed size, as requests of the model of a queue.

use crate::by_hand::{Kind, QPN, REMOTE, SRQN, Wqe};
use mlx5_wqe::{
    Batch, BindParts, Binding, Data, Operation, RawWqe, Rc, SendFlags, SendWr, Sge, Uc, Ud,
    WindowType, XrcSend,
};

/// An operation of fixed size. The number distinguishes it from others of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extra {
    FetchAdd,
    Bind,
    LocalInvalidate,
    Nop,
    Raw,
}

/// The raw WQE of the tests: 17 units, with a small fence of its own.
fn raw_bytes(number: u64) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0x2f, 0, 0, 0, 17, 0, 0, 0, 0x20];
    bytes.resize(17 * 16, 0x5a);
    bytes[16..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

impl Extra {
    /// Number in the record.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::FetchAdd => 0x12,
            Self::Bind => 0x19,
            Self::LocalInvalidate => 0x1b,
            Self::Nop => 0,
            Self::Raw => 0x2f,
        }
    }

    /// Whether the next request waits for it.
    pub(crate) const fn is_waited_for(self) -> bool {
        matches!(self, Self::Bind | Self::LocalInvalidate)
    }

    /// The flags that have a meaning for the operation.
    pub(crate) const fn flags(self) -> SendFlags {
        SendFlags::SIGNALED.union(SendFlags::FENCE)
    }

    fn result(number: u64) -> Sge {
        Sge { addr: number, length: 8, lkey: 5 }
    }

    fn binding(number: u64) -> Binding {
        let parts = BindParts {
            window_type: WindowType::Two,
            window: number as u32,
            rkey: number as u32 + 1,
            lkey: 3,
            addr: number,
            length: 0x1000,
            access: 0x30,
            zero_based: false,
        };
        // SAFETY: no device reads the ring.
        unsafe { Binding::new(parts) }
    }

    /// The request put together by hand. `control` has what its flags and the queue add.
    pub(crate) fn by_hand<T: ExtraKind>(self, index: u16, control: u8, number: u64) -> Wqe {
        let umr = |key: u32, flags: u8, octowords: u8, mask: u64, context: Vec<u8>| {
            let mut head = vec![flags, 0, 0, 0, 0, octowords, 0, 0];
            head.extend(mask.to_be_bytes());
            head.resize(48, 0);
            let mut context = context;
            context.resize(64, 0);
            Wqe::control(0x25, index, control, key.to_be_bytes()).with(&head).with(&context)
        };
        match self {
            Self::FetchAdd => {
                let wqe = Wqe::control(0x12, index, control, [0; 4]);
                let wqe = if T::EXTENDED { wqe.srqn() } else { wqe };
                let wqe = wqe.remote(REMOTE).with(&number.to_be_bytes()).with(&[0; 8]);
                wqe.sge(Self::result(number))
            }
            Self::Bind => {
                let key = number as u32;
                let mut context = vec![0, 0, 0x30, 0];
                context.extend((QPN << 8 | (key + 1) & 0xff).to_be_bytes());
                context.extend([0; 8]);
                context.extend(number.to_be_bytes());
                context.extend(0x1000_u64.to_be_bytes());
                let mask = 1 | 1 << 6 | 3 << 13 | 0xf << 18 | 1 << 29;
                let mut klm = vec![0, 0, 0x10, 0, 0, 0, 0, 3];
                klm.extend(number.to_be_bytes());
                klm.resize(64, 0);
                umr(key, 0xb0, 4, mask, context).with(&klm)
            }
            Self::LocalInvalidate => {
                let context = vec![0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0];
                umr(number as u32, 0x98, 0, 3 << 13 | 1 << 29, context)
            }
            Self::Nop => Wqe::control(0, index, control, [0; 4]),
            Self::Raw => {
                let bytes = raw_bytes(number);
                // Its own fence stays, unless the full one is requested.
                let wqe = Wqe::control(0x2f, index, control & !0x20 | 0x20, [0x5a; 4]);
                let mut wqe = wqe.with(&bytes[16..]);
                wqe.bytes[0] = 1;
                wqe
            }
        }
    }

    /// The request in the list form; `room` keeps what it needs.
    pub(crate) fn list_form<'a>(
        self,
        wr_id: u64,
        flags: SendFlags,
        number: u64,
        room: &'a mut (Vec<u8>, [Sge; 1]),
    ) -> SendWr<'a> {
        let wr = SendWr { wr_id, flags, xrc_srqn: Some(SRQN), ..SendWr::default() };
        match self {
            Self::FetchAdd => {
                room.1[0] = Self::result(number);
                let operation = Operation::FetchAdd { remote: REMOTE, add: number };
                SendWr { operation, data: Data::Sges(&room.1), ..wr }
            }
            Self::Bind => SendWr { operation: Operation::BindWindow(Self::binding(number)), ..wr },
            Self::LocalInvalidate => {
                SendWr { operation: Operation::LocalInvalidate(number as u32), ..wr }
            }
            Self::Nop => SendWr { operation: Operation::Nop, ..wr },
            Self::Raw => {
                room.0 = raw_bytes(number);
                // SAFETY: no device reads the ring.
                let wqe = unsafe { RawWqe::new(&room.0) }.unwrap();
                SendWr { operation: Operation::Raw, data: Data::Wqe(wqe), ..wr }
            }
        }
    }
}

/// A transport that has some of these operations.
pub(crate) trait ExtraKind: Kind {
    const EXTRAS: &'static [Extra];
    /// Whether requests name the peer's shared receive queue.
    const EXTENDED: bool = false;

    /// Asks the typed builder for a request.
    fn build_extra(
        batch: &mut Batch<'_, Self>,
        wr_id: u64,
        flags: SendFlags,
        extra: Extra,
        number: u64,
    ) where
        Self: Sized;
}

macro_rules! windows {
    ($wr:ident, $extra:ident, $number:ident) => {
        match $extra {
            Extra::Bind => $wr.bind_mw(Extra::binding($number)),
            Extra::LocalInvalidate => $wr.local_inv($number as u32),
            other => panic!("no {other:?} on this transport"),
        }
    };
}

impl ExtraKind for Rc {
    const EXTRAS: &'static [Extra] =
        &[Extra::FetchAdd, Extra::Bind, Extra::LocalInvalidate, Extra::Nop, Extra::Raw];

    fn build_extra(
        batch: &mut Batch<'_, Self>,
        wr_id: u64,
        flags: SendFlags,
        extra: Extra,
        number: u64,
    ) {
        let wr = batch.wr(wr_id, flags);
        match extra {
            Extra::FetchAdd => wr.atomic_fetch_add(REMOTE, number).sge(Extra::result(number)),
            Extra::Nop => wr.nop(),
            Extra::Raw => {
                let bytes = raw_bytes(number);
                // SAFETY: no device reads the ring.
                wr.raw_wqe(unsafe { RawWqe::new(&bytes) }.unwrap());
            }
            _ => windows!(wr, extra, number),
        }
    }
}

impl ExtraKind for XrcSend {
    const EXTRAS: &'static [Extra] = &[Extra::FetchAdd, Extra::Bind, Extra::LocalInvalidate];
    const EXTENDED: bool = true;

    fn build_extra(
        batch: &mut Batch<'_, Self>,
        wr_id: u64,
        flags: SendFlags,
        extra: Extra,
        number: u64,
    ) {
        let wr = batch.wr(wr_id, flags);
        match extra {
            Extra::FetchAdd => {
                let wr = wr.atomic_fetch_add(REMOTE, number).xrc_srqn(SRQN);
                wr.sge(Extra::result(number));
            }
            _ => windows!(wr, extra, number),
        }
    }
}

impl ExtraKind for Uc {
    const EXTRAS: &'static [Extra] = &[Extra::Bind, Extra::LocalInvalidate];

    fn build_extra(
        batch: &mut Batch<'_, Self>,
        wr_id: u64,
        flags: SendFlags,
        extra: Extra,
        number: u64,
    ) {
        let wr = batch.wr(wr_id, flags);
        windows!(wr, extra, number)
    }
}

impl ExtraKind for Ud {
    const EXTRAS: &'static [Extra] = &[];

    fn build_extra(_: &mut Batch<'_, Self>, _: u64, _: SendFlags, extra: Extra, _: u64) {
        panic!("no {extra:?} on this transport");
    }
}
