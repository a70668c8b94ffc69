/* The minimum of configuring a key and of cancelling requests, as in floor.c. */
#include <endian.h>
#include <errno.h>

#include "floor.h"

enum {
	/* Units of 16 bytes before the entries of a key: control, UMR control, context. */
	HEAD_UNITS = 1 + 3 + 4,
	/* Maximum number of blocks in a request that is copied to the register. */
	MOST_BLOCKS = 4,
	PIECES = 4,
	ACCESS = 0x1c,
	/*
	 * Fields of the key that change: its length, its access rights, its number, and its free
	 * bit.
	 */
	MASK_LOW = 1 << 0 | 1 << 13,
	/* Pending requests for the two cases: single cancels, and the cancel of a set. */
	FEW = 1000,
	ONES = 16,
	MANY = 4096,
	SET = 64,
	DEEP = 2 * MANY,
	NOP = 0x00,
	CANCELLED = 2,
	CONTINUES = 4,
	LOG_TABLE = 12,
};

#define KEY_MASK (MASK_LOW | 1ULL << 29 | 0xfULL << 18)

static inline uint64_t *words_at(struct floor *f, uint32_t head)
{
	return f->ring[head % BLOCKS].words;
}

/* A list of pieces whose number is not known at compile time: access rights, length, entries. */
OPERATION int floor_mkey_configure(struct floor *f, uint32_t key, const struct data *pieces,
				   uint32_t count, uint64_t wr_id)
{
	uint32_t head = f->head, half = f->half, padded = (count + 3) & ~3U;
	uint32_t blocks = (HEAD_UNITS + padded) / 4, at = head + 2;
	uint64_t length = 0, *words;

	if (__builtin_expect(blocks > MOST_BLOCKS, 0))
		return EINVAL;
	if (full(f, blocks))
		return ENOMEM;
	for (; count >= 4; count -= 4, pieces += 4, at++) {
		words = words_at(f, at);
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++) {
			length += pieces[i].length;
			put_data(words + 2 * i, pieces[i]);
		}
	}
	if (__builtin_expect(count, 0)) {
		words = words_at(f, at);
		for (uint32_t i = 0; i < 4; i++) {
			struct data piece = { 0, 0, 0 };

			if (i < count)
				piece = pieces[i];
			length += piece.length;
			put_data(words + 2 * i, piece);
		}
	}
	words = words_at(f, head);
	words[0] = header(f->umr | units(HEAD_UNITS + padded), head);
	/* The key is the request's immediate. */
	words[1] = f->signaled | (uint64_t)htobe32(key) << 32;
	words[2] = htobe64((uint64_t)0x80 << 56 | (uint64_t)padded << 16);
	words[3] = htobe64(KEY_MASK);
	memset(words + 4, 0, 32);
	words = words_at(f, head + 1);
	words[0] = htobe64((uint64_t)ACCESS << 48 | 0xffffff00 | (key & 0xff));
	words[1] = words[2] = 0;
	words[3] = htobe64(length);
	memset(words + 4, 0, 32);
	remember(f, head, wr_id);
	f->head = head + blocks;
	to_device();
	f->send_record = htobe32((head + blocks) & 0xffff);
	flush();
	for (uint32_t i = 0; i < blocks; i++)
		copy_block(&f->uar[half + i], &f->ring[(head + i) % BLOCKS]);
	flush();
	f->half = half ^ 4;
	return 0;
}

/* A drained queue with many requests. */
struct pending {
	struct block ring[DEEP];
	struct record records[DEEP];
	/* Range of the requests that were not executed. */
	uint32_t first, end;
	uint64_t wr_ids[SET];
	uint64_t sum;
};

static inline void cancel_at(struct pending *p, struct record *record)
{
	struct block *block = &p->ring[record->first % DEEP];

	/* The size of the request does not change. */
	((uint8_t *)&block->words[0])[3] = NOP;
	record->flags |= CANCELLED;
}

/* The consecutive records from `at` on, up to `end` or to the end of the ring. */
static inline struct record *behind(struct pending *p, uint32_t at, uint32_t end)
{
	uint32_t rest = DEEP - at % DEEP;

	return &p->records[at % DEEP] + (end - at < rest ? end - at : rest);
}

/* Returns whether the request was pending. */
static inline int cancel_record(struct pending *p, struct record *record)
{
	if (record->flags & (CANCELLED | CONTINUES))
		return 0;
	cancel_at(p, record);
	return 1;
}

