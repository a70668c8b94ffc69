/*
 * Makes up completions for rdma-core's mlx5 provider, and says what it reads from them. The device
 * must not act by itself. Lines on standard input, one completion each:
 *
 *	send API QP OP WR_ID ENTRY	posts a request (QP: rc, ud, raw), and completes it
 *	recv API QP WR_ID ENTRY		posts a receive (QP: rc, ud, srq, xrc, tm, raw, wq), and completes it
 *	tag OP FLAGS COUNT WR_ID ENTRY	posts an operation on the list of tags, and completes it
 *	match WR_ID ENTRY		a message that matches the tag last added
 *
 * API is `list` (ibv_poll_cq) or `ex` (ibv_start_poll). ENTRY is 128 bytes, in hexadecimal, of which
 * those last ones are written that the queue has; who completes (user index, counter, owner, place on
 * the list) is filled in here. Numbers are hexadecimal. The answer is one line of KEY=VALUE.
 */
#define _GNU_SOURCE
#define PROGRAM "completions"
#include <endian.h>
#include <fcntl.h>

#include "peer.h"

enum {
	BLOCK = 64,
	DESCRIPTOR = 64,
	ENTRY = 128,
	BUFFER = 64,
	/* Stands where nothing was written. */
	POISON = 0xa5,
	TAG_SIGNALED = IBV_OPS_SIGNALED,
	OBJECT_WQ = 12,
	HEADERS = 54,
};

/* Who a completion is of. */
struct target {
	const char *name;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_wq *wq;
	struct mlx5dv_qp dv;
	uint32_t uidx;
	uint16_t received;
	uint16_t head;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct mlx5dv_cq ring;
static uint32_t completed;
static struct ibv_mr *mr;
static uint8_t buffer[4096] __attribute__((aligned(4096)));
static struct ibv_mw *window;
static struct mlx5dv_mkey *plain_key, *signed_key;
static struct ibv_ah *ah;
static struct target rc = {.name = "rc"}, ud = {.name = "ud"}, srq = {.name = "srq"},
		     xrc = {.name = "xrc"}, tm = {.name = "tm"}, raw = {.name = "raw"},
		     wq = {.name = "wq"};
static struct target *const targets[] = {&rc, &ud, &srq, &xrc, &tm, &raw, &wq};
/* What the driver told the kernel of the last shared receive queue, queue pair and work queue: of the
 * first and the last one the third word is its user index, of the other the fifth. */
static struct {
	uint64_t buffer, record;
	uint32_t words[8];
} created_srq, created_qp, created_wq;
/* Of the list of tags. */
static uint32_t list_posted, handles;

/* Takes the place of libc's for the libraries. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);

	const void *qp = creation(OBJECT_QP, request, argument);
	const void *shared = creation(OBJECT_SRQ, request, argument);
	const void *work = creation(OBJECT_WQ, request, argument);
	if (qp)
		memcpy(&created_qp, qp, 40);
	if (shared)
		memcpy(&created_srq, shared, 32);
	if (work)
		memcpy(&created_wq, work, 32);
	return next_ioctl(fd, request, argument);
}

/* Making everything. */

static void make_cq(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 255,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG |
			    IBV_WC_EX_WITH_TM_INFO | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct mlx5dv_obj obj = {.cq = {.out = &ring}};

	CHECK("create_cq_ex", (cq = ibv_create_cq_ex(context, &attr)));
	obj.cq.in = ibv_cq_ex_to_cq(cq);
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
}

static void connect_to_nowhere(struct target *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 1,
	};
	bool datagram = to->qp->qp_type == IBV_QPT_UD;
	struct ibv_port_attr port;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	CHECK("query_port", !ibv_query_port(context, 1, &port));
	CHECK("to INIT", !ibv_modify_qp(to->qp, &attr,
					mask | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = 0x11;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.dlid = 5;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		CHECK("query_gid", !ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
		attr.ah_attr.grh.hop_limit = 1;
	}
	if (datagram)
		CHECK("create_ah", (ah = ibv_create_ah(pd, &attr.ah_attr)));
	mask = IBV_QP_STATE;
	if (!datagram)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK("to RTR", !ibv_modify_qp(to->qp, &attr, mask));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (!datagram)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK("to RTS", !ibv_modify_qp(to->qp, &attr, mask));
}

static void make_qp(struct target *to, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.srq = to->srq,
		.cap = {.max_send_wr = 32, .max_recv_wr = to->srq ? 0 : 16, .max_send_sge = 4,
			.max_recv_sge = to->srq ? 0 : 2, .max_inline_data = 512},
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct mlx5dv_qp_init_attr dv = {0};
	struct mlx5dv_obj obj = {.qp = {.out = &to->dv}};

	if (type == IBV_QPT_RC) {
		attr.send_ops_flags |= IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
				       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				       IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV |
				       IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
		dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE;
	}
	CHECK("create_qp", (to->qp = mlx5dv_create_qp(context, &attr, &dv)));
	to->uidx = created_qp.words[4];
	obj.qp.in = to->qp;
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	connect_to_nowhere(to);
}

static void make_packets(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = {.max_send_wr = 32, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			     IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
		.pd = pd,
		.max_tso_header = HEADERS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
	};
	struct ibv_wq_init_attr work = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = 16,
		.max_sge = 2,
		.pd = pd,
		.cq = ibv_cq_ex_to_cq(cq),
	};
	struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct mlx5dv_obj obj = {.qp = {.out = &raw.dv}};

	CHECK("create_qp", (raw.qp = ibv_create_qp_ex(context, &attr)));
	raw.uidx = created_qp.words[4];
	obj.qp.in = raw.qp;
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	CHECK("to INIT", !ibv_modify_qp(raw.qp, &state, IBV_QP_STATE | IBV_QP_PORT));
	state.qp_state = IBV_QPS_RTR;
	CHECK("to RTR", !ibv_modify_qp(raw.qp, &state, IBV_QP_STATE));
	state.qp_state = IBV_QPS_RTS;
	CHECK("to RTS", !ibv_modify_qp(raw.qp, &state, IBV_QP_STATE));
	CHECK("create_wq", (wq.wq = ibv_create_wq(context, &work)));
	wq.uidx = created_wq.words[2];
	CHECK("modify_wq", !ibv_modify_wq(wq.wq, &ready));
}

static void make_srqs(bool tags)
{
	struct ibv_srq_init_attr plain = {.attr = {.max_wr = 16, .max_sge = 2}};
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 16, .max_sge = 2},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_XRCD,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.cq = ibv_cq_ex_to_cq(cq),
	};

	CHECK("create_srq", (srq.srq = ibv_create_srq(pd, &plain)));
	CHECK("open_xrcd", (attr.xrcd = ibv_open_xrcd(context, &domain)));
	CHECK("create_srq_ex", (xrc.srq = ibv_create_srq_ex(context, &attr)));
	xrc.uidx = created_srq.words[2];
	if (!tags)
		return;
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			 IBV_SRQ_INIT_ATTR_TM;
	attr.srq_type = IBV_SRQT_TM;
	attr.tm_cap.max_num_tags = 15;
	attr.tm_cap.max_ops = 64;
	CHECK("create_srq_ex", (tm.srq = ibv_create_srq_ex(context, &attr)));
	tm.uidx = created_srq.words[2];
}

