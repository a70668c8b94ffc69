//! Takes the segments apart that change memory keys and signature variables.

use super::item::Item;
use super::layout::{named, read};
use mlx5_prm::signature::{Bsf, SetPsvSegment};
use mlx5_prm::umr::{
    Klm, MkeyContextSegment, RepeatBlock, RepeatEntry, UmrControlSegment, mkey_access, mkey_mask,
    umr_flags,
};
use mlx5_prm::wqe::{BLOCK, UNIT};
use std::mem::{offset_of, size_of};

/// The parts of a key that a UMR changes, by name.
const PARTS: [(u64, &str); 17] = [
    (mkey_mask::LENGTH, "length"),
    (mkey_mask::PAGE_SIZE, "page size"),
    (mkey_mask::START_ADDRESS, "start address"),
    (mkey_mask::PD, "protection domain"),
    (mkey_mask::REMOTE_INVALIDATE, "remote invalidation"),
    (mkey_mask::SIGNATURE_ERROR_COUNT, "signature error count"),
    (mkey_mask::BSF_ENABLE, "BSF enable"),
    (mkey_mask::MKEY, "variant"),
    (mkey_mask::QPN, "queue pair"),
    (mkey_mask::LOCAL_READ, "local read"),
    (mkey_mask::LOCAL_WRITE, "local write"),
    (mkey_mask::REMOTE_READ, "remote read"),
    (mkey_mask::REMOTE_WRITE, "remote write"),
    (mkey_mask::ATOMIC, "atomic"),
    (mkey_mask::RELAXED_ORDERING_WRITE, "relaxed ordering of writes"),
    (mkey_mask::FREE, "free"),
    (mkey_mask::RELAXED_ORDERING_READ, "relaxed ordering of reads"),
];
const FLAGS: [(u8, &str); 5] = [
    (umr_flags::INLINE, "entries in the request"),
    (umr_flags::CHECK_FREE, "fails unless the key is free"),
    (umr_flags::CHECK_NOT_FREE, "fails if the key is free"),
    (umr_flags::TRANSLATION_OFFSET, "with an offset into the translation"),
    (umr_flags::CHECK_QPN, "fails for a key of another queue pair"),
];
const ACCESS: [(u8, &str); 5] = [
    (mkey_access::LOCAL_READ, "local read"),
    (mkey_access::LOCAL_WRITE, "local write"),
    (mkey_access::REMOTE_READ, "remote read"),
    (mkey_access::REMOTE_WRITE, "remote write"),
    (mkey_access::ATOMIC, "atomic"),
];

/// The segments of a UMR from `at` to `end`.
pub(super) fn request(item: &mut Item, bytes: &[u8], at: &mut usize, end: usize) {
    let Some(control) = read::<UmrControlSegment>(&bytes[..end], *at) else { return };
    control_segment(item, *at, &control);
    *at += size_of::<UmrControlSegment>();
    let Some(key) = read::<MkeyContextSegment>(&bytes[..end], *at) else { return };
    key_segment(item, *at, &key);
    *at += size_of::<MkeyContextSegment>();
    let octowords = usize::from(control.klm_octowords.get());
    if control.flags & umr_flags::INLINE == 0 {
        return;
    }
    let listed = (*at + octowords * UNIT).min(end);
    translation(item, &bytes[..listed], *at);
    *at = (*at + (octowords * UNIT).next_multiple_of(BLOCK)).min(end);
    if octowords % 4 != 0 {
        item.note("klm_octowords is no multiple of 4: cards refuse such a request");
    }
    let mut index = 0;
    while let Some(format) = read::<Bsf>(&bytes[..end], *at) {
        byte_stream_format(item, *at, index, &format);
        *at += size_of::<Bsf>();
        index += 1;
    }
}

/// Shows a field of a layout at its own offset.
macro_rules! field {
    ($item:ident, $base:ident, $layout:ident . $field:ident, $value:expr, $meaning:expr) => {
        $item.field($base + offset_of!($layout, $field), stringify!($field), $value, $meaning)
    };
}

fn control_segment(item: &mut Item, base: usize, control: &UmrControlSegment) {
    item.segment("UMR control segment");
    let (flags, mask) = (control.flags, control.mkey_mask.get());
    field!(item, base, UmrControlSegment.flags, format!("{flags:#04x}"), named(flags, &FLAGS));
    let octowords = control.klm_octowords.get();
    field!(item, base, UmrControlSegment.klm_octowords, octowords, "16-byte units of entries");
    let (name, meaning) = match flags & umr_flags::TRANSLATION_OFFSET {
        0 => ("bsf_octowords", "16-byte units of signature formats"),
        _ => ("xlt_offset", "16-byte units before the first entry"),
    };
    let at = base + offset_of!(UmrControlSegment, offset_or_bsf_octowords);
    item.field(at, name, control.offset_or_bsf_octowords.get(), meaning);
    let meaning = match named(mask, &PARTS) {
        parts if parts.is_empty() => "no part of the key changes".to_owned(),
        parts => format!("changes {parts}"),
    };
    field!(item, base, UmrControlSegment.mkey_mask, format!("{mask:#018x}"), meaning);
}

