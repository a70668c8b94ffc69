/*
 * The minimum of posting and polling: the bare stores, loads and fences of the operations in
 * peer.c, on memory that no other thread or device uses. Header words are built in advance; there
 * are a check for room and one record per request, but no lock, no run-time choice, and no error
 * other than a full queue.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "floor.h"

OPERATION int floor_post_inline(struct floor *f, uint64_t remote, uint32_t rkey, const void *bytes,
				uint32_t length, uint64_t wr_id)
{
	uint32_t head = f->head;

	if (full(f, 1))
		return ENOMEM;
	if (too_long(length))
		return EINVAL;
	ring_blueflame(f, head + 1, put_inline(f, head, f->built[RDMA_WRITE], remote, rkey, bytes,
					       length, wr_id));
	return 0;
}

OPERATION int floor_post_array8(struct floor *f, uint64_t remote, uint32_t rkey, const void *bytes,
				uint64_t wr_id)
{
	uint32_t head = f->head;

	if (full(f, 1))
		return ENOMEM;
	ring_blueflame(f, head + 1, put_array8(f, head, remote, rkey, bytes, wr_id));
	return 0;
}

OPERATION int floor_post_sge(struct floor *f, uint64_t remote, uint32_t rkey, struct data data,
			     uint64_t wr_id)
{
	uint32_t head = f->head;

	if (full(f, 1))
		return ENOMEM;
	ring_blueflame(f, head + 1, put_sge(f, head, remote, rkey, data, wr_id));
	return 0;
}

OPERATION int floor_post_send(struct floor *f, struct data data, uint64_t wr_id)
{
	uint32_t head = f->head;
	struct block *block;

	if (full(f, 1))
		return ENOMEM;
	block = put(f, head, f->send_data, wr_id);
	put_data(&block->words[2], data);
	ring_blueflame(f, head + 1, block);
	return 0;
}

static inline void post_atomic(struct floor *f, uint64_t built, uint64_t remote, uint32_t rkey,
			       struct data data, uint64_t swap_or_add, uint64_t compare,
			       uint64_t wr_id)
{
	uint32_t head = f->head;
	struct block *block = put(f, head, built, wr_id);

	block->words[2] = htobe64(remote);
	block->words[3] = htobe32(rkey);
	block->words[4] = htobe64(swap_or_add);
	block->words[5] = htobe64(compare);
	put_data(&block->words[6], data);
	ring_blueflame(f, head + 1, block);
}

OPERATION int floor_post_fetch_add(struct floor *f, uint64_t remote, uint32_t rkey,
				   struct data data, uint64_t add, uint64_t wr_id)
{
	if (full(f, 1))
		return ENOMEM;
	post_atomic(f, f->fetch_add, remote, rkey, data, add, 0, wr_id);
	return 0;
}

OPERATION int floor_post_cmp_swp(struct floor *f, uint64_t remote, uint32_t rkey, struct data data,
				 uint64_t compare, uint64_t swap, uint64_t wr_id)
{
	if (full(f, 1))
		return ENOMEM;
	post_atomic(f, f->compare_swap, remote, rkey, data, swap, compare, wr_id);
	return 0;
}

/* Two blocks; the second has the data. */
OPERATION int floor_post_ud(struct floor *f, const uint64_t *vector, uint32_t qpn, uint32_t qkey,
			    struct data data, uint64_t wr_id)
{
	uint32_t head = f->head, half = f->half;
	struct block *block, *second;

	if (full(f, 2))
		return ENOMEM;
	block = put(f, head, f->datagram, wr_id);
	second = &f->ring[(head + 1) % BLOCKS];
	block->words[2] = htobe32(qkey);
	for (int i = 2; i < 6; i++)
		block->words[2 + i] = vector[i];
	block->words[3] = vector[1] | htobe32(qpn | 0x80000000);
	put_data(&second->words[0], data);
	f->head = head + 2;
	to_device();
	f->send_record = htobe32((head + 2) & 0xffff);
	flush();
	copy_block(&f->uar[half], block);
	copy_block(&f->uar[half + 1], second);
	flush();
	f->half = half ^ 4;
	return 0;
}

