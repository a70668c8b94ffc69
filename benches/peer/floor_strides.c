/*
 * The minimum of packets that share receives, as in floor.c: each packet takes some strides of a
 * receive's memory.
 */
#include <endian.h>
#include <errno.h>

#include "floor.h"

enum {
	BURST = 32,
	/* Strides of a receive. */
	STRIDES = 64,
	LOG_STRIDE = 11,
	LOG_RECEIVE = LOG_STRIDE + 6,
	/* A power of two. */
	MEMORY = 4,
	/* In the byte count of a CQE: the number of strides, above the length. */
	STRIDES_SHIFT = 16,
	/* In the first word of an Ethernet segment: checksums of both layers. */
	CHECKSUMS = 0xc0,
	/* In a CQE: an IPv4 packet whose two checksums are right. */
	GOOD = 0x06,
	IPV4 = 0x02,
	LKEY = 0x5678,
};

struct strided {
	/* The send queue and the receive queue, each with its completion queue. */
	struct floor *send, *receive;
	uint8_t *memory;
	/*
	 * The current receive, free-running, and the number of strides that are left in it, and
	 * their address.
	 */
	uint32_t receive_at, left;
	uint8_t *at;
	/* `volatile` hides them from the compiler. */
	volatile uint32_t log_stride, strides;
	uint8_t addresses[12];
	uint64_t sum;
};

/* The consecutive CQEs from `consumer` on, up to `end` or to the end of the ring. */
static inline const struct block *behind(const struct floor *f, uint32_t consumer, uint32_t end)
{
	uint32_t rest = ENTRIES - consumer % ENTRIES;

	return &f->cqes[consumer % ENTRIES] + (end - consumer < rest ? end - consumer : rest);
}

/* Returns whether there is a packet, with its strides and its length. */
static inline int look(const struct block *cqe, uint8_t owner, uint32_t *bytes)
{
	uint8_t op_own = *((const volatile uint8_t *)&cqe->words[7] + 7);

	/* Whether the CQE is new and has the expected opcode. */
	if (__builtin_expect(op_own != owner, 0))
		return 0;
	from_device();
	*bytes = be32toh((uint32_t)(cqe->words[5] >> 32));
	/* Skipped strides have no packet. */
	return __builtin_expect((int32_t)*bytes >= 0, 1);
}

static inline uint8_t owner_of(uint32_t consumer)
{
	return (consumer >> LOG_ENTRIES) & 1;
}

static inline int is_good(const struct block *cqe)
{
	const uint64_t mask = (uint64_t)GOOD << 32 | 3ULL << 42;

	return (cqe->words[3] & mask) == ((uint64_t)GOOD << 32 | (uint64_t)IPV4 << 42);
}

static inline uint8_t *start_of(const struct strided *s, uint32_t receive)
{
	return s->memory + ((uint64_t)(receive % MEMORY) << LOG_RECEIVE);
}

/* Posts receives up to `end`, in the order in which they were consumed. */
static inline void post_until(struct strided *s, uint32_t end)
{
	struct floor *f = s->receive;
	uint32_t head = f->receive_head;

	if (head == end)
		return;
	for (; head != end; head++)
		put_data(f->receives[head % BLOCKS],
			 (struct data){ (uintptr_t)start_of(s, head), 1 << LOG_RECEIVE, LKEY });
	f->receive_head = head;
	to_device();
	f->receive_record = htobe32(head & 0xffff);
}

OPERATION int floor_receive_strides(struct strided *s, uint64_t *sum)
{
	struct floor *f = s->receive;
	uint32_t start = f->consumer, consumer = start, end = start + BURST, bytes;
	uint32_t log_stride = s->log_stride, left = s->left;
	uint8_t *at = s->at;
	uint64_t total = 0;

	while (consumer != end) {
		const struct block *first = &f->cqes[consumer % ENTRIES], *cqe = first;
		const struct block *stop = behind(f, consumer, end);
		uint8_t owner = owner_of(consumer);

		for (; cqe != stop && look(cqe, owner, &bytes); cqe++) {
			uint32_t count = bytes >> STRIDES_SHIFT;

			total += (uintptr_t)at + (uint16_t)bytes + is_good(cqe);
			at += (uint64_t)count << log_stride;
			left -= count;
			if (__builtin_expect(!left, 0)) {
				left = s->strides;
				at = start_of(s, ++s->receive_at);
			}
		}
		consumer += cqe - first;
		if (cqe != stop)
			break;
	}
	*sum += total;
	s->left = left;
	s->at = at;
	publish(f, consumer);
	post_until(s, s->receive_at + MEMORY);
	return consumer - start;
}

/*
 * Sends back all packets of a burst in one request. Its identifier is the number of receives
 * consumed by then.
 */
