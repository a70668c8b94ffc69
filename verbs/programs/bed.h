/*
 * What the programs here have in common: a device, memory, connected queue pairs.
 *
 * Each program prints what a caller of the C API sees, a line each, and nothing that differs from run to
 * run. It is run over rdma-core's libraries and over ours, and both must print the same.
 */
#ifndef BED_H
#define BED_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEPTH = 64,
	ENTRIES = 256,
	SGES = 2,
	INLINE_BYTES = 64,
	HALF = 4096,
	QKEY = 0x11111111,
};

/* `from` is what requests send; `to` is where data arrives. */
struct bed {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *from, *to;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int domain_file;
	struct ibv_xrcd *domain;
};

/* One end sends by its queue pair; the other receives, from a shared queue on extended connections. */
struct pair {
	enum ibv_qp_type type;
	struct ibv_cq_ex *cq, *peer_cq;
	struct ibv_qp *qp, *peer;
	struct ibv_qp_ex *ex;
	struct ibv_srq *srq;
	uint32_t srqn;
	struct ibv_ah *ah;
};

static inline void must(bool holds, const char *what)
{
	if (!holds) {
		printf("cannot go on: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* The name of an errno: numbers say nothing to who reads the output. */
static inline const char *name_of(int number)
{
	return number ? strerrorname_np(number < 0 ? -number : number) : "0";
}

static inline const char *type_name(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC: return "RC";
	case IBV_QPT_UC: return "UC";
	case IBV_QPT_UD: return "UD";
	default: return "XRC";
	}
}

/* Every bit that the driver can read: which of two ends writes makes no difference to a program. */
static inline struct bed open_bed(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct bed bed = {};

	setvbuf(stdout, NULL, _IOLBF, 0);
	must(list && list[0], "a device");
	bed.context = ibv_open_device(list[0]);
	must(bed.context, "ibv_open_device");
	ibv_free_device_list(list);
	bed.pd = ibv_alloc_pd(bed.context);
	must(bed.pd, "ibv_alloc_pd");
	bed.from = aligned_alloc(4096, 2 * HALF);
	must(bed.from, "memory");
	memset(bed.from, 0, 2 * HALF);
	bed.to = bed.from + HALF;
	for (int i = 0; i < HALF; i++)
		bed.from[i] = i * 7 + 13;
	bed.mr = ibv_reg_mr(bed.pd, bed.from, 2 * HALF, access);
	must(bed.mr, "ibv_reg_mr");
	must(!ibv_query_port(bed.context, 1, &bed.port), "ibv_query_port");
	must(!ibv_query_gid(bed.context, 1, 0, &bed.gid), "ibv_query_gid");
	return bed;
}

static inline struct ibv_cq_ex *make_cq(const struct bed *bed, struct ibv_comp_channel *channel,
					uint64_t wc_flags)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = ENTRIES, .channel = channel, .wc_flags = wc_flags };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(bed->context, &attr);

	must(cq, "ibv_create_cq_ex");
	return cq;
}

static inline struct ibv_ah_attr path_to_self(const struct bed *bed)
{
	return (struct ibv_ah_attr){
		.dlid = bed->port.lid,
		.port_num = 1,
		.is_global = bed->port.link_layer == IBV_LINK_LAYER_ETHERNET,
		.grh = { .dgid = bed->gid, .hop_limit = 1 },
	};
}

static inline int to_init(struct ibv_qp *qp)
{
	bool datagram = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = qp->qp_type == IBV_QPT_UC ?
			IBV_ACCESS_REMOTE_WRITE :
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static inline int to_rtr(const struct bed *bed, struct ibv_qp *qp, uint32_t dest)
{
	bool reliable = qp->qp_type != IBV_QPT_UC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = path_to_self(bed),
	};

	if (qp->qp_type == IBV_QPT_UD)
		return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN |
				     (reliable && qp->qp_type != IBV_QPT_XRC_SEND ?
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
}

static inline int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* The operations that C's provider has on a transport. */
static inline uint64_t operations(enum ibv_qp_type type)
{
	uint64_t datagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	uint64_t writes = datagram | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV |
			  IBV_QP_EX_WITH_BIND_MW;

	if (type == IBV_QPT_UD)
		return datagram;
	if (type == IBV_QPT_UC)
		return writes;
	return writes | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
}

static inline struct ibv_qp *make_qp(const struct bed *bed, enum ibv_qp_type type, struct ibv_cq *cq,
				     uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = type == IBV_QPT_XRC_SEND ? NULL : cq,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = type == IBV_QPT_XRC_SEND ? 0 : DEPTH,
			.max_send_sge = SGES,
			.max_recv_sge = type == IBV_QPT_XRC_SEND ? 0 : 1,
			.max_inline_data = INLINE_BYTES,
		},
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = bed->pd,
		.send_ops_flags = ops,
	};

	return ibv_create_qp_ex(bed->context, &attr);
}

