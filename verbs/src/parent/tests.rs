//! Memory returns to its owner: the program's allocator, or the library.

use super::*;

/// The memory that the program provides, and the memory that it got back.
#[derive(Default)]
struct Program {
    answer: usize,
    freed: Vec<usize>,
}

unsafe extern "C" fn take(
    _pd: *mut ibv_pd,
    own: *mut c_void,
    _size: usize,
    _alignment: usize,
    _kind: u64,
) -> *mut c_void {
    // SAFETY: the test passes a pointer to its `Program`.
    ptr::with_exposed_provenance_mut(unsafe { (*own.cast::<Program>()).answer })
}

unsafe extern "C" fn give_back(
    _pd: *mut ibv_pd,
    own: *mut c_void,
    memory: *mut c_void,
    _kind: u64,
) {
    // SAFETY: the test passes a pointer to its `Program`.
    unsafe { (*own.cast::<Program>()).freed.push(memory.addr()) };
}

/// The library provides memory, and the program the next piece at the same address: that piece goes
/// back to the program, and is not unmapped.
#[test]
fn memory_of_a_program_is_not_taken_for_what_the_library_had_at_its_address() {
    const LENGTH: usize = 4096;
    let mut program = Program { answer: USE_DEFAULT, freed: Vec::new() };
    let functions = CAllocators {
        pd: ptr::null_mut(),
        pd_context: (&raw mut program).cast(),
        allocate: take,
        free: give_back,
    };
    let own = Mutex::default();
    let allocator = CAllocator { functions, purpose: Purpose::CompletionQueue, own };
    let librarys = allocator.allocate(LENGTH, LENGTH).expect("memory");
    // SAFETY: it was allocated above, with this length.
    unsafe { allocator.free(librarys, LENGTH) };
    assert_eq!(program.freed, []);
    // No code uses the memory, so it does not matter whether anything is mapped there.
    program.answer = librarys.as_ptr().expose_provenance();
    let programs = allocator.allocate(LENGTH, LENGTH).expect("memory");
    assert_eq!(programs, librarys);
    // SAFETY: it was allocated above, with this length.
    unsafe { allocator.free(programs, LENGTH) };
    assert_eq!(program.freed, [librarys.addr().get()]);
}

#[test]
fn memory_of_the_library_is_kept_apart_from_a_programs_in_any_order() {
    const LENGTH: usize = 4096;
    let mut piece = [0_u64; 8];
    let mut program = Program { answer: USE_DEFAULT, freed: Vec::new() };
    let functions = CAllocators {
        pd: ptr::null_mut(),
        pd_context: (&raw mut program).cast(),
        allocate: take,
        free: give_back,
    };
    let own = Mutex::default();
    let allocator = CAllocator { functions, purpose: Purpose::QueuePair, own };
    let librarys = [0; 3].map(|_| allocator.allocate(LENGTH, LENGTH).expect("memory"));
    program.answer = piece.as_mut_ptr().expose_provenance();
    let programs = allocator.allocate(size_of_val(&piece), 8).expect("memory");
    for at in [librarys[1], programs, librarys[0], librarys[2]] {
        let length = if at == programs { size_of_val(&piece) } else { LENGTH };
        // SAFETY: each was allocated with this length, and is freed once.
        unsafe { allocator.free(at, length) };
    }
    assert_eq!(program.freed, [programs.addr().get()]);
    assert_eq!(*allocator.own.lock().expect("no panic"), [0; 0]);
    program.answer = 0;
    assert!(allocator.allocate(LENGTH, LENGTH).is_none());
    assert!(matches!(allocator.allocate_record(), RecordMemory::Unavailable));
    program.answer = USE_DEFAULT;
    assert!(matches!(allocator.allocate_record(), RecordMemory::Driver));
}
