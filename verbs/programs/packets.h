/*
 * What the programs of packets have in common: ends that send to each other, packets, rules, work queues.
 *
 * Two contexts of one device send to each other: a device shows a context its own packets only if others
 * have it open too.
 */
#ifndef PACKETS_H
#define PACKETS_H

#include "bed.h"

#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>

enum {
	FRAME = 256,
	PLACES = 16,
	HEADERS = 14 + 20 + 20,
	TAG = 0x1234,
};

static const uint8_t HERE[6] = { 0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8 };
/* A group address: what is for a single one goes to the wire. */
static const uint8_t THERE[6] = { 0x01, 0x50, 0x56, 0x19, 0x20, 0xa7 };

struct end {
	struct bed bed;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
};

static inline struct ibv_qp_init_attr_ex attributes(const struct end *end)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = ibv_cq_ex_to_cq(end->cq),
		.recv_cq = ibv_cq_ex_to_cq(end->cq),
		.cap = { .max_send_wr = PLACES, .max_recv_wr = PLACES, .max_send_sge = 2,
			 .max_recv_sge = 1, .max_inline_data = 64 },
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			     IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
		.pd = end->bed.pd,
		.max_tso_header = HEADERS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
	};
}

static inline int become(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

static inline void activate(struct ibv_qp *qp)
{
	must(!become(qp, IBV_QPS_INIT), "INIT");
	must(!become(qp, IBV_QPS_RTR), "RTR");
	must(!become(qp, IBV_QPS_RTS), "RTS");
}

static inline struct end open_end(void)
{
	struct end end = { .bed = open_bed() };
	struct ibv_qp_init_attr_ex attr;

	end.cq = make_cq(&end.bed, NULL, IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_FLOW_TAG |
						 IBV_WC_EX_WITH_CVLAN);
	attr = attributes(&end);
	end.qp = ibv_create_qp_ex(end.bed.context, &attr);
	must(end.qp, "ibv_create_qp_ex");
	end.ex = ibv_qp_to_qp_ex(end.qp);
	must(end.ex, "ibv_qp_to_qp_ex");
	must(attr.cap.max_send_wr >= PLACES && attr.cap.max_recv_wr >= PLACES, "sizes");
	activate(end.qp);
	return end;
}

static inline void close_end(struct end *end)
{
	must(!ibv_destroy_qp(end->qp), "ibv_destroy_qp");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(end->cq)), "ibv_destroy_cq");
	close_bed(&end->bed);
}

static inline void put(uint8_t *at, unsigned int value, int bytes)
{
	while (bytes--)
		*at++ = value >> (8 * bytes);
}

/* The headers of a TCP or UDP packet of so much payload, without checksums. */
static inline unsigned int headers(uint8_t *frame, uint8_t protocol, unsigned int payload)
{
	unsigned int l4 = protocol == IPPROTO_TCP ? 20 : 8;
	uint8_t *ip = frame + 14, *transport = ip + 20;

	memset(frame, 0, HEADERS);
	memcpy(frame, THERE, 6);
	memcpy(frame + 6, HERE, 6);
	put(frame + 12, 0x0800, 2);
	ip[0] = 0x45;
	put(ip + 2, 20 + l4 + payload, 2);
	ip[8] = 64;
	ip[9] = protocol;
	put(ip + 12, 0xc0000201, 4);
	put(ip + 16, 0xc0000202, 4);
	put(transport, 1000, 2);
	put(transport + 2, 2000, 2);
	if (protocol == IPPROTO_TCP) {
		put(transport + 4, 1, 4);
		transport[12] = 0x50;
		transport[13] = 0x10;
	} else {
		put(transport + 4, 8 + payload, 2);
	}
	return 14 + 20 + l4;
}

static inline void receive(struct end *end, int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = { (uintptr_t)end->bed.to + FRAME * i, FRAME, end->bed.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		must(!ibv_post_recv(end->qp, &wr, &bad), "ibv_post_recv");
	}
}

/* The rules here: an Ethernet header, then what is given. */
struct rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
	uint8_t more[128];
};

static inline struct rule to_mac(const uint8_t *mac)
{
	struct rule rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 1,
			  .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
	};

	memcpy(rule.eth.val.dst_mac, mac, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	return rule;
}

static inline void add(struct rule *rule, unsigned int *at, const void *spec, size_t size)
{
	memcpy(rule->more + *at, spec, size);
	*at += size;
	rule->attr.num_of_specs++;
}

static inline struct ibv_flow *make_rule(struct ibv_qp *qp, struct rule *rule, const char *what)
{
	struct ibv_flow *flow;

	errno = 0;
	flow = ibv_create_flow(qp, &rule->attr);
	printf("rule, %s: %s\n", what, flow ? "made" : name_of(errno));
	return flow;
}

/* What comes in the order in which it was sent. */
static inline void see(struct end *end, int count, int lines)
{
	for (int i = 0; i < count; i++) {
		start(end->cq);
		if (i < lines)
			printf("received %" PRIu64 ": status %d, opcode %d, %u bytes, flags %x, tag %x, vlan %x, id %x\n",
			       end->cq->wr_id, end->cq->status, ibv_wc_read_opcode(end->cq),
			       ibv_wc_read_byte_len(end->cq), ibv_wc_read_wc_flags(end->cq),
			       ibv_wc_read_flow_tag(end->cq), ibv_wc_read_cvlan(end->cq),
			       end->bed.to[FRAME * end->cq->wr_id + 18] << 8 |
				       end->bed.to[FRAME * end->cq->wr_id + 19]);
		ibv_end_poll(end->cq);
	}
}

static inline void sent(struct end *end, const char *what, enum ibv_wc_status expected)
{
	struct ibv_wc wc;

	poll_one(ibv_cq_ex_to_cq(end->cq), &wc);
	printf("%s: %" PRIu64 ", status %d, opcode %d, flags %x\n", what, wc.wr_id, wc.status, wc.opcode,
	       wc.wc_flags);
	must(wc.status == expected, what);
}

static inline struct ibv_wq *make_wq(struct end *end, uint32_t flags)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 10, .max_sge = 1, .pd = end->bed.pd,
		.cq = ibv_cq_ex_to_cq(end->cq), .comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
		.create_flags = flags, .wq_context = end,
	};
	struct ibv_wq *wq = ibv_create_wq(end->bed.context, &attr);

	must(!wq || (attr.max_wr >= 10 && attr.max_sge >= 1), "sizes");
	must(!wq || (wq->wq_context == end && wq->state == IBV_WQS_RESET), "a work queue");
	return wq;
}

static inline int set_state(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state };

	return ibv_modify_wq(wq, &attr);
}

#endif
