/* Sends and receives packets in batches of 32, one packet per request. */
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum {
	BURST = 32,
	PACKET = 64,
	POSTED = 128,
};

/* A queue pair that sends packets to itself. */
struct packets {
	const struct bench_machine *machine;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_cq_ex *send_cq_ex, *recv_cq_ex;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;
	struct ibv_flow *rule;
	uint8_t *memory;
	struct ibv_sge frames[BURST], buffers[ROUND];
	struct ibv_recv_wr receives[ROUND];
	uint64_t sum;
};

OPERATION int peer_post_send_packets(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_sge *frames,
				     uint64_t wr_id)
{
	struct ibv_send_wr wrs[BURST], *bad;
	struct ibv_wc wc;
	int done = ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS;

	for (int i = 0; i < BURST; i++) {
		wrs[i].wr_id = wr_id + i;
		wrs[i].next = i + 1 < BURST ? &wrs[i + 1] : NULL;
		wrs[i].sg_list = &frames[i];
		wrs[i].num_sge = 1;
		wrs[i].opcode = IBV_WR_SEND;
		wrs[i].send_flags = IBV_SEND_IP_CSUM;
	}
	wrs[BURST - 1].send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(qp, wrs, &bad) ? -1 : done;
}

OPERATION int peer_wr_packets(struct ibv_qp_ex *qp, struct ibv_cq_ex *cq, const struct ibv_sge *frames,
			      uint64_t wr_id)
{
	struct ibv_poll_cq_attr attr = {};
	int done = 0;

	if (!ibv_start_poll(cq, &attr)) {
		done = cq->status == IBV_WC_SUCCESS;
		ibv_end_poll(cq);
	}
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_IP_CSUM;
	for (int i = 0; i < BURST - 1; i++) {
		qp->wr_id = wr_id + i;
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, frames[i].lkey, frames[i].addr, frames[i].length);
	}
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_IP_CSUM | IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, frames[BURST - 1].lkey, frames[BURST - 1].addr, frames[BURST - 1].length);
	return ibv_wr_complete(qp) ? -1 : done;
}

OPERATION int peer_poll_cq_packets(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_recv_wr *list,
				   uint64_t *sum)
{
	struct ibv_recv_wr *bad;
	struct ibv_wc wcs[BURST];
	int count = ibv_poll_cq(cq, BURST, wcs);

	for (int i = 0; i < count; i++)
		if (wcs[i].status == IBV_WC_SUCCESS)
			*sum += wcs[i].wr_id + wcs[i].byte_len +
				!!(wcs[i].wc_flags & IBV_WC_IP_CSUM_OK);
	return ibv_post_recv(qp, list, &bad) ? -1 : count;
}

OPERATION int peer_cq_ex_packets(struct ibv_qp *qp, struct ibv_cq_ex *cq, struct ibv_recv_wr *list,
				 uint64_t *sum)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_recv_wr *bad;
	int count = 0;

	if (!ibv_start_poll(cq, &attr)) {
		do {
			if (cq->status == IBV_WC_SUCCESS)
				*sum += cq->wr_id + ibv_wc_read_byte_len(cq) +
					!!(ibv_wc_read_wc_flags(cq) & IBV_WC_IP_CSUM_OK);
			count++;
		} while (count < BURST && !ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	return ibv_post_recv(qp, list, &bad) ? -1 : count;
}

static struct ibv_cq *create_cq(struct packets *p, struct ibv_cq_ex **extended, int single_threaded)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = ENTRIES,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = single_threaded ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
	};
	struct ibv_cq *cq;

	if (extended) {
		*extended = ibv_create_cq_ex(p->context, &attr);
		must(*extended != NULL, "ibv_create_cq_ex");
		return ibv_cq_ex_to_cq(*extended);
	}
	cq = ibv_create_cq(p->context, ENTRIES, NULL, NULL, 0);
	must(cq != NULL, "ibv_create_cq");
	return cq;
}

