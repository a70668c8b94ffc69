/* Posting by ibv_wr_* and by ibv_post_send: every operation on every transport, and every refusal. */
#include "bed.h"

static struct bed bed;

/* How the data of a request is set. */
enum setter { SGE, SGE_LIST, EMPTY_SGE, INLINE_DATA, INLINE_LIST, EMPTY_INLINE, SETTERS };

static const char *const setters[] = { "sge", "sge_list", "empty sge", "inline", "inline list",
				       "empty inline" };

static void set_data(struct ibv_qp_ex *qp, enum setter setter)
{
	uint64_t from = (uintptr_t)bed.from;
	struct ibv_sge list[] = { { from, 8, bed.mr->lkey }, { from + 100, 5, bed.mr->lkey } };
	struct ibv_data_buf pieces[] = { { bed.from + 3, 7 }, { bed.from, 0 }, { bed.from + 200, 30 } };

	switch (setter) {
	case SGE: return ibv_wr_set_sge(qp, bed.mr->lkey, from + 1, 24);
	case SGE_LIST: return ibv_wr_set_sge_list(qp, 2, list);
	case EMPTY_SGE: return ibv_wr_set_sge(qp, 0, 0, 0);
	case INLINE_DATA: return ibv_wr_set_inline_data(qp, bed.from + 9, 33);
	case INLINE_LIST: return ibv_wr_set_inline_data_list(qp, 3, pieces);
	default: return ibv_wr_set_inline_data(qp, NULL, 0);
	}
}

/* The receiver; on some transports before the data, on some after it. */
static void set_receiver(const struct pair *pair)
{
	if (pair->ah)
		ibv_wr_set_ud_addr(pair->ex, pair->ah, pair->peer->qp_num, QKEY);
	if (pair->srq)
		ibv_wr_set_xrc_srqn(pair->ex, pair->srqn);
}

enum op { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, SWAP, ADD, OPS };

static const struct {
	const char *name;
	uint64_t bit;
	bool received, only_sge;
} ops[] = {
	[SEND] = { "send", IBV_QP_EX_WITH_SEND, true, false },
	[SEND_IMM] = { "send_imm", IBV_QP_EX_WITH_SEND_WITH_IMM, true, false },
	[WRITE] = { "rdma_write", IBV_QP_EX_WITH_RDMA_WRITE, false, false },
	[WRITE_IMM] = { "rdma_write_imm", IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, true, false },
	[READ] = { "rdma_read", IBV_QP_EX_WITH_RDMA_READ, false, true },
	[SWAP] = { "atomic_cmp_swp", IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, false, true },
	[ADD] = { "atomic_fetch_add", IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, false, true },
};

static void name_op(struct ibv_qp_ex *qp, enum op op)
{
	uint32_t rkey = bed.mr->rkey;
	uint64_t remote = (uintptr_t)bed.to + 64, word = 0;

	memcpy(&word, bed.to + 64, 8);
	switch (op) {
	case SEND: return ibv_wr_send(qp);
	case SEND_IMM: return ibv_wr_send_imm(qp, 0x01020304);
	case WRITE: return ibv_wr_rdma_write(qp, rkey, remote);
	case WRITE_IMM: return ibv_wr_rdma_write_imm(qp, rkey, remote, 0x0a0b0c0d);
	case READ: return ibv_wr_rdma_read(qp, rkey, remote);
	case SWAP: return ibv_wr_atomic_cmp_swp(qp, rkey, remote, word, 0x1122334455667788);
	default: return ibv_wr_atomic_fetch_add(qp, rkey, remote, 1000);
	}
}

static uint32_t sum_of(const uint8_t *bytes, int length)
{
	uint32_t sum = 0;

	for (int i = 0; i < length; i++)
		sum = sum * 31 + bytes[i];
	return sum;
}

static void print_sent(const struct ibv_wc *wc)
{
	printf(" | sent %" PRIu64 " status %d", wc->wr_id, wc->status);
	if (wc->status == IBV_WC_SUCCESS) {
		printf(" opcode %d", wc->opcode);
		if (wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP ||
		    wc->opcode == IBV_WC_FETCH_ADD)
			printf(" length %u", wc->byte_len);
	}
}

