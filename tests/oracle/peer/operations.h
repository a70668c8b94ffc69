/*
 * The rarer operations of a send queue, for oracle.c: memory keys that requests configure, atomics,
 * invalidations, requests that the caller has put together. Commands:
 *
 *	dvqp REQUESTS SGES INLINE		a queue pair with all of them (made ...)
 *	windows					two memory windows, of type 2 and of type 1
 *	keys COUNT { ENTRIES SIGNED }		memory keys, named by number below
 *	dvpost LABEL API COUNT, then op ...	posts them in one batch, or in one list
 *
 *	sigerr KEY ENTRY			an entry tells of a bad signature (post sigerr-KIND-EXPECTED-ACTUAL-OFFSET)
 *	sqd					the firmware says that the send queue is drained
 *	cancel WR_ID				(post cancel-WR_ID-COUNT: all of the ring)
 *
 * and op is WR_ID FLAGS, on an extended connection SRQN, then one of
 *
 *	mkey KEY RESET ACCESS LAYOUT SIGNATURE
 *	send SGES, send_inv RKEY SGES, local_inv RKEY
 *	cs ADDRESS RKEY COMPARE SWAP SGES, fa ADDRESS RKEY ADD SGES
 *	send_imm IMM SGES, send_inline BYTES, write ADDRESS RKEY SGES, read ADDRESS RKEY SGES
 *	write_imm ADDRESS RKEY IMM SGES
 *	bind OFFSET LENGTH ACCESS		the window of type 2
 *	call OFFSET LENGTH ACCESS		that of type 1, by ibv_bind_mw, alone in a list
 *	raw BYTES
 *
 * where ACCESS is `-` or a number; LAYOUT `-`, `list SGES` or `turns REPEAT COUNT { ADDRESS BYTES
 * SKIP LKEY }`; SIGNATURE `-` or `sig CHECK COPY DOMAIN DOMAIN`, of which COPY may be `-`; DOMAIN
 * `-`, `dif TYPE GUARD APP REF FLAGS SIZE` or `crc TYPE SEED SIZE`.
 */

enum {
	MAX_KEYS = 8,
	MAX_WQE = 1024,
	WINDOW_MEMORY = 4096,
};

/* Where both sides say that the windows' region is. */
#define WINDOW_ADDRESS 0x7f5500000000ull

static struct mlx5dv_mkey *mkeys[MAX_KEYS];
static int num_mkeys;
static struct ibv_mr *window_mr;
static struct ibv_mw *window_by_request, *window_by_call;
/* A call that stands in the place of a request. */
static struct ibv_mw_bind window_call;
static bool has_window_call;