static void create_packet_qp(struct packets *p, int extended)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = p->pd,
	};
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC,
	};

	if (extended) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	}
	p->qp = mlx5dv_create_qp(p->context, &attr, &dv_attr);
	must(p->qp != NULL, "mlx5dv_create_qp");
	p->qp_ex = extended ? ibv_qp_to_qp_ex(p->qp) : NULL;
}

static uint8_t ethernet_port(struct ibv_context *context)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	must(!ibv_query_device(context, &device), "ibv_query_device");
	for (uint8_t number = 1; number <= device.phys_port_cnt; number++) {
		must(!ibv_query_port(context, number, &port), "ibv_query_port");
		if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
			return number;
	}
	must(0, "an Ethernet port");
	return 0;
}

/*
 * Receives frames to a multicast group of its own, since other queues of this device run in turn.
 */
static void listen_to_group(struct packets *p, uint8_t port, const uint8_t *group)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth ethernet;
	} rule = {
		.attr = {
			.type = IBV_FLOW_ATTR_NORMAL,
			.size = sizeof rule,
			.num_of_specs = 1,
			.port = port,
		},
		.ethernet = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.ethernet },
	};

	memcpy(rule.ethernet.val.dst_mac, group, 6);
	memset(rule.ethernet.mask.dst_mac, 0xff, 6);
	p->rule = ibv_create_flow(p->qp, &rule.attr);
	must(p->rule != NULL, "ibv_create_flow");
}

static void activate(struct packets *p, uint8_t port)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = port };

	must(!ibv_modify_qp(p->qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "ibv_modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(p->qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(p->qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RTS");
}

static int drain_packets(struct ibv_cq *cq, int most)
{
	struct ibv_wc wc;
	int total = 0;

	while (total < most && ibv_poll_cq(cq, 1, &wc) == 1) {
		must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		total++;
	}
	return total;
}

/* Posts a batch; its completion is polled later. */
static void send_batch(struct packets *p)
{
	must(drain_packets(p->send_cq, 2) == 1, "the batch before was sent");
	for (int i = 0; i < BURST; i++) {
		struct ibv_send_wr wr = {
			.sg_list = &p->frames[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_IP_CSUM | (i + 1 < BURST ? 0 : IBV_SEND_SIGNALED),
		}, *bad;

		must(!ibv_post_send(p->qp, &wr, &bad), "ibv_post_send");
	}
	settle(p->machine);
}

/* Posts as many receives as packets were received. */
static void post_receives(struct packets *p, int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_recv_wr wr = { .sg_list = &p->buffers[i % ROUND], .num_sge = 1 }, *bad;

		must(!ibv_post_recv(p->qp, &wr, &bad), "ibv_post_recv");
	}
}

static struct packets *open_packets(const struct bench_machine *machine, int single_threaded, int extended)
{
	/* Ethernet, IPv4 and UDP headers, without checksums: the device computes them. */
	static const uint8_t headers[42] = {
		3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7,
		0x30, 0x39, 0, 7, 0, 30, 0, 0,
	};
	size_t bytes = (BURST + ROUND) * PACKET;
	struct packets *p = calloc(1, sizeof *p);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint8_t port;

