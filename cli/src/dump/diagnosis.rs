//! From an error to its cause in words, and to what to try.

use super::facts::{self, Facts};
use super::item::Item;
use super::known;
use super::lines::About;
use super::paste::{Found, What};
use super::wqe::Addressing;
use super::{cqe, refusal, wqe};
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::Opcode;

/// Takes a find apart and explains it.
pub(super) fn explain(found: &Found, addressing: Option<Addressing>) -> Vec<Item> {
    let facts = &found.facts;
    let mut item = match &found.what {
        What::Requests(bytes) => return requests(bytes, addressing, facts),
        What::Completion(bytes) => completion(bytes, addressing, facts),
        What::Command(bytes) => command(bytes, facts),
        What::Line(About::Failed) => failed(facts),
        What::Line(About::Refused) => refusal::explain(facts),
        What::Line(About::Unanswered) => refusal::unanswered(facts),
        What::Line(About::Health) => health(facts),
        What::Line(About::Event(title, cause, remedy)) => {
            let mut item = Item::new(*title);
            if let Some(qpn) = facts.number("qpn") {
                item.say("qpn", format!("{qpn:#08x}"), "");
            }
            others(&mut item, facts);
            why(&mut item, cause, remedy, None);
            item
        }
    };
    if found.count > 1 {
        item.note(format!("{} lines say the same", found.count));
    }
    vec![item]
}

/// A completion, with the cause if it is of something that failed.
pub(super) fn completion(bytes: &[u8], addressing: Option<Addressing>, said: &Facts) -> Item {
    let mut item = cqe::completion(bytes, addressing);
    let mut facts = said.clone();
    facts::read(bytes, &mut facts);
    if facts.number("syndrome").is_some() {
        others(&mut item, &facts);
        cause(&mut item, &facts);
    }
    item
}

/// Explains a failure by the facts of its lines.
fn failed(facts: &Facts) -> Item {
    let syndrome = facts.byte("syndrome");
    let text = syndrome.and_then(Syndrome::from_bits).map(Syndrome::text);
    let opcode = facts.byte("cqe_opcode").and_then(CqeOpcode::from_bits);
    let what = match opcode {
        Some(CqeOpcode::RequesterError) => "request failed",
        Some(CqeOpcode::ResponderError) => "receive failed",
        _ => "completion with error",
    };
    let text = text.or(facts.text("status_text")).unwrap_or("unknown status");
    let mut item = Item::new(match facts.number("qpn") {
        Some(qpn) => format!("{what}: {text}, QP {qpn:#08x}"),
        None => format!("{what}: {text}"),
    });
    item.segment("what the line says");
    if let Some(opcode) = facts.number("cqe_opcode") {
        item.say("opcode", format!("{opcode:#x}"), what);
    }
    if let Some(syndrome) = syndrome {
        item.say("syndrome", format!("{syndrome:#04x}"), text);
    }
    if let Some(vendor) = facts.byte("vendor") {
        item.say("vendor_err_synd", format!("{vendor:#04x}"), cqe::vendor(vendor, syndrome));
    }
    let vendor = facts.byte("vendor");
    if let Some(hardware) = facts.byte("hw") {
        item.say("hw_err_synd", format!("{hardware:#04x}"), cqe::hardware(hardware, vendor));
    }
    if let Some(kind) = facts.byte("hw_type") {
        item.say("hw_synd_type", format!("{kind:#04x}"), "");
    }
    // UCX prints half of it.
    if let Some(kind) = facts.number("hw_type_high") {
        item.say("hw_synd_type", format!("{:#04x}", kind << 4), "its upper half alone");
    }
    if let Some(qpn) = facts.number("qpn") {
        item.say("qpn", format!("{qpn:#08x}"), "");
    }
    if let Some(counter) = facts.number("wqe_counter") {
        item.say("wqe_counter", counter, "");
    }
    if let Some(opcode) = facts.text("sent").and_then(sent) {
        item.say("send_opcode", format!("{:#04x}", opcode as u8), opcode.name());
        // UCX prints three signs.
        if let Some(flags) = facts.text("flags").filter(|flags| flags.len() == 3) {
            let words = [('s', "signalled"), ('f', "fence"), ('e', "solicited")];
            let words = words.iter().filter(|(sign, _)| flags.contains(*sign));
            let words: Vec<&str> = words.map(|(_, word)| *word).collect();
            item.say("flags", flags, words.join(", "));
        }
    }
    others(&mut item, facts);
    cause(&mut item, facts);
    item
}

/// The opcode that a program calls by this name.
fn sent(name: &str) -> Option<Opcode> {
    const OTHERS: [(&str, Opcode); 7] = [
        ("CSWAP", Opcode::AtomicCs),
        ("COMPARE_SWAP", Opcode::AtomicCs),
        ("FETCH_ADD", Opcode::AtomicFa),
        ("MASKED_CSWAP", Opcode::AtomicMaskedCs),
        ("MASKED_COMPARE_SWAP", Opcode::AtomicMaskedCs),
        ("MASKED_FETCH_ADD", Opcode::AtomicMaskedFa),
        ("SEND_INV", Opcode::SendInvalidate),
    ];
    let own = Opcode::ALL.iter().find(|opcode| opcode.name() == name).copied();
    own.or_else(|| OTHERS.iter().find(|(other, _)| *other == name).map(|(_, opcode)| *opcode))
}

