/*
 * Has rdma-core's mlx5 provider do what it does not do well, on a device that does nothing by itself:
 * completions and where a send queue is drained are made up here. Commands on standard input, numbers
 * in hexadecimal; what is said of one is in parentheses:
 *
 *	guard BLOCKS		arrays of so many words end where nothing can be read
 *	signatures		requests have signatures
 *	make BLOCKS SGES	a queue pair with a ring of this number of blocks
 *	send WR_ID SGES		posts a SEND of so many entries; with 4 it has two blocks, with 8 three
 *	list WR_ID		posts a SEND by ibv_post_send
 *	abort COUNT SGES	builds so many, and aborts the batch
 *	complete		all that was posted completes
 *	reset			RESET, and back to RTS
 *	drained BLOCK		from now on the firmware says that the queue is drained there
 *	target BLOCK		the request at this block is the one to look at
 *	cancel WR_ID		cancels (answer N, or never returns; another post waits)
 *	look			(target live, or cancelled, or gone; N words changed elsewhere)
 *	signature		(signature right, or wrong)
 *	questions		(questions N: how often the firmware was asked)
 *	post-meanwhile WR_ID	the next question is answered once another thread has posted, or waits
 *				(meanwhile posted, or waits)
 *	configure WR_ID		configures a key that is signed in memory and on the wire
 *	errors			two bad signatures are found; the key is asked twice (errors A B)
 *	window WR_ID		binds a window of type 1
 *	window-key		(window key new, or old: than before it was bound)
 *	raw UNITS		posts a request that the caller has put together (raw posted, or refused)
 *	interleaved BYTES	configures a key of a piece so long (interleaved BYTES, or refused)
 *	batch SGES		posts a request of so many entries as a batch (batch posted, or refused)
 *
 * A fault that ends the process is said, too (killed by a read behind the array; killed).
 */
#define _GNU_SOURCE
#define PROGRAM "faults"
#include <endian.h>
#include <pthread.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

