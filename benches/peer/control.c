/* Creates and destroys queue pairs. */
#include "peer.h"

OPERATION int peer_create_destroy_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { DEPTH, DEPTH, 1, 1, 28 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	return qp ? ibv_destroy_qp(qp) : -1;
}

/*
 * Also polls, as every program does: until a poll, a queue without locks may keep destroyed
 * objects.
 */
static void gone(void *state, uint32_t calls)
{
	const struct state *s = state;
	struct ibv_wc wc;

	(void)calls;
	settle(s->machine);
	must(ibv_poll_cq(s->cq, 1, &wc) == 0, "a poll that finds nothing");
}

CALLS(create_destroy_qp, 0, peer_create_destroy_qp(s->pd, s->cq))

bench_cases control_cases = {
	CASE("create_destroy_qp", "create_qp", create_destroy_qp, 4, 1, open_plain, nothing, gone),
	{},
};