/// Numbers and texts that lines say beside the codes: name, whether it is hexadecimal, meaning.
const OTHERS: [(&str, bool, &str); 25] = [
    ("device", false, ""),
    ("port", false, ""),
    ("link", false, ""),
    ("pci", false, "the PCIe function"),
    ("cqn", true, "the completion queue"),
    ("ci", true, "its consumer index"),
    ("queue_number", true, "the send or receive queue"),
    ("wq_ci", false, "consumer index of the queue"),
    ("cq_ci", false, "consumer index of the completion queue"),
    ("wr_id", false, ""),
    ("length", false, "bytes of the first buffer"),
    ("lkey", true, "key of the first buffer"),
    ("inline", false, "bytes in the request itself"),
    ("rkey", true, ""),
    ("remote_qpn", true, "the peer's queue pair"),
    ("cq_syndrome", false, "1: overrun"),
    ("dctn", true, "the DC target"),
    ("slot", false, "the PCIe slot"),
    ("health", true, ""),
    ("ext_synd", true, ""),
    ("hw_id", true, ""),
    ("irisc_index", false, "the processor of the firmware"),
    ("fw_ver", false, ""),
    ("fw_ver_raw", true, ""),
    ("assert_exit_ptr", true, ""),
];

/// UCX's names of queues.
const QUEUES: [(&str, &str); 7] = [
    ("RC", "reliable connection"),
    ("UC", "unreliable connection"),
    ("UD", "unreliable datagrams"),
    ("XRC", "extended reliable connection"),
    ("DCI", "dynamically connected, initiator"),
    ("DCT", "dynamically connected, target"),
    ("SRQ", "shared receive queue"),
];

fn others(item: &mut Item, facts: &Facts) {
    if let Some(status) = facts.byte("syndrome").and_then(known::status) {
        item.say("status", status.name, format!("{} in libibverbs", status.number));
    }
    let queue = QUEUES.iter().find(|(name, _)| facts.text("queue") == Some(name));
    if let Some((name, meaning)) = queue {
        item.say("queue", name, *meaning);
    }
    for (name, hex, meaning) in OTHERS {
        match (facts.number(name), facts.text(name)) {
            (Some(number), _) if hex => item.say(name, format!("{number:#x}"), meaning),
            (Some(number), _) => item.say(name, number, meaning),
            (None, Some(text)) => item.say(name, text, meaning),
            (None, None) => {}
        }
    }
}

/// The cause of a failure, by its codes.
fn cause(item: &mut Item, facts: &Facts) {
    let syndrome = facts.byte("syndrome");
    let code = facts.byte("vendor");
    let vendor = code.and_then(|code| known::vendor(code, syndrome));
    let hardware = facts.byte("hw").and_then(|hardware| known::hardware(hardware, code));
    let sources = [
        vendor.map(|row| format!("vendor code: {}", row.source)),
        hardware.map(|row| format!("hardware syndrome: {}", row.source)),
    ];
    let sources = sources.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let source = (!sources.is_empty()).then_some(sources.as_str());
    match (vendor, syndrome.and_then(known::status)) {
        (Some(vendor), _) => why(item, vendor.meaning, vendor.remedy, source),
        (None, Some(status)) => why(item, status.cause, status.remedy, source),
        (None, None) => why(item, "not published", REPORT, source),
    }
}

const REPORT: &str = "report it to the vendor's support with the line, the firmware's version \
    (`devlink dev info`), the card (`lspci -d 15b3:`) and the kernel (`uname -r`)";

fn why(item: &mut Item, cause: &str, remedy: &str, source: Option<&str>) {
    item.segment("why");
    item.text("cause", cause);
    item.text("try", remedy);
    if let Some(source) = source {
        item.text("source", source);
    }
}

/// The requests of a dump.
fn requests(bytes: &[u8], addressing: Option<Addressing>, facts: &Facts) -> Vec<Item> {
    let mut items: Vec<Item> =
        wqe::ring(bytes).map(|(_, request)| wqe::send(request, addressing)).collect();
    let Some(first) = items.first_mut() else { return items };
    if let Some(index) = facts.number("wqe_index")
        && wqe::index(bytes).is_some_and(|own| u64::from(own) != index & 0xffff)
    {
        first.note(format!("stale bytes: the line before the dump says WQE index {index}"));
    }
    if wqe::is_translation(bytes) {
        first.note("no request: addresses of pages in order, the rest of a translation list");
    }
    items
}

/// The input or the output of a command.
fn command(bytes: &[u8], facts: &Facts) -> Item {
    let mut item = refusal::explain(facts);
    item.segment("bytes");
    item.bytes(0, "bytes", bytes);
    item
}

fn health(facts: &Facts) -> Item {
    let text = facts.text("health_text").unwrap_or_default();
    let mut item = Item::new(format!("the device's health: {text}"));
    item.segment("what the lines say");
    others(&mut item, facts);
    let gone = facts.number("health") == Some(0xff);
    match gone {
        true => why(&mut item, "every read gives ones: the device left the PCIe bus", GONE, None),
        false => why(&mut item, "the device's firmware stopped", STOPPED, None),
    }
    item
}

const GONE: &str = "check the card's seat and power, and PCIe errors in the kernel log; a power \
    cycle brings it back";
const STOPPED: &str = "`devlink health` shows and recovers the reporters fw and fw_fatal; update \
    the firmware, and report the health lines to the vendor's support";
