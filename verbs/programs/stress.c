/*
 * Eight threads do everything at the same time to objects that they share: they post, poll, arm, take and
 * acknowledge events, change states, reset, destroy and create.
 *
 * Each request has a number of its own. One that is signaled completes once, unless its queue pair was
 * reset or destroyed before; none completes after that. What a successful request moved is there.
 * Half of the pairs post by ibv_wr_*, one of them over extended connections. The argument is how many seconds
 * it runs.
 */
#include "bed.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS = 8,
	SLOTS = 8,
	QUEUES = 4,	/* the last one is destroyed and created, too */
	MORTAL = QUEUES - 1,
	EXTENDED = 3,	/* the pair of extended connections */
	LONGEST = 1 << 14,	/* requests of a queue pair until it is made anew */
	STRESS_DEPTH = 32,
	CELL = 64,
	SHARED = 1024,	/* buffers of a shared queue */
	SHARED_DEPTH = 128,
	PATIENCE = 60,
	GRH = 40,
};

enum { NEVER, SIGNALED, QUIET, DONE };

/* A pair of connected queue pairs, or one of datagrams that sends to itself. */
struct slot {
	pthread_rwlock_t lock; /* held to write by who resets or destroys */
	enum ibv_qp_type type;
	bool shared;
	int queue[2];
	struct ibv_qp *qp[2];
	struct ibv_qp_ex *ex; /* of the first one, if it posts by that */
	atomic_uint generation;
	atomic_ulong retired; /* when the generations before ended */
	atomic_uint next;
	atomic_int outstanding[8]; /* of a generation */
	atomic_uint requests[LONGEST]; /* the generation, and the state in the last four bits */
};

static struct bed bed;
static struct slot slots[SLOTS];
static struct ibv_cq *queues[QUEUES];
static struct ibv_cq_ex *stepped;
static pthread_rwlock_t queue_locks[QUEUES];
static struct ibv_comp_channel *channel;

/* A shared receive queue; the second one is of extended connections. */
struct shared {
	struct ibv_srq *queue;
	pthread_mutex_t lock;
	atomic_ulong next;
	atomic_uchar states[SHARED];
};

static struct shared shared[2] = { { .lock = PTHREAD_MUTEX_INITIALIZER }, { .lock = PTHREAD_MUTEX_INITIALIZER } };
static uint32_t extended_number;
static uint8_t *area;
static struct ibv_mr *mr;
static atomic_ulong now = 1;
static atomic_bool over, all_over;
static atomic_ulong completions, flushed, events, asyncs, remade, resets, arrivals, limits;
static atomic_ulong by_functions, aborted, extended_arrivals;
static atomic_ulong acknowledged[QUEUES];

static void fail(const char *what, uint64_t number)
{
	printf("FAULT: %s: %#" PRIx64 "\n", what, number);
	fflush(stdout);
	_exit(3);
}

static uint64_t seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

/* kind 4 bits, thread 4, slot 8, generation 24, number 24 */
enum { SEND = 1, RECEIVE, SHARED_RECEIVE, WRITE, READ, EXTENDED_RECEIVE };

/*
 * Where a thread sends from and writes to by a slot; where a slot receives; buffers of the shared queue. A place
 * to send from may be taken by a later request of the same kind before the first was sent.
 */
static uint64_t *source(int kind, int slot, int thread, uint32_t number)
{
	return (uint64_t *)(area + CELL * ((slot * THREADS + thread) * STRESS_DEPTH * 4 +
					   number % (STRESS_DEPTH * 4))) + kind;
}

enum { SOURCES = SLOTS * THREADS * STRESS_DEPTH * 4 };

static uint64_t *target(int slot, int thread)
{
	return (uint64_t *)(area + CELL * (SOURCES + slot * THREADS + thread));
}

enum { TARGETS = SOURCES + SLOTS * THREADS };

static uint8_t *own_buffer(int slot, uint32_t number)
{
	return area + 2 * CELL * (TARGETS / 2 + slot * 256 + number % 256);
}

enum { OWNS = TARGETS + 2 * SLOTS * 256 };

