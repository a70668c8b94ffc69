/*
 * Work queues: changes of state and flags at once, posting while the kernel changes the state, strides, and
 * tables that firmware commands change.
 */
#include "packets.h"

#include <dlfcn.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* A queue pair that spreads packets over a table of one work queue. */
struct spreader {
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct ibv_flow *flow;
};

static struct spreader spread_to(struct end *there, struct ibv_wq *wq)
{
	static uint8_t key[40];
	struct ibv_rwq_ind_table_init_attr init = { 0, &wq, 0 };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = there->bed.pd,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key,
				  IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 },
	};
	struct rule rule = to_mac(THERE);
	struct spreader to = { .table = ibv_create_rwq_ind_table(there->bed.context, &init) };

	must(to.table, "ibv_create_rwq_ind_table");
	attr.rwq_ind_tbl = to.table;
	to.qp = ibv_create_qp_ex(there->bed.context, &attr);
	must(to.qp, "ibv_create_qp_ex");
	to.flow = ibv_create_flow(to.qp, &rule.attr);
	must(to.flow, "ibv_create_flow");
	return to;
}

static void drop(struct spreader *from)
{
	must(!ibv_destroy_flow(from->flow), "ibv_destroy_flow");
	must(!ibv_destroy_qp(from->qp), "ibv_destroy_qp");
	must(!ibv_destroy_rwq_ind_table(from->table), "ibv_destroy_rwq_ind_table");
}

static int post(struct end *end, struct ibv_wq *wq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)end->bed.to, FRAME, end->bed.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_wq_recv(wq, &wr, &bad);
}

/* Sends a packet with a VLAN tag. */
static void send_tagged(struct end *here)
{
	struct ibv_sge sge = { (uintptr_t)here->bed.from, 0, here->bed.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad;

	sge.length = headers(here->bed.from, IPPROTO_UDP, 60) + 60 + 4;
	memmove(here->bed.from + 16, here->bed.from + 12, 30);
	put(here->bed.from + 12, 0x8100, 2);
	put(here->bed.from + 14, 100, 2);
	must(!ibv_post_send(here->qp, &wr, &bad), "ibv_post_send");
	sent(here, "sent", IBV_WC_SUCCESS);
}

/* A refused change leaves all as it was. */
static void together(struct end *here, struct end *there)
{
	struct ibv_wq *wq = make_wq(there, 0);
	struct ibv_wq_attr attr = {
		.attr_mask = IBV_WQ_ATTR_FLAGS | IBV_WQ_ATTR_STATE, .wq_state = 99,
		.flags = IBV_WQ_FLAGS_CVLAN_STRIPPING, .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING,
	};
	struct spreader to;
	struct ibv_wc wc;

	must(wq, "ibv_create_wq");
	to = spread_to(there, wq);
	must(!set_state(wq, IBV_WQS_RDY), "ready");
	for (int wr_id = 0; wr_id < 2; wr_id++)
		must(!post(there, wq, wr_id), "ibv_post_wq_recv");
	printf("stripping, and no state: %s\n", name_of(ibv_modify_wq(wq, &attr)));
	send_tagged(here);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("received: status %d, %u bytes\n", wc.status, wc.byte_len);
	attr.wq_state = IBV_WQS_RDY;
	printf("stripping, and the state it has: %s\n", name_of(ibv_modify_wq(wq, &attr)));
	send_tagged(here);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("received: status %d, %u bytes\n", wc.status, wc.byte_len);
	attr.flags = 0;
	attr.wq_state = IBV_WQS_RESET;
	printf("no stripping, and a reset: %s", name_of(ibv_modify_wq(wq, &attr)));
	printf(", state %d\n", wq->state);
	attr.flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
	attr.wq_state = IBV_WQS_ERR;
	printf("stripping, and an error from a reset: %s", name_of(ibv_modify_wq(wq, &attr)));
	printf(", state %d\n", wq->state);
	must(!set_state(wq, IBV_WQS_RDY), "ready");
	must(!post(there, wq, 2), "ibv_post_wq_recv");
	send_tagged(here);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("received: %" PRIu64 ", status %d, %u bytes\n", wc.wr_id, wc.status, wc.byte_len);
	drop(&to);
	must(!ibv_destroy_wq(wq), "ibv_destroy_wq");
}

static struct end *posting_end;
static struct ibv_wq *posting_to;

static bool modifies_work_queue(const struct ib_uverbs_ioctl_hdr *header)
{
	if (header->object_id != UVERBS_OBJECT_DEVICE || header->method_id != UVERBS_METHOD_INVOKE_WRITE)
		return false;
	for (int i = 0; i < header->num_attrs; i++)
		if (header->attrs[i].attr_id == UVERBS_ATTR_WRITE_CMD)
			return (header->attrs[i].data & IB_USER_VERBS_CMD_COMMAND_MASK) ==
			       IB_USER_VERBS_EX_CMD_MODIFY_WQ;
	return false;
}

/* Takes the place of libc's for the libraries: while the kernel changes a work queue, it is posted to. */
int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, void *);
	struct ibv_wq *wq = posting_to;
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (!next)
		next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	if (wq && request == RDMA_VERBS_IOCTL && modifies_work_queue(argument)) {
		posting_to = NULL;
		printf("posted meanwhile: %s\n", name_of(post(posting_end, wq, 9)));
	}
	return next(fd, request, argument);
}

