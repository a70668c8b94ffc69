//! Calls to the kernel: which of them the oracle compares, and the meaning of their bytes.

use std::mem::offset_of;

use mlx5_uapi::flow::{HandleAction, SpecHeader, SpecKind};
use mlx5_uapi::ioctl::{Method, attr, method};
use mlx5_uapi::mlx5::CreateQpRss;
use mlx5_uapi::verbs::QpAttrMask;
use mlx5_uapi::write_cmd::WriteCommand;

use zerocopy::FromBytes;

use crate::event::Call;
use crate::watch::POINTED;

/// The way to compare a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Equal on both sides.
    Same,
    /// An address: both sides give one.
    Address,
    /// Each side has its own: a handle, a page, an index.
    Own,
    /// Equal, where this bit of MODIFY_QP's mask is set.
    With(QpAttrMask),
    /// An address: both sides give one, or neither does.
    Given,
    /// Handles, some of them equal: the equal ones must be in the same places on both sides.
    Handles,
    /// A rule's specifications, equal but for the counters' handle.
    Specs,
}

/// A field: attribute, name, offset, bytes, rule.
type Field = (u16, &'static str, usize, usize, Rule);

/// A kind of call: its name, its method, its command where it is a write command, its fields.
type Kind = (&'static str, Method, Option<WriteCommand>, &'static [Field]);

use Rule::{Address, Given, Handles, Own, Same, Specs, With};

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
            (UHW, "sq_buf_addr", 40, 8, Given),
            (UHW, "ece_options", 48, 4, Same),
            (UHW, "dci_streams", 52, 2, Same),
            (UHW, "reserved", 54, 2, Same),
        ],
    ),
    (
        CREATE_HASH_QP,
        method::QP_CREATE,
        None,
        &[
            (attr::create_qp::USER_HANDLE.0, "user_handle", 0, 8, Own),
            (attr::create_qp::CAP.0, "cap", 0, 20, Same),
            (attr::create_qp::TYPE.0, "type", 0, 8, Same),
            (attr::create_qp::FLAGS.0, "core flags", 0, 4, Same),
            (attr::create_qp::SOURCE_QPN.0, "source_qpn", 0, 4, Same),
            (UHW, "rx_hash_fields_mask", 0, 8, Same),
            (UHW, "rx_hash_function", 8, 1, Same),
            (UHW, "rx_key_len", 9, 1, Same),
            (UHW, "reserved", 10, 6, Same),
            (UHW, "rx_hash_key", 16, 128, Same),
            (UHW, "comp_mask", 144, 4, Same),
            (UHW, "flags", 148, 4, Same),
        ],
    ),
    (
        "CREATE_WQ",
        method::WQ_CREATE,
        None,
        &[
            (attr::create_wq::USER_HANDLE.0, "user_handle", 0, 8, Own),
            (attr::create_wq::TYPE.0, "type", 0, 8, Same),
            (attr::create_wq::MAX_WR.0, "max_wr", 0, 4, Same),
            (attr::create_wq::MAX_SGE.0, "max_sge", 0, 4, Same),
            (attr::create_wq::FLAGS.0, "core flags", 0, 4, Same),
            (UHW, "buf_addr", 0, 8, Address),
            (UHW, "db_addr", 8, 8, Address),
            (UHW, "rq_wqe_count", 16, 4, Same),
            (UHW, "rq_wqe_shift", 20, 4, Same),
            (UHW, "user_index", 24, 4, Own),
            (UHW, "flags", 28, 4, Same),
            (UHW, "comp_mask", 32, 4, Same),
            (UHW, "single_stride_log_num_of_bytes", 36, 4, Same),
            (UHW, "single_wqe_log_num_of_strides", 40, 4, Same),
            (UHW, "two_byte_shift_en", 44, 4, Same),
        ],
    ),
    (
        "MODIFY_WQ",
        method::INVOKE_WRITE,
        Some(WriteCommand::MODIFY_WQ_EX),
        &[
            (CORE, "attr_mask", 0, 4, Same),
            (CORE, "wq_handle", 4, 4, Own),
            (CORE, "wq_state", 8, 4, Same),
            (CORE, "curr_wq_state", 12, 4, Same),
            (CORE, "flags", 16, 4, Same),
            (CORE, "flags_mask", 20, 4, Same),
            (UHW, "comp_mask", 0, 4, Same),
            (UHW, "reserved", 4, 4, Same),
        ],
    ),
    (
        "CREATE_RWQ_IND_TBL",
        method::INVOKE_WRITE,
        Some(WriteCommand::CREATE_RWQ_IND_TBL_EX),
        &[
            (CORE, "comp_mask", 0, 4, Same),
            (CORE, "log_ind_tbl_size", 4, 4, Same),
            (CORE, "wq_handles", 8, 64, Handles),
        ],
    ),
    (
        "CREATE_FLOW",
        method::INVOKE_WRITE,
        Some(WriteCommand::CREATE_FLOW_EX),
        &[
            (CORE, "comp_mask", 0, 4, Same),
            (CORE, "qp_handle", 4, 4, Own),
            (CORE, "type", 8, 4, Same),
            (CORE, "size", 12, 2, Same),
            (CORE, "priority", 14, 2, Same),
            (CORE, "num_of_specs", 16, 1, Same),
            (CORE, "reserved", 17, 2, Same),
            (CORE, "port", 19, 1, Same),
            (CORE, "flags", 20, 4, Same),
            (CORE, "specs", 24, 1024, Specs),
            (UHW, "ncounters_data", 0, 4, Same),
            (UHW, "reserved", 4, 4, Same),
            (UHW, "counters_data", 8, 8, Given),
            (UHW, "ncounters", 16, 4, Same),
            (UHW, "reserved1", 20, 4, Same),
            (POINTED, "counters", 0, 64, Same),
        ],
    ),
    ("DESTROY_FLOW", method::FLOW_DESTROY, None, &[]),
    ("DESTROY_WQ", method::WQ_DESTROY, None, &[]),
    ("DESTROY_QP", method::QP_DESTROY, None, &[]),
    ("DESTROY_RWQ_IND_TBL", method::RWQ_IND_TBL_DESTROY, None, &[]),
    ("CREATE_COUNTERS", method::COUNTERS_CREATE, None, &[]),
    ("DESTROY_COUNTERS", method::COUNTERS_DESTROY, None, &[]),
    (
        "CREATE_FLOW_MATCHER",
        method::FLOW_MATCHER_CREATE,
        None,
        &[
            (attr::create_flow_matcher::MATCH_MASK.0, "match_mask", 0, 512, Same),
            (attr::create_flow_matcher::FLOW_TYPE.0, "priority", 0, 2, Same),
            (attr::create_flow_matcher::MATCH_CRITERIA.0, "match_criteria", 0, 1, Same),
            (attr::create_flow_matcher::FLOW_FLAGS.0, "flow_flags", 0, 8, Same),
            (attr::create_flow_matcher::FT_TYPE.0, "ft_type", 0, 8, Same),
        ],
    ),
    ("DESTROY_FLOW_MATCHER", method::FLOW_MATCHER_DESTROY, None, &[]),
    (
        "CREATE_FLOW_OF_MATCHER",
        method::MLX5_CREATE_FLOW,
        None,
        &[
            (attr::create_matcher_flow::MATCH_VALUE.0, "match_value", 0, 512, Same),
            (attr::create_matcher_flow::TAG.0, "tag", 0, 4, Same),
            (attr::create_matcher_flow::FLAGS.0, "flags", 0, 8, Same),
        ],
    ),
];

