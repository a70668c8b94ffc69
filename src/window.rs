//! Memory windows.

use crate::{
    error::Error,
    mr::{Access, MemoryRegion},
    pd::ProtectionDomain,
    qp::{QueuePair, QueuePairTransport, SendHalf},
};
use mlx5_prm::umr::mkey_access;
use mlx5_uapi::{cmd::mw as command, verbs::MwType};
use mlx5_wqe::operation::{BindWindow, Supports};
use mlx5_wqe::{
    BatchError, BindParts, Binding, Change, Changed, RemoteAddress, SendFlags, WindowType,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, marker::PhantomData, ops::RangeBounds};

const BIND: &str = "bind_mw";

mod sealed {
    pub trait Sealed {}
}

/// How a memory window is bound.
pub trait WindowKind: sealed::Sealed + Send + Sync + 'static {
    /// The kernel's name for it.
    #[doc(hidden)]
    const KERNEL: MwType;
    /// The requests' name for it.
    #[doc(hidden)]
    const TYPE: WindowType;
}

/// Type 1: bound by a call, for every queue pair of the domain.
pub enum TypeOne {}

/// Type 2: bound by a request of a batch, for one queue pair, which can invalidate it, as can the
/// other side of its connection.
pub enum TypeTwo {}

impl sealed::Sealed for TypeOne {}
impl WindowKind for TypeOne {
    const KERNEL: MwType = MwType::Type1;
    const TYPE: WindowType = WindowType::One;
}
impl sealed::Sealed for TypeTwo {}
impl WindowKind for TypeTwo {
    const KERNEL: MwType = MwType::Type2;
    const TYPE: WindowType = WindowType::Two;
}

/// A memory window (`struct ibv_mw`): a remote key of its own to a part of a region, with rights of
/// its own, that comes and goes without the kernel.
///
/// Through a window of the second type, of which a batch holds the requests:
///
/// ```no_run
/// # use mlx5::{Access, MemoryRegion, ProtectionDomain, QueuePair, SendFlags, transport::Rc, window::TypeTwo};
/// # fn f(pd: &ProtectionDomain, mr: &MemoryRegion, qp: &mut QueuePair<Rc>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut window = pd.alloc_mw::<TypeTwo>()?;
/// let binding = window.binding(mr, 0..4096, Access::REMOTE_READ)?;
/// let mut batch = qp.wr_start();
/// batch.wr(1, SendFlags::SIGNALED).bind_mw(binding);
/// batch.complete()?;
/// println!("peers read there with key {:#x}", window.rkey());
/// # Ok(())
/// # }
/// ```
pub struct MemoryWindow<K: WindowKind> {
    pd: ProtectionDomain,
    handle: u32,
    keys: Arc<Keys>,
    /// Whether the kernel has it.
    live: bool,
    kind: PhantomData<K>,
}

/// The keys of a window: the one it has, and those that requests will give it.
struct Keys(Mutex<KeyState>);

struct KeyState {
    bound: u32,
    /// By the number of the change, in order.
    asked: VecDeque<(u64, u32)>,
    next: u64,
}