OPERATION int floor_forward_strides(struct strided *s, const uint8_t *to, const uint8_t *from)
{
	struct floor *f = s->receive, *q = s->send;
	uint32_t consumer = f->consumer, end = consumer + BURST, bytes, count;
	uint32_t log_stride = s->log_stride, left = s->left, head = q->head, unit = 2;
	uint64_t *words = q->ring[head % BLOCKS].words, *entry = words + 4;
	uint8_t *at = s->at;
	uint64_t target;
	uint32_t rest;

	if (full(q, (2 + BURST + 3) / 4))
		return 0;
	memcpy(&target, to, 6);
	target = (target & 0xffffffffffff) | (uint64_t)from[0] << 48 | (uint64_t)from[1] << 56;
	memcpy(&rest, from + 2, 4);
	while (consumer != end) {
		const struct block *first = &f->cqes[consumer % ENTRIES], *cqe = first;
		const struct block *stop = behind(f, consumer, end);
		uint8_t owner = owner_of(consumer);

		for (; cqe != stop && look(cqe, owner, &bytes); cqe++) {
			uint32_t used = bytes >> STRIDES_SHIFT;

			if (__builtin_expect((uint16_t)bytes < 12, 0))
				break;
			memcpy(at, &target, 8);
			memcpy(at + 8, &rest, 4);
			put_data(entry, (struct data){ (uintptr_t)at, (uint16_t)bytes, LKEY });
			/* The ring ends after its last block. */
			entry += 2;
			if (entry == q->ring[BLOCKS].words)
				entry = q->ring[0].words;
			unit++;
			at += (uint64_t)used << log_stride;
			left -= used;
			if (__builtin_expect(!left, 0)) {
				left = s->strides;
				at = start_of(s, ++s->receive_at);
			}
		}
		consumer += cqe - first;
		if (cqe != stop)
			break;
	}
	count = unit - 2;
	s->left = left;
	s->at = at;
	publish(f, consumer);
	if (count) {
		words[0] = header(q->packets_any | units(unit), head);
		words[1] = q->signaled;
		words[2] = htobe64((uint64_t)CHECKSUMS << 24);
		words[3] = 0;
		remember(q, head, s->receive_at);
		ring_doorbell(q, head + (unit + 3) / 4, (const struct block *)words);
	}
	/* The memory of completed sends may be received into again. */
	consumer = q->consumer;
	if (look(&q->cqes[consumer % ENTRIES], owner_of(consumer), &bytes)) {
		const struct block *cqe = &q->cqes[consumer % ENTRIES];
		const struct record *record = &q->records[be16toh(cqe->words[7] >> 32) % BLOCKS];

		q->retired = record->first + 1;
		publish(q, consumer + 1);
		post_until(s, record->wr_id + MEMORY);
	}
	return count;
}

static void *open_strided(const struct bench_machine *machine, int single_threaded)
{
	struct strided *s = calloc(1, sizeof *s);

	must(s != NULL, "memory");
	s->send = open_floor(machine, single_threaded);
	s->receive = open_floor(machine, single_threaded);
	s->memory = aligned_alloc(4096, MEMORY << LOG_RECEIVE);
	must(s->memory != NULL, "memory");
	memset(s->memory, 0, MEMORY << LOG_RECEIVE);
	s->log_stride = LOG_STRIDE;
	s->strides = s->left = STRIDES;
	s->at = s->memory;
	post_until(s, MEMORY);
	return s;
}

static void prepare_strides(void *state, uint64_t first, uint32_t calls)
{
	struct strided *s = state;
	struct floor *f = s->receive;

	(void)first;
	for (uint32_t i = 0; i < calls * BURST; i++) {
		uint32_t at = f->consumer + i;
		struct block *cqe = &f->cqes[at % ENTRIES];

		cqe->words[3] = (uint64_t)GOOD << 32 | (uint64_t)(IPV4 << 2) << 40;
		cqe->words[5] = (uint64_t)htobe32(1 << STRIDES_SHIFT | 64) << 32;
		cqe->words[7] = (uint64_t)((at >> LOG_ENTRIES) & 1) << 56;
	}
}

/* Prepares packets, and the CQE of the previous burst. */
static void prepare_forward(void *state, uint64_t first, uint32_t calls)
{
	struct strided *s = state;
	struct floor *q = s->send;
	struct block *cqe = &q->cqes[q->consumer % ENTRIES];

	prepare_strides(state, first, calls);
	if (q->head == 0)
		return;
	cqe->words[5] = 0;
	cqe->words[7] = (uint64_t)htobe16((q->head - 9) & 0xffff) << 32 |
			(uint64_t)((q->consumer >> LOG_ENTRIES) & 1) << 56;
}

static void nothing(void *state, uint32_t calls)
{
	(void)state, (void)calls;
}

static void forwarded(void *state, uint32_t calls)
{
	struct strided *s = state;

	(void)calls;
	s->send->retired = s->send->head;
}

#define CALLS(name, good, call) \
	BENCH_CALLS(name, good, call, struct strided *s = state)

CALLS(receive_strides, BURST, floor_receive_strides(s, &s->sum))
CALLS(forward_strides, BURST, floor_forward_strides(s, s->addresses, s->addresses + 6))

bench_cases floor_strides_cases = {
	{ "eth_recv32_multi", "floor", "floor_receive_strides", 1, BURST, open_strided,
	  prepare_strides, calls_receive_strides, nothing, 0 },
	{ "eth_forward32", "floor", "floor_forward_strides", 1, BURST, open_strided,
	  prepare_forward, calls_forward_strides, forwarded, 0 },
	{},
};
