/*
 * Queues that a program drives by itself, as services with their own data path do. mlx5dv_init_obj
 * returns the addresses of a queue pair and a completion queue; the program writes requests and
 * reads completions with the helpers of mlx5dv.h. It has the parts that such a service needs: a
 * check for room, a `wr_id` for each request, and a table of queues by number. It takes no lock.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "barriers.h"
#include "peer.h"

enum {
	/* Queues in the table, by the low bits of their numbers. */
	QUEUES = 256,
	/* Basic blocks of a send queue, and requests of a receive queue. */
	MOST = 4096,
};

struct queue {
	uint8_t *send, *receive, *reg;
	volatile uint32_t *record;
	uint32_t number;
	uint32_t blocks, receives, receive_stride;
	/* Offset of the next copy in the register, and the value that toggles it. */
	uint32_t half, step;
	/* Producer and consumer index, of the send queue and then of the receive queue. */
	uint16_t head, tail, receive_head, receive_tail;
	uint64_t wr_ids[MOST], receive_ids[MOST];
};

struct by_hand {
	struct state *s;
	/* The two ends of the connection: sender and receiver. */
	struct queue queue, peer;
	uint8_t *cqes;
	volatile uint32_t *cq_record;
	uint32_t entries, consumer;
	struct queue *queues[QUEUES];
};

static inline int full(const struct queue *q, uint32_t count)
{
	return __builtin_expect((uint16_t)(q->head - q->tail) + count > q->blocks, 0);
}

/* Writes the control segment of a request of one block, and its `wr_id`. */
static inline struct mlx5_wqe_ctrl_seg *begin(struct queue *q, uint16_t head, uint8_t opcode,
					      uint8_t size, uint64_t wr_id)
{
	uint32_t at = head & (q->blocks - 1);
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)(q->send + at * MLX5_SEND_WQE_BB);

	mlx5dv_set_ctrl_seg(ctrl, head, opcode, 0, q->number, MLX5_WQE_CTRL_CQ_UPDATE, size, 0, 0);
	q->wr_ids[at] = wr_id;
	return ctrl;
}

/* Writes a remote address after the control segment; returns the address of the next segment. */
static inline void *address(struct mlx5_wqe_ctrl_seg *ctrl, uint64_t remote, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg *raddr = (void *)(ctrl + 1);

	raddr->raddr = htobe64(remote);
	raddr->rkey = htobe32(rkey);
	raddr->reserved = 0;
	return raddr + 1;
}

static inline void *put_inline(struct queue *q, uint16_t head, uint64_t remote, uint32_t rkey,
			       const void *bytes, uint32_t length, uint64_t wr_id)
{
	uint8_t size = (32 + sizeof(struct mlx5_wqe_inl_data_seg) + length + 15) / 16;
	struct mlx5_wqe_ctrl_seg *ctrl = begin(q, head, MLX5_OPCODE_RDMA_WRITE, size, wr_id);
	struct mlx5_wqe_inl_data_seg *data = address(ctrl, remote, rkey);

	data->byte_count = htobe32(length | MLX5_INLINE_SEG);
	memcpy(data + 1, bytes, length);
	return ctrl;
}

static inline void *put_sge(struct queue *q, uint16_t head, uint64_t remote, uint32_t rkey,
			    const struct ibv_sge *sge, uint64_t wr_id)
{
	struct mlx5_wqe_ctrl_seg *ctrl = begin(q, head, MLX5_OPCODE_RDMA_WRITE, 3, wr_id);

	mlx5dv_set_data_seg(address(ctrl, remote, rkey), sge->length, sge->lkey, sge->addr);
	return ctrl;
}

static inline void *put_send(struct queue *q, uint16_t head, const struct ibv_sge *sge,
			     uint64_t wr_id)
{
	struct mlx5_wqe_ctrl_seg *ctrl = begin(q, head, MLX5_OPCODE_SEND, 2, wr_id);

	mlx5dv_set_data_seg((void *)(ctrl + 1), sge->length, sge->lkey, sge->addr);
	return ctrl;
}

/* Rings the doorbell for one request: copies its block to the BlueFlame register. */
static inline void ring_blueflame(struct queue *q, uint16_t head, const void *request)
{
	volatile uint64_t *to = (void *)(q->reg + q->half);
	const uint64_t *from = request;

	q->head = head;
	to_device();
	q->record[MLX5_SND_DBR] = htobe32(head);
	flush();
	for (int i = 0; i < 8; i++)
		to[i] = from[i];
	flush();
	q->half ^= q->step;
}

