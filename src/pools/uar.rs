//! UAR pages and the allocation of their registers.
//!
//! Each send queue gets a BlueFlame register of its own while there are any. When the kernel or the
//! device refuses more pages, or the context's limit is reached, the next [`MAX_SHARERS`] queues
//! share one BlueFlame register under a lock. All others ring plain doorbells, which need no lock,
//! on a page that is not write-combining. Completion queues are armed on that same page.

mod send;

pub(crate) use send::SendUar;
pub use send::ThreadDomain;

use crate::{error::Error, link::Link};
use mlx5_doorbell::{CompletionQueueRegister, SendRegister, SharedBlueFlame};
use mlx5_prm::doorbell::{BLUEFLAME, BLUEFLAME_REGISTERS, BLUEFLAME_UNIT, CQ_DOORBELL};
use mlx5_uapi::{Access, DeviceFile, Errno, Mapping, cmd::uar, mlx5::UarType};
use std::{
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The way in which a send queue rings its doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DoorbellMode {
    /// BlueFlame on a register of its own: the doorbell carries a small WQE to the device.
    BlueFlame,
    /// BlueFlame on a register that other queues share, under a lock.
    SharedBlueFlame,
    /// A plain eight-byte doorbell, without a lock; the device fetches each WQE.
    Doorbell,
}

/// Selects the [`DoorbellMode`] of a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum DoorbellChoice {
    /// The first available mode of [`DoorbellMode`], in their order. At most 16 queues share a
    /// register this way.
    #[default]
    Auto,
    /// [`DoorbellMode::BlueFlame`]; creation fails if no register is left.
    BlueFlame,
    /// [`DoorbellMode::SharedBlueFlame`]; creation fails without BlueFlame.
    SharedBlueFlame,
    /// [`DoorbellMode::Doorbell`].
    Doorbell,
}

/// Maximum number of queues that share a register with [`DoorbellChoice::Auto`]. With more, a
/// doorbell without a lock costs less than BlueFlame saves.
const MAX_SHARERS: usize = 16;

/// A mapped UAR page.
struct Page {
    uar: uar::Uar,
    mapping: Mapping,
}

impl Page {
    /// Allocates and maps a page of at least `len` bytes.
    fn new(file: &dyn DeviceFile, kind: UarType, len: usize) -> Result<Self, Errno> {
        let uar = uar::alloc(file, kind)?;
        let mapped = match usize::try_from(uar.mmap_len) {
            Ok(mmap_len) if mmap_len >= len => file.map(uar.mmap_offset, mmap_len, Access::Write),
            _ => Err(Errno::EPROTO),
        };
        match mapped {
            Ok(mapping) if mapping.len() >= len && is_aligned(&mapping) => {
                Ok(Self { uar, mapping })
            }
            refused => {
                let errno = refused.err().unwrap_or(Errno::EPROTO);
                // If this fails, the kernel frees the page when the file is closed.
                let _ = uar::destroy(file, uar.handle);
                Err(errno)
            }
        }
    }

    /// Returns the register at `offset`, which must be less than the `len` of [`Page::new`].
    fn register(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.mapping.len());
        // SAFETY: `offset` is inside the mapping, which has at least `len` bytes.
        unsafe { self.mapping.as_non_null().byte_add(offset) }
    }
}

/// Whether the mapping is aligned as the registers require.
fn is_aligned(mapping: &Mapping) -> bool {
    mapping.as_ptr().addr().is_multiple_of(BLUEFLAME)
}

/// A BlueFlame register of a page in [`Registers`].
#[derive(Clone, Copy)]
struct BlueFlame {
    page: usize,
    index: usize,
}

/// UAR pages and their registers.
struct Registers {
    /// The page that is not write-combining; `Some` until the context closes.
    plain: Option<Page>,
    /// Size of a BlueFlame register; zero if BlueFlame is unsupported or turned off.
    blueflame_size: usize,
    /// Maximum number of BlueFlame pages.
    max_pages: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: Vec<Page>,
    /// Registers that no queue has.
    free: Vec<BlueFlame>,
    /// The shared register, set apart when the first page is allocated.
    shared: Option<(BlueFlame, Box<SharedBlueFlame>)>,
    /// Number of queues that share it.
    sharers: usize,
    /// Whether the kernel refused a page. It is not asked again until the context closes.
    exhausted: bool,
    /// Whether a queue that was not destroyed still names a page.
    leaked: bool,
}

