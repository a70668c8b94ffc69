/* Work before and after the measured operations; it uses none of them. */
#include "peer.h"

void post(struct state *s, uint64_t wr_id, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &s->inline_sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = { s->remotes[wr_id % ROUND], s->rkey },
	}, *bad;

	must(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
}

int drain(struct ibv_cq *cq)
{
	struct ibv_wc wcs[BATCH];
	int total = 0, count;

	while ((count = ibv_poll_cq(cq, BATCH, wcs)) > 0) {
		for (int i = 0; i < count; i++)
			must(wcs[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wcs[i].status));
		total += count;
	}
	must(count == 0, "ibv_poll_cq");
	return total;
}

void refill(struct state *s)
{
	struct ibv_recv_wr wr = { .sg_list = s->sges, .num_sge = 1 }, *bad;

	for (; s->receives < RECEIVES; s->receives++)
		must(!(s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) :
				ibv_post_recv(s->peer, &wr, &bad)),
		     "receives");
}

void complete(struct state *s, uint32_t count)
{
	uint32_t done = 0;

	settle(s->machine);
	while (done < count)
		done += drain(s->cq);
	must(done == count, "completions");
	settle(s->machine);
	s->receives -= drain(s->peer_cq);
	refill(s);
}

void nothing(void *state, uint64_t first, uint32_t calls)
{
	(void)state, (void)first, (void)calls;
}

void posted(void *state, uint32_t calls)
{
	complete(state, calls);
}

void posted_batches(void *state, uint32_t calls)
{
	complete(state, calls * BATCH);
}

void polled(void *state, uint32_t calls)
{
	struct state *s = state;

	(void)calls;
	must(drain(s->cq) == 0, "all polled");
}

void prepare_completions(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;

	(void)calls;
	for (uint32_t i = 0; i < ROUND; i++)
		post(s, first + i, IBV_WR_RDMA_WRITE);
	settle(s->machine);
}
