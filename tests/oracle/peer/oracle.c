/*
 * Drives rdma-core's mlx5 provider through a script on standard input, and says on standard output
 * what it wrote: work requests, doorbell records, doorbell registers, and calls to the kernel.
 *
 * The script's commands, and what is said of each, are described in ../src/script.rs. The device
 * must not act by itself: completions are made up here, in the place of the device.
 */
#define _GNU_SOURCE
#define PROGRAM "oracle"
#include <endian.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>

#include "peer.h"

enum {
	BLOCK = 64,
	UNIT = 16,
	/* Of a UAR page. */
	REGISTERS = 0x800,
	REGISTERS_END = 0xc00,
	REGISTER_BYTES = 512,
	/* Stands where nothing was written. */
	POISON = 0xa5,
	MAX_BATCH = 64,
	MAX_SGES = 64,
	MAX_AHS = 16,
	MAX_MESSAGE = 4096,
	MAX_OUTSTANDING = 1 << 16,
	END_OF_LIST = 0x100,
};

/* Objects, methods and attributes of the calls that are looked at. */
enum {
	DRIVER_OUT = 0x1001,
	CORE_IN = 0,
	WRITE_CMD = 2,
	QP_CAP = 8,
	OBJECT_WQ = 12,
	/* What a rule's counters are, to which the driver's part points. */
	POINTED = 0xfff0,
};

/* The methods of mlx5's own, which have no driver's part. */
#define MATCHER_CREATE (MLX5_IB_OBJECT_FLOW_MATCHER << 16 | MLX5_IB_METHOD_FLOW_MATCHER_CREATE)
#define MATCHER_DESTROY (MLX5_IB_OBJECT_FLOW_MATCHER << 16 | MLX5_IB_METHOD_FLOW_MATCHER_DESTROY)
#define MATCH (UVERBS_OBJECT_FLOW << 16 | MLX5_IB_METHOD_CREATE_FLOW)

/* The calls that are told, by object and method. */
static const uint32_t reported_methods[] = {
	UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_INVOKE_WRITE,
	UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_GET_CONTEXT,
	UVERBS_OBJECT_CQ << 16 | UVERBS_METHOD_CQ_CREATE,
	UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_CREATE,
	UVERBS_OBJECT_SRQ << 16 | UVERBS_METHOD_SRQ_CREATE,
	UVERBS_OBJECT_WQ << 16 | UVERBS_METHOD_WQ_CREATE,
	UVERBS_OBJECT_WQ << 16 | UVERBS_METHOD_WQ_DESTROY,
	UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_DESTROY,
	UVERBS_OBJECT_RWQ_IND_TBL << 16 | UVERBS_METHOD_RWQ_IND_TBL_DESTROY,
	UVERBS_OBJECT_COUNTERS << 16 | UVERBS_METHOD_COUNTERS_CREATE,
	UVERBS_OBJECT_COUNTERS << 16 | UVERBS_METHOD_COUNTERS_DESTROY,
	UVERBS_OBJECT_FLOW << 16 | UVERBS_METHOD_FLOW_DESTROY,
	MATCHER_CREATE,
	MATCHER_DESTROY,
	MATCH,
};

static void hex(const void *from, size_t length)
{
	const uint8_t *bytes = from;

	for (size_t i = 0; i < length; i++)
		printf("%02x", bytes[i]);
}

/* Calls to the kernel. */

static bool listening;
/* The user index that the last CREATE_QP or CREATE_WQ named. */
static uint32_t user_index;

static bool is_input(uint32_t method, const struct ib_uverbs_attr *attr)
{
	if (method == MATCHER_CREATE && attr->attr_id == MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK)
		return true;
	if (method == MATCH && attr->attr_id == MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE)
		return true;
	if (attr->attr_id == DRIVER_IN)
		return attr->len;
	if (!method)
		return attr->attr_id == CORE_IN || attr->attr_id == WRITE_CMD;
	if (method >> 16 == OBJECT_QP && attr->attr_id == QP_CAP)
		return true;
	/* A longer one is where the kernel answers to, or is none of those looked at. */
	return attr->len && attr->len <= sizeof(attr->data);
}

