/* Opens a device, and creates connected queues. */
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	must(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return context;
}

static struct ibv_cq *create_cq(const struct state *s, int extended)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = s->options.entries,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = s->options.single_threaded ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
	};
	struct ibv_cq *cq;

	if (!extended) {
		cq = ibv_create_cq(s->context, s->options.entries, NULL, NULL, 0);
	} else {
		struct ibv_cq_ex *cq_ex = ibv_create_cq_ex(s->context, &attr);

		must(cq_ex != NULL, "ibv_create_cq_ex");
		cq = ibv_cq_ex_to_cq(cq_ex);
	}
	must(cq != NULL, "ibv_create_cq");
	return cq;
}

struct ibv_qp *create_qp(const struct state *s, struct ibv_cq *cq, int extended)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = s->options.depth,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 28,
		},
		.qp_type = s->options.type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = s->pd,
	};
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
	};
	struct ibv_qp *qp;

	if (extended) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
		if (attr.qp_type == IBV_QPT_RC)
			attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE |
					       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
					       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
	}
	attr.srq = cq == s->peer_cq ? s->srq : NULL;
	if (attr.srq)
		attr.cap.max_recv_wr = 0;
	if (extended && s->options.mkey_configure) {
		/* A request that configures a key is inline as a whole. */
		attr.cap.max_inline_data = 512;
		qp = mlx5dv_create_qp(s->context, &attr, &dv_attr);
	} else {
		qp = ibv_create_qp_ex(s->context, &attr);
	}
	must(qp != NULL, "ibv_create_qp_ex");
	return qp;
}

void connect_qp(const struct state *s, struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	must(!ibv_query_port(s->context, 1, &port), "ibv_query_port");
	must(!ibv_query_gid(s->context, 1, 0, &gid), "ibv_query_gid");
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "ibv_modify_qp to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.dlid = port.lid,
			.port_num = 1,
			.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET,
			.grh = { .dgid = gid, .hop_limit = 1 },
		},
	};
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "ibv_modify_qp to RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	     "ibv_modify_qp to RTS");
}

/* Brings a datagram queue pair to its ready state. */
static void ready_ud(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	must(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	     "ibv_modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "ibv_modify_qp to RTS");
}

static struct ibv_ah *create_ah(const struct state *s)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_ah_attr attr = { .port_num = 1 };
	struct ibv_ah *ah;

	must(!ibv_query_port(s->context, 1, &port), "ibv_query_port");
	must(!ibv_query_gid(s->context, 1, 0, &gid), "ibv_query_gid");
	attr.dlid = port.lid;
	attr.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	attr.grh.dgid = gid;
	attr.grh.hop_limit = 1;
	ah = ibv_create_ah(s->pd, &attr);
	must(ah != NULL, "ibv_create_ah");
	return ah;
}

/*
 * The provider reads MLX5_SINGLE_THREADED when a device is opened, and applies it to the queues
 * that are created on it.
 */
struct state *open_state(const struct bench_machine *machine, struct options options)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct state *s = calloc(1, sizeof *s);
	void *memory = aligned_alloc(4096, MEMORY);

	must(s && memory, "memory");
	memset(memory, 0, MEMORY);
	must(!setenv("MLX5_SINGLE_THREADED", options.single_threaded ? "1" : "0", 1), "setenv");
	s->machine = machine;
	s->options = options;
	s->context = open_device(machine->device);
	s->pd = ibv_alloc_pd(s->context);
	must(s->pd != NULL, "ibv_alloc_pd");
	s->mr = ibv_reg_mr(s->pd, memory, MEMORY, access);
	must(s->mr != NULL, "ibv_reg_mr");
	s->cq = create_cq(s, options.extended);
	s->peer_cq = create_cq(s, 0);
	s->cq_ex = options.extended ? (struct ibv_cq_ex *)s->cq : NULL;
	s->qp = create_qp(s, s->cq, options.extended);
	if (options.shared_receive) {
		struct ibv_srq_init_attr attr = { .attr = { DEPTH, 1, 0 } };

		s->srq = ibv_create_srq(s->pd, &attr);
		must(s->srq != NULL, "ibv_create_srq");
	}
	s->peer = create_qp(s, s->peer_cq, 0);
	s->qp_ex = options.extended ? ibv_qp_to_qp_ex(s->qp) : NULL;
	if (options.type == IBV_QPT_UD) {
		ready_ud(s->qp);
		ready_ud(s->peer);
		s->ah = create_ah(s);
	} else {
		connect_qp(s, s->qp, s->peer->qp_num);
		connect_qp(s, s->peer, s->qp->qp_num);
	}
	s->rkey = s->mr->rkey;
	s->length = 8;
	for (int i = 0; i < ROUND; i++) {
		s->remotes[i] = (uintptr_t)memory + i * PIECE;
		s->sges[i] = (struct ibv_sge){ (uintptr_t)memory + i * PIECE, PIECE, s->mr->lkey };
	}
	s->inline_sge = (struct ibv_sge){ (uintptr_t)s->bytes, s->length, 0 };
	refill(s);
	return s;
}

void *open_plain(const struct bench_machine *machine, int single_threaded)
{
	struct options options = { IBV_QPT_RC, 0, single_threaded, 0, DEPTH, ENTRIES, 0 };

	return open_state(machine, options);
}

void *open_extended(const struct bench_machine *machine, int single_threaded)
{
	struct options options = { IBV_QPT_RC, 1, single_threaded, 0, DEPTH, ENTRIES, 0 };

	return open_state(machine, options);
}
