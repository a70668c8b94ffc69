//! Compares functions that need no device with those of rdma-core's library, where that is
//! installed.

use mlx5_verbs::abi::*;
use mlx5_verbs::{ece, fork, from_kernel, rates, sysfs, texts};
use std::env;
use std::ffi::{CStr, CString};
use std::fs;
use std::mem::{MaybeUninit, size_of, transmute_copy};

/// The library's paths in distributions.
const PATHS: [&CStr; 3] = [
    c"/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    c"/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
    c"/usr/lib64/libibverbs.so.1",
];

/// Functions that release 44 of the library does not have.
const NEWER: [&CStr; 1] = [c"ibv_wr_opcode_str"];

/// C's function of a name. Returns nothing, and prints why, if the library is not installed or is
/// older than the function. With `MLX5_NEED_C` the library must exist.
///
/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn c<F: Copy>(name: &CStr) -> Option<F> {
    let open = |path: &&CStr| {
        // SAFETY: the library's constructors have no precondition.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(library)
    };
    let Some(library) = PATHS.iter().find_map(open) else {
        assert!(env::var_os("MLX5_NEED_C").is_none(), "there is no libibverbs.so.1");
        println!("skipped: there is no libibverbs.so.1");
        return None;
    };
    // SAFETY: the library is open, and stays so.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    if function.is_null() {
        assert!(NEWER.contains(&name), "libibverbs.so.1 has no {}", name.to_string_lossy());
        println!("skipped: this libibverbs.so.1 has no {}", name.to_string_lossy());
        return None;
    }
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: the caller promises that `F` is the function's type; a pointer to a function is as
    // large as one to data.
    Some(unsafe { transmute_copy(&function) })
}

fn said(text: *const c_char) -> Option<String> {
    // SAFETY: the texts are constants. C's tables have NULL entries.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().expect("a text").to_owned())
}

/// Compares the texts of all numbers for which C's library has one.
fn same_texts(name: &CStr, ours: impl Fn(c_uint) -> *const c_char, newer: &[c_uint]) {
    // SAFETY: the functions of these names take an enumeration.
    let c: Option<extern "C" fn(c_uint) -> *const c_char> = unsafe { c(name) };
    let Some(c) = c else { return };
    for number in (0..64).chain([u32::MAX, u32::MAX / 2]) {
        let (theirs, ours) = (said(c(number)), said(ours(number)).expect("a text"));
        match theirs.as_deref() {
            // C's table has no entry, or this number is newer than C's release.
            None => assert_eq!(ours, "unknown", "{name:?} {number}"),
            Some("unknown") if newer.contains(&number) => assert_ne!(ours, "unknown"),
            Some(theirs) => assert_eq!(ours, theirs, "{name:?} {number}"),
        }
    }
}

#[test]
fn numbers_are_called_as_c_calls_them() {
    same_texts(c"ibv_node_type_str", |number| texts::node_type_str(number as c_int), &[]);
    same_texts(c"ibv_port_state_str", |number| texts::port_state_str(number), &[]);
    let newer = [IBV_EVENT_DEVICE_SPEED_CHANGE];
    same_texts(c"ibv_event_type_str", |number| texts::event_type_str(number), &newer);
    same_texts(c"ibv_wc_status_str", |number| texts::wc_status_str(number), &[]);
    // Not in the library of release 44.
    same_texts(c"ibv_wr_opcode_str", |number| texts::wr_opcode_str(number), &[]);
    for (number, text) in [(0, "rdma-write"), (4, "rdma-read"), (11, "driver1"), (12, "unknown")] {
        assert_eq!(said(texts::wr_opcode_str(number)).as_deref(), Some(text));
    }
}

#[test]
fn every_rate_is_the_one_that_c_says() {
    type Function = extern "C" fn(c_int) -> c_int;
    let same =
        |name: &CStr, ours: &dyn Fn(c_int) -> c_int, numbers: &mut dyn Iterator<Item = c_int>| {
            // SAFETY: the functions of these names take a number or an enumeration, and return one.
            let Some(c) = (unsafe { c::<Function>(name) }) else { return };
            for number in numbers {
                assert_eq!(ours(number), c(number), "{name:?} {number}");
            }
        };
    same(c"ibv_rate_to_mult", &|rate| rates::rate_to_mult(rate as c_uint), &mut (-2..64));
    same(c"ibv_rate_to_mbps", &|rate| rates::rate_to_mbps(rate as c_uint), &mut (-2..64));
    same(c"mult_to_ibv_rate", &|mult| rates::mult_to_rate(mult) as c_int, &mut (-2..1000));
    same(c"mbps_to_ibv_rate", &|mbps| rates::mbps_to_rate(mbps) as c_int, &mut (-2..1_300_000));
}