OPERATION int floor_batch_inline(struct floor *f, const uint64_t *remotes, uint32_t rkey,
				 const void *bytes, uint32_t length, uint64_t wr_id)
{
	uint32_t head = f->head;
	struct block *block = NULL;

	if (full(f, BATCH))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++) {
		if (too_long(length))
			return EINVAL;
		block = put_inline(f, head, f->built[RDMA_WRITE], remotes[i], rkey, bytes, length,
				   wr_id + i);
	}
	ring_doorbell(f, head, block);
	return 0;
}

OPERATION int floor_batch_array8(struct floor *f, const uint64_t *remotes, uint32_t rkey,
				 const void *bytes, uint64_t wr_id)
{
	uint32_t head = f->head;
	struct block *block = NULL;

	if (full(f, BATCH))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++)
		block = put_array8(f, head, remotes[i], rkey, bytes, wr_id + i);
	ring_doorbell(f, head, block);
	return 0;
}

/*
 * A list of requests whose operations, flags, data and remote addresses are not known at compile
 * time.
 */
OPERATION int floor_list(struct floor *f, const struct wr *list, int count)
{
	uint32_t head = f->head;
	struct block *block = NULL;

	if (full(f, count))
		return ENOMEM;
	for (const struct wr *wr = list; wr != list + count; wr++, head++) {
		uint64_t built = f->built[wr->opcode % 16];

		if (!wr->is_inline) {
			block = put_sge(f, head, wr->remote, wr->rkey, wr->data, wr->wr_id);
		} else {
			if (too_long(wr->data.length))
				return EINVAL;
			block = put_inline(f, head, built, wr->remote, wr->rkey,
					   (const void *)(uintptr_t)wr->data.address,
					   wr->data.length, wr->wr_id);
		}
		block->words[1] = f->signaled & -(uint64_t)wr->signaled;
	}
	ring_doorbell(f, head, block);
	return 0;
}

OPERATION int floor_batch_sge(struct floor *f, const uint64_t *remotes, uint32_t rkey,
			      const struct data *pieces, uint64_t wr_id)
{
	uint32_t head = f->head;
	struct block *block = NULL;

	if (full(f, BATCH))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++)
		block = put_sge(f, head, remotes[i], rkey, pieces[i], wr_id + i);
	ring_doorbell(f, head, block);
	return 0;
}

OPERATION int floor_post_recv(struct floor *f, struct data data, uint64_t wr_id)
{
	uint32_t head = f->receive_head;

	if (__builtin_expect(head - f->receive_retired >= BLOCKS, 0))
		return ENOMEM;
	put_data(f->receives[head % BLOCKS], data);
	f->receive_ids[head % BLOCKS] = wr_id;
	f->receive_head = head + 1;
	to_device();
	f->receive_record = htobe32((head + 1) & 0xffff);
	return 0;
}

OPERATION int floor_post_recv_list(struct floor *f, const struct data *pieces, uint64_t wr_id)
{
	uint32_t head = f->receive_head;

	if (__builtin_expect(head + BATCH - f->receive_retired > BLOCKS, 0))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++) {
		put_data(f->receives[head % BLOCKS], pieces[i]);
		f->receive_ids[head % BLOCKS] = wr_id + i;
	}
	f->receive_head = head;
	to_device();
	f->receive_record = htobe32(head & 0xffff);
	return 0;
}

OPERATION int floor_post_srq_recv(struct floor *f, struct data data, uint64_t wr_id)
{
	uint16_t at = f->shared_head, next = f->shared_next[at];

	if (__builtin_expect(next == f->shared_tail, 0))
		return ENOMEM;
	put_data(&f->shared[at][2], data);
	f->receive_ids[at] = wr_id;
	f->shared_head = next;
	f->shared_count++;
	to_device();
	f->shared_record = htobe32(f->shared_count);
	return 0;
}

