/* Posts by ibv_post_send and by ibv_wr_*. */
#include <string.h>

#include "peer.h"

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

OPERATION int peer_post_send_ud(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t remote_qpn,
				struct ibv_sge sge, uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad;

	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = remote_qpn;
	wr.wr.ud.remote_qkey = QKEY;
	return ibv_post_send(qp, &wr, &bad);
}

OPERATION int peer_wr_ud(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
			 struct ibv_sge sge, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, ah, remote_qpn, QKEY);
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(qp);
}

OPERATION int peer_post_send_fetch_add(struct ibv_qp *qp, uint64_t remote, uint32_t rkey,
				       struct ibv_sge sge, uint64_t add, uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad;

	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.atomic.remote_addr = remote;
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.compare_add = add;
	return ibv_post_send(qp, &wr, &bad);
}

OPERATION int peer_wr_fetch_add(struct ibv_qp_ex *qp, uint64_t remote, uint32_t rkey,
				struct ibv_sge sge, uint64_t add, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(qp, rkey, remote, add);
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(qp);
}

OPERATION int peer_post_send_cmp_swp(struct ibv_qp *qp, uint64_t remote, uint32_t rkey,
				     struct ibv_sge sge, uint64_t compare, uint64_t swap,
				     uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad;

	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.atomic.remote_addr = remote;
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.compare_add = compare;
	wr.wr.atomic.swap = swap;
	return ibv_post_send(qp, &wr, &bad);
}

OPERATION int peer_wr_cmp_swp(struct ibv_qp_ex *qp, uint64_t remote, uint32_t rkey,
			      struct ibv_sge sge, uint64_t compare, uint64_t swap, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_cmp_swp(qp, rkey, remote, compare, swap);
	ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
	return ibv_wr_complete(qp);
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

/* The first eight bytes. */
static struct ibv_sge eight(struct ibv_sge sge)
{
	sge.length = 8;
	return sge;
}

static void *open_ud(const struct bench_machine *machine, int single_threaded)
{
	struct options options = { IBV_QPT_UD, 0, single_threaded, 0, DEPTH, ENTRIES, 0 };

	return open_state(machine, options);
}

static void *open_ud_extended(const struct bench_machine *machine, int single_threaded)
{
	struct options options = { IBV_QPT_UD, 1, single_threaded, 0, DEPTH, ENTRIES, 0 };

	return open_state(machine, options);
}

CALLS(post_send_inline8, 0,
      peer_post_send_inline8(s->qp, s->remotes[k], s->rkey, s->bytes, s->length, i))
CALLS(post_send_sge, 0, peer_post_send_sge(s->qp, s->remotes[k], s->rkey, s->sges[k], i))
CALLS(post_send_send, 0, peer_post_send_send(s->qp, s->sges[k], i))
CALLS(post_send_ud, 0, peer_post_send_ud(s->qp, s->ah, s->peer->qp_num, eight(s->sges[k]), i))
CALLS(post_send_fetch_add, 0,
      peer_post_send_fetch_add(s->qp, s->remotes[k], s->rkey, eight(s->sges[k]), i, i))
CALLS(post_send_cmp_swp, 0,
      peer_post_send_cmp_swp(s->qp, s->remotes[k], s->rkey, eight(s->sges[k]), i, i + 1, i))
CALLS(post_send_batch_inline8, 0,
      peer_post_send_batch_inline8(s->qp, &s->remotes[k * BATCH], s->rkey, s->bytes, s->length, i))
CALLS(post_send_batch_sge, 0,
      peer_post_send_batch_sge(s->qp, &s->remotes[k * BATCH], s->rkey, &s->sges[k * BATCH], i))
CALLS(post_send_list, 0, peer_post_send_list(s->qp, &s->list[k * BATCH]))
CALLS(wr_inline8, 0, peer_wr_inline8(s->qp_ex, s->remotes[k], s->rkey, s->bytes, s->length, i))
CALLS(wr_sge, 0, peer_wr_sge(s->qp_ex, s->remotes[k], s->rkey, s->sges[k], i))
CALLS(wr_send, 0, peer_wr_send(s->qp_ex, s->sges[k], i))
CALLS(wr_ud, 0, peer_wr_ud(s->qp_ex, s->ah, s->peer->qp_num, eight(s->sges[k]), i))
CALLS(wr_fetch_add, 0,
      peer_wr_fetch_add(s->qp_ex, s->remotes[k], s->rkey, eight(s->sges[k]), i, i))
CALLS(wr_cmp_swp, 0,
      peer_wr_cmp_swp(s->qp_ex, s->remotes[k], s->rkey, eight(s->sges[k]), i, i + 1, i))
CALLS(wr_batch_inline8, 0,
      peer_wr_batch_inline8(s->qp_ex, &s->remotes[k * BATCH], s->rkey, s->bytes, s->length, i))
CALLS(wr_batch_sge, 0,
      peer_wr_batch_sge(s->qp_ex, &s->remotes[k * BATCH], s->rkey, &s->sges[k * BATCH], i))

#define ONE(name, who, operation, open) \
	CASE(name, who, operation, ROUND, 1, open, nothing, posted)
#define BATCHES(name, who, operation, open, prepare) \
	CASE(name, who, operation, ROUND / BATCH, BATCH, open, prepare, posted_batches)

bench_cases post_cases = {
	ONE("post_inline8", "post_send", post_send_inline8, open_plain),
	ONE("post_inline8", "wr", wr_inline8, open_extended),
	ONE("post_sge", "post_send", post_send_sge, open_plain),
	ONE("post_sge", "wr", wr_sge, open_extended),
	ONE("post_send", "post_send", post_send_send, open_plain),
	ONE("post_send", "wr", wr_send, open_extended),
	ONE("post_ud", "post_send", post_send_ud, open_ud),
	ONE("post_ud", "wr", wr_ud, open_ud_extended),
	ONE("post_fetch_add", "post_send", post_send_fetch_add, open_plain),
	ONE("post_fetch_add", "wr", wr_fetch_add, open_extended),
	ONE("post_cmp_swp", "post_send", post_send_cmp_swp, open_plain),
	ONE("post_cmp_swp", "wr", wr_cmp_swp, open_extended),
	BATCHES("batch16_inline8", "post_send", post_send_batch_inline8, open_plain, nothing),
	BATCHES("batch16_inline8", "wr", wr_batch_inline8, open_extended, nothing),
	BATCHES("batch16_sge", "post_send", post_send_batch_sge, open_plain, nothing),
	BATCHES("batch16_sge", "wr", wr_batch_sge, open_extended, nothing),
	BATCHES("list16_inline8", "post_send", post_send_list, open_plain, prepare_list),
	{},
};
