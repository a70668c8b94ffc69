/*
 * Posting to a work queue, and the state that a program reads in it, follow firmware commands that change it.
 * C's library and its kernel driver go on with the state before.
 */
#include "packets.h"

#include <endian.h>

enum {
	MODIFY_RQ = 0x909,
	QUERY_RQ = 0x90b,
	QUERY_RQT = 0x919,
	LENGTH = 0x110,
	RST = 0,
	RDY = 1,
	ERR = 3,
};

static void command(struct ibv_wq *wq, int from, int to, const char *what)
{
	uint8_t in[LENGTH] = {}, out[16] = {};

	put(in, MODIFY_RQ, 2);
	put(in + 8, wq->wq_num, 4);
	in[8] = from << 4;
	in[0x21] = to << 4;
	printf("command, %s: %s", what, name_of(mlx5dv_devx_wq_modify(wq, in, LENGTH, out, sizeof(out))));
	printf(", state %d\n", wq->state);
}

static int post(struct end *end, struct ibv_wq *wq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)end->bed.to, FRAME, end->bed.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_wq_recv(wq, &wr, &bad);
}

/* What the device says of the queue. */
static void query(struct ibv_wq *wq)
{
	uint8_t in[16] = {}, out[LENGTH] = {};

	put(in, QUERY_RQ, 2);
	put(in + 8, wq->wq_num, 4);
	printf("query: %s", name_of(mlx5dv_devx_wq_query(wq, in, sizeof(in), out, sizeof(out))));
	printf(", state %d\n", out[0x21] >> 4);
}

/* And of a table of one. */
static void query_table(struct end *end, struct ibv_wq *wq)
{
	struct ibv_rwq_ind_table_init_attr init = { 0, &wq, 0 };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(end->bed.context, &init);
	uint8_t in[16] = {}, out[LENGTH + 16] = {};

	must(table, "ibv_create_rwq_ind_table");
	put(in, QUERY_RQT, 2);
	put(in + 8, table->ind_tbl_num, 4);
	printf("query of a table: %s",
	       name_of(mlx5dv_devx_ind_tbl_query(table, in, sizeof(in), out, sizeof(out))));
	printf(", %d of %d\n", out[0x3b], out[0x37]);
	must(!ibv_destroy_rwq_ind_table(table), "ibv_destroy_rwq_ind_table");
}

static void flushed(struct end *end)
{
	struct ibv_wc wc;

	poll_one(ibv_cq_ex_to_cq(end->cq), &wc);
	printf("flushed: %" PRIu64 ", %d\n", wc.wr_id, wc.status == IBV_WC_WR_FLUSH_ERR);
}

int main(void)
{
	struct end end = open_end();
	struct ibv_wq *wq = make_wq(&end, 0);
	struct ibv_wc wc;

	must(wq, "ibv_create_wq");
	printf("posting before: %s\n", name_of(post(&end, wq, 1)));
	command(wq, RDY, ERR, "from a state that it is not in");
	command(wq, RST, RDY, "ready");
	query(wq);
	query_table(&end, wq);
	printf("posting: %s\n", name_of(post(&end, wq, 2)));
	/* The kernel goes by the state that it has set itself. */
	printf("error: %s", name_of(set_state(wq, IBV_WQS_ERR)));
	printf(", state %d\n", wq->state);
	command(wq, RDY, ERR, "error");
	flushed(&end);
	/* Its completion is there when the queue becomes ready, and goes. */
	must(!post(&end, wq, 3), "ibv_post_wq_recv");
	command(wq, ERR, RST, "reset");
	printf("posting: %s\n", name_of(post(&end, wq, 4)));
	command(wq, RST, RDY, "ready");
	printf("completions: %d\n", ibv_poll_cq(ibv_cq_ex_to_cq(end.cq), 1, &wc));
	printf("posting: %s\n", name_of(post(&end, wq, 5)));
	command(wq, RDY, ERR, "error");
	flushed(&end);
	must(!ibv_destroy_wq(wq), "ibv_destroy_wq");
	close_end(&end);
	return 0;
}