static void print_received(const struct pair *pair, const struct ibv_wc *wc)
{
	printf(" | received %" PRIu64 " status %d opcode %d length %u flags %d", wc->wr_id,
	       wc->status, wc->opcode, wc->byte_len, wc->wc_flags);
	if (wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
		printf(" imm %#x", wc->imm_data);
	if (pair->ah)
		printf(" from %s slid %d", wc->src_qp == pair->qp->qp_num ? "it" : "another",
		       wc->slid);
	printf(" at %s", wc->qp_num == pair->peer->qp_num ? "peer" : "another");
}

static void one(struct pair *pair, enum op op, enum setter setter, bool late, unsigned int flags)
{
	struct ibv_qp_ex *qp = pair->ex;
	uint64_t id = op * 100 + setter;
	struct ibv_wc wc;

	if (ops[op].only_sge && (setter > EMPTY_SGE || (op != READ && setter != SGE)))
		return;
	memset(bed.to, 0x55, 256);
	if (ops[op].received)
		must(!post_receive(&bed, pair, id + 1), "a receive");
	printf("%s %s %s%s flags %#x", type_name(pair->type), ops[op].name, setters[setter],
	       late ? " before the receiver" : "", flags);
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = flags;
	name_op(qp, op);
	/* They were taken already. */
	qp->wr_id = 9999;
	qp->wr_flags = 0;
	if (!late)
		set_receiver(pair);
	if (op == SWAP || op == ADD)
		ibv_wr_set_sge(qp, bed.mr->lkey, (uintptr_t)bed.from + 512, 8);
	else
		set_data(qp, setter);
	if (late)
		set_receiver(pair);
	printf(": %s", name_of(ibv_wr_complete(qp)));
	poll_one(ibv_cq_ex_to_cq(pair->cq), &wc);
	print_sent(&wc);
	if (ops[op].received) {
		poll_one(ibv_cq_ex_to_cq(pair->peer_cq), &wc);
		print_received(pair, &wc);
	}
	/* A datagram's first 40 bytes may hold a header, which names the machine. */
	printf(" | bytes %#x %#x\n", sum_of(bed.to + (pair->ah ? 40 : 0), 200), sum_of(bed.from, 1024));
	for (int i = 0; i < 1024; i++)
		bed.from[i] = i * 7 + 13;
}

static void print_table(const struct pair *pair)
{
	const struct ibv_qp_ex *qp = pair->ex;

	printf("%s functions:", type_name(pair->type));
#define SLOT(name) printf(" %s=%d", #name, qp->wr_##name != NULL)
	SLOT(atomic_cmp_swp), SLOT(atomic_fetch_add), SLOT(bind_mw), SLOT(local_inv), SLOT(rdma_read);
	SLOT(rdma_write), SLOT(rdma_write_imm), SLOT(send), SLOT(send_imm), SLOT(send_inv);
	SLOT(send_tso), SLOT(set_ud_addr), SLOT(set_xrc_srqn), SLOT(set_inline_data);
	SLOT(set_inline_data_list), SLOT(set_sge), SLOT(set_sge_list), SLOT(start), SLOT(complete);
	SLOT(abort), SLOT(atomic_write);
	printf("\n");
}

static void every_operation(enum ibv_qp_type type)
{
	struct pair pair = make_pair(&bed, type, operations(type));
	bool two = type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND;

	must(pair.ex, "ibv_qp_to_qp_ex");
	print_table(&pair);
	connect_pair(&bed, &pair);
	for (int op = 0; op < OPS; op++) {
		if (!(operations(type) & ops[op].bit))
			continue;
		for (int setter = 0; setter < SETTERS; setter++) {
			one(&pair, op, setter, false, IBV_SEND_SIGNALED);
			if (two)
				one(&pair, op, setter, true, IBV_SEND_SIGNALED);
		}
		one(&pair, op, SGE, false, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE);
		one(&pair, op, SGE, false, IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_IP_CSUM);
	}
	drop_pair(&pair);
}

/* Windows of type 2: bound by a list at the peer, which the other end invalidates, and by ibv_wr_*. */
static void windows(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));
	struct ibv_mw *mw = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {
		.mr = bed.mr,
		.addr = (uintptr_t)bed.to,
		.length = 64,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_send_wr *bad, bind = {
		.wr_id = 1,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc;

	must(mw, "ibv_alloc_mw");
	connect_pair(&bed, &pair);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = info;
	printf("bind by a list: %s", name_of(ibv_post_send(pair.peer, &bind, &bad)));
	poll_one(ibv_cq_ex_to_cq(pair.peer_cq), &wc);
	print_sent(&wc);
	mw->rkey = bind.bind_mw.rkey;
	must(!post_receive(&bed, &pair, 2), "a receive");
	ibv_wr_start(pair.ex);
	pair.ex->wr_id = 3;
	pair.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(pair.ex, mw->rkey, (uintptr_t)bed.to);
	ibv_wr_set_inline_data(pair.ex, bed.from, 8);
	ibv_wr_send_inv(pair.ex, mw->rkey);
	ibv_wr_set_inline_data(pair.ex, bed.from, 8);
	printf("\nwrite and invalidate: %s", name_of(ibv_wr_complete(pair.ex)));
	for (int i = 0; i < 2; i++) {
		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		print_sent(&wc);
	}
	poll_one(ibv_cq_ex_to_cq(pair.peer_cq), &wc);
	printf(" | received flags %d, the key: %d\n", wc.wc_flags, wc.invalidated_rkey == mw->rkey);
	ibv_wr_start(pair.ex);
	pair.ex->wr_id = 4;
	ibv_wr_bind_mw(pair.ex, mw, ibv_inc_rkey(mw->rkey), &info);
	mw->rkey = ibv_inc_rkey(mw->rkey);
	ibv_wr_local_inv(pair.ex, mw->rkey);
	printf("bind and invalidate: %s", name_of(ibv_wr_complete(pair.ex)));
	for (int i = 0; i < 2; i++) {
		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		print_sent(&wc);
	}
	printf("\n");
	must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw");
	drop_pair(&pair);
}

/* A write by ibv_wr_*, without its end. */
static void add_write(struct ibv_qp_ex *qp, uint64_t id, unsigned int flags)
{
	qp->wr_id = id;
	qp->wr_flags = flags;
	ibv_wr_rdma_write(qp, bed.mr->rkey, (uintptr_t)bed.to);
	ibv_wr_set_sge(qp, bed.mr->lkey, (uintptr_t)bed.from, 8);
}

static void print_completions(struct pair *pair, int count)
{
	struct ibv_wc wc;

	printf("  completions:");
	for (; count; count--) {
		poll_one(ibv_cq_ex_to_cq(pair->cq), &wc);
		printf(" %" PRIu64 " status %d", wc.wr_id, wc.status);
	}
	printf(", then %d\n", ibv_poll_cq(ibv_cq_ex_to_cq(pair->cq), 1, &wc));
}

static int refused_batch(struct ibv_qp_ex *qp, int what)
{
	static uint8_t bytes[1 << 16];
	struct ibv_sge list[64] = {};
	struct ibv_data_buf pieces[] = { { bytes, 3000 }, { bytes, 3000 } };

	for (int i = 0; i < 64; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)bed.from, 1, bed.mr->lkey };
	ibv_wr_start(qp);
	add_write(qp, 1, IBV_SEND_SIGNALED);
	switch (what) {
	case 0:
		ibv_wr_send(qp);
		ibv_wr_set_sge_list(qp, 64, list);
		break;
	case 1:
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, bytes, sizeof(bytes));
		break;
	case 2:
		ibv_wr_send(qp);
		ibv_wr_set_inline_data_list(qp, 2, pieces);
		break;
	case 3:
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, bytes, (1ull << 32) + 8);
		break;
	}
	/* A good one behind it changes nothing. */
	add_write(qp, 2, IBV_SEND_SIGNALED);
	return ibv_wr_complete(qp);
}