static uint8_t *shared_buffer(int which, uint64_t number)
{
	return area + CELL * (OWNS + which * SHARED + number % SHARED);
}

enum { AREA = CELL * (OWNS + 2 * SHARED) };

static uint64_t name(int kind, int thread, int slot, uint32_t generation, uint32_t number)
{
	return (uint64_t)kind << 60 | (uint64_t)thread << 56 | (uint64_t)slot << 48 |
	       (uint64_t)(generation & 0xffffff) << 24 | number;
}

/* Notes a request of this generation: its number. The lock is held to read. */
static uint32_t note(struct slot *slot, int state)
{
	uint32_t generation = atomic_load(&slot->generation) & 0xffffff;
	uint32_t number = atomic_fetch_add(&slot->next, 1);

	if (number >= LONGEST)
		fail("number", number);
	atomic_store(&slot->requests[number], generation << 4 | state);
	if (state == SIGNALED)
		atomic_fetch_add(&slot->outstanding[generation % 8], 1);
	return number;
}

/* It was not posted. */
static void forget(struct slot *slot, uint32_t number)
{
	uint32_t generation = atomic_load(&slot->generation) & 0xffffff;

	if ((atomic_exchange(&slot->requests[number], generation << 4 | NEVER) & 15) == SIGNALED)
		atomic_fetch_sub(&slot->outstanding[generation % 8], 1);
}

static void completed(uint64_t id, enum ibv_wc_status status, uint32_t length, unsigned long began)
{
	int kind = id >> 60, thread = id >> 56 & 15;
	struct slot *slot = &slots[id >> 48 & 255];
	uint32_t generation = id >> 24 & 0xffffff, number = id & 0xffffff;

	atomic_fetch_add(&completions, 1);
	if (status == IBV_WC_WR_FLUSH_ERR)
		atomic_fetch_add(&flushed, 1);
	if (kind == SHARED_RECEIVE || kind == EXTENDED_RECEIVE) {
		int which = kind == EXTENDED_RECEIVE;
		uint64_t arrived;

		number = id & 0xffffffff;
		if (atomic_exchange(&shared[which].states[number % SHARED], DONE) != SIGNALED)
			fail("a shared receive completed that was not posted", id);
		if (status)
			return;
		memcpy(&arrived, shared_buffer(which, number), sizeof(arrived));
		if (length != 8 || arrived >> 60 != SEND)
			fail("what a shared receive got", arrived);
		if (which && (arrived >> 48 & 255) != EXTENDED)
			fail("a message of another connection", arrived);
		atomic_fetch_add(which ? &extended_arrivals : &arrivals, 1);
		return;
	}
	if (kind < SEND || kind > READ || slot >= slots + SLOTS)
		fail("a completion of nothing", id);
	if (generation != (atomic_load(&slot->generation) & 0xffffff)) {
		/* Another thread may have ended it after this one polled. */
		if (atomic_load(&slot->retired) < began)
			fail("a completion of a queue pair that is no more", id);
		return;
	}
	unsigned int state = atomic_load(&slot->requests[number]);

	while (state >> 4 == generation &&
	       !atomic_compare_exchange_weak(&slot->requests[number], &state, generation << 4 | DONE))
		;
	if (state >> 4 != generation || (state & 15) == NEVER) {
		if (generation == (atomic_load(&slot->generation) & 0xffffff))
			fail("a request completed that was not posted", id);
		return;
	}
	if ((state & 15) == DONE)
		fail("a request completed twice", id);
	if ((state & 15) == QUIET && !status)
		fail("a request that is not signaled succeeded", id);
	if ((state & 15) == SIGNALED)
		atomic_fetch_sub(&slot->outstanding[generation % 8], 1);
	if (status)
		return;
	if (kind == WRITE && (slot->type == IBV_QPT_RC || slot->type == IBV_QPT_XRC_SEND)) {
		uint64_t there = *(volatile uint64_t *)target(id >> 48 & 255, thread);

		if ((there & 0xffffffffffff) < (id & 0xffffffffffff))
			fail("data that did not arrive", id);
	}
	if (kind == RECEIVE) {
		uint64_t arrived;
		bool datagram = slot->type == IBV_QPT_UD;

		memcpy(&arrived, own_buffer(id >> 48 & 255, number) + (datagram ? GRH : 0), 8);
		if (length != (datagram ? GRH + 8u : 8u) || arrived >> 60 != SEND)
			fail("what a receive got", arrived);
		atomic_fetch_add(&arrivals, 1);
	}
}