OPERATION int floor_poll_one(struct floor *f, uint64_t *sum)
{
	uint32_t consumer = f->consumer;

	if (!next(f, consumer, sum))
		return 0;
	publish(f, consumer + 1);
	return 1;
}

OPERATION int floor_poll_many(struct floor *f, int max, uint64_t *sum)
{
	uint32_t consumer = f->consumer;
	int count = 0;

	while (count < max && next(f, consumer + count, sum))
		count++;
	publish(f, consumer + count);
	return count;
}

OPERATION int floor_poll_empty(struct floor *f, uint64_t *sum)
{
	uint32_t consumer = f->consumer;

	if (!next(f, consumer, sum))
		return 0;
	publish(f, consumer + 1);
	return 1;
}

/* Work before and after the operations. */

static void nothing(void *state, uint64_t first, uint32_t calls)
{
	(void)state, (void)first, (void)calls;
}

static void prepare_completions(void *state, uint64_t first, uint32_t calls)
{
	struct floor *f = state;

	(void)calls;
	for (uint32_t i = 0; i < ROUND; i++) {
		uint32_t at = f->consumer + i, head = f->head++;
		struct block *cqe = &f->cqes[at % ENTRIES];

		remember(f, head, first + i);
		cqe->words[5] = 0;
		cqe->words[7] = RDMA_WRITE | (uint64_t)htobe16(head & 0xffff) << 32 |
				(uint64_t)((at >> LOG_ENTRIES) & 1) << 56;
	}
}

static void finish(void *state, uint32_t calls)
{
	struct floor *f = state;

	(void)calls;
	f->retired = f->head;
	f->receive_retired = f->receive_head;
	f->shared_tail = f->shared_head;
}

#define CALLS(name, good, call) \
	BENCH_CALLS(name, good, call, struct floor *f = state)

CALLS(post_inline, 0, floor_post_inline(f, f->remotes[k], f->rkey, &f->bytes, f->length, i))
CALLS(post_array8, 0, floor_post_array8(f, f->remotes[k], f->rkey, &f->bytes, i))
CALLS(post_sge, 0, floor_post_sge(f, f->remotes[k], f->rkey, f->pieces[k], i))
CALLS(post_send, 0, floor_post_send(f, f->pieces[k], i))
CALLS(batch_inline, 0,
      floor_batch_inline(f, &f->remotes[k * BATCH], f->rkey, &f->bytes, f->length, i))
CALLS(batch_array8, 0,
      floor_batch_array8(f, &f->remotes[k * BATCH], f->rkey, &f->bytes, i))
CALLS(list, 0, floor_list(f, &f->list[k * BATCH], BATCH))
CALLS(batch_sge, 0,
      floor_batch_sge(f, &f->remotes[k * BATCH], f->rkey, &f->pieces[k * BATCH], i))
CALLS(post_recv, 0, floor_post_recv(f, f->pieces[k], i))
CALLS(post_fetch_add, 0, floor_post_fetch_add(f, f->remotes[k], f->rkey, f->pieces[k], i, i))
CALLS(post_cmp_swp, 0,
      floor_post_cmp_swp(f, f->remotes[k], f->rkey, f->pieces[k], i, i + 1, i))
CALLS(post_ud, 0, floor_post_ud(f, f->vector, 0x123, 0x11111111, f->pieces[k], i))
CALLS(post_recv_list, 0, floor_post_recv_list(f, &f->pieces[k * BATCH], i))
CALLS(post_srq_recv, 0, floor_post_srq_recv(f, f->pieces[k], i))
CALLS(poll_one, 1, floor_poll_one(f, &f->sum))
CALLS(poll_many, BATCH, floor_poll_many(f, BATCH, &f->sum))
CALLS(poll_empty, 0, floor_poll_empty(f, &f->sum))

