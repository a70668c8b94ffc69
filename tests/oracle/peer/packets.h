/*
 * Packets, for oracle.c: queue pairs for them, work queues and tables of them, rules and counters. They
 * lie where both sides have memory of the same bytes, so that what is copied from it is the same. Commands:
 *
 *	packets HEADER FLAGS OWN	what the next queue pair is made with: longest headers to be cut,
 *					flags of ibv_create_qp_ex, and of mlx5dv_create_qp
 *	ready				INIT, RTR, RTS
 *	pkpost LABEL COUNT, then op ...	posts them in one batch, or in one list
 *	work REQUESTS SGES FLAGS STRIDE STRIDES		a work queue; the last two are logarithms, or both zero
 *	state WHICH STATE, strip WHICH IS		changes it
 *	wrecv WHICH LABEL COUNT, then rwr	posts receives to it
 *	wdrain WHICH			they complete
 *	table LOG WHICH...		a table of work queues
 *	hash FIELDS OWN KEY		a queue pair that spreads over it
 *	counters			counters
 *	count WHAT INDEX		what they count (post count, result)
 *	rule LABEL TYPE PRIORITY FLAGS COUNT SPEC...	(post LABEL, result)
 *	matcher CRITERIA PRIORITY MASK	one of the device's own
 *	match LABEL VALUE TAG		a rule of it; a tag of zero is none (post LABEL, result)
 *	unmake				destroys all of this
 *
 * and op is WR_ID FLAGS, then one of `send SGES`, `inline OFFSET LENGTH`, `tso MSS LENGTH SGES`, of which
 * LENGTH bytes of headers are copied from OFFSET zero, and SPEC a kind with the bytes of value and mask, or
 * `tag ID`, `drop` or `count`. A kind that starts with `in-` is inside a tunnel.
 */

enum {
	MAX_WORK = 4,
	MAX_RULES = 64,
	PACKET_BYTES = 1 << 16,
	FLAG_CSUM = 'C',
};

/* Where both sides have packets. */
#define PACKETS 0x7f5600000000ull

static uint8_t *packets;
static uint32_t packet_header, packet_flags, packet_own;
static struct {
	struct ibv_wq *wq;
	struct mlx5dv_rwq dv;
	uint32_t uidx;
	bool strides;
	uint16_t received, completed;
} works[MAX_WORK];
static int num_works;
static struct ibv_rwq_ind_table *work_table;
static struct ibv_qp *hash_qp;
static struct ibv_counters *counters;
static struct mlx5dv_flow_matcher *matcher;
static struct ibv_flow *rules[MAX_RULES];
static int num_rules;

static void make_packets(void)
{
	if (packets)
		return;
	packets = mmap((void *)PACKETS, PACKET_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK("mmap", packets == (void *)PACKETS);
	for (int i = 0; i < PACKET_BYTES; i++)
		packets[i] = i * 7 + (i >> 8);
}

static void packet_attributes(void)
{
	make_packets();
	packet_header = number();
	packet_flags = number();
	packet_own = number();
}

static struct ibv_qp *create_packet(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap *cap, int sig)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = *cap,
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = sig,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.max_tso_header = packet_header,
		.create_flags = packet_flags,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct mlx5dv_qp_init_attr own = {
		.comp_mask = packet_own ? MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS : 0,
		.create_flags = packet_own,
	};

	if (q.builder)
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (packet_flags)
		attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	if (packet_header) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		attr.send_ops_flags |= IBV_QP_EX_WITH_TSO;
	}
	return mlx5dv_create_qp(pd->context, &attr, &own);
}

