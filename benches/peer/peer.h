/* rdma-core's queues, as the operations of the benchmark use them. */
#ifndef PEER_H
#define PEER_H

#include <infiniband/verbs.h>

#include "bench.h"

enum {
	BATCH = 16,
	DEPTH = 256,
	ENTRIES = 1024,
	RECEIVES = 128,
	MEMORY = 1 << 16,
	PIECE = 64,
};

/* Options for the creation of queues. */
struct options {
	enum ibv_qp_type type;
	/* Whether they are posted to by ibv_wr_* and polled by ibv_start_poll. */
	int extended;
	int single_threaded;
	/* Whether the other end receives from a shared queue. */
	int shared_receive;
	uint32_t depth, entries;
	/* Whether requests can configure memory keys. */
	int mkey_configure;
};

/* A connected pair of queue pairs. */
struct state {
	const struct bench_machine *machine;
	struct options options;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq, *peer_cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *peer;
	struct ibv_qp_ex *qp_ex;
	/* Destination of datagrams. */
	struct ibv_ah *ah;
	uint32_t receives;
	uint32_t rkey;
	uint64_t remotes[ROUND];
	struct ibv_sge sges[ROUND];
	uint8_t bytes[PIECE];
	uint32_t length;
	uint64_t sum;
	struct ibv_sge inline_sge;
	struct ibv_send_wr list[ROUND];
	struct ibv_recv_wr receive[ROUND];
};

/* Q_Key of the datagram queue pairs. */
#define QKEY 0x11111111

struct ibv_context *open_device(const char *name);
struct state *open_state(const struct bench_machine *machine, struct options options);
struct ibv_qp *create_qp(const struct state *s, struct ibv_cq *cq, int extended);
void connect_qp(const struct state *s, struct ibv_qp *qp, uint32_t dest);

/* Work before and after the measured operations; it uses none of them. */
void post(struct state *s, uint64_t wr_id, enum ibv_wr_opcode opcode);
/* One signaled request of the length, inline (post.c). */
int peer_post_send_inline8(struct ibv_qp *qp, uint64_t remote, uint32_t rkey, void *bytes,
			   uint32_t length, uint64_t wr_id);
int drain(struct ibv_cq *cq);
void complete(struct state *s, uint32_t count);
void refill(struct state *s);

void *open_plain(const struct bench_machine *machine, int single_threaded);
void *open_extended(const struct bench_machine *machine, int single_threaded);

void nothing(void *state, uint64_t first, uint32_t calls);
void posted(void *state, uint32_t calls);
void posted_batches(void *state, uint32_t calls);
void prepare_completions(void *state, uint64_t first, uint32_t calls);
void polled(void *state, uint32_t calls);

#define CALLS(name, good, operation) \
	BENCH_CALLS(name, good, operation, struct state *s = state)

/* Prefix of the names in the results: the libibverbs that this is compiled for. */
#ifdef OVER_OURS
#define WHO "mlx5-verbs-"
#else
#define WHO "rdma-core-"
#endif

#define CASE(name, who, operation, calls, operations, open, prepare, finish)        \
	{ name, WHO who, "peer_" #operation, calls, operations, open,   \
	  prepare, calls_##operation, finish, 0 }

#endif