static void meanwhile(struct end *there)
{
	struct ibv_wq *wq = make_wq(there, 0);
	struct ibv_wc wc;

	must(wq, "ibv_create_wq");
	must(!set_state(wq, IBV_WQS_RDY), "ready");
	posting_end = there;
	posting_to = wq;
	printf("error: %s\n", name_of(set_state(wq, IBV_WQS_ERR)));
	must(!posting_to, "a call of the kernel");
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("flushed: %" PRIu64 ", status %d\n", wc.wr_id, wc.status);
	must(!ibv_destroy_wq(wq), "ibv_destroy_wq");
}

/* The next CQE of a queue that the program reads itself. */
static struct mlx5_cqe64 *next_cqe(struct mlx5dv_cq *cq, uint32_t consumed)
{
	struct mlx5_cqe64 *cqe = cq->buf + (consumed & (cq->cqe_cnt - 1)) * cq->cqe_size;

	while (mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_INVALID ||
	       mlx5dv_get_cqe_owner(cqe) != !!(consumed & cq->cqe_cnt))
		;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return cqe;
}

/* What libmlx5 makes with strides the program drives itself: packets share a request. */
static void strides(struct end *here, struct end *there)
{
	struct mlx5dv_context device_attr = { .comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ };
	struct mlx5dv_striding_rq_caps *caps = &device_attr.striding_rq_caps;
	struct ibv_cq_ex *cq = make_cq(&there->bed, NULL, IBV_WC_STANDARD_FLAGS);
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = there->bed.pd,
		.cq = ibv_cq_ex_to_cq(cq),
	};
	struct mlx5dv_wq_init_attr dv = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ };
	struct mlx5dv_rwq parts;
	struct mlx5dv_cq completions = {};
	struct mlx5dv_obj obj = { .rwq = { NULL, &parts },
				  .cq = { ibv_cq_ex_to_cq(cq), &completions } };
	struct mlx5_wqe_data_seg *data;
	struct spreader to;
	struct ibv_mr *mr;
	struct ibv_wq *wq;
	uint8_t *memory;
	size_t size;

	must(!mlx5dv_query_device(there->bed.context, &device_attr), "mlx5dv_query_device");
	printf("strides of 2^%u to 2^%u bytes, 2^%u to 2^%u of them, queue pairs %#x\n",
	       caps->min_single_stride_log_num_of_bytes, caps->max_single_stride_log_num_of_bytes,
	       caps->min_single_wqe_log_num_of_strides, caps->max_single_wqe_log_num_of_strides,
	       caps->supported_qpts);
	dv.striding_rq_attrs.single_stride_log_num_of_bytes = caps->min_single_stride_log_num_of_bytes;
	dv.striding_rq_attrs.single_wqe_log_num_of_strides = caps->max_single_wqe_log_num_of_strides + 1;
	printf("too many strides: %s\n",
	       mlx5dv_create_wq(there->bed.context, &attr, &dv) ? "made" : name_of(errno));
	dv.striding_rq_attrs.single_wqe_log_num_of_strides = caps->min_single_wqe_log_num_of_strides;
	dv.striding_rq_attrs.single_stride_log_num_of_bytes = 40;
	printf("too long strides: %s\n",
	       mlx5dv_create_wq(there->bed.context, &attr, &dv) ? "made" : name_of(errno));
	dv.striding_rq_attrs.single_stride_log_num_of_bytes = caps->min_single_stride_log_num_of_bytes;
	dv.comp_mask = 1 << 9;
	printf("unknown attributes: %s\n",
	       mlx5dv_create_wq(there->bed.context, &attr, &dv) ? "made" : name_of(errno));
	dv.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
	wq = mlx5dv_create_wq(there->bed.context, &attr, &dv);
	must(wq, "mlx5dv_create_wq");
	obj.rwq.in = wq;
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	printf("%u requests of %u bytes\n", parts.wqe_cnt, parts.stride);
	must(!set_state(wq, IBV_WQS_RDY), "ready");
	to = spread_to(there, wq);

	size = (size_t)1 << (caps->min_single_stride_log_num_of_bytes +
			     caps->min_single_wqe_log_num_of_strides);
	memory = aligned_alloc(4096, size);
	must(memory, "memory");
	mr = ibv_reg_mr(there->bed.pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
	must(mr, "ibv_reg_mr");
	/* Behind a segment that stays zero. */
	data = parts.buf + 16;
	mlx5dv_set_data_seg(data, size, mr->lkey, (uintptr_t)memory);
	data[1] = (struct mlx5_wqe_data_seg){ .lkey = htobe32(0x100) };
	__atomic_thread_fence(__ATOMIC_RELEASE);
	((volatile __be32 *)parts.dbrec)[0] = htobe32(1);
	for (uint32_t i = 0; i < 2; i++) {
		struct mlx5_cqe64 *cqe;

		send_tagged(here);
		cqe = next_cqe(&completions, i);
		printf("opcode %d, %u strides, %u bytes, request %u, at %u\n", mlx5dv_get_cqe_opcode(cqe),
		       be32toh(cqe->byte_cnt) >> 16, be32toh(cqe->byte_cnt) & 0xffff,
		       be16toh(cqe->wqe_id), be16toh(cqe->wqe_counter));
		completions.dbrec[0] = htobe32(i + 1);
		printf("it is what was sent: %d\n",
		       !memcmp(memory + (be16toh(cqe->wqe_counter)
					 << caps->min_single_stride_log_num_of_bytes),
			       here->bed.from, 106));
	}
	drop(&to);
	must(!ibv_destroy_wq(wq), "ibv_destroy_wq");
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	free(memory);
}

