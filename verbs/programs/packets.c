/*
 * Packets: queue pairs for them, what they send and receive, rules, counters, work queues and tables.
 */
#include "packets.h"

static void refused_rules(struct end *end)
{
	struct ibv_counters_init_attr none = {};
	struct ibv_counters *counters = ibv_create_counters(end->bed.context, &none);
	struct ibv_flow_spec_counter_action count = { IBV_FLOW_SPEC_ACTION_COUNT, sizeof(count), counters };
	struct ibv_flow_spec_ipv6 ipv6 = { IBV_FLOW_SPEC_IPV6, sizeof(ipv6), {}, {} };
	struct ibv_flow_spec_ipv4_ext ipv4 = { IBV_FLOW_SPEC_IPV4_EXT, 20, {}, {} };
	/* A header of which each filter has four bytes more. */
	struct {
		struct ibv_flow_spec_tunnel tunnel;
		uint32_t more[2];
	} longer = { { IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(longer), {}, {} }, { 0, 1 } };
	struct ibv_flow_spec_action_tag tag = { IBV_FLOW_SPEC_ACTION_TAG, sizeof(tag), 1 << 24 };
	struct ibv_counter_attach_attr attach = { .counter_desc = 7 };
	struct ibv_counters_init_attr unknown = { 1 };
	struct rule rule = to_mac(THERE);
	unsigned int at = 0;

	must(counters, "ibv_create_counters");
	rule.attr.type = 9;
	make_rule(end->qp, &rule, "of no type");
	rule = to_mac(THERE);
	rule.eth.type = 0x77;
	make_rule(end->qp, &rule, "of no header");
	rule = to_mac(THERE);
	rule.attr.port = 9;
	make_rule(end->qp, &rule, "of no port");
	rule = to_mac(THERE);
	add(&rule, &at, &count, sizeof(count));
	make_rule(end->qp, &rule, "that counts nothing");
	add(&rule, &at, &count, sizeof(count));
	make_rule(end->qp, &rule, "that counts twice");
	rule = to_mac(THERE);
	at = 0;
	memset(&ipv6.mask.hop_limit + 1, 1, 1);
	add(&rule, &at, &ipv6, sizeof(ipv6));
	make_rule(end->qp, &rule, "with a longer header");
	rule = to_mac(THERE);
	at = 0;
	add(&rule, &at, &ipv4, sizeof(ipv4));
	make_rule(end->qp, &rule, "with a shorter header");
	rule = to_mac(THERE);
	at = 0;
	add(&rule, &at, &longer, sizeof(longer));
	make_rule(end->qp, &rule, "with a longer tunnel");
	rule = to_mac(THERE);
	at = 0;
	add(&rule, &at, &tag, sizeof(tag));
	make_rule(end->qp, &rule, "with a long tag");
	printf("counter of no kind: %s\n",
	       name_of(ibv_attach_counters_point_flow(counters, &attach, NULL)));
	attach = (struct ibv_counter_attach_attr){ .comp_mask = 1 };
	printf("counter of unknown attributes: %s\n",
	       name_of(ibv_attach_counters_point_flow(counters, &attach, NULL)));
	printf("counters of unknown attributes: %s\n",
	       ibv_create_counters(end->bed.context, &unknown) ? "made" : name_of(errno));
	must(!ibv_destroy_counters(counters), "ibv_destroy_counters");
}