	must(p != NULL, "memory");
	p->memory = aligned_alloc(4096, (bytes + 4095) & ~4095UL);
	must(p->memory != NULL, "memory");
	must(!setenv("MLX5_SINGLE_THREADED", single_threaded ? "1" : "0", 1), "setenv");
	p->machine = machine;
	p->context = open_device(machine->device);
	p->pd = ibv_alloc_pd(p->context);
	must(p->pd != NULL, "ibv_alloc_pd");
	p->mr = ibv_reg_mr(p->pd, p->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	must(p->mr != NULL, "ibv_reg_mr");
	p->send_cq = create_cq(p, extended ? &p->send_cq_ex : NULL, single_threaded);
	p->recv_cq = create_cq(p, extended ? &p->recv_cq_ex : NULL, single_threaded);
	create_packet_qp(p, extended);
	port = ethernet_port(p->context);
	activate(p, port);
	for (int i = 0; i < BURST + ROUND; i++) {
		uint8_t *frame = p->memory + i * PACKET;
		struct ibv_sge sge = { (uintptr_t)frame, PACKET, p->mr->lkey };

		memset(frame, 0, PACKET);
		if (i >= BURST) {
			p->buffers[i - BURST] = sge;
			continue;
		}
		memcpy(frame, headers, sizeof headers);
		for (int k = 0; k < 3; k++)
			frame[3 + k] = p->qp->qp_num >> (16 - 8 * k);
		p->frames[i] = sge;
	}
	listen_to_group(p, port, p->memory);
	post_receives(p, POSTED);
	/* Each call polls the completion of the previous one. */
	wr.sg_list = p->frames;
	wr.num_sge = 1;
	must(!ibv_post_send(p->qp, &wr, &bad), "ibv_post_send");
	settle(machine);
	must(drain_packets(p->recv_cq, ROUND) == 1, "the first packet");
	post_receives(p, 1);
	return p;
}

static void *open_packets_plain(const struct bench_machine *machine, int single_threaded)
{
	return open_packets(machine, single_threaded, 0);
}

static void *open_packets_extended(const struct bench_machine *machine, int single_threaded)
{
	return open_packets(machine, single_threaded, 1);
}

/* Receives the sent packets, and posts their buffers again. */
static void sent(void *state, uint32_t calls)
{
	struct packets *p = state;
	int count = calls * BURST;

	settle(p->machine);
	must(drain_packets(p->recv_cq, 2 * ROUND) == count, "what was sent");
	post_receives(p, count);
}

/* Prepares lists of receives, and packets to receive. */
static void prepare_packets(void *state, uint64_t first, uint32_t calls)
{
	struct packets *p = state;

	for (uint32_t i = 0; i < calls * BURST; i++) {
		struct ibv_recv_wr *wr = &p->receives[i];

		wr->wr_id = first + i;
		wr->next = (i + 1) % BURST ? wr + 1 : NULL;
		wr->sg_list = &p->buffers[i];
		wr->num_sge = 1;
	}
	for (uint32_t i = 0; i < calls; i++)
		send_batch(p);
}

static void nothing_left(void *state, uint32_t calls)
{
	struct packets *p = state;

	(void)calls;
	must(drain_packets(p->recv_cq, 1) == 0, "all received");
}

#define PACKETS(name, good, operation) \
	BENCH_CALLS(name, good, operation, struct packets *p = state)

PACKETS(post_send_packets, 1, peer_post_send_packets(p->qp, p->send_cq, p->frames, i))
PACKETS(wr_packets, 1, peer_wr_packets(p->qp_ex, p->send_cq_ex, p->frames, i))
PACKETS(poll_cq_packets, BURST,
	peer_poll_cq_packets(p->qp, p->recv_cq, &p->receives[k * BURST], &p->sum))
PACKETS(cq_ex_packets, BURST,
	peer_cq_ex_packets(p->qp, p->recv_cq_ex, &p->receives[k * BURST], &p->sum))

bench_cases ethernet_cases = {
	CASE("eth_send32", "post_send", post_send_packets, 1, BURST, open_packets_plain, nothing, sent),
	CASE("eth_send32", "wr", wr_packets, 1, BURST, open_packets_extended, nothing, sent),
	CASE("eth_recv32", "poll_cq", poll_cq_packets, ROUND / BURST, BURST, open_packets_plain,
	     prepare_packets, nothing_left),
	CASE("eth_recv32", "cq_ex", cq_ex_packets, ROUND / BURST, BURST, open_packets_extended,
	     prepare_packets, nothing_left),
	{},
};