#define CASE(name, operation, operations, prepare)                                               \
	{ name, "floor", "floor_" #operation, ROUND / operations, operations, open_floor,        \
	  prepare, calls_##operation, finish, 0 }

bench_cases floor_cases = {
	CASE("post_inline8", post_inline, 1, nothing),
	CASE("post_array8", post_array8, 1, nothing),
	CASE("post_sge", post_sge, 1, nothing),
	CASE("post_send", post_send, 1, nothing),
	CASE("post_fetch_add", post_fetch_add, 1, nothing),
	CASE("post_cmp_swp", post_cmp_swp, 1, nothing),
	CASE("post_ud", post_ud, 1, nothing),
	CASE("batch16_inline8", batch_inline, BATCH, nothing),
	CASE("batch16_array8", batch_array8, BATCH, nothing),
	CASE("list16_inline8", list, BATCH, nothing),
	CASE("batch16_sge", batch_sge, BATCH, nothing),
	CASE("poll1", poll_one, 1, prepare_completions),
	CASE("poll16", poll_many, BATCH, prepare_completions),
	CASE("empty_poll", poll_empty, 1, nothing),
	CASE("post_recv1", post_recv, 1, nothing),
	CASE("post_recv16", post_recv_list, BATCH, nothing),
	CASE("post_srq_recv1", post_srq_recv, 1, nothing),
	{},
};

void *open_floor(const struct bench_machine *machine, int single_threaded)
{
	struct floor *f = aligned_alloc(64, sizeof *f);
	uint64_t qpn = 0x123;

	(void)machine, (void)single_threaded;
	must(f != NULL, "memory");
	memset(f, 0, sizeof *f);
	f->write_inline = htobe64((uint64_t)RDMA_WRITE << 32 | qpn << 8 | 3);
	f->write_data = htobe64((uint64_t)RDMA_WRITE << 32 | qpn << 8 | 3);
	f->send_data = htobe64((uint64_t)SEND << 32 | qpn << 8 | 2);
	f->compare_swap = htobe64((uint64_t)COMPARE_SWAP << 32 | qpn << 8 | 4);
	for (uint64_t opcode = 0; opcode < 16; opcode++)
		f->built[opcode] = htobe64(opcode << 32 | qpn << 8);
	f->length = sizeof f->bytes;
	f->fetch_add = htobe64((uint64_t)FETCH_ADD << 32 | qpn << 8 | 4);
	f->packets = htobe64((uint64_t)ENHANCED_MPW << 32 | qpn << 8 | 34);
	f->packets_any = htobe64((uint64_t)ENHANCED_MPW << 32 | qpn << 8);
	f->umr = htobe64((uint64_t)UMR << 32 | qpn << 8);
	f->entries = 4;
	f->packet = htobe64((uint64_t)SEND << 32 | qpn << 8 | 3);
	f->datagram = htobe64((uint64_t)SEND << 32 | qpn << 8 | 5);
	/* All receives of a shared queue complete in order, so its free list is a ring. */
	for (int i = 0; i < BLOCKS; i++)
		f->shared_next[i] = (i + 1) % BLOCKS;
	f->signaled = htobe64((uint64_t)0x08 << 32);
	f->rkey = 0x1234;
	for (int i = 0; i < ENTRIES; i++)
		f->cqes[i].words[7] = (uint64_t)(CQE_INVALID | 1) << 56;
	for (int i = 0; i < ROUND; i++) {
		f->remotes[i] = 0x10000 + i * 64;
		f->pieces[i] = (struct data){ 0x20000 + i * 64, 64, 0x5678 };
		f->list[i] = (struct wr){
			.wr_id = i,
			.remote = f->remotes[i],
			.rkey = f->rkey,
			.data = { (uintptr_t)&f->bytes, sizeof f->bytes, 0 },
			.opcode = RDMA_WRITE,
			.is_inline = 1,
			.signaled = 1,
		};
	}
	return f;
}
