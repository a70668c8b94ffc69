/* Completion queues that are polled in steps: how they are made, the poll, every reader, the lock. */
#include "bed.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

static struct bed bed;

static void make(const char *what, struct ibv_cq_init_attr_ex attr)
{
	struct ibv_cq_ex *cq;

	errno = 0;
	cq = ibv_create_cq_ex(bed.context, &attr);
	printf("%s: %s\n", what, cq ? "made" : name_of(errno));
	if (cq)
		must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
}

static void creation(void)
{
	make("no entry", (struct ibv_cq_init_attr_ex){ .cqe = 0 });
	make("too many entries", (struct ibv_cq_init_attr_ex){ .cqe = 1u << 30 });
	make("unknown attribute", (struct ibv_cq_init_attr_ex){ .cqe = 8, .comp_mask = 1 << 5 });
	make("unknown flag", (struct ibv_cq_init_attr_ex){ .cqe = 8, .comp_mask = 1, .flags = 1 << 7 });
	make("a flag that is not announced", (struct ibv_cq_init_attr_ex){ .cqe = 8, .flags = 1 << 7 });
	make("unknown field", (struct ibv_cq_init_attr_ex){ .cqe = 8, .wc_flags = 1 << 12 });
	make("unknown field far up", (struct ibv_cq_init_attr_ex){ .cqe = 8, .wc_flags = 1ull << 40 });
	make("vector too large", (struct ibv_cq_init_attr_ex){ .cqe = 8, .comp_vector = 100000 });
	make("overrun ignored", (struct ibv_cq_init_attr_ex){
		.cqe = 8, .comp_mask = 1, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN });
	make("protection domain as parent", (struct ibv_cq_init_attr_ex){
		.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = bed.pd });
}

static void parent_domains(void)
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_td *td = ibv_alloc_td(bed.context, &td_attr);
	struct ibv_parent_domain_init_attr attr = { .pd = bed.pd, .td = td };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_cq_ex *cq;

	must(td, "ibv_alloc_td");
	cq_attr.parent_domain = ibv_alloc_parent_domain(bed.context, &attr);
	must(cq_attr.parent_domain, "ibv_alloc_parent_domain");
	cq = ibv_create_cq_ex(bed.context, &cq_attr);
	printf("made of a parent domain: %d\n", cq != NULL);
	must(cq && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	must(!ibv_dealloc_pd(cq_attr.parent_domain), "ibv_dealloc_pd of a parent domain");
	must(!ibv_dealloc_td(td), "ibv_dealloc_td");
}

/* Which readers there are for each field alone. */
static void tables(void)
{
	for (int bit = -1; bit < 12; bit++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = bit < 0 ? 0 : 1 << bit };
		struct ibv_cq_ex *cq = ibv_create_cq_ex(bed.context, &attr);

		printf("readers of field %d:", bit);
		if (!cq) {
			printf(" %s\n", name_of(errno));
			continue;
		}
#define READER(name) if (cq->read_##name) printf(" %s", #name)
		READER(opcode);
		READER(vendor_err);
		READER(byte_len);
		READER(imm_data);
		READER(qp_num);
		READER(src_qp);
		READER(wc_flags);
		READER(slid);
		READER(sl);
		READER(dlid_path_bits);
		READER(completion_ts);
		READER(cvlan);
		READER(flow_tag);
		READER(tm_info);
		READER(completion_wallclock_ns);
		printf("%s%s%s\n", cq->start_poll ? "" : " no start", cq->next_poll ? "" : " no next",
		       cq->end_poll ? "" : " no end");
		must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	}
}

/* A list of `count` signaled requests. */
static void send_some(struct pair *pair, enum ibv_wr_opcode opcode, int count, uint32_t rkey)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)bed.from, 8 + i, bed.mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.wr_id = 100 + i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
			.imm_data = 0x01020304,
		};

		if (pair->ah) {
			wr.wr.ud.ah = pair->ah;
			wr.wr.ud.remote_qpn = pair->peer->qp_num;
			wr.wr.ud.remote_qkey = QKEY;
		} else {
			wr.wr.rdma.remote_addr = (uintptr_t)bed.to;
			wr.wr.rdma.rkey = rkey;
		}
		must(!ibv_post_send(pair->qp, &wr, &bad), "ibv_post_send");
	}
}

