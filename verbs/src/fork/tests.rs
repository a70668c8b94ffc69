//! Which pages are kept from children.

use super::*;

fn pages() -> Pages {
    Pages { counts: BTreeMap::new(), size: 4096, large: false }
}

/// The same model with a count for every page.
struct Simple(Vec<u32>);

impl Simple {
    fn change(&mut self, range: &Range<usize>, up: bool) -> Vec<Range<usize>> {
        let mut changed: Vec<Range<usize>> = Vec::new();
        for page in range.clone() {
            let before = self.0[page];
            self.0[page] = if up { before + 1 } else { before - 1 };
            if (before == 0) != (self.0[page] == 0) {
                match changed.last_mut().filter(|last| last.end == page) {
                    Some(last) => last.end = page + 1,
                    None => changed.push(page..page + 1),
                }
            }
        }
        changed
    }
}

#[test]
fn a_page_changes_with_its_first_and_its_last_registration_only() {
    let seed: u64 = 0x5eed;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut pages, mut simple) = (pages(), Simple(vec![0; 40]));
    let mut registered: Vec<Range<usize>> = Vec::new();
    for step in 0..4000 {
        let up = registered.is_empty() || registered.len() < 12 && random(2) == 0;
        let range = if up {
            let start = random(39);
            let range = start..start + 1 + random(40 - start - 1).min(12);
            registered.push(range.clone());
            range
        } else {
            registered.swap_remove(random(registered.len()))
        };
        let by = |count: u32| if up { count + 1 } else { count - 1 };
        assert_eq!(pages.change(&range, by), simple.change(&range, up), "step {step}: {range:?}");
        for page in 0..40 {
            assert_eq!(pages.count(page), simple.0[page], "step {step}, page {page}");
        }
        // There are no more edges than the ranges have.
        assert!(pages.counts.len() <= 2 * registered.len(), "step {step}: {:?}", pages.counts);
    }
    for range in registered.drain(..) {
        pages.change(&range, |count| count - 1);
    }
    assert!(pages.counts.is_empty(), "{:?}", pages.counts);
}

/// Whether the kernel keeps the page at an address from children.
fn kept(address: usize) -> bool {
    let maps = fs::read_to_string("/proc/self/smaps").expect("the mappings of this process");
    let at = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(start)?..number(end)?).contains(&address))
    };
    let mut lines = maps.lines().skip_while(|line| at(line) != Some(true));
    let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("flags of a mapping");
    flags.split(' ').any(|flag| flag == "dc")
}

#[test]
fn registered_pages_are_withheld_from_children_until_the_last_deregistration() {
    const PAGE: usize = 4096;
    // SAFETY: the mapping is new, at an address that the kernel chooses.
    let memory = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), 8 * PAGE, rights, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let at = |page: usize| memory.addr() + page * PAGE;
    let mut pages = Pages::new();
    assert_eq!(pages.size, PAGE, "this test is for pages of {PAGE} bytes");
    // Bytes of pages 1 and 2, and of 2 to 4.
    pages.keep(at(1) + 100, PAGE).expect("pages 1 and 2");
    pages.keep(at(2) + 100, 2 * PAGE).expect("pages 2 to 4");
    let now = || [0, 1, 2, 3, 4, 5].map(|page| kept(at(page)));
    assert_eq!(now(), [false, true, true, true, true, false]);
    pages.release(at(1) + 100, PAGE);
    assert_eq!(now(), [false, false, true, true, true, false]);
    // It is partly unmapped before it is released.
    // SAFETY: the page is part of the test's mapping, and no reference to it exists.
    assert_eq!(unsafe { libc::munmap(memory.wrapping_byte_add(3 * PAGE), PAGE) }, 0);
    pages.release(at(2) + 100, 2 * PAGE);
    assert_eq!([2, 4].map(|page| kept(at(page))), [false, false]);
    assert!(pages.counts.is_empty());
    // If a page does not exist, nothing of the range is kept.
    let refused = pages.keep(at(2), 3 * PAGE);
    assert_eq!(refused, Err(Refusal(libc::ENOMEM)));
    assert_eq!([2, 4].map(|page| kept(at(page))), [false, false]);
    assert!(pages.counts.is_empty());
    // SAFETY: the rest of the test's mapping, to which no reference exists.
    assert_eq!(unsafe { libc::munmap(memory, 8 * PAGE) }, 0);
}

#[test]
fn the_size_of_a_page_is_that_of_its_mapping() {
    let maps = "10000-20000 rw-p 0 00:00 0\nSize: 64 kB\nKernelPageSize:        4 kB\n\
                20000-600000 rw-p 0 00:00 0 /huge\nKernelPageSize:     2048 kB\n";
    assert_eq!(page_size_in(maps, 0x1ffff), Some(4096));
    assert_eq!(page_size_in(maps, 0x20000), Some(2 << 20));
    assert_eq!(page_size_in(maps, 0x600000), None);
}
