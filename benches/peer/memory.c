/* Creates queues that are never destroyed, so that their memory can be measured. */
#include "peer.h"

/* Prefix of the names in the results. */
EXPORT const char bench_memory_who[] = WHO;

EXPORT void *bench_memory_open(const struct bench_machine *machine)
{
	return open_plain(machine, 0);
}

/* Creates queue pairs; `into` has room for them. */
EXPORT void bench_memory_qps(void *state, void **into, uint32_t count)
{
	struct state *s = state;

	for (uint32_t i = 0; i < count; i++)
		into[i] = create_qp(s, s->cq, 0);
}

/* Creates completion queues; `into` has room for them. */
EXPORT void bench_memory_cqs(void *state, void **into, uint32_t count)
{
	struct state *s = state;

	for (uint32_t i = 0; i < count; i++) {
		into[i] = ibv_create_cq(s->context, ENTRIES, NULL, NULL, 0);
		must(into[i] != NULL, "ibv_create_cq");
	}
}
