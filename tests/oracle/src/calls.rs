//! Calls to the kernel: which are compared, and what their bytes mean.

use mlx5_uapi::ioctl::{Method, attr, method};
use mlx5_uapi::verbs::QpAttrMask;
use mlx5_uapi::write_cmd::WriteCommand;

use crate::event::Call;

/// How a field is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Equal on both sides.
    Same,
    /// An address: given on both sides.
    Address,
    /// Each side's own: a handle, a page, an index.
    Own,
    /// Equal, where this bit of MODIFY_QP's mask is set.
    With(QpAttrMask),
}

/// A field: attribute, name, offset, bytes, rule.
type Field = (u16, &'static str, usize, usize, Rule);

/// A kind of call: its name, its method, its command where it is a write command, its fields.
type Kind = (&'static str, Method, Option<WriteCommand>, &'static [Field]);

use Rule::{Address, Own, Same, With};

const UHW: u16 = attr::uhw::IN.0;
const CORE: u16 = attr::invoke_write::CORE_IN.0;

const MODIFY: &[Field] = &[
    (CORE, "dest.dgid", 0, 16, With(QpAttrMask::AV)),
    (CORE, "dest.flow_label", 16, 4, With(QpAttrMask::AV)),
    (CORE, "dest.dlid", 20, 2, With(QpAttrMask::AV)),
    (CORE, "dest.sgid_index", 24, 1, With(QpAttrMask::AV)),
    (CORE, "dest.hop_limit", 25, 1, With(QpAttrMask::AV)),
    (CORE, "dest.traffic_class", 26, 1, With(QpAttrMask::AV)),
    (CORE, "dest.sl", 27, 1, With(QpAttrMask::AV)),
    (CORE, "dest.src_path_bits", 28, 1, With(QpAttrMask::AV)),
    (CORE, "dest.static_rate", 29, 1, With(QpAttrMask::AV)),
    (CORE, "dest.is_global", 30, 1, With(QpAttrMask::AV)),
    (CORE, "dest.port_num", 31, 1, With(QpAttrMask::AV)),
    (CORE, "qp_handle", 64, 4, Own),
    (CORE, "attr_mask", 68, 4, Same),
    (CORE, "qkey", 72, 4, With(QpAttrMask::QKEY)),
    (CORE, "rq_psn", 76, 4, With(QpAttrMask::RQ_PSN)),
    (CORE, "sq_psn", 80, 4, With(QpAttrMask::SQ_PSN)),
    (CORE, "dest_qp_num", 84, 4, With(QpAttrMask::DEST_QPN)),
    (CORE, "qp_access_flags", 88, 4, With(QpAttrMask::ACCESS_FLAGS)),
    (CORE, "pkey_index", 92, 2, With(QpAttrMask::PKEY_INDEX)),
    (CORE, "qp_state", 96, 1, With(QpAttrMask::STATE)),
    (CORE, "cur_qp_state", 97, 1, With(QpAttrMask::CUR_STATE)),
    (CORE, "path_mtu", 98, 1, With(QpAttrMask::PATH_MTU)),
    (CORE, "max_rd_atomic", 101, 1, With(QpAttrMask::MAX_QP_RD_ATOMIC)),
    (CORE, "max_dest_rd_atomic", 102, 1, With(QpAttrMask::MAX_DEST_RD_ATOMIC)),
    (CORE, "min_rnr_timer", 103, 1, With(QpAttrMask::MIN_RNR_TIMER)),
    (CORE, "port_num", 104, 1, With(QpAttrMask::PORT)),
    (CORE, "timeout", 105, 1, With(QpAttrMask::TIMEOUT)),
    (CORE, "retry_cnt", 106, 1, With(QpAttrMask::RETRY_CNT)),
    (CORE, "rnr_retry", 107, 1, With(QpAttrMask::RNR_RETRY)),
];

const KINDS: &[Kind] = &[
    (
        "GET_CONTEXT",
        method::GET_CONTEXT,
        None,
        &[
            (UHW, "total_num_bfregs", 0, 4, Same),
            (UHW, "num_low_latency_bfregs", 4, 4, Same),
            (UHW, "flags", 8, 4, Same),
            (UHW, "comp_mask", 12, 4, Same),
            (UHW, "max_cqe_version", 16, 1, Same),
            (UHW, "reserved", 17, 7, Same),
            (UHW, "lib_caps", 24, 8, Same),
        ],
    ),
    (
        "ALLOC_PD",
        method::INVOKE_WRITE,
        Some(WriteCommand::ALLOC_PD),
        &[(CORE, "response", 0, 8, Own)],
    ),
    (
        "REG_MR",
        method::INVOKE_WRITE,
        Some(WriteCommand::REG_MR),
        &[
            (CORE, "response", 0, 8, Own),
            (CORE, "start", 8, 8, Address),
            (CORE, "length", 16, 8, Same),
            (CORE, "hca_va", 24, 8, Address),
            (CORE, "pd_handle", 32, 4, Own),
            (CORE, "access_flags", 36, 4, Same),
        ],
    ),
    (
        "CREATE_AH",
        method::INVOKE_WRITE,
        Some(WriteCommand::CREATE_AH),
        &[
            (CORE, "response", 0, 8, Own),
            (CORE, "user_handle", 8, 8, Own),
            (CORE, "pd_handle", 16, 4, Own),
            (CORE, "reserved", 20, 4, Same),
            (CORE, "grh.dgid", 24, 16, Same),
            (CORE, "grh.flow_label", 40, 4, Same),
            (CORE, "grh.sgid_index", 44, 1, Same),
            (CORE, "grh.hop_limit", 45, 1, Same),
            (CORE, "grh.traffic_class", 46, 1, Same),
            (CORE, "grh.reserved", 47, 1, Same),
            (CORE, "dlid", 48, 2, Same),
            (CORE, "sl", 50, 1, Same),
            (CORE, "src_path_bits", 51, 1, Same),
            (CORE, "static_rate", 52, 1, Same),
            (CORE, "is_global", 53, 1, Same),
            (CORE, "port_num", 54, 1, Same),
            (CORE, "attr.reserved", 55, 1, Same),
        ],
    ),
    ("MODIFY_QP", method::INVOKE_WRITE, Some(WriteCommand::MODIFY_QP), MODIFY),
    (
        "CREATE_CQ",
        method::CQ_CREATE,
        None,
        &[
            (attr::create_cq::CQE.0, "cqe", 0, 4, Same),
            (attr::create_cq::USER_HANDLE.0, "user_handle", 0, 8, Own),
            (attr::create_cq::COMP_VECTOR.0, "comp_vector", 0, 4, Same),
            (attr::create_cq::FLAGS.0, "core flags", 0, 4, Same),
            (UHW, "buf_addr", 0, 8, Address),
            (UHW, "db_addr", 8, 8, Address),
            (UHW, "cqe_size", 16, 4, Same),
            (UHW, "cqe_comp_en", 20, 1, Same),
            (UHW, "cqe_comp_res_format", 21, 1, Same),
            (UHW, "flags", 22, 2, Same),
            (UHW, "uar_page_index", 24, 2, Own),
            (UHW, "reserved", 26, 6, Same),
        ],
    ),
    (
        "CREATE_SRQ",
        method::SRQ_CREATE,
        None,
        &[
            (attr::create_srq::USER_HANDLE.0, "user_handle", 0, 8, Own),
            (attr::create_srq::MAX_WR.0, "max_wr", 0, 4, Same),
            (attr::create_srq::MAX_SGE.0, "max_sge", 0, 4, Same),
            (attr::create_srq::LIMIT.0, "limit", 0, 4, Same),
            (attr::create_srq::MAX_NUM_TAGS.0, "max_num_tags", 0, 4, Same),
            (attr::create_srq::TYPE.0, "type", 0, 8, Same),
            (UHW, "buf_addr", 0, 8, Address),
            (UHW, "db_addr", 8, 8, Address),
            (UHW, "flags", 16, 4, Same),
            (UHW, "reserved0", 20, 4, Same),
            (UHW, "uidx", 24, 4, Same),
            (UHW, "reserved1", 28, 4, Same),
        ],
    ),
    (
        "CREATE_QP",
        method::QP_CREATE,
        None,
        &[
            (attr::create_qp::USER_HANDLE.0, "user_handle", 0, 8, Own),
            (attr::create_qp::CAP.0, "cap.max_send_wr", 0, 4, Same),
            (attr::create_qp::CAP.0, "cap.max_recv_wr", 4, 4, Same),
            (attr::create_qp::CAP.0, "cap.max_send_sge", 8, 4, Same),
            (attr::create_qp::CAP.0, "cap.max_recv_sge", 12, 4, Same),
            (attr::create_qp::CAP.0, "cap.max_inline_data", 16, 4, Same),
            (attr::create_qp::TYPE.0, "type", 0, 8, Same),
            (attr::create_qp::FLAGS.0, "core flags", 0, 4, Same),
            (attr::create_qp::SOURCE_QPN.0, "source_qpn", 0, 4, Same),
            (UHW, "buf_addr", 0, 8, Address),
            (UHW, "db_addr", 8, 8, Address),
            (UHW, "sq_wqe_count", 16, 4, Same),
            (UHW, "rq_wqe_count", 20, 4, Same),
            (UHW, "rq_wqe_shift", 24, 4, Same),
            (UHW, "flags", 28, 4, Same),
            (UHW, "uidx", 32, 4, Own),
            (UHW, "bfreg_index", 36, 4, Own),
            (UHW, "sq_buf_addr", 40, 8, Same),
            (UHW, "ece_options", 48, 4, Same),
            (UHW, "dci_streams", 52, 2, Same),
            (UHW, "reserved", 54, 2, Same),
        ],
    ),
];

/// What a call is, if it is compared.
fn kind(call: &Call) -> Option<&'static Kind> {
    let command = call.inputs.get(&attr::invoke_write::WRITE_CMD.0);
    let command = command.and_then(|bytes| Some(u32::from_ne_bytes(*bytes.first_chunk()?)));
    KINDS.iter().find(|(_, method, wanted, _)| {
        (method.object, method.id) == (call.object, call.method)
            && wanted.is_none_or(|wanted| Some(wanted.0) == command)
    })
}