impl Keys {
    fn new(bound: u32) -> Self {
        Self(Mutex::new(KeyState { bound, asked: VecDeque::new(), next: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, KeyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key as of the last request.
    fn latest(&self) -> u32 {
        let state = self.lock();
        state.asked.back().map_or(state.bound, |(_, key)| *key)
    }

    /// A request gives it this key; the number of the change.
    fn ask(&self, key: u32) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.asked.push_back((number, key));
        number
    }
}

impl Changed for Keys {
    fn undo(&self, change: u64) {
        self.lock().asked.retain(|(number, _)| *number != change);
    }

    fn settle(&self, change: u64) {
        let mut state = self.lock();
        while let Some((_, key)) = state.asked.pop_front_if(|(number, _)| *number <= change) {
            state.bound = key;
        }
    }

    /// The caller learns from the completions, or binds it anew.
    fn lose(&self, change: u64) {
        self.settle(change);
    }
}

impl ProtectionDomain {
    /// Makes a memory window (`ibv_alloc_mw`). Nothing is bound to it yet.
    pub fn alloc_mw<K: WindowKind>(&self) -> Result<MemoryWindow<K>, Error> {
        let mw =
            self.context.run("alloc_mw", |file| command::alloc(file, self.handle(), K::KERNEL))?;
        let (handle, keys) = (mw.handle, Arc::new(Keys::new(mw.rkey)));
        Ok(MemoryWindow { pd: self.clone(), handle, keys, live: true, kind: PhantomData })
    }
}

/// The key after this one: the low byte counts.
const fn next(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// The rights that a window can give, as the device has them.
fn rights(access: Access) -> u8 {
    [
        (Access::LOCAL_WRITE, mkey_access::LOCAL_WRITE),
        (Access::REMOTE_READ, mkey_access::REMOTE_READ),
        (Access::REMOTE_WRITE, mkey_access::REMOTE_WRITE),
        (Access::REMOTE_ATOMIC, mkey_access::ATOMIC),
    ]
    .into_iter()
    .filter(|(right, _)| access.contains(*right))
    .fold(0, |all, (_, bit)| all | bit)
}

impl<K: WindowKind> MemoryWindow<K> {
    /// The key for peers, as of the last binding that was asked for. One of a window of type 1 that is
    /// cancelled was not: the key is the one before.
    pub fn rkey(&self) -> u32 {
        self.keys.latest()
    }

    /// A place, by the key of this window.
    pub fn remote(&self, addr: u64) -> RemoteAddress {
        RemoteAddress { addr, rkey: self.rkey() }
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// What binds it to a part of `mr`.
    fn parts(
        &self,
        mr: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<BindParts, Error> {
        let wrong = |what: &str| Err(Error::invalid(BIND, what.to_owned()));
        let known = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::ZERO_BASED;
        if !known.contains(access) {
            return wrong("a window gives rights to read, to write and to atomics");
        }
        if *mr.pd() != self.pd {
            return wrong("window and region belong to different domains");
        }
        if !mr.access().contains(Access::MW_BIND) {
            return wrong("the region was registered without MW_BIND");
        }
        if access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !mr.access().contains(Access::LOCAL_WRITE)
        {
            return wrong("the region was registered without LOCAL_WRITE");
        }
        let (start, len) = mr.extent(BIND, &range)?;
        if len == 0 {
            return wrong("a window of no bytes is none: invalidate or unbind it");
        }
        Ok(BindParts {
            window_type: K::TYPE,
            window: self.rkey(),
            rkey: next(self.rkey()),
            lkey: mr.lkey(),
            addr: mr.addr() + start as u64,
            length: len as u64,
            access: rights(access),
            zero_based: access.contains(Access::ZERO_BASED),
        })
    }

    fn destroy(&mut self) -> Result<(), Error> {
        if self.live {
            let handle = self.handle;
            self.pd.context.run_destroy("dealloc_mw", |file| command::dealloc(file, handle))?;
            self.live = false;
        }
        Ok(())
    }

    /// Gives the window back, bound or not (`ibv_dealloc_mw`).
    pub fn dealloc(mut self) -> Result<(), (Self, Error)> {
        self.destroy().map_err(|error| (self, error))
    }
}

impl MemoryWindow<TypeTwo> {
    /// What binds the window to a part of `mr`, with a new key, for
    /// [`bind_mw`](mlx5_wqe::Wr::bind_mw). It must not be bound then: invalidate it first, with
    /// [`local_inv`](mlx5_wqe::Wr::local_inv) or from the other side, if it was.
    pub fn binding(
        &mut self,
        mr: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<Binding, Error> {
        let parts = self.parts(mr, range, access)?;
        self.keys.lock().bound = parts.rkey;
        // SAFETY: `parts` looked at all that.
        Ok(unsafe { Binding::new(parts) })
    }
}

/// Why a window was not bound.
#[derive(Debug)]
pub enum BindError {
    /// It cannot be bound like this.
    Invalid(Error),
    /// The request was not posted.
    Post(BatchError),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

impl From<Error> for BindError {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}

impl From<BatchError> for BindError {
    fn from(error: BatchError) -> Self {
        Self::Post(error)
    }
}

/// Whoever posts send requests.
pub trait Poster<T: QueuePairTransport> {
    /// The half that does.
    #[doc(hidden)]
    fn send_half(&mut self) -> &mut SendHalf<T>;
}

impl<T: QueuePairTransport> Poster<T> for QueuePair<T> {
    fn send_half(&mut self) -> &mut SendHalf<T> {
        &mut self.send
    }
}

impl<T: QueuePairTransport> Poster<T> for SendHalf<T> {
    fn send_half(&mut self) -> &mut SendHalf<T> {
        self
    }
}

impl MemoryWindow<TypeOne> {
    /// Binds the window to a part of `mr`, by a request on `qp` (`ibv_bind_mw`); the key is the new
    /// one once that is posted. What it was bound to before, it is not any more.
    pub fn bind<T: QueuePairTransport + Supports<BindWindow>>(
        &mut self,
        qp: &mut impl Poster<T>,
        wr_id: u64,
        flags: SendFlags,
        mr: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<(), BindError> {
        let parts = self.parts(mr, range, access)?;
        self.post(qp, wr_id, flags, parts)
    }

    /// Binds the window to nothing (`ibv_bind_mw` with no length).
    pub fn unbind<T: QueuePairTransport + Supports<BindWindow>>(
        &mut self,
        qp: &mut impl Poster<T>,
        wr_id: u64,
        flags: SendFlags,
    ) -> Result<(), BindError> {
        let parts = BindParts {
            window_type: WindowType::One,
            window: self.rkey(),
            rkey: next(self.rkey()),
            lkey: 0,
            addr: 0,
            length: 0,
            access: 0,
            zero_based: false,
        };
        self.post(qp, wr_id, flags, parts)
    }

    fn post<T: QueuePairTransport + Supports<BindWindow>>(
        &mut self,
        qp: &mut impl Poster<T>,
        wr_id: u64,
        flags: SendFlags,
        parts: BindParts,
    ) -> Result<(), BindError> {
        let half = qp.send_half();
        if half.inner.pd() != &self.pd {
            let what = "window and queue pair belong to different domains";
            return Err(Error::invalid(BIND, what.into()).into());
        }
        let mut batch = half.wr_start();
        let change = Change::new(self.keys.clone(), self.keys.ask(parts.rkey));
        // SAFETY: `parts` looked at all that.
        batch.wr(wr_id, flags).bind_mw_with(unsafe { Binding::new(parts) }, change);
        Ok(batch.complete()?)
    }
}

impl<K: WindowKind> Drop for MemoryWindow<K> {
    fn drop(&mut self) {
        // It has no memory; the kernel takes it back when the device is closed.
        let _ = self.destroy();
    }
}

impl<K: WindowKind> fmt::Debug for MemoryWindow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .field("type", &K::TYPE)
            .finish_non_exhaustive()
    }
}
