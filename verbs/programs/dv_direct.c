/*
 * Queues that a program drives itself: it has their memory from mlx5dv_init_obj, writes the requests,
 * rings the doorbell, reads the CQEs, and arms. The library only creates, modifies and destroys.
 */
#include "bed.h"

#include <dlfcn.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <stdatomic.h>

enum {
	SEGMENT = 16,
	BLOCK = 64,
	ROUNDS = 3,
	ARM = 0x20,
};

struct ring {
	struct mlx5dv_cq raw;
	uint32_t consumed;
};

/* A queue pair with its completion queue, and where it is in its rings. */
struct side {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mlx5dv_qp raw;
	struct ring ring;
	uint16_t sent, received;
};

static struct bed bed;

static void take(struct side *side)
{
	struct mlx5dv_obj obj = {
		.qp = { side->qp, &side->raw },
		.cq = { side->cq, &side->ring.raw },
	};
	void *plain;

	side->raw.comp_mask = MLX5DV_QP_MASK_UAR_MMAP_OFFSET | 1 << 20;
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	plain = side->ring.raw.cq_uar;
	printf("told of the queue pair %#" PRIx64 ", strides %d, page offset is one %d\n",
	       side->raw.comp_mask, side->raw.sq.stride,
	       side->raw.uar_mmap_offset && side->raw.uar_mmap_offset % 4096 == 0);
	printf("sizes hold what was asked for: %d %d %d\n", side->raw.sq.wqe_cnt >= DEPTH,
	       side->raw.rq.wqe_cnt >= DEPTH, side->ring.raw.cqe_cnt > (uint32_t)side->cq->cqe);
	printf("powers of two: %d %d %d\n", __builtin_popcount(side->raw.sq.wqe_cnt),
	       __builtin_popcount(side->raw.rq.wqe_cnt), __builtin_popcount(side->ring.raw.cqe_cnt));
	printf("BlueFlame: %d bytes, told of the completion queue %#" PRIx64 ", CQEs of %d\n",
	       side->raw.bf.size, side->ring.raw.comp_mask, side->ring.raw.cqe_size);
	printf("the page is one: %d\n", (uintptr_t)plain % 4096 == 0);
}