/// The call that makes a queue pair that spreads packets. Its input has a part for the driver.
const CREATE_HASH_QP: &str = "CREATE_HASH_QP";

/// Clears the counters' handle in the specifications of a rule that counts.
fn without_counters(mut specs: &[u8]) -> Vec<u8> {
    let mut all = specs.to_vec();
    let mut at = 0;
    while let Ok((header, _)) = SpecHeader::read_from_prefix(specs)
        && let Some(rest) = specs.get(usize::from(header.size).max(1)..)
        && header.size != 0
    {
        if header.kind == SpecKind::ActionCount.raw() {
            all[at + offset_of!(HandleAction, handle)..][..size_of::<u32>()].fill(0);
        }
        at += usize::from(header.size);
        specs = rest;
    }
    all
}

/// The handles, each replaced by its number in order of first appearance.
fn by_order(handles: &[u8]) -> Vec<usize> {
    let mut known: Vec<&[u8]> = Vec::new();
    let mut number = |handle| {
        known.iter().position(|own| *own == handle).unwrap_or_else(|| {
            known.push(handle);
            known.len() - 1
        })
    };
    handles.chunks(size_of::<u32>()).map(&mut number).collect()
}

/// The kind of a call, if the oracle compares it.
fn kind(call: &Call) -> Option<&'static Kind> {
    let command = call.inputs.get(&attr::invoke_write::WRITE_CMD.0);
    let command = command.and_then(|bytes| Some(u32::from_ne_bytes(*bytes.first_chunk()?)));
    let driver = call.inputs.get(&attr::uhw::IN.0).map(Vec::len);
    let spreads =
        call.object == method::QP_CREATE.object && driver == Some(size_of::<CreateQpRss>());
    KINDS.iter().find(|(name, method, wanted, _)| {
        (method.object, method.id) == (call.object, call.method)
            && wanted.is_none_or(|wanted| Some(wanted.0) == command)
            && (*name == CREATE_HASH_QP) == (spreads && call.method == method::QP_CREATE.id)
    })
}

/// The name of a call that the oracle compares.
pub(crate) fn name(call: &Call) -> Option<&'static str> {
    kind(call).map(|(name, ..)| *name)
}

/// A field's bytes; zeros if the call does not have the field.
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

/// Compares two calls of the same kind. Returns the name of each field that differs, with the value
/// of both sides.
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
            Rule::Given => given(&a) == given(&b),
            Rule::Handles => by_order(&a) == by_order(&b),
            Rule::Specs => without_counters(&a) == without_counters(&b),
        };
        if !good {
            found.push(((*name).to_owned(), value(&a), value(&b)));
        }
    }
    // This table must know every attribute of the call.
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
