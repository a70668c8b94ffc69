/* What is refused, and what a caller then finds: lists that are too long, odd counts, signals, descriptors. */
#include "bed.h"

#include <infiniband/mlx5dv.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

static struct bed bed;

static void nothing(int number) { (void)number; }

static void lists(struct pair *pair)
{
	static struct ibv_send_wr sends[1000], *bad_send;
	static struct ibv_recv_wr receives[1000], *bad;
	struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int refused;

	must(!ibv_query_qp(pair->qp, &attr, IBV_QP_CAP, &init), "ibv_query_qp");
	for (int i = 0; i < 1000; i++) {
		sends[i] = (struct ibv_send_wr){ .wr_id = i, .next = i < 999 ? &sends[i + 1] : NULL,
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { (uintptr_t)bed.to, bed.mr->rkey } };
		receives[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = &sge, .num_sge = 1,
			.next = i < 999 ? &receives[i + 1] : NULL };
	}
	refused = ibv_post_send(pair->qp, sends, &bad_send);
	printf("1000 sends: %s, at least what was granted: %d\n", name_of(refused),
	       bad_send - sends >= (long)init.cap.max_send_wr || bad_send - sends >= DEPTH);
	refused = ibv_post_recv(pair->peer, receives, &bad);
	printf("1000 receives: %s, bad %ld\n", name_of(refused), (long)(bad - receives));
	receives[0].next = NULL;
	receives[0].num_sge = 100;
	refused = ibv_post_recv(pair->qp, receives, &bad);
	printf("100 SGEs: %s, bad %ld\n", name_of(refused), (long)(bad - receives));
	refused = ibv_post_recv(pair->qp, NULL, &bad);
	printf("no receive: %s\n", name_of(refused));
	refused = ibv_post_send(pair->qp, NULL, &bad_send);
	printf("no send: %s\n", name_of(refused));
}

static void *interrupt(void *thread)
{
	for (int i = 0; i < 200; i++) {
		struct timespec rest = { .tv_nsec = 1000000 };

		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		nanosleep(&rest, NULL);
	}
	return NULL;
}

static void events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct sigaction action = { .sa_handler = nothing };
	struct ibv_async_event event;
	pthread_t self = pthread_self(), other;
	struct ibv_cq *cq;
	void *context;
	int flags;

	must(channel, "ibv_create_comp_channel");
	flags = fcntl(channel->fd, F_GETFL);
	printf("a new channel blocks: %d\n", !(flags & O_NONBLOCK));
	fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
	errno = 0;
	printf("no event: %d", ibv_get_cq_event(channel, &cq, &context));
	printf(" %s\n", name_of(errno));
	fcntl(channel->fd, F_SETFL, flags);
	sigaction(SIGUSR1, &action, NULL);
	must(!pthread_create(&other, NULL, interrupt, &self), "a thread");
	errno = 0;
	printf("a signal: %d", ibv_get_cq_event(channel, &cq, &context));
	printf(" %s\n", name_of(errno));
	pthread_join(other, NULL);
	flags = fcntl(bed.context->async_fd, F_GETFL);
	printf("asynchronous events block: %d\n", !(flags & O_NONBLOCK));
	fcntl(bed.context->async_fd, F_SETFL, flags | O_NONBLOCK);
	errno = 0;
	printf("no asynchronous event: %d", ibv_get_async_event(bed.context, &event));
	printf(" %s\n", name_of(errno));
	must(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
}

static void creation(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { 1 << 30, 1, 0 } };
	struct ibv_wc wc;
	struct ibv_cq *cq;

	for (int entries = -1; entries < 2; entries++) {
		errno = 0;
		cq = ibv_create_cq(bed.context, entries, NULL, NULL, 0);
		printf("%d entries: %s\n", entries, cq ? "made" : name_of(errno));
		if (cq)
			ibv_destroy_cq(cq);
	}
	cq = ibv_create_cq(bed.context, 8, NULL, NULL, 0);
	must(cq, "ibv_create_cq");
	printf("poll of none: %d\n", ibv_poll_cq(cq, 0, &wc));
	attr.send_cq = attr.recv_cq = cq;
	attr.cap.max_send_wr = 1u << 31;
	errno = 0;
	printf("huge queue pair: %d", ibv_create_qp(bed.pd, &attr) != NULL);
	printf(" %s\n", name_of(errno));
	errno = 0;
	printf("huge shared queue: %d", ibv_create_srq(bed.pd, &srq) != NULL);
	printf(" %s\n", name_of(errno));
	printf("resize to 0: %s\n", name_of(ibv_resize_cq(cq, 0)));
	printf("domain in use: %s\n", name_of(ibv_dealloc_pd(bed.pd)));
	must(!ibv_destroy_cq(cq), "ibv_destroy_cq");
}