impl Registers {
    /// Allocates the plain page. `blueflame_size` is the register size that the device reports.
    fn new(file: &dyn DeviceFile, blueflame_size: u32, max_pages: usize) -> Result<Self, Errno> {
        let plain = Page::new(file, UarType::NonCached, BLUEFLAME + size_of::<u64>())?;
        let size = blueflame_size as usize;
        // Each half holds whole basic blocks; registers are adjacent and aligned to their size. Any
        // other size turns BlueFlame off.
        let sound = size.is_power_of_two() && (2 * BLUEFLAME_UNIT..=BLUEFLAME / 2).contains(&size);
        Ok(Self {
            plain: Some(plain),
            blueflame_size: if sound { size } else { 0 },
            max_pages,
            state: Mutex::default(),
        })
    }

    fn plain(&self) -> &Page {
        self.plain.as_ref().expect("closed with the context only")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the page and the register for arming completion queues.
    fn cq(&self) -> CqUar {
        let plain = self.plain();
        // SAFETY: the page is mapped as long as the pool, which queues keep alive by their context.
        let register = unsafe { CompletionQueueRegister::new(plain.register(CQ_DOORBELL)) };
        CqUar { page_id: plain.uar.page_id, register }
    }

    fn blueflame_register(&self, state: &State, which: BlueFlame) -> (u32, NonNull<u8>) {
        let page = &state.pages[which.page];
        (page.uar.page_id, page.register(BLUEFLAME + which.index * self.blueflame_size))
    }

    /// Allocates one more BlueFlame page. Sets the last register of the first page apart for
    /// sharing.
    fn grow(&self, state: &mut State, file: &dyn DeviceFile) -> Result<(), Errno> {
        if self.blueflame_size == 0 || state.exhausted || state.pages.len() >= self.max_pages {
            return Err(Errno::ENOSPC);
        }
        let len = BLUEFLAME + BLUEFLAME_REGISTERS * self.blueflame_size;
        let page = Page::new(file, UarType::BlueFlame, len).inspect_err(|errno| {
            state.exhausted = !matches!(errno, Errno::EIO | Errno::ENODEV);
        })?;
        let number = state.pages.len();
        state.pages.push(page);
        let mut registers =
            (0..BLUEFLAME_REGISTERS).rev().map(|index| BlueFlame { page: number, index });
        if state.shared.is_none()
            && let Some(which) = registers.next()
        {
            let (_, register) = self.blueflame_register(state, which);
            state.shared = Some((which, Box::new(SharedBlueFlame::new(register))));
        }
        state.free.extend(registers);
        Ok(())
    }

    /// Takes an exclusive BlueFlame register.
    fn own(&self, state: &mut State, file: &dyn DeviceFile) -> Result<Place, Errno> {
        if state.free.is_empty() {
            self.grow(state, file)?;
        }
        state.free.pop().map(Place::Own).ok_or(Errno::ENOSPC)
    }

    /// Takes a share of the shared BlueFlame register.
    fn shared(&self, state: &mut State, file: &dyn DeviceFile) -> Result<Place, Errno> {
        if state.shared.is_none() {
            self.grow(state, file)?;
        }
        state.sharers += 1;
        Ok(Place::Shared)
    }

    fn acquire(&self, file: &dyn DeviceFile, choice: DoorbellChoice) -> Result<Place, Errno> {
        let state = &mut *self.state();
        match choice {
            DoorbellChoice::Auto => self
                .own(state, file)
                .or_else(|errno| match errno {
                    Errno::EIO | Errno::ENODEV => Err(errno),
                    _ if state.sharers >= MAX_SHARERS => Ok(Place::Plain),
                    _ => self.shared(state, file),
                })
                .or_else(|errno| match errno {
                    Errno::EIO | Errno::ENODEV => Err(errno),
                    _ => Ok(Place::Plain),
                }),
            DoorbellChoice::BlueFlame => self.own(state, file),
            DoorbellChoice::SharedBlueFlame => self.shared(state, file),
            DoorbellChoice::Doorbell => Ok(Place::Plain),
        }
    }

    fn page_id(&self, place: Place) -> u32 {
        let state = self.state();
        match (place, &state.shared) {
            (Place::Own(which), _) => self.blueflame_register(&state, which).0,
            (Place::Shared, Some((which, _))) => self.blueflame_register(&state, *which).0,
            _ => self.plain().uar.page_id,
        }
    }

    fn send_register(&self, place: Place) -> SendRegister {
        let state = self.state();
        match (place, &state.shared) {
            (Place::Own(which), _) => {
                let (_, register) = self.blueflame_register(&state, which);
                // SAFETY: the page is mapped as long as the pool, to which `SendUar` holds a
                // reference. The register is not in `free` while that value lives, so nothing else
                // writes to it.
                unsafe { SendRegister::blueflame(register, self.blueflame_size) }
            }
            (Place::Shared, Some((_, shared))) => {
                // SAFETY: the register was set apart, so only `shared` accesses it. `shared` is
                // boxed: it stays at its address as long as the pool, to which `SendUar` holds a
                // reference.
                unsafe { SendRegister::shared_blueflame((&**shared).into(), self.blueflame_size) }
            }
            // SAFETY: the page is mapped as long as the pool, to which `SendUar` holds a reference.
            _ => unsafe { SendRegister::doorbell(self.plain().register(BLUEFLAME)) },
        }
    }

    /// Returns the first byte of a register, and the offset of its page in the device's file.
    fn raw_address(&self, place: Place) -> (NonNull<u8>, u64) {
        let state = self.state();
        let which = match (place, &state.shared) {
            (Place::Own(which), _) => which,
            (Place::Shared, Some((which, _))) => *which,
            _ => return (self.plain().register(BLUEFLAME), self.plain().uar.mmap_offset),
        };
        (self.blueflame_register(&state, which).1, state.pages[which.page].uar.mmap_offset)
    }

    /// Unmaps and frees the pages, before the file is closed.
    fn close(&mut self, file: &dyn DeviceFile) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for page in state.pages.drain(..).chain(self.plain.take()) {
            drop(page.mapping);
            // A queue that was not destroyed may still name the page. Then, and if this call fails,
            // the kernel frees both in the right order when the file is closed.
            if !state.leaked {
                let _ = uar::destroy(file, page.uar.handle);
            }
        }
    }