static void make_keys(void)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = pd,
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
		.max_entries = 4,
	};

	CHECK("create_mkey", (plain_key = mlx5dv_create_mkey(&attr)));
	attr.create_flags |= MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
	CHECK("create_mkey", (signed_key = mlx5dv_create_mkey(&attr)));
	CHECK("alloc_mw", (window = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
}

/* Requests. */

static void configure(struct ibv_qp_ex *to, struct mlx5dv_mkey *key, bool is_signed)
{
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(to);
	struct mlx5dv_mkey_conf_attr attr = {0};
	struct mlx5dv_sig_crc crc = {.type = MLX5DV_SIG_CRC_TYPE_CRC32C};
	struct mlx5dv_sig_block_domain domain = {
		.sig_type = MLX5DV_SIG_TYPE_CRC,
		.sig.crc = &crc,
		.block_size = MLX5DV_BLOCK_SIZE_512,
	};
	struct mlx5dv_sig_block_attr block = {.wire = &domain, .check_mask = 0xff};

	to->wr_flags |= IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(dv, key, is_signed ? 2 : 1, &attr);
	mlx5dv_wr_set_mkey_access_flags(dv, IBV_ACCESS_LOCAL_WRITE);
	if (is_signed)
		mlx5dv_wr_set_mkey_sig_block(dv, &block);
}

static void raw_nop(struct ibv_qp_ex *to)
{
	uint8_t wqe[BLOCK] __attribute__((aligned(BLOCK))) = {0};

	wqe[7] = 1;
	wqe[11] = 8;
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(to), wqe);
}

