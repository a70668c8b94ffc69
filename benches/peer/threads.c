/* Queues that threads post to and poll; each thread has its own, or all share one. */
#include "peer.h"

int peer_post_send_inline8(struct ibv_qp *qp, uint64_t remote, uint32_t rkey, void *bytes,
			   uint32_t length, uint64_t wr_id);
int peer_poll_cq_one(struct ibv_cq *cq, uint64_t *sum);

/* `depth` is the number of requests that may be posted and not polled. */
EXPORT void *bench_threads_open(const struct bench_machine *machine, uint32_t depth)
{
	struct options options = {
		.type = IBV_QPT_RC,
		.depth = depth,
		.entries = depth,
	};

	return open_state(machine, options);
}

/* Posts `count` requests. */
EXPORT void bench_threads_post(void *state, uint64_t first, uint32_t count)
{
	struct state *s = state;
	int bad = 0;

	for (uint32_t k = 0; k < count; k++)
		bad |= peer_post_send_inline8(s->qp, s->remotes[k % ROUND], s->rkey, s->bytes,
					      s->length, first + k);
	must(!bad, "ibv_post_send");
}

/* Polls one by one until there were `count` completions. */
EXPORT void bench_threads_poll(void *state, uint32_t count)
{
	struct state *s = state;
	uint64_t sum = 0;
	uint32_t polled = 0;

	while (polled < count) {
		int one = peer_poll_cq_one(s->cq, &sum);

		must(one >= 0, "ibv_poll_cq");
		polled += one;
	}
	/* Every completion was successful, and has a length. */
	must(sum >= count, "completions");
}
