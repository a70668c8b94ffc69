//! The simulated models beside the descriptions that real devices gave of themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mlx5::{Context, LinkLayer, devices_on};
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_sim::firmware::Firmware;
use mlx5_sim::{Model, PortConfig, SimConfig, Simulator};
use serde_json::Value;

use crate::{records, text};

use LinkLayer::{Ethernet, InfiniBand};

/// The model and the link of each description; `None` is a model that is not simulated.
const DEVICES: &[(&str, Option<(Model, LinkLayer)>)] = &[
    ("lore-devinfo-cx7", Some((Model::ConnectX7, Ethernet))),
    ("lore-devinfo-cx4lx-bond", None),
    ("lore-devinfo-cx5-ib", Some((Model::ConnectX5, InfiniBand))),
    ("devinfo-ompi-6137", Some((Model::ConnectX5, Ethernet))),
    ("devinfo-ompi-9957", None),
    // 156,250 kHz: a ConnectX-5 or 6, which are alike in all that these three tell.
    ("devinfo-ucx-4770", Some((Model::ConnectX5, InfiniBand))),
    ("devinfo-ucx-8139", Some((Model::ConnectX5, Ethernet))),
    ("devinfo-ucx-10430", Some((Model::ConnectX5, Ethernet))),
    ("devinfo-ucx-9724", None),
    ("devinfo-ucx-9830", Some((Model::ConnectX5, Ethernet))),
    ("devinfo-ucx-7613", None),
    ("devinfo-ucx-10317", None),
    ("devinfo-ucx-10317-cx7", Some((Model::ConnectX7, Ethernet))),
    ("devinfo-ucxpy-361", Some((Model::ConnectX5, InfiniBand))),
    ("devinfo-ucx-8229", Some((Model::ConnectX6, InfiniBand))),
    // A ConnectX-5 Ex is another model, with another clock.
    ("devinfo-libfabric-8256", None),
    ("devinfo-ompi-9087", None),
];

/// Fields that depend on the machine, or not on the device.
const NOT_OF_THE_MODEL: &[&str] = &[
    "active_mtu",
    "active_speed",
    "active_width",
    "board_id",
    "fw_ver",
    "hca_id",
    "link_layer",
    "num_comp_vectors",
    "phys_state",
    "port",
    "port_lid",
    "port_lmc",
    "sm_lid",
    "state",
    "subnet_timeout",
    "supported_qp",
    "transport",
    // Words for bits that are compared themselves, and bits of a vendor's own library.
    "device_cap_flags names",
    "device_cap_flags_ex names",
    "device_cap_exp_flags",
    "device_cap_exp_flags names",
    "atomic_cap",
];

/// Why flags differ.
const OLD_KERNEL: &str = "kernels before 6.0 set bits 22, 27, 30 and 31 (and 19 on InfiniBand) too";

/// Differences of a model from a description: the record, the field, and the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("devinfo-ompi-6137", "device_cap_flags", OLD_KERNEL),
    ("devinfo-ucx-8139", "device_cap_flags", OLD_KERNEL),
    ("devinfo-ucx-9830", "device_cap_flags", OLD_KERNEL),
    ("devinfo-ucxpy-361", "device_cap_flags", OLD_KERNEL),
    ("devinfo-ucx-8229", "device_cap_flags", OLD_KERNEL),
    ("devinfo-ucx-4770", "device_cap_flags_ex", OLD_KERNEL),
    ("devinfo-ompi-6137", "max_pd", "firmware 16.23; newer ones have 2^23 (mlx5ctl-caps)"),
    ("devinfo-ucx-8139", "max_pd", "old firmware; newer ones have 2^23 (mlx5ctl-caps)"),
    ("devinfo-ucxpy-361", "max_pd", "firmware 16.23; newer ones have 2^23 (mlx5ctl-caps)"),
    ("devinfo-ucx-8229", "max_qp", "firmware 20.29; a ConnectX-6 with 20.37 has 2^17"),
    ("devinfo-ucx-8229", "vendor_id", "the card is another maker's (Bull), which has its number"),
    (
        "devinfo-ucx-4770",
        "tag_matching",
        "which model and firmware it is, is not told; the manual of the ConnectX-5 Ex promises it",
    ),
    ("devinfo-ucx-4770", "port_cap_flags", "set by the subnet manager, and by the firmware"),
    ("devinfo-ucx-4770", "port_cap_flags2", "set by the firmware: link widths that few ports have"),
];