/* Outputs that are short look like inputs; their identifiers tell them apart. */
static bool is_output(uint32_t method, uint16_t id)
{
	if (method == MATCHER_CREATE || method == MATCHER_DESTROY || method == MATCH)
		return false;
	if (id == DRIVER_OUT)
		return true;
	switch (method) {
	case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_GET_CONTEXT:
		return id == 0 || id == 1;
	case UVERBS_OBJECT_CQ << 16 | UVERBS_METHOD_CQ_CREATE:
		return id == 6;
	case UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_CREATE:
		return id == 13 || id == 14;
	case UVERBS_OBJECT_SRQ << 16 | UVERBS_METHOD_SRQ_CREATE:
		return id >= 11 && id <= 13;
	case UVERBS_OBJECT_WQ << 16 | UVERBS_METHOD_WQ_CREATE:
		return id >= 9 && id <= 11;
	case UVERBS_OBJECT_WQ << 16 | UVERBS_METHOD_WQ_DESTROY:
	case UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_DESTROY:
		return id == 1;
	default:
		return false;
	}
}

/* Tells what a rule's counters are, if that is what the driver's part of a call says. */
static void report_counted(const struct ib_uverbs_ioctl_hdr *header)
{
	const struct ib_uverbs_attr *driver = NULL;
	uint64_t command = 0, address;
	uint32_t count;

	for (int i = 0; i < header->num_attrs; i++) {
		if (header->attrs[i].attr_id == DRIVER_IN)
			driver = &header->attrs[i];
		else if (header->attrs[i].attr_id == WRITE_CMD)
			command = header->attrs[i].data;
	}
	const uint64_t rule = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW;
	if ((uint32_t)command != (uint32_t)rule || !driver || driver->len < 24)
		return;
	memcpy(&address, (const uint8_t *)(uintptr_t)driver->data + 8, sizeof(address));
	memcpy(&count, (const uint8_t *)(uintptr_t)driver->data + 16, sizeof(count));
	if (!count)
		return;
	printf("attr %x ", POINTED);
	hex((const void *)(uintptr_t)address, 8 * count);
	printf("\n");
}

static void report_call(const struct ib_uverbs_ioctl_hdr *header)
{
	const uint32_t method = (uint32_t)header->object_id << 16 | header->method_id;
	bool known = false;

	for (size_t i = 0; i < sizeof(reported_methods) / sizeof(reported_methods[0]); i++)
		known |= reported_methods[i] == method;
	if (!known)
		return;
	printf("call %x/%x\n", header->object_id, header->method_id);
	for (int i = 0; i < header->num_attrs; i++) {
		const struct ib_uverbs_attr *attr = &header->attrs[i];

		if (is_output(method, attr->attr_id) || !is_input(method, attr))
			continue;
		printf("attr %x ", attr->attr_id);
		if (attr->len <= sizeof(attr->data))
			hex(&attr->data, attr->len);
		else
			hex((const void *)(uintptr_t)attr->data, attr->len);
		printf("\n");
	}
	if (!method)
		report_counted(header);
	printf("done\n");
}

/* Whether the firmware is to say that the send queue is drained; nothing was begun of it. */
static bool drained;

static void report_drained(const struct ib_uverbs_ioctl_hdr *header)
{
	/* Where query_qp_out has the state. */
	enum { STATE = 0x18, SQ_DRAINED = 5 };

	if (header->object_id != MLX5_IB_OBJECT_DEVX_OBJ ||
	    header->method_id != MLX5_IB_METHOD_DEVX_OBJ_QUERY)
		return;
	for (int i = 0; i < header->num_attrs; i++) {
		uint8_t *out = (void *)(uintptr_t)header->attrs[i].data;

		if (header->attrs[i].attr_id == MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT)
			out[STATE] = (out[STATE] & 0xf) | SQ_DRAINED << 4;
	}
}

