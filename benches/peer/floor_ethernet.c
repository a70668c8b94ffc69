/* The minimum of sending and receiving packets in batches, as in floor.c. */
#include <endian.h>
#include <errno.h>

#include "floor.h"

enum {
	BURST = 32,
	MULTI_BLOCKS = 9,
	/* In the first word of an Ethernet segment: checksums of both layers. */
	CHECKSUMS = 0xc0,
	/* In a CQE: an IPv4 packet whose two checksums are right. */
	GOOD = 0x06,
	IPV4 = 0x02,
};

OPERATION int floor_send_packets(struct floor *f, const struct data *frames, uint64_t wr_id)
{
	uint32_t consumer = f->consumer, head = f->head;
	struct block *block = NULL;

	if (!next(f, consumer, &f->sum))
		return 0;
	publish(f, consumer + 1);
	if (full(f, BURST))
		return ENOMEM;
	for (int i = 0; i < BURST; i++, head++) {
		block = put(f, head, f->packet, wr_id + i);
		block->words[1] = 0;
		block->words[2] = htobe64((uint64_t)CHECKSUMS << 24);
		block->words[3] = 0;
		put_data(&block->words[4], frames[i]);
	}
	block->words[1] = f->signaled;
	ring_doorbell(f, head, block);
	return 1;
}

/* One request with all packets: nine blocks, the last of which is half full. */
OPERATION int floor_send_multi(struct floor *f, const struct data *frames, uint64_t wr_id)
{
	uint32_t consumer = f->consumer, head = f->head;
	struct block *block = &f->ring[head % BLOCKS];
	uint64_t *words = block->words;

	if (!next(f, consumer, &f->sum))
		return 0;
	publish(f, consumer + 1);
	if (full(f, MULTI_BLOCKS))
		return ENOMEM;
	words[0] = header(f->packets, head);
	words[1] = f->signaled;
	words[2] = htobe64((uint64_t)CHECKSUMS << 24);
	words[3] = 0;
	for (int i = 0; i < BURST; i++)
		put_data(f->ring[(head + (4 + 2 * i) / 8) % BLOCKS].words + (4 + 2 * i) % 8, frames[i]);
	remember(f, head, wr_id);
	ring_doorbell(f, head + MULTI_BLOCKS, block);
	return 1;
}

/* Returns whether there was a packet, and reads its fields. */
static inline int next_packet(struct floor *f, uint32_t consumer, uint64_t *sum)
{
	const struct block *cqe = &f->cqes[consumer % ENTRIES];
	uint64_t last = *(const volatile uint64_t *)&cqe->words[7];
	uint8_t op_own = last >> 56, checks, types;

	if ((op_own & 1) != ((consumer >> LOG_ENTRIES) & 1))
		return 0;
	from_device();
	if (__builtin_expect(op_own > 1, 0))
		return 0;
	checks = cqe->words[3] >> 32;
	types = cqe->words[3] >> 40;
	*sum += f->receive_ids[be16toh(last >> 32) % BLOCKS] +
		be32toh((uint32_t)(cqe->words[5] >> 32)) +
		((checks & GOOD) == GOOD && (types >> 2 & 3) == IPV4);
	f->receive_retired++;
	return 1;
}

OPERATION int floor_receive_packets(struct floor *f, const struct data *buffers, uint64_t wr_id,
				    uint64_t *sum)
{
	uint32_t consumer = f->consumer, head;
	int count = 0;

	while (count < BURST && next_packet(f, consumer + count, sum))
		count++;
	publish(f, consumer + count);
	head = f->receive_head;
	if (__builtin_expect(head + BURST - f->receive_retired > BLOCKS, 0))
		return ENOMEM;
	for (int i = 0; i < BURST; i++, head++) {
		put_data(f->receives[head % BLOCKS], buffers[i]);
		f->receive_ids[head % BLOCKS] = wr_id + i;
	}
	f->receive_head = head;
	to_device();
	f->receive_record = htobe32(head & 0xffff);
	return count;
}

/* Prepares the CQE of the previous batch. */
static void prepare_send(void *state, uint64_t first, uint32_t calls)
{
	struct floor *f = state;
	struct block *cqe = &f->cqes[f->consumer % ENTRIES];

	(void)calls;
	remember(f, f->head - 1, first);
	cqe->words[5] = 0;
	cqe->words[7] = (uint64_t)htobe16((f->head - 1) & 0xffff) << 32 |
			(uint64_t)((f->consumer >> LOG_ENTRIES) & 1) << 56;
}

/* The CQE names the first block of the request. */
static void prepare_multi(void *state, uint64_t first, uint32_t calls)
{
	struct floor *f = state;

	f->retired = f->head;
	prepare_send(state, first, calls);
}

static void prepare_packets(void *state, uint64_t first, uint32_t calls)
{
	struct floor *f = state;

	(void)first;
	for (uint32_t i = 0; i < calls * BURST; i++) {
		uint32_t at = f->consumer + i;
		struct block *cqe = &f->cqes[at % ENTRIES];

		cqe->words[3] = (uint64_t)GOOD << 32 | (uint64_t)(IPV4 << 2) << 40;
		cqe->words[5] = (uint64_t)htobe32(64) << 32;
		cqe->words[7] = (uint64_t)htobe16((f->receive_retired + i) & 0xffff) << 32 |
				(uint64_t)((at >> LOG_ENTRIES) & 1) << 56;
	}
}

static void nothing(void *state, uint32_t calls)
{
	(void)state, (void)calls;
}

#define CALLS(name, good, call) \
	BENCH_CALLS(name, good, call, struct floor *f = state)

CALLS(send_packets, 1, floor_send_packets(f, f->pieces, i))
CALLS(send_multi, 1, floor_send_multi(f, f->pieces, i))
CALLS(receive_packets, BURST, floor_receive_packets(f, &f->pieces[k * BURST], i, &f->sum))

bench_cases floor_ethernet_cases = {
	{ "eth_send32", "floor", "floor_send_packets", 1, BURST, open_floor, prepare_send,
	  calls_send_packets, nothing, 0 },
	{ "eth_send32_multi", "floor", "floor_send_multi", 1, BURST, open_floor, prepare_multi,
	  calls_send_multi, nothing, 0 },
	{ "eth_recv32", "floor", "floor_receive_packets", ROUND / BURST, BURST, open_floor,
	  prepare_packets, calls_receive_packets, nothing, 0 },
	{},
};