/* The receiving end of extended connections, with the shared queue that its messages name. */
static inline void make_target(struct bed *bed, struct pair *pair)
{
	struct ibv_srq_init_attr_ex srq = {
		.attr = { DEPTH, 1, 0 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = bed->pd,
		.cq = ibv_cq_ex_to_cq(pair->peer_cq),
	};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = 0100, /* O_CREAT */
	};

	if (!bed->domain) {
		bed->domain = ibv_open_xrcd(bed->context, &domain);
		must(bed->domain, "ibv_open_xrcd");
	}
	srq.xrcd = target.xrcd = bed->domain;
	pair->srq = ibv_create_srq_ex(bed->context, &srq);
	must(pair->srq, "ibv_create_srq_ex");
	must(!ibv_get_srq_num(pair->srq, &pair->srqn), "ibv_get_srq_num");
	pair->peer = ibv_create_qp_ex(bed->context, &target);
	must(pair->peer, "ibv_create_qp_ex of a target");
}

static inline struct pair make_pair(struct bed *bed, enum ibv_qp_type type, uint64_t ops)
{
	struct pair pair = { .type = type };
	struct ibv_ah_attr path = path_to_self(bed);

	pair.cq = make_cq(bed, NULL, IBV_WC_STANDARD_FLAGS);
	pair.peer_cq = make_cq(bed, NULL, IBV_WC_STANDARD_FLAGS);
	pair.qp = make_qp(bed, type, ibv_cq_ex_to_cq(pair.cq), ops);
	must(pair.qp, "ibv_create_qp_ex");
	pair.ex = ibv_qp_to_qp_ex(pair.qp);
	if (type == IBV_QPT_XRC_SEND)
		make_target(bed, &pair);
	else
		pair.peer = make_qp(bed, type, ibv_cq_ex_to_cq(pair.peer_cq), 0);
	must(pair.peer, "ibv_create_qp_ex of the peer");
	if (type == IBV_QPT_UD) {
		pair.ah = ibv_create_ah(bed->pd, &path);
		must(pair.ah, "ibv_create_ah");
	}
	return pair;
}

static inline void connect_pair(const struct bed *bed, struct pair *pair)
{
	must(!to_init(pair->qp), "INIT");
	must(!to_init(pair->peer), "INIT of the peer");
	must(!to_rtr(bed, pair->qp, pair->peer->qp_num), "RTR");
	must(!to_rtr(bed, pair->peer, pair->qp->qp_num), "RTR of the peer");
	must(!to_rts(pair->qp), "RTS");
	if (pair->type != IBV_QPT_XRC_SEND)
		must(!to_rts(pair->peer), "RTS of the peer");
}

static inline void drop_pair(struct pair *pair)
{
	must(!ibv_destroy_qp(pair->qp), "ibv_destroy_qp");
	must(!ibv_destroy_qp(pair->peer), "ibv_destroy_qp of the peer");
	if (pair->srq)
		must(!ibv_destroy_srq(pair->srq), "ibv_destroy_srq");
	if (pair->ah)
		must(!ibv_destroy_ah(pair->ah), "ibv_destroy_ah");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(pair->cq)), "ibv_destroy_cq");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(pair->peer_cq)), "ibv_destroy_cq of the peer");
}

static inline void close_bed(struct bed *bed)
{
	if (bed->domain)
		must(!ibv_close_xrcd(bed->domain), "ibv_close_xrcd");
	must(!ibv_dereg_mr(bed->mr), "ibv_dereg_mr");
	must(!ibv_dealloc_pd(bed->pd), "ibv_dealloc_pd");
	must(!ibv_close_device(bed->context), "ibv_close_device");
	free(bed->from);
}

/* A receive request into `to`. */
static inline int post_receive(const struct bed *bed, struct pair *pair, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)bed->to, HALF, bed->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return pair->srq ? ibv_post_srq_recv(pair->srq, &wr, &bad) :
			   ibv_post_recv(pair->peer, &wr, &bad);
}

/* The first completion of a queue, with the poll that it was found in left open. */
static inline void start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	int found;

	while ((found = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	if (found)
		printf("ibv_start_poll: %s\n", name_of(found));
	must(!found, "ibv_start_poll");
}

static inline int poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int count;

	memset(wc, 0, sizeof(*wc));
	while (!(count = ibv_poll_cq(cq, 1, wc)))
		;
	return count;
}

/* Writes over memory that was freed, for who still uses it. */
static inline void spoil(void)
{
	static void *blocks[64][64];

	for (int size = 0; size < 64; size++)
		for (int i = 0; i < 64; i++) {
			blocks[size][i] = malloc(64 * (size + 1));
			must(blocks[size][i], "memory");
			memset(blocks[size][i], 0xff, 64 * (size + 1));
		}
	for (int size = 0; size < 64; size++)
		for (int i = 0; i < 64; i++)
			free(blocks[size][i]);
}

#endif