static struct side make_side(struct ibv_srq *srq)
{
	struct side side = { .channel = ibv_create_comp_channel(bed.context) };
	struct ibv_qp_init_attr attr = {
		.srq = srq,
		.cap = { DEPTH, srq ? 0 : DEPTH, SGES, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	must(side.channel, "ibv_create_comp_channel");
	side.cq = ibv_create_cq(bed.context, ENTRIES - 1, &side, side.channel, 0);
	must(side.cq, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = side.cq;
	side.qp = ibv_create_qp(bed.pd, &attr);
	must(side.qp, "ibv_create_qp");
	return side;
}

static void connect_sides(struct side *a, struct side *b)
{
	must(!to_init(a->qp) && !to_init(b->qp), "INIT");
	must(!to_rtr(&bed, a->qp, b->qp->qp_num) && !to_rtr(&bed, b->qp, a->qp->qp_num), "RTR");
	must(!to_rts(a->qp) && !to_rts(b->qp), "RTS");
}

static void drop_side(struct side *side)
{
	must(!ibv_destroy_qp(side->qp), "ibv_destroy_qp");
	must(!ibv_destroy_cq(side->cq), "ibv_destroy_cq");
	must(!ibv_destroy_comp_channel(side->channel), "ibv_destroy_comp_channel");
}

static void ring_doorbell(struct side *side, void *wqe)
{
	atomic_thread_fence(memory_order_seq_cst);
	side->raw.dbrec[MLX5_SND_DBR] = htobe32(side->sent);
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint64_t *)side->raw.bf.reg = *(uint64_t *)wqe;
	atomic_thread_fence(memory_order_seq_cst);
}

/* A write, or a send, of `length` bytes from `from`, with a completion. */
static void request(struct side *side, uint8_t opcode, uint32_t length)
{
	uint32_t place = side->sent & (side->raw.sq.wqe_cnt - 1);
	uint8_t *wqe = (uint8_t *)side->raw.sq.buf + place * BLOCK;
	bool writes = opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	uint8_t units = writes ? 3 : 2;

	memset(wqe, 0, BLOCK);
	mlx5dv_set_ctrl_seg((void *)wqe, side->sent, opcode, 0, side->qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, units, 0, htobe32(side->sent));
	if (writes) {
		struct mlx5_wqe_raddr_seg *to = (void *)(wqe + SEGMENT);

		to->raddr = htobe64((uintptr_t)bed.to);
		to->rkey = htobe32(bed.mr->rkey);
	}
	mlx5dv_set_data_seg((void *)(wqe + (units - 1) * SEGMENT), length, bed.mr->lkey,
			    (uintptr_t)bed.from);
	side->sent++;
	ring_doorbell(side, wqe);
}

static void receive(struct side *side, uint32_t length)
{
	uint32_t place = side->received & (side->raw.rq.wqe_cnt - 1);
	struct mlx5_wqe_data_seg *wqe =
		(void *)((uint8_t *)side->raw.rq.buf + place * side->raw.rq.stride);

	mlx5dv_set_data_seg(wqe, length, bed.mr->lkey, (uintptr_t)bed.to);
	if (side->raw.rq.stride > SEGMENT)
		mlx5dv_set_data_seg(wqe + 1, 0, 0x100, 0);
	side->received++;
	atomic_thread_fence(memory_order_seq_cst);
	side->raw.dbrec[MLX5_RCV_DBR] = htobe32(side->received);
}

static struct mlx5_cqe64 *next(struct ring *ring)
{
	uint32_t place = ring->consumed & (ring->raw.cqe_cnt - 1);
	uint8_t *cqe = (uint8_t *)ring->raw.buf + place * ring->raw.cqe_size;
	volatile struct mlx5_cqe64 *last = (void *)(cqe + ring->raw.cqe_size - 64);
	uint8_t lap = !!(ring->consumed & ring->raw.cqe_cnt);

