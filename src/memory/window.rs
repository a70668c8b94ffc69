//! Memory windows.

use crate::{
    error::{DestroyError, Error},
    memory::{Access, MemoryRegion, ProtectionDomain},
};
use mlx5_prm::umr::mkey_access;
use mlx5_uapi::{cmd::mw as command, verbs::MwType};
use mlx5_wqe::operation::{BindWindow, Supports};
use mlx5_wqe::transport::Transport;
use mlx5_wqe::{
    BatchError, BindParts, Binding, Change, ChangeObserver, RemoteAddress, SendFlags, WindowType,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::{fmt, marker::PhantomData, ops::RangeBounds};

const BIND: &str = "bind_mw";

mod sealed {
    pub trait Sealed {}
}

/// The type of a memory window.
pub trait WindowKind: sealed::Sealed + Send + Sync + 'static {
    /// The kernel's number of the type.
    #[doc(hidden)]
    const KERNEL: MwType;
    /// The type in bind requests.
    #[doc(hidden)]
    const TYPE: WindowType;
}

/// Type 1: bound by a call, valid for every queue pair of the protection domain.
#[derive(Debug)]
pub enum TypeOne {}

/// Type 2: bound by a request of a batch, valid for one queue pair. That queue pair, or the remote
/// side of its connection, can invalidate it.
#[derive(Debug)]
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

/// A memory window (`struct ibv_mw`): a part of a region with an rkey and access rights of its own.
/// Binding and invalidating it needs no system call.
///
/// A window of type 2 is bound by a request in a batch:
///
/// ```no_run
/// # use mlx5::{Access, MemoryRegion, ProtectionDomain, QueuePair, SendFlags, transport::Rc};
/// # use mlx5::window::TypeTwo;
/// # fn f(pd: &ProtectionDomain, mr: &MemoryRegion, qp: &mut QueuePair<Rc>)
/// #     -> Result<(), Box<dyn std::error::Error>> {
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
    /// Whether the window exists in the kernel.
    live: bool,
    kind: PhantomData<K>,
}

/// The rkeys of a window: the current one, and those of outstanding bind requests.
struct Keys {
    state: Mutex<KeyState>,
    /// Called with the current key when a bind was undone.
    undone: Box<dyn Fn(u32) + Send + Sync>,
}

struct KeyState {
    bound: u32,
    /// Change numbers and keys of outstanding requests, in order.
    asked: VecDeque<(u64, u32)>,
    next: u64,
}

impl Keys {
    fn new(bound: u32, undone: impl Fn(u32) + Send + Sync + 'static) -> Self {
        let state = Mutex::new(KeyState { bound, asked: VecDeque::new(), next: 0 });
        Self { state, undone: Box::new(undone) }
    }

    fn lock(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key of the latest request.
    fn latest(&self) -> u32 {
        self.lock().latest()
    }

    /// Like [`Keys::latest`], but does not wait: `None` if another thread has the lock.
    fn latest_unlocked(&self) -> Option<u32> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(state.latest())
    }

    /// Adds an outstanding bind to `key`. Returns the number of the change.
    fn ask(&self, key: u32) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.asked.push_back((number, key));
        number
    }
}

impl KeyState {
    fn latest(&self) -> u32 {
        self.asked.back().map_or(self.bound, |(_, key)| *key)
    }
}

impl ChangeObserver for Keys {
    fn undo(&self, change: u64) {
        let mut state = self.lock();
        state.asked.retain(|(number, _)| *number != change);
        (self.undone)(state.latest());
    }

    fn settle(&self, change: u64) {
        let mut state = self.lock();
        while let Some(&(number, key)) = state.asked.front() {
            if number > change {
                break;
            }
            state.bound = key;
            state.asked.pop_front();
        }
    }

    /// It is unknown whether the request was executed. Assume that it was: the caller learns it
    /// from the completions, or binds again.
    fn mark_unknown(&self, change: u64) {
        self.settle(change);
    }
}

impl ProtectionDomain {
    /// Allocates a memory window (`ibv_alloc_mw`), which is not bound yet.
    pub fn alloc_mw<K: WindowKind>(&self) -> Result<MemoryWindow<K>, Error> {
        let mw =
            self.context.run("alloc_mw", |file| command::alloc(file, self.handle(), K::KERNEL))?;
        let (handle, keys) = (mw.handle, Arc::new(Keys::new(mw.rkey, |_| ())));
        Ok(MemoryWindow { pd: self.clone(), handle, keys, live: true, kind: PhantomData })
    }
}

