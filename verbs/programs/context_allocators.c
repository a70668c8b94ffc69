/* mlx5dv_set_context_attr: the program provides the memory of a context's queues, and gets all of it back. */
#include "bed.h"

#include <infiniband/mlx5dv.h>

struct count {
	int asked, freed, seen;
	bool wrong;
};

static struct count count;

static void *provide(size_t size, void *data)
{
	void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);

	count.wrong |= data != &count || !size;
	count.asked++;
	return memory;
}

static void give_back(void *memory, void *data)
{
	count.wrong |= data != &count;
	count.freed++;
	free(memory);
}

/* How many pieces a queue takes is the library's affair: C's also takes pages of doorbell records. */
static void report(const char *what)
{
	printf("%s: %s%s\n", what, count.asked > count.seen ? "asked" : "not asked",
	       count.wrong ? ", WRONG" : "");
	count.seen = count.asked;
}

static void message(struct bed *bed, struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_sge sge = { (uintptr_t)bed->from, 64, bed->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)bed->to, bed->mr->rkey },
	};
	struct ibv_wc done;

	must(!to_init(qp) && !to_rtr(bed, qp, qp->qp_num) && !to_rts(qp), "connecting");
	must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	must(poll_one(cq, &done) == 1, "ibv_poll_cq");
	printf("message: %s, bytes %s\n", ibv_wc_status_str(done.status),
	       memcmp(bed->from, bed->to, 64) ? "differ" : "same");
}

static void queues(struct bed *bed)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_cq *cq = ibv_create_cq(bed->context, ENTRIES, NULL, NULL, 0);
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	must(cq, "ibv_create_cq");
	report("completion queue");
	qp = make_qp(bed, IBV_QPT_RC, cq, 0);
	must(qp, "ibv_create_qp_ex");
	report("queue pair");
	srq = ibv_create_srq(bed->pd, &srq_attr);
	must(srq, "ibv_create_srq");
	report("shared receive queue");
	message(bed, qp, cq);
	must(!ibv_resize_cq(cq, 4 * ENTRIES), "ibv_resize_cq");
	report("resized completion queue");
	must(!ibv_destroy_srq(srq) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq), "destroying");
	printf("given back: %s\n", count.asked == count.freed ? "all" : "not all");
}

static int set(struct bed *bed, void *(*alloc)(size_t, void *), void (*release)(void *, void *))
{
	struct mlx5dv_ctx_allocators functions = { .alloc = alloc, .free = release, .data = &count };

	return mlx5dv_set_context_attr(bed->context, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &functions);
}

int main(void)
{
	struct bed bed = open_bed();

	printf("no attribute: %s\n", name_of(mlx5dv_set_context_attr(bed.context, 99, &count)));
	printf("both: %s\n", name_of(set(&bed, provide, give_back)));
	queues(&bed);
	printf("one: %s\n", name_of(set(&bed, provide, NULL)));
	queues(&bed);
	printf("none: %s\n", name_of(set(&bed, NULL, NULL)));
	queues(&bed);
	close_bed(&bed);
	return 0;
}
