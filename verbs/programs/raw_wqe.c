/* Requests that the program writes itself, on every transport that sends, and what their completions tell. */
#include "packets.h"

#include <endian.h>

enum {
	UNIT = 16,
	UNITS = 16,
	/* More than a completion holds: C's library takes the flags of one with data from the data. */
	BYTES = 128,
};

static struct bed bed;

/* A request under construction: 16-byte units behind the control segment. */
struct request {
	_Alignas(64) uint8_t bytes[UNITS * UNIT];
	int units;
	uint32_t qp_num;
};

static void *more(struct request *to, int units)
{
	void *at = to->bytes + to->units * UNIT;

	to->units += units;
	must(to->units <= UNITS, "room");
	return at;
}

static void begin(struct request *to, const struct ibv_qp *qp)
{
	memset(to, 0, sizeof(*to));
	to->units = 1;
	to->qp_num = qp->qp_num;
}

static void end_request(struct request *of, uint8_t opcode, uint8_t flags, uint32_t imm)
{
	/* The index of its block is filled in when it is posted: what is here does not matter. */
	mlx5dv_set_ctrl_seg((void *)of->bytes, 0x1234, opcode, 0, of->qp_num, flags, of->units, 0, imm);
}

static void piece(struct request *to, uint64_t address, uint32_t length, uint32_t lkey)
{
	mlx5dv_set_data_seg(more(to, 1), length, lkey, address);
}

/* Whom the request is for, on transports whose requests say so. */
static void receiver(struct request *to, const struct pair *pair)
{
	if (pair->ah) {
		struct mlx5dv_ah raw = {};
		struct mlx5dv_obj obj = { .ah = { pair->ah, &raw } };
		struct mlx5_wqe_av *av = more(to, 3);

		must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), "mlx5dv_init_obj");
		*av = *raw.av;
		av->key.qkey.qkey = htobe32(QKEY);
		av->dqp_dct = htobe32(pair->peer->qp_num | MLX5_EXTENDED_UD_AV);
	}
	if (pair->srq)
		*(uint32_t *)more(to, 1) = htobe32(pair->srqn);
}

static struct ibv_qp *make(struct bed *of, struct ibv_qp_init_attr_ex *attr, uint64_t send_ops)
{
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
					  .send_ops_flags = send_ops };

	errno = 0;
	return mlx5dv_create_qp(of->context, attr, &dv);
}

static void print_functions(const char *type, struct ibv_qp_ex *ex)
{
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);

	printf("%s: raw_wqe %d, send %d\n", type, dv->wr_raw_wqe != NULL, ex->wr_send != NULL);
}

/* The sending end of a pair, with requests of the program's own. */
static void replace_sender(struct pair *pair)
{
	bool xrc = pair->type == IBV_QPT_XRC_SEND;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(pair->cq),
		.recv_cq = xrc ? NULL : ibv_cq_ex_to_cq(pair->cq),
		.cap = { DEPTH, xrc ? 0 : DEPTH, SGES, xrc ? 0 : 1, INLINE_BYTES },
		.qp_type = pair->type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = bed.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	must(!ibv_destroy_qp(pair->qp), "ibv_destroy_qp");
	pair->qp = make(&bed, &attr, MLX5DV_QP_EX_WITH_RAW_WQE);
	must(pair->qp, "mlx5dv_create_qp");
	pair->ex = ibv_qp_to_qp_ex(pair->qp);
	print_functions(type_name(pair->type), pair->ex);
}

static void post(struct ibv_qp_ex *ex, uint64_t id, const struct request *request)
{
	ex->wr_id = id;
	/* The request itself says whether it completes. */
	ex->wr_flags = 0;
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(ex), request->bytes);
}

static void print_sent(struct ibv_cq_ex *cq)
{
	struct ibv_wc wc;

	poll_one(ibv_cq_ex_to_cq(cq), &wc);
	printf("sent %" PRIu64 ": status %d", wc.wr_id, wc.status);
	if (wc.status == IBV_WC_SUCCESS)
		printf(", opcode %d", wc.opcode);
	printf("\n");
}

static void print_received(const struct pair *pair)
{
	/* A datagram's first 40 bytes may hold a header. */
	int at = pair->ah ? 40 : 0;
	struct ibv_wc wc;

	poll_one(ibv_cq_ex_to_cq(pair->peer_cq), &wc);
	printf("received %" PRIu64 ": status %d, opcode %d, %u bytes, flags %x, the same %d\n", wc.wr_id,
	       wc.status, wc.opcode, wc.byte_len, wc.wc_flags, !memcmp(bed.to + at, bed.from + 100, BYTES));
}

static void send_one(struct pair *pair, uint8_t opcode, uint64_t id, bool signaled)
{
	uint64_t from = (uintptr_t)bed.from + 100;
	struct request request;

	memset(bed.to, 0x55, 256);
	must(!post_receive(&bed, pair, id + 1), "a receive");
	begin(&request, pair->qp);
	receiver(&request, pair);
	piece(&request, from, BYTES / 2, bed.mr->lkey);
	piece(&request, from + BYTES / 2, BYTES / 2, bed.mr->lkey);
	end_request(&request, opcode, signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0, htobe32(0x01020304));
	ibv_wr_start(pair->ex);
	post(pair->ex, id, &request);
	printf("%s opcode %x: %s\n", type_name(pair->type), opcode, name_of(ibv_wr_complete(pair->ex)));
	if (signaled)
		print_sent(pair->cq);
	print_received(pair);
}