OPERATION int floor_cancel_one(struct pending *p, uint64_t wr_id)
{
	int count = 0;

	for (uint32_t at = p->first, end = p->end; at != end;) {
		struct record *record = &p->records[at % DEEP], *stop = behind(p, at, end);

		at += stop - record;
		while (record != stop) {
			/* Compares several at a time; mostly none of them matches. */
			while (stop - record >= 4 && record[0].wr_id != wr_id && record[1].wr_id != wr_id &&
			       record[2].wr_id != wr_id && record[3].wr_id != wr_id)
				record += 4;
			for (int i = 0; i < 4 && record != stop; i++, record++)
				if (record->wr_id == wr_id)
					count += cancel_record(p, record);
		}
	}
	to_device();
	return count;
}

static inline uint64_t hash(uint64_t wr_id)
{
	return wr_id * 0x9e3779b97f4a7c15 >> (64 - LOG_TABLE);
}

/* Cancels a set whose size is not known at compile time, in one pass. */
OPERATION int floor_cancel_set(struct pending *p, const uint64_t *wr_ids, uint32_t size)
{
	uint8_t table[1 << LOG_TABLE];
	int count = 0;

	if (size > SET)
		return -1;
	memset(table, 0, sizeof table);
	for (uint32_t i = 0; i < size; i++) {
		uint32_t at = hash(wr_ids[i]);

		while (table[at])
			at = (at + 1) % (1 << LOG_TABLE);
		table[at] = i + 1;
	}
	for (uint32_t from = p->first, end = p->end; from != end;) {
		struct record *record = &p->records[from % DEEP], *stop = behind(p, from, end);

		from += stop - record;
		for (; record != stop; record++) {
			uint32_t at;

			if (__builtin_expect(!table[hash(record->wr_id)], 1))
				continue;
			at = hash(record->wr_id);
			while (table[at] && wr_ids[table[at] - 1] != record->wr_id)
				at = (at + 1) % (1 << LOG_TABLE);
			if (table[at])
				count += cancel_record(p, record);
		}
	}
	to_device();
	return count;
}

static void *open_pending(const struct bench_machine *machine, int single_threaded)
{
	struct pending *p = aligned_alloc(64, sizeof *p);

	(void)machine, (void)single_threaded;
	must(p != NULL, "memory");
	memset(p, 0, sizeof *p);
	return p;
}

static void fill(struct pending *p, uint32_t count)
{
	p->first = p->end;
	p->end += count;
	for (uint32_t i = 0; i < count; i++) {
		struct record *record = &p->records[(p->first + i) % DEEP];

		record->wr_id = i;
		record->first = p->first + i;
		record->flags = 1;
	}
}

static void prepare_few(void *state, uint64_t first, uint32_t calls)
{
	(void)first, (void)calls;
	fill(state, FEW);
}

static void prepare_many(void *state, uint64_t first, uint32_t calls)
{
	struct pending *p = state;

	(void)first, (void)calls;
	fill(p, MANY);
	for (int i = 0; i < SET; i++)
		p->wr_ids[i] = i * (MANY / SET) + MANY / SET / 2;
}

static void nothing_before(void *state, uint64_t first, uint32_t calls)
{
	(void)state, (void)first, (void)calls;
}

static void nothing(void *state, uint32_t calls)
{
	(void)state, (void)calls;
}

static void configured(void *state, uint32_t calls)
{
	struct floor *f = state;

	(void)calls;
	f->retired = f->head;
}

BENCH_CALLS(mkey_configure, 0,
	    floor_mkey_configure(f, f->rkey, &f->pieces[k * PIECES % ROUND], f->entries, i),
	    struct floor *f = state)
BENCH_CALLS(cancel_one, 1, floor_cancel_one(p, k * (FEW / ONES) + FEW / ONES / 2),
	    struct pending *p = state)
BENCH_CALLS(cancel_set, SET, floor_cancel_set(p, p->wr_ids, SET), struct pending *p = state)

bench_cases floor_keys_cases = {
	{ "mkey_configure", "floor", "floor_mkey_configure", ROUND, 1, open_floor, nothing_before,
	  calls_mkey_configure, configured, 0 },
	{ "cancel_1_of_1000", "floor", "floor_cancel_one", ONES, 1, open_pending, prepare_few,
	  calls_cancel_one, nothing, 0 },
	{ "cancel_64_of_4096", "floor", "floor_cancel_set", 1, 1, open_pending, prepare_many,
	  calls_cancel_set, nothing, 0 },
	{},
};