fn open(model: Model, link: LinkLayer) -> (Simulator, Context) {
    let port = if link == InfiniBand { PortConfig::INFINIBAND } else { PortConfig::ROCE };
    let machine = Simulator::new(SimConfig::new().model(model).ports([port]).raw_packets(true));
    let context = devices_on(machine.kernel()).unwrap()[0].open().unwrap();
    (machine, context)
}

/// The first number in a description's value: decimal or with 0x; of "4096 (5)" the first.
fn number(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let word = value.as_str()?;
    if let Some(hex) = word.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if word == "not supported" {
        return Some(0);
    }
    // "4 (3)" and "invalid value (0)" of lanes: the number in brackets is the device's.
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    };
    digits(word).or_else(|| digits(word.split_once('(')?.1))
}

/// The value of the simulated device under a description's name.
fn simulated(context: &Context, field: &str) -> Option<u64> {
    let device = context.query_device();
    let port = context.query_port(1).unwrap();
    Some(match field {
        "vendor_id" => device.vendor_id.into(),
        "vendor_part_id" => device.vendor_part_id.into(),
        "hw_ver" => device.hw_ver.into(),
        "phys_port_cnt" => device.phys_port_cnt.into(),
        "max_mr_size" => device.max_mr_size,
        "page_size_cap" => device.page_size_cap,
        "max_qp" => device.max_qp.into(),
        "max_qp_wr" => device.max_qp_wr.into(),
        // The low half: the high one is of the extended query.
        "device_cap_flags" => device.device_cap_flags.bits() & u64::from(u32::MAX),
        "device_cap_flags_ex" => device.device_cap_flags.bits(),
        "max_sge" => device.max_sge.into(),
        "max_sge_rd" => device.max_sge_rd.into(),
        "max_cq" => device.max_cq.into(),
        "max_cqe" => device.max_cqe.into(),
        "max_mr" => device.max_mr.into(),
        "max_pd" => device.max_pd.into(),
        "max_mw" => device.max_mw.into(),
        "max_ah" => device.max_ah.into(),
        "max_srq" => device.max_srq.into(),
        "max_srq_wr" => device.max_srq_wr.into(),
        "max_srq_sge" => device.max_srq_sge.into(),
        "max_qp_rd_atom" => device.max_qp_rd_atom.into(),
        "max_qp_init_rd_atom" => device.max_qp_init_rd_atom.into(),
        "max_res_rd_atom" => device.max_res_rd_atom.into(),
        "max_ee_rd_atom" | "max_ee_init_rd_atom" => 0,
        "max_mcast_grp" => device.max_mcast_grp.into(),
        "max_mcast_qp_attach" => device.max_mcast_qp_attach.into(),
        "max_total_mcast_qp_attach" => device.max_total_mcast_qp_attach.into(),
        "max_pkeys" => device.max_pkeys.into(),
        "local_ca_ack_delay" => device.local_ca_ack_delay.into(),
        "completion timestamp_mask" => device.timestamp_mask,
        "hca_core_clock" => device.hca_core_clock,
        "maximum available device memory" => device.max_dm_size,
        "max_cq_count" => device.completions.max_moderation_count.into(),
        "max_cq_period" => device.completions.max_moderation_period.into(),
        "tag_matching" => device.tag_matching.max_num_tags.into(),
        "max_tso" => device.ethernet.max_tso.into(),
        "max_rwq_indirection_tables" => device.ethernet.max_indirection_tables.into(),
        "max_rwq_indirection_table_size" => device.ethernet.max_indirection_table_size.into(),
        "rx_hash_function" => device.ethernet.hash_functions.bits().into(),
        "rx_hash_fields_mask" => device.ethernet.hash_fields.bits(),
        "max_wq_type_rq" => device.ethernet.max_work_queues.into(),
        "qp_rate_limit_min" => device.ethernet.rate_limits.0.into(),
        "qp_rate_limit_max" => device.ethernet.rate_limits.1.into(),
        "max_mtu" => port.max_mtu.map_or(0, |mtu| mtu.bytes().into()),
        "max_msg_sz" => port.max_msg_sz.into(),
        "gid_tbl_len" => port.gid_tbl_len.into(),
        "pkey_tbl_len" => port.pkey_tbl_len.into(),
        "port_cap_flags" => port.port_cap_flags.into(),
        "port_cap_flags2" => port.port_cap_flags2.into(),
        "max_vl_num" => port.max_vl_num.into(),
        "bad_pkey_cntr" | "qkey_viol_cntr" => 0,
        _ => return None,
    })
}