/// Returns the key with the next variant.
const fn next(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// Converts access flags to those of an mkey.
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
    /// Returns the rkey of the latest binding. If a bind of a type 1 window is aborted or
    /// cancelled, this is the previous key again. The key of a type 2 window changes with each call
    /// of [`binding`](MemoryWindow::binding), whether the request is posted or not.
    pub fn rkey(&self) -> u32 {
        self.keys.latest()
    }

    /// Returns a remote address with the key of this window.
    pub fn remote(&self, addr: u64) -> RemoteAddress {
        RemoteAddress { addr, rkey: self.rkey() }
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> u32 {
        self.handle
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Checks a binding to a part of `mr` and returns its fields.
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
            return wrong(
                "a window takes only LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC and \
                 ZERO_BASED",
            );
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
            return wrong("the range is empty: to revoke a window, unbind or invalidate it");
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

    /// Deallocates the window, bound or not (`ibv_dealloc_mw`). On failure the error returns the
    /// window.
    pub fn dealloc(mut self) -> Result<(), DestroyError<Self>> {
        self.destroy().map_err(|error| DestroyError::new(self, error))
    }
}

impl MemoryWindow<TypeTwo> {
    /// Returns a binding to a part of `mr` with a new key, for [`bind_mw`](mlx5_wqe::Wr::bind_mw).
    /// The window must not be bound when the request executes: invalidate it first, with
    /// [`local_inv`](mlx5_wqe::Wr::local_inv) or from the remote side.
    ///
    /// The protection domains of window and region must be the same. The region needs `MW_BIND`,
    /// and `LOCAL_WRITE` if `access` has a right to write. `access` is any of `LOCAL_WRITE`,
    /// `REMOTE_READ`, `REMOTE_WRITE`, `REMOTE_ATOMIC` and `ZERO_BASED`. The range must not be
    /// empty.
    pub fn binding(
        &mut self,
        mr: &MemoryRegion,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<Binding, Error> {
        let parts = self.parts(mr, range, access)?;
        self.keys.lock().bound = parts.rkey;
        // SAFETY: `Self::parts` checked that the window is of this type and of the region's domain,
        // and that the region has the bytes and allows the rights.
        Ok(unsafe { Binding::new(parts) })
    }
}

/// The reason that a window was not bound.
#[derive(Debug)]
pub enum BindError {
    /// The arguments are invalid.
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

/// The rkeys of a window of type 1 for a caller that builds the bind requests itself, as
/// [`Binding`]s from [`BindParts`]. [`MemoryWindow::bind`] does this for its own window.
pub struct BindKeys(Arc<Keys>);

impl fmt::Debug for BindKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindKeys").finish_non_exhaustive()
    }
}

impl BindKeys {
    /// Creates the keys of a window whose key is `rkey`. `undone` is called with the current key
    /// whenever a bind was aborted or cancelled. It must not use this value.
    pub fn new(rkey: u32, undone: impl Fn(u32) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Keys::new(rkey, undone)))
    }

    /// Returns the key of the latest bind.
    pub fn latest(&self) -> u32 {
        self.0.latest()
    }

    /// Returns the change to key `rkey`, for [`bind_mw_with`](mlx5_wqe::Wr::bind_mw_with).
    pub fn bind(&self, rkey: u32) -> Change {
        Change::new(self.0.clone(), self.0.ask(rkey))
    }
}

/// A handle that posts send requests.
pub trait Poster<T: Transport>: posting::Poster<T> {}

/// Private, because an `EthernetQueue` exposes its queue pair by reference, and relies on having
/// its protection domain, which `pd` returns, for itself.
pub(crate) mod posting {
    use crate::memory::ProtectionDomain;
    use mlx5_wqe::{Batch, transport::Transport};

    pub trait Poster<T: Transport> {
        /// Returns the domain of its queue pair.
        fn pd(&self) -> &ProtectionDomain;
        /// Starts a batch.
        fn start(&mut self) -> Batch<'_, T>;
    }
}

impl MemoryWindow<TypeOne> {
    /// Binds the window to a part of `mr` with a request on `qp` (`ibv_bind_mw`). The previous
    /// binding ends. [`MemoryWindow::rkey`] returns the new key once the request is posted. The
    /// limits are those of [`MemoryWindow::binding`].
    pub fn bind<T: Transport + Supports<BindWindow>>(
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

    /// Unbinds the window (`ibv_bind_mw` with length zero).
    pub fn unbind<T: Transport + Supports<BindWindow>>(
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

    fn post<T: Transport + Supports<BindWindow>>(
        &mut self,
        qp: &mut impl Poster<T>,
        wr_id: u64,
        flags: SendFlags,
        parts: BindParts,
    ) -> Result<(), BindError> {
        if qp.pd() != &self.pd {
            let what = "window and queue pair belong to different domains";
            return Err(Error::invalid(BIND, what.into()).into());
        }
        let mut batch = qp.start();
        let change = Change::new(self.keys.clone(), self.keys.ask(parts.rkey));
        // SAFETY: the window is of this type, and `qp` is of its domain. For `bind`, `Self::parts`
        // checked that the region is of that domain, has the bytes and allows the rights. `unbind`
        // names no region and grants no rights.
        batch.wr(wr_id, flags).bind_mw_with(unsafe { Binding::new(parts) }, change);
        Ok(batch.complete()?)
    }
}

impl<K: WindowKind> Drop for MemoryWindow<K> {
    fn drop(&mut self) {
        // On failure no memory is at stake, and the kernel destroys the object when the file is
        // closed.
        let _ = self.destroy();
    }
}

impl<K: WindowKind> fmt::Debug for MemoryWindow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut window = f.debug_struct("MemoryWindow");
        match self.keys.latest_unlocked() {
            Some(rkey) => window.field("rkey", &format_args!("{rkey:#x}")),
            None => window.field("rkey", &format_args!("<locked>")),
        };
        window.field("type", &K::TYPE).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn printing_a_key_does_not_wait_for_its_lock_and_a_panic_does_not_hide_it() {
        let keys = Keys::new(5, |_| ());
        keys.ask(6);
        let held = keys.lock();
        assert_eq!(keys.latest_unlocked(), None);
        drop(held);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _held = keys.lock();
            panic!("with the lock");
        }));
        assert!(panic.is_err() && keys.state.is_poisoned());
        assert_eq!(keys.latest_unlocked(), Some(6));
    }
}