/// The name of a call that is compared.
pub(crate) fn name(call: &Call) -> Option<&'static str> {
    kind(call).map(|(name, ..)| *name)
}

/// A field's bytes; what is not said is zero.
fn bytes(call: &Call, (attribute, _, at, length, _): &Field) -> Vec<u8> {
    let all = call.inputs.get(attribute).map(Vec::as_slice).unwrap_or_default();
    let there = all.get(*at..).unwrap_or_default();
    let mut bytes = there[..there.len().min(*length)].to_vec();
    bytes.resize(*length, 0);
    bytes
}

/// A field's value, in words.
fn value(bytes: &[u8]) -> String {
    if bytes.len() > 8 {
        return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    format!("{:#x}", u64::from_le_bytes(word))
}

/// Compares two calls of the same kind: what differs, and its value on both sides.
pub(crate) fn compare(peer: &Call, ours: &Call) -> Vec<(String, String, String)> {
    let Some((_, _, _, fields)) = kind(peer) else { return Vec::new() };
    let mask_of = |call: &Call| {
        let field = fields.iter().find(|(_, name, ..)| *name == "attr_mask");
        let word = field.and_then(|field| bytes(call, field).first_chunk().copied());
        word.map_or(0, u32::from_ne_bytes)
    };
    let mask = mask_of(peer) & mask_of(ours);
    let mut found = Vec::new();
    for field in *fields {
        let (_, name, _, _, rule) = field;
        let (a, b) = (bytes(peer, field), bytes(ours, field));
        let given = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        let good = match rule {
            Rule::Same => a == b,
            Rule::Address => given(&a) && given(&b),
            Rule::Own => true,
            Rule::With(bit) => mask & bit.bits() == 0 || a == b,
        };
        if !good {
            found.push(((*name).to_owned(), value(&a), value(&b)));
        }
    }
    // Whatever is said besides must be known here.
    let known = |id: u16| {
        id == attr::invoke_write::WRITE_CMD.0 && peer.object == 0
            || fields.iter().any(|(attribute, ..)| *attribute == id)
    };
    for (call, side) in [(peer, "rdma-core"), (ours, "ours")] {
        for id in call.inputs.keys().filter(|id| !known(**id)) {
            found.push((format!("attribute {id:#x}"), side.to_owned(), String::new()));
        }
    }
    found
}