/* The poll goes on until so many were found. */
static void steps(struct ibv_cq_ex *cq, int count, void (*print)(struct ibv_cq_ex *cq))
{
	start(cq);
	for (;;) {
		print(cq);
		if (!--count)
			break;
		while (ibv_next_poll(cq))
			;
	}
	ibv_end_poll(cq);
}

static void print_sent(struct ibv_cq_ex *cq)
{
	printf(" %" PRIu64 " status %d opcode %d flags %d", cq->wr_id, cq->status,
	       ibv_wc_read_opcode(cq), ibv_wc_read_wc_flags(cq));
}

static struct pair *receiving;

static void print_received(struct ibv_cq_ex *cq)
{
	unsigned int flags = ibv_wc_read_wc_flags(cq);

	printf(" %" PRIu64 " status %d opcode %d flags %u length %u at peer %d", cq->wr_id, cq->status,
	       ibv_wc_read_opcode(cq), flags, ibv_wc_read_byte_len(cq),
	       ibv_wc_read_qp_num(cq) == receiving->peer->qp_num);
	if (flags & IBV_WC_WITH_IMM)
		printf(" imm %#x", ibv_wc_read_imm_data(cq));
	printf(" slid %u sl %d bits %d", ibv_wc_read_slid(cq), ibv_wc_read_sl(cq),
	       ibv_wc_read_dlid_path_bits(cq));
	if (receiving->ah)
		printf(" from it %d", ibv_wc_read_src_qp(cq) == receiving->qp->qp_num);
}

static void traffic(enum ibv_qp_type type, enum ibv_wr_opcode opcode, const char *name)
{
	struct pair pair = make_pair(&bed, type, 0);
	int count = 3;

	connect_pair(&bed, &pair);
	for (int i = 0; i < count; i++)
		must(!post_receive(&bed, &pair, 10 + i), "a receive");
	send_some(&pair, opcode, count, bed.mr->rkey);
	printf("%s %s sent:", type_name(type), name);
	steps(pair.cq, count, print_sent);
	if (opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_RDMA_WRITE) {
		receiving = &pair;
		printf("\n  received:");
		steps(pair.peer_cq, count, print_received);
	}
	printf("\n");
	drop_pair(&pair);
}

/* What `ibv_poll_cq` says of the flags of requests, which is not what the readers say. */
static void sent_flags(enum ibv_qp_type type, enum ibv_wr_opcode opcode, const char *name)
{
	struct pair pair = make_pair(&bed, type, 0);
	struct ibv_wc wc[2] = {};

	connect_pair(&bed, &pair);
	for (int i = 0; i < 3; i++)
		must(!post_receive(&bed, &pair, i), "a receive");
	send_some(&pair, opcode, 3, bed.mr->rkey);
	poll_one(ibv_cq_ex_to_cq(pair.cq), wc);
	printf("%s %s sent, by ibv_poll_cq: flags %u", type_name(type), name, wc->wc_flags);
	/* Found one by one, or both at once. */
	for (int found = 0; found < 2;) {
		int more = ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 2, wc);

		for (int i = 0; i < more; i++)
			printf(" %u", wc[i].wc_flags);
		found += more;
	}
	printf("; received:");
	for (int i = 0; i < 3; i++) {
		poll_one(ibv_cq_ex_to_cq(pair.peer_cq), wc);
		printf(" %u", wc->wc_flags);
	}
	printf("\n");
	drop_pair(&pair);
}

static void print_error(struct ibv_cq_ex *cq)
{
	printf(" %" PRIu64 " status %d vendor error %d", cq->wr_id, cq->status,
	       ibv_wc_read_vendor_err(cq) != 0);
}

static void errors(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);

	connect_pair(&bed, &pair);
	send_some(&pair, IBV_WR_RDMA_WRITE, 2, bed.mr->rkey ^ 0x12345);
	printf("refused by the peer:");
	steps(pair.cq, 2, print_error);
	printf("\n");
	drop_pair(&pair);
}