/* Takes the place of libc's for the libraries. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);

	const uint8_t *creation_input = creation(OBJECT_QP, request, argument);
	if (creation_input)
		memcpy(&user_index, creation_input + 32, sizeof(user_index));
	const uint8_t *work = creation(OBJECT_WQ, request, argument);
	if (work)
		memcpy(&user_index, work + 24, sizeof(user_index));
	if (listening && request == RDMA_VERBS_IOCTL)
		report_call(argument);
	int result = next_ioctl(fd, request, argument);
	if (drained && !result && request == RDMA_VERBS_IOCTL)
		report_drained(argument);
	return result;
}

/* The script. */

static char line[1 << 16];
static char *rest;

static bool next_line(void)
{
	do {
		if (!fgets(line, sizeof(line), stdin))
			return false;
		rest = line;
	} while (line[0] == '\n' || line[0] == '#');
	return true;
}

static char *word(void)
{
	char *found = strtok_r(NULL, " \n", &rest);

	if (!found) {
		fprintf(stderr, "oracle: the line is too short\n");
		exit(1);
	}
	return found;
}

static char *first_word(void)
{
	char *start = line;

	return strtok_r(start, " \n", &rest);
}

/* Numbers are hexadecimal. */
static uint64_t number(void)
{
	return strtoull(word(), NULL, 16);
}

static bool word_is(const char *wanted)
{
	return !strcmp(word(), wanted);
}

/* The queue at hand. */

static void destroy_windows(void);
static struct ibv_qp *create_packet(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap *cap, int sig);

static struct ibv_device *device;
static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct mlx5dv_cq dv_cq;
	uint32_t completed;
	struct ibv_mr *mr;
	struct ibv_ah_attr paths[MAX_AHS];
	struct ibv_ah *ahs[MAX_AHS];
	int num_ahs;
	struct ibv_srq *srq;
	struct mlx5dv_srq dv_srq;
	uint16_t srq_next;
	uint16_t srq_posted[MAX_OUTSTANDING];
	int num_srq_posted;
	enum ibv_qp_type type;
	bool builder;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	struct mlx5dv_qp dv;
	uint8_t *uar;
	uint32_t uidx;
	/* Blocks told of so far. */
	uint16_t head;
	/* The block of the last request. */
	uint16_t last;
	uint16_t received;
	uint16_t receive_completed;
} q;

static uint8_t messages[MAX_BATCH][MAX_MESSAGE];
static struct ibv_sge sges[MAX_BATCH][MAX_SGES];
static struct ibv_send_wr wrs[MAX_BATCH];
static struct ibv_recv_wr recvs[MAX_BATCH];
static struct ibv_send_wr filler;
static struct ibv_sge filler_sges[MAX_SGES];
static uint8_t filler_message[MAX_MESSAGE];
static uint8_t *region;

static void close_queue(void)
{
	if (!q.context)
		return;
	if (q.qp)
		CHECK("destroy_qp", !ibv_destroy_qp(q.qp));
	if (q.srq)
		CHECK("destroy_srq", !ibv_destroy_srq(q.srq));
	destroy_windows();
	for (int i = 0; i < q.num_ahs; i++)
		if (q.ahs[i])
			CHECK("destroy_ah", !ibv_destroy_ah(q.ahs[i]));
	if (q.mr)
		CHECK("dereg_mr", !ibv_dereg_mr(q.mr));
	CHECK("destroy_cq", !ibv_destroy_cq(q.cq));
	CHECK("dealloc_pd", !ibv_dealloc_pd(q.pd));
	CHECK("close_device", !ibv_close_device(q.context));
	memset(&q, 0, sizeof(q));
}

static void open_queue(void)
{
	close_queue();
	printf("queue %s\n", word());
	char *type = word();
	q.type = !strcmp(type, "rc")   ? IBV_QPT_RC
		 : !strcmp(type, "uc") ? IBV_QPT_UC
		 : !strcmp(type, "ud") ? IBV_QPT_UD
		 : !strcmp(type, "raw") ? IBV_QPT_RAW_PACKET
				       : IBV_QPT_XRC_SEND;
	q.builder = word_is("builder");
	listening = true;
	CHECK("open_device", (q.context = ibv_open_device(device)));
	CHECK("alloc_pd", (q.pd = ibv_alloc_pd(q.context)));
}

