/* The operations of the benchmark as programs do them with rdma-core's libraries. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>
#include <valgrind/callgrind.h>

#include "bench.h"

enum {
	BATCH = 16,
	DEPTH = 256,
	ENTRIES = 1024,
	RECEIVES = 128,
	MEMORY = 1 << 16,
	PIECE = 64,
};

/* A connected pair of queue pairs. */
struct state {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq, *peer_cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_qp *qp, *peer;
	struct ibv_qp_ex *qp_ex;
	uint32_t receives;
	uint32_t rkey;
	uint64_t remotes[ROUND];
	struct ibv_sge sges[ROUND];
	uint8_t bytes[PIECE];
	uint32_t length;
	uint64_t sum;
	struct ibv_sge inline_sge;
	struct ibv_send_wr list[ROUND];
	struct ibv_recv_wr receive[ROUND];
};

static size_t (*settle_device)(void);

static void must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
		abort();
	}
}

/* Lets the device work: a simulated one until it has nothing left to do, another one for a while. */
static void settle(void)
{
	struct timespec start, now;

	if (settle_device) {
		settle_device();
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - start.tv_sec) * 1000000000LL + (now.tv_nsec - start.tv_nsec) < 200000);
}

/* The operations. */

OPERATION int peer_post_send_inline8(struct ibv_qp *qp, uint64_t remote, uint32_t rkey, void *bytes,
				     uint32_t length, uint64_t wr_id)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	sge.addr = (uintptr_t)bytes;
	sge.length = length;
	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

OPERATION int peer_post_send_sge(struct ibv_qp *qp, uint64_t remote, uint32_t rkey,
				 struct ibv_sge sge, uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad;

	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

OPERATION int peer_post_send_send(struct ibv_qp *qp, struct ibv_sge sge, uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad;

	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	return ibv_post_send(qp, &wr, &bad);
}

OPERATION int peer_post_send_batch_inline8(struct ibv_qp *qp, const uint64_t *remotes, uint32_t rkey,
					   void *bytes, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge sge;
	struct ibv_send_wr wrs[BATCH], *bad;

	sge.addr = (uintptr_t)bytes;
	sge.length = length;
	for (int i = 0; i < BATCH; i++) {
		wrs[i].wr_id = wr_id + i;
		wrs[i].next = i + 1 < BATCH ? &wrs[i + 1] : NULL;
		wrs[i].sg_list = &sge;
		wrs[i].num_sge = 1;
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		wrs[i].wr.rdma.remote_addr = remotes[i];
		wrs[i].wr.rdma.rkey = rkey;
	}
	return ibv_post_send(qp, wrs, &bad);
}

OPERATION int peer_post_send_batch_sge(struct ibv_qp *qp, const uint64_t *remotes, uint32_t rkey,
				       struct ibv_sge *sges, uint64_t wr_id)
{
	struct ibv_send_wr wrs[BATCH], *bad;

	for (int i = 0; i < BATCH; i++) {
		wrs[i].wr_id = wr_id + i;
		wrs[i].next = i + 1 < BATCH ? &wrs[i + 1] : NULL;
		wrs[i].sg_list = &sges[i];
		wrs[i].num_sge = 1;
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].send_flags = IBV_SEND_SIGNALED;
		wrs[i].wr.rdma.remote_addr = remotes[i];
		wrs[i].wr.rdma.rkey = rkey;
	}
	return ibv_post_send(qp, wrs, &bad);
}

OPERATION int peer_post_send_list(struct ibv_qp *qp, struct ibv_send_wr *list)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, list, &bad);
}

OPERATION int peer_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *list)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, list, &bad);
}

OPERATION int peer_wr_inline8(struct ibv_qp_ex *qp, uint64_t remote, uint32_t rkey, void *bytes,
			      uint32_t length, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, rkey, remote);
	ibv_wr_set_inline_data(qp, bytes, length);
	return ibv_wr_complete(qp);
}

OPERATION int peer_wr_sge(struct ibv_qp_ex *qp, uint64_t remote, uint32_t rkey, struct ibv_sge sge,
			  uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, rkey, remote);
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(qp);
}

OPERATION int peer_wr_send(struct ibv_qp_ex *qp, struct ibv_sge sge, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(qp);
}

OPERATION int peer_wr_batch_inline8(struct ibv_qp_ex *qp, const uint64_t *remotes, uint32_t rkey,
				    void *bytes, uint32_t length, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < BATCH; i++) {
		qp->wr_id = wr_id + i;
		ibv_wr_rdma_write(qp, rkey, remotes[i]);
		ibv_wr_set_inline_data(qp, bytes, length);
	}
	return ibv_wr_complete(qp);
}

