/*
 * The minimum of polling compressed completions, as in floor.c: a title and arrays of eight mini
 * CQEs that stand for a run of CQEs.
 */
#include <endian.h>

#include "floor.h"

enum {
	/* Format and opcode of a title. */
	TITLE = 0x0c,
	MINIS = 8,
};

/* Slot of a mini CQE's array: 1, 8, 16 and so on after the title. */
static inline uint32_t slot_of(uint32_t mini)
{
	return mini < MINIS ? 1 : mini / MINIS * MINIS;
}

/* Returns whether there is a run, and reads its title. */
static inline int begin_run(struct floor *f, uint32_t consumer)
{
	const struct block *cqe = &f->cqes[consumer % ENTRIES];
	uint8_t op_own = *(const volatile uint64_t *)&cqe->words[7] >> 56;

	if ((op_own & 1) != ((consumer >> LOG_ENTRIES) & 1))
		return 0;
	from_device();
	if (__builtin_expect((op_own & ~1) != TITLE, 0))
		return 0;
	f->run_count = be32toh((uint32_t)(cqe->words[5] >> 32));
	f->run_at = 0;
	return 1;
}

/*
 * Marks the slots of a run as not written in the next lap, since the device writes nothing else
 * into them.
 */
static inline void end_run(struct floor *f, uint32_t consumer, uint32_t count)
{
	uint64_t mark = (uint64_t)(CQE_INVALID | ((consumer >> LOG_ENTRIES) & 1)) << 56;

	for (uint32_t i = 1; i < count; i++)
		f->cqes[(consumer + i) % ENTRIES].words[7] = mark;
	to_device();
	f->run_at = f->run_count = 0;
	publish(f, consumer + count);
}

/* Polls at most `most` completions of a run, at least one. */
static inline uint32_t next_minis(struct floor *f, uint32_t most, uint64_t *sum)
{
	uint32_t consumer = f->consumer, at = f->run_at, count = f->run_count, done = 0;

	if (at == count) {
		if (!begin_run(f, consumer))
			return 0;
		at = 0;
		count = f->run_count;
	}
	for (; done < most && at != count; done++, at++) {
		const struct block *array = &f->cqes[(consumer + slot_of(at)) % ENTRIES];
		uint64_t mini = *(const volatile uint64_t *)&array->words[at % MINIS];
		const struct record *record = &f->records[be16toh(mini) % BLOCKS];

		f->retired = record->first + 1;
		*sum += record->wr_id + be32toh(mini >> 32) + ((uint8_t)(mini >> 16) == RDMA_WRITE);
	}
	f->run_at = at;
	if (at == count)
		end_run(f, consumer, count);
	return done;
}

OPERATION int floor_poll_one_compressed(struct floor *f, uint64_t *sum)
{
	return next_minis(f, 1, sum);
}

OPERATION int floor_poll_many_compressed(struct floor *f, int max, uint64_t *sum)
{
	int count = 0, now;

	while (count < max && (now = next_minis(f, max - count, sum)))
		count += now;
	return count;
}

/* Prepares one run. */
static void prepare_run(void *state, uint64_t first, uint32_t calls)
{
	struct floor *f = state;
	uint32_t start = f->consumer;
	struct block *title = &f->cqes[start % ENTRIES];

	(void)calls;
	for (uint32_t i = 0; i < ROUND; i++) {
		uint32_t head = f->head++;

		remember(f, head, first + i);
		f->cqes[(start + slot_of(i)) % ENTRIES].words[i % MINIS] =
			htobe16(head & 0xffff) | (uint64_t)RDMA_WRITE << 16;
	}
	title->words[5] = (uint64_t)htobe32(ROUND) << 32;
	title->words[7] = (uint64_t)(TITLE | ((start >> LOG_ENTRIES) & 1)) << 56;
}

static void finish(void *state, uint32_t calls)
{
	struct floor *f = state;

	(void)calls;
	f->retired = f->head;
}

#define CALLS(name, good, call) \
	BENCH_CALLS(name, good, call, struct floor *f = state)

CALLS(poll_one_compressed, 1, floor_poll_one_compressed(f, &f->sum))
CALLS(poll_many_compressed, BATCH, floor_poll_many_compressed(f, BATCH, &f->sum))

bench_cases floor_compressed_cases = {
	{ "poll1_compressed", "floor", "floor_poll_one_compressed", ROUND, 1, open_floor, prepare_run,
	  calls_poll_one_compressed, finish, 0 },
	{ "poll16_compressed", "floor", "floor_poll_many_compressed", ROUND / BATCH, BATCH, open_floor,
	  prepare_run, calls_poll_many_compressed, finish, 0 },
	{},
};