static void rules(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_poll_cq_attr none = {}, odd = { .comp_mask = 1 };
	struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
	struct ibv_modify_cq_attr moderate = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { 1, 1 },
	};
	struct ibv_qp *another;
	struct ibv_wc wc;

	connect_pair(&bed, &pair);
	printf("start on an empty queue: %s", name_of(ibv_start_poll(pair.cq, &none)));
	printf(", once more %s", name_of(ibv_start_poll(pair.cq, &none)));
	printf(", odd attributes %s", name_of(ibv_start_poll(pair.cq, &odd)));
	printf(", ibv_poll_cq %d\n", ibv_poll_cq(cq, 1, &wc));
	send_some(&pair, IBV_WR_RDMA_WRITE, 3, bed.mr->rkey);
	start(pair.cq);
	printf("first:");
	print_sent(pair.cq);
	/* Programs do that while they poll. */
	another = make_qp(&bed, IBV_QPT_RC, cq, 0);
	printf("; a queue pair made meanwhile: %d", another != NULL);
	while (ibv_next_poll(pair.cq))
		;
	print_sent(pair.cq);
	ibv_end_poll(pair.cq);
	poll_one(cq, &wc);
	printf("; the last by ibv_poll_cq: %" PRIu64, wc.wr_id);
	printf("; then %s\n", name_of(ibv_start_poll(pair.cq, &none)));
	must(another && !ibv_destroy_qp(another), "ibv_destroy_qp");
	send_some(&pair, IBV_WR_RDMA_WRITE, 5, bed.mr->rkey);
	moderate.attr_mask = 0;
	printf("moderate nothing: %s", name_of(ibv_modify_cq(cq, &moderate)));
	moderate.attr_mask = IBV_CQ_ATTR_MODERATE | 2;
	printf(", something unknown: %s\n", name_of(ibv_modify_cq(cq, &moderate)));
	moderate.attr_mask = IBV_CQ_ATTR_MODERATE;
	printf("resize: %s", name_of(ibv_resize_cq(cq, 2 * ENTRIES)));
	printf(", %d", cq->cqe >= 2 * ENTRIES);
	printf(", moderate: %s:", name_of(ibv_modify_cq(cq, &moderate)));
	steps(pair.cq, 5, print_sent);
	printf("\n");
	drop_pair(&pair);
}

/* A queue is armed while it is polled, and tells of the next completion only. */
static void arming(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_cq_ex *cq = make_cq(&bed, channel, IBV_WC_STANDARD_FLAGS);
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *notified;
	void *context;

	must(channel, "ibv_create_comp_channel");
	must(!ibv_destroy_qp(pair.qp), "ibv_destroy_qp");
	pair.qp = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 0);
	must(pair.qp, "ibv_create_qp_ex");
	connect_pair(&bed, &pair);
	send_some(&pair, IBV_WR_RDMA_WRITE, 1, bed.mr->rkey);
	start(cq);
	printf("armed while polled: %s", name_of(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0)));
	ibv_end_poll(cq);
	printf(", told at once %d", poll(&fd, 1, 0));
	send_some(&pair, IBV_WR_RDMA_WRITE, 1, bed.mr->rkey);
	must(!ibv_get_cq_event(channel, &notified, &context), "ibv_get_cq_event");
	printf(", told of it %d\n", notified == ibv_cq_ex_to_cq(cq));
	ibv_ack_cq_events(notified, 1);
	steps(cq, 1, print_sent);
	printf("\n");
	must(!ibv_destroy_qp(pair.qp), "ibv_destroy_qp");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	must(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	pair.qp = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(pair.cq), 0);
	must(pair.qp, "ibv_create_qp_ex");
	drop_pair(&pair);
}

static uint64_t stamps[4];
static int stamp;

static void take_cycles(struct ibv_cq_ex *cq) { stamps[stamp++] = ibv_wc_read_completion_ts(cq); }
static void take_time(struct ibv_cq_ex *cq)
{
	stamps[stamp++] = ibv_wc_read_completion_wallclock_ns(cq);
}

static void timestamps(uint64_t wc_flags, void (*take)(struct ibv_cq_ex *cq))
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_cq_init_attr_ex attr = { .cqe = ENTRIES, .wc_flags = wc_flags };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(bed.context, &attr);

	printf("timestamps %#" PRIx64 ":", wc_flags);
	if (!cq) {
		printf(" %s\n", name_of(errno));
		drop_pair(&pair);
		return;
	}
	must(!ibv_destroy_qp(pair.qp), "ibv_destroy_qp");
	pair.qp = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 0);
	must(!ibv_destroy_qp(pair.peer), "ibv_destroy_qp");
	pair.peer = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(cq), 0);
	must(pair.qp && pair.peer, "queue pairs");
	connect_pair(&bed, &pair);
	send_some(&pair, IBV_WR_RDMA_WRITE, 4, bed.mr->rkey);
	stamp = 0;
	steps(cq, 4, take);
	printf(" %d, in order %d\n", stamps[0] != 0, stamps[0] <= stamps[1] && stamps[1] <= stamps[3]);
	must(!ibv_destroy_qp(pair.qp), "ibv_destroy_qp");
	must(!ibv_destroy_qp(pair.peer), "ibv_destroy_qp");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	pair.qp = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(pair.cq), 0);
	pair.peer = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(pair.peer_cq), 0);
	must(pair.qp && pair.peer, "queue pairs");
	drop_pair(&pair);
}