enum {
	BLOCK = 64,
	MAX_BLOCKS = 256,
	MAX_SGES = 8,
	OPCODE = 3,
	PAGE = 4096,
	/* Of a processor: more than anything here takes that ends at all. */
	PATIENCE_MS = 200,
	/* How often one looks. */
	LOOK_NS = 2000000,
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct mlx5dv_cq ring_of_cq;
static struct ibv_qp *qp;
static struct mlx5dv_qp dv;
static struct ibv_mr *mr;
static struct ibv_mw *window;
static uint32_t window_key;
static struct mlx5dv_mkey *mkey;
static uint8_t memory[PAGE] __attribute__((aligned(PAGE)));
static uint32_t uidx, completed, questions;
static bool drained;
static uint16_t drained_at, target;
static uint8_t before[MAX_BLOCKS * BLOCK];
static uint64_t meanwhile;
static bool posts_meanwhile;
/* The array that ends where nothing can be read. */
static size_t guarded_bytes;
static uint8_t *guarded_end;
static bool making;

/* What was never written looks the same in every run. */
extern void *__libc_malloc(size_t bytes);
extern void __libc_free(void *memory);

void *malloc(size_t bytes)
{
	uint8_t *to;

	if (making && guarded_bytes && bytes == guarded_bytes) {
		to = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (to == MAP_FAILED || mprotect(to + PAGE, PAGE, PROT_NONE))
			return NULL;
		guarded_end = to + PAGE;
		to = guarded_end - bytes;
	} else {
		to = __libc_malloc(bytes);
	}
	if (making && to)
		memset(to, 0xff, bytes);
	return to;
}

void free(void *memory)
{
	/* What is guarded is not given back. */
	if (!guarded_bytes)
		__libc_free(memory);
}

static void say(const char *text)
{
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		_exit(1);
}

static void killed(int signal, siginfo_t *info, void *unused)
{
	(void)signal;
	(void)unused;
	fflush(stdout);
	say(guarded_end && (uint8_t *)info->si_addr == guarded_end ? "killed by a read behind the array\n"
						     : "killed\n");
	_exit(0);
}

/* Runs something that may never end, but goes on turning; whether it did. */
static bool ends(void *(*run)(void *), void *argument)
{
	struct timespec used = {0}, until;
	pthread_t thread;
	clockid_t clock;

	CHECK("a thread", !pthread_create(&thread, NULL, run, argument));
	do {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (!pthread_timedjoin_np(thread, NULL, &until))
			return true;
		/* Its own time, for others may keep it from the processor; none, if it just ended. */
		if (!pthread_getcpuclockid(thread, &clock))
			clock_gettime(clock, &used);
	} while (used.tv_sec == 0 && used.tv_nsec < PATIENCE_MS * 1000000l);
	return false;
}

static void *post_one(void *wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = *(uint64_t *)wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	ibv_post_send(qp, &wr, &bad);
	return NULL;
}

static void answer(const struct ib_uverbs_ioctl_hdr *header)
{
	/* Where query_qp_out has the state and the block that comes next. */
	enum { STATE = 0x18, COUNTER = 0x18 + 0xb4, SQ_DRAINED = 5 };

	if (header->object_id != MLX5_IB_OBJECT_DEVX_OBJ ||
	    header->method_id != MLX5_IB_METHOD_DEVX_OBJ_QUERY || !drained)
		return;
	questions++;
	if (posts_meanwhile) {
		posts_meanwhile = false;
		printf("meanwhile %s\n", ends(post_one, &meanwhile) ? "posted" : "waits");
	}
	for (int i = 0; i < header->num_attrs; i++) {
		uint8_t *out = (void *)(uintptr_t)header->attrs[i].data;

		if (header->attrs[i].attr_id != MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT)
			continue;
		out[STATE] = (out[STATE] & 0xf) | SQ_DRAINED << 4;
		out[COUNTER] = drained_at >> 8;
		out[COUNTER + 1] = drained_at;
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
		memcpy(&uidx, creation_input + 32, sizeof(uidx));
	int result = next_ioctl(fd, request, argument);
	if (!result && request == RDMA_VERBS_IOCTL)
		answer(argument);
	return result;
}

/* The script. */

static char *rest;

static uint64_t number(void)
{
	char *word = strtok_r(NULL, " \n", &rest);

	CHECK("a number", word);
	return strtoull(word, NULL, 16);
}

static void guard(void)
{
	guarded_bytes = number() * sizeof(uint32_t);
}

static void signatures(void)
{
	CHECK("setenv", !setenv("MLX5_QP_SIGNATURE", "1", 1));
}

static void connect_to_nowhere(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK("to INIT", !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
							   IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = 0x11;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.dlid = 5;
	CHECK("to RTR",
	      !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK("to RTS", !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
							  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							  IBV_QP_MAX_QP_RD_ATOMIC));
}

static void make(void)
{
	uint32_t blocks = number(), entries = number();
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_sge = entries},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct mlx5dv_qp_init_attr dv_attr = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
	};
	struct mlx5dv_obj obj = {.qp = {.out = &dv}};

	/* Those of keys and windows make every request large. */
	if (entries == MAX_SGES) {
		attr.send_ops_flags |= IBV_QP_EX_WITH_BIND_MW;
		attr.cap.max_inline_data = 512;
		dv_attr.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE |
					 MLX5DV_QP_EX_WITH_RAW_WQE;
	}
	making = true;
	for (uint32_t part = 1; part <= blocks; part++) {
		attr.cap.max_send_wr = blocks / part;
		qp = mlx5dv_create_qp(context, &attr, &dv_attr);
		if (!qp)
			continue;
		memset(&dv, 0, sizeof(dv));
		obj.qp.in = qp;
		CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
		if (dv.sq.wqe_cnt == blocks)
			break;
		CHECK("destroy_qp", !ibv_destroy_qp(qp));
		qp = NULL;
	}
	making = false;
	CHECK("a ring of this number of blocks", qp);
	connect_to_nowhere();
}

static void build(uint64_t wr_id, int entries)
{
	struct ibv_qp_ex *to = ibv_qp_to_qp_ex(qp);
	struct ibv_sge list[MAX_SGES];

	for (int i = 0; i < entries; i++)
		list[i] = (struct ibv_sge){
			.addr = (uintptr_t)memory + 8 * i,
			.length = 8,
			.lkey = mr->lkey,
		};
	to->wr_id = wr_id;
	to->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(to);
	ibv_wr_set_sge_list(to, entries, list);
}

static void post(void)
{
	uint64_t wr_id = number();

	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	build(wr_id, number());
	CHECK("wr_complete", !ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
}

static void post_list(void)
{
	uint64_t wr_id = number();

	post_one(&wr_id);
}

static void batch(void)
{
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	build(0xbad, number());
	printf("batch %s\n", ibv_wr_complete(ibv_qp_to_qp_ex(qp)) ? "refused" : "posted");
}

static void abort_batch(void)
{
	int count = number(), entries = number();

	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	for (int i = 0; i < count; i++)
		build(0xab0 + i, entries);
	ibv_wr_abort(ibv_qp_to_qp_ex(qp));
}

static uint8_t *block(uint16_t index)
{
	return (uint8_t *)dv.sq.buf + (index & (dv.sq.wqe_cnt - 1)) * BLOCK;
}

static uint16_t posted(void)
{
	return be32toh(((volatile __be32 *)dv.dbrec)[1]);
}

static uint8_t *next_entry(void)
{
	uint32_t index = completed++;
	uint8_t *cqe = (uint8_t *)ring_of_cq.buf +
		       (index & (ring_of_cq.cqe_cnt - 1)) * ring_of_cq.cqe_size;

	cqe += ring_of_cq.cqe_size - 64;
	memset(cqe, 0, 63);
	cqe[63] = !!(index & ring_of_cq.cqe_cnt);
	return cqe;
}

static void complete(void)
{
	static uint16_t head;
	uint16_t end = posted(), last = head;

	if (end < head)
		head = 0;
	for (; head != end; head += ((block(head)[7] & 0x3f) + 3) / 4)
		last = head;
	uint8_t *cqe = next_entry();
	const __be32 index = htobe32(uidx);
	struct ibv_wc wc;
	memcpy(cqe + 32, &index, 4);
	cqe[60] = last >> 8;
	cqe[61] = last;
	CHECK("a completion", ibv_poll_cq(cq, 1, &wc) == 1);
}

static void reset(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	CHECK("to RESET", !ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	connect_to_nowhere();
}

static void drain(void)
{
	drained_at = number();
	drained = true;
}

static void aim(void)
{
	target = number();
	memcpy(before, dv.sq.buf, dv.sq.wqe_cnt * BLOCK);
}

static int cancelled;

static void *cancel_one(void *wr_id)
{
	struct mlx5dv_qp_ex *of = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp));

	cancelled = mlx5dv_qp_cancel_posted_send_wrs(of, *(uint64_t *)wr_id);
	return NULL;
}

static void cancel(void)
{
	static uint64_t wr_id, another = 0xbad;

	wr_id = number();
	/* It may well never end; while it asks, another one posts, and that may not end. */
	if (posts_meanwhile) {
		cancel_one(&wr_id);
	} else if (!ends(cancel_one, &wr_id)) {
		printf("never returns; another post %s\n",
		       ends(post_one, &another) ? "is done" : "waits");
		fflush(stdout);
		_exit(0);
	}
	printf("answer %d\n", cancelled);
}

static void look(void)
{
	const uint8_t *now = dv.sq.buf, *there = block(target);
	size_t at = there - now, words = 0;

	for (size_t i = 0; i < dv.sq.wqe_cnt * BLOCK; i += 4)
		words += i != at && memcmp(now + i, before + i, 4);
	bool same_place = !memcmp(there + 1, before + at + 1, 2);
	printf("target %s; %zu words changed elsewhere\n",
	       !memcmp(there, before + at, 4)	     ? "live"
	       : same_place && there[OPCODE] == 0 ? "cancelled"
						     : "gone",
	       words);
}

static void signature(void)
{
	uint8_t sum = 0;

	for (int i = 0; i < (block(target)[7] & 0x3f) * 16; i++)
		sum ^= block(target)[i];
	printf("signature %s\n", sum == 0xff ? "right" : "wrong");
}

static void report_questions(void)
{
	printf("questions %x\n", questions);
}

static void post_meanwhile(void)
{
	meanwhile = number();
	posts_meanwhile = true;
}

static const struct mlx5dv_sig_block_attr *signed_everywhere(void)
{
	static struct mlx5dv_sig_crc crc = {.type = MLX5DV_SIG_CRC_TYPE_CRC32C};
	static struct mlx5dv_sig_block_domain domain = {
		.sig_type = MLX5DV_SIG_TYPE_CRC,
		.sig.crc = &crc,
		.block_size = MLX5DV_BLOCK_SIZE_512,
	};
	static struct mlx5dv_sig_block_attr attr = {
		.mem = &domain,
		.wire = &domain,
		.check_mask = 0xff,
	};

	return &attr;
}

static void configure(void)
{
	struct ibv_qp_ex *to = ibv_qp_to_qp_ex(qp);
	struct mlx5dv_qp_ex *of = mlx5dv_qp_ex_from_ibv_qp_ex(to);
	struct mlx5dv_mkey_conf_attr attr = {0};

	to->wr_id = number();
	to->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_start(to);
	mlx5dv_wr_mkey_configure(of, mkey, 2, &attr);
	mlx5dv_wr_set_mkey_access_flags(of, IBV_ACCESS_LOCAL_WRITE);
	mlx5dv_wr_set_mkey_sig_block(of, signed_everywhere());
	CHECK("wr_complete", !ibv_wr_complete(to));
}

static void find_error(uint64_t offset)
{
	uint8_t *cqe = next_entry();
	const __be16 guard = htobe16(1 << 13);
	const __be32 key = htobe32(mkey->lkey);
	const __be64 where = htobe64(offset);
	struct ibv_wc wc;

	memcpy(cqe + 32, &guard, sizeof(guard));
	memcpy(cqe + 36, &key, sizeof(key));
	memcpy(cqe + 40, &where, sizeof(where));
	cqe[63] |= MLX5_CQE_SIG_ERR << 4;
	CHECK("no completion", ibv_poll_cq(cq, 1, &wc) == 0);
}

static void errors(void)
{
	find_error(0x200);
	find_error(0x400);
	printf("errors");
	for (int i = 0; i < 2; i++) {
		struct mlx5dv_mkey_err error = {0};

		CHECK("mkey_check", !mlx5dv_mkey_check(mkey, &error));
		if (error.err_type == MLX5DV_MKEY_NO_ERR)
			printf(" none");
		else
			printf(" %" PRIx64, error.err.sig.offset);
	}
	printf("\n");
}

static void bind_window(void)
{
	struct ibv_mw_bind bind = {
		.wr_id = number(),
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = mr, .addr = (uintptr_t)memory, .length = 64,
			      .mw_access_flags = IBV_ACCESS_REMOTE_READ},
	};

