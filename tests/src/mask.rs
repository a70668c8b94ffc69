//! Masks the parts of a text that name hosts and their addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// Replaces host names, GUIDs, and MAC and IP addresses by words for them.
pub(crate) struct Mask {
    /// Names of hosts, in lower case.
    hosts: Vec<String>,
    /// GUIDs, as 16 hexadecimal digits.
    guids: Vec<String>,
}

impl Mask {
    /// A mask that knows these host names and GUIDs, in addition to what shows by its form. A name
    /// may have a domain and a TCP port.
    pub(crate) fn new(hosts: &[String], guids: &[String]) -> Self {
        let mut all = Vec::new();
        for host in hosts {
            let is_address = host.parse::<std::net::IpAddr>().is_ok();
            let host = host.to_lowercase();
            let host = match host.rsplit_once(':') {
                Some((name, port)) if port.parse::<u16>().is_ok() => name.to_owned(),
                _ => host,
            };
            if !is_address && let Some((first, domain)) = host.split_once('.') {
                all.extend([first.to_owned(), domain.to_owned()]);
            }
            all.push(host);
        }
        all.retain(|name| !name.is_empty());
        let guids = guids.iter().map(|guid| guid.replace(':', "").to_lowercase()).collect();
        Self { hosts: all, guids }
    }

    /// The masked text.
    pub(crate) fn apply(&self, text: &str) -> String {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, ':' | '.' | '-' | '_' | '%');
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let word = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            masked.push_str(&self.word(&rest[..word]));
            rest = &rest[word..];
            let gap = rest.find(is_part).unwrap_or(rest.len());
            masked.push_str(&rest[..gap]);
            rest = &rest[gap..];
        }
        masked
    }

    /// A word without spaces and brackets. Signs after it stay.
    fn word(&self, word: &str) -> String {
        let core = word.trim_end_matches(['.', ':', '-']);
        let (core, after) = match kind(word) {
            // The colons of an address such as `fe80::` belong to it.
            Some(_) => (word, ""),
            None => (core, &word[core.len()..]),
        };
        match self.name(core).or_else(|| kind(core)) {
            Some(name) => format!("{name}{after}"),
            // A path such as `host:port` or `mlx5_0:fe80::1` has parts.
            None => match core.split_once(':') {
                Some((first, last)) if !last.is_empty() => {
                    format!("{}:{}{after}", self.word(first), self.word(last))
                }
                _ => word.to_owned(),
            },
        }
    }

    /// A word for a name that the mask knows.
    fn name(&self, word: &str) -> Option<&'static str> {
        let word = word.to_lowercase();
        let is_host = |host: &String| {
            word.strip_prefix(host.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                || word.strip_suffix(host.as_str()).is_some_and(|rest| rest.ends_with('.'))
        };
        if self.hosts.iter().any(is_host) {
            return Some("HOST");
        }
        let digits = word.strip_prefix("0x").unwrap_or(&word);
        self.guids.iter().any(|guid| guid == digits).then_some("GUID")
    }
}

/// A word for what has the form of an address.
fn kind(word: &str) -> Option<&'static str> {
    let hex = |part: &str, digits| {
        part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    for sign in [':', '-'] {
        let parts: Vec<_> = word.split(sign).collect();
        if parts.len() >= 6 && parts.iter().all(|part| hex(part, 2)) {
            return Some("MAC");
        }
    }
    let parts: Vec<_> = word.split(':').collect();
    if parts.len() == 4 && parts.iter().all(|part| hex(part, 4)) {
        return Some("GUID");
    }
    // The kernel names some interfaces after their MAC addresses.
    if let Some(digits) = word.strip_prefix("enx").or_else(|| word.strip_prefix("ibx"))
        && (hex(digits, 12) || hex(digits, 16))
    {
        return Some("MAC");
    }
    let without_scope = word.split('%').next().unwrap_or(word);
    let is_ip = without_scope.parse::<Ipv4Addr>().is_ok()
        || word.parse::<SocketAddrV4>().is_ok()
        || word.parse::<SocketAddr>().is_ok()
        || without_scope.len() > 2 && without_scope.parse::<Ipv6Addr>().is_ok();
    is_ip.then_some("IP")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let hosts = ["node7.lab.example".to_owned(), "peer3:18515".to_owned()];
        Mask::new(&hosts, &["506b:4b03:00cd:e9f0".to_owned()]).apply(text)
    }

    #[test]
    fn names_and_addresses_are_masked_in_each_form() {
        for (text, expected) in [
            ("node7 and NODE7.lab.example.", "HOST and HOST."),
            ("other.lab.example: no route", "HOST: no route"),
            ("cannot reach peer3:18515", "cannot reach HOST:18515"),
            ("guid 506b:4b03:00cd:e9f0, 0x506b4b0300cde9f0", "guid GUID, GUID"),
            ("a guid 0002:c903:001a:bcde", "a guid GUID"),
            ("mac 50:6b:4b:cd:e9:f0 (50-6b-4b-cd-e9-f0)", "mac MAC (MAC)"),
            ("80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:cd:e9:f0", "MAC"),
            ("enx506b4bcde9f0: link up", "MAC: link up"),
            ("10.1.2.3 10.1.2.3:4791 [fe80::526b:4bff:fecd:e9f0]:80", "IP IP [IP]:80"),
            ("::ffff:10.1.2.3, fe80::1%eth0, fe80::", "IP, IP, IP"),
            ("gid=fe80::526b:4bff:fecd:e9f0!", "gid=IP!"),
            ("mlx5_0:fe80::1", "mlx5_0:IP"),
        ] {
            assert_eq!(masked(text), expected, "{text}");
        }
    }

    #[test]
    fn devices_versions_cases_and_codes_stay() {
        for text in [
            "mlx5_core 0000:03:00.0: mlx5_cmd_check:775:(pid 1): CREATE_QP(0x500) failed",
            "retries::a_send_waits_for_a_late_receive panicked at tests/src/bed.rs:232:17:",
            "firmware 22.31.1014, board MT_0000000359, kernel 5.15.0-91-generic",
            "8c8adb450cce85aa 0x8c8adb450cce85aa 12:34:56 nodes node70",
            "status syndrome 0x4bb88f -> 2024-01-02: left == right",
            "00000000 00000000 00000000 9d005304 08000e5b 0001a5d2",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn host_that_was_named_by_its_address_is_masked() {
        let mask = Mask::new(&["192.0.2.7".to_owned(), String::new()], &[]);
        assert_eq!(mask.apply("192.0.2.7 is gone, 192 is not"), "HOST is gone, 192 is not");
    }
}
