/* The queues of the floor, and functions that write requests into them. */
#ifndef FLOOR_H
#define FLOOR_H

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "barriers.h"
#include "bench.h"

enum {
	BATCH = 16,
	BLOCKS = 256,
	LOG_ENTRIES = 10,
	ENTRIES = 1 << LOG_ENTRIES,
	MAX_INLINE = 28,
	RDMA_WRITE = 0x08,
	SEND = 0x0a,
	ENHANCED_MPW = 0x29,
	UMR = 0x25,
	COMPARE_SWAP = 0x11,
	FETCH_ADD = 0x12,
	INLINE = 0x80000000,
	CQE_INVALID = 0xf0,
};

struct block {
	uint64_t words[8];
} __attribute__((aligned(64)));

struct record {
	uint64_t wr_id;
	uint32_t first;
	uint32_t flags;
};

struct data {
	uint64_t address;
	uint32_t length;
	uint32_t lkey;
};

struct wr {
	uint64_t wr_id, remote;
	struct data data;
	uint32_t rkey;
	uint8_t opcode, is_inline, signaled;
};

struct floor {
	struct block ring[BLOCKS];
	struct block uar[8];
	struct block cqes[ENTRIES];
	struct record records[BLOCKS];
	uint32_t head, retired, half;
	uint64_t write_inline, write_data, send_data, fetch_add, compare_swap, datagram, packet, packets;
	/* Header words without the number of units. */
	uint64_t packets_any, umr;
	/* Header words by opcode, without the number of units. */
	uint64_t built[16];
	/* Address of a datagram, in the form of its segment. */
	uint64_t vector[6];
	uint64_t signaled;
	volatile uint32_t send_record, receive_record, cq_record;
	uint32_t consumer;
	/* Mini CQEs of the current run: those that were polled, and all. */
	uint32_t run_at, run_count;
	uint32_t receive_head, receive_retired;
	uint64_t receives[BLOCKS][2];
	uint64_t receive_ids[BLOCKS];
	/* Requests of a shared queue: each has the index of the next free one. */
	uint64_t shared[BLOCKS][4];
	uint16_t shared_next[BLOCKS], shared_head, shared_tail, shared_count;
	volatile uint32_t shared_record;
	struct wr list[ROUND];
	uint64_t remotes[ROUND];
	struct data pieces[ROUND];
	uint64_t bytes;
	/* Length of the data. `volatile` hides it from the compiler. */
	volatile uint32_t length;
	/* Number of entries of a key, likewise. */
	volatile uint32_t entries;
	uint32_t rkey;
	uint64_t sum;
};

static inline void copy_block(struct block *to, const struct block *from)
{
#ifdef __x86_64__
	for (int i = 0; i < 4; i++)
		_mm_store_si128((__m128i *)to + i, _mm_load_si128((const __m128i *)from + i));
#else
	for (int i = 0; i < 8; i++)
		((volatile uint64_t *)to->words)[i] = from->words[i];
#endif
}

/* The first word of a request: opcode and position, added to the word built in advance. */
static inline uint64_t header(uint64_t built, uint32_t head)
{
	return built | (uint64_t)htobe32((head & 0xffff) << 8);
}

static inline void remember(struct floor *f, uint32_t head, uint64_t wr_id)
{
	struct record *record = &f->records[head % BLOCKS];

	record->wr_id = wr_id;
	record->first = head;
	record->flags = 1;
}

static inline struct block *put(struct floor *f, uint32_t head, uint64_t built, uint64_t wr_id)
{
	struct block *block = &f->ring[head % BLOCKS];

	block->words[0] = header(built, head);
	block->words[1] = f->signaled;
	remember(f, head, wr_id);
	return block;
}

static inline struct block *put_array8(struct floor *f, uint32_t head, uint64_t remote,
				       uint32_t rkey, const void *bytes, uint64_t wr_id)
{
	struct block *block = put(f, head, f->write_inline, wr_id);
	uint32_t length = htobe32(INLINE | 8);

	block->words[2] = htobe64(remote);
	block->words[3] = htobe32(rkey);
	memcpy(&block->words[4], &length, sizeof length);
	memcpy((char *)&block->words[4] + 4, bytes, 8);
	return block;
}