/* Rings the doorbell for several requests, with the first eight bytes of the last one. */
static inline void ring_doorbell(struct queue *q, uint16_t head, const void *request)
{
	q->head = head;
	to_device();
	q->record[MLX5_SND_DBR] = htobe32(head);
	flush();
	*(volatile uint64_t *)(q->reg + q->half) = *(const uint64_t *)request;
	flush();
	q->half ^= q->step;
}

OPERATION int by_hand_post_inline8(struct queue *q, uint64_t remote, uint32_t rkey,
				   const void *bytes, uint32_t length, uint64_t wr_id)
{
	uint16_t head = q->head;

	if (full(q, 1))
		return ENOMEM;
	ring_blueflame(q, head + 1, put_inline(q, head, remote, rkey, bytes, length, wr_id));
	return 0;
}

OPERATION int by_hand_post_sge(struct queue *q, uint64_t remote, uint32_t rkey, struct ibv_sge sge,
			       uint64_t wr_id)
{
	uint16_t head = q->head;

	if (full(q, 1))
		return ENOMEM;
	ring_blueflame(q, head + 1, put_sge(q, head, remote, rkey, &sge, wr_id));
	return 0;
}

OPERATION int by_hand_post_send(struct queue *q, struct ibv_sge sge, uint64_t wr_id)
{
	uint16_t head = q->head;

	if (full(q, 1))
		return ENOMEM;
	ring_blueflame(q, head + 1, put_send(q, head, &sge, wr_id));
	return 0;
}

OPERATION int by_hand_post_fetch_add(struct queue *q, uint64_t remote, uint32_t rkey,
				     struct ibv_sge sge, uint64_t add, uint64_t wr_id)
{
	uint16_t head = q->head;
	struct mlx5_wqe_ctrl_seg *ctrl;
	struct mlx5_wqe_atomic_seg *atomic;

	if (full(q, 1))
		return ENOMEM;
	ctrl = begin(q, head, MLX5_OPCODE_ATOMIC_FA, 4, wr_id);
	atomic = address(ctrl, remote, rkey);
	atomic->swap_add = htobe64(add);
	atomic->compare = 0;
	mlx5dv_set_data_seg((void *)(atomic + 1), sge.length, sge.lkey, sge.addr);
	ring_blueflame(q, head + 1, ctrl);
	return 0;
}

OPERATION int by_hand_batch_inline8(struct queue *q, const uint64_t *remotes, uint32_t rkey,
				    const void *bytes, uint32_t length, uint64_t wr_id)
{
	uint16_t head = q->head;
	void *last = NULL;

	if (full(q, BATCH))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++)
		last = put_inline(q, head, remotes[i], rkey, bytes, length, wr_id + i);
	ring_doorbell(q, head, last);
	return 0;
}

OPERATION int by_hand_batch_sge(struct queue *q, const uint64_t *remotes, uint32_t rkey,
				const struct ibv_sge *sges, uint64_t wr_id)
{
	uint16_t head = q->head;
	void *last = NULL;

	if (full(q, BATCH))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++)
		last = put_sge(q, head, remotes[i], rkey, &sges[i], wr_id + i);
	ring_doorbell(q, head, last);
	return 0;
}

/* A receive request has room for one address; a shorter list would end with an invalid key. */
static inline void put_receive(struct queue *q, uint16_t head, const struct ibv_sge *sge,
			       uint64_t wr_id)
{
	uint32_t at = head & (q->receives - 1);

	mlx5dv_set_data_seg((void *)(q->receive + at * q->receive_stride), sge->length, sge->lkey,
			    sge->addr);
	q->receive_ids[at] = wr_id;
}

static inline int receive_full(const struct queue *q, uint32_t count)
{
	uint16_t posted = q->receive_head - q->receive_tail;

	return __builtin_expect(posted + count > q->receives, 0);
}

OPERATION int by_hand_post_recv(struct queue *q, struct ibv_sge sge, uint64_t wr_id)
{
	if (receive_full(q, 1))
		return ENOMEM;
	put_receive(q, q->receive_head++, &sge, wr_id);
	to_device();
	q->record[MLX5_RCV_DBR] = htobe32(q->receive_head);
	return 0;
}

