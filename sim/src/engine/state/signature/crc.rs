//! Checks over blocks of data, as the standards define them.

/// A reflected CRC of up to 64 bits, bit by bit from a table.
fn reflected(table: &[u64; 256], seed: u64, data: &[u8]) -> u64 {
    data.iter().fold(seed, |crc, byte| table[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

/// The table of a reflected polynomial.
const fn table(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// The table of T10-DIF's polynomial, which is not reflected.
const fn t10_table() -> [u16; 256] {
    const POLYNOMIAL: u16 = 0x8bb7;
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 15 == 1 { crc << 1 ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

static CRC32: [u64; 256] = table(0xedb8_8320);
static CRC32C: [u64; 256] = table(0x82f6_3b78);
static CRC64_XP10: [u64; 256] = table(0x9a6c_9329_ac4b_c9b5);
static T10: [u16; 256] = t10_table();

/// CRC-32 of ANSI X3.230 (FC-PH), which is Ethernet's.
pub(crate) fn crc32(seed: u32, data: &[u8]) -> u32 {
    !(reflected(&CRC32, seed.into(), data) as u32)
}

/// CRC-32C of RFC 3720 (iSCSI).
pub(crate) fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !(reflected(&CRC32C, seed.into(), data) as u32)
}

/// CRC-64 of the XP10 compression format, which is NVMe's too.
pub(crate) fn crc64_xp10(seed: u64, data: &[u8]) -> u64 {
    !reflected(&CRC64_XP10, seed, data)
}

/// CRC-16 of T10 SBC-3.
pub(crate) fn t10_crc(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |crc, byte| T10[usize::from((crc >> 8) as u8 ^ byte)] ^ crc << 8)
}

/// The Internet checksum of RFC 1071.
pub(crate) fn ip_checksum(seed: u16, data: &[u8]) -> u16 {
    let (words, odd) = data.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    let words = words.iter().map(|word| u64::from(u16::from_be_bytes(*word)));
    let mut sum = u64::from(seed) + words.sum::<u64>() + last;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input of the check value that catalogues of CRCs list.
    const CHECK: &[u8] = b"123456789";

    #[test]
    fn crc32_is_the_one_of_fibre_channel_and_ethernet() {
        assert_eq!(crc32(u32::MAX, CHECK), 0xcbf4_3926);
        assert_eq!(crc32(u32::MAX, &[0; 32]), 0x190a_55ad);
        assert_ne!(crc32(0, CHECK), crc32(u32::MAX, CHECK));
    }

    #[test]
    fn crc32c_has_the_vectors_of_rfc_3720() {
        // Appendix B.4: the bytes of the CRC in the order in which they are sent.
        let sent = |data: &[u8]| crc32c(u32::MAX, data).to_le_bytes();
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(sent(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(sent(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(sent(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(sent(&down), [0x5c, 0xdb, 0x3f, 0x11]);
        assert_eq!(crc32c(u32::MAX, CHECK), 0xe306_9283);
    }

    #[test]
    fn crc64_xp10_has_the_vectors_of_the_nvm_command_set() {
        assert_eq!(crc64_xp10(u64::MAX, CHECK), 0xae8b_1486_0a79_9888);
        assert_eq!(crc64_xp10(u64::MAX, &[0; 4096]), 0x6482_d367_eb22_b64e);
        assert_eq!(crc64_xp10(u64::MAX, &[0xff; 4096]), 0xc0dd_ba73_02ec_a3ac);
    }

    #[test]
    fn the_t10_crc_has_its_check_value_and_the_vectors_of_sbc_3() {
        assert_eq!(t10_crc(0, CHECK), 0xd0db);
        assert_eq!(t10_crc(0, &[0; 32]), 0);
        assert_eq!(t10_crc(0, &[0xff; 32]), 0xa293);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(t10_crc(0, &up), 0x0224);
        let mut ones = [0; 32];
        ones[..2].fill(0xff);
        assert_eq!(t10_crc(0, &ones), 0x21b8);
        let down: Vec<u8> = (0xe0..=0xff).rev().collect();
        assert_eq!(t10_crc(0, &down), 0xa0b7);
    }

    #[test]
    fn the_ip_checksum_has_the_example_of_rfc_1071() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ip_checksum(0, &words), !0xddf2);
        assert_eq!(ip_checksum(0, &[0; 512]), 0xffff);
        assert_eq!(ip_checksum(0xffff, &[0; 512]), 0);
    }
}
