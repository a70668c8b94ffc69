//! Uevents: messages of the kernel about devices that appear, disappear or change
//! (`Documentation/ABI/testing/sysfs-uevent`).

/// A message of a uevent file: `action@devpath`, then `KEY=value` words, each ended by a zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uevent<'a> {
    /// The event: `add`, `remove`, `move`, `change`, …
    pub action: &'a str,
    /// The subsystem: `infiniband_verbs`, `infiniband`, `net`, …
    pub subsystem: &'a str,
    /// The device's path below `/sys`, with a slash before it.
    pub devpath: &'a str,
}

/// Bytes of the longest message: the kernel's buffer has 2048 (`UEVENT_BUFFER_SIZE`), and the
/// heading another path.
pub const LONGEST: usize = 8192;

impl<'a> Uevent<'a> {
    /// Parses a message. Returns `None` if it is not one of the kernel: udev's begin with
    /// `libudev`.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut words = message.split(|byte| *byte == 0);
        if !words.next()?.contains(&b'@') {
            return None;
        }
        let (mut action, mut subsystem, mut devpath) = (None, None, None);
        for word in words {
            // A device may have words that are not UTF-8; none of the fields here is one of them.
            let Some((key, value)) =
                core::str::from_utf8(word).ok().and_then(|w| w.split_once('='))
            else {
                continue;
            };
            match key {
                "ACTION" => action = Some(value),
                "SUBSYSTEM" => subsystem = Some(value),
                "DEVPATH" => devpath = Some(value),
                _ => {}
            }
        }
        Some(Self { action: action?, subsystem: subsystem?, devpath: devpath? })
    }

    /// Returns the device's name: the last part of its path.
    pub fn name(&self) -> &'a str {
        self.devpath.rsplit('/').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &[u8] = b"add@/devices/pci0000:00/0000:03:00.0/infiniband_verbs/uverbs0\0\
        ACTION=add\0DEVPATH=/devices/pci0000:00/0000:03:00.0/infiniband_verbs/uverbs0\0\
        SUBSYSTEM=infiniband_verbs\0MAJOR=231\0MINOR=192\0DEVNAME=infiniband/uverbs0\0SEQNUM=5\0";

    #[test]
    fn a_message_says_what_happened_to_which_device() {
        let event = Uevent::parse(ADD).unwrap();
        assert_eq!((event.action, event.subsystem), ("add", "infiniband_verbs"));
        assert_eq!(event.name(), "uverbs0");
    }

    #[test]
    fn words_may_come_in_any_order_and_be_no_text() {
        let event = Uevent::parse(b"x@y\0NAME=\xff\xfe\0SUBSYSTEM=net\0DEVPATH=/a/b\0ACTION=move");
        let expected = Uevent { action: "move", subsystem: "net", devpath: "/a/b" };
        assert_eq!(event, Some(expected));
    }

    #[test]
    fn foreign_message_is_no_uevent() {
        assert_eq!(Uevent::parse(b""), None);
        assert_eq!(Uevent::parse(b"libudev\0\xfe\xed\xca\xfe\0ACTION=add\0"), None);
        assert_eq!(Uevent::parse(b"add@/a\0ACTION=add\0DEVPATH=/a\0"), None);
        let cut = &ADD[..ADD.len() / 2];
        assert_eq!(Uevent::parse(cut), None);
    }
}
