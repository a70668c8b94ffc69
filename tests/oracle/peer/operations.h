/*
 * The rarer operations of a send queue, for oracle.c: memory keys that requests configure, atomics,
 * invalidations, requests that the caller has put together. Commands:
 *
 *	dvqp REQUESTS SGES INLINE		an RC queue pair with all of them (made ...)
 *	keys COUNT { ENTRIES SIGNED }		memory keys, named by number below
 *	dvpost LABEL API COUNT, then op ...	posts them in one batch, or in one list
 *
 *	sqd					the firmware says that the send queue is drained
 *	cancel WR_ID				(post cancel-WR_ID-COUNT: all of the ring)
 *
 * and op is WR_ID FLAGS, then one of
 *
 *	mkey KEY RESET ACCESS LAYOUT SIGNATURE
 *	send SGES, send_inv RKEY SGES, local_inv RKEY
 *	cs ADDRESS RKEY COMPARE SWAP SGES, fa ADDRESS RKEY ADD SGES
 *	raw BYTES
 *
 * where ACCESS is `-` or a number; LAYOUT `-`, `list SGES` or `turns REPEAT COUNT { ADDRESS BYTES
 * SKIP LKEY }`; SIGNATURE `-` or `sig CHECK COPY DOMAIN DOMAIN`, of which COPY may be `-`; DOMAIN
 * `-`, `dif TYPE GUARD APP REF FLAGS SIZE` or `crc TYPE SEED SIZE`.
 */

enum {
	MAX_KEYS = 8,
	MAX_WQE = 1024,
};

static struct mlx5dv_mkey *mkeys[MAX_KEYS];
static int num_mkeys;

static void make_dv_qp(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = q.cq,
		.recv_cq = q.cq,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = q.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE,
	};

	attr.cap.max_send_wr = number();
	attr.cap.max_send_sge = number();
	attr.cap.max_inline_data = number();
	attr.cap.max_recv_wr = 1;
	attr.cap.max_recv_sge = 1;
	CHECK("create_qp", (q.qp = mlx5dv_create_qp(q.context, &attr, &dv_attr)));
	q.uidx = user_index;
	q.dv = describe(q.qp);
	q.qpx = ibv_qp_to_qp_ex(q.qp);
	q.uar = (uint8_t *)((uintptr_t)q.dv.bf.reg & ~(uintptr_t)0xfff);
	printf("made %x %x %x %x\n", q.qp->qp_num, q.dv.sq.wqe_cnt, q.dv.rq.wqe_cnt,
	       q.dv.rq.stride);
}

static void destroy_keys(void)
{
	while (num_mkeys)
		CHECK("destroy_mkey", !mlx5dv_destroy_mkey(mkeys[--num_mkeys]));
}

/* In the place of those that there are. */
static void make_keys(void)
{
	destroy_keys();
	num_mkeys = number();
	for (int i = 0; i < num_mkeys; i++) {
		struct mlx5dv_mkey_init_attr attr = {
			.pd = q.pd,
			.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
		};

		attr.max_entries = number();
		if (number())
			attr.create_flags |= MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
		CHECK("create_mkey", (mkeys[i] = mlx5dv_create_mkey(&attr)));
	}
}

struct domain {
	struct mlx5dv_sig_block_domain block;
	struct mlx5dv_sig_t10dif dif;
	struct mlx5dv_sig_crc crc;
};

static const struct mlx5dv_sig_block_domain *read_domain(struct domain *to)
{
	const char *kind = word();

	if (*kind == '-')
		return NULL;
	if (!strcmp(kind, "dif")) {
		to->block.sig_type = MLX5DV_SIG_TYPE_T10DIF;
		to->block.sig.dif = &to->dif;
		to->dif.bg_type = number();
		to->dif.bg = number();
		to->dif.app_tag = number();
		to->dif.ref_tag = number();
		to->dif.flags = number();
	} else {
		to->block.sig_type = MLX5DV_SIG_TYPE_CRC;
		to->block.sig.crc = &to->crc;
		to->crc.type = number();
		to->crc.seed = number();
	}
	to->block.block_size = number();
	return &to->block;
}

