/*
 * A queue pair is reset by one thread while another one has an open poll of its completion queue, in which it
 * posts and changes states, as programs do that post again what completed. Neither waits for the other for
 * ever: C's library holds no lock of a queue pair while it cleans a completion queue.
 */
#include "bed.h"

#include <pthread.h>
#include <stdatomic.h>

static struct bed bed;
static struct pair pair;
static atomic_int reset;

static void *resets(void *unused)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	(void)unused;
	reset = 1 + ibv_modify_qp(pair.qp, &attr, IBV_QP_STATE);
	return NULL;
}

static bool is_reset(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(!ibv_query_qp(pair.qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
	return attr.qp_state == IBV_QPS_RESET;
}

static void write_some(int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)bed.to, bed.mr->rkey } }, *bad;

		must(!ibv_post_send(pair.qp, &wr, &bad), "ibv_post_send");
	}
}

/* What is called in the open poll, once the kernel has reset the queue pair. */
static void crossing(const char *what, void (*call)(void))
{
	struct ibv_cq *cq;
	pthread_t thread;
	struct ibv_wc wc;

	pair = make_pair(&bed, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
	connect_pair(&bed, &pair);
	write_some(3);
	start(pair.cq);
	reset = 0;
	must(!pthread_create(&thread, NULL, resets, NULL), "a thread");
	while (!is_reset())
		;
	call();
	ibv_end_poll(pair.cq);
	must(!pthread_join(thread, NULL), "pthread_join");
	cq = ibv_cq_ex_to_cq(pair.cq);
	printf("%s: reset %s, completions left %d", what, name_of(reset - 1), ibv_poll_cq(cq, 1, &wc));
	/* It works again, from the start. */
	must(!to_init(pair.qp) && !to_rtr(&bed, pair.qp, pair.peer->qp_num) && !to_rts(pair.qp), "a new start");
	drop_pair(&pair);
	printf("\n");
}

static void receives(void)
{
	struct ibv_sge sge = { (uintptr_t)bed.to, 8, bed.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	/* Whether a queue pair that is being reset takes it is chance. */
	ibv_post_recv(pair.qp, &wr, &bad);
}

static void starts(void)
{
	ibv_wr_start(pair.ex);
	ibv_wr_abort(pair.ex);
}

static void fails(void)
{
	to_error(pair.qp);
}

static void asks(void)
{
	must(is_reset(), "RESET");
}

static struct ibv_cq *polled;
static int polls, found;

/* As who takes a lock of its own that a polling thread has: the queue can be polled meanwhile. */
static void *take(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct ibv_wc wc;

	(void)pd, (void)context, (void)type;
	polls++;
	found += ibv_poll_cq(polled, 1, &wc);
	return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void give_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	struct ibv_wc wc;

	(void)pd, (void)context, (void)type;
	found += ibv_poll_cq(polled, 1, &wc);
	free(memory);
}

static void allocators(void)
{
	struct ibv_parent_domain_init_attr of = { .pd = bed.pd, .alloc = take, .free = give_back,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS };
	struct ibv_pd *parent = ibv_alloc_parent_domain(bed.context, &of);
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;

	must(parent, "ibv_alloc_parent_domain");
	polled = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(parent, &attr);
	must(qp, "ibv_create_qp");
	printf("polled where memory is provided: %d, found %d\n", polls > 0, found);
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	printf("and where it is given back: found %d\n", found);
	must(!ibv_destroy_cq(polled) && !ibv_dealloc_pd(parent), "objects");
}

int main(void)
{
	bed = open_bed();
	crossing("nothing", asks);
	crossing("ibv_post_recv", receives);
	crossing("ibv_wr_start", starts);
	crossing("ibv_modify_qp", fails);
	allocators();
	close_bed(&bed);
	return 0;
}