static void build(struct ibv_qp_ex *to, const char *what)
{
	const uint64_t there = (uintptr_t)buffer;
	const uint32_t rkey = mr->rkey;

	if (!strcmp(what, "send"))
		ibv_wr_send(to);
	else if (!strcmp(what, "tso"))
		ibv_wr_send_tso(to, buffer, HEADERS, 100);
	else if (!strcmp(what, "send_imm"))
		ibv_wr_send_imm(to, htobe32(7));
	else if (!strcmp(what, "send_inv"))
		ibv_wr_send_inv(to, 7);
	else if (!strcmp(what, "write"))
		ibv_wr_rdma_write(to, rkey, there);
	else if (!strcmp(what, "write_imm"))
		ibv_wr_rdma_write_imm(to, rkey, there, htobe32(7));
	else if (!strcmp(what, "read"))
		ibv_wr_rdma_read(to, rkey, there);
	else if (!strcmp(what, "cs"))
		ibv_wr_atomic_cmp_swp(to, rkey, there, 1, 2);
	else if (!strcmp(what, "fa"))
		ibv_wr_atomic_fetch_add(to, rkey, there, 1);
	else if (!strcmp(what, "local_inv"))
		return ibv_wr_local_inv(to, 7);
	else if (!strcmp(what, "mkey"))
		return configure(to, plain_key, false);
	else if (!strcmp(what, "mkey_sig"))
		return configure(to, signed_key, true);
	else if (!strcmp(what, "raw"))
		return raw_nop(to);
	else if (!strcmp(what, "bind_mw")) {
		struct ibv_mw_bind_info info = {
			.mr = mr,
			.addr = there,
			.length = BUFFER,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ,
		};
		return ibv_wr_bind_mw(to, window, ibv_inc_rkey(window->rkey), &info);
	} else {
		fail(what);
	}
	if (to->qp_base.qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(to, ah, 0x11, 1);
	ibv_wr_set_sge(to, mr->lkey, there, BUFFER);
}

/* The block of the last request that the doorbell record announces. */
static uint16_t last_block(struct target *of)
{
	uint16_t end = be32toh(((volatile __be32 *)of->dv.dbrec)[1]), last = of->head;

	while (of->head != end) {
		const uint8_t *wqe = (uint8_t *)of->dv.sq.buf +
				     (of->head & (of->dv.sq.wqe_cnt - 1)) * BLOCK;

		last = of->head;
		of->head += ((wqe[7] & 0x3f) + 3) / 4;
	}
	return last;
}

static uint16_t post_send(struct target *to, const char *what, uint64_t wr_id)
{
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(to->qp);

	qpx->wr_id = wr_id;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qpx);
	build(qpx, what);
	CHECK("wr_complete", !ibv_wr_complete(qpx));
	return last_block(to);
}

static uint16_t post_recv(struct target *to, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = BUFFER, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
	struct mlx5dv_srq dv = {0};
	struct mlx5dv_obj obj = {.srq = {.in = to->srq, .out = &dv}};

	if (to->wq) {
		CHECK("post_wq_recv", !ibv_post_wq_recv(to->wq, &wr, &bad));
		return to->received++;
	}
	if (!to->srq) {
		CHECK("post_recv", !ibv_post_recv(to->qp, &wr, &bad));
		return to->received++;
	}
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ));
	CHECK("post_srq_recv", !ibv_post_srq_recv(to->srq, &wr, &bad));
	return dv.head;
}

static uint16_t post_tag(const char *what, uint32_t flags, uint32_t count, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = BUFFER, .lkey = mr->lkey};
	struct ibv_ops_wr wr = {.wr_id = wr_id, .flags = flags}, *bad;

	wr.tm.unexpected_cnt = count;
	if (!strcmp(what, "add")) {
		wr.opcode = IBV_WR_TAG_ADD;
		/* What completes when a message matches. */
		wr.tm.add.recv_wr_id = wr_id + (1ull << 32);
		wr.tm.add.sg_list = &sge;
		wr.tm.add.num_sge = 1;
		wr.tm.add.tag = 0x1234;
		wr.tm.add.mask = UINT64_MAX;
	} else if (!strcmp(what, "del")) {
		wr.opcode = IBV_WR_TAG_DEL;
		wr.tm.handle = handles;
	} else {
		wr.opcode = IBV_WR_TAG_SYNC;
	}
	CHECK("post_srq_ops", !ibv_post_srq_ops(tm.srq, &wr, &bad));
	if (wr.opcode == IBV_WR_TAG_ADD)
		handles = wr.tm.handle;
	/* An operation takes one block. */
	return list_posted++;
}