static void make_dv_qp(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = q.cq,
		.recv_cq = q.type == IBV_QPT_RC ? q.cq : NULL,
		.qp_type = q.type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = q.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW |
				  IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	struct mlx5dv_qp_init_attr dv_attr = {0};

	if (q.type == IBV_QPT_RC) {
		dv_attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv_attr.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE |
					 MLX5DV_QP_EX_WITH_RAW_WQE;
	}
	attr.cap.max_send_wr = number();
	attr.cap.max_send_sge = number();
	attr.cap.max_inline_data = number();
	if (q.type == IBV_QPT_RC) {
		attr.cap.max_recv_wr = 1;
		attr.cap.max_recv_sge = 1;
	}
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

static void make_windows(void)
{
	static uint8_t memory[WINDOW_MEMORY] __attribute__((aligned(WINDOW_MEMORY)));

	window_mr = ibv_reg_mr_iova(q.pd, memory, sizeof(memory), WINDOW_ADDRESS,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
					    IBV_ACCESS_MW_BIND);
	CHECK("reg_mr_iova", window_mr);
	CHECK("alloc_mw", (window_by_request = ibv_alloc_mw(q.pd, IBV_MW_TYPE_2)));
	CHECK("alloc_mw", (window_by_call = ibv_alloc_mw(q.pd, IBV_MW_TYPE_1)));
}

static void destroy_windows(void)
{
	if (!window_mr)
		return;
	CHECK("dealloc_mw", !ibv_dealloc_mw(window_by_request));
	CHECK("dealloc_mw", !ibv_dealloc_mw(window_by_call));
	CHECK("dereg_mr", !ibv_dereg_mr(window_mr));
	window_mr = NULL;
}

static struct ibv_mw_bind_info read_binding(void)
{
	uint64_t offset = number(), length = number();

	return (struct ibv_mw_bind_info){
		.mr = length ? window_mr : NULL,
		.addr = length ? WINDOW_ADDRESS + offset : 0,
		.length = length,
		.mw_access_flags = number(),
	};
}

/* Bytes that the line has in digits; how many. */
static size_t read_bytes(uint8_t *to, size_t room)
{
	const char *digits = word();
	size_t length = 0;

	for (; digits[2 * length] && length < room; length++) {
		char two[3] = {digits[2 * length], digits[2 * length + 1], 0};

		to[length] = strtoul(two, NULL, 16);
	}
	return length;
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
	read_bytes(wqe, sizeof(wqe));
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
	uint32_t srqn = q.type == IBV_QPT_XRC_SEND ? number() : 0;
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
	if (!strcmp(kind, "bind")) {
		struct ibv_mw_bind_info info = read_binding();

		uint32_t rkey = ibv_inc_rkey(window_by_request->rkey);

		ibv_wr_bind_mw(to, window_by_request, rkey, &info);
		/* As the caller has to. */
		window_by_request->rkey = rkey;
		return;
	}
	if (!strcmp(kind, "send") || !strcmp(kind, "send_inline")) {
		ibv_wr_send(to);
	} else if (!strcmp(kind, "send_imm")) {
		ibv_wr_send_imm(to, htobe32(number()));
	} else if (!strcmp(kind, "send_inv")) {
		ibv_wr_send_inv(to, number());
	} else {
		uint64_t address = number();
		uint32_t key = number();

		if (!strcmp(kind, "write")) {
			ibv_wr_rdma_write(to, key, address);
		} else if (!strcmp(kind, "write_imm")) {
			ibv_wr_rdma_write_imm(to, key, address, htobe32(number()));
		} else if (!strcmp(kind, "read")) {
			ibv_wr_rdma_read(to, key, address);
		} else {
			uint64_t first = number();

			if (!strcmp(kind, "cs"))
				ibv_wr_atomic_cmp_swp(to, key, address, first, number());
			else
				ibv_wr_atomic_fetch_add(to, key, address, first);
		}
	}
	if (q.type == IBV_QPT_XRC_SEND)
		ibv_wr_set_xrc_srqn(to, srqn);
	if (!strcmp(kind, "send_inline")) {
		uint8_t bytes[MAX_WQE];
		size_t length = read_bytes(bytes, sizeof(bytes));

		ibv_wr_set_inline_data(to, bytes, length);
		return;
	}
	int count = read_sges(list);
	ibv_wr_set_sge_list(to, count, list);
}

static void read_rare(struct ibv_send_wr *wr, struct ibv_sge *list, uint8_t *message)
{
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = number();
	wr->send_flags = read_flags();
	if (q.type == IBV_QPT_XRC_SEND)
		wr->qp_type.xrc.remote_srqn = number();
	const char *kind = word();
	if (!strcmp(kind, "local_inv")) {
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = number();
		return;
	}
	if (!strcmp(kind, "call")) {
		window_call.wr_id = wr->wr_id;
		window_call.send_flags = wr->send_flags;
		window_call.bind_info = read_binding();
		has_window_call = true;
		return;
	}
	if (!strcmp(kind, "bind")) {
		wr->opcode = IBV_WR_BIND_MW;
		wr->bind_mw.mw = window_by_request;
		wr->bind_mw.rkey = ibv_inc_rkey(window_by_request->rkey);
		wr->bind_mw.bind_info = read_binding();
		return;
	}
	wr->sg_list = list;
	if (!strcmp(kind, "send_inline")) {
		wr->opcode = IBV_WR_SEND;
		wr->send_flags |= IBV_SEND_INLINE;
		list->addr = (uintptr_t)message;
		list->length = read_bytes(message, MAX_MESSAGE);
		wr->num_sge = 1;
		return;
	}
	if (!strcmp(kind, "send")) {
		wr->opcode = IBV_WR_SEND;
	} else if (!strcmp(kind, "send_imm")) {
		wr->opcode = IBV_WR_SEND_WITH_IMM;
		wr->imm_data = htobe32(number());
	} else if (!strcmp(kind, "send_inv")) {
		wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = number();
	} else if (!strcmp(kind, "cs") || !strcmp(kind, "fa")) {
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = number();
		wr->wr.atomic.rkey = number();
		wr->wr.atomic.compare_add = number();
		if (!strcmp(kind, "cs")) {
			wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
			wr->wr.atomic.swap = number();
		}
	} else {
		wr->wr.rdma.remote_addr = number();
		wr->wr.rdma.rkey = number();
		wr->opcode = IBV_WR_RDMA_READ;
		if (!strcmp(kind, "write"))
			wr->opcode = IBV_WR_RDMA_WRITE;
		if (!strcmp(kind, "write_imm")) {
			wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr->imm_data = htobe32(number());
		}
	}
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
			read_rare(&wrs[i], sges[i], messages[i]);
	}
	if (builder) {
		posted = ibv_wr_complete(q.qpx) ? 0 : -1;
	} else if (has_window_call) {
		has_window_call = false;
		posted = ibv_bind_mw(q.qp, window_by_call, &window_call) ? 0 : -1;
	} else {
		q.builder = false;
		posted = post(wrs, count);
		/* As the caller has to. */
		for (int i = 0; i < count; i++)
			if (wrs[i].opcode == IBV_WR_BIND_MW)
				wrs[i].bind_mw.mw->rkey = wrs[i].bind_mw.rkey;
	}
	report_result(posted);
	report_record(q.dv.dbrec, 8);
	report_register();
	follow(true);
	printf("done\n");
}

/* An entry that is no completion, and what the key says then. */
static void signature_error(void)
{
	struct mlx5dv_mkey *mkey = mkeys[number()];
	uint32_t index = q.completed++;
	uint8_t *cqe = (uint8_t *)q.dv_cq.buf + (index & (q.dv_cq.cqe_cnt - 1)) * q.dv_cq.cqe_size;
	const __be32 key = htobe32(mkey->lkey);
	struct mlx5dv_mkey_err found = {0};
	static const char *const kinds[] = {
		[MLX5DV_MKEY_NO_ERR] = "none",
		[MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD] = "guard",
		[MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG] = "reference",
		[MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG] = "application",
	};
	struct ibv_wc wc;

	cqe += q.dv_cq.cqe_size - 64;
	read_bytes(cqe, 63);
	memcpy(cqe + 36, &key, sizeof(key));
	cqe[63] = MLX5_CQE_SIG_ERR << 4 | !!(index & q.dv_cq.cqe_cnt);
	CHECK("no completion", ibv_poll_cq(q.cq, 1, &wc) == 0);
	CHECK("mkey_check", !mlx5dv_mkey_check(mkey, &found));
	printf("post sigerr-%s-%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\n", kinds[found.err_type],
	       found.err.sig.expected_value, found.err.sig.actual_value, found.err.sig.offset);
	report_result(-1);
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
	report_result(-1);
	report_record(q.dv.dbrec, 8);
	q.head = 0;
	follow(true);
	printf("done\n");
}