OPERATION int peer_wr_batch_sge(struct ibv_qp_ex *qp, const uint64_t *remotes, uint32_t rkey,
				const struct ibv_sge *sges, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < BATCH; i++) {
		qp->wr_id = wr_id + i;
		ibv_wr_rdma_write(qp, rkey, remotes[i]);
		ibv_wr_set_sge(qp, sges[i].lkey, sges[i].addr, sges[i].length);
	}
	return ibv_wr_complete(qp);
}

static inline void read_wc(const struct ibv_wc *wc, uint64_t *sum)
{
	if (wc->status == IBV_WC_SUCCESS)
		*sum += wc->wr_id + wc->byte_len + (wc->opcode == IBV_WC_RDMA_WRITE);
}

OPERATION int peer_poll_cq_one(struct ibv_cq *cq, uint64_t *sum)
{
	struct ibv_wc wc;
	int count = ibv_poll_cq(cq, 1, &wc);

	if (count == 1)
		read_wc(&wc, sum);
	return count;
}

OPERATION int peer_poll_cq_many(struct ibv_cq *cq, int max, uint64_t *sum)
{
	struct ibv_wc wcs[BATCH];
	int count = ibv_poll_cq(cq, max, wcs);

	for (int i = 0; i < count; i++)
		read_wc(&wcs[i], sum);
	return count;
}

OPERATION int peer_poll_cq_empty(struct ibv_cq *cq, uint64_t *sum)
{
	struct ibv_wc wc;
	int count = ibv_poll_cq(cq, 1, &wc);

	if (count == 1)
		read_wc(&wc, sum);
	return count;
}

