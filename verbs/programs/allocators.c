/*
 * The functions of a parent domain provide the memory of queues and of their doorbell records: each is asked
 * for what it is told the purpose of, and gets all of it back.
 */
#include "bed.h"

#include <infiniband/mlx5dv.h>

enum { PURPOSES = 6, RECORD = 8 };

struct count {
	int asked[PURPOSES], freed[PURPOSES];
	/* The purpose for which there is no memory, or for which the library is to have its own. */
	uint64_t without, own;
	bool wrong;
};

static void *provide(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct count *count = context;
	uint64_t purpose = type - (MLX5DV_RES_TYPE_QP - 1);
	void *memory;

	count->wrong |= !pd || purpose >= PURPOSES;
	count->wrong |= type == MLX5DV_RES_TYPE_DBR && (size != RECORD || alignment != RECORD);
	if (type == count->own)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (count->wrong || type == count->without)
		return NULL;
	count->asked[purpose]++;
	if (posix_memalign(&memory, alignment, size))
		return NULL;
	/* C passes some records on as it got them. */
	memset(memory, type == MLX5DV_RES_TYPE_DBR ? 0 : 0x5a, size);
	return memory;
}

static void give_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	struct count *count = context;
	uint64_t purpose = type - (MLX5DV_RES_TYPE_QP - 1);

	count->wrong |= !pd || purpose >= PURPOSES;
	if (!count->wrong)
		count->freed[purpose]++;
	free(memory);
}

static void report(const char *what, struct count *count)
{
	static const char *const names[PURPOSES] = { "none", "QP", "RWQ", "DBR", "SRQ", "CQ" };

	printf("%s:", what);
	for (int i = 0; i < PURPOSES; i++)
		if (count->asked[i] || count->freed[i])
			printf(" %s %d asked %d freed", names[i], count->asked[i], count->freed[i]);
	printf("%s\n", count->wrong ? " WRONG" : "");
	memset(count->asked, 0, sizeof(count->asked));
	memset(count->freed, 0, sizeof(count->freed));
}

static struct ibv_cq *cq_of(struct bed *bed, struct ibv_pd *parent)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = ENTRIES, .wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(bed->context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static void connect_to(const struct bed *bed, struct ibv_qp *qp, const struct ibv_qp *peer)
{
	must(!to_init(qp) && !to_rtr(bed, qp, peer->qp_num) && !to_rts(qp), "connecting");
}

/* Requests pass through the memory, and the device reads the records. */
static void message(struct bed *bed, struct ibv_qp *qp, struct ibv_qp *peer, struct ibv_cq *cq)
{
	struct ibv_sge from = { (uintptr_t)bed->from, 64, bed->mr->lkey };
	struct ibv_sge to = { (uintptr_t)bed->to, 64, bed->mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = {
		.wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;
	struct ibv_wc done;
	int good = 0, found = 0;

	must(!ibv_post_recv(peer, &receive, &bad_receive), "ibv_post_recv");
	must(!ibv_post_send(qp, &send, &bad_send), "ibv_post_send");
	while (found < 2)
		if (ibv_poll_cq(cq, 1, &done) == 1) {
			found++;
			good += done.status == IBV_WC_SUCCESS;
		}
	printf("message: %d good, bytes %s\n", good, memcmp(bed->from, bed->to, 64) ? "differ" : "same");
}

static void queues(struct bed *bed, struct ibv_pd *parent, struct count *count)
{
	struct bed inside = *bed;
	struct ibv_srq_init_attr srq_attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = parent };
	struct ibv_qp *qp, *peer;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_wq *wq;

	inside.pd = parent;
	cq = cq_of(bed, parent);
	must(cq, "a completion queue");
	report("completion queue", count);
	qp = make_qp(&inside, IBV_QPT_RC, cq, 0);
	must(qp, "a queue pair");
	report("queue pair", count);
	peer = make_qp(&inside, IBV_QPT_RC, cq, operations(IBV_QPT_RC));
	must(peer, "a queue pair");
	report("queue pair with functions", count);
	connect_to(bed, qp, peer);
	connect_to(bed, peer, qp);
	message(bed, qp, peer, cq);
	srq = ibv_create_srq(parent, &srq_attr);
	must(srq, "a shared receive queue");
	report("shared receive queue", count);
	wq_attr.cq = cq;
	wq = ibv_create_wq(bed->context, &wq_attr);
	must(wq, "a work queue");
	report("work queue", count);
	must(!ibv_destroy_wq(wq), "ibv_destroy_wq");
	report("work queue destroyed", count);
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	report("shared receive queue destroyed", count);
	must(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer), "ibv_destroy_qp");
	report("queue pairs destroyed", count);
	must(!ibv_destroy_cq(cq), "ibv_destroy_cq");
	report("completion queue destroyed", count);
}

/* A queue for which there is no memory is not made, and what it got is given back. */
static void refused(struct bed *bed, struct ibv_pd *parent, struct count *count, uint64_t without)
{
	struct bed inside = *bed;
	struct ibv_cq_ex *cq = make_cq(bed, NULL, IBV_WC_STANDARD_FLAGS);
	struct ibv_qp *qp;

	inside.pd = parent;
	count->without = without;
	qp = make_qp(&inside, IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 0);
	printf("without %s: %s\n", without == MLX5DV_RES_TYPE_QP ? "QP" : "DBR", qp ? "made" : "none");
	report("  so", count);
	count->without = 0;
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
}

int main(void)
{
	struct bed bed = open_bed();
	struct count count = {};
	struct ibv_parent_domain_init_attr init = {
		.pd = bed.pd, .alloc = provide, .free = give_back, .pd_context = &count,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};
	struct ibv_pd *parent = ibv_alloc_parent_domain(bed.context, &init);

	must(parent, "ibv_alloc_parent_domain");
	queues(&bed, parent, &count);
	count.own = MLX5DV_RES_TYPE_DBR;
	puts("records of the library's own");
	queues(&bed, parent, &count);
	count.own = 0;
	refused(&bed, parent, &count, MLX5DV_RES_TYPE_QP);
	refused(&bed, parent, &count, MLX5DV_RES_TYPE_DBR);
	must(!ibv_dealloc_pd(parent), "ibv_dealloc_pd");
	close_bed(&bed);
	return 0;
}