    /// Drops the pages without unmapping them, in a child process, where the ranges may hold other
    /// mappings.
    fn forget_mappings(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.pages.drain(..).chain(self.plain.take()).for_each(|page| page.mapping.leak());
    }
}

/// The register for arming a completion queue.
pub(crate) struct CqUar {
    /// The device's number of the page.
    pub(crate) page_id: u32,
    /// The register, valid as long as the pool.
    pub(crate) register: CompletionQueueRegister,
}

/// The UAR pages of a context. Dropping it unmaps and frees them.
pub(crate) struct Uars {
    registers: Registers,
    link: Arc<Link>,
}

impl Uars {
    /// Allocates the page for plain doorbells. `blueflame_size` is the register size that the
    /// device reports.
    pub(crate) fn new(
        link: &Arc<Link>,
        blueflame_size: u32,
        max_pages: usize,
    ) -> Result<Arc<Self>, Errno> {
        let registers = Registers::new(&*link.file, blueflame_size, max_pages)?;
        Ok(Arc::new(Self { registers, link: Arc::clone(link) }))
    }

    /// Returns the page and the register for arming completion queues.
    pub(crate) fn cq(&self) -> CqUar {
        self.registers.cq()
    }

    /// Returns the page on which completion queues are armed.
    pub(crate) fn cq_page(&self) -> NonNull<u8> {
        self.registers.plain().register(0)
    }

    /// Keeps the pages allocated: a queue that was not destroyed still names one.
    pub(crate) fn keep(&self) {
        if !self.link.forked() {
            self.registers.state().leaked = true;
        }
    }

    /// Assigns a register to a send queue.
    pub(crate) fn acquire(self: &Arc<Self>, choice: DoorbellChoice) -> Result<SendUar, Error> {
        let link = &self.link;
        let place = self
            .registers
            .acquire(&*link.file, choice)
            .map_err(|errno| link.fail("alloc_uar", errno))?;
        Ok(SendUar::new(self, place, self.registers.page_id(place), None))
    }
}

impl Drop for Uars {
    fn drop(&mut self) {
        if self.link.forked() {
            self.registers.forget_mappings();
        } else {
            self.registers.close(&*self.link.file);
        }
    }
}

/// The register of a send queue.
#[derive(Clone, Copy)]
enum Place {
    Own(BlueFlame),
    Shared,
    Plain,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;

