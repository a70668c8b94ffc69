/*
 * Posting in each state of a queue pair, and states that are changed while a batch is open: what is refused,
 * with which errno, at which request, and what completes. Nothing waits for ever.
 */
#include "bed.h"

static struct bed bed;

static struct ibv_sge sge(void)
{
	return (struct ibv_sge){ (uintptr_t)bed.from, 8, bed.mr->lkey };
}

/* Two requests of each kind, and a batch. */
static void post_all(struct pair *pair, const char *state)
{
	struct ibv_sge data = sge();
	struct ibv_send_wr sends[2] = {}, *bad_send = NULL;
	struct ibv_recv_wr receives[2] = {}, *bad = NULL;
	int refused;

	for (int i = 0; i < 2; i++) {
		sends[i] = (struct ibv_send_wr){ .wr_id = i, .sg_list = &data, .num_sge = 1,
			.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.next = i ? NULL : &sends[1] };
		if (pair->type == IBV_QPT_UD) {
			sends[i].wr.ud.ah = pair->ah;
			sends[i].wr.ud.remote_qpn = pair->qp->qp_num;
			sends[i].wr.ud.remote_qkey = QKEY;
		}
		if (pair->type == IBV_QPT_XRC_SEND)
			sends[i].qp_type.xrc.remote_srqn = pair->srqn;
		receives[i] = (struct ibv_recv_wr){ .sg_list = &data, .num_sge = 1,
			.next = i ? NULL : &receives[1] };
	}
	printf("%s %s:", type_name(pair->type), state);
	refused = ibv_post_send(pair->qp, sends, &bad_send);
	printf(" send %s %ld", name_of(refused), bad_send ? (long)(bad_send - sends) : -1);
	if (pair->type != IBV_QPT_XRC_SEND) {
		refused = ibv_post_recv(pair->qp, receives, &bad);
		printf(", receive %s %ld", name_of(refused), bad ? (long)(bad - receives) : -1);
	}
	ibv_wr_start(pair->ex);
	pair->ex->wr_id = 7;
	pair->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(pair->ex);
	if (pair->type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(pair->ex, pair->ah, pair->qp->qp_num, QKEY);
	if (pair->type == IBV_QPT_XRC_SEND)
		ibv_wr_set_xrc_srqn(pair->ex, pair->srqn);
	ibv_wr_set_sge_list(pair->ex, 1, &data);
	printf(", batch %s\n", name_of(ibv_wr_complete(pair->ex)));
}

static void in_each_state(enum ibv_qp_type type)
{
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD };
	struct pair pair = make_pair(&bed, type, operations(type));

	post_all(&pair, "RESET");
	must(!to_init(pair.qp) && !to_init(pair.peer), "INIT");
	post_all(&pair, "INIT");
	must(!to_rtr(&bed, pair.qp, pair.peer->qp_num), "RTR");
	post_all(&pair, "RTR");
	must(!to_rts(pair.qp), "RTS");
	printf("%s to SQD: %s\n", type_name(type), name_of(ibv_modify_qp(pair.qp, &drain, IBV_QP_STATE)));
	must(!to_error(pair.qp), "ERR");
	post_all(&pair, "ERR");
	drop_pair(&pair);
}

/* The state is changed by the thread that has a batch open, before it is completed. */
static void in_a_batch(enum ibv_qp_type type, enum ibv_qp_state state, const char *name)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	struct pair pair = make_pair(&bed, type, operations(type));
	struct ibv_sge data = sge();
	struct ibv_wc wc;

	connect_pair(&bed, &pair);
	ibv_wr_start(pair.ex);
	pair.ex->wr_id = 1;
	pair.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(pair.ex);
	ibv_wr_set_sge_list(pair.ex, 1, &data);
	printf("%s in a batch to %s: %s", type_name(type), name,
	       name_of(ibv_modify_qp(pair.qp, &attr, IBV_QP_STATE)));
	ibv_wr_complete(pair.ex);
	printf(", completions in RESET: %d\n",
	       state == IBV_QPS_RESET ? ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc) : 0);
	/* From RESET it works again. */
	attr.qp_state = IBV_QPS_RESET;
	must(!ibv_modify_qp(pair.qp, &attr, IBV_QP_STATE), "RESET");
	must(!ibv_modify_qp(pair.peer, &attr, IBV_QP_STATE), "RESET of the peer");
	connect_pair(&bed, &pair);
	must(!post_receive(&bed, &pair, 2), "ibv_post_recv");
	ibv_wr_start(pair.ex);
	pair.ex->wr_id = 3;
	ibv_wr_send(pair.ex);
	ibv_wr_set_sge_list(pair.ex, 1, &data);
	printf("then: %s", name_of(ibv_wr_complete(pair.ex)));
	poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
	printf(", request %d %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
	drop_pair(&pair);
}

/* A queue pair that is destroyed by the thread that has a batch open. */
static void destroyed(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));

	connect_pair(&bed, &pair);
	ibv_wr_start(pair.ex);
	ibv_wr_send(pair.ex);
	drop_pair(&pair);
	printf("destroyed with a batch\n");
}

/* Larger numbers than a field of the device has bits for: programs ask for ten retries. */
static void cut(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 32 + 14,
		.retry_cnt = 10,
		.rnr_retry = 13,
		.max_rd_atomic = 4,
	};
	struct pair pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));
	struct ibv_qp_init_attr init;
	int many = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;

	must(!to_init(pair.qp), "INIT");
	must(!to_rtr(&bed, pair.qp, pair.peer->qp_num), "RTR");
	printf("many retries: %s",
	       name_of(ibv_modify_qp(pair.qp, &attr,
				     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | many)));
	must(!ibv_query_qp(pair.qp, &attr, many, &init), "ibv_query_qp");
	printf(", %d, %d, timeout %d\n", attr.retry_cnt, attr.rnr_retry, attr.timeout);
	drop_pair(&pair);
}

int main(void)
{
	enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND };

	bed = open_bed();
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		in_each_state(types[i]);
	in_a_batch(IBV_QPT_RC, IBV_QPS_RESET, "RESET");
	in_a_batch(IBV_QPT_UC, IBV_QPS_RESET, "RESET");
	in_a_batch(IBV_QPT_RC, IBV_QPS_ERR, "ERR");
	destroyed();
	cut();
	close_bed(&bed);
	return 0;
}