fn key_segment(item: &mut Item, base: usize, key: &MkeyContextSegment) {
    item.segment("memory key segment");
    let free = if key.free & MkeyContextSegment::FREE != 0 { "free" } else { "" };
    field!(item, base, MkeyContextSegment.free, format!("{:#04x}", key.free), free);
    let access = key.access_flags;
    let names = named(access, &ACCESS);
    field!(item, base, MkeyContextSegment.access_flags, format!("{access:#04x}"), names);
    let word = key.qpn_mkey.get();
    let any = word & MkeyContextSegment::ANY_QPN == MkeyContextSegment::ANY_QPN;
    let at = base + offset_of!(MkeyContextSegment, qpn_mkey);
    item.field(
        at,
        "key_qpn",
        format!("{:#08x}", word >> 8),
        if any { "any queue pair" } else { "" },
    );
    item.field(at + 3, "variant", format!("{:#04x}", word & 0xff), "low eight bits of the key");
    let flags = key.flags_pd.get();
    let names = named(
        flags,
        &[
            (MkeyContextSegment::LENGTH_64, "the whole address space"),
            (MkeyContextSegment::BSF_ENABLE, "with signatures"),
            (MkeyContextSegment::REMOTE_INVALIDATE, "peers may invalidate it"),
        ],
    );
    let at = base + offset_of!(MkeyContextSegment, flags_pd);
    item.field(at, "key_flags", format!("{:#04x}", flags >> 24), names);
    item.field(at + 1, "pd", format!("{:#08x}", flags & 0xff_ffff), "");
    let start = format!("{:#018x}", key.start_address.get());
    field!(item, base, MkeyContextSegment.start_address, start, "");
    field!(item, base, MkeyContextSegment.length, key.length.get(), "bytes");
    let at = base + offset_of!(MkeyContextSegment, translations_octword_size);
    item.field(
        at,
        "xlt_octowords",
        key.translations_octword_size.get(),
        "of the whole translation",
    );
    field!(item, base, MkeyContextSegment.log_page_size, key.log_page_size, "");
}

/// The list of entries from `at` to the end of `bytes`: pages, ranges of other keys, or a repeated
/// pattern of them.
fn translation(item: &mut Item, bytes: &[u8], mut at: usize) {
    item.segment("translation entries");
    let repeats = read::<RepeatBlock>(bytes, at).filter(|head| head.op.get() == RepeatBlock::OP);
    if let Some(head) = repeats {
        let meaning = format!("{} bytes each, {} entries", head.byte_count, head.num_entries);
        item.field(at, "repetitions", head.repeat_count.get(), meaning);
        at += size_of::<RepeatBlock>();
        while let Some(entry) = read::<RepeatEntry>(bytes, at) {
            let (address, key) = (entry.address.get(), entry.mkey.get());
            let meaning =
                format!("key {key:#010x}, {} bytes every {}", entry.byte_count, entry.stride);
            item.field(at, "range", format!("{address:#018x}"), meaning);
            at += size_of::<RepeatEntry>();
        }
        return;
    }
    let numbers = bytes.get(at..).unwrap_or_default().chunks_exact(8);
    let numbers = numbers.map(|one| one.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte)));
    let numbers: Vec<u64> = numbers.collect();
    // Of a page, the low bits are its rights.
    let is_page = |number: &u64| *number == 0 || (1..=3).contains(&(number & 0xfff));
    if numbers.iter().any(|number| *number != 0) && numbers.iter().all(is_page) {
        for (index, number) in numbers.iter().enumerate() {
            let rights = match number & 3 {
                0 => "",
                1 => "read",
                2 => "write",
                _ => "read, write",
            };
            item.field(at + 8 * index, "page", format!("{number:#018x}"), rights);
        }
        return;
    }
    while let Some(entry) = read::<Klm>(bytes, at) {
        let meaning = format!("key {:#010x}, {} bytes", entry.mkey.get(), entry.byte_count);
        item.field(at, "range", format!("{:#018x}", entry.address.get()), meaning);
        at += size_of::<Klm>();
    }
}

fn byte_stream_format(item: &mut Item, base: usize, index: usize, format: &Bsf) {
    item.segment(format!("signature format {index}"));
    let size = format!("{:#04x}", format.bsf_size_sbs);
    let same = format.bsf_size_sbs & Bsf::SAME_BLOCK_STRUCTURE != 0;
    let meaning = if same { "both domains have the same blocks" } else { "" };
    field!(item, base, Bsf.bsf_size_sbs, size, meaning);
    let mask = format!("{:#04x}", format.check_byte_mask);
    field!(item, base, Bsf.check_byte_mask, mask, "signature bytes that are checked");
    field!(item, base, Bsf.raw_data_size, format.raw_data_size.get(), "bytes of data");
    for (at, name, word) in [
        (offset_of!(Bsf, wire_format_psv), "wire", format.wire_format_psv.get()),
        (offset_of!(Bsf, memory_format_psv), "memory", format.memory_format_psv.get()),
    ] {
        let meaning = format!("format {:#04x}", word >> Bsf::FORMAT_SHIFT);
        item.field(base + at, name, format!("PSV {:#08x}", word & Bsf::PSV_MASK), meaning);
    }
    for (at, name, domain) in [
        (offset_of!(Bsf, wire), "wire_dif", &format.wire),
        (offset_of!(Bsf, memory), "memory_dif", &format.memory),
    ] {
        let kind = format!("type {:#04x}", domain.signature_type);
        let tags = format!(
            "application tag {:#06x}, reference tag {:#010x}",
            domain.application_tag.get(),
            domain.reference_tag.get()
        );
        item.field(base + at, name, kind, tags);
    }
}