static void ready(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK("INIT", !ibv_modify_qp(q.qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK("RTR", !ibv_modify_qp(q.qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK("RTS", !ibv_modify_qp(q.qp, &attr, IBV_QP_STATE));
}

static int read_pieces(struct ibv_sge *list)
{
	int count = read_sges(list);

	for (int i = 0; i < count; i++)
		list[i].addr += PACKETS;
	return count;
}

static void read_packet(struct ibv_send_wr *wr, struct ibv_sge *list)
{
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = number();
	for (const char *flag = word(); *flag; flag++)
		wr->send_flags |= *flag == 'S'	 ? IBV_SEND_SIGNALED
				  : *flag == FLAG_CSUM ? IBV_SEND_IP_CSUM
						 : 0;
	wr->sg_list = list;
	wr->opcode = IBV_WR_SEND;
	const char *kind = word();
	if (!strcmp(kind, "inline")) {
		wr->send_flags |= IBV_SEND_INLINE;
		list->addr = PACKETS + number();
		list->length = number();
		wr->num_sge = 1;
		return;
	}
	if (!strcmp(kind, "tso")) {
		wr->opcode = IBV_WR_TSO;
		wr->tso.mss = number();
		wr->tso.hdr = packets;
		wr->tso.hdr_sz = number();
	}
	wr->num_sge = read_pieces(list);
}

static void build_packet(const struct ibv_send_wr *wr)
{
	q.qpx->wr_id = wr->wr_id;
	q.qpx->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
	if (wr->opcode == IBV_WR_TSO)
		ibv_wr_send_tso(q.qpx, wr->tso.hdr, wr->tso.hdr_sz, wr->tso.mss);
	else
		ibv_wr_send(q.qpx);
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(q.qpx, (void *)(uintptr_t)wr->sg_list->addr,
				       wr->sg_list->length);
	else if (wr->num_sge == 1)
		ibv_wr_set_sge(q.qpx, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	else
		ibv_wr_set_sge_list(q.qpx, wr->num_sge, wr->sg_list);
}

static void post_packets(void)
{
	printf("post %s\n", word());
	int count = number(), posted = -1;

	for (int i = 0; i < count; i++) {
		CHECK("a request", next_line());
		first_word();
		read_packet(&wrs[i], sges[i]);
	}
	poison();
	if (q.builder) {
		ibv_wr_start(q.qpx);
		for (int i = 0; i < count; i++)
			build_packet(&wrs[i]);
		posted = ibv_wr_complete(q.qpx) ? 0 : -1;
	} else {
		posted = post(wrs, count);
	}
	report_result(posted);
	report_record(q.dv.dbrec, 8);
	report_register();
	follow(true);
	printf("done\n");
}

/* Work queues. */

static void make_work(void)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = number(),
		.max_sge = number(),
		.pd = q.pd,
		.cq = q.cq,
		.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
		.create_flags = number(),
	};
	struct mlx5dv_wq_init_attr own = {.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ};
	int which = num_works++;

	own.striding_rq_attrs.single_stride_log_num_of_bytes = number();
	own.striding_rq_attrs.single_wqe_log_num_of_strides = number();
	memset(&works[which], 0, sizeof(works[which]));
	works[which].strides = own.striding_rq_attrs.single_stride_log_num_of_bytes;
	works[which].wq = works[which].strides ? mlx5dv_create_wq(q.context, &attr, &own)
					       : ibv_create_wq(q.context, &attr);
	CHECK("create_wq", works[which].wq);
	works[which].uidx = user_index;
	struct mlx5dv_obj obj = {.rwq = {.in = works[which].wq, .out = &works[which].dv}};
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ));
	printf("made 0 0 %x %x\n", works[which].dv.wqe_cnt, works[which].dv.stride);
}

static void set_state(void)
{
	struct ibv_wq *wq = works[number()].wq;
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = number()};

	CHECK("modify_wq", !ibv_modify_wq(wq, &attr));
}

static void set_strip(void)
{
	struct ibv_wq *wq = works[number()].wq;
	struct ibv_wq_attr attr = {
		.attr_mask = IBV_WQ_ATTR_FLAGS,
		.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING,
		.flags = number() ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0,
	};

	CHECK("modify_wq", !ibv_modify_wq(wq, &attr));
}