/* Completions. */

static void write_entry(uint8_t *entry, uint32_t uidx, uint16_t counter)
{
	uint32_t index = completed++, size = ring.cqe_size;
	uint8_t *to = (uint8_t *)ring.buf + (index & (ring.cqe_cnt - 1)) * size;
	uint8_t *cqe = entry + ENTRY - DESCRIPTOR;

	for (int i = 0; i < 3; i++)
		cqe[33 + i] = uidx >> (16 - 8 * i);
	cqe[60] = counter >> 8;
	cqe[61] = counter;
	cqe[63] = (cqe[63] & ~1) | !!(index & ring.cqe_cnt);
	memcpy(to, entry + ENTRY - size, size);
}

static void report(const char *name, uint64_t value)
{
	printf("%s=%" PRIx64 " ", name, value);
}

#define REPORT_WRITTEN(name, field)                                                               \
	do {                                                                                       \
		uint8_t poison[sizeof(wc.field)];                                                  \
		memset(poison, POISON, sizeof(poison));                                            \
		if (memcmp(&wc.field, poison, sizeof(poison)))                                     \
			report(name, wc.field);                                                      \
	} while (0)

static int poll_list(void)
{
	struct ibv_wc wc;
	uint32_t immediate;

	memset(&wc, POISON, sizeof(wc));
	if (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) != 1)
		return -1;
	immediate = wc.imm_data;
	if (wc.wc_flags & IBV_WC_WITH_IMM)
		wc.imm_data = htobe32(immediate);
	REPORT_WRITTEN("wr_id", wr_id);
	REPORT_WRITTEN("status", status);
	REPORT_WRITTEN("opcode", opcode);
	REPORT_WRITTEN("vendor", vendor_err);
	REPORT_WRITTEN("length", byte_len);
	REPORT_WRITTEN("imm", imm_data);
	REPORT_WRITTEN("qpn", qp_num);
	REPORT_WRITTEN("src_qp", src_qp);
	REPORT_WRITTEN("flags", wc_flags);
	REPORT_WRITTEN("pkey", pkey_index);
	REPORT_WRITTEN("slid", slid);
	REPORT_WRITTEN("sl", sl);
	REPORT_WRITTEN("path", dlid_path_bits);
	return wc.status;
}

/* What no verb reads: of the entry as mlx5dv.h has it. */
static void report_headers(void)
{
	const uint8_t *entry = (uint8_t *)ring.buf +
			       ((completed - 1) & (ring.cqe_cnt - 1)) * ring.cqe_size +
			       ring.cqe_size - DESCRIPTOR;
	const struct mlx5_cqe64 *cqe = (const void *)entry;
	unsigned network = cqe->l4_hdr_type_etc >> 2 & 3;

	report("network_ok", !!(cqe->hds_ip_ext & MLX5_CQE_L3_OK));
	report("transport_ok", !!(cqe->hds_ip_ext & MLX5_CQE_L4_OK));
	report("network", network == MLX5_CQE_L3_HDR_TYPE_IPV4   ? 4
			: network == MLX5_CQE_L3_HDR_TYPE_IPV6 ? 6
							       : 0);
}

static int poll_ex(void)
{
	struct ibv_poll_cq_attr attr = {0};
	struct ibv_wc_tm_info info;
	struct mlx5dv_clock_info clock;
	int status;

	if (ibv_start_poll(cq, &attr))
		return -1;
	report("wr_id", cq->wr_id);
	report("status", status = cq->status);
	report("opcode", ibv_wc_read_opcode(cq));
	report("vendor", ibv_wc_read_vendor_err(cq));
	report("length", ibv_wc_read_byte_len(cq));
	unsigned flags = ibv_wc_read_wc_flags(cq);
	report("imm", flags & IBV_WC_WITH_INV ? ibv_wc_read_invalidated_rkey(cq)
					    : be32toh(ibv_wc_read_imm_data(cq)));
	report("qpn", ibv_wc_read_qp_num(cq));
	report("src_qp", ibv_wc_read_src_qp(cq));
	report("flags", flags);
	report("slid", ibv_wc_read_slid(cq));
	report("sl", ibv_wc_read_sl(cq));
	report("path", ibv_wc_read_dlid_path_bits(cq));
	report("time", ibv_wc_read_completion_ts(cq));
	report("wallclock", ibv_wc_read_completion_wallclock_ns(cq));
	report("vlan", ibv_wc_read_cvlan(cq));
	report("flow_tag", ibv_wc_read_flow_tag(cq));
	report_headers();
	ibv_wc_read_tm_info(cq, &info);
	report("tm_tag", info.tag);
	report("tm_priv", info.priv);
	ibv_end_poll(cq);
	CHECK("get_clock_info", !mlx5dv_get_clock_info(context, &clock));
	report("clock_ns", clock.nsec);
	report("clock_cycles", clock.last_cycles);
	report("clock_frac", clock.frac);
	report("clock_mult", clock.mult);
	report("clock_shift", clock.shift);
	report("clock_mask", clock.mask);
	return status;
}

