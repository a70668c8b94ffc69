//! Compares the structures and constants of `mlx5-verbs`, and those of the kernel's connection
//! manager, with the headers of rdma-core and of the kernel, by the C compiler.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use mlx5_uapi::rdma_cm;
use mlx5_verbs::abi;

/// Names that releases after 44 added; older headers need not have them. With older headers, the
/// members after them in a structure that grows downward ([`abi::verbs_context`]) are compared by
/// their offsets from the end.
const NEWER: &[&str] = &[
    "IBV_ACCESS_FLUSH_GLOBAL",
    "IBV_ACCESS_FLUSH_PERSISTENT",
    "IBV_COMP_CNTR_TYPE_BYTES",
    "IBV_COMP_CNTR_TYPE_WRS",
    "IBV_DMAH_INIT_ATTR_MASK_CPU_ID",
    "IBV_DMAH_INIT_ATTR_MASK_PH",
    "IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE",
    "IBV_EVENT_DEVICE_SPEED_CHANGE",
    "IBV_FLUSH_GLOBAL",
    "IBV_FLUSH_MR",
    "IBV_FLUSH_PERSISTENT",
    "IBV_FLUSH_RANGE",
    "IBV_ODP_SUPPORT_ATOMIC_WRITE",
    "IBV_ODP_SUPPORT_FLUSH",
    "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
    "IBV_PORT_LINK_SPEED_XDR_SUP",
    "IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ",
    "IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE",
    "IBV_QP_ATTACH_COMP_CNTR_OP_RECV",
    "IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ",
    "IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE",
    "IBV_QP_ATTACH_COMP_CNTR_OP_SEND",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES",
    "IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY",
    "IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS",
    "IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG",
    "IBV_REG_MR_MASK_ADDR",
    "IBV_REG_MR_MASK_BUF",
    "IBV_REG_MR_MASK_DMAH",
    "IBV_REG_MR_MASK_FD",
    "IBV_REG_MR_MASK_FD_OFFSET",
    "IBV_REG_MR_MASK_IOVA",
    "IBV_TPH_MEM_TYPE_PM",
    "IBV_TPH_MEM_TYPE_VM",
    "IBV_WC_FLUSH",
    "IBV_WR_FLUSH",
    "MLX5DV_CONTEXT_ATTR_MASK_FD_ARRAY",
    "MLX5DV_CONTEXT_FLAGS_BLUEFLAME",
    "MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM",
    "MLX5DV_CONTEXT_MASK_OOO_RECV_WRS",
    "MLX5DV_CONTEXT_MASK_REG_C0",
    "MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET",
    "MLX5DV_FLOW_MATCHER_MASK_IB_PORT",
    "MLX5DV_OBJ_DEVX",
    "MLX5DV_QP_CREATE_OOO_DP",
    "ibv_comp_cntr",
    "ibv_comp_cntr_caps",
    "ibv_comp_cntr_init_attr",
    "ibv_dmah",
    "ibv_dmah_init_attr",
    "ibv_fd_arr",
    "ibv_mr_init_attr",
    "ibv_port_attr.active_speed_ex",
    "ibv_qp_attach_comp_cntr_attr",
    "ibv_qp_ex.wr_flush",
    "mlx5dv_context.max_dc_init_rd_atom",
    "mlx5dv_context.max_dc_rd_atom",
    "mlx5dv_context.ooo_recv_wrs_caps",
    "mlx5dv_context.reg_c0",
    "mlx5dv_context_attr.fds",
    "mlx5dv_devx",
    "mlx5dv_export_sizes",
    "mlx5dv_flow_matcher_attr.ib_port",
    "mlx5dv_obj.devx",
    "mlx5dv_ooo_recv_wrs_caps",
    "mlx5dv_reg",
    "verbs_context.alloc_buf",
    "verbs_context.alloc_dmah",
    "verbs_context.dealloc_dmah",
    "verbs_context.dm_export_dmabuf_fd",
    "verbs_context.free_buf",
    "verbs_context.reg_mr_ex",
];