static void refusals_of_batches(void)
{
	static const char *const names[] = { "too many SGEs", "inline too long",
					     "inline list too long", "inline of 4 GiB" };
	struct pair pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));
	struct ibv_qp_ex *qp = pair.ex;

	ibv_wr_start(qp);
	add_write(qp, 1, IBV_SEND_SIGNALED);
	printf("batch in RESET: %s\n", name_of(ibv_wr_complete(qp)));
	must(!to_init(pair.qp), "INIT");
	ibv_wr_start(qp);
	printf("empty batch in INIT: %s\n", name_of(ibv_wr_complete(qp)) );
	connect_pair(&bed, &pair);
	for (int i = 0; i < 4; i++) {
		printf("%s: %s\n", names[i], name_of(refused_batch(qp, i)));
		print_completions(&pair, 0);
	}
	ibv_wr_start(qp);
	printf("empty batch: %s\n", name_of(ibv_wr_complete(qp)));
	ibv_wr_start(qp);
	add_write(qp, 3, IBV_SEND_SIGNALED);
	ibv_wr_abort(qp);
	print_completions(&pair, 0);
	ibv_wr_start(qp);
	for (int i = 0; i < 16; i++)
		add_write(qp, 10 + i, i % 4 == 3 ? IBV_SEND_SIGNALED : 0);
	printf("a batch after those: %s\n", name_of(ibv_wr_complete(qp)));
	print_completions(&pair, 4);
	must(!to_error(pair.qp), "ERR");
	ibv_wr_start(qp);
	add_write(qp, 30, IBV_SEND_SIGNALED);
	add_write(qp, 31, 0);
	printf("batch in ERR: %s\n", name_of(ibv_wr_complete(qp)));
	print_completions(&pair, 2);
	drop_pair(&pair);
}