static void poll_stepped(int most)
{
	unsigned long began = atomic_load(&now);
	struct ibv_poll_cq_attr attr = {};
	struct { uint64_t id; enum ibv_wc_status status; uint32_t length; } found[16];
	int count = 0, answer = ibv_start_poll(stepped, &attr);

	if (answer == ENOENT)
		return;
	if (answer)
		fail("ibv_start_poll", answer);
	do {
		found[count].id = stepped->wr_id;
		found[count].status = stepped->status;
		found[count].length = stepped->status ? 0 : ibv_wc_read_byte_len(stepped);
		count++;
	} while (count < most && !ibv_next_poll(stepped));
	ibv_end_poll(stepped);
	for (int i = 0; i < count; i++)
		completed(found[i].id, found[i].status, found[i].length, began);
}

static void poll_queue(int at, int most)
{
	struct ibv_wc wc[16];
	unsigned long began;
	int count;

	pthread_rwlock_rdlock(&queue_locks[at]);
	if (queues[at] == ibv_cq_ex_to_cq(stepped)) {
		poll_stepped(most);
	} else {
		began = atomic_load(&now);
		count = ibv_poll_cq(queues[at], most, wc);
		if (count < 0 || count > most)
			fail("ibv_poll_cq", count);
		for (int i = 0; i < count; i++)
			completed(wc[i].wr_id, wc[i].status, wc[i].byte_len, began);
	}
	pthread_rwlock_unlock(&queue_locks[at]);
}

/* Posts the same by the functions of the queue pair, or leaves it. */
static int post_by_functions(struct slot *slot, const struct ibv_send_wr *wr, struct ibv_ah *ah, bool leaves)
{
	struct ibv_qp_ex *ex = slot->ex;

	ibv_wr_start(ex);
	for (; wr; wr = wr->next) {
		ex->wr_id = wr->wr_id;
		ex->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
		if (wr->opcode == IBV_WR_SEND)
			ibv_wr_send(ex);
		else if (wr->opcode == IBV_WR_RDMA_READ)
			ibv_wr_rdma_read(ex, mr->rkey, wr->wr.rdma.remote_addr);
		else
			ibv_wr_rdma_write(ex, mr->rkey, wr->wr.rdma.remote_addr);
		if (ah)
			ibv_wr_set_ud_addr(ex, ah, wr->wr.ud.remote_qpn, QKEY);
		if (slot->type == IBV_QPT_XRC_SEND)
			ibv_wr_set_xrc_srqn(ex, extended_number);
		if (wr->send_flags & IBV_SEND_INLINE)
			ibv_wr_set_inline_data(ex, (void *)(uintptr_t)wr->sg_list->addr, 8);
		else if (wr->wr_id & 1)
			ibv_wr_set_sge_list(ex, 1, wr->sg_list);
		else
			ibv_wr_set_sge(ex, mr->lkey, wr->sg_list->addr, 8);
	}
	if (leaves) {
		ibv_wr_abort(ex);
		atomic_fetch_add(&aborted, 1);
		return ECANCELED;
	}
	atomic_fetch_add(&by_functions, 1);
	return ibv_wr_complete(ex);
}

