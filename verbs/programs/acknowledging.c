/*
 * Objects that one thread destroys while another has an event of them that it has not acknowledged: until it
 * does, the object is there, and so are its queues.
 */
#include "bed.h"

#include <pthread.h>

static struct bed bed;

static void *destroys_srq(void *srq)
{
	static int status;

	status = ibv_destroy_srq(srq);
	return &status;
}

static void *destroys_cq(void *cq)
{
	static int status;

	status = ibv_destroy_cq(cq);
	return &status;
}

/* The limit of a shared receive queue is reached, once both messages are there. */
static void shared_receive_queue(void)
{
	struct ibv_srq_init_attr wanted = { .attr = { DEPTH, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &wanted);
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.srq = srq, .cap = { 4, 0, 1, 0, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_srq_attr limit = { .srq_limit = 2 }, found;
	struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct pair pair = { .type = IBV_QPT_RC };
	struct ibv_async_event event;
	pthread_t thread;
	struct ibv_wc wc;
	void *status;

	must(srq, "ibv_create_srq");
	pair.qp = ibv_create_qp(bed.pd, &attr);
	pair.peer = ibv_create_qp(bed.pd, &attr);
	must(pair.qp && pair.peer, "ibv_create_qp");
	connect_pair(&bed, &pair);
	for (int i = 0; i < 3; i++)
		must(!ibv_post_srq_recv(srq, &receive, &bad), "ibv_post_srq_recv");
	must(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "ibv_modify_srq");
	for (int i = 0; i < 2; i++)
		must(!ibv_post_send(pair.qp, &send, &bad_send), "ibv_post_send");
	for (int i = 0; i < 4; i++)
		poll_one(ibv_cq_ex_to_cq(cq), &wc);
	must(!ibv_get_async_event(bed.context, &event), "ibv_get_async_event");
	printf("%s, of the queue: %d\n", ibv_event_type_str(event.event_type), event.element.srq == srq);
	must(!ibv_destroy_qp(pair.qp) && !ibv_destroy_qp(pair.peer), "ibv_destroy_qp");
	must(!pthread_create(&thread, NULL, destroys_srq, srq), "a thread");
	/* Until the kernel has it no more. */
	do
		spoil();
	while (!ibv_query_srq(srq, &found));
	ibv_post_srq_recv(srq, &receive, &bad);
	ibv_ack_async_event(&event);
	must(!pthread_join(thread, &status), "pthread_join");
	printf("shared receive queue: %s\n", name_of(*(int *)status));
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
}

static void completion_queue(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_cq *cq = ibv_create_cq(bed.context, 4, NULL, channel, 0), *notified;
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(bed.pd, &attr);
	struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_modify_cq_attr moderation = { .attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 1, .cq_period = 1 } };
	struct ibv_wc wc;
	pthread_t thread;
	void *context, *status;

	must(channel && cq && qp, "objects");
	must(!to_init(qp) && !ibv_post_recv(qp, &receive, &bad), "ibv_post_recv");
	must(!ibv_req_notify_cq(cq, 0) && !to_error(qp), "an error");
	must(!ibv_get_cq_event(channel, &notified, &context), "ibv_get_cq_event");
	printf("an event, of the queue: %d\n", notified == cq);
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(!pthread_create(&thread, NULL, destroys_cq, cq), "a thread");
	do
		spoil();
	while (!ibv_modify_cq(cq, &moderation));
	printf("completions of a queue pair that went: %d\n", ibv_poll_cq(cq, 1, &wc));
	ibv_ack_cq_events(cq, 1);
	must(!pthread_join(thread, &status), "pthread_join");
	printf("completion queue: %s\n", name_of(*(int *)status));
	must(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	drop_pair(&pair);
}

static int taken, given_back;
static struct ibv_pd *asked;

static void *take(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	(void)context, (void)type;
	asked = pd;
	taken++;
	return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void give_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	(void)context, (void)type;
	if (pd == asked)
		given_back++;
	free(memory);
}

/* The memory of the queue is its parent domain's: that stays until it has it back. */
static void of_a_parent_domain(void)
{
	struct ibv_parent_domain_init_attr of = { .pd = bed.pd, .alloc = take, .free = give_back,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct ibv_pd *parent = ibv_alloc_parent_domain(bed.context, &of);
	struct ibv_cq_init_attr_ex wanted = { .cqe = 4, .channel = channel, .parent_domain = parent,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(bed.context, &wanted)), *notified;
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(bed.pd, &attr);
	struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_modify_cq_attr moderation = { .attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 1, .cq_period = 1 } };
	pthread_t thread;
	void *context, *status;

	must(channel && parent && cq && qp, "objects");
	must(!to_init(qp) && !ibv_post_recv(qp, &receive, &bad), "ibv_post_recv");
	must(!ibv_req_notify_cq(cq, 0) && !to_error(qp), "an error");
	must(!ibv_get_cq_event(channel, &notified, &context), "ibv_get_cq_event");
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(!pthread_create(&thread, NULL, destroys_cq, cq), "a thread");
	while (!ibv_modify_cq(cq, &moderation))
		;
	printf("parent domain, before: %s", name_of(ibv_dealloc_pd(parent)));
	spoil();
	ibv_ack_cq_events(cq, 1);
	must(!pthread_join(thread, &status), "pthread_join");
	printf(", its queue: %s, memory taken %d, given back %d", name_of(*(int *)status), taken > 0,
	       taken - given_back);
	printf(", parent domain: %s\n", name_of(ibv_dealloc_pd(parent)));
	must(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
}

int main(void)
{
	bed = open_bed();
	shared_receive_queue();
	completion_queue();
	of_a_parent_domain();
	close_bed(&bed);
	return 0;
}