OPERATION int by_hand_post_recv_list(struct queue *q, const struct ibv_sge *sges, uint64_t wr_id)
{
	uint16_t head = q->receive_head;

	if (receive_full(q, BATCH))
		return ENOMEM;
	for (int i = 0; i < BATCH; i++, head++)
		put_receive(q, head, &sges[i], wr_id + i);
	q->receive_head = head;
	to_device();
	q->record[MLX5_RCV_DBR] = htobe32(head);
	return 0;
}

/* Returns whether there was a completion; reads its fields and retires its request. */
static inline int next(struct by_hand *h, uint32_t consumer, uint64_t *sum)
{
	struct mlx5_cqe64 *cqe = (void *)(h->cqes + (consumer & (h->entries - 1)) * sizeof *cqe);
	uint8_t op_own = *(volatile uint8_t *)&cqe->op_own;
	uint32_t number;
	uint16_t counter;
	struct queue *q;

	if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(consumer & h->entries))
		return 0;
	from_device();
	if (__builtin_expect(op_own >> 4 != MLX5_CQE_REQ, 0))
		must(0, "a completion");
	number = be32toh(cqe->sop_drop_qpn);
	q = h->queues[number & (QUEUES - 1)];
	counter = be16toh(cqe->wqe_counter);
	q->tail = counter + 1;
	*sum += q->wr_ids[counter & (q->blocks - 1)] + be32toh(cqe->byte_cnt) +
		(number >> 24 == MLX5_OPCODE_RDMA_WRITE);
	return 1;
}

static inline int poll(struct by_hand *h, int max, uint64_t *sum)
{
	int count = 0;

	while (count < max && next(h, h->consumer, sum)) {
		h->consumer++;
		count++;
	}
	if (count)
		*h->cq_record = htobe32(h->consumer & 0xffffff);
	return count;
}

OPERATION int by_hand_poll_one(struct by_hand *h, uint64_t *sum)
{
	return poll(h, 1, sum);
}

OPERATION int by_hand_poll_many(struct by_hand *h, int max, uint64_t *sum)
{
	return poll(h, max, sum);
}

OPERATION int by_hand_poll_empty(struct by_hand *h, uint64_t *sum)
{
	return poll(h, 1, sum);
}

/* Work before and after the operations. */

static void take(struct queue *q, struct ibv_qp *qp)
{
	struct mlx5dv_qp dv = {};
	struct mlx5dv_obj obj = { .qp = { qp, &dv } };

	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	must(dv.sq.wqe_cnt <= MOST && dv.rq.wqe_cnt <= MOST && dv.bf.size, "queues by hand");
	q->send = dv.sq.buf;
	q->receive = dv.rq.buf;
	q->reg = dv.bf.reg;
	q->record = dv.dbrec;
	q->number = qp->qp_num;
	q->blocks = dv.sq.wqe_cnt;
	q->receives = dv.rq.wqe_cnt;
	q->receive_stride = dv.rq.stride;
	q->step = dv.bf.size;
	/* Receives were posted before. */
	q->receive_head = be32toh(dv.dbrec[MLX5_RCV_DBR]);
}

static void *open_by_hand(const struct bench_machine *machine, int single_threaded)
{
	struct by_hand *h = calloc(1, sizeof *h);
	struct mlx5dv_cq dv = {};
	struct mlx5dv_obj obj = {};

	must(h != NULL, "memory");
	h->s = open_plain(machine, single_threaded);
	take(&h->queue, h->s->qp);
	take(&h->peer, h->s->peer);
	obj.cq.in = h->s->cq;
	obj.cq.out = &dv;
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	must(dv.cqe_size == sizeof(struct mlx5_cqe64), "entries of 64 bytes");
	h->cqes = dv.buf;
	h->cq_record = dv.dbrec;
	h->entries = dv.cqe_cnt;
	h->queues[h->queue.number & (QUEUES - 1)] = &h->queue;
	return h;
}

/*
 * Lets the device complete the posted requests, and polls; returns the number of receives among
 * them.
 */
static uint32_t complete_by_hand(struct by_hand *h, int count)
{
	uint32_t received;

	settle(h->s->machine);
	while (count > 0)
		count -= poll(h, BATCH, &h->s->sum);
	must(count == 0, "completions");
	settle(h->s->machine);
	received = drain(h->s->peer_cq);
	h->peer.receive_tail += received;
	return received;
}

static void post_some(struct by_hand *h, uint64_t first, int send)
{
	struct state *s = h->s;
	struct queue *q = &h->queue;

	must(!full(q, ROUND), "room");
	for (int k = 0; k < ROUND; k++) {
		uint16_t head = q->head;
		void *request = send ? put_send(q, head, &s->sges[k], first + k) :
				       put_sge(q, head, s->remotes[k], s->rkey, &s->sges[k],
					       first + k);

		ring_blueflame(q, head + 1, request);
	}
}