static void complete(const char *api, uint8_t *entry, uint32_t uidx, uint16_t counter)
{
	const uint8_t *cqe = entry + ENTRY - DESCRIPTOR;
	uint32_t length;

	memset(buffer, POISON, BUFFER);
	write_entry(entry, uidx, counter);
	int status = strcmp(api, "ex") ? poll_list() : poll_ex();
	memcpy(&length, cqe + 44, sizeof(length));
	length = be32toh(length);
	if (status == IBV_WC_SUCCESS && cqe[63] & 0xc && length <= BUFFER) {
		printf("data=");
		for (uint32_t i = 0; i < length; i++)
			printf("%02x", buffer[i]);
	}
	printf("\n");
}

/* The script. */

static char *rest;

static char *word(void)
{
	char *found = strtok_r(NULL, " \n", &rest);

	if (!found) {
		fprintf(stderr, "completions: the line is too short\n");
		exit(1);
	}
	return found;
}

static uint64_t number(void)
{
	return strtoull(word(), NULL, 16);
}

static struct target *target(void)
{
	const char *name = word();

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		if (!strcmp(targets[i]->name, name))
			return targets[i];
	fail(name);
	return NULL;
}

static uint8_t *read_entry(void)
{
	static uint8_t entry[ENTRY];
	const char *digits = word();

	for (int i = 0; i < ENTRY; i++) {
		char two[3] = {digits[2 * i], digits[2 * i + 1], 0};

		entry[i] = strtoul(two, NULL, 16);
	}
	return entry;
}

static void place(uint8_t *entry)
{
	uint8_t *cqe = entry + ENTRY - DESCRIPTOR;

	/* A tag's handle is its place. */
	cqe[42] = handles >> 8;
	cqe[43] = handles;
}

static void run(char *line)
{
	const char *kind = strtok_r(line, " \n", &rest);

	if (!strcmp(kind, "send")) {
		const char *api = word();
		struct target *of = target();
		const char *what = word();
		uint16_t counter = post_send(of, what, number());

		complete(api, read_entry(), of->uidx, counter);
	} else if (!strcmp(kind, "recv")) {
		const char *api = word();
		struct target *of = target();
		uint16_t counter = post_recv(of, number());

		complete(api, read_entry(), of->uidx, counter);
	} else if (!strcmp(kind, "tag")) {
		const char *what = word();
		uint32_t flags = number(), count = number();
		uint16_t counter = post_tag(what, flags | TAG_SIGNALED, count, number());
		uint8_t *entry = read_entry();

		place(entry);
		complete("ex", entry, tm.uidx, counter);
	} else if (!strcmp(kind, "match")) {
		uint8_t *entry;

		number();
		entry = read_entry();
		place(entry);
		complete("ex", entry, tm.uidx, 0);
	} else {
		fail(kind);
	}
}

int main(void)
{
	static char line[1024];
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	CHECK("a device", devices && *devices);
	CHECK("open_device", (context = ibv_open_device(*devices)));
	CHECK("query_port", !ibv_query_port(context, 1, &port));
	CHECK("alloc_pd", (pd = ibv_alloc_pd(context)));
	CHECK("reg_mr", (mr = ibv_reg_mr(pd, buffer, sizeof(buffer),
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)));
	make_cq();
	make_srqs(port.link_layer == IBV_LINK_LAYER_INFINIBAND);
	make_keys();
	make_qp(&rc, IBV_QPT_RC);
	make_qp(&ud, IBV_QPT_UD);
	make_qp(&srq, IBV_QPT_RC);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		make_packets();
	while (fgets(line, sizeof(line), stdin))
		run(line);
	return 0;
}