	while (last->op_own >> 4 == MLX5_CQE_INVALID || (last->op_own & 1) != lap)
		;
	atomic_thread_fence(memory_order_seq_cst);
	return (void *)last;
}

static void pass(struct ring *ring)
{
	ring->consumed++;
	ring->raw.dbrec[0] = htobe32(ring->consumed & 0xffffff);
}

/* Waits for a CQE, and whether it is what is expected. */
static bool completed(struct side *side, uint8_t opcode, uint16_t counter)
{
	struct mlx5_cqe64 *cqe = next(&side->ring);
	bool same = cqe->op_own >> 4 == opcode && be16toh(cqe->wqe_counter) == counter &&
		    (be32toh(cqe->sop_drop_qpn) & 0xffffff) == side->qp->qp_num;

	if (!same)
		printf("opcode %d, counter %d\n", cqe->op_own >> 4, be16toh(cqe->wqe_counter));
	pass(&side->ring);
	return same;
}

static void writes(struct side *side)
{
	int laps = ROUNDS * side->raw.sq.wqe_cnt, good = 0;

	for (int i = 0; i < laps; i++) {
		bed.from[0] = i;
		request(side, MLX5_OPCODE_RDMA_WRITE, 64);
		good += completed(side, MLX5_CQE_REQ, side->sent - 1) && bed.to[0] == (uint8_t)i;
	}
	printf("writes by hand, three laps of the ring: all %d\n", good == laps);
}

static void sends(struct side *from, struct side *to)
{
	int laps = ROUNDS * to->raw.rq.wqe_cnt, good = 0;

	for (int i = 0; i < laps; i++) {
		bed.from[1] = i;
		receive(to, 64);
		request(from, MLX5_OPCODE_SEND_IMM, 64);
		good += completed(to, MLX5_CQE_RESP_SEND_IMM, to->received - 1);
		good += completed(from, MLX5_CQE_REQ, from->sent - 1) && bed.to[1] == (uint8_t)i;
	}
	printf("messages by hand, three laps of the ring: all %d\n", good == 2 * laps);
}

/* Arms by hand, as C's library does, for the events of its channel. */
static void arms(struct side *side)
{
	struct pollfd waits = { .fd = side->channel->fd, .events = POLLIN };
	struct ibv_cq *notified;
	void *tag;

	for (uint32_t number = 0; number < 3; number++) {
		uint32_t word = number << 28 | (side->ring.consumed & 0xffffff);
		uint64_t doorbell = (uint64_t)word << 32 | side->ring.raw.cqn;
		uint8_t *page = side->ring.raw.cq_uar;

		side->ring.raw.dbrec[1] = htobe32(word);
		atomic_thread_fence(memory_order_seq_cst);
		*(volatile uint64_t *)(page + ARM) = htobe64(doorbell);
		request(side, MLX5_OPCODE_RDMA_WRITE, 8);
		printf("armed by hand: %d", poll(&waits, 1, 5000));
		must(!ibv_get_cq_event(side->channel, &notified, &tag), "ibv_get_cq_event");
		printf(", of this queue %d\n", notified == side->cq);
		ibv_ack_cq_events(notified, 1);
		must(completed(side, MLX5_CQE_REQ, side->sent - 1), "a completion");
	}
}

/* A queue pair of which the program has the memory, but not the completion queue: that is polled as ever. */
static void polled(void)
{
	struct side side = make_side(NULL);
	struct mlx5dv_obj obj = { .qp = { side.qp, &side.raw } };
	struct ibv_wc wc;
	int good = 0;

	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	must(!to_init(side.qp) && !to_rtr(&bed, side.qp, side.qp->qp_num) && !to_rts(side.qp), "connecting");
	for (int i = 0; i < ROUNDS; i++) {
		request(&side, MLX5_OPCODE_RDMA_WRITE, 8);
		must(poll_one(side.cq, &wc) == 1, "ibv_poll_cq");
		good += wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE &&
			wc.qp_num == side.qp->qp_num;
	}
	receive(&side, 64);
	request(&side, MLX5_OPCODE_SEND_IMM, 64);
	for (int i = 0; i < 2; i++) {
		must(poll_one(side.cq, &wc) == 1, "ibv_poll_cq");
		good += wc.status == IBV_WC_SUCCESS &&
			(wc.opcode == IBV_WC_SEND || (wc.opcode == IBV_WC_RECV && wc.byte_len == 64));
	}
	printf("requests by hand, polled by the library: all %d\n", good == ROUNDS + 2);
	must(!to_error(side.qp), "ERR");
	request(&side, MLX5_OPCODE_RDMA_WRITE, 8);
	must(poll_one(side.cq, &wc) == 1, "ibv_poll_cq");
	printf("after an error: %s\n", ibv_wc_status_str(wc.status));
	drop_side(&side);
}

static uint64_t digest(const struct mlx5dv_cq *cq)
{
	const uint8_t *bytes = cq->buf;
	uint64_t sum = 14695981039346656037ull;

	for (uint32_t i = 0; i < cq->cqe_cnt * cq->cqe_size; i++)
		sum = (sum ^ bytes[i]) * 1099511628211ull;
	return sum;
}

/* CQEs that the program has not read yet stay as they are, whatever becomes of their queue pair. */
static void keeps(struct side *side, struct side *peer)
{
	uint32_t record;
	uint64_t before;
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	for (int i = 0; i < 5; i++)
		request(side, MLX5_OPCODE_RDMA_WRITE, 8);
	for (int i = 0; i < 4; i++)
		must(completed(side, MLX5_CQE_REQ, side->sent - 5 + i), "a completion");
	next(&side->ring);
	before = digest(&side->ring.raw);
	record = side->ring.raw.dbrec[0];
	must(!ibv_modify_qp(side->qp, &reset, IBV_QP_STATE), "RESET");
	printf("a reset leaves the CQEs alone: %d, and the consumer index: %d\n",
	       before == digest(&side->ring.raw), record == side->ring.raw.dbrec[0]);
	must(!ibv_modify_qp(peer->qp, &reset, IBV_QP_STATE), "RESET of the peer");
	connect_sides(side, peer);
	printf("out of a reset the record is zero: %d %d\n", side->raw.dbrec[0] == 0,
	       side->raw.dbrec[1] == 0);
	side->sent = 0;
	side->received = 0;
	peer->sent = 0;
	peer->received = 0;
	pass(&side->ring);
	writes(side);
	request(side, MLX5_OPCODE_RDMA_WRITE, 8);
	next(&side->ring);
	before = digest(&side->ring.raw);
	must(!ibv_destroy_qp(side->qp), "ibv_destroy_qp");
	printf("and so does a destroyed queue pair: %d\n", before == digest(&side->ring.raw));
	side->qp = NULL;
}

/* The next request of a shared queue that the program fills, by the list that the library made. */
static void shared(void)
{
	struct ibv_srq_init_attr attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &attr);
	struct side from = make_side(NULL), to;
	struct mlx5dv_srq raw = { .comp_mask = MLX5DV_SRQ_MASK_SRQN | 1 << 9 };
	struct mlx5dv_obj obj = { .srq = { srq, &raw } };
	uint32_t number, head, good = 0;
	uint16_t posted = 0;