static inline void read_ex(struct ibv_cq_ex *cq, uint64_t *sum)
{
	if (cq->status == IBV_WC_SUCCESS)
		*sum += cq->wr_id + ibv_wc_read_byte_len(cq) +
			(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
}

OPERATION int peer_cq_ex_one(struct ibv_cq_ex *cq, uint64_t *sum)
{
	struct ibv_poll_cq_attr attr = {};

	if (ibv_start_poll(cq, &attr))
		return 0;
	read_ex(cq, sum);
	ibv_end_poll(cq);
	return 1;
}

OPERATION int peer_cq_ex_many(struct ibv_cq_ex *cq, int max, uint64_t *sum)
{
	struct ibv_poll_cq_attr attr = {};
	int count = 0;

	if (ibv_start_poll(cq, &attr))
		return 0;
	do {
		read_ex(cq, sum);
		count++;
	} while (count < max && !ibv_next_poll(cq));
	ibv_end_poll(cq);
	return count;
}

OPERATION int peer_cq_ex_empty(struct ibv_cq_ex *cq, uint64_t *sum)
{
	struct ibv_poll_cq_attr attr = {};

	if (ibv_start_poll(cq, &attr))
		return 0;
	read_ex(cq, sum);
	ibv_end_poll(cq);
	return 1;
}

/* Before and after them, with no use of what is counted. */

static void post(struct state *s, uint64_t wr_id, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &s->inline_sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = { s->remotes[wr_id % ROUND], s->rkey },
	}, *bad;

	must(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
}

static int drain(struct ibv_cq *cq)
{
	struct ibv_wc wcs[BATCH];
	int total = 0, count;

	while ((count = ibv_poll_cq(cq, BATCH, wcs)) > 0) {
		for (int i = 0; i < count; i++)
			must(wcs[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wcs[i].status));
		total += count;
	}
	must(count == 0, "ibv_poll_cq");
	return total;
}

static void refill(struct state *s)
{
	struct ibv_recv_wr wr = { .sg_list = s->sges, .num_sge = 1 }, *bad;

	for (; s->receives < RECEIVES; s->receives++)
		must(!ibv_post_recv(s->peer, &wr, &bad), "ibv_post_recv");
}

static void complete(struct state *s, uint32_t count)
{
	uint32_t done = 0;

	settle();
	while (done < count)
		done += drain(s->cq);
	must(done == count, "completions");
	settle();
	s->receives -= drain(s->peer_cq);
	refill(s);
}

static void nothing(void *state, uint64_t first, uint32_t calls)
{
	(void)state, (void)first, (void)calls;
}

static void posted(void *state, uint32_t calls)
{
	complete(state, calls);
}

static void posted_batches(void *state, uint32_t calls)
{
	complete(state, calls * BATCH);
}

static void polled(void *state, uint32_t calls)
{
	struct state *s = state;

	(void)calls;
	must(drain(s->cq) == 0, "all polled");
}

static void prepare_list(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;

	for (uint32_t i = 0; i < calls * BATCH; i++) {
		struct ibv_send_wr *wr = &s->list[i];

		memset(wr, 0, sizeof *wr);
		wr->wr_id = first + i;
		wr->next = (i + 1) % BATCH ? wr + 1 : NULL;
		wr->sg_list = &s->inline_sge;
		wr->num_sge = 1;
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		wr->wr.rdma.remote_addr = s->remotes[i];
		wr->wr.rdma.rkey = s->rkey;
	}
}

static void prepare_receives(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;

	for (uint32_t i = 0; i < calls; i++) {
		struct ibv_recv_wr *wr = &s->receive[i];

		wr->wr_id = first + i;
		wr->next = NULL;
		wr->sg_list = &s->sges[i];
		wr->num_sge = 1;
	}
}

/* Uses up what was posted. */
static void received(void *state, uint32_t calls)
{
	struct state *s = state;

	s->receives += calls;
	for (uint32_t i = 0; i < calls; i++)
		post(s, i, IBV_WR_SEND);
	complete(s, calls);
}

static void prepare_completions(void *state, uint64_t first, uint32_t calls)
{
	struct state *s = state;

	(void)calls;
	for (uint32_t i = 0; i < ROUND; i++)
		post(s, first + i, IBV_WR_RDMA_WRITE);
	settle();
}

/* `calls` calls in a row; what an operation answers is `good`. */
#define CALLS(name, good, call)                                                     \
	static void calls_##name(void *state, uint64_t first, uint32_t calls)       \
	{                                                                           \
		struct state *s = state;                                            \
		int bad = 0;                                                        \
                                                                                    \
		for (uint32_t k = 0; k < calls; k++) {                              \
			uint64_t i = first + k;                                     \
                                                                                    \
			(void)i;                                                    \
			bad |= (call) ^ (good);                                     \
		}                                                                   \
		must(!bad, #name);                                                  \
	}

CALLS(post_send_inline8, 0,
      peer_post_send_inline8(s->qp, s->remotes[k], s->rkey, s->bytes, s->length, i))
CALLS(post_send_sge, 0, peer_post_send_sge(s->qp, s->remotes[k], s->rkey, s->sges[k], i))
CALLS(post_send_send, 0, peer_post_send_send(s->qp, s->sges[k], i))
CALLS(post_send_batch_inline8, 0,
      peer_post_send_batch_inline8(s->qp, &s->remotes[k * BATCH], s->rkey, s->bytes, s->length, i))
CALLS(post_send_batch_sge, 0,
      peer_post_send_batch_sge(s->qp, &s->remotes[k * BATCH], s->rkey, &s->sges[k * BATCH], i))
CALLS(post_send_list, 0, peer_post_send_list(s->qp, &s->list[k * BATCH]))
CALLS(post_recv, 0, peer_post_recv(s->peer, &s->receive[k]))
CALLS(wr_inline8, 0, peer_wr_inline8(s->qp_ex, s->remotes[k], s->rkey, s->bytes, s->length, i))
CALLS(wr_sge, 0, peer_wr_sge(s->qp_ex, s->remotes[k], s->rkey, s->sges[k], i))
CALLS(wr_send, 0, peer_wr_send(s->qp_ex, s->sges[k], i))
CALLS(wr_batch_inline8, 0,
      peer_wr_batch_inline8(s->qp_ex, &s->remotes[k * BATCH], s->rkey, s->bytes, s->length, i))
CALLS(wr_batch_sge, 0,
      peer_wr_batch_sge(s->qp_ex, &s->remotes[k * BATCH], s->rkey, &s->sges[k * BATCH], i))
CALLS(poll_cq_one, 1, peer_poll_cq_one(s->cq, &s->sum))
CALLS(poll_cq_many, BATCH, peer_poll_cq_many(s->cq, BATCH, &s->sum))
CALLS(poll_cq_empty, 0, peer_poll_cq_empty(s->cq, &s->sum))
CALLS(cq_ex_one, 1, peer_cq_ex_one(s->cq_ex, &s->sum))
CALLS(cq_ex_many, BATCH, peer_cq_ex_many(s->cq_ex, BATCH, &s->sum))
CALLS(cq_ex_empty, 0, peer_cq_ex_empty(s->cq_ex, &s->sum))

#define CASE(name, who, operation, operations, extended, prepare, finish)                    \
	{ name, "rdma-core-" who, "peer_" #operation, operations, extended, prepare,         \
	  calls_##operation, finish }

EXPORT const struct bench_case peer_cases[] = {
	CASE("post_inline8", "post_send", post_send_inline8, 1, 0, nothing, posted),
	CASE("post_inline8", "wr", wr_inline8, 1, 1, nothing, posted),
	CASE("post_sge", "post_send", post_send_sge, 1, 0, nothing, posted),
	CASE("post_sge", "wr", wr_sge, 1, 1, nothing, posted),
	CASE("post_send", "post_send", post_send_send, 1, 0, nothing, posted),
	CASE("post_send", "wr", wr_send, 1, 1, nothing, posted),
	CASE("batch16_inline8", "post_send", post_send_batch_inline8, BATCH, 0, nothing,
	     posted_batches),
	CASE("batch16_inline8", "wr", wr_batch_inline8, BATCH, 1, nothing, posted_batches),
	CASE("batch16_sge", "post_send", post_send_batch_sge, BATCH, 0, nothing, posted_batches),
	CASE("batch16_sge", "wr", wr_batch_sge, BATCH, 1, nothing, posted_batches),
	CASE("list16_inline8", "post_send", post_send_list, BATCH, 0, prepare_list, posted_batches),
	CASE("poll1", "poll_cq", poll_cq_one, 1, 0, prepare_completions, polled),
	CASE("poll1", "cq_ex", cq_ex_one, 1, 1, prepare_completions, polled),
	CASE("poll16", "poll_cq", poll_cq_many, BATCH, 0, prepare_completions, polled),
	CASE("poll16", "cq_ex", cq_ex_many, BATCH, 1, prepare_completions, polled),
	CASE("empty_poll", "poll_cq", poll_cq_empty, 1, 0, nothing, polled),
	CASE("empty_poll", "cq_ex", cq_ex_empty, 1, 1, nothing, polled),
	CASE("post_recv1", "post_recv", post_recv, 1, 0, prepare_receives, received),
};
EXPORT const uint32_t peer_case_count = sizeof peer_cases / sizeof peer_cases[0];

/* Opening. */

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	must(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return context;
}

static struct ibv_cq *create_cq(struct state *s, int extended, int single_threaded)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = ENTRIES,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = single_threaded ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
	};
	struct ibv_cq *cq;

	if (!extended) {
		cq = ibv_create_cq(s->context, ENTRIES, NULL, NULL, 0);
	} else {
		struct ibv_cq_ex *cq_ex = ibv_create_cq_ex(s->context, &attr);

		must(cq_ex != NULL, "ibv_create_cq_ex");
		cq = ibv_cq_ex_to_cq(cq_ex);
	}
	must(cq != NULL, "ibv_create_cq");
	return cq;
}

static struct ibv_qp *create_qp(struct state *s, struct ibv_cq *cq, int extended)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 28,
		},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = s->pd,
	};
	struct ibv_qp *qp;

	if (extended) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
	}
	qp = ibv_create_qp_ex(s->context, &attr);
	must(qp != NULL, "ibv_create_qp_ex");
	return qp;
}