static void post_sends(int at, int thread, uint32_t random)
{
	struct slot *slot = &slots[at];
	int count = 1 + random % 4, refused;
	struct ibv_send_wr list[4] = {}, *bad = NULL;
	struct ibv_sge sges[4];
	uint32_t numbers[4];
	struct ibv_ah *ah = NULL;
	struct ibv_ah_attr path = path_to_self(&bed);

	pthread_rwlock_rdlock(&slot->lock);
	if (atomic_load(&slot->next) > LONGEST - 256)
		goto out;
	if (slot->type == IBV_QPT_UD) {
		ah = ibv_create_ah(bed.pd, &path);
		if (!ah)
			fail("ibv_create_ah", errno);
	}
	for (int i = 0; i < count; i++, random >>= 4) {
		bool quiet = !(random & 3);
		uint32_t number = note(slot, quiet ? QUIET : SIGNALED);
		int kind = slot->type == IBV_QPT_UD || random & 4 ? SEND :
			   slot->type != IBV_QPT_UC && random & 8 ? READ : WRITE;
		uint64_t id = name(kind, thread, at, atomic_load(&slot->generation), number);

		numbers[i] = number;
		*source(kind, at, thread, number) = id;
		sges[i] = (struct ibv_sge){ (uintptr_t)source(kind, at, thread, number), 8, mr->lkey };
		list[i] = (struct ibv_send_wr){
			.wr_id = id,
			.next = i + 1 < count ? &list[i + 1] : NULL,
			.sg_list = &sges[i],
			.num_sge = 1,
			.opcode = kind == SEND ? IBV_WR_SEND :
				  kind == READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			.send_flags = (quiet ? 0 : IBV_SEND_SIGNALED) |
				      (kind != READ && random & 1 ? IBV_SEND_INLINE : 0),
		};
		if (slot->type == IBV_QPT_UD) {
			list[i].wr.ud.ah = ah;
			list[i].wr.ud.remote_qpn = slot->qp[1]->qp_num;
			list[i].wr.ud.remote_qkey = QKEY;
		} else {
			list[i].wr.rdma.remote_addr = (uintptr_t)target(at, thread);
			list[i].wr.rdma.rkey = mr->rkey;
		}
	}
	if (slot->ex) {
		bool leaves = !(random & 7);

		refused = post_by_functions(slot, list, ah, leaves);
		if (refused && refused != (leaves ? ECANCELED : ENOMEM))
			fail("ibv_wr_complete", refused);
		bad = list; /* all or none */
	} else {
		refused = ibv_post_send(slot->qp[0], list, &bad);
		if (refused && refused != ENOMEM)
			fail("ibv_post_send", refused);
	}
	if (refused && (bad < list || bad >= list + count))
		fail("bad_wr", (uintptr_t)bad);
	if (refused)
		for (int i = bad - list; i < count; i++)
			forget(slot, numbers[i]);
	if (ah && ibv_destroy_ah(ah))
		fail("ibv_destroy_ah", errno);
out:
	pthread_rwlock_unlock(&slot->lock);
}

static void post_receives(int at, int count)
{
	struct slot *slot = &slots[at];

	pthread_rwlock_rdlock(&slot->lock);
	while (!slot->shared && count-- && atomic_load(&slot->next) < LONGEST - 256) {
		uint32_t number = note(slot, SIGNALED);
		uint8_t *buffer = own_buffer(at, number);
		struct ibv_sge sge = { (uintptr_t)buffer, 2 * CELL, mr->lkey };
		struct ibv_recv_wr *bad, wr = {
			.wr_id = name(RECEIVE, 0, at, atomic_load(&slot->generation), number),
			.sg_list = &sge,
			.num_sge = 1,
		};

		int refused = ibv_post_recv(slot->qp[1], &wr, &bad);
		if (refused) {
			if (refused != ENOMEM || bad != &wr)
				fail("ibv_post_recv", refused);
			forget(slot, number);
			break;
		}
	}
	pthread_rwlock_unlock(&slot->lock);
}

