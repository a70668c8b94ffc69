/*
 * What takes no lock of a completion queue, so that a thread may do it while another one has a poll open and
 * waits for it: arming, moderating, making a queue pair that completes there, trying to destroy the queue.
 */
#include "bed.h"

#include <infiniband/mlx5dv.h>
#include <pthread.h>
#include <unistd.h>

static struct bed bed;
static struct ibv_cq_ex *cq;
/* The program's own lock: one thread waits for it with a poll open, the other has it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t open_poll;

static void *polls(void *nothing)
{
	(void)nothing;
	start(cq);
	pthread_barrier_wait(&open_poll);
	pthread_mutex_lock(&mutex);
	printf("the poll that was open goes on: %s, a receive %d\n",
	       cq->status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "something else", cq->wr_id == 1);
	ibv_end_poll(cq);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void post(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id }, *bad;

	must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

int main(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_modify_cq_attr moderation = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_qp *qp, *second;
	struct ibv_cq *notified;
	struct ibv_wc wc;
	pthread_t other;
	void *context;

	/* Who waits for a lock waits for ever. */
	bed = open_bed();
	channel = ibv_create_comp_channel(bed.context);
	must(channel, "ibv_create_comp_channel");
	cq = make_cq(&bed, channel, IBV_WC_STANDARD_FLAGS);
	qp = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 0);
	must(qp && !to_init(qp) && !to_error(qp), "a queue pair");
	post(qp, 1);
	must(!pthread_barrier_init(&open_poll, NULL, 2), "a barrier");
	pthread_mutex_lock(&mutex);
	must(!pthread_create(&other, NULL, polls, NULL), "a thread");
	pthread_barrier_wait(&open_poll);
	printf("ibv_req_notify_cq: %s\n", name_of(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0)));
	printf("ibv_modify_cq: %s\n", name_of(ibv_modify_cq(ibv_cq_ex_to_cq(cq), &moderation)));
	second = make_qp(&bed, IBV_QPT_UD, ibv_cq_ex_to_cq(cq), operations(IBV_QPT_UD));
	printf("ibv_create_qp_ex: %s\n", second ? "made" : name_of(errno));
	printf("ibv_destroy_cq: %s\n", name_of(ibv_destroy_cq(ibv_cq_ex_to_cq(cq))));
	pthread_mutex_unlock(&mutex);
	must(!pthread_join(other, NULL), "pthread_join");
	/* What was armed meanwhile tells of the next completion, at the latest. */
	post(qp, 2);
	must(!ibv_get_cq_event(channel, &notified, &context), "ibv_get_cq_event");
	printf("an event of this queue: %d\n", notified == ibv_cq_ex_to_cq(cq));
	ibv_ack_cq_events(notified, 1);
	must(poll_one(ibv_cq_ex_to_cq(cq), &wc) == 1, "a completion");
	printf("the next completion: %" PRIu64 "\n", wc.wr_id);
	must(!ibv_destroy_qp(second) && !ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	must(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	close_bed(&bed);
	return 0;
}