/// "4 (3)", "invalid value (0)": of lanes the number in brackets is the device's.
fn lanes(value: &Value) -> Option<u64> {
    value.as_str()?.split_once('(')?.1.strip_suffix(')')?.parse().ok()
}

#[test]
fn each_model_has_the_limits_and_flags_of_the_recorded_descriptions() {
    let records = records();
    let mut wrong = Vec::new();
    let mut differs = BTreeSet::new();
    let mut compared = 0;
    for record in &records["devinfo"] {
        let id = text(record, "id");
        let of = DEVICES.iter().find(|(of, _)| *of == id);
        let Some((model, link)) = of.unwrap_or_else(|| panic!("{id} is of no model")).1 else {
            continue;
        };
        let (_machine, context) = open(model, link);
        for (field, value) in record["expect"].as_object().unwrap() {
            if NOT_OF_THE_MODEL.contains(&field.as_str()) {
                continue;
            }
            let recorded = if field == "max_vl_num" { lanes(value) } else { number(value) };
            let Some(recorded) = recorded else { panic!("{id}: {field} is no number: {value}") };
            let told =
                simulated(&context, field).unwrap_or_else(|| panic!("{id}: what is {field}?"));
            compared += 1;
            if told == recorded {
                continue;
            }
            match DIFFERENCES.iter().find(|(of, name, _)| (*of, *name) == (id, field)) {
                Some(known) => _ = differs.insert(known),
                None => wrong.push(format!("{id}: {field} is {told:#x}, not {recorded:#x}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unused: Vec<_> = DIFFERENCES.iter().filter(|known| !differs.contains(known)).collect();
    assert!(unused.is_empty(), "these do not differ: {unused:?}");
    assert!(differs.len() * 4 <= compared, "{} of {compared} differ", differs.len());
}

/// A clock that no whole number of MHz has: what the device counts, the page of the kernel and the
/// driver's conversion agree.
#[test]
fn cycles_of_each_recorded_clock_are_the_nanoseconds_that_passed() {
    for (khz, ms) in [(78_125, 1_000), (156_250, 1_000), (1_000_000, 1_000), (156_250, 600_000)] {
        let config = SimConfig::new().step(true).clock_khz(khz);
        let machine = Simulator::new(config);
        let context = devices_on(machine.kernel()).unwrap()[0].open().unwrap();
        assert_eq!(context.query_device().hca_core_clock, u64::from(khz));
        let relation = context.clock().unwrap().now().unwrap();
        let cycles = || machine.fabric().lock().device(0).clock();
        let before = cycles();
        machine.run_for(Duration::from_millis(ms));
        let passed = cycles() - before;
        assert!(passed.abs_diff(u64::from(khz) * ms) <= 1, "{khz} kHz for {ms} ms: {passed}");
        let told = relation.nanoseconds(before + passed) - relation.nanoseconds(before);
        // The multiplier of the page has 23 bits behind the point.
        let off = told.abs_diff(ms * 1_000_000);
        assert!(off <= 1 + ms / 5, "{khz} kHz for {ms} ms: {off} ns off");
    }
}

// QUERY_HCA_CAP.

/// Differences of the simulated ConnectX-6 Dx from the recorded one (`mlx5ctl-caps`), by reason.
const CAPABILITIES: &[(&str, &[&str])] = &[
    (
        "the model has no embedded switch, no virtual functions, no bonds",
        &[
            "eswitch_manager",
            "event_on_vhca_state_active",
            "event_on_vhca_state_allocated",
            "event_on_vhca_state_in_use",
            "event_on_vhca_state_teardown_request",
            "init2_lag_tx_port_affinity",
            "lag_dct",
            "lag_master",
            "lag_native_fdb_selection",
            "lag_tx_port_affinity",
            "num_lag_ports",
            "port_selection_cap",
            "reg_c_preserve",
            "vhca_group_manager",
            "vhca_resource_manager",
        ],
    ),
    (
        "the model has no dynamically connected queue pairs",
        &["dc_req_scat_data_cqe", "dct", "log_max_ra_req_dc", "log_max_ra_res_dc"],
    ),
    ("the model has no on-demand paging: it stays off until it pages", &["pg"]),
    (
        "management of the port, the board and the firmware, which a kernel does without",
        &[
            "beacon_led",
            "debug",
            "driver_version",
            "dtor",
            "event_cap",
            "fast_teardown",
            "force_teardown",
            "general_notification_event",
            "mcam_reg",
            "pcam_reg",
            "pci_sync_for_fw_update_event",
            "port_module_event",
            "ports_check",
            "pps",
            "pps_modify",
            "qcam_reg",
            "release_all_pages",
            "sbcam_reg",
            "temp_warn_event",
            "umem_uid_0",
        ],
    ),
    (
        "counters that the model does not have",
        &[
            "enhanced_error_q_counters",
            "eq_overrun_count",
            "invalid_command_count",
            "max_qp_cnt",
            "modify_rq_counter_set_id",
            "out_of_seq_cnt",
            "quota_exceeded_count",
            "receive_discard_vport_down",
            "retransmission_q_counters",
            "rts2rts_qp_counters_set_id",
            "transmit_discard_vport_down",
            "vnic_env_cq_overrun",
            "vnic_env_int_rq_oob",
            "vnic_env_queue_counters",
            "vport_counters",
        ],
    ),
    (
        "flow tables of the model have counters one by one, and no parsers and definers",
        &[
            "flex_parser_id_gtpu_dw_0",
            "flex_parser_id_gtpu_dw_2",
            "flex_parser_id_gtpu_first_ext_dw_0",
            "flex_parser_id_icmp_dw0",
            "flex_parser_id_icmp_dw1",
            "flex_parser_id_icmpv6_dw0",
            "flex_parser_id_icmpv6_dw1",
            "flow_counter_bulk_alloc",
            "log_max_flow_counter_bulk",
            "max_flow_counter_15_0",
            "max_flow_counter_31_16",
            "max_num_match_definer",
        ],
    ),
    (
        "offloads and habits of queues that the driver does not ask for",
        &[
            "basic_cyclic_rcv_wqe",
            "cc_modify_allowed",
            "cc_query_allowed",
            "cd",
            "cq_period_start_from_cqe",
            "ece_support",
            "end_pad",
            "eth_wqe_too_small",
            "ets",
            "fixed_buffer_size",
            "isolate_vl_tc_new",
            "max_sgl_for_optimized_performance",
            "pad_tx_eth_packet",
            "roce_accl",
            "rq_delay_drop",
            "scqe_break_moderation",
            "set_deth_sqpn",
            "start_pad",
            "stat_rate_support",
            "ts_cqe_to_dest_cqn",
            "vector_calc",
            "wq_signature",
        ],
    ),
    (
        "keys that the kernel has for itself: it makes do without",
        &["dump_fill_mkey", "null_mkey", "umr_extended_translation_offset", "umr_fence"],
    ),
    (
        "mlx5_ib takes what a key may be created with for what a UMR may change; the recorded card          was driven by another driver",
        &["relaxed_ordering_read_umr", "relaxed_ordering_write_umr"],
    ),
    (
        "the key's size is not changed by a UMR: the model does not do it",
        &["umr_modify_entity_size_disabled"],
    ),
    (
        "pages of 4 KiB are what the driver is tested with; the recorded card has those of the host",
        &["uar_4k", "uar_sz"],
    ),
    ("SimConfig::striding turns it on", &["umr_ptr_rlky"]),
    ("the recorded card's page 2 has none of the fields that the model reads", &["hca_cap_2"]),
    (
        "the port's virtual side, which mlx5_ib asks for on InfiniBand alone",
        &["eth_virt", "ib_virt"],
    ),
    ("asked of firmware that nobody has offered memory", &["device_memory"]),
];

/// The places of the fields: each is written as `name, set_name: 0xOFFSET, BITS;`.
fn fields() -> BTreeMap<&'static str, (usize, usize)> {
    let source = include_str!("../../prm/src/cmd/caps.rs");
    let general =
        source.split("struct HcaCap ").nth(1).and_then(|rest| rest.split("\n    }").next());
    let field = |line: &'static str| {
        let (names, place) = line.trim().strip_suffix(';')?.split_once(": 0x")?;
        let (offset, bits) = place.split_once(", ")?;
        let name = names.split(',').next()?;
        Some((name, (usize::from_str_radix(offset, 16).ok()?, bits.parse().ok()?)))
    };
    general.expect("the layout").lines().filter_map(field).collect()
}

/// A field of a layout whose first bit is the most significant one of the first byte.
fn bits(bytes: &[u8], (offset, count): (usize, usize)) -> u64 {
    (offset..offset + count)
        .fold(0, |value, bit| value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
}

#[test]
fn the_simulated_connectx_6_dx_has_the_capabilities_of_the_recorded_one() {
    let records = records();
    let record = records["capabilities"].iter().find(|record| record["id"] == "mlx5ctl-caps");
    let recorded = record.unwrap()["expect"]["MLX5_CAP_GENERAL"].as_object().unwrap();
    let (machine, _context) = open(Model::ConnectX6Dx, Ethernet);
    let mut input = QueryHcaCapIn::request();
    input.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::MAX));
    let mut output = vec![0; QueryHcaCapOut::BYTES];
    let mut fabric = machine.fabric().lock();
    Firmware::new().execute(fabric.device_mut(0), input.as_bytes(), &mut output);
    let output = QueryHcaCapOut::split_from(&output).unwrap().0;
    let caps = output.hca_cap().as_bytes();
    let fields = fields();
    let mut wrong = Vec::new();
    let mut differs = BTreeSet::new();
    let mut compared = 0;
    for (name, value) in recorded {
        let (Some(place), Some(recorded)) = (fields.get(name.as_str()), value.as_u64()) else {
            continue;
        };
        compared += 1;
        let told = bits(caps, *place);
        if told == recorded {
            continue;
        }
        match CAPABILITIES.iter().flat_map(|(_, names)| *names).find(|known| *known == name) {
            Some(known) => _ = differs.insert(*known),
            None => wrong.push(format!("{name} is {told}, not {recorded}")),
        }
    }
    assert!(compared > 200, "only {compared} fields have places");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let known = CAPABILITIES.iter().flat_map(|(_, names)| *names);
    let unused: Vec<_> = known.filter(|known| !differs.contains(*known)).collect();
    assert!(unused.is_empty(), "these do not differ: {unused:?}");
}
