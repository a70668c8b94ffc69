/* Posts to shallow queues, and to a full one: src/rounds/depth.rs does the same. */
#include "peer.h"

static void *open_deep(const struct bench_machine *machine, int single_threaded, uint32_t depth)
{
	struct options options = { IBV_QPT_RC, 0, single_threaded, 0, depth, ENTRIES, 0 };

	return open_state(machine, options);
}

static void *open_depth1(const struct bench_machine *machine, int single_threaded)
{
	return open_deep(machine, single_threaded, 1);
}

static void *open_depth2(const struct bench_machine *machine, int single_threaded)
{
	return open_deep(machine, single_threaded, 2);
}

static void *open_depth4(const struct bench_machine *machine, int single_threaded)
{
	return open_deep(machine, single_threaded, 4);
}

/* Fills the queue, whatever depth its provider chose. */
static void *open_full(const struct bench_machine *machine, int single_threaded)
{
	struct state *s = open_deep(machine, single_threaded, ROUND);
	uint64_t i = 0;

	while (!peer_post_send_inline8(s->qp, s->remotes[i % ROUND], s->rkey, s->bytes, s->length, i))
		i++;
	return s;
}

/* Polls one completion, which leaves room for one request. */
static void prepare_full(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;
	struct ibv_wc wc;

	(void)first, (void)calls;
	settle(s->machine);
	must(ibv_poll_cq(s->cq, 1, &wc) == 1, "a completion");
	must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
}

static void posted_to_full(void *state, uint32_t calls)
{
	(void)state, (void)calls;
}

CALLS(post_send_inline8, 0,
      peer_post_send_inline8(s->qp, s->remotes[k], s->rkey, s->bytes, s->length, i))

bench_cases depth_cases = {
	CASE("post_depth1", "post_send", post_send_inline8, 1, 1, open_depth1, nothing, posted),
	CASE("post_depth2", "post_send", post_send_inline8, 2, 1, open_depth2, nothing, posted),
	CASE("post_depth4", "post_send", post_send_inline8, 4, 1, open_depth4, nothing, posted),
	CASE("post_full64", "post_send", post_send_inline8, 1, 1, open_full, prepare_full,
	     posted_to_full),
	{},
};