	must(srq, "ibv_create_srq");
	to = make_side(srq);
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ), "mlx5dv_init_obj");
	must(!ibv_get_srq_num(srq, &number), "ibv_get_srq_num");
	printf("shared queue: told %#" PRIx64 ", number %d, head %u, stride %u\n", raw.comp_mask,
	       raw.srqn == number, raw.head, raw.stride);
	printf("as many are free as it holds: %d\n", raw.tail - raw.head >= DEPTH);
	take(&from);
	take(&to);
	connect_sides(&from, &to);
	head = raw.head;
	for (int i = 0; i < ROUNDS * DEPTH; i++) {
		uint8_t *wqe = (uint8_t *)raw.buf + head * raw.stride;
		uint16_t after = be16toh(((struct mlx5_wqe_srq_next_seg *)wqe)->next_wqe_index);

		mlx5dv_set_data_seg((void *)(wqe + SEGMENT), 64, bed.mr->lkey, (uintptr_t)bed.to);
		atomic_thread_fence(memory_order_seq_cst);
		*raw.dbrec = htobe32(++posted);
		bed.from[2] = i;
		request(&from, MLX5_OPCODE_SEND, 64);
		good += completed(&to, MLX5_CQE_RESP_SEND, head);
		good += completed(&from, MLX5_CQE_REQ, from.sent - 1) && bed.to[2] == (uint8_t)i;
		/* The request is free again, at the end of the list. */
		((struct mlx5_wqe_srq_next_seg *)((uint8_t *)raw.buf + raw.tail * raw.stride))
			->next_wqe_index = htobe16(head);
		raw.tail = head;
		head = after;
	}
	printf("messages to it by hand: all %d\n", good == 2 * ROUNDS * DEPTH);
	drop_side(&from);
	drop_side(&to);
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
}

/* A shared queue of which the program has the memory, but not the completion queue: that is polled as ever. */
static void shared_polled(void)
{
	struct ibv_srq_init_attr attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &attr);
	struct side from = make_side(NULL), to;
	struct mlx5dv_srq raw = {};
	struct mlx5dv_obj obj = { .srq = { srq, &raw } };
	uint32_t head, good = 0;
	struct ibv_wc wc;

	must(srq, "ibv_create_srq");
	to = make_side(srq);
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ), "mlx5dv_init_obj");
	take(&from);
	connect_sides(&from, &to);
	head = raw.head;
	for (int i = 0; i < DEPTH / 2; i++) {
		uint8_t *wqe = (uint8_t *)raw.buf + head * raw.stride;

		head = be16toh(((struct mlx5_wqe_srq_next_seg *)wqe)->next_wqe_index);
		mlx5dv_set_data_seg((void *)(wqe + SEGMENT), 64, bed.mr->lkey, (uintptr_t)bed.to);
		atomic_thread_fence(memory_order_seq_cst);
		*raw.dbrec = htobe32(i + 1);
		bed.from[2] = i;
		request(&from, MLX5_OPCODE_SEND, 64);
		must(poll_one(to.cq, &wc) == 1, "ibv_poll_cq");
		good += wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 64 &&
			wc.qp_num == to.qp->qp_num && bed.to[2] == (uint8_t)i;
		good += completed(&from, MLX5_CQE_REQ, from.sent - 1);
	}
	printf("messages to it, polled by the library: all %d\n", good == DEPTH);
	drop_side(&from);
	drop_side(&to);
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
}