static void configure(struct mlx5dv_qp_ex *to)
{
	struct mlx5dv_mkey *mkey = mkeys[number()];
	struct mlx5dv_mkey_conf_attr attr = {0};
	struct mlx5dv_mr_interleaved turns[MAX_SGES];
	struct mlx5dv_sig_block_attr sig = {0};
	struct ibv_sge list[MAX_SGES];
	struct domain memory = {0}, wire = {0};
	uint32_t access = 0, repeat = 0;
	int setters = 0, count = 0;

	if (number())
		attr.conf_flags = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
	const char *text = word();
	bool has_access = *text != '-';
	if (has_access)
		access = strtoul(text, NULL, 16);
	const char *layout = word();
	bool has_layout = *layout != '-', in_turns = *layout == 't';
	if (in_turns) {
		repeat = number();
		count = number();
		for (int i = 0; i < count; i++) {
			turns[i].addr = number();
			turns[i].bytes_count = number();
			turns[i].bytes_skip = number();
			turns[i].lkey = number();
		}
	} else if (has_layout) {
		count = read_sges(list);
	}
	bool has_signature = *word() != '-';
	if (has_signature) {
		sig.check_mask = number();
		text = word();
		if (*text != '-') {
			sig.flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
			sig.copy_mask = strtoul(text, NULL, 16);
		}
		sig.mem = read_domain(&memory);
		sig.wire = read_domain(&wire);
	}
	setters = has_access + has_layout + has_signature;
	mlx5dv_wr_mkey_configure(to, mkey, setters, &attr);
	if (has_access)
		mlx5dv_wr_set_mkey_access_flags(to, access);
	if (in_turns)
		mlx5dv_wr_set_mkey_layout_interleaved(to, repeat, count, turns);
	else if (has_layout)
		mlx5dv_wr_set_mkey_layout_list(to, count, list);
	if (has_signature)
		mlx5dv_wr_set_mkey_sig_block(to, &sig);
}

static void post_raw(struct mlx5dv_qp_ex *to)
{
	static uint8_t wqe[MAX_WQE] __attribute__((aligned(BLOCK)));
	const char *digits = word();

	for (size_t i = 0; digits[2 * i] && i < sizeof(wqe); i++) {
		char two[3] = {digits[2 * i], digits[2 * i + 1], 0};

		wqe[i] = strtoul(two, NULL, 16);
	}
	mlx5dv_wr_raw_wqe(to, wqe);
}

static unsigned read_flags(void)
{
	unsigned flags = 0;

	for (const char *flag = word(); *flag; flag++)
		flags |= *flag == 'S'   ? IBV_SEND_SIGNALED
			 : *flag == 'O' ? IBV_SEND_SOLICITED
			 : *flag == 'F' ? IBV_SEND_FENCE
					: 0;
	return flags;
}

static void build_rare(void)
{
	struct ibv_qp_ex *to = q.qpx;
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(to);
	struct ibv_sge list[MAX_SGES];

	to->wr_id = number();
	to->wr_flags = read_flags();
	const char *kind = word();
	if (!strcmp(kind, "mkey")) {
		to->wr_flags |= IBV_SEND_INLINE;
		configure(dv);
		return;
	}
	if (!strcmp(kind, "raw")) {
		post_raw(dv);
		return;
	}
	if (!strcmp(kind, "local_inv")) {
		ibv_wr_local_inv(to, number());
		return;
	}
	if (!strcmp(kind, "send")) {
		ibv_wr_send(to);
	} else if (!strcmp(kind, "send_inv")) {
		ibv_wr_send_inv(to, number());
	} else {
		uint64_t address = number();
		uint32_t key = number();
		uint64_t first = number();

		if (!strcmp(kind, "cs"))
			ibv_wr_atomic_cmp_swp(to, key, address, first, number());
		else
			ibv_wr_atomic_fetch_add(to, key, address, first);
	}
	int count = read_sges(list);
	ibv_wr_set_sge_list(to, count, list);
}

static void read_rare(struct ibv_send_wr *wr, struct ibv_sge *list)
{
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = number();
	wr->send_flags = read_flags();
	const char *kind = word();
	if (!strcmp(kind, "local_inv")) {
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = number();
		return;
	}
	if (!strcmp(kind, "send")) {
		wr->opcode = IBV_WR_SEND;
	} else if (!strcmp(kind, "send_inv")) {
		wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = number();
	} else {
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = number();
		wr->wr.atomic.rkey = number();
		wr->wr.atomic.compare_add = number();
		if (!strcmp(kind, "cs")) {
			wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
			wr->wr.atomic.swap = number();
		}
	}
	wr->sg_list = list;
	wr->num_sge = read_sges(list);
}

static void post_rare(void)
{
	printf("post %s\n", word());
	bool builder = word_is("builder");
	int count = number(), posted = -1;

	poison();
	if (builder)
		ibv_wr_start(q.qpx);
	for (int i = 0; i < count; i++) {
		CHECK("a request", next_line());
		first_word();
		if (builder)
			build_rare();
		else
			read_rare(&wrs[i], sges[i]);
	}
	if (builder) {
		posted = ibv_wr_complete(q.qpx) ? 0 : -1;
	} else {
		q.builder = false;
		posted = post(wrs, count);
	}
	tell_result(posted);
	tell_record(q.dv.dbrec, 8);
	tell_register();
	follow(true);
	printf("done\n");
}

static void to_sqd(void)
{
	drained = true;
}

static void cancel(void)
{
	uint64_t wr_id = number();
	int count = mlx5dv_qp_cancel_posted_send_wrs(mlx5dv_qp_ex_from_ibv_qp_ex(q.qpx), wr_id);

	if (count < 0) {
		fprintf(stderr, "oracle: cancel: %s\n", strerror(-count));
		exit(1);
	}
	printf("post cancel-%" PRIx64 "-%x\n", wr_id, count);
	tell_result(-1);
	tell_record(q.dv.dbrec, 8);
	q.head = 0;
	follow(true);
	printf("done\n");
}