	window_key = window->rkey;
	CHECK("bind_mw", !ibv_bind_mw(qp, window, &bind));
}

static void report_window_key(void)
{
	printf("window key %s\n", window->rkey == window_key ? "old" : "new");
}

static void raw(void)
{
	static uint8_t wqe[1024] __attribute__((aligned(BLOCK)));
	static uint8_t filling;
	struct ibv_qp_ex *to = ibv_qp_to_qp_ex(qp);

	memset(wqe, ++filling, sizeof(wqe));
	memset(wqe, 0, 16);
	wqe[7] = number();
	wqe[11] = 8;
	ibv_wr_start(to);
	to->wr_id = 0xbad;
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(to), wqe);
	printf("raw %s\n", ibv_wr_complete(to) ? "refused" : "posted");
}

static void interleaved(void)
{
	struct ibv_qp_ex *to = ibv_qp_to_qp_ex(qp);
	struct mlx5dv_qp_ex *of = mlx5dv_qp_ex_from_ibv_qp_ex(to);
	struct mlx5dv_mkey_conf_attr attr = {0};
	struct mlx5dv_mr_interleaved piece = {
		.addr = (uintptr_t)memory,
		.bytes_count = number(),
		.lkey = mr->lkey,
	};
	uint16_t at = posted();
	__be16 bytes;

	to->wr_id = 1;
	to->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_start(to);
	mlx5dv_wr_mkey_configure(of, mkey, 1, &attr);
	mlx5dv_wr_set_mkey_layout_interleaved(of, 1, 1, &piece);
	if (ibv_wr_complete(to)) {
		printf("interleaved refused\n");
		return;
	}
	/* The entry is behind the block that says how often. */
	memcpy(&bytes, block(at + 2) + 16 + 2, sizeof(bytes));
	printf("interleaved %x\n", be16toh(bytes));
}