/* What our library refuses before the kernel is asked, and C's after. */
static void before_the_kernel(void)
{
	struct ibv_cq_init_attr_ex ex = { .cqe = 10, .comp_vector = bed.context->num_comp_vectors + 1 };
	struct mlx5dv_cq_init_attr formats = {
		.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
		.cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM,
	};
	struct ibv_alloc_dm_attr memory = { .length = 100 };
	struct ibv_device_attr device;
	struct ibv_dm *dm;

	must(!ibv_query_device(bed.context, &device), "ibv_query_device");
	errno = 0;
	printf("too many entries: %d", ibv_create_cq(bed.context, device.max_cqe + 1, NULL, NULL, 0) != NULL);
	printf(" %s\n", name_of(errno));
	errno = 0;
	printf("no such vector: %d", ibv_create_cq(bed.context, 100, NULL, NULL, ex.comp_vector) != NULL);
	printf(" %s\n", name_of(errno));
	errno = 0;
	printf("no such vector, extended: %d", ibv_create_cq_ex(bed.context, &ex) != NULL);
	printf(" %s\n", name_of(errno));
	ex.comp_vector = 0;
	ex.cqe = device.max_cqe + 1;
	errno = 0;
	printf("too many entries, extended: %d", ibv_create_cq_ex(bed.context, &ex) != NULL);
	printf(" %s\n", name_of(errno));
	ex.cqe = 10;
	errno = 0;
	printf("two formats: %d", mlx5dv_create_cq(bed.context, &ex, &formats) != NULL);
	printf(" %s\n", name_of(errno));
	errno = 0;
	printf("window of type 3: %d", ibv_alloc_mw(bed.pd, 3) != NULL);
	printf(" %s\n", name_of(errno));
	dm = ibv_alloc_dm(bed.context, &memory);
	must(dm, "ibv_alloc_dm");
	errno = 0;
	printf("more than the device memory: %d",
	       ibv_reg_dm_mr(bed.pd, dm, 0, 104, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE) != NULL);
	printf(" %s\n", name_of(errno));
	must(!ibv_free_dm(dm), "ibv_free_dm");
}

static void say(const char *what, int status)
{
	printf("%s: %s\n", what, name_of(status));
}

/* Calls with arguments that make no sense, or little. */
static void nonsense(struct pair *pair)
{
	struct ibv_qp *datagram = make_qp(&bed, IBV_QPT_UD, ibv_cq_ex_to_cq(pair->cq), 0);
	union ibv_gid group = { .raw = { 0xff, 0x12, 0x40, 0x1b, [15] = 1 } }, zero_gid = {};
	struct ibv_alloc_dm_attr on_device = { .length = 64 };
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = ~0u };
	struct ibv_grh grh = {};
	struct ibv_wc wc = { .slid = 1, .sl = 3 };
	struct ibv_dm *dm, *same;
	struct ibv_ah *ah;

	must(datagram, "a queue pair of datagrams");
	for (int fd = -1; fd < 1; fd++) {
		errno = 0;
		printf("a dma-buf of descriptor %d: %d", fd,
		       ibv_reg_dmabuf_mr(bed.pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE) != NULL);
		printf(" %s\n", name_of(errno));
	}
	say("options of another vendor", ibv_set_ece(pair->qp, &(struct ibv_ece){ .vendor_id = 1 }));
	say("a field of options that is unknown", ibv_set_ece(pair->qp, &(struct ibv_ece){ .comp_mask = 1 }));
	say("options of a queue pair of datagrams", ibv_query_ece(datagram, &ece));
	for (int global = 0; global < 2; global++) {
		wc.wc_flags = global ? IBV_WC_GRH : 0;
		errno = 0;
		ah = ibv_create_ah_from_wc(bed.pd, &wc, &grh, 1);
		printf("a handle for who sent, header %d: %d", global, ah != NULL);
		printf(" %s\n", name_of(errno));
		if (ah)
			must(!ibv_destroy_ah(ah), "ibv_destroy_ah");
	}
	say("a group for a connected queue pair", ibv_attach_mcast(pair->qp, &group, 0xc001));
	say("a group that is none", ibv_attach_mcast(datagram, &zero_gid, 0xc001));
	say("a group", ibv_attach_mcast(datagram, &group, 0xc001));
	say("the same group", ibv_attach_mcast(datagram, &group, 0xc001));
	say("leaving the group", ibv_detach_mcast(datagram, &group, 0xc001));
	say("leaving it twice", ibv_detach_mcast(datagram, &group, 0xc001));
	printf("the first partition key: %d\n", ibv_get_pkey_index(bed.context, 1, 0xffff));
	errno = 0;
	printf("a partition key that is not there: %d", ibv_get_pkey_index(bed.context, 1, 0x1234));
	printf(" %s\n", name_of(errno));
	printf("partition keys of a port that is not there: %d\n", ibv_get_pkey_index(bed.context, 9, 0xffff));
	dm = ibv_alloc_dm(bed.context, &on_device);
	must(dm, "ibv_alloc_dm");
	same = ibv_import_dm(bed.context, dm->handle);
	must(same, "ibv_import_dm");
	ibv_unimport_dm(same);
	say("device memory after it was imported and forgotten", ibv_memcpy_to_dm(dm, 0, bed.from, 64));
	say("freeing it", ibv_free_dm(dm));
	errno = 0;
	printf("device memory that is not there: %d", ibv_import_dm(bed.context, 1 << 20) != NULL);
	printf(" %s\n", name_of(errno));
	must(!ibv_destroy_qp(datagram), "ibv_destroy_qp");
}

int main(void)
{
	bed = open_bed();
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);

	connect_pair(&bed, &pair);
	lists(&pair);
	nonsense(&pair);
	drop_pair(&pair);
	events();
	creation();
	before_the_kernel();
	close_bed(&bed);
	return 0;
}