static void post_work(void)
{
	int which = number();
	struct ibv_recv_wr *bad = NULL;
	struct mlx5dv_rwq *dv = &works[which].dv;

	printf("recv %s\n", word());
	read_receives();
	report_result(ibv_post_wq_recv(works[which].wq, recvs, &bad) ? (int)(bad - recvs) : -1);
	report_record(dv->dbrec, 8);
	uint16_t end = be32toh(((volatile __be32 *)dv->dbrec)[0]);
	for (; works[which].received != end; works[which].received++) {
		uint32_t index = works[which].received & (dv->wqe_cnt - 1);
		const uint8_t *wqe = (uint8_t *)dv->buf + (size_t)index * dv->stride;
		/* With strides, what could link requests comes first. */
		size_t head = works[which].strides ? UNIT : 0;

		printf("rwqe ");
		hex(wqe, head);
		report_scatter(wqe + head, dv->stride - head);
	}
	printf("done\n");
}

static void drain_work(void)
{
	int which = number();

	for (; works[which].completed != works[which].received; works[which].completed++)
		complete_of(works[which].uidx, RESPONDER_SEND, works[which].completed);
}

static void make_table(void)
{
	struct ibv_wq *list[16];
	struct ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = number(), .ind_tbl = list};

	for (int i = 0; i < 1 << attr.log_ind_tbl_size; i++)
		list[i] = works[number()].wq;
	CHECK("create_rwq_ind_table",
	      (work_table = ibv_create_rwq_ind_table(q.context, &attr)));
}

static void make_hash(void)
{
	uint8_t key[40];
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
			     IBV_QP_INIT_ATTR_RX_HASH,
		.pd = q.pd,
		.rwq_ind_tbl = work_table,
		.rx_hash_conf = {
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof(key),
			.rx_hash_key = key,
			.rx_hash_fields_mask = number(),
		},
	};
	uint32_t flags = number();
	struct mlx5dv_qp_init_attr own = {
		.comp_mask = flags ? MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS : 0,
		.create_flags = flags,
	};

	read_bytes(key, sizeof(key));
	CHECK("create_qp", (hash_qp = mlx5dv_create_qp(q.context, &attr, &own)));
}

/* Rules. */

static void report_made(const char *label, bool is_made)
{
	printf("post %s\n", label);
	report_result(is_made ? -1 : 0);
	printf("done\n");
}

static void make_counters(void)
{
	struct ibv_counters_init_attr attr = {0};

	CHECK("create_counters", (counters = ibv_create_counters(q.context, &attr)));
}

static void count(void)
{
	struct ibv_counter_attach_attr attr = {.counter_desc = number(), .index = number()};

	report_made("count", !ibv_attach_counters_point_flow(counters, &attr, NULL));
}

#define READ_HEADER(structure, its_type)                                                          \
	do {                                                                                       \
		struct structure spec = {.type = its_type, .size = sizeof(spec)};                  \
		read_bytes((uint8_t *)&spec.val, sizeof(spec.val));                                \
		read_bytes((uint8_t *)&spec.mask, sizeof(spec.mask));                              \
		spec.type |= inner;                                                                \
		memcpy(to, &spec, sizeof(spec));                                                   \
		return sizeof(spec);                                                               \
	} while (0)