static void prepare(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct mlx5dv_obj obj = {.cq = {.out = &ring_of_cq}};
	struct mlx5dv_mkey_init_attr key = {
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
				MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
		.max_entries = 4,
	};
	struct sigaction action = {.sa_sigaction = killed, .sa_flags = SA_SIGINFO};

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	CHECK("a device", devices && *devices);
	CHECK("open_device", (context = ibv_open_device(*devices)));
	CHECK("alloc_pd", (pd = ibv_alloc_pd(context)));
	CHECK("create_cq", (cq = ibv_create_cq(context, 255, NULL, NULL, 0)));
	obj.cq.in = cq;
	CHECK("init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	CHECK("reg_mr", (mr = ibv_reg_mr(pd, memory, sizeof(memory),
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
						 IBV_ACCESS_MW_BIND)));
	CHECK("alloc_mw", (window = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	key.pd = pd;
	CHECK("create_mkey", (mkey = mlx5dv_create_mkey(&key)));
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} commands[] = {
		{"guard", guard},
		{"signatures", signatures},
		{"make", make},
		{"send", post},
		{"list", post_list},
		{"abort", abort_batch},
		{"complete", complete},
		{"reset", reset},
		{"drained", drain},
		{"target", aim},
		{"cancel", cancel},
		{"look", look},
		{"signature", signature},
		{"questions", report_questions},
		{"post-meanwhile", post_meanwhile},
		{"configure", configure},
		{"errors", errors},
		{"window", bind_window},
		{"window-key", report_window_key},
		{"raw", raw},
		{"interleaved", interleaved},
		{"batch", batch},
	};
	static char line[256];

	prepare();
	while (fgets(line, sizeof(line), stdin)) {
		const char *name = strtok_r(line, " \n", &rest);
		size_t i = 0, end = sizeof(commands) / sizeof(commands[0]);

		while (i < end && strcmp(commands[i].name, name))
			i++;
		CHECK("a command", i < end);
		commands[i].run();
	}
	fflush(stdout);
	/* What was done to it, it need not survive. */
	_exit(0);
}
