//! The line of a request or a completion: the fields that `mlx5 dump` decodes, in short.

use crate::dump::{self, Addressing, FIRST_STRIDE, Item};
use crate::trace::queues::Kind;
use serde_json::{Map, Value, json};

/// A scatter or gather entry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Part {
    bytes: u64,
    lkey: String,
    address: String,
    inline: bool,
}

/// Scatter or gather entries that one line shows.
const SHOWN: usize = 2;

/// A request or a completion in short.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Brief {
    /// The operation, or the outcome of one.
    pub(crate) opcode: String,
    /// Bytes that it names, or has moved. `None` if the device does not report them.
    pub(crate) bytes: Option<u64>,
    /// The queue that a completion is of: its kind, and its number.
    pub(crate) of: Option<(&'static str, u32)>,
    /// Whether it is the completion of a request that failed.
    pub(crate) failed: bool,
    /// Further fields, by name.
    details: Vec<(&'static str, String)>,
    parts: Vec<Part>,
}

/// Decodes an entry of a ring.
pub(crate) fn decode(kind: Kind, bytes: &[u8], addressing: Addressing) -> Item {
    match kind {
        Kind::Completion => dump::completion(bytes, Some(addressing)),
        Kind::Send => dump::send(bytes, Some(addressing)),
        Kind::Receive | Kind::Work => dump::receive(bytes),
        Kind::Shared => dump::shared_receive(bytes),
        Kind::Strides => dump::receive_of_strides(bytes),
    }
}

impl Brief {
    pub(crate) fn of(kind: Kind, item: &Item) -> Self {
        match kind {
            Kind::Completion => Self::completion(item),
            _ => Self::request(item),
        }
    }

    fn request(item: &Item) -> Self {
        let mut brief = Self { opcode: "RECV".to_owned(), bytes: Some(0), ..Self::default() };
        let (mut bytes, mut packets) = (0, 0);
        for field in item.fields() {
            let (value, meaning) = (field.value.to_owned(), field.meaning);
            match field.name {
                "opcode" if meaning == "unknown" => brief.opcode = format!("opcode {value}"),
                "opcode" => meaning.clone_into(&mut brief.opcode),
                "fm_ce_se" => {
                    let reported = meaning.split(", ").filter(|word| *word != ON_ERROR);
                    let reported = reported.collect::<Vec<_>>().join(", ");
                    if !reported.is_empty() {
                        brief.details.push(("flags", reported));
                    }
                }
                "imm" if !meaning.is_empty() => brief.details.push((
                    match meaning {
                        "immediate data" => "imm",
                        "mkey" => "mkey",
                        _ => "invalidates",
                    },
                    value,
                )),
                "dqp" => brief.details.push(("to_qp", value)),
                "raddr" => brief.details.push(("raddr", value)),
                "rkey" => brief.details.push(("rkey", value)),
                "swap" => brief.details.push(("swap", value)),
                "add" => brief.details.push(("add", value)),
                "compare" => brief.details.push(("compare", value)),
                "cs_flags" => {
                    if let Some(sums) = meaning.strip_prefix("checksums: ") {
                        brief.details.push(("checksums", sums.to_owned()));
                    }
                }
                "mss" if value != "0" => brief.details.push(("mss", value)),
                "vlan_id" => brief.details.push(("vlan", value)),
                "inline_hdr_sz" if value != "0" => {
                    bytes += field.value.parse().unwrap_or(0);
                    brief.details.push(("header", format!("{value} B")));
                }
                "byte_count" if is_data(field.segment) => {
                    packets += u32::from(field.segment.starts_with(dump::PACKET));
                    let inline = meaning.strip_prefix("inline, ");
                    let count = match inline {
                        Some(length) => length.parse().unwrap_or(0),
                        // A count of zero means the maximum.
                        None if meaning == "2 GiB" => 1 << 31,
                        None => field.value.parse().unwrap_or(0),
                    };
                    bytes += count;
                    let inline = inline.is_some();
                    brief.parts.push(Part { bytes: count, inline, ..Part::default() });
                }
                "lkey" if meaning == "end of the list" => _ = brief.parts.pop(),
                "lkey" => {
                    brief.parts.last_mut().into_iter().for_each(|p| p.lkey.clone_from(&value))
                }
                "addr" => {
                    if let Some(part) = brief.parts.last_mut().filter(|p| p.address.is_empty()) {
                        part.address = value;
                    }
                }
                _ => {}
            }
        }
        brief.bytes = Some(bytes);
        if packets > 0 {
            brief.details.push(("packets", packets.to_string()));
        }
        brief
    }

    fn completion(item: &Item) -> Self {
        let (mut brief, mut hash) = (Self::default(), String::new());
        for field in item.fields() {
            let (value, meaning) = (field.value.to_owned(), field.meaning);
            match field.name {
                "opcode" if meaning == "unknown" => brief.opcode = format!("opcode {value}"),
                "opcode" => meaning.clone_into(&mut brief.opcode),
                "send_opcode" if meaning == "unknown" => brief.details.push(("request", value)),
                "send_opcode" => brief.details.push(("request", meaning.to_owned())),
                "qpn" => {
                    let number = u32::from_str_radix(value.trim_start_matches("0x"), 16).ok();
                    brief.of = number.map(|number| ("qp", number));
                }
                "wqe_counter" if meaning == FIRST_STRIDE => brief.details.push(("stride", value)),
                "wqe_counter" | "wqe_id" => brief.details.push(("index", value)),
                "strides" => brief.details.push(("strides", value)),
                "l4_l3_hdr_type" if !meaning.is_empty() => {
                    brief.details.push(("headers", meaning.to_owned()));
                }
                "hds_ip_ext" if !meaning.is_empty() => {
                    brief.details.push(("checksums", meaning.to_owned()));
                }
                "vlan_id" => brief.details.push(("vlan", value)),
                "flow_tag" if value != "0x000000" => brief.details.push(("flow_tag", value)),
                "rss_hash_result" => hash = value,
                "rss_hash_type" if !meaning.is_empty() => {
                    brief.details.push(("rss_hash", std::mem::take(&mut hash)));
                }
                "byte_count" => brief.bytes = field.value.parse().ok(),
                "imm_inval_pkey" if meaning == "immediate data" => {
                    brief.details.push(("imm", value))
                }
                "imm_inval_pkey" if meaning == "the key that was invalidated" => {
                    brief.details.push(("invalidated", value));
                }
                "rqpn" if value != "0x000000" => brief.details.push(("from_qp", value)),
                "syndrome" => {
                    brief.failed = true;
                    brief.details.push(("status", meaning.to_owned()));
                    brief.details.push(("syndrome", value));
                }
                "vendor_err_synd" => brief.details.push(("vendor", value)),
                _ => {}
            }
        }
        // For a request the field has a meaning for reads and atomics only.
        if brief.opcode == "request completed" && brief.bytes == Some(0) {
            brief.bytes = None;
        }
        brief
    }

    fn detail(&self, name: &str) -> Option<&str> {
        self.details.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }

    /// The name under which it is counted.
    pub(crate) fn counted(&self) -> String {
        match (self.detail("request"), self.detail("status")) {
            (_, Some(status)) => format!("{}: {status}", self.opcode),
            (Some(request), None) => format!("{}, {request}", self.opcode),
            (None, None) => self.opcode.clone(),
        }
    }

    /// The rest of a line, after opcode and bytes.
    pub(crate) fn rest(&self) -> String {
        let mut words = Vec::new();
        if let Some(status) = self.detail("status") {
            let codes = [("syndrome", self.detail("syndrome")), ("vendor", self.detail("vendor"))];
            let codes = codes.map(|(name, code)| format!("{name} {}", code.unwrap_or("?")));
            words.push(format!("{status} ({})", codes.join(", ")));
        }
        if let Some(request) = self.detail("request") {
            words.push(request.to_owned());
        }
        if let Some((what, number)) = self.of {
            let index = self.detail("index").unwrap_or("?");
            words.push(format!("{what} {number:#08x} {index}"));
        }
        for (name, value) in &self.details {
            let name = match *name {
                "status" | "syndrome" | "vendor" | "request" | "index" => continue,
                "flags" => {
                    words.push(value.clone());
                    continue;
                }
                "to_qp" => "to qp",
                "from_qp" => "from qp",
                "flow_tag" => "flow tag",
                "rss_hash" => "hash",
                name => name,
            };
            words.push(format!("{name} {value}"));
        }
        for part in self.parts.iter().take(SHOWN) {
            words.push(match part.inline {
                true => "inline".to_owned(),
                false => format!("lkey {} addr {}", part.lkey, part.address),
            });
        }
        if self.parts.len() > SHOWN {
            words.push(format!("and {} more", self.parts.len() - SHOWN));
        }
        words.join("  ")
    }

    /// Adds everything to an object of JSON.
    pub(crate) fn add_to(&self, object: &mut Map<String, Value>) {
        object.insert("opcode".to_owned(), json!(self.opcode));
        if let Some(bytes) = self.bytes {
            object.insert("bytes".to_owned(), json!(bytes));
        }
        if let Some((what, number)) = self.of {
            object.insert(what.to_owned(), json!(number));
        }
        for (name, value) in &self.details {
            // The object has the index of the completion itself under that name.
            let name = if *name == "index" { "request_index" } else { name };
            let value = match name {
                "request_index" | "mss" | "vlan" | "packets" | "stride" | "strides" => {
                    json!(value.parse::<u64>().ok())
                }
                _ => json!(value),
            };
            object.insert(name.to_owned(), value);
        }
        if !self.parts.is_empty() {
            let parts = self.parts.iter().map(|part| match part.inline {
                true => json!({ "bytes": part.bytes, "inline": true }),
                false => {
                    json!({ "bytes": part.bytes, "lkey": part.lkey, "addr": part.address })
                }
            });
            object.insert("segments".to_owned(), parts.collect());
        }
    }
}

/// Whether a segment is a gather or scatter entry, or inline data.
fn is_data(segment: &str) -> bool {
    segment.starts_with(dump::DATA) || segment.starts_with(dump::PACKET)
}

/// The detail of most requests without a completion.
const ON_ERROR: &str = "completion only on error";

#[cfg(test)]
mod tests;