static size_t read_spec(uint8_t *to)
{
	const char *kind = word();
	enum ibv_flow_spec_type inner = 0;

	if (!strncmp(kind, "in-", 3)) {
		inner = IBV_FLOW_SPEC_INNER;
		kind += 3;
	}
	if (!strcmp(kind, "eth"))
		READ_HEADER(ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH);
	if (!strcmp(kind, "ipv4"))
		READ_HEADER(ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4);
	if (!strcmp(kind, "ipv4x"))
		READ_HEADER(ibv_flow_spec_ipv4_ext, IBV_FLOW_SPEC_IPV4_EXT);
	if (!strcmp(kind, "ipv6"))
		READ_HEADER(ibv_flow_spec_ipv6, IBV_FLOW_SPEC_IPV6);
	if (!strcmp(kind, "tcp"))
		READ_HEADER(ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_TCP);
	if (!strcmp(kind, "udp"))
		READ_HEADER(ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_UDP);
	if (!strcmp(kind, "vxlan"))
		READ_HEADER(ibv_flow_spec_tunnel, IBV_FLOW_SPEC_VXLAN_TUNNEL);
	if (!strcmp(kind, "gre"))
		READ_HEADER(ibv_flow_spec_gre, IBV_FLOW_SPEC_GRE);
	if (!strcmp(kind, "mpls"))
		READ_HEADER(ibv_flow_spec_mpls, IBV_FLOW_SPEC_MPLS);
	if (!strcmp(kind, "tag")) {
		struct ibv_flow_spec_action_tag spec = {
			.type = IBV_FLOW_SPEC_ACTION_TAG, .size = sizeof(spec), .tag_id = number()};

		memcpy(to, &spec, sizeof(spec));
		return sizeof(spec);
	}
	if (!strcmp(kind, "drop")) {
		struct ibv_flow_spec_action_drop spec = {
			.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(spec)};

		memcpy(to, &spec, sizeof(spec));
		return sizeof(spec);
	}
	if (!strcmp(kind, "count")) {
		struct ibv_flow_spec_counter_action spec = {
			.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(spec), .counters = counters};

		memcpy(to, &spec, sizeof(spec));
		return sizeof(spec);
	}
	fprintf(stderr, "oracle: no specification %s\n", kind);
	exit(1);
}

static void keep(struct ibv_flow *flow)
{
	if (flow)
		rules[num_rules++] = flow;
}

static void make_rule(void)
{
	static struct {
		struct ibv_flow_attr attr;
		uint8_t specs[1024];
	} rule;
	const char *label = word();
	size_t size = 0;

	memset(&rule, 0, sizeof(rule));
	rule.attr.type = number();
	rule.attr.priority = number();
	rule.attr.flags = number();
	rule.attr.num_of_specs = number();
	rule.attr.port = 1;
	for (int i = 0; i < rule.attr.num_of_specs; i++)
		size += read_spec(rule.specs + size);
	rule.attr.size = sizeof(rule.attr) + size;
	struct ibv_flow *flow = ibv_create_flow(hash_qp ? hash_qp : q.qp, &rule.attr);
	keep(flow);
	report_made(label, flow);
}

struct parameters {
	size_t size;
	uint8_t bytes[512];
};

static struct mlx5dv_flow_match_parameters *read_parameters(struct parameters *to)
{
	to->size = read_bytes(to->bytes, sizeof(to->bytes));
	return (void *)to;
}

static void make_matcher(void)
{
	struct parameters mask = {0};
	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL,
		.match_criteria_enable = number(),
		.priority = number(),
		.match_mask = read_parameters(&mask),
	};

	CHECK("create_flow_matcher", (matcher = mlx5dv_create_flow_matcher(q.context, &attr)));
}

static void make_match(void)
{
	const char *label = word();
	struct parameters value = {0};
	struct mlx5dv_flow_match_parameters *parameters = read_parameters(&value);
	uint32_t tag = number();
	struct mlx5dv_flow_action_attr actions[] = {
		{.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = q.qp},
		{.type = MLX5DV_FLOW_ACTION_TAG, .tag_value = tag},
	};
	struct ibv_flow *flow = mlx5dv_create_flow(matcher, parameters, tag ? 2 : 1, actions);

	keep(flow);
	report_made(label, flow);
}

static void unmake(void)
{
	while (num_rules)
		CHECK("destroy_flow", !ibv_destroy_flow(rules[--num_rules]));
	if (matcher)
		CHECK("destroy_flow_matcher", !mlx5dv_destroy_flow_matcher(matcher));
	if (counters)
		CHECK("destroy_counters", !ibv_destroy_counters(counters));
	if (hash_qp)
		CHECK("destroy_qp", !ibv_destroy_qp(hash_qp));
	if (work_table)
		CHECK("destroy_rwq_ind_table", !ibv_destroy_rwq_ind_table(work_table));
	while (num_works)
		CHECK("destroy_wq", !ibv_destroy_wq(works[--num_works].wq));
	matcher = NULL;
	counters = NULL;
	hash_qp = NULL;
	work_table = NULL;
	if (q.qp)
		CHECK("destroy_qp", !ibv_destroy_qp(q.qp));
	q.qp = NULL;
}