/// Copies random bytes by C's function and by ours, over the same bytes, and compares the results.
fn same_copy<To, From>(
    name: &CStr,
    ours: unsafe extern "C" fn(*mut To, *const From),
    random: &mut impl FnMut() -> u8,
) {
    // SAFETY: the functions of these names take these structures.
    let c: Option<unsafe extern "C" fn(*mut To, *const From)> = unsafe { c(name) };
    let Some(c) = c else { return };
    for _ in 0..100 {
        let mut from = MaybeUninit::<From>::uninit();
        // SAFETY: the bytes are those of the structure, which consists of numbers.
        unsafe { fill(from.as_mut_ptr().cast(), size_of::<From>(), &mut *random) };
        let [first, second] = [c, ours].map(|copy| {
            let mut to = MaybeUninit::<To>::uninit();
            // SAFETY: the function of this name takes these structures, and both are valid.
            unsafe {
                to.as_mut_ptr().cast::<u8>().write_bytes(0xa5, size_of::<To>());
                copy(to.as_mut_ptr(), from.as_ptr());
                std::slice::from_raw_parts(to.as_ptr().cast::<u8>(), size_of::<To>()).to_vec()
            }
        });
        assert_eq!(first, second, "{name:?}");
    }
}

unsafe fn fill(place: *mut u8, length: usize, random: &mut impl FnMut() -> u8) {
    for at in 0..length {
        // SAFETY: the caller promises that the bytes from `place` on are writable.
        unsafe { place.add(at).write(random()) };
    }
}

#[test]
fn attributes_of_the_kernel_are_copied_as_c_copies_them() {
    let mut state: u32 = 0x5eed;
    println!("seed {state:#x}");
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let r = &mut random;
    same_copy(c"ibv_copy_ah_attr_from_kern", from_kernel::copy_ah_attr_from_kern, r);
    same_copy(c"ibv_copy_qp_attr_from_kern", from_kernel::copy_qp_attr_from_kern, r);
    same_copy(c"ibv_copy_path_rec_from_kern", from_kernel::copy_path_rec_from_kern, r);
    same_copy(c"ibv_copy_path_rec_to_kern", from_kernel::copy_path_rec_to_kern, r);
}

#[test]
fn a_file_of_sysfs_is_read_as_c_reads_it() {
    type Read = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int;
    // SAFETY: `Read` is the function's type.
    let Some(theirs) = (unsafe { c::<Read>(c"ibv_read_sysfs_file") }) else { return };
    let folder = env::temp_dir().join(format!("mlx5-sysfs-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let name = CString::new(folder.to_str().expect("a name")).expect("a name");
    for (file, text) in [
        (c"empty", ""),
        (c"line", "abc\n"),
        (c"open", "abcd"),
        (c"two", "a\nb\n\n"),
        (c"break", "\n"),
    ] {
        fs::write(folder.join(file.to_str().expect("a name")), text).expect("a file");
        for size in 0..8 {
            let [theirs, ours] = [theirs, sysfs::read_sysfs_file as Read].map(|read| {
                let mut buffer = [0x5a_u8; 8];
                // SAFETY: the buffer has at least `size` bytes.
                let found =
                    unsafe { read(name.as_ptr(), file.as_ptr(), buffer.as_mut_ptr().cast(), size) };
                (found, buffer)
            });
            assert_eq!(ours.0, theirs.0, "{text:?} into {size} bytes");
            let written = usize::try_from(ours.0).map_or(0, |length| length + 1);
            assert_eq!(
                ours.1[..written.min(8)],
                theirs.1[..written.min(8)],
                "{text:?} into {size} bytes"
            );
            assert!(ours.1[size..].iter().all(|&byte| byte == 0x5a), "{text:?} into {size} bytes");
        }
    }
    // SAFETY: both are texts, and no byte is written to a buffer of size 0.
    let absent = unsafe {
        sysfs::read_sysfs_file(name.as_ptr(), c"absent".as_ptr(), std::ptr::null_mut(), 0)
    };
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((absent, errno), (-1, Some(libc::ENOENT)));
    fs::remove_dir_all(&folder).expect("a folder");
}

#[test]
fn sysfs_is_where_c_has_it() {
    // SAFETY: this is the function's type.
    let theirs: Option<extern "C" fn() -> *const c_char> = unsafe { c(c"ibv_get_sysfs_path") };
    let Some(theirs) = theirs else { return };
    assert_eq!(said(sysfs::get_sysfs_path()), said(theirs()));
}

#[test]
fn whether_the_kernel_copies_pages_for_children_is_what_c_says() {
    // SAFETY: this is the function's type.
    let theirs: Option<extern "C" fn() -> c_uint> = unsafe { c(c"ibv_is_fork_initialized") };
    let Some(theirs) = theirs else { return };
    let needless = |status| status == IBV_FORK_UNNEEDED;
    assert_eq!(needless(fork::is_fork_initialized()), needless(theirs()));
}

#[test]
fn no_option_of_connection_establishment_is_taken_and_none_is_offered() {
    let mut given = ibv_ece { vendor_id: 1, options: 2, comp_mask: 3 };
    // SAFETY: the function does not read the queue pair.
    let answer = unsafe { ece::query_ece(std::ptr::null_mut(), &mut given) };
    assert_eq!((answer, given.vendor_id, given.options, given.comp_mask), (0, 0x15b3, 0, 0));
    for (vendor_id, comp_mask, expected) in [
        (0x15b3, 0, 0),
        (0, 0, libc::EOPNOTSUPP),
        (0x1137, 0, libc::EINVAL),
        (0x15b3, 1, libc::EINVAL),
    ] {
        let mut offered = ibv_ece { vendor_id, options: 0xf0, comp_mask };
        // SAFETY: the function does not read the queue pair.
        let answer = unsafe { ece::set_ece(std::ptr::null_mut(), &mut offered) };
        assert_eq!(answer, expected, "vendor {vendor_id:#x}, mask {comp_mask}");
    }
}