static void traffic(struct end *here, struct end *there)
{
	struct ibv_counters_init_attr none = {};
	struct ibv_counters *counters = ibv_create_counters(there->bed.context, &none);
	struct ibv_counter_attach_attr packets = { IBV_COUNTER_PACKETS, 1, 0 };
	struct ibv_counter_attach_attr bytes = { IBV_COUNTER_BYTES, 0, 0 };
	struct ibv_flow_spec_counter_action count = { IBV_FLOW_SPEC_ACTION_COUNT, sizeof(count), counters };
	struct ibv_flow_spec_action_tag tag = { IBV_FLOW_SPEC_ACTION_TAG, sizeof(tag), TAG };
	struct ibv_sge sge = { (uintptr_t)here->bed.from, 0, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM }, *bad;
	struct rule rule = to_mac(THERE);
	struct ibv_flow *flow, *again;
	uint64_t values[2] = {};
	uint8_t head[HEADERS];
	unsigned int at = 0;
	struct ibv_wc wc;

	must(counters, "ibv_create_counters");
	printf("attached: %s", name_of(ibv_attach_counters_point_flow(counters, &packets, NULL)));
	printf(" %s\n", name_of(ibv_attach_counters_point_flow(counters, &bytes, NULL)));
	add(&rule, &at, &count, sizeof(count));
	add(&rule, &at, &tag, sizeof(tag));
	flow = make_rule(there->qp, &rule, "tag and count");
	must(flow, "ibv_create_flow");
	printf("attached too late: %s\n", name_of(ibv_attach_counters_point_flow(counters, &packets, NULL)));
	printf("counters in use: %s\n", name_of(ibv_destroy_counters(counters)));
	printf("queue pair in use: %s\n", name_of(ibv_destroy_qp(there->qp)));
	receive(there, 8);

	/* A packet whose checksums the device computes, one by pieces, and one whose are wrong. */
	sge.length = headers(here->bed.from, IPPROTO_UDP, 60) + 60;
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
	see(there, 1, 1);
	ibv_wr_start(here->ex);
	here->ex->wr_id = 2;
	here->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(here->ex);
	ibv_wr_set_sge_list(here->ex, 2, (struct ibv_sge[]){
		{ (uintptr_t)here->bed.from, 20, here->bed.mr->lkey },
		{ (uintptr_t)here->bed.from + 20, sge.length - 20, here->bed.mr->lkey } });
	here->ex->wr_id = 3;
	ibv_wr_send(here->ex);
	ibv_wr_set_inline_data(here->ex, here->bed.from, 60);
	printf("batch: %s\n", name_of(ibv_wr_complete(here->ex)));
	sent(here, "sent", IBV_WC_SUCCESS);
	sent(here, "sent", IBV_WC_SUCCESS);
	see(there, 2, 2);

	/* The device cuts a packet: by a list, and by a batch. */
	headers(head, IPPROTO_TCP, 300);
	sge.length = 300;
	wr = (struct ibv_send_wr){ .wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
		.tso = { head, sizeof(head), 150 } };
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "cut", IBV_WC_SUCCESS);
	see(there, 2, 2);
	ibv_wr_start(here->ex);
	here->ex->wr_id = 5;
	here->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
	ibv_wr_send_tso(here->ex, head, sizeof(head), 100);
	memset(head, 0xff, sizeof(head));
	ibv_wr_set_sge(here->ex, here->bed.mr->lkey, (uintptr_t)here->bed.from, 300);
	printf("batch: %s\n", name_of(ibv_wr_complete(here->ex)));
	sent(here, "cut", IBV_WC_SUCCESS);
	see(there, 3, 3);
	printf("read as nobody knows: %s\n", name_of(ibv_read_counters(counters, values, 2, 1 << 7)));
	printf("read: %s", name_of(ibv_read_counters(counters, values, 2, 0)));
	printf(" %" PRIu64 " packets, %" PRIu64 " bytes\n", values[1], values[0]);

	/* Headers that are too short or too long. */
	wr.tso.hdr_sz = 13;
	bad = NULL;
	printf("short headers: %s", name_of(ibv_post_send(here->qp, &wr, &bad)));
	printf(", bad %d\n", bad == &wr);
	wr.tso.hdr_sz = HEADERS + 64;
	bad = NULL;
	printf("long headers: %s", name_of(ibv_post_send(here->qp, &wr, &bad)));
	printf(", bad %d\n", bad == &wr);
	ibv_wr_start(here->ex);
	ibv_wr_send_tso(here->ex, head, HEADERS + 64, 100);
	ibv_wr_set_sge(here->ex, here->bed.mr->lkey, (uintptr_t)here->bed.from, 300);
	printf("long headers: %s\n", name_of(ibv_wr_complete(here->ex)));

	printf("destroyed: %s\n", name_of(ibv_destroy_flow(flow)));
	packets.index = 0;
	printf("attached again: %s\n", name_of(ibv_attach_counters_point_flow(counters, &packets, NULL)));
	rule = to_mac(THERE);
	at = 0;
	add(&rule, &at, &count, sizeof(count));
	flow = make_rule(there->qp, &rule, "counted again");
	must(flow && !ibv_destroy_flow(flow), "a rule");
	rule = to_mac(THERE);
	again = make_rule(there->qp, &rule, "alone");
	must(again, "ibv_create_flow");
	receive(there, 1);
	wr = (struct ibv_send_wr){ .wr_id = 6, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM };
	sge.length = headers(here->bed.from, IPPROTO_TCP, 100) + 100;
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("polled: %" PRIu64 ", status %d, opcode %d, %u bytes, flags %x\n", wc.wr_id, wc.status,
	       wc.opcode, wc.byte_len, wc.wc_flags);
	printf("counters: %s\n", name_of(ibv_destroy_counters(counters)));
	must(!ibv_destroy_flow(again), "ibv_destroy_flow");
}