/* One thread has a poll open; another one that polls waits for its end. */
static atomic_int waiting, ended;

static void *poll_beside(void *of)
{
	struct pair *pair = of;
	struct ibv_wc wc;
	static int seen;

	atomic_store(&waiting, 1);
	while (!ibv_poll_cq(ibv_cq_ex_to_cq(pair->cq), 1, &wc))
		;
	seen = atomic_load(&ended);
	return &seen;
}

static void locks(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	pthread_t thread;
	void *seen;

	connect_pair(&bed, &pair);
	send_some(&pair, IBV_WR_RDMA_WRITE, 5, bed.mr->rkey);
	start(pair.cq);
	must(!pthread_create(&thread, NULL, poll_beside, &pair), "a thread");
	while (!atomic_load(&waiting))
		;
	for (int i = 0; i < 3; i++)
		while (ibv_next_poll(pair.cq))
			;
	atomic_store(&ended, 1);
	ibv_end_poll(pair.cq);
	must(!pthread_join(thread, &seen), "the thread");
	printf("another thread polls after the end: %d\n", *(int *)seen);
	drop_pair(&pair);
}

/* Two threads post batches of four to one queue pair: those of a batch stay together. */
static void *post_batches(void *of)
{
	struct pair *pair = of;
	uint64_t base = atomic_fetch_add(&waiting, 1) * 1000;

	for (int batch = 0; batch < 50; batch++) {
		int done;

		do {
			ibv_wr_start(pair->ex);
			for (int i = 0; i < 4; i++) {
				pair->ex->wr_id = base + batch * 4 + i;
				pair->ex->wr_flags = IBV_SEND_SIGNALED;
				ibv_wr_rdma_write(pair->ex, bed.mr->rkey, (uintptr_t)bed.to);
				ibv_wr_set_inline_data(pair->ex, bed.from, 8);
			}
			done = !ibv_wr_complete(pair->ex);
		} while (!done);
	}
	return NULL;
}

static void batches(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, operations(IBV_QPT_RC));
	pthread_t threads[2];
	uint64_t next[2] = {};
	int apart = 0;

	connect_pair(&bed, &pair);
	atomic_store(&waiting, 0);
	for (int i = 0; i < 2; i++)
		must(!pthread_create(&threads[i], NULL, post_batches, &pair), "a thread");
	for (int i = 0; i < 2 * 50; i++) {
		struct ibv_wc wc;
		int who = 0;

		for (int k = 0; k < 4; k++) {
			poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
			if (!k)
				who = wc.wr_id / 1000;
			apart += wc.status || wc.wr_id != who * 1000 + next[who]++;
		}
	}
	for (int i = 0; i < 2; i++)
		must(!pthread_join(threads[i], NULL), "the thread");
	printf("batches of two threads: %" PRIu64 " and %" PRIu64 " requests, %d apart\n", next[0],
	       next[1], apart);
	drop_pair(&pair);
}

int main(void)
{
	bed = open_bed();
	creation();
	parent_domains();
	tables();
	traffic(IBV_QPT_RC, IBV_WR_SEND, "send");
	traffic(IBV_QPT_RC, IBV_WR_SEND_WITH_IMM, "send_imm");
	traffic(IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, "rdma_write_imm");
	traffic(IBV_QPT_RC, IBV_WR_RDMA_READ, "rdma_read");
	traffic(IBV_QPT_UC, IBV_WR_SEND, "send");
	traffic(IBV_QPT_UD, IBV_WR_SEND, "send");
	traffic(IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, "send_imm");
	sent_flags(IBV_QPT_RC, IBV_WR_SEND, "send");
	sent_flags(IBV_QPT_RC, IBV_WR_SEND_WITH_IMM, "send_imm");
	sent_flags(IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, "rdma_write_imm");
	sent_flags(IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, "send_imm");
	errors();
	rules();
	arming();
	timestamps(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, take_cycles);
	timestamps(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, take_time);
	timestamps(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
		   take_time);
	locks();
	batches();
	close_bed(&bed);
	return 0;
}