/// The segment of a SET_PSV.
pub(super) fn set_psv(item: &mut Item, bytes: &[u8], at: &mut usize, end: usize) {
    let base = *at;
    let Some(segment) = read::<SetPsvSegment>(&bytes[..end], base) else { return };
    item.segment("PSV segment");
    let psv = format!("{:#08x}", segment.psv_index.get());
    field!(item, base, SetPsvSegment.psv_index, psv, "the signature variable");
    let syndrome = segment.syndrome.get();
    let meaning = if syndrome == 0 { "clears an error" } else { "" };
    field!(item, base, SetPsvSegment.syndrome, format!("{syndrome:#06x}"), meaning);
    let signature = format!("{:#018x}", segment.transient_signature.get());
    let at_signature = base + offset_of!(SetPsvSegment, transient_signature);
    item.field(at_signature, "signature", signature, "the first value");
    *at += size_of::<SetPsvSegment>();
}

#[cfg(test)]
mod tests {
    use crate::dump::hex;
    use crate::dump::wqe::send;

    #[test]
    fn a_umr_with_pages_is_taken_apart() {
        // A line of the kernel, of a list that is not aligned.
        let text = "
            00000025 00104f0c 00000000 00182e00 90000000 00020000 00000000 20000000
            00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
            00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
            00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
            08000000 486a0002 08000000 0e100002 08000000 0cdb0002 08000000 0e820002
            00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000";
        let item = send(&hex::parse(text).expect("hexadecimal"), None);
        let segments =
            ["control segment", "UMR control segment", "memory key segment", "translation entries"];
        assert_eq!(item.segments(), segments);
        let flags = "entries in the request, with an offset into the translation";
        assert_eq!(item.value("flags"), Some((0x10, "0x90", flags)));
        assert_eq!(
            item.value("klm_octowords").map(|(at, value, _)| (at, value)),
            Some((0x14, "2"))
        );
        assert_eq!(item.value("mkey_mask"), Some((0x18, "0x0000000020000000", "changes free")));
        assert_eq!(item.value("page"), Some((0x80, "0x08000000486a0002", "write")));
        assert!(item.notes().contains("no multiple of 4"), "{}", item.notes());
    }

    #[test]
    fn ranges_of_other_keys_and_signatures_are_taken_apart() {
        let mut bytes = vec![0; 64 * 4];
        bytes[..8].copy_from_slice(&[0, 0, 1, 0x25, 0, 0, 7, 16]);
        bytes[16] = 0x80;
        bytes[21] = 4;
        bytes[23] = 4;
        bytes[64 + 2] = 0x0c;
        bytes[128..144].copy_from_slice(&[0, 0, 16, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 1, 0, 0]);
        bytes[193] = 0xc0;
        bytes[203] = 9;
        let item = send(&bytes, None);
        assert_eq!(item.segments()[3..], ["translation entries", "signature format 0"]);
        let range = Some((0x80, "0x0000000000010000", "key 0x00001234, 4096 bytes"));
        assert_eq!(item.value("range"), range);
        assert_eq!(item.value("wire").map(|(at, psv, _)| (at, psv)), Some((0xc8, "PSV 0x000009")));
        assert_eq!(item.notes(), "");
    }

    #[test]
    fn a_signature_variable_is_taken_apart() {
        let text = "00000520 00000702 00000008 00000000 0000000a 00000000 ffff1234 00000007";
        let item = send(&hex::parse(text).expect("hexadecimal"), None);
        assert_eq!(item.segments(), ["control segment", "PSV segment"]);
        assert_eq!(item.value("psv_index").map(|(_, psv, _)| psv), Some("0x00000a"));
        let signature = item.value("signature").map(|(at, _, _)| at);
        assert_eq!(signature, Some(8), "that of the request comes first");
        assert!(item.fields().any(|field| field.value == "0xffff123400000007"));
    }

    #[test]
    fn what_is_cut_off_is_shown_as_bytes() {
        let text = "00000025 00000704 00000000 00001200 80000000 00040000 00000000 00000001";
        let item = send(&hex::parse(text).expect("hexadecimal"), None);
        assert!(item.notes().contains("cut off"), "{}", item.notes());
        assert_eq!(item.segments()[1..], ["segments that are not taken apart"]);
    }
}