/* Requests of the program among those of the library, in one batch. */
static void mixed(struct pair *pair)
{
	struct request nop;

	begin(&nop, pair->qp);
	end_request(&nop, MLX5_OPCODE_NOP, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	must(!post_receive(&bed, pair, 31), "a receive");
	ibv_wr_start(pair->ex);
	post(pair->ex, 20, &nop);
	pair->ex->wr_id = 30;
	pair->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(pair->ex);
	if (pair->ah)
		ibv_wr_set_ud_addr(pair->ex, pair->ah, pair->peer->qp_num, QKEY);
	if (pair->srq)
		ibv_wr_set_xrc_srqn(pair->ex, pair->srqn);
	ibv_wr_set_sge(pair->ex, bed.mr->lkey, (uintptr_t)bed.from + 100, BYTES);
	post(pair->ex, 40, &nop);
	printf("%s mixed: %s\n", type_name(pair->type), name_of(ibv_wr_complete(pair->ex)));
	for (int i = 0; i < 3; i++)
		print_sent(pair->cq);
	print_received(pair);
	/* A batch that is dropped posts none. */
	ibv_wr_start(pair->ex);
	post(pair->ex, 50, &nop);
	ibv_wr_abort(pair->ex);
}

/* More rounds than the ring has places. */
static void many(struct pair *pair)
{
	struct request nop;
	struct ibv_wc wc;
	int good = 0;

	begin(&nop, pair->qp);
	for (int i = 0; i < 4 * DEPTH; i++) {
		end_request(&nop, MLX5_OPCODE_NOP, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		ibv_wr_start(pair->ex);
		post(pair->ex, i, &nop);
		if (ibv_wr_complete(pair->ex))
			break;
		poll_one(ibv_cq_ex_to_cq(pair->cq), &wc);
		good += wc.wr_id == (uint64_t)i && wc.status == IBV_WC_SUCCESS;
	}
	printf("%s many: %d\n", type_name(pair->type), good);
}

/* What is outstanding when the queue pair fails is flushed. */
static void flushed(struct pair *pair)
{
	struct request request;

	must(!to_error(pair->qp), "ERR");
	begin(&request, pair->qp);
	receiver(&request, pair);
	piece(&request, (uintptr_t)bed.from, BYTES, bed.mr->lkey);
	end_request(&request, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	ibv_wr_start(pair->ex);
	post(pair->ex, 60, &request);
	printf("%s failed: %s\n", type_name(pair->type), name_of(ibv_wr_complete(pair->ex)));
	print_sent(pair->cq);
}

static void of_type(enum ibv_qp_type type)
{
	struct pair pair = make_pair(&bed, type, IBV_QP_EX_WITH_SEND);

	replace_sender(&pair);
	connect_pair(&bed, &pair);
	send_one(&pair, MLX5_OPCODE_SEND, 1, true);
	send_one(&pair, MLX5_OPCODE_SEND_IMM, 3, true);
	send_one(&pair, MLX5_OPCODE_SEND, 5, false);
	mixed(&pair);
	many(&pair);
	flushed(&pair);
	drop_pair(&pair);
}

static void packets(void)
{
	struct end here = open_end(), there = open_end();
	struct ibv_qp_init_attr_ex attr = attributes(&here);
	struct rule rule = to_mac(THERE);
	struct ibv_flow *flow = make_rule(there.qp, &rule, "for the packets");
	struct mlx5_wqe_eth_seg *eth;
	struct request request;
	unsigned int length;
	struct ibv_qp *qp;

	must(flow, "ibv_create_flow");
	qp = make(&here.bed, &attr, MLX5DV_QP_EX_WITH_RAW_WQE);
	printf("packets: %s\n", qp ? "made" : name_of(errno));
	if (qp) {
		activate(qp);
		print_functions("packets", ibv_qp_to_qp_ex(qp));
		length = headers(here.bed.from, IPPROTO_UDP, 60) + 60;
		receive(&there, 1);
		begin(&request, qp);
		/* 14 bytes of the segment, and the first 18 of the packet. */
		eth = more(&request, 2);
		eth->cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
		eth->inline_hdr_sz = htobe16(18);
		memcpy(eth->inline_hdr_start, here.bed.from, 18);
		piece(&request, (uintptr_t)here.bed.from + 18, length - 18, here.bed.mr->lkey);
		end_request(&request, MLX5_OPCODE_SEND, MLX5_WQE_CTRL_CQ_UPDATE, 0);
		ibv_wr_start(ibv_qp_to_qp_ex(qp));
		post(ibv_qp_to_qp_ex(qp), 7, &request);
		printf("a packet: %s\n", name_of(ibv_wr_complete(ibv_qp_to_qp_ex(qp))));
		print_sent(here.cq);
		see(&there, 1, 1);
		must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	}
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	close_end(&here);
	close_end(&there);
}

/* Requests for keys are of reliable connections only. */
static void refused(enum ibv_qp_type type)
{
	struct ibv_cq *cq = ibv_create_cq(bed.context, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq, .recv_cq = cq, .cap = { DEPTH, 1, 2, 1, 512 }, .qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = bed.pd,
	};
	struct ibv_qp *qp = make(&bed, &attr,
				 MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE);

	printf("%s with keys: %s\n", type_name(type), qp ? "made" : name_of(errno));
	must(!ibv_destroy_cq(cq), "ibv_destroy_cq");
}

int main(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND };

	bed = open_bed();
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		of_type(types[i]);
	refused(IBV_QPT_UC);
	refused(IBV_QPT_UD);
	close_bed(&bed);
	packets();
	return 0;
}
