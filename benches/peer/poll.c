/* Polls by ibv_poll_cq and by ibv_start_poll. */
#include "peer.h"

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

CALLS(poll_cq_one, 1, peer_poll_cq_one(s->cq, &s->sum))
CALLS(poll_cq_many, BATCH, peer_poll_cq_many(s->cq, BATCH, &s->sum))
CALLS(poll_cq_empty, 0, peer_poll_cq_empty(s->cq, &s->sum))
CALLS(cq_ex_one, 1, peer_cq_ex_one(s->cq_ex, &s->sum))
CALLS(cq_ex_many, BATCH, peer_cq_ex_many(s->cq_ex, BATCH, &s->sum))
CALLS(cq_ex_empty, 0, peer_cq_ex_empty(s->cq_ex, &s->sum))

#define ONE(name, who, operation, open, prepare) \
	CASE(name, who, operation, ROUND, 1, open, prepare, polled)
#define MANY(name, who, operation, open) \
	CASE(name, who, operation, ROUND / BATCH, BATCH, open, prepare_completions, polled)

bench_cases poll_cases = {
	ONE("poll1", "poll_cq", poll_cq_one, open_plain, prepare_completions),
	ONE("poll1", "cq_ex", cq_ex_one, open_extended, prepare_completions),
	MANY("poll16", "poll_cq", poll_cq_many, open_plain),
	MANY("poll16", "cq_ex", cq_ex_many, open_extended),
	ONE("empty_poll", "poll_cq", poll_cq_empty, open_plain, nothing),
	ONE("empty_poll", "cq_ex", cq_ex_empty, open_extended, nothing),
	{},
};