static void make_cq(void)
{
	int entries = number();
	int vector = number();

	CHECK("create_cq", (q.cq = ibv_create_cq(q.context, entries, NULL, NULL, vector)));
	struct mlx5dv_obj obj = {.cq = {.in = q.cq, .out = &q.dv_cq}};
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
}

static void make_mr(void)
{
	size_t length = number();

	if (!region)
		CHECK("memory", (region = aligned_alloc(4096, 1 << 16)));
	CHECK("reg_mr", (q.mr = ibv_reg_mr(q.pd, region, length, number())));
}

static void make_ah(void)
{
	struct ibv_ah_attr *path = &q.paths[q.num_ahs];

	path->port_num = 1;
	path->dlid = number();
	path->sl = number();
	path->src_path_bits = number();
	path->static_rate = number();
	path->is_global = number();
	const char *gid = word();
	for (int i = 0; i < 16; i++) {
		char digits[3] = {gid[2 * i], gid[2 * i + 1], 0};

		path->grh.dgid.raw[i] = strtoul(digits, NULL, 16);
	}
	path->grh.flow_label = number();
	path->grh.sgid_index = number();
	path->grh.hop_limit = number();
	path->grh.traffic_class = number();
	if (q.type == IBV_QPT_UD)
		CHECK("create_ah", (q.ahs[q.num_ahs] = ibv_create_ah(q.pd, path)));
	q.num_ahs++;
}

static void make_srq(void)
{
	struct ibv_srq_init_attr attr = {0};

	attr.attr.max_wr = number();
	attr.attr.max_sge = number();
	CHECK("create_srq", (q.srq = ibv_create_srq(q.pd, &attr)));
	q.dv_srq.comp_mask = 0;
	struct mlx5dv_obj obj = {.srq = {.in = q.srq, .out = &q.dv_srq}};
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	q.srq_next = 0;
	printf("srq %x %x\n", attr.attr.max_wr, attr.attr.max_sge);
}

static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap *cap, int sig)
{
	struct ibv_qp *made;

	if (q.type == IBV_QPT_RAW_PACKET)
		return create_packet(pd, cq, cap, sig);
	if (q.builder) {
		struct ibv_qp_init_attr_ex attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.srq = pd == q.pd ? q.srq : NULL,
			.cap = *cap,
			.qp_type = q.type,
			.sq_sig_all = sig,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = pd,
			.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		};
		if (q.type != IBV_QPT_UD)
			attr.send_ops_flags |=
				IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
		if (q.type == IBV_QPT_RC)
			attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ;
		made = ibv_create_qp_ex(pd->context, &attr);
	} else {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.srq = pd == q.pd ? q.srq : NULL,
			.cap = *cap,
			.qp_type = q.type,
			.sq_sig_all = sig,
		};
		made = ibv_create_qp(pd, &attr);
	}
	return made;
}

static struct mlx5dv_qp describe(struct ibv_qp *qp)
{
	struct mlx5dv_qp dv = {0};
	struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &dv}};

	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	return dv;
}