/// Returns the number of compared facts, and each size, offset and constant that differs from this
/// machine's headers.
pub(crate) fn compare() -> Result<(usize, Vec<String>), Box<dyn Error>> {
    let facts = facts();
    let mut program = String::from(
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n\
         #include <infiniband/sa.h>\n#include <rdma/ib_user_sa.h>\n#include <rdma/ib_user_verbs.h>\n\
         #include <netinet/in.h>\n#include <linux/socket.h>\n#include <rdma/rdma_user_cm.h>\n\
         #include <infiniband/ib.h>\n",
    );
    let head = program.lines().count();
    for fact in &facts {
        _ = writeln!(
            program,
            "_Static_assert({} == {}, \"differs\");",
            fact.expression, fact.value
        );
    }
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command.args([
        "-fsyntax-only",
        "-fmax-errors=0",
        "-fno-diagnostics-show-caret",
        "-x",
        "c",
        "-",
    ]);
    command.env("LC_ALL", "C").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().ok_or("the compiler has no input")?.write_all(program.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !said.contains("<stdin>:") {
        return Err(format!("the C compiler failed: {said}").into());
    }
    let mut left = BTreeSet::new();
    let mut differing = Vec::new();
    for line in said.lines().filter(|line| line.contains(" error: ")) {
        let number = line.split(':').nth(1).and_then(|number| number.parse::<usize>().ok());
        let fact = number.and_then(|number| facts.get(number.checked_sub(head + 1)?));
        let fact = fact.ok_or_else(|| format!("the C compiler says: {line}"))?;
        if line.contains("static assertion failed") {
            differing.push(format!("{} is not {}", fact.expression, fact.value));
        } else if NEWER.contains(&fact.name.as_str()) || NEWER.contains(&fact.structure) {
            left.insert(&fact.name);
        } else {
            differing.push(format!("{}: {line}", fact.expression));
        }
    }
    Ok((facts.len() - left.len(), differing))
}

struct Fact {
    structure: &'static str,
    name: String,
    expression: String,
    value: i64,
}

fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    for &(structure, size, fields) in abi::layouts() {
        let kind = if fields.is_empty() { "union" } else { "struct" };
        let c_name = if structure == "ibv_device_ops" { "_ibv_device_ops" } else { structure };
        // A structure that can grow is longer in a later release than in an earlier one.
        if !GROWN.contains(&structure) {
            let expression = format!("sizeof({kind} {c_name})");
            facts.push(Fact {
                structure,
                name: structure.to_owned(),
                expression,
                value: size as i64,
            });
        }
        for &(field, offset) in fields {
            let member = field.trim_start_matches("r#");
            let name = format!("{structure}.{member}");
            let member = C_NAMES.iter().find(|(ours, _)| *ours == name).map_or(member, |(_, c)| c);
            let at = format!("offsetof({kind} {c_name}, {member})");
            let (expression, value) = if structure == "verbs_context" {
                (format!("sizeof({kind} {structure}) - {at}"), (size - offset) as i64)
            } else {
                (at, offset as i64)
            };
            facts.push(Fact { structure, name, expression, value });
        }
    }
    for &(constant, value) in abi::constants() {
        let (name, expression) = (constant.to_owned(), constant.to_owned());
        facts.push(Fact { structure: "", name, expression, value });
    }
    facts.extend(connection_manager());
    facts
}

/// The facts of the connection manager.
fn connection_manager() -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |structure, name: String, expression, value| {
        facts.push(Fact { structure, name, expression, value: value as i64 });
    };
    for &(structure, size, fields) in rdma_cm::LAYOUTS {
        let exception = CM_NAMES.iter().find(|(ours, ..)| *ours == structure);
        let common = format!("rdma_ucm_{}", snake(structure));
        let (name, prefix) = exception.map_or((&*common, ""), |(_, name, prefix)| (name, prefix));
        // Its paths are a flexible array in C.
        if structure != "QueryPathResp" {
            add(structure, structure.to_owned(), format!("sizeof(struct {name})"), size);
        }
        for &(field, offset) in fields {
            let full = format!("{structure}.{field}");
            let member = C_NAMES.iter().find(|(ours, _)| *ours == full).map_or(field, |(_, c)| c);
            let expression = format!("offsetof(struct {name}, {prefix}{member})");
            add(structure, full, expression, offset);
        }
    }
    for (what, expression, value) in [
        (
            "SocketAddress",
            "sizeof(struct __kernel_sockaddr_storage)",
            size_of::<rdma_cm::SocketAddress>(),
        ),
        ("IpAddress", "sizeof(struct sockaddr_in6)", size_of::<rdma_cm::IpAddress>()),
        ("AF_INET", "AF_INET", rdma_cm::AF_INET.into()),
        ("AF_INET6", "AF_INET6", rdma_cm::AF_INET6.into()),
        ("AF_IB", "AF_IB", rdma_cm::AF_IB.into()),
        ("MAX_PRIVATE_DATA", "RDMA_MAX_PRIVATE_DATA", rdma_cm::MAX_PRIVATE_DATA),
    ] {
        add(what, what.to_owned(), expression.to_owned(), value);
    }
    facts
}

/// `CreateIdResp` as C has it: `create_id_resp`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// Structures of the connection manager that have other names in C, and the prefix of their
/// members' names.
const CM_NAMES: &[(&str, &str, &str)] = &[
    ("Header", "rdma_ucm_cmd_hdr", ""),
    ("PathRecord", "ib_user_path_rec", ""),
    ("PathData", "ib_path_rec_data", ""),
    ("Ipv4Address", "sockaddr_in", "sin_"),
    ("Ipv6Address", "sockaddr_in6", "sin6_"),
    ("IbAddress", "sockaddr_ib", "sib_"),
];

/// Structures that later releases extend.
const GROWN: &[&str] = &[
    "ibv_port_attr",
    "ibv_qp_ex",
    "mlx5dv_context",
    "mlx5dv_context_attr",
    "mlx5dv_flow_action_attr",
    "mlx5dv_obj",
    "verbs_context",
];

/// Members that have no name in C, with the first name inside; and members with another name in C.
const C_NAMES: &[(&str, &str)] = &[
    ("Header.in_len", "in"),
    ("Header.out_len", "out"),
    ("ibv_device.ops", "_ops"),
    ("ibv_flow_spec.spec", "hdr"),
    ("ibv_send_wr.ext", "bind_mw"),
    ("ibv_send_wr.imm", "imm_data"),
    ("ibv_wc.imm", "imm_data"),
    ("mlx5dv_dc_init_attr.dc", "dct_access_key"),
    ("mlx5dv_dr_action_dest_attr.dest", "dest"),
    ("mlx5dv_flow_action_attr.target", "qp"),
];