/* A program that asks for the number of a queue and polls it by the library all the same. */
static void numbers(void)
{
	struct side a = make_side(NULL), b = make_side(NULL);
	struct mlx5dv_pd pd = {};
	struct mlx5dv_ah ah = {};
	struct ibv_ah_attr path = path_to_self(&bed);
	struct mlx5dv_obj obj = { .cq = { a.cq, &a.ring.raw }, .pd = { bed.pd, &pd } };
	struct ibv_wc wc;
	int good = 0;

	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ | MLX5DV_OBJ_PD), "mlx5dv_init_obj");
	connect_sides(&a, &b);
	for (int i = 0; i < 2 * ENTRIES; i++) {
		struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
		struct ibv_send_wr wr = {
			.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)bed.to, bed.mr->rkey },
		}, *bad;

		must(!ibv_post_send(a.qp, &wr, &bad), "ibv_post_send");
		good += poll_one(a.cq, &wc) == 1 && wc.wr_id == (uint64_t)i && !wc.status;
	}
	printf("polled by the library all the same: all %d\n", good == 2 * ENTRIES);
	obj.ah.in = ibv_create_ah(bed.pd, &path);
	obj.ah.out = &ah;
	must(obj.ah.in, "ibv_create_ah");
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH), "mlx5dv_init_obj");
	printf("address: LID %d, has a key %d\n", be16toh(ah.av->rlid) == bed.port.lid ||
	       bed.port.link_layer == IBV_LINK_LAYER_ETHERNET, ah.av->key.dc_key != 0);
	must(!ibv_destroy_ah(obj.ah.in), "ibv_destroy_ah");
	printf("nothing named: %s\n", name_of(mlx5dv_init_obj(&obj, 0)));
	printf("unknown: %s\n", name_of(mlx5dv_init_obj(&obj, 1 << 20)));
	drop_side(&a);
	drop_side(&b);
}

/* Programs of the first headers get the place of the page's address. */
static void old(struct side *side)
{
	int (*init)(struct mlx5dv_obj *, uint64_t) = (void *)dlvsym(RTLD_DEFAULT, "mlx5dv_init_obj",
								    "MLX5_1.0");
	struct mlx5dv_cq cq = {};
	struct mlx5dv_obj obj = { .cq = { side->cq, &cq } };

	must(init, "mlx5dv_init_obj of MLX5_1.0");
	must(!init(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj of MLX5_1.0");
	printf("of old, the place of the page's address: %d\n",
	       *(void **)cq.cq_uar == side->ring.raw.cq_uar);
}

int main(void)
{
	struct side a, b;

	bed = open_bed();
	a = make_side(NULL);
	b = make_side(NULL);
	take(&a);
	take(&b);
	old(&a);
	connect_sides(&a, &b);
	writes(&a);
	sends(&a, &b);
	sends(&b, &a);
	arms(&a);
	keeps(&a, &b);
	must(!ibv_destroy_cq(a.cq), "ibv_destroy_cq");
	must(!ibv_destroy_comp_channel(a.channel), "ibv_destroy_comp_channel");
	drop_side(&b);
	shared();
	shared_polled();
	numbers();
	polled();
	close_bed(&bed);
	return 0;
}