/* How many requests to ask for to be given a ring of so many blocks: found in a context aside. */
static uint32_t requests_for(uint32_t blocks, struct ibv_qp_cap cap)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t found = 0;

	CHECK("open_device", (context = ibv_open_device(device)));
	CHECK("alloc_pd", (pd = ibv_alloc_pd(context)));
	CHECK("create_cq", (cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	for (uint32_t part = 1; part <= blocks && !found; part++) {
		struct ibv_qp *qp;

		cap.max_send_wr = blocks / part;
		qp = create(pd, cq, &cap, 0);
		if (!qp)
			continue;
		if (describe(qp).sq.wqe_cnt == blocks)
			found = cap.max_send_wr;
		ibv_destroy_qp(qp);
	}
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	if (!found) {
		fprintf(stderr, "oracle: no ring of %u blocks\n", blocks);
		exit(1);
	}
	return found;
}

static void make_qp(void)
{
	struct ibv_qp_cap cap = {0};
	uint32_t blocks = number();
	int sig;

	cap.max_recv_wr = number();
	cap.max_send_sge = number();
	cap.max_recv_sge = number();
	cap.max_inline_data = number();
	sig = number();
	listening = false;
	cap.max_send_wr = requests_for(blocks, cap);
	listening = true;
	CHECK("create_qp", (q.qp = create(q.pd, q.cq, &cap, sig)));
	q.uidx = user_index;
	q.dv = describe(q.qp);
	if (q.builder)
		q.qpx = ibv_qp_to_qp_ex(q.qp);
	q.uar = (uint8_t *)((uintptr_t)q.dv.bf.reg & ~(uintptr_t)0xfff);
	printf("made %x %x %x %x\n", q.qp->qp_num, q.dv.sq.wqe_cnt, q.dv.rq.wqe_cnt,
	       q.dv.rq.stride);
}

static void to_init(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	attr.port_num = number();
	attr.pkey_index = number();
	attr.qp_access_flags = number();
	attr.qkey = number();
	mask |= q.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK("modify_qp", !ibv_modify_qp(q.qp, &attr, mask));
}

static void to_rtr(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask = IBV_QP_STATE;

	attr.path_mtu = number();
	attr.dest_qp_num = number();
	attr.rq_psn = number();
	attr.max_dest_rd_atomic = number();
	attr.min_rnr_timer = number();
	attr.ah_attr = q.paths[number()];
	if (q.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (q.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK("modify_qp", !ibv_modify_qp(q.qp, &attr, mask));
}

static void to_rts(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	attr.sq_psn = number();
	attr.timeout = number();
	attr.retry_cnt = number();
	attr.rnr_retry = number();
	attr.max_rd_atomic = number();
	if (q.type == IBV_QPT_RC || q.type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK("modify_qp", !ibv_modify_qp(q.qp, &attr, mask));
	listening = false;
}

/* Requests. */

static enum ibv_wr_opcode opcode(const char *name)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} table[] = {
		{"send", IBV_WR_SEND},
		{"send_imm", IBV_WR_SEND_WITH_IMM},
		{"rdma_write", IBV_WR_RDMA_WRITE},
		{"rdma_write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
		{"rdma_read", IBV_WR_RDMA_READ},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(table[i].name, name))
			return table[i].opcode;
	fprintf(stderr, "oracle: no operation %s\n", name);
	exit(1);
}

static int read_sges(struct ibv_sge *list)
{
	int count = number();

	for (int i = 0; i < count; i++) {
		list[i].addr = number();
		list[i].length = number();
		list[i].lkey = number();
	}
	return count;
}

static void read_wr(struct ibv_send_wr *wr, struct ibv_sge *list, uint8_t *message)
{
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = number();
	wr->opcode = opcode(word());
	for (const char *flag = word(); *flag; flag++)
		wr->send_flags |= *flag == 'S'   ? IBV_SEND_SIGNALED
				  : *flag == 'O' ? IBV_SEND_SOLICITED
				  : *flag == 'F' ? IBV_SEND_FENCE
						 : 0;
	wr->imm_data = htobe32(number());
	uint64_t address = number();
	uint32_t key = number();
	int ah = number();
	uint32_t qpn = number();
	uint32_t qkey = number();
	if (q.type == IBV_QPT_UD) {
		wr->wr.ud.ah = q.ahs[ah];
		wr->wr.ud.remote_qpn = qpn;
		wr->wr.ud.remote_qkey = qkey;
	} else {
		wr->wr.rdma.remote_addr = address;
		wr->wr.rdma.rkey = key;
	}
	wr->sg_list = list;
	if (word_is("sges")) {
		wr->num_sge = read_sges(list);
		return;
	}
	wr->send_flags |= IBV_SEND_INLINE;
	wr->num_sge = number();
	uint32_t at = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		uint32_t length = number();

		list[i].addr = (uintptr_t)(message + at);
		list[i].length = length;
		for (uint32_t end = at + length; at < end; at++)
			message[at] = at * 7 + wr->wr_id;
	}
}

static void build(const struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *to = q.qpx;

	to->wr_id = wr->wr_id;
	to->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(to);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(to, wr->imm_data);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	default:
		ibv_wr_rdma_read(to, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
	}
	if (q.type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(to, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (wr->num_sge == 1)
			ibv_wr_set_sge(to, wr->sg_list->lkey, wr->sg_list->addr,
				       wr->sg_list->length);
		else
			ibv_wr_set_sge_list(to, wr->num_sge, wr->sg_list);
	} else if (wr->num_sge == 1) {
		ibv_wr_set_inline_data(to, (void *)(uintptr_t)wr->sg_list->addr,
				       wr->sg_list->length);
	} else {
		struct ibv_data_buf pieces[MAX_SGES];

		for (int i = 0; i < wr->num_sge; i++)
			pieces[i] = (struct ibv_data_buf){
				.addr = (void *)(uintptr_t)wr->sg_list[i].addr,
				.length = wr->sg_list[i].length,
			};
		ibv_wr_set_inline_data_list(to, wr->num_sge, pieces);
	}
}

/* Posts `count` of `wrs`; answers how many were, or -1 for all. */
static int post(struct ibv_send_wr *list, int count)
{
	if (q.builder) {
		ibv_wr_start(q.qpx);
		for (int i = 0; i < count; i++)
			build(&list[i]);
		return ibv_wr_complete(q.qpx) ? 0 : -1;
	}
	struct ibv_send_wr *bad = NULL;
	for (int i = 0; i < count; i++)
		list[i].next = i + 1 < count ? &list[i + 1] : NULL;
	return ibv_post_send(q.qp, list, &bad) ? (int)(bad - list) : -1;
}

static uint8_t *block(uint16_t index)
{
	return (uint8_t *)q.dv.sq.buf + (index & (q.dv.sq.wqe_cnt - 1)) * BLOCK;
}

static uint16_t send_record(void)
{
	return be32toh(((volatile __be32 *)q.dv.dbrec)[1]);
}

static int units(uint16_t index)
{
	return block(index)[7] & 0x3f;
}

/* Goes past the requests that were posted. */
static void follow(bool prints)
{
	uint16_t end = send_record();

	while (q.head != end) {
		int count = units(q.head);

		if (prints) {
			printf("wqe ");
			for (int unit = 0; unit < count; unit++)
				hex(block(q.head + unit / 4) + unit % 4 * UNIT, UNIT);
			printf("\n");
		}
		q.last = q.head;
		q.head += (count + 3) / 4;
		if (!count)
			fail("a request of no units");
	}
}

static void poison(void)
{
	memset(q.uar + REGISTERS, POISON, REGISTERS_END - REGISTERS);
}

static void clear(void)
{
	memset(q.uar + REGISTERS, 0, REGISTERS_END - REGISTERS);
}

static bool is_poison(int at)
{
	for (int i = 0; i < 8; i++)
		if (q.uar[at + i] != POISON)
			return false;
	return true;
}

static void report_register(void)
{
	int first = REGISTERS, last = REGISTERS_END;

	while (first < last && is_poison(first))
		first += 8;
	while (last > first && is_poison(last - 8))
		last -= 8;
	if (first == last) {
		printf("register none\n");
	} else {
		printf("register %x ", first % REGISTER_BYTES);
		hex(q.uar + first, last - first);
		printf("\n");
	}
	clear();
}

static void report_record(const void *record, size_t length)
{
	printf("record ");
	hex(record, length);
	printf("\n");
}

static void report_result(int posted)
{
	if (posted < 0)
		printf("result posted\n");
	else
		printf("result refused %x\n", posted);
}

static void post_case(void)
{
	printf("post %s\n", word());
	int count = number();
	for (int i = 0; i < count; i++) {
		CHECK("a request", next_line());
		first_word();
		read_wr(&wrs[i], sges[i], messages[i]);
	}
	poison();
	report_result(post(wrs, count));
	report_record(q.dv.dbrec, 8);
	report_register();
	follow(true);
	printf("done\n");
}

/* Makes up completions. */
static void complete_of(uint32_t owner, uint8_t opcode, uint16_t counter)
{
	uint32_t index = q.completed++;
	uint8_t *cqe = (uint8_t *)q.dv_cq.buf + (index & (q.dv_cq.cqe_cnt - 1)) * q.dv_cq.cqe_size;
	struct ibv_wc wc;
	__be32 uidx = htobe32(owner);
	__be32 what = 0;
	__be16 which = htobe16(counter);

	cqe += q.dv_cq.cqe_size - 64;
	memset(cqe, 0, 63);
	memcpy(cqe + 32, &uidx, 4);
	memcpy(cqe + 56, &what, 4);
	memcpy(cqe + 60, &which, 2);
	cqe[63] = opcode << 4 | !!(index & q.dv_cq.cqe_cnt);
	int polled = ibv_poll_cq(q.cq, 1, &wc);
	if (polled != 1 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "oracle: completion of %x: %d, status %d\n", counter, polled,
			polled == 1 ? (int)wc.status : 0);
		exit(1);
	}
}

static void complete(uint8_t opcode, uint16_t counter)
{
	complete_of(q.uidx, opcode, counter);
}

static void drain(void)
{
	complete(0, q.last);
}

static void fill(void)
{
	int count = number(), times = number();

	while (times--) {
		for (int i = 0; i < count; i++)
			wrs[i] = filler;
		if (post(wrs, count) >= 0)
			fail("a filler was refused");
		follow(false);
		drain();
	}
	clear();
}

/* Fills the queue one by one, and says whether the refused request changed the ring. */
static void overfull(void)
{
	size_t length = q.dv.sq.wqe_cnt * BLOCK;
	uint8_t *before = malloc(length);
	struct ibv_send_wr wr = filler;

	wr.send_flags &= ~IBV_SEND_SIGNALED;
	for (uint32_t i = 0; i <= q.dv.sq.wqe_cnt; i++) {
		memcpy(before, q.dv.sq.buf, length);
		wr.wr.rdma.remote_addr += 0x1000;
		if (post(&wr, 1) >= 0)
			break;
		follow(false);
	}
	clear();
	printf("overfull\nring %s\ndone\n",
	       memcmp(before, q.dv.sq.buf, length) ? "changed" : "untouched");
	free(before);
}

/* Receives. */

static void report_scatter(const uint8_t *list, size_t room)
{
	for (size_t at = 0; at < room; at += UNIT) {
		__be32 head[2];

		hex(list + at, UNIT);
		memcpy(head, list + at, sizeof(head));
		if (!head[0] && be32toh(head[1]) == END_OF_LIST)
			break;
	}
	printf("\n");
}

static int read_receives(void)
{
	int count = number();

	for (int i = 0; i < count; i++) {
		CHECK("a request", next_line());
		first_word();
		recvs[i].wr_id = number();
		recvs[i].sg_list = sges[i];
		recvs[i].num_sge = read_sges(sges[i]);
		recvs[i].next = i + 1 < count ? &recvs[i + 1] : NULL;
	}
	return count;
}

static void recv_case(void)
{
	struct ibv_recv_wr *bad = NULL;

	printf("recv %s\n", word());
	read_receives();
	report_result(ibv_post_recv(q.qp, recvs, &bad) ? (int)(bad - recvs) : -1);
	report_record(q.dv.dbrec, 8);
	uint16_t end = be32toh(((volatile __be32 *)q.dv.dbrec)[0]);
	for (; q.received != end; q.received++) {
		uint32_t index = q.received & (q.dv.rq.wqe_cnt - 1);

		printf("rwqe ");
		report_scatter((uint8_t *)q.dv.rq.buf + index * q.dv.rq.stride, q.dv.rq.stride);
	}
	printf("done\n");
}

enum { RESPONDER_SEND = 2 };

static void drain_receives(void)
{
	for (; q.receive_completed != q.received; q.receive_completed++)
		complete(RESPONDER_SEND, q.receive_completed);
}

static void fill_receives(void)
{
	int count = number(), times = number();

	while (times--) {
		struct ibv_recv_wr *bad = NULL;

		for (int i = 0; i < count; i++)
			recvs[i] = (struct ibv_recv_wr){
				.next = i + 1 < count ? &recvs[i + 1] : NULL,
			};
		if (ibv_post_recv(q.qp, recvs, &bad))
			fail("post_recv");
		q.received += count;
		drain_receives();
	}
}

static void srq_case(void)
{
	struct ibv_recv_wr *bad = NULL;

	printf("srecv %s\n", word());
	int count = read_receives();
	int posted = ibv_post_srq_recv(q.srq, recvs, &bad) ? (int)(bad - recvs) : -1;
	report_result(posted);
	/* One counter, of four bytes. */
	report_record(q.dv_srq.dbrec, 4);
	for (int i = 0; i < (posted < 0 ? count : posted); i++) {
		uint8_t *wqe = (uint8_t *)q.dv_srq.buf + q.srq_next * q.dv_srq.stride;
		__be16 next;

		printf("swqe ");
		memcpy(&next, wqe + 2, 2);
		hex(wqe, 2);
		printf("0000");
		hex(wqe + 4, 12);
		report_scatter(wqe + UNIT, q.dv_srq.stride - UNIT);
		q.srq_posted[q.num_srq_posted++] = q.srq_next;
		q.srq_next = be16toh(next);
	}
	printf("done\n");
}

/* Completes requests of the shared receive queue: which, counted among the outstanding ones. */
static void drain_srq(void)
{
	int count = number();

	while (count--) {
		int which = number();

		complete(RESPONDER_SEND, q.srq_posted[which]);
		q.num_srq_posted--;
		memmove(&q.srq_posted[which], &q.srq_posted[which + 1],
			(q.num_srq_posted - which) * sizeof(q.srq_posted[0]));
	}
}

static void read_filler(void)
{
	read_wr(&filler, filler_sges, filler_message);
}

#include "operations.h"
#include "packets.h"

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} commands[] = {
		{"queue", open_queue}, {"cq", make_cq},
		{"mr", make_mr},       {"ah", make_ah},
		{"srq", make_srq},     {"qp", make_qp},
		{"init", to_init},     {"rtr", to_rtr},
		{"rts", to_rts},       {"filler", read_filler},
		{"post", post_case},   {"drain", drain},
		{"fill", fill},        {"overfull", overfull},
		{"recv", recv_case},   {"rdrain", drain_receives},
		{"rfill", fill_receives}, {"srecv", srq_case},
		{"sdrain", drain_srq}, {"dvqp", make_dv_qp},
		{"keys", make_keys}, {"dvpost", post_rare},
		{"sqd", to_sqd},       {"cancel", cancel},
		{"windows", make_windows}, {"sigerr", signature_error},
		{"packets", packet_attributes}, {"ready", ready},
		{"pkpost", post_packets}, {"work", make_work},
		{"state", set_state},  {"strip", set_strip},
		{"wrecv", post_work},  {"wdrain", drain_work},
		{"table", make_table}, {"hash", make_hash},
		{"counters", make_counters}, {"count", count},
		{"rule", make_rule},   {"matcher", make_matcher},
		{"match", make_match}, {"unmake", unmake},
	};
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || !count)
		fail("no device");
	device = list[0];
	while (next_line()) {
		const char *name = first_word();
		size_t i = 0, end = sizeof(commands) / sizeof(commands[0]);

		while (i < end && strcmp(commands[i].name, name))
			i++;
		if (i == end) {
			fprintf(stderr, "oracle: no command %s\n", name);
			return 1;
		}
		commands[i].run();
	}
	destroy_keys();
	close_queue();
	printf("end\n");
	return 0;
}
