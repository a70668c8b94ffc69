/* Posts to shallow queues, and to a full one: src/rounds/depth.rs does the same. */
#include <time.h>

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

/* The nanoseconds of posting requests `from` to `to` of a round. */
static uint64_t posting(struct state *s, uint64_t first, uint32_t from, uint32_t to)
{
	struct timespec start, end;
	int bad = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (uint32_t k = from; k < to; k++)
		bad |= peer_post_send_inline8(s->qp, s->remotes[k], s->rkey, s->bytes, s->length,
					      first + k);
	clock_gettime(CLOCK_MONOTONIC, &end);
	must(!bad, "ibv_post_send");
	return (end.tv_sec - start.tv_sec) * 1000000000LL + (end.tv_nsec - start.tv_nsec);
}

/* As many at a time as the queue is deep. */
static uint64_t shallow(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;
	uint32_t depth = s->options.depth;
	uint64_t sum = 0;

	for (uint32_t k = 0; k < calls; k += depth) {
		sum += posting(s, first, k, k + depth);
		complete(s, depth);
	}
	return sum;
}

/* Each after one has completed. */
static uint64_t full(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;
	struct ibv_wc wc;
	uint64_t sum = 0;

	settle(s->machine);
	for (uint32_t k = 0; k < calls; k++) {
		must(ibv_poll_cq(s->cq, 1, &wc) == 1, "a completion");
		must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		sum += posting(s, first, k, k + 1);
	}
	return sum;
}

static void untimed(void *state, uint32_t calls)
{
	(void)state, (void)calls;
}

#define DEEP(name, open, timed) \
	{ name, WHO "post_send", "peer_post_send_inline8", ROUND, 1, open, nothing, 0, untimed, timed }

bench_cases depth_cases = {
	DEEP("post_depth1", open_depth1, shallow),
	DEEP("post_depth2", open_depth2, shallow),
	DEEP("post_depth4", open_depth4, shallow),
	DEEP("post_full64", open_full, full),
	{},
};
