//! The lines that programs and the kernel print of failures, one row each.

use super::facts::Facts;
use super::pattern::Pattern;
use std::ops::Range;

/// The subject of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// A request or a receive failed.
    Failed,
    /// The firmware refused a command.
    Refused,
    /// The firmware did not answer a command.
    Unanswered,
    /// The device's health: its firmware stopped, or the device is gone.
    Health,
    /// Something else happened; the text is its title, cause and remedy.
    Event(&'static str, &'static str, &'static str),
}

/// A line: its pattern, and patterns of what else is said in the lines around it.
struct Row {
    about: About,
    pattern: &'static str,
    more: &'static [&'static str],
    /// Lines before it and after it that belong to it.
    around: (usize, usize),
}

/// A line that was found.
pub(super) struct Line {
    pub(super) about: About,
    pub(super) at: usize,
    pub(super) facts: Facts,
}

macro_rules! rows {
    ($($about:expr, $pattern:literal $(, more $more:expr)? $(, around $around:expr)?;)*) => {
        static ROWS: &[Row] = &[$(Row {
            about: $about,
            pattern: $pattern,
            more: rows!(@more $($more)?),
            around: rows!(@around $($around)?),
        },)*];
    };
    (@more) => { &[] };
    (@more $more:expr) => { &$more };
    (@around) => { (0, 0) };
    (@around $around:expr) => { $around };
}

/// Parts of UCX's lines, before and after the codes.
const UCX: [&str; 14] = [
    "QP {qpn} wqe[{wqe_counter}]",
    ") opcode {sent:word}",
    "wqe[{_}]: opcode {sent:word}",
    "wqe[{_}]: {sent:word} {flags:word}",
    "wqe[{_}]: {sent:word}",
    "on {device:word}:{port}/{link:word}",
    "on {device:word}:{port} QP",
    "va {_} len {length} lkey {lkey}",
    "inl len {inline}",
    "byte_count {length} lkey {lkey}",
    "bytes {length} lkey {lkey}",
    "rkey {rkey}",
    "rqpn {remote_qpn}",
    "{queue:word} QP {_} wqe[",
];
const NCCL: [&str; 1] = ["hca {device:word}"];
const HEALTH: [&str; 6] = [
    "ext_synd {ext_synd}",
    "hw_id {hw_id}",
    "irisc_index {irisc_index}",
    "raw fw_ver {fw_ver_raw}",
    "fw_ver {fw_ver:word}",
    "assert_exit_ptr {assert_exit_ptr}",
];

const OVERRUN: About = About::Event(
    "a completion queue overran",
    "the device wrote more completions than the program took: the queue is too short, or too slowly polled",
    "make the completion queue longer, or poll it more often; the queue pairs on it are in the error state",
);
const ACCESS: About = About::Event(
    "a queue pair went to the error state for an access violation (IBV_EVENT_QP_ACCESS_ERR)",
    "the peer asked for an access that this queue pair does not allow; of a gather outside its memory it is the queue pair's own request",
    "compare the access rights of the queue pair and the memory with what the peer does; look for the failed completion of the peer",
);
const DCT: About = About::Event(
    "a DC target refused an access",
    "the initiator's DC key, rights or address do not fit the target",
    "compare DC key and access rights of both ends",
);
const NO_VERBS: About = About::Event(
    "a PCIe function has no verbs device",
    "the kernel's mlx5 driver is not bound to the function, or mlx5_ib is not loaded",
    "`modprobe mlx5_ib`; bind the function to mlx5_core: DPDK's mlx5 driver works beside the kernel's",
);
const NO_UAR: About = About::Event(
    "the device gives no page of doorbell registers",
    "the kernel or the hypervisor allows neither a write-combining page nor a page of the program's own",
    "update kernel and firmware; on a BlueField, run the program on the host, or another transport",
);
const STUCK: About = About::Event(
    "a queue pair could not be reset",
    "the firmware refused the reset or did not answer: the lines before it say which",
    "follow what is said of those lines; the queue pair's memory stays with the device until then",
);
const DETACHED: About = About::Event(
    "the PCIe slot of the device is not available",
    "a PCIe error cut the device off, or it was pulled",
    "look for PCIe errors (AER, DPC) in the kernel log; the driver resets the slot, or a power cycle does",
);

