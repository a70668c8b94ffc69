//! VLAN tags: inserts and strips them.

use crate::frame::headers::{C_TAG, ETHERNET, TAG, number};

/// Offset of a tag: after the addresses.
const PLACE: usize = ETHERNET - 2;

/// Inserts a tag before the ethertype of the frame.
pub(crate) fn insert(frame: &mut Vec<u8>, kind: u16, control: u16) {
    let tag = [kind, control].map(u16::to_be_bytes);
    frame.splice(PLACE..PLACE, tag.into_iter().flatten());
}

/// Removes the customer's tag, if it is the frame's first tag.
pub(crate) fn strip(frame: &mut Vec<u8>) -> Option<u16> {
    let control = number(frame, PLACE + 2).filter(|_| frame.len() >= ETHERNET + TAG)?;
    if number(frame, PLACE)? != C_TAG {
        return None;
    }
    frame.drain(PLACE..PLACE + TAG);
    Some(control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::headers::S_TAG;
    use crate::frame::samples::{tagged, udp4};

    #[test]
    fn a_tag_goes_in_and_out() {
        let plain = udp4(b"data");
        let mut frame = plain.clone();
        insert(&mut frame, C_TAG, 0x7abc);
        assert_eq!(frame, tagged(&plain, C_TAG, 0x7abc));
        assert_eq!(strip(&mut frame), Some(0x7abc));
        assert_eq!(frame, plain);
        assert_eq!(strip(&mut frame), None);
    }

    #[test]
    fn only_the_customers_tag_comes_out_whole() {
        let mut frame = tagged(&udp4(b"data"), S_TAG, 5);
        assert_eq!(strip(&mut frame), None);
        let mut cut = tagged(&udp4(b"data"), C_TAG, 5);
        cut.truncate(17);
        assert_eq!(strip(&mut cut), None);
        assert_eq!(cut.len(), 17);
    }
}