/* Queue pairs that cannot be. */
static void refused_queues(struct end *end)
{
	struct ibv_qp_init_attr_ex attr = attributes(end);
	struct ibv_qp *qp;

	attr.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SCATTER_FCS;
	attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	printf("stripping, with check sequences: %s\n", qp ? "made" : name_of(errno));
	must(qp && !ibv_destroy_qp(qp), "a queue pair");
	attr.create_flags = IBV_QP_CREATE_SOURCE_QPN;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	printf("of another number: %s\n", qp ? "made" : name_of(errno));
	attr = attributes(end);
	attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	printf("that writes: %s\n", qp ? "made" : name_of(errno));
	attr = attributes(end);
	attr.qp_type = IBV_QPT_RC;
	attr.send_ops_flags = 0;
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	printf("headers of a connection: %s\n",
	       ibv_create_qp_ex(end->bed.context, &attr) ? "made" : "refused");
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
	printf("stripping of a connection: %s\n",
	       ibv_create_qp_ex(end->bed.context, &attr) ? "made" : name_of(errno));
	attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	printf("check sequences of a connection: %s\n",
	       ibv_create_qp_ex(end->bed.context, &attr) ? "made" : name_of(errno));
	attr.create_flags = IBV_QP_CREATE_PCI_WRITE_END_PADDING;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	printf("padding of a connection: %s\n", qp ? "made" : name_of(errno));
	attr.create_flags = 1 << 20;
	printf("unknown flags: %s\n",
	       ibv_create_qp_ex(end->bed.context, &attr) ? "made" : name_of(errno));
	attr.qp_type = IBV_QPT_RAW_PACKET;
	printf("unknown flags of packets: %s\n",
	       ibv_create_qp_ex(end->bed.context, &attr) ? "made" : name_of(errno));
	attr.create_flags = IBV_QP_CREATE_PCI_WRITE_END_PADDING;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	printf("padding: %s\n", qp ? "made" : name_of(errno));
	must(!qp || !ibv_destroy_qp(qp), "ibv_destroy_qp");
	attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	printf("without its own: %s\n", qp ? "made" : name_of(errno));
	must(!qp || !ibv_destroy_qp(qp), "ibv_destroy_qp");
}

static void fill(struct end *end, struct ibv_wq *wq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)end->bed.to, FRAME, end->bed.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!ibv_post_wq_recv(wq, &wr, &bad), "ibv_post_wq_recv");
}