rows! {
    // The firmware.
    About::Refused, "{command:word}({command_opcode}) op_mod({op_mod}) failed, status *({status}), syndrome ({fw_syndrome})",
        more ["err(-{errno})", "create async EQ -{errno}"], around (0, 3);
    About::Refused, "status *({status}), syndrome ({fw_syndrome})", more ["err(-{errno})"];
    About::Refused, "mlx5dv_devx_obj_create({object:word}) failed on {device:word}, syndrome {fw_syndrome}";
    About::Unanswered, "{command:word}({command_opcode}) timeout";
    About::Health, "synd {health}: {health_text:rest}", more HEALTH, around (20, 6);
    STUCK, "modify QP {qpn} to RESET failed";
    DETACHED, "PCI slot {slot} is unavailable";
    // The kernel.
    About::Failed, "error cqe on cqn {cqn}, ci {ci}, {_:word} {queue_number}, opcode {cqe_opcode}, syndrome {syndrome}, vendor syndrome {vendor}";
    About::Failed, "{side:word} error cqe on cqn {cqn}:* syndrome {syndrome}, vendor syndrome {vendor}";
    About::Failed, "WC error: {status_number}, message: {status_text:rest}";
    About::Failed, "QP {qpn} error: {status_text:text}({vendor} {hw_type} {hw})", more ["{device:word}/{port}: QP"];
    OVERRUN, "CQ error on CQN {cqn}, syndrom {cq_syndrome}";
    OVERRUN, "CQ error on CQN {cqn}, syndrome {cq_syndrome}";
    // UCX.
    About::Failed, "(synd {syndrome} vend {vendor} hw_synd {hw_type_high}/{hw})", more UCX, around (0, 1);
    About::Failed, "(synd {syndrome} vend {vendor})", more UCX;
    About::Failed, "send completion with error: {status_text:text}qpn {qpn} wrid {_} vendor_err {vendor}",
        more ["rqpn {remote_qpn}"], around (0, 1);
    About::Failed, "completion with error on qp {qpn}: {status_text:text} syndrome {vendor}";
    About::Failed, "completed with error: {status_text:text} vendor_err {vendor}";
    About::Failed, "completion with error: {status_text:rest}";
    DCT, "DCT access error on DCTN {dctn}";
    NO_UAR, "both WC and NC_DEDICATED UAR allocation types are not supported", more ["{device:word}: both WC"];
    // NCCL and its plugins.
    About::Failed, "got completion *with status={status_number} opcode={_} len={_} vendor err {vendor}", more NCCL;
    About::Failed, "got completion *with error {status_number}, opcode {_}, len {_}, vendor err {vendor}", more NCCL;
    ACCESS, "local access violation work queue error", more ["{device:word}:{port} "];
    // Other programs.
    About::Failed, "completion with status: {status_number}, vendor syndrome: {vendor}";
    About::Failed, "failed status {status_number}: wr_id {_} syndrom {vendor}";
    About::Failed, "failed status {status_text:text} ({status_number}) for wr_id {wr_id}";
    About::Failed, "status number {status_number} for wr_id {_:word} opcode {_} vendor error {vendor}";
    About::Failed, "failed with status {status_text:text} ({status_number})";
    About::Failed, "CQ error on *({status_number}): {status_text:rest}";
    About::Failed, "error on CQ *status: ({status_number}): {status_text:rest}";
    About::Failed, "prov_err: {status_text:text} ({status_number})";
    // DPDK.
    About::Failed, "unexpected CQE error {cqe_opcode} ({_}) syndrome {syndrome}";
    About::Failed, "unexpected CQE error syndrome {syndrome} CQN = {cqn} {_:word} = {queue_number} wqe_counter = {wqe_counter}",
        more ["wq_ci = {wq_ci}", "cq_ci = {cq_ci}"];
    NO_VERBS, "no Verbs device matches PCI device {pci:text}, are kernel drivers loaded";
}

