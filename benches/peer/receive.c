/* Posts receive requests to a queue pair, and to a shared receive queue. */
#include "peer.h"

OPERATION int peer_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *list)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, list, &bad);
}

OPERATION int peer_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *list)
{
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(srq, list, &bad);
}

/* Prepares lists of `of` requests each. */
static void prepare_lists(struct state *s, uint64_t first, uint32_t calls, uint32_t of)
{
	for (uint32_t i = 0; i < calls * of; i++) {
		struct ibv_recv_wr *wr = &s->receive[i];

		wr->wr_id = first + i;
		wr->next = (i + 1) % of ? wr + 1 : NULL;
		wr->sg_list = &s->sges[i];
		wr->num_sge = 1;
	}
}

static void prepare_ones(void *state, uint64_t first, uint32_t calls)
{
	prepare_lists(state, first, calls, 1);
}

static void prepare_batches(void *state, uint64_t first, uint32_t calls)
{
	prepare_lists(state, first, calls, BATCH);
}

/* Consumes the posted receives. */
static void received(void *state, uint32_t calls)
{
	struct state *s = state;

	s->receives += calls;
	for (uint32_t i = 0; i < calls; i++)
		post(s, i, IBV_WR_SEND);
	complete(s, calls);
}

static void received_batches(void *state, uint32_t calls)
{
	received(state, calls * BATCH);
}

static void *open_shared(const struct bench_machine *machine, int single_threaded)
{
	struct options options = { IBV_QPT_RC, 0, single_threaded, 1, DEPTH, ENTRIES, 0 };

	return open_state(machine, options);
}

CALLS(post_recv, 0, peer_post_recv(s->peer, &s->receive[k]))
CALLS(post_srq_recv, 0, peer_post_srq_recv(s->srq, &s->receive[k]))

static void calls_post_recv_list(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;

	(void)first;
	for (uint32_t k = 0; k < calls; k++)
		must(!peer_post_recv(s->peer, &s->receive[k * BATCH]), "post_recv");
}

bench_cases receive_cases = {
	CASE("post_recv1", "post_recv", post_recv, ROUND, 1, open_plain, prepare_ones, received),
	{ "post_recv16", WHO "post_recv", "peer_post_recv", ROUND / BATCH, BATCH,
	  open_plain, prepare_batches, calls_post_recv_list, received_batches, 0 },
	CASE("post_srq_recv1", "post_srq_recv", post_srq_recv, ROUND, 1, open_shared, prepare_ones,
	     received),
	{},
};