/* Unsigned requests until no more fit. */
static void full(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));
	struct ibv_qp_ex *qp = pair.ex;
	int count = 0, refused;

	connect_pair(&bed, &pair);
	do {
		ibv_wr_start(qp);
		add_write(qp, 5, 0);
		refused = ibv_wr_complete(qp);
		count += !refused;
	} while (!refused && count < 100000);
	printf("full of unsignaled ones: %s, at least as many as asked for: %d\n", name_of(refused),
	       count >= DEPTH - 1);
	drop_pair(&pair);
	pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));
	qp = pair.ex;
	connect_pair(&bed, &pair);
	count = 0;
	do {
		ibv_wr_start(qp);
		add_write(qp, count, IBV_SEND_SIGNALED);
		refused = ibv_wr_complete(qp);
		count += !refused;
	} while (!refused && count < 100000);
	printf("full of signaled ones: %s, at least as many as asked for: %d\n", name_of(refused),
	       count >= DEPTH);
	for (int i = 0; i < count; i++) {
		struct ibv_wc wc;

		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		must(wc.wr_id == (uint64_t)i && !wc.status, "completions in order");
	}
	ibv_wr_start(qp);
	add_write(qp, 7, IBV_SEND_SIGNALED);
	printf("after they were polled: %s\n", name_of(ibv_wr_complete(qp)));
	print_completions(&pair, 1);
	drop_pair(&pair);
}

/* A list of five, the third of which is bad in one way. */
static void bad_list(struct pair *pair, const char *name, void (*spoil)(struct ibv_send_wr *wr))
{
	struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
	struct ibv_send_wr list[5] = {}, *bad = NULL;
	int refused;

	for (int i = 0; i < 5; i++) {
		list[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i < 4 ? &list[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)bed.to, bed.mr->rkey },
		};
		if (pair->srq)
			list[i].qp_type.xrc.remote_srqn = pair->srqn;
	}
	if (spoil)
		spoil(&list[2]);
	refused = ibv_post_send(pair->qp, list, &bad);
	printf("list with %s: %s, bad %ld\n", name, name_of(refused), bad ? (long)(bad - list) : -1L);
	print_completions(pair, pair->qp->state < IBV_QPS_RTS ? 0 : refused ? 2 : 5);
}

static struct ibv_sge many[64];

static void no_opcode(struct ibv_send_wr *wr) { wr->opcode = 99; }
static void too_many(struct ibv_send_wr *wr) { wr->sg_list = many, wr->num_sge = 64; }
static void inline_of_two(struct ibv_send_wr *wr)
{
	static struct ibv_sge two[2];

	two[0] = (struct ibv_sge){ (uintptr_t)bed.from + 5, 10, 77 };
	two[1] = (struct ibv_sge){ (uintptr_t)bed.from + 50, 20, 78 };
	wr->sg_list = two, wr->num_sge = 2;
	wr->send_flags |= IBV_SEND_INLINE;
}
static void no_data(struct ibv_send_wr *wr) { wr->num_sge = 0, wr->sg_list = NULL; }
static void no_inline_data(struct ibv_send_wr *wr)
{
	no_data(wr);
	wr->send_flags |= IBV_SEND_INLINE;
}
static void odd_flags(struct ibv_send_wr *wr) { wr->send_flags |= IBV_SEND_SOLICITED | 1 << 20; }

static void lists(enum ibv_qp_type type, uint64_t with)
{
	struct pair pair = make_pair(&bed, type, with);

	printf("lists on %s%s\n", type_name(type), with ? ", which has send operations" : "");
	printf("ibv_qp_to_qp_ex: %d\n", ibv_qp_to_qp_ex(pair.qp) != NULL);
	bad_list(&pair, "RESET", NULL);
	connect_pair(&bed, &pair);
	bad_list(&pair, "nothing bad", NULL);
	bad_list(&pair, "no opcode", no_opcode);
	bad_list(&pair, "too many SGEs", too_many);
	memset(bed.to, 0, 64);
	bad_list(&pair, "inline data of two", inline_of_two);
	printf("  bytes %#x\n", sum_of(bed.to, 64));
	bad_list(&pair, "no data", no_data);
	bad_list(&pair, "no inline data", no_inline_data);
	bad_list(&pair, "odd flags", odd_flags);
	printf("an empty list: %s\n", name_of(ibv_post_send(pair.qp, NULL, NULL)));
	drop_pair(&pair);
}