static void spread(struct end *here, struct end *there)
{
	uint8_t key[40] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	struct ibv_wq *queues[2] = { make_wq(there, 0), make_wq(there, IBV_WQ_FLAGS_CVLAN_STRIPPING) };
	struct ibv_rwq_ind_table_init_attr init = { 1, queues, 0 };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = there->bed.pd,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key,
				  IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 },
	};
	struct ibv_sge sge = { (uintptr_t)here->bed.from, 0, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM }, *bad;
	struct ibv_wq_init_attr no_queue = { .wq_type = 5, .max_wr = 1, .pd = there->bed.pd,
		.cq = ibv_cq_ex_to_cq(there->cq) };
	struct ibv_wq_attr change = { .attr_mask = IBV_WQ_ATTR_FLAGS,
		.flags = IBV_WQ_FLAGS_CVLAN_STRIPPING, .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING };
	struct rule rule = to_mac(THERE);
	struct ibv_rwq_ind_table *table;
	struct ibv_qp_init_attr query;
	struct ibv_qp_attr state;
	struct mlx5dv_rwq parts;
	struct mlx5dv_obj obj = { .rwq = { queues[0], &parts } };
	struct ibv_flow *flow;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	must(queues[0] && queues[1], "ibv_create_wq");
	printf("of no type: %s\n", ibv_create_wq(there->bed.context, &no_queue) ? "made" : "refused");
	no_queue = (struct ibv_wq_init_attr){ .max_wr = 0, .pd = there->bed.pd,
		.cq = ibv_cq_ex_to_cq(there->cq) };
	printf("without room: %s\n",
	       ibv_create_wq(there->bed.context, &no_queue) ? "made" : name_of(errno));
	no_queue = (struct ibv_wq_init_attr){ .max_wr = 1, .pd = there->bed.pd,
		.cq = ibv_cq_ex_to_cq(there->cq), .comp_mask = 1, .create_flags = 1 << 9 };
	printf("with unknown flags: %s\n",
	       ibv_create_wq(there->bed.context, &no_queue) ? "made" : name_of(errno));
	no_queue.comp_mask = 2;
	printf("with unknown attributes: %s\n",
	       ibv_create_wq(there->bed.context, &no_queue) ? "made" : name_of(errno));
	printf("parts: %s", name_of(mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ)));
	printf(", %u of %u bytes\n", parts.wqe_cnt, parts.stride);

	for (int i = 0; i < 2; i++) {
		printf("ready: %s", name_of(set_state(queues[i], IBV_WQS_RDY)));
		printf(", state %d\n", queues[i]->state);
		for (int wr_id = 0; wr_id < 2; wr_id++)
			fill(there, queues[i], wr_id);
	}
	table = ibv_create_rwq_ind_table(there->bed.context, &init);
	must(table, "ibv_create_rwq_ind_table");
	printf("work queue in use: %s\n", name_of(ibv_destroy_wq(queues[0])));
	init.comp_mask = 1;
	printf("table of unknown attributes: %s\n",
	       ibv_create_rwq_ind_table(there->bed.context, &init) ? "made" : "refused");

	attr.rwq_ind_tbl = table;
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_PD;
	printf("without a domain: %s\n",
	       ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
	attr.rx_hash_conf.rx_hash_key_len = 39;
	printf("short key: %s\n", ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.rx_hash_conf.rx_hash_key_len = 40;
	attr.rx_hash_conf.rx_hash_function = 2;
	printf("another hash: %s\n", ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	attr.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_SRC_IPV6;
	printf("both kinds of addresses: %s\n",
	       ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.rx_hash_conf.rx_hash_fields_mask &= ~IBV_RX_HASH_SRC_IPV6;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	printf("that sends: %s\n", ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.recv_cq = ibv_cq_ex_to_cq(there->cq);
	printf("that completes receives: %s\n",
	       ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.recv_cq = NULL;
	attr.send_cq = ibv_cq_ex_to_cq(there->cq);
	attr.cap.max_send_wr = 1;
	printf("with room for sends: %s\n",
	       ibv_create_qp_ex(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.cap.max_send_wr = 0;
	qp = ibv_create_qp_ex(there->bed.context, &attr);
	printf("that would complete sends: %s\n", qp ? "made" : name_of(errno));
	must(qp && !ibv_destroy_qp(qp), "a queue pair");
	attr.send_cq = NULL;
	qp = ibv_create_qp_ex(there->bed.context, &attr);
	must(qp, "ibv_create_qp_ex with a hash");
	printf("number %u; modified: %s", qp->qp_num, name_of(become(qp, IBV_QPS_INIT)));
	printf(", asked: %s\n", name_of(ibv_query_qp(qp, &state, IBV_QP_STATE, &query)));
	printf("table in use: %s\n", name_of(ibv_destroy_rwq_ind_table(table)));
	flow = make_rule(qp, &rule, "spread");
	must(flow, "ibv_create_flow");
	sge.length = headers(here->bed.from, IPPROTO_UDP, 60) + 60;
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("polled: %" PRIu64 ", status %d, opcode %d, %u bytes, flags %x\n", wc.wr_id, wc.status,
	       wc.opcode, wc.byte_len, wc.wc_flags);

	/* The error state flushes what was posted; a reset forgets it. */
	printf("flags: %s\n", name_of(ibv_modify_wq(queues[0], &change)));
	change.flags_mask = IBV_WQ_FLAGS_PCI_WRITE_END_PADDING;
	printf("padding: %s\n", name_of(ibv_modify_wq(queues[0], &change)));
	change.flags_mask = 1 << 9;
	printf("unknown flags: %s\n", name_of(ibv_modify_wq(queues[0], &change)));
	change.attr_mask = 1 << 9;
	printf("unknown attributes: %s\n", name_of(ibv_modify_wq(queues[0], &change)));
	change = (struct ibv_wq_attr){ .attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
		.wq_state = IBV_WQS_RDY, .curr_wq_state = IBV_WQS_ERR };
	printf("from another state: %s\n", name_of(ibv_modify_wq(queues[0], &change)));
	printf("ready as it is: %s\n", name_of(set_state(queues[0], IBV_WQS_RDY)));
	printf("reset: %s", name_of(set_state(queues[0], IBV_WQS_RESET)));
	printf(", ready: %s\n", name_of(set_state(queues[0], IBV_WQS_RDY)));
	fill(there, queues[0], 7);
	printf("error: %s", name_of(set_state(queues[0], IBV_WQS_ERR)));
	printf(", state %d\n", queues[0]->state);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("flushed: %" PRIu64 ", status %d\n", wc.wr_id, wc.status);
	printf("more: %d\n", ibv_poll_cq(ibv_cq_ex_to_cq(there->cq), 1, &wc));
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(!ibv_destroy_rwq_ind_table(table), "ibv_destroy_rwq_ind_table");
	for (int i = 0; i < 2; i++)
		must(!ibv_destroy_wq(queues[i]), "ibv_destroy_wq");
}

struct match {
	size_t size;
	uint8_t bytes[64];
};

/* A rule that counts with an object of the firmware's. */
static void counted(struct end *there, struct mlx5dv_flow_matcher *matcher)
{
	/* ALLOC_FLOW_COUNTER. */
	uint8_t in[16] = { 0x09, 0x39 }, out[16] = {};
	struct mlx5dv_devx_obj *counter =
		mlx5dv_devx_obj_create(there->bed.context, in, sizeof(in), out, sizeof(out));
	struct mlx5dv_flow_action_attr actions[2] = {
		{ .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = there->qp },
		{ .type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = counter },
	};
	struct match value = { 64, {} };
	struct ibv_flow *flow;

	must(counter, "a counter");
	memcpy(value.bytes + 8, HERE, 6);
	flow = mlx5dv_create_flow(matcher, (void *)&value, 2, actions);
	printf("counted by an object: %s\n", flow ? "made" : name_of(errno));
	must(!flow || !ibv_destroy_flow(flow), "ibv_destroy_flow");
	must(!mlx5dv_devx_obj_destroy(counter), "mlx5dv_devx_obj_destroy");
}

/* The device's own match parameters. */
static void match(struct end *here, struct end *there)
{
	struct match mask = { 64, {} }, value = { 64, {} };
	struct mlx5dv_flow_matcher_attr attr = { .type = IBV_FLOW_ATTR_NORMAL,
		.match_criteria_enable = 1, .match_mask = (void *)&mask };
	struct mlx5dv_flow_action_attr actions[3] = {
		{ .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = there->qp },
		{ .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = TAG },
		{ .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = TAG },
	};
	struct ibv_sge sge = { (uintptr_t)here->bed.from, 0, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM }, *bad;
	struct mlx5dv_flow_matcher *matcher;
	struct ibv_flow *flow;

	/* The destination. */
	memset(mask.bytes + 8, 0xff, 6);
	memcpy(value.bytes + 8, THERE, 6);
	attr.comp_mask = 1 << 9;
	printf("matcher of unknown attributes: %s\n",
	       mlx5dv_create_flow_matcher(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.comp_mask = 0;
	attr.type = IBV_FLOW_ATTR_SNIFFER;
	printf("matcher of copies: %s\n",
	       mlx5dv_create_flow_matcher(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.type = IBV_FLOW_ATTR_NORMAL;
	attr.flags = 1 << 9;
	printf("matcher of unknown flags: %s\n",
	       mlx5dv_create_flow_matcher(there->bed.context, &attr) ? "made" : name_of(errno));
	attr.flags = 0;
	matcher = mlx5dv_create_flow_matcher(there->bed.context, &attr);
	must(matcher, "mlx5dv_create_flow_matcher");
	printf("two tags: %s\n",
	       mlx5dv_create_flow(matcher, (void *)&value, 3, actions) ? "made" : name_of(errno));
	actions[2] = actions[0];
	printf("two destinations: %s\n",
	       mlx5dv_create_flow(matcher, (void *)&value, 3, actions) ? "made" : name_of(errno));
	actions[2].type = 77;
	printf("no action: %s\n",
	       mlx5dv_create_flow(matcher, (void *)&value, 3, actions) ? "made" : name_of(errno));
	printf("no destination: %s\n",
	       mlx5dv_create_flow(matcher, (void *)&value, 0, actions) ? "made" : name_of(errno));
	flow = mlx5dv_create_flow(matcher, (void *)&value, 2, actions);
	must(flow, "mlx5dv_create_flow");
	printf("matcher in use: %s\n", name_of(mlx5dv_destroy_flow_matcher(matcher)));
	counted(there, matcher);
	receive(there, 1);
	sge.length = headers(here->bed.from, IPPROTO_UDP, 60) + 60;
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
	see(there, 1, 1);
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	printf("matcher: %s\n", name_of(mlx5dv_destroy_flow_matcher(matcher)));
}

static void limits(struct end *end)
{
	struct ibv_qp_rate_limit_attr limit = { .comp_mask = 1 };

	printf("limit with unknown attributes: %s\n", name_of(ibv_modify_qp_rate_limit(end->qp, &limit)));
	limit = (struct ibv_qp_rate_limit_attr){ .rate_limit = 1000 };
	printf("limit: %s\n", name_of(ibv_modify_qp_rate_limit(end->qp, &limit)));
	limit = (struct ibv_qp_rate_limit_attr){ .max_burst_sz = 100 };
	printf("bursts without a limit: %s\n", name_of(ibv_modify_qp_rate_limit(end->qp, &limit)));
}

/* The device's objects that a queue pair consists of. */
static void objects(struct end *end)
{
	struct mlx5dv_qp parts = { .comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES };
	struct mlx5dv_obj obj = { .qp = { end->qp, &parts } };

	printf("objects: %s", name_of(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP)));
	printf(", told %d, sends by its own number %d, and has", !!parts.comp_mask,
	       parts.sqn == end->qp->qp_num);
	printf(" %d %d %d\n", !!parts.rqn, !!parts.tirn, !!parts.tisn);
}

/* A reset takes back what was posted, and what has completed. */
static void reset(struct end *here, struct end *there)
{
	struct ibv_counters_init_attr none = {};
	struct ibv_counters *counters = ibv_create_counters(there->bed.context, &none);
	struct ibv_counter_attach_attr packets = { IBV_COUNTER_PACKETS, 0, 0 };
	struct ibv_flow_spec_counter_action count = { IBV_FLOW_SPEC_ACTION_COUNT, sizeof(count), counters };
	struct rule rule = to_mac(THERE);
	struct ibv_sge sge = { (uintptr_t)here->bed.from, 0, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM }, *bad;
	struct ibv_flow *flow;
	unsigned int at = 0;
	uint64_t came = 0;
	struct ibv_wc wc;

	must(counters, "ibv_create_counters");
	must(!ibv_attach_counters_point_flow(counters, &packets, NULL), "ibv_attach_counters_point_flow");
	add(&rule, &at, &count, sizeof(count));
	flow = make_rule(there->qp, &rule, "of a queue pair that is reset");
	must(flow, "ibv_create_flow");
	receive(there, 3);
	sge.length = headers(here->bed.from, IPPROTO_UDP, 60) + 60;
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
	while (!came)
		must(!ibv_read_counters(counters, &came, 1, 0), "ibv_read_counters");
	printf("reset: %s\n", name_of(become(there->qp, IBV_QPS_RESET)));
	printf("left: %d\n", ibv_poll_cq(ibv_cq_ex_to_cq(there->cq), 1, &wc));
	activate(there->qp);
	receive(there, 1);
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
	see(there, 1, 1);
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	must(!ibv_destroy_counters(counters), "ibv_destroy_counters");
}

int main(void)
{
	struct end here = open_end(), there = open_end();

	refused_queues(&here);
	refused_rules(&there);
	traffic(&here, &there);
	spread(&here, &there);
	match(&here, &there);
	limits(&here);
	objects(&here);
	reset(&here, &there);
	close_end(&here);
	close_end(&there);
	return 0;
}