    const SIZE: u32 = 512;

    fn device(blueflame_pages: usize) -> Memory {
        let file = Memory::default();
        file.set_blueflame_pages(blueflame_pages);
        file
    }

    /// Returns the modes of the next `count` queues.
    fn modes(uars: &Registers, file: &Memory, count: usize) -> Vec<&'static str> {
        let mode = |_| match uars.acquire(file, DoorbellChoice::Auto).unwrap() {
            Place::Own(_) => "own",
            Place::Shared => "shared",
            Place::Plain => "plain",
        };
        (0..count).map(mode).collect()
    }

    fn address(uars: &Registers, which: BlueFlame) -> usize {
        uars.blueflame_register(&uars.state(), which).1.addr().get()
    }

    #[test]
    fn queues_get_their_own_registers_until_the_kernel_refuses_then_share_one() {
        let file = device(2);
        let uars = Registers::new(&file, SIZE, 256).unwrap();
        assert_eq!(modes(&uars, &file, 5), ["own", "own", "own", "shared", "shared"]);
        file.set_blueflame_pages(1);
        assert_eq!(modes(&uars, &file, 1), ["shared"], "the kernel is not asked again");
    }

    #[test]
    fn not_too_many_share_a_register_unless_they_ask_to() {
        let file = device(1);
        let uars = Registers::new(&file, SIZE, 256).unwrap();
        let found = modes(&uars, &file, 1 + MAX_SHARERS + 2);
        assert_eq!(found[1..=MAX_SHARERS], ["shared"; MAX_SHARERS]);
        assert_eq!(found[MAX_SHARERS + 1..], ["plain"; 2]);
        let asked = uars.acquire(&file, DoorbellChoice::SharedBlueFlame).unwrap();
        assert!(matches!(asked, Place::Shared));
    }

    #[test]
    fn the_limit_of_pages_is_kept() {
        let file = device(9);
        let uars = Registers::new(&file, SIZE, 1).unwrap();
        assert_eq!(modes(&uars, &file, 3), ["own", "shared", "shared"]);
        assert_eq!(file.uars(), 2, "one of each kind");
    }

    #[test]
    fn without_blueflame_all_ring_plain_doorbells() {
        for (size, device_pages, max_pages) in [(0, 9, 9), (SIZE, 0, 9), (SIZE, 9, 0)] {
            let file = device(device_pages);
            let uars = Registers::new(&file, size, max_pages).unwrap();
            assert_eq!(modes(&uars, &file, 2), ["plain", "plain"]);
            assert_eq!(uars.acquire(&file, DoorbellChoice::BlueFlame).err(), Some(Errno::ENOSPC));
        }
    }

    #[test]
    fn a_register_size_that_makes_no_sense_counts_as_none() {
        for size in [1, 64, 384, 4096, u32::MAX] {
            assert_eq!(Registers::new(&device(9), size, 9).unwrap().blueflame_size, 0, "{size}");
        }
    }

    #[test]
    fn no_two_queues_have_the_same_register_and_none_has_the_shared_one() {
        let file = device(3);
        let uars = Registers::new(&file, SIZE, 256).unwrap();
        let mut registers: Vec<usize> = (0..5)
            .map(|_| match uars.acquire(&file, DoorbellChoice::BlueFlame).unwrap() {
                Place::Own(which) => address(&uars, which),
                _ => panic!("a register of its own was asked for"),
            })
            .collect();
        let shared = uars.state().shared.as_ref().map(|(which, _)| *which).unwrap();
        registers.push(address(&uars, shared));
        registers.sort_unstable();
        let offsets: Vec<usize> = registers.iter().map(|register| register % 4096).collect();
        registers.dedup();
        assert_eq!(registers.len(), 6);
        assert!(offsets.iter().all(|offset| [0x800, 0xa00].contains(offset)));
    }

    #[test]
    fn pages_are_given_back_on_closing_unless_a_lost_queue_names_one() {
        for leaked in [false, true] {
            let file = device(1);
            let mut uars = Registers::new(&file, SIZE, 256).unwrap();
            modes(&uars, &file, 2);
            uars.state().leaked = leaked;
            uars.close(&file);
            assert_eq!(file.live(), 0, "all pages are unmapped");
            assert_eq!(file.uars(), if leaked { 2 } else { 0 });
        }
    }
}