/* Copies `length` bytes, at least one, without a call. */
static inline void copy_bytes(char *to, const char *from, uint32_t length)
{
	if (length >= 8) {
		memcpy(to + length - 8, from + length - 8, 8);
		for (uint32_t done = 0; done + 8 < length; done += 8)
			memcpy(to + done, from + done, 8);
	} else if (length >= 4) {
		memcpy(to, from, 4);
		memcpy(to + length - 4, from + length - 4, 4);
	} else {
		to[0] = from[0];
		to[length / 2] = from[length / 2];
		to[length - 1] = from[length - 1];
	}
}

static inline uint64_t units(uint32_t count)
{
	return (uint64_t)count << 56;
}

/*
 * Writes inline data whose length is not known at compile time. The request has one block, since
 * the queue takes no larger ones.
 */
static inline struct block *put_inline(struct floor *f, uint32_t head, uint64_t built,
				       uint64_t remote, uint32_t rkey, const void *bytes,
				       uint32_t length, uint64_t wr_id)
{
	struct block *block = put(f, head, built | units(2 + (length + 4 + 15) / 16), wr_id);
	uint32_t marked = htobe32(INLINE | length);

	block->words[2] = htobe64(remote);
	block->words[3] = htobe32(rkey);
	memcpy(&block->words[4], &marked, sizeof marked);
	copy_bytes((char *)&block->words[4] + 4, bytes, length);
	return block;
}

static inline void put_data(uint64_t *words, struct data data)
{
	words[0] = htobe64((uint64_t)data.length << 32 | data.lkey);
	words[1] = htobe64(data.address);
}

static inline struct block *put_sge(struct floor *f, uint32_t head, uint64_t remote, uint32_t rkey,
				    struct data data, uint64_t wr_id)
{
	struct block *block = put(f, head, f->write_data, wr_id);

	block->words[2] = htobe64(remote);
	block->words[3] = htobe32(rkey);
	put_data(&block->words[4], data);
	return block;
}

/* Rings the doorbell for one request: copies all of it to the BlueFlame register. */
static inline void ring_blueflame(struct floor *f, uint32_t head, const struct block *block)
{
	f->head = head;
	to_device();
	f->send_record = htobe32(head & 0xffff);
	flush();
	copy_block(&f->uar[f->half], block);
	flush();
	f->half ^= 4;
}

/* Rings the doorbell for several requests: writes eight bytes. */
static inline void ring_doorbell(struct floor *f, uint32_t head, const struct block *block)
{
	f->head = head;
	to_device();
	f->send_record = htobe32(head & 0xffff);
	flush();
	*(volatile uint64_t *)f->uar[f->half].words = block->words[0];
	flush();
	f->half ^= 4;
}

static inline int full(const struct floor *f, uint32_t count)
{
	return __builtin_expect(f->head + count - f->retired > BLOCKS, 0);
}

static inline int too_long(uint32_t length)
{
	return __builtin_expect(length - 1 >= MAX_INLINE, 0);
}

/* Returns whether there was a completion; reads its fields and retires its request. */
static inline int next(struct floor *f, uint32_t consumer, uint64_t *sum)
{
	const struct block *cqe = &f->cqes[consumer % ENTRIES];
	uint64_t last = *(const volatile uint64_t *)&cqe->words[7];
	uint8_t op_own = last >> 56;
	const struct record *record;

	if ((op_own & 1) != ((consumer >> LOG_ENTRIES) & 1))
		return 0;
	from_device();
	if (__builtin_expect(op_own > 1, 0))
		return 0;
	record = &f->records[be16toh(last >> 32) % BLOCKS];
	f->retired = record->first + 1;
	*sum += record->wr_id + be32toh((uint32_t)(cqe->words[5] >> 32)) +
		((uint8_t)cqe->words[7] == RDMA_WRITE);
	return 1;
}

static inline void publish(struct floor *f, uint32_t consumer)
{
	f->consumer = consumer;
	f->cq_record = htobe32(consumer & 0xffffff);
}

void *open_floor(const struct bench_machine *machine, int single_threaded);

#endif
