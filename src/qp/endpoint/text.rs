//! The text form of an endpoint: `mlx5-endpoint/1` and `key=value` words.

use super::{Endpoint, EndpointError, GID_TYPES, TRANSPORTS, mtu_bytes, name};
use crate::qp::attributes::{Psn, QpNumber};
use mlx5_uapi::verbs::Mtu;
use std::fmt;
use std::str::FromStr;

const NAME: &str = "mlx5-endpoint/";
const VERSION: u32 = 1;
const KEYS: [&str; 10] =
    ["transport", "qpn", "psn", "qkey", "lid", "gid", "gid_type", "gid_index", "mtu", "rd_atomic"];
/// The key that only some endpoints have.
const OPTIONAL: &str = "qkey";

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}{VERSION}")?;
        write!(f, " transport={}", name(&TRANSPORTS, self.transport))?;
        write!(f, " qpn={:#08x} psn={:#08x}", self.qp_num.get(), self.psn.get())?;
        if let Some(qkey) = self.qkey {
            write!(f, " qkey={qkey:#010x}")?;
        }
        write!(f, " lid={:#06x} gid={}", self.lid, self.gid)?;
        write!(f, " gid_type={}", name(&GID_TYPES, self.gid_type))?;
        write!(f, " gid_index={} mtu={}", self.gid_index, mtu_bytes(self.mtu))?;
        write!(f, " rd_atomic={}", self.rd_atomic)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// The words after the first may be in any order. Numbers are decimal, or hexadecimal after
    /// `0x`.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let mut words = text.split_ascii_whitespace();
        let version = words
            .next()
            .and_then(|word| word.strip_prefix(NAME))
            .ok_or(EndpointError::NotAnEndpoint)?;
        match number(version) {
            Some(VERSION) => {}
            Some(version) => return Err(EndpointError::Version { version }),
            None => return Err(EndpointError::NotAnEndpoint),
        }
        let fields = Fields::parse(words)?;
        Self {
            transport: fields.known("transport", &TRANSPORTS)?,
            qp_num: fields.read("qpn", |text| QpNumber::new(number(text)?).ok())?,
            psn: fields.read("psn", |text| Psn::new(number(text)?).ok())?,
            qkey: match fields.find(OPTIONAL) {
                Some(_) => Some(fields.read(OPTIONAL, number)?),
                None => None,
            },
            lid: fields.read("lid", narrow)?,
            gid: fields.read("gid", |text| text.parse().ok())?,
            gid_type: fields.known("gid_type", &GID_TYPES)?,
            gid_index: fields.read("gid_index", narrow)?,
            mtu: fields.read("mtu", mtu)?,
            rd_atomic: fields.read("rd_atomic", narrow)?,
        }
        .validated()
    }
}

/// The values of the keys, in the order of [`KEYS`].
struct Fields<'a>([Option<&'a str>; KEYS.len()]);

impl<'a> Fields<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self, EndpointError> {
        let mut fields = Self([None; KEYS.len()]);
        for word in words {
            let unknown = || EndpointError::UnknownWord { word: word.to_owned() };
            let (key, value) = word.split_once('=').ok_or_else(unknown)?;
            let index = KEYS.iter().position(|known| *known == key).ok_or_else(unknown)?;
            if fields.0[index].replace(value).is_some() {
                return Err(EndpointError::Twice { field: KEYS[index] });
            }
        }
        Ok(fields)
    }

    fn find(&self, field: &str) -> Option<&'a str> {
        let index = KEYS.iter().position(|key| *key == field)?;
        self.0[index]
    }

    fn read<T>(
        &self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, EndpointError> {
        let text = self.find(field).ok_or(EndpointError::Missing { field })?;
        parse(text).ok_or(EndpointError::Value { field })
    }

    fn known<T: Copy>(&self, field: &'static str, names: &[(T, &str)]) -> Result<T, EndpointError> {
        self.read(field, |text| names.iter().find(|row| row.1 == text).map(|row| row.0))
    }
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign, which is not allowed here.
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

fn narrow<T: TryFrom<u32>>(text: &str) -> Option<T> {
    T::try_from(number(text)?).ok()
}

fn mtu(text: &str) -> Option<Mtu> {
    let bytes = number(text)?;
    (1..=5).filter_map(Mtu::from_raw).find(|mtu| mtu_bytes(*mtu) == bytes)
}