/// Every line of the table in the text, in order.
pub(super) fn find(text: &str) -> Vec<Line> {
    let patterns: Vec<Pattern> = ROWS.iter().map(|row| Pattern::new(row.pattern)).collect();
    // The rows that a byte can start.
    let of_byte = |byte: u8| -> Vec<(&Row, &Pattern)> {
        ROWS.iter().zip(&patterns).filter(|(_, pattern)| pattern.starts(byte)).collect()
    };
    let rows: Vec<_> = (0..=u8::MAX).map(of_byte).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let mut rows = rows[usize::from(*byte)].iter();
        match rows.find_map(|(row, pattern)| Some((*row, pattern.at(text, at)?))) {
            Some((row, (end, facts))) => {
                found.push((row, at..end, facts));
                at = end;
            }
            None => at += 1,
        }
    }
    let ranges: Vec<Range<usize>> = found.iter().map(|(_, range, _)| range.clone()).collect();
    let with_more = |(index, (row, range, mut facts)): (usize, (&Row, Range<usize>, Facts))| {
        let before = if index > 0 { ranges[index - 1].end } else { 0 };
        let after = ranges.get(index + 1).map_or(text.len(), |next| next.start);
        let start = line_start(text, range.start, row.around.0).max(before);
        let end = line_end(text, range.end, row.around.1).min(after);
        for more in row.more {
            if let Some((_, more)) = Pattern::new(more).find(text, start..end) {
                facts.join(&more);
            }
        }
        Line { about: row.about, at: range.start, facts }
    };
    found.into_iter().enumerate().map(with_more).collect()
}

/// The start of the line that is `lines` lines before this place.
fn line_start(text: &str, at: usize, lines: usize) -> usize {
    let ends = text[..at].bytes().enumerate().rev().filter(|(_, byte)| *byte == b'\n');
    ends.map(|(end, _)| end + 1).nth(lines).unwrap_or(0)
}

/// The end of the line that is `lines` lines after this place.
fn line_end(text: &str, at: usize, lines: usize) -> usize {
    text[at..].match_indices('\n').nth(lines).map_or(text.len(), |(end, _)| at + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_a_log_and_what_is_around_them_is_their_own() {
        let text = "boot\n\
            mlx5_0/1: QP 137 error: unrecognized status (0x41 0x0 0x0)\n\
            [h:1:0]  Local protection on mlx5_1:1/IB (synd 0x4 vend 0x51 hw_synd 0/2)\n\
            [h:1:0]  RC QP 0x169 wqe[3]: SEND s-- [va 0x7f len 1 lkey 0xb5d2] [rqpn 0x16a]\n\
            [h:1:0]  Remote access on mlx5_1:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)\n\
            end\n";
        let found = find(text);
        assert_eq!(found.len(), 3);
        let number = |index: usize, name| found[index].facts.number(name);
        assert_eq!((number(0, "qpn"), number(0, "vendor")), (Some(137), Some(0x41)));
        assert_eq!(found[0].facts.text("device"), Some("mlx5_0"));
        assert_eq!((number(1, "qpn"), number(1, "lkey")), (Some(0x169), Some(0xb5d2)));
        assert_eq!((number(1, "hw"), number(1, "remote_qpn")), (Some(2), Some(0x16a)));
        assert_eq!((number(2, "qpn"), number(2, "syndrome")), (None, Some(0x13)));
        assert!(found.windows(2).all(|two| two[0].at < two[1].at));
    }

    #[test]
    fn lines_of_programs_without_a_record_of_their_own_are_found() {
        for (text, name, number) in [
            (
                "nvme nvme15: RECV for CQE 0x0 failed with status local protection error (4)",
                "status_number",
                4,
            ),
            (
                "*ERROR*: CQ error on Queue Pair 0x7e, Opcode 128 (4): local protection error",
                "status_number",
                4,
            ),
            (
                "*ERROR*: Error on CQ 0x1f, type DATA, status: (10): remote access error",
                "status_number",
                10,
            ),
            ("fi_cq_readerr: err: 5, prov_err: remote access error (10)", "status_number", 10),
            ("net_mlx5: unexpected CQE error 13 (0x0d) syndrome 0x04", "syndrome", 4),
            (
                "infiniband mlx5_0: mlx5_poll_one:527:(pid 0): Requestor error cqe on cqn 0x406:\n\
              infiniband mlx5_0: mlx5_poll_one:530:(pid 0): syndrome 0x13, vendor syndrome 0x88",
                "syndrome",
                0x13,
            ),
        ] {
            let found = find(text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].facts.number(name), Some(number), "{text}");
        }
    }

    #[test]
    fn a_line_that_a_mail_broke_is_one() {
        let text = "> (pid\n1440): SET_ROCE_ADDRESS(0x761) op_mod(0x0) failed, \\\n\tstatus bad\n\
            parameter(0x3), syndrome (0x63c66), err(-22)\n";
        let found = find(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].about, About::Refused);
        assert_eq!(found[0].facts.number("fw_syndrome"), Some(0x63c66));
        assert_eq!(found[0].facts.number("errno"), Some(22));
        assert_eq!(found[0].facts.text("command"), Some("SET_ROCE_ADDRESS"));
    }
}