static void post_shared(int which, int count)
{
	struct shared *to = &shared[which];
	uint64_t kind = which ? EXTENDED_RECEIVE : SHARED_RECEIVE;

	while (count--) {
		/* One number at a time, so that a refused one is given back. */
		pthread_mutex_lock(&to->lock);
		uint32_t number = atomic_load(&to->next);
		struct ibv_sge sge = { (uintptr_t)shared_buffer(which, number), CELL, mr->lkey };
		struct ibv_recv_wr *bad, wr = { .wr_id = kind << 60 | number, .sg_list = &sge, .num_sge = 1 };
		unsigned char before = atomic_exchange(&to->states[number % SHARED], SIGNALED);
		int refused = ibv_post_srq_recv(to->queue, &wr, &bad);

		if (refused)
			atomic_store(&to->states[number % SHARED], before);
		else
			atomic_store(&to->next, number + 1);
		pthread_mutex_unlock(&to->lock);
		if (refused && (refused != ENOMEM || bad != &wr))
			fail("ibv_post_srq_recv", refused);
		if (refused)
			break;
	}
}

static void make_pair_of(int at, uint32_t random)
{
	struct slot *slot = &slots[at];

	for (int end = 0; end < 2; end++) {
		slot->queue[end] = at == SLOTS - 1 ? MORTAL : (random >> 4 * end) % MORTAL;
		bool target = end && slot->type == IBV_QPT_XRC_SEND;
		bool functions = !end && at % 2;
		struct ibv_qp_init_attr_ex attr = {
			.qp_context = slot,
			.send_cq = queues[slot->queue[end]],
			.recv_cq = slot->type == IBV_QPT_XRC_SEND ? NULL : queues[slot->queue[end]],
			.srq = end && slot->shared && !target ? shared[0].queue : NULL,
			.cap = { STRESS_DEPTH, STRESS_DEPTH, 1, 1, 32 },
			.qp_type = target ? IBV_QPT_XRC_RECV : slot->type,
			.comp_mask = target ? IBV_QP_INIT_ATTR_XRCD :
				     IBV_QP_INIT_ATTR_PD | (functions ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
			.pd = bed.pd,
			.xrcd = bed.domain,
			.send_ops_flags = functions ? operations(slot->type) : 0,
		};

		if (slot->type == IBV_QPT_XRC_SEND)
			attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
		slot->qp[end] = at % 4 || functions || target ? ibv_create_qp_ex(bed.context, &attr) :
			ibv_create_qp(bed.pd, (struct ibv_qp_init_attr *)&attr);
		if (!slot->qp[end])
			fail("ibv_create_qp", errno);
	}
	slot->ex = at % 2 ? ibv_qp_to_qp_ex(slot->qp[0]) : NULL;
	if (at % 2 && !slot->ex)
		fail("ibv_qp_to_qp_ex", at);
}

static void connect_slot(int at)
{
	struct ibv_qp **qp = slots[at].qp;
	bool target = qp[1]->qp_type == IBV_QPT_XRC_RECV;

	if (to_init(qp[0]) || to_init(qp[1]) || to_rtr(&bed, qp[0], qp[1]->qp_num) ||
	    to_rtr(&bed, qp[1], qp[0]->qp_num) || to_rts(qp[0]) || (!target && to_rts(qp[1])))
		fail("to connect", errno);
	if (qp[0]->state != IBV_QPS_RTS || qp[1]->state != (target ? IBV_QPS_RTR : IBV_QPS_RTS))
		fail("state", qp[0]->state);
}

/* Everything that is signaled comes, once both ends are in error. Its lock is held to write. */
static void drain(struct slot *slot)
{
	uint64_t start = seconds();

	if (to_error(slot->qp[0]) || to_error(slot->qp[1]))
		fail("to error", errno);
	uint32_t generation = atomic_load(&slot->generation) & 0xffffff;

	while (atomic_load(&slot->outstanding[generation % 8])) {
		poll_queue(slot->queue[0], 8);
		poll_queue(slot->queue[1], 8);
		if (seconds() - start > PATIENCE)
			fail("completions that do not come", atomic_load(&slot->outstanding[generation % 8]));
	}
}

static void end_generation(struct slot *slot)
{
	atomic_store(&slot->retired, atomic_fetch_add(&now, 1));
	atomic_store(&slot->outstanding[(atomic_load(&slot->generation) + 1) % 8], 0);
	atomic_fetch_add(&slot->generation, 1);
	atomic_store(&slot->next, 0);
}

static void make_mortal(void)
{
	queues[MORTAL] = ibv_create_cq(bed.context, 1000, &queues[MORTAL], channel, 0);
	if (!queues[MORTAL] || ibv_req_notify_cq(queues[MORTAL], 0))
		fail("ibv_create_cq", errno);
	atomic_store(&acknowledged[MORTAL], 0);
}

static void renew(int at, uint32_t random, bool destroys, bool last)
{
	struct slot *slot = &slots[at];

	pthread_rwlock_wrlock(&slot->lock);
	if (random & 1)
		drain(slot);
	if (destroys) {
		int first = random >> 1 & 1;

		if (ibv_destroy_qp(slot->qp[first]) || ibv_destroy_qp(slot->qp[!first]))
			fail("ibv_destroy_qp", errno);
		end_generation(slot);
		atomic_fetch_add(&remade, 1);
		if (at == SLOTS - 1) {
			pthread_rwlock_wrlock(&queue_locks[MORTAL]);
			if (ibv_destroy_cq(queues[MORTAL]))
				fail("ibv_destroy_cq", errno);
			if (!last)
				make_mortal();
			pthread_rwlock_unlock(&queue_locks[MORTAL]);
		}
		if (!last)
			make_pair_of(at, random >> 8);
	} else {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

		if (ibv_destroy_cq(queues[slot->queue[0]]) != EBUSY)
			fail("a queue was destroyed that is in use", slot->queue[0]);
		if (slot->shared && at != EXTENDED && ibv_destroy_srq(shared[0].queue) != EBUSY)
			fail("a shared queue was destroyed that is in use", at);
		if (ibv_modify_qp(slot->qp[0], &attr, IBV_QP_STATE) ||
		    ibv_modify_qp(slot->qp[1], &attr, IBV_QP_STATE))
			fail("to RESET", errno);
		end_generation(slot);
		atomic_fetch_add(&resets, 1);
	}
	if (!last)
		connect_slot(at);
	pthread_rwlock_unlock(&slot->lock);
}

static void err(int at, int end)
{
	pthread_rwlock_rdlock(&slots[at].lock);
	if (to_error(slots[at].qp[end]))
		fail("to error", errno);
	pthread_rwlock_unlock(&slots[at].lock);
}

static void other_objects(void)
{
	uint8_t *memory = aligned_alloc(4096, 8192);
	struct ibv_mr *region = ibv_reg_mr(bed.pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_pd *pd = ibv_alloc_pd(bed.context);
	struct ibv_srq_init_attr attr = { .attr = { 8, 1, 0 } };
	struct ibv_srq *queue = pd ? ibv_create_srq(pd, &attr) : NULL;
	struct ibv_comp_channel *other = ibv_create_comp_channel(bed.context);
	struct ibv_cq *cq = other ? ibv_create_cq(bed.context, 10, NULL, other, 0) : NULL;

	if (!region || !queue || !cq)
		fail("an object", errno);
	if (ibv_dealloc_pd(pd) != EBUSY)
		fail("a domain was freed that is in use", 0);
	if (ibv_destroy_comp_channel(other) != EBUSY)
		fail("a channel was destroyed that is in use", 0);
	if (ibv_dereg_mr(region) || ibv_destroy_srq(queue) || ibv_dealloc_pd(pd) ||
	    ibv_destroy_cq(cq) || ibv_destroy_comp_channel(other))
		fail("to destroy", errno);
	free(memory);
}

static void *work(void *argument)
{
	int thread = (intptr_t)argument;
	uint64_t state = 0x9e3779b97f4a7c15u * (thread + 1);

	while (!atomic_load(&over)) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		uint32_t random = state >> 32;
		int at = random % SLOTS, act = random / SLOTS % 256;

		random /= SLOTS * 256;
		state ^= state >> 29;
		if (act < 100) {
			post_sends(at, thread, random);
		} else if (act < 200) {
			poll_queue(random % QUEUES, 1 + random / QUEUES % 16);
		} else if (act < 225) {
			post_receives(at, 1 + random % 8);
		} else if (act < 245) {
			post_shared(random / 8 % 2, 1 + random % 8);
		} else if (act < 248) {
			pthread_rwlock_rdlock(&queue_locks[MORTAL]);
			if (ibv_req_notify_cq(queues[random & 1 ? MORTAL : 0], random & 2))
				fail("ibv_req_notify_cq", errno);
			pthread_rwlock_unlock(&queue_locks[MORTAL]);
		} else if (act < 249) {
			err(at, random & 1);
		} else if (act < 251) {
			renew(at, random, true, false);
		} else if (act < 253) {
			renew(at, random, false, false);
		} else if (act < 254) {
			other_objects();
		} else if (act < 255) {
			struct ibv_srq_attr attr = { .srq_limit = random % SHARED_DEPTH };

			if (ibv_modify_srq(shared[random / SHARED_DEPTH % 2].queue, &attr, IBV_SRQ_LIMIT))
				fail("ibv_modify_srq", errno);
		} else {
			struct ibv_qp_attr attr;
			struct ibv_qp_init_attr init;

			pthread_rwlock_rdlock(&slots[at].lock);
			if (ibv_query_qp(slots[at].qp[0], &attr, IBV_QP_STATE, &init) ||
			    init.send_cq != slots[at].qp[0]->send_cq)
				fail("ibv_query_qp", errno);
			pthread_rwlock_unlock(&slots[at].lock);
			if (ibv_resize_cq(queues[2], 2000 + random % 1000))
				fail("ibv_resize_cq", errno);
		}
	}
	return NULL;
}

/* Takes events of the queues, and acknowledges them: some one by one, some together. */
static void *take(void *argument)
{
	unsigned int kept = 0;

	(void)argument;
	while (!atomic_load(&all_over)) {
		struct pollfd file = { .fd = channel->fd, .events = POLLIN };
		struct ibv_cq *cq;
		void *context;

		if (poll(&file, 1, 20) == 1) {
			/* Its queue may have been destroyed meanwhile. */
			if (ibv_get_cq_event(channel, &cq, &context)) {
				if (errno != EAGAIN)
					fail("ibv_get_cq_event", errno);
				continue;
			}
			atomic_fetch_add(&events, 1);
			if (context == &queues[0]) {
				kept++;
			} else if (context == &queues[MORTAL]) {
				ibv_ack_cq_events(cq, 1);
			} else {
				fail("an event of nothing", (uintptr_t)context);
			}
			poll_queue(context == &queues[0] ? 0 : MORTAL, 16);
		}
		if (kept > 7) {
			ibv_ack_cq_events(queues[0], kept);
			atomic_fetch_add(&acknowledged[0], kept);
			kept = 0;
		}
	}
	ibv_ack_cq_events(queues[0], kept);
	atomic_fetch_add(&acknowledged[0], kept);
	return NULL;
}

static void *hear(void *argument)
{
	(void)argument;
	while (!atomic_load(&all_over)) {
		struct pollfd file = { .fd = bed.context->async_fd, .events = POLLIN };
		struct ibv_async_event event;

		if (poll(&file, 1, 20) != 1)
			continue;
		if (ibv_get_async_event(bed.context, &event)) {
			if (errno != EAGAIN)
				fail("ibv_get_async_event", errno);
			continue;
		}
		if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
			if (event.element.srq != shared[0].queue && event.element.srq != shared[1].queue)
				fail("an event of nothing", 0);
			atomic_fetch_add(&limits, 1);
		} else if (event.event_type == IBV_EVENT_CQ_ERR ||
			   event.event_type == IBV_EVENT_SRQ_ERR) {
			fail("event", event.event_type);
		}
		atomic_fetch_add(&asyncs, 1);
		ibv_ack_async_event(&event);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int time = count > 1 ? atoi(arguments[1]) : 4;
	struct ibv_srq_init_attr own = { .attr = { SHARED_DEPTH, 1, 0 } };
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex extended = {
		.attr = { SHARED_DEPTH, 1, 0 }, .srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
	};
	struct ibv_cq_init_attr_ex attr = { .cqe = 3000, .wc_flags = IBV_WC_STANDARD_FLAGS };
	pthread_t threads[THREADS], taker, hearer;
	pthread_rwlockattr_t fair;

	bed = open_bed();
	pthread_rwlockattr_init(&fair);
	pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	area = aligned_alloc(4096, (AREA + 4095) & ~4095);
	must(area, "memory");
	memset(area, 0, AREA);
	mr = ibv_reg_mr(bed.pd, area, AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_READ);
	must(mr, "ibv_reg_mr");
	channel = ibv_create_comp_channel(bed.context);
	must(channel, "ibv_create_comp_channel");
	must(!fcntl(channel->fd, F_SETFL, O_NONBLOCK) && !fcntl(bed.context->async_fd, F_SETFL, O_NONBLOCK),
	     "fcntl");
	for (int i = 0; i < QUEUES; i++)
		pthread_rwlock_init(&queue_locks[i], &fair);
	queues[0] = ibv_create_cq(bed.context, 3000, &queues[0], channel, 0);
	stepped = ibv_create_cq_ex(bed.context, &attr);
	must(stepped, "ibv_create_cq_ex");
	queues[1] = ibv_cq_ex_to_cq(stepped);
	queues[2] = ibv_create_cq(bed.context, 3000, NULL, NULL, 0);
	must(queues[0] && queues[2], "ibv_create_cq");
	make_mortal();
	shared[0].queue = ibv_create_srq(bed.pd, &own);
	must(shared[0].queue, "ibv_create_srq");
	bed.domain = ibv_open_xrcd(bed.context, &domain);
	must(bed.domain, "ibv_open_xrcd");
	extended.pd = bed.pd;
	extended.xrcd = bed.domain;
	extended.cq = queues[2];
	shared[1].queue = ibv_create_srq_ex(bed.context, &extended);
	must(shared[1].queue && !ibv_get_srq_num(shared[1].queue, &extended_number), "ibv_create_srq_ex");
	for (int i = 0; i < SLOTS; i++) {
		pthread_rwlock_init(&slots[i].lock, &fair);
		slots[i].type = i == 2 ? IBV_QPT_UD : i == EXTENDED ? IBV_QPT_XRC_SEND : i == 5 ? IBV_QPT_UC : IBV_QPT_RC;
		slots[i].shared = i == 1 || i == 4 || i == EXTENDED || i == SLOTS - 1;
		make_pair_of(i, i * 0x11);
		connect_slot(i);
	}
	must(!pthread_create(&taker, NULL, take, NULL), "a thread");
	must(!pthread_create(&hearer, NULL, hear, NULL), "a thread");
	for (intptr_t i = 0; i < THREADS; i++)
		must(!pthread_create(&threads[i], NULL, work, (void *)i), "a thread");
	struct timespec rest = { .tv_sec = time };
	nanosleep(&rest, NULL);
	atomic_store(&over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < SLOTS; i++)
		renew(i, 1, true, true);
	atomic_store(&all_over, true);
	pthread_join(taker, NULL);
	pthread_join(hearer, NULL);
	must(queues[0]->comp_events_completed == atomic_load(&acknowledged[0]), "acknowledged");
	for (int i = 0; i < MORTAL; i++)
		must(i == 2 || !ibv_destroy_cq(queues[i]), "ibv_destroy_cq");
	must(!ibv_destroy_srq(shared[0].queue) && !ibv_destroy_srq(shared[1].queue), "ibv_destroy_srq");
	must(!ibv_destroy_cq(queues[2]), "ibv_destroy_cq");
	must(!ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	close_bed(&bed);
	fprintf(stderr,
		"completions %lu, flushed %lu, arrivals %lu, events %lu, asynchronous %lu, limits %lu, "
		"made %lu, reset %lu, by functions %lu, aborted %lu, arrivals of extended connections %lu\n",
		completions, flushed, arrivals, events, asyncs, limits, remade, resets, by_functions, aborted,
		extended_arrivals);
	printf("each request was completed, flushed or dropped: %d\n",
	       completions > 100 && flushed && arrivals && events && remade && resets && by_functions &&
		       aborted && extended_arrivals);
	return 0;
}