static void prepare_by_hand(void *state, uint64_t first, uint32_t calls)
{
	struct by_hand *h = state;

	(void)calls;
	post_some(h, first, 0);
	settle(h->s->machine);
}

/* Posts as many receives as were consumed. */
static void posted_by_hand(void *state, uint32_t calls)
{
	struct by_hand *h = state;

	for (uint32_t n = complete_by_hand(h, calls); n; n--)
		must(!by_hand_post_recv(&h->peer, h->s->sges[0], 0), "receives");
}

static void posted_batches_by_hand(void *state, uint32_t calls)
{
	posted_by_hand(state, calls * BATCH);
}

static void polled_by_hand(void *state, uint32_t calls)
{
	struct by_hand *h = state;

	(void)calls;
	must(poll(h, 1, &h->s->sum) == 0, "all polled");
}

/* Consumes a round of receives. */
static void received_by_hand(void *state, uint32_t calls)
{
	(void)calls;
	post_some(state, 0, 1);
	must(complete_by_hand(state, ROUND) == ROUND, "receives");
}

#define BY_HAND_CALLS(name, good, operation)                     \
	BENCH_CALLS(name, good, operation, struct by_hand *h = state; \
		    struct state *s = h->s)

/* The first eight bytes. */
static struct ibv_sge eight(struct ibv_sge sge)
{
	sge.length = 8;
	return sge;
}

BY_HAND_CALLS(post_inline8, 0,
	      by_hand_post_inline8(&h->queue, s->remotes[k], s->rkey, s->bytes, s->length, i))
BY_HAND_CALLS(post_sge, 0, by_hand_post_sge(&h->queue, s->remotes[k], s->rkey, s->sges[k], i))
BY_HAND_CALLS(post_send, 0, by_hand_post_send(&h->queue, s->sges[k], i))
BY_HAND_CALLS(post_fetch_add, 0,
	      by_hand_post_fetch_add(&h->queue, s->remotes[k], s->rkey, eight(s->sges[k]), i, i))
BY_HAND_CALLS(batch_inline8, 0,
	      by_hand_batch_inline8(&h->queue, &s->remotes[k * BATCH], s->rkey, s->bytes, s->length,
				    i))
BY_HAND_CALLS(batch_sge, 0,
	      by_hand_batch_sge(&h->queue, &s->remotes[k * BATCH], s->rkey, &s->sges[k * BATCH], i))
BY_HAND_CALLS(post_recv, 0, by_hand_post_recv(&h->peer, s->sges[k], i))
BY_HAND_CALLS(post_recv_list, 0, by_hand_post_recv_list(&h->peer, &s->sges[k * BATCH], i))
BY_HAND_CALLS(poll_one, 1, by_hand_poll_one(h, &s->sum))
BY_HAND_CALLS(poll_many, BATCH, by_hand_poll_many(h, BATCH, &s->sum))
BY_HAND_CALLS(poll_empty, 0, by_hand_poll_empty(h, &s->sum))

#define BY_HAND(name, operation, operations, prepare, finish)                                     \
	{ name,    "by-hand",         "by_hand_" #operation, ROUND / operations, operations,      \
	  open_by_hand, prepare, calls_##operation, finish, 0 }

bench_cases by_hand_cases = {
	BY_HAND("post_inline8", post_inline8, 1, nothing, posted_by_hand),
	BY_HAND("post_sge", post_sge, 1, nothing, posted_by_hand),
	BY_HAND("post_send", post_send, 1, nothing, posted_by_hand),
	BY_HAND("post_fetch_add", post_fetch_add, 1, nothing, posted_by_hand),
	BY_HAND("batch16_inline8", batch_inline8, BATCH, nothing, posted_batches_by_hand),
	BY_HAND("batch16_sge", batch_sge, BATCH, nothing, posted_batches_by_hand),
	BY_HAND("poll1", poll_one, 1, prepare_by_hand, polled_by_hand),
	BY_HAND("poll16", poll_many, BATCH, prepare_by_hand, polled_by_hand),
	BY_HAND("empty_poll", poll_empty, 1, nothing, polled_by_hand),
	BY_HAND("post_recv1", post_recv, 1, nothing, received_by_hand),
	BY_HAND("post_recv16", post_recv_list, BATCH, nothing, received_by_hand),
	{},
};