static void connect_qp(struct state *s, struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	must(!ibv_query_port(s->context, 1, &port), "ibv_query_port");
	must(!ibv_query_gid(s->context, 1, 0, &gid), "ibv_query_gid");
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "ibv_modify_qp to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.dlid = port.lid,
			.port_num = 1,
			.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET,
			.grh = { .dgid = gid, .hop_limit = 1 },
		},
	};
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "ibv_modify_qp to RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	     "ibv_modify_qp to RTS");
}

/* The provider reads MLX5_SINGLE_THREADED when a device is opened, and keeps what it read for the
 * queues that are made next. */
EXPORT void *peer_open(const char *device, int single_threaded, int extended,
		       size_t (*settle_with)(void))
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct state *s = calloc(1, sizeof *s);
	void *memory = aligned_alloc(4096, MEMORY);

	must(s && memory, "memory");
	must(!setenv("MLX5_SINGLE_THREADED", single_threaded ? "1" : "0", 1), "setenv");
	settle_device = settle_with;
	s->context = open_device(device);
	s->pd = ibv_alloc_pd(s->context);
	must(s->pd != NULL, "ibv_alloc_pd");
	s->mr = ibv_reg_mr(s->pd, memory, MEMORY, access);
	must(s->mr != NULL, "ibv_reg_mr");
	s->cq = create_cq(s, extended, single_threaded);
	s->peer_cq = create_cq(s, 0, single_threaded);
	s->cq_ex = extended ? (struct ibv_cq_ex *)s->cq : NULL;
	s->qp = create_qp(s, s->cq, extended);
	s->peer = create_qp(s, s->peer_cq, 0);
	s->qp_ex = extended ? ibv_qp_to_qp_ex(s->qp) : NULL;
	connect_qp(s, s->qp, s->peer->qp_num);
	connect_qp(s, s->peer, s->qp->qp_num);
	s->rkey = s->mr->rkey;
	s->length = 8;
	for (int i = 0; i < ROUND; i++) {
		s->remotes[i] = (uintptr_t)memory + i * PIECE;
		s->sges[i] = (struct ibv_sge){ (uintptr_t)memory + i * PIECE, PIECE, s->mr->lkey };
	}
	s->inline_sge = (struct ibv_sge){ (uintptr_t)s->bytes, s->length, 0 };
	refill(s);
	return s;
}

/* Counting. */

EXPORT void callgrind_begin(void)
{
	CALLGRIND_ZERO_STATS;
}

EXPORT void callgrind_end(const char *name)
{
	CALLGRIND_DUMP_STATS_AT(name);
}