static void receives(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = many, .num_sge = 64 }, *bad = NULL;
	int refused;

	printf("receive in RESET: %s\n", name_of(post_receive(&bed, &pair, 1)));
	must(!to_init(pair.peer), "INIT");
	refused = ibv_post_recv(pair.peer, &wr, &bad);
	printf("receive with too many SGEs: %s, bad %d\n", name_of(refused), bad == &wr);
	while (!(refused = post_receive(&bed, &pair, 1)))
		;
	printf("too many receives: %s\n", name_of(refused));
	drop_pair(&pair);
}

static void creation(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND };
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);

	for (int type = 0; type < 4; type++) {
		printf("%s made with operation:", type_name(types[type]));
		for (int bit = 0; bit < 14; bit++) {
			struct ibv_qp *qp;

			errno = 0;
			qp = make_qp(&bed, types[type], ibv_cq_ex_to_cq(cq), 1ull << bit);
			printf(" %d %s", bit, qp ? "yes" : name_of(errno));
			if (qp) {
				printf("%s", ibv_qp_to_qp_ex(qp) ? "" : " but no table");
				must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
			}
		}
		printf("\n");
	}
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
}

/* Regions that no window is bound to, and one without memory. */
static void regions(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, IBV_QP_EX_WITH_BIND_MW);
	struct ibv_alloc_dm_attr length = { .length = 64 };
	struct ibv_dm *memory = ibv_alloc_dm(bed.context, &length);
	struct ibv_mr *regions[2] = { ibv_alloc_null_mr(bed.pd), NULL };
	struct ibv_mw *window = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .length = 8, .mw_access_flags = IBV_ACCESS_REMOTE_READ } };

	must(memory && window, "objects");
	regions[1] = ibv_reg_dm_mr(bed.pd, memory, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	must(regions[1], "ibv_reg_dm_mr");
	connect_pair(&bed, &pair);
	printf("null region: %s\n", regions[0] ? "made" : name_of(errno));
	for (int i = 0; i < 2; i++) {
		if (!regions[i])
			continue;
		bind.bind_info.mr = regions[i];
		printf("length %zx, bound: %s", regions[i]->length,
		       name_of(ibv_bind_mw(pair.qp, window, &bind)));
		printf(", deregistered: %s\n", name_of(ibv_dereg_mr(regions[i])));
	}
	must(!ibv_dealloc_mw(window) && !ibv_free_dm(memory), "objects");
	drop_pair(&pair);
}

/* The address handle goes before the request is finished: only the setter uses it. */
static void short_address(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	struct ibv_wc wc;

	connect_pair(&bed, &pair);
	must(!post_receive(&bed, &pair, 7), "a receive");
	ibv_wr_start(pair.ex);
	pair.ex->wr_id = 5;
	pair.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(pair.ex);
	ibv_wr_set_ud_addr(pair.ex, pair.ah, pair.peer->qp_num, QKEY);
	must(!ibv_destroy_ah(pair.ah), "ibv_destroy_ah");
	pair.ah = NULL;
	spoil();
	ibv_wr_set_sge(pair.ex, bed.mr->lkey, (uintptr_t)bed.from, 16);
	printf("address handle that is gone: %s", name_of(ibv_wr_complete(pair.ex)));
	poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
	printf(", sent %d", wc.status);
	poll_one(ibv_cq_ex_to_cq(pair.peer_cq), &wc);
	printf(", received %" PRIu64 " %d\n", wc.wr_id, wc.byte_len);
	drop_pair(&pair);
}

int main(void)
{
	bed = open_bed();
	for (int i = 0; i < 64; i++)
		many[i] = (struct ibv_sge){ (uintptr_t)bed.from, 1, bed.mr->lkey };
	creation();
	every_operation(IBV_QPT_RC);
	every_operation(IBV_QPT_UC);
	every_operation(IBV_QPT_UD);
	every_operation(IBV_QPT_XRC_SEND);
	windows();
	refusals_of_batches();
	full();
	lists(IBV_QPT_RC, 0);
	lists(IBV_QPT_RC, operations(IBV_QPT_RC));
	lists(IBV_QPT_UC, 0);
	lists(IBV_QPT_XRC_SEND, 0);
	receives();
	regions();
	short_address();
	close_bed(&bed);
	return 0;
}
