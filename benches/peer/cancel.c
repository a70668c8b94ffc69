/* Cancels posted requests by mlx5dv_qp_cancel_posted_send_wrs. */
#include <infiniband/mlx5dv.h>

#include "peer.h"

enum {
	FEW = 1000,
	/* Requests that a round cancels one by one. */
	ONES = 16,
	MANY = 4096,
	SET = 64,
	/* Distance between two identifiers of a set. */
	STEP = MANY / SET,
};

OPERATION int peer_cancel_one(struct mlx5dv_qp_ex *qp, uint64_t wr_id)
{
	return mlx5dv_qp_cancel_posted_send_wrs(qp, wr_id);
}

OPERATION int peer_cancel_set(struct mlx5dv_qp_ex *qp, const uint64_t *wr_ids, int count)
{
	int total = 0;

	for (int i = 0; i < count; i++)
		total += mlx5dv_qp_cancel_posted_send_wrs(qp, wr_ids[i]);
	return total;
}

static void *open_deep(const struct bench_machine *machine, int single_threaded)
{
	struct options options = { IBV_QPT_RC, 1, single_threaded, 0, 2 * MANY, 2 * MANY, 0 };

	return machine->drain ? open_state(machine, options) : NULL;
}

/* Drains the queue, and posts requests after that. */
static void fill(struct state *s, uint32_t count)
{
	must(!s->machine->drain(s->qp->qp_num), "drain");
	settle(s->machine);
	for (uint32_t i = 0; i < count; i++)
		post(s, i, IBV_WR_RDMA_WRITE);
}

static void prepare_few(void *state, uint64_t first, uint32_t calls)
{
	(void)first, (void)calls;
	fill(state, FEW);
}

static void prepare_many(void *state, uint64_t first, uint32_t calls)
{
	(void)first, (void)calls;
	fill(state, MANY);
}

/* Resumes the queue. */
static void go_on(struct state *s, uint32_t count)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };

	must(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), "ibv_modify_qp");
	complete(s, count);
}

static void done_few(void *state, uint32_t calls)
{
	(void)calls;
	go_on(state, FEW);
}

static void done_many(void *state, uint32_t calls)
{
	(void)calls;
	go_on(state, MANY);
}

CALLS(cancel_one, 1,
      peer_cancel_one(mlx5dv_qp_ex_from_ibv_qp_ex(s->qp_ex), k * (FEW / ONES) + FEW / ONES / 2))

static void calls_cancel_set(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;
	uint64_t wr_ids[SET];

	(void)first, (void)calls;
	for (int i = 0; i < SET; i++)
		wr_ids[i] = i * STEP + STEP / 2;
	must(peer_cancel_set(mlx5dv_qp_ex_from_ibv_qp_ex(s->qp_ex), wr_ids, SET) == SET, "cancel");
}

bench_cases cancel_cases = {
	CASE("cancel_1_of_1000", "cancel", cancel_one, ONES, 1, open_deep, prepare_few, done_few),
	CASE("cancel_64_of_4096", "cancel", cancel_set, 1, 1, open_deep, prepare_many, done_many),
	{},
};
