/*
 * Receives of a shared queue of which some meet page faults, as the settings of the device say: the program hears
 * of none, each message arrives once, and each receive takes one.
 */
#include "bed.h"

enum {
	ROUNDS = 3 * DEPTH,
	LENGTH = 32,
};

static int post(const struct bed *bed, struct ibv_srq *srq, int wr_id)
{
	/* Two places, so that a list is posted again. */
	struct ibv_sge list[2] = {
		{ (uintptr_t)bed->to + wr_id * LENGTH, LENGTH / 2, bed->mr->lkey },
		{ (uintptr_t)bed->to + wr_id * LENGTH + LENGTH / 2, LENGTH / 2, bed->mr->lkey },
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = list, .num_sge = 2 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static struct ibv_srq *make_srq(const struct bed *bed)
{
	struct ibv_srq_init_attr attr = { .attr = { DEPTH, 2, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed->pd, &attr);

	must(srq, "ibv_create_srq");
	return srq;
}

static void replace_peer(const struct bed *bed, struct pair *pair, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = ibv_cq_ex_to_cq(pair->peer_cq),
		.recv_cq = ibv_cq_ex_to_cq(pair->peer_cq),
		.srq = srq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	must(!ibv_destroy_qp(pair->peer), "ibv_destroy_qp");
	pair->peer = ibv_create_qp(bed->pd, &attr);
	must(pair->peer, "ibv_create_qp");
}

/* Waits by one interface or the other. */
static void next_message(struct pair *pair, bool extended, struct ibv_wc *wc)
{
	if (!extended) {
		poll_one(ibv_cq_ex_to_cq(pair->peer_cq), wc);
		return;
	}
	start(pair->peer_cq);
	wc->wr_id = pair->peer_cq->wr_id;
	wc->status = pair->peer_cq->status;
	wc->byte_len = ibv_wc_read_byte_len(pair->peer_cq);
	ibv_end_poll(pair->peer_cq);
}

int main(void)
{
	struct bed bed = open_bed();
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_srq *srq = make_srq(&bed);
	int good = 0, first = -1, once[DEPTH] = {};
	struct ibv_wc wc;

	replace_peer(&bed, &pair, srq);
	connect_pair(&bed, &pair);
	for (int i = 0; i < DEPTH; i++)
		must(!post(&bed, srq, i), "ibv_post_srq_recv");
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_sge sge = { (uintptr_t)bed.from, LENGTH, bed.mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1,
					  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
		uint8_t *place;

		bed.from[0] = i;
		must(!ibv_post_send(pair.qp, &wr, &bad), "ibv_post_send");
		next_message(&pair, i % 2, &wc);
		must(wc.status == IBV_WC_SUCCESS, "a message");
		must(wc.wr_id < DEPTH, "an identifier");
		if (first < 0)
			first = wc.wr_id;
		place = bed.to + wc.wr_id * LENGTH;
		good += wc.byte_len == LENGTH && !memcmp(place, bed.from, LENGTH);
		once[wc.wr_id]++;
		memset(place, 0, LENGTH);
		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		must(wc.status == IBV_WC_SUCCESS, "sent");
		if (i % DEPTH != DEPTH - 1)
			continue;
		for (int k = 0; k < DEPTH; k++) {
			must(once[k] == i / DEPTH + 1, "each receive once in a lap");
			must(!post(&bed, srq, k), "ibv_post_srq_recv");
		}
	}
	/* The receives before it met page faults. */
	must(first > 0, "a page fault, at least one");
	printf("the first that takes a message: %d\n", first);
	printf("messages: all arrive once %d\n", good == ROUNDS);
	printf("more: %d\n", ibv_poll_cq(ibv_cq_ex_to_cq(pair.peer_cq), 1, &wc));
	drop_pair(&pair);
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	close_bed(&bed);
	return 0;
}
