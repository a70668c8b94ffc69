/*
 * Packets of no pieces, which no device can send, of more pieces than a request has entries, and of more
 * bytes than one takes.
 */
#include "packets.h"

enum {
	PIECES = 18 + 65,
	INLINE_ROOM = 128,
	TOO_LONG = 1500,
};

static struct ibv_qp *make_sender(struct end *end)
{
	struct ibv_qp_init_attr_ex attr = attributes(end);
	struct ibv_qp *qp;

	attr.cap.max_inline_data = INLINE_ROOM;
	qp = ibv_create_qp_ex(end->bed.context, &attr);
	must(qp, "ibv_create_qp_ex");
	activate(qp);
	return qp;
}

static void empty(struct end *here, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)here->bed.from, 0, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;

	printf("no pieces: %s", name_of(ibv_post_send(qp, &wr, &bad)));
	printf(", bad %d\n", bad == &wr);
	wr.send_flags |= IBV_SEND_INLINE;
	bad = NULL;
	printf("no inline data: %s", name_of(ibv_post_send(qp, &wr, &bad)));
	printf(", bad %d\n", bad == &wr);
	sge.length = headers(here->bed.from, IPPROTO_UDP, 60) + 60;
	wr = (struct ibv_send_wr){ .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED };
	must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
}

static void many(struct end *here, struct end *there, struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_data_buf pieces[PIECES];
	struct ibv_sge entries[65];

	must(ex, "ibv_qp_to_qp_ex");
	headers(here->bed.from, IPPROTO_UDP, PIECES - 42);
	for (int i = 0; i < PIECES; i++)
		pieces[i] = (struct ibv_data_buf){ here->bed.from + i, 1 };
	receive(there, 1);
	ibv_wr_start(ex);
	ex->wr_id = 3;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, PIECES, pieces);
	printf("many pieces: %s\n", name_of(ibv_wr_complete(ex)));
	sent(here, "sent", IBV_WC_SUCCESS);
	see(there, 1, 1);
	printf("last byte as it was sent: %d\n", there->bed.to[PIECES - 1] == here->bed.from[PIECES - 1]);

	for (int i = 0; i < 65; i++)
		entries[i] = (struct ibv_sge){ (uintptr_t)here->bed.from + i, 1, here->bed.mr->lkey };
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 65, entries);
	printf("many entries: %s\n", name_of(ibv_wr_complete(ex)));
	pieces[0].length = pieces[1].length = TOO_LONG;
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 2, pieces);
	printf("too long, in pieces: %s\n", name_of(ibv_wr_complete(ex)));
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, here->bed.from, TOO_LONG);
	printf("too long, whole: %s\n", name_of(ibv_wr_complete(ex)));
}

int main(void)
{
	struct end here = open_end(), there = open_end();
	struct rule rule = to_mac(THERE);
	struct ibv_qp *qp = make_sender(&here);
	struct ibv_flow *flow = make_rule(there.qp, &rule, "for the packets");

	must(flow, "ibv_create_flow");
	empty(&here, qp);
	many(&here, &there, qp);
	must(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	close_end(&here);
	close_end(&there);
	return 0;
}
