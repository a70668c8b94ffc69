/*
 * A receiving end of extended connections that is opened by its number: one queue pair with several handles,
 * of two contexts, which exists until the last is destroyed. C's library crashes when it destroys a handle that
 * was opened: it frees a doorbell record that such a handle does not have. Up to there it prints the same, but
 * that it sets no errno for attributes that it refuses itself.
 */
#include "bed.h"

#include <fcntl.h>
#include <unistd.h>

static struct ibv_xrcd *domain_of(struct ibv_context *context, int file)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = file,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(context, &attr);
}

enum { ALL = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE };

static struct ibv_qp *open_number(struct ibv_context *context, struct ibv_xrcd *domain, uint32_t number,
				  uint32_t mask, enum ibv_qp_type type)
{
	struct ibv_qp_open_attr attr = { mask, number, domain, &attr, type };

	errno = 0;
	return ibv_open_qp(context, &attr);
}

static void refused(const char *what, struct ibv_qp *qp)
{
	printf("%s: %s\n", what, qp ? "opened" : name_of(errno));
	if (qp)
		ibv_destroy_qp(qp);
}

static int asked(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	must(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
	printf("type %d, queues %d\n", init.qp_type, init.send_cq || init.recv_cq || init.srq);
	return attr.qp_state;
}

int main(void)
{
	struct bed bed = open_bed(), other = open_bed();
	int file = open("/proc/self/exe", O_RDONLY);
	struct ibv_xrcd *mine = domain_of(bed.context, file), *theirs = domain_of(other.context, file);
	struct ibv_xrcd *elsewhere = domain_of(other.context, -1);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = mine,
	};
	struct ibv_srq_init_attr_ex shared = {
		.attr = { DEPTH, 1, 0 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = other.pd,
		.xrcd = theirs,
	};
	struct ibv_qp *created, *opened, *again, *sender;
	struct ibv_cq *cq = ibv_create_cq(bed.context, ENTRIES, NULL, NULL, 0);
	struct ibv_cq *arrivals = ibv_create_cq(other.context, ENTRIES, NULL, NULL, 0);
	struct ibv_srq *srq;
	struct ibv_wc wc;
	uint32_t number, srqn;

	must(file >= 0 && mine && theirs && elsewhere && cq && arrivals, "domains and queues");
	init.comp_mask |= IBV_QP_INIT_ATTR_PD;
	init.pd = bed.pd;
	init.send_cq = init.recv_cq = cq;
	created = ibv_create_qp_ex(bed.context, &init);
	must(created, "ibv_create_qp_ex");
	/* Nobody uses them, but librdmacm asks for the protection domain. */
	printf("the creator's: pd %d, queues %d, %d, %d\n", created->pd == bed.pd, created->send_cq == cq,
	       created->recv_cq == cq, !!created->srq);
	number = created->qp_num;

	refused("of another domain", open_number(other.context, elsewhere, number, ALL, IBV_QPT_XRC_RECV));
	refused("of no queue pair", open_number(other.context, theirs, number + 1, ALL, IBV_QPT_XRC_RECV));
	refused("of more bits than there are", open_number(other.context, theirs, 1u << 25, ALL, IBV_QPT_XRC_RECV));
	refused("of another type", open_number(other.context, theirs, number, ALL, IBV_QPT_RC));
	refused("without number", open_number(other.context, theirs, number, ALL & ~IBV_QP_OPEN_ATTR_NUM,
					      IBV_QPT_XRC_RECV));
	refused("without type", open_number(other.context, theirs, number, ALL & ~IBV_QP_OPEN_ATTR_TYPE,
					    IBV_QPT_XRC_RECV));
	refused("without domain", open_number(other.context, theirs, number, ALL & ~IBV_QP_OPEN_ATTR_XRCD,
					      IBV_QPT_XRC_RECV));
	refused("of unknown attributes", open_number(other.context, theirs, number, ALL | 1 << 4,
						     IBV_QPT_XRC_RECV));

	opened = open_number(other.context, theirs, number, ALL, IBV_QPT_XRC_RECV);
	again = open_number(bed.context, mine, number, ALL & ~IBV_QP_OPEN_ATTR_CONTEXT, IBV_QPT_XRC_RECV);
	must(opened && again, "ibv_open_qp");
	printf("numbers %d, handles %d, context %d, of type %d\n",
	       opened->qp_num == number && again->qp_num == number, again->handle != created->handle,
	       !!opened->qp_context, opened->qp_type);
	printf("pd %d, queues %d, %d, %d\n", !!opened->pd, !!opened->send_cq, !!opened->recv_cq, !!opened->srq);
	printf("states %d, %d, %d\n", created->state, opened->state, again->state);
	printf("the domain in use: %s\n", name_of(ibv_close_xrcd(theirs)));

	/* What one changes, the others find. */
	sender = make_qp(&bed, IBV_QPT_XRC_SEND, cq, 0);
	must(sender, "a sender");
	must(!to_init(opened), "INIT");
	printf("INIT: states %d, %d, %d\n", created->state, opened->state, again->state);
	printf("asked: %d, %d\n", asked(created), asked(again));
	must(!to_rtr(&other, again, sender->qp_num), "RTR");
	printf("from RTR to INIT: %s\n", name_of(to_init(created)));
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14 };

	printf("to RTS: %s\n",
	       name_of(ibv_modify_qp(created, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN)));
	printf("RTS: states %d, %d, %d\n", created->state, opened->state, again->state);
	printf("asked: %d\n", asked(opened));
	must(!to_init(sender) && !to_rtr(&bed, sender, number) && !to_rts(sender), "to connect");

	/* It receives as long as somebody has it. */
	printf("destroyed: %s, %s\n", name_of(ibv_destroy_qp(created)), name_of(ibv_destroy_qp(again)));
	printf("closed: %s\n", name_of(ibv_close_xrcd(mine)));
	shared.cq = arrivals;
	srq = ibv_create_srq_ex(other.context, &shared);
	must(srq && !ibv_get_srq_num(srq, &srqn), "a shared queue");
	struct ibv_sge to = { (uintptr_t)other.to, HALF, other.mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 5, .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_sge from = { (uintptr_t)bed.from, 100, bed.mr->lkey };
	struct ibv_send_wr send = {
		.wr_id = 6,
		.sg_list = &from,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type.xrc.remote_srqn = srqn,
	}, *bad;

	must(!ibv_post_srq_recv(srq, &receive, &bad_receive), "ibv_post_srq_recv");
	must(!ibv_post_send(sender, &send, &bad), "ibv_post_send");
	printf("sent: %d", poll_one(cq, &wc));
	printf(", status %d\n", wc.status);
	printf("arrived: %d", poll_one(arrivals, &wc));
	printf(", status %d, %u bytes, those that were sent %d, by the queue pair %d\n", wc.status, wc.byte_len,
	       !memcmp(bed.from, other.to, 100), wc.qp_num == number);

	printf("to post: %s\n", name_of(ibv_post_recv(opened, &receive, &bad_receive)));
	must(!ibv_destroy_qp(opened), "ibv_destroy_qp");
	refused("of one that is gone", open_number(other.context, theirs, number, ALL, IBV_QPT_XRC_RECV));
	must(!ibv_destroy_srq(srq) && !ibv_close_xrcd(theirs) && !ibv_close_xrcd(elsewhere), "the domains");
	must(!ibv_destroy_qp(sender) && !ibv_destroy_cq(cq) && !ibv_destroy_cq(arrivals), "the queues");
	close_bed(&bed);
	close_bed(&other);
	return 0;
}