/* Which queues the device has in a table. */
static void report_table(struct ibv_rwq_ind_table *table, struct ibv_wq *const *queues)
{
	enum { QUERY_RQT = 0x919 };
	uint8_t in[16] = {}, out[272 + 4 * 2] = {};

	put(in, QUERY_RQT, 2);
	put(in + 8, table->ind_tbl_num, 4);
	must(!mlx5dv_devx_ind_tbl_query(table, in, sizeof(in), out, sizeof(out)),
	     "mlx5dv_devx_ind_tbl_query");
	printf("%d queues:", out[59]);
	for (int i = 0; i < out[59]; i++) {
		uint32_t number = be32toh(*(uint32_t *)(out + 272 + 4 * i)) & 0xffffff;

		printf(" %s", number == queues[0]->wq_num ? "one" :
			      number == queues[1]->wq_num ? "other" : "?");
	}
	printf("\n");
}

/* A firmware command changes which queues a table has, and where packets arrive. */
static void table(struct end *here, struct end *there)
{
	enum { MODIFY_RQT = 0x917, LENGTH = 272 + 4 };
	struct ibv_wq *queues[] = { make_wq(there, 0), make_wq(there, 0) };
	uint8_t in[LENGTH] = {}, out[16] = {};
	struct spreader to, another;
	struct ibv_wc wc;

	must(queues[0] && queues[1], "ibv_create_wq");
	for (int i = 0; i < 2; i++) {
		must(!set_state(queues[i], IBV_WQS_RDY), "ready");
		must(!post(there, queues[i], i), "ibv_post_wq_recv");
	}
	another = spread_to(there, queues[0]);
	must(!ibv_destroy_flow(another.flow), "ibv_destroy_flow");
	to = spread_to(there, queues[0]);
	report_table(to.table, queues);
	put(in, MODIFY_RQT, 2);
	put(in + 8, another.table->ind_tbl_num, 4);
	in[23] = 1; /* the list */
	put(in + 54, 1, 2);
	put(in + 58, 1, 2);
	put(in + 272, queues[1]->wq_num, 4);
	printf("another's number: %s\n",
	       name_of(mlx5dv_devx_ind_tbl_modify(to.table, in, LENGTH, out, sizeof(out))));
	put(in + 8, to.table->ind_tbl_num, 4);
	printf("a table changed: %s",
	       name_of(mlx5dv_devx_ind_tbl_modify(to.table, in, LENGTH, out, sizeof(out))));
	printf(", firmware %d\n", out[0]);
	report_table(to.table, queues);
	report_table(another.table, queues);
	send_tagged(here);
	poll_one(ibv_cq_ex_to_cq(there->cq), &wc);
	printf("received: %" PRIu64 ", status %d\n", wc.wr_id, wc.status);
	drop(&to);
	must(!ibv_destroy_qp(another.qp), "ibv_destroy_qp");
	must(!ibv_destroy_rwq_ind_table(another.table), "ibv_destroy_rwq_ind_table");
	for (int i = 0; i < 2; i++)
		must(!ibv_destroy_wq(queues[i]), "ibv_destroy_wq");
}

int main(void)
{
	struct end here = open_end(), there = open_end();

	table(&here, &there);
	together(&here, &there);
	meanwhile(&there);
	strides(&here, &there);
	close_end(&here);
	close_end(&there);
	return 0;
}
