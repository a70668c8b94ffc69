/*
 * Counters that another thread destroys as soon as the kernel lets go of them: while `ibv_destroy_flow` of the
 * last rule that counts has not returned. C's library looks into them after that.
 */
#include "bed.h"

#include <dlfcn.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

static struct ibv_counters *counters;

/* Takes the place of libc's for the libraries: when a rule has ended, its counters are destroyed. */
int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, void *);
	const struct ib_uverbs_ioctl_hdr *header;
	struct ibv_counters *ended = counters;
	va_list list;
	void *argument;
	int result;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (!next)
		next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	result = next(fd, request, argument);
	header = argument;
	if (result || request != RDMA_VERBS_IOCTL || header->object_id != UVERBS_OBJECT_FLOW ||
	    header->method_id != UVERBS_METHOD_FLOW_DESTROY || !ended)
		return result;
	counters = NULL;
	printf("counters: %s\n", name_of(ibv_destroy_counters(ended)));
	spoil();
	return result;
}

static struct ibv_flow *count_all(struct ibv_qp *qp)
{
	struct ibv_flow_spec_counter_action count = { IBV_FLOW_SPEC_ACTION_COUNT, sizeof(count), counters };
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		/* Right behind the header. */
		uint8_t count[sizeof(count)];
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 2, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
	};

	memset(rule.eth.val.dst_mac, 2, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	memcpy(rule.count, &count, sizeof(count));
	return ibv_create_flow(qp, &rule.attr);
}

int main(void)
{
	struct bed bed = open_bed();
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);
	struct ibv_qp_init_attr init = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(bed.pd, &init);
	struct ibv_counters_init_attr none = {};
	struct ibv_counter_attach_attr packets = { IBV_COUNTER_PACKETS, 0, 0 };
	struct ibv_flow *flow;

	must(qp, "ibv_create_qp");
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	counters = ibv_create_counters(bed.context, &none);
	must(counters, "ibv_create_counters");
	must(!ibv_attach_counters_point_flow(counters, &packets, NULL), "ibv_attach_counters_point_flow");
	flow = count_all(qp);
	must(flow, "ibv_create_flow");
	printf("counters in use: %s\n", name_of(ibv_destroy_counters(counters)));
	printf("rule: %s\n", name_of(ibv_destroy_flow(flow)));
	must(!counters, "counters");
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	close_bed(&bed);
	return 0;
}
