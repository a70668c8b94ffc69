/*
 * Drives rdma-core's mlx5 provider through operations on a list of tags, and says what requests it
 * wrote for them. Lines on standard input:
 *
 *	add WR_ID FLAGS COUNT TAG MASK ADDRESS LENGTH LKEY
 *	del FLAGS COUNT WHICH		the tag that the WHICH'th add made
 *	sync WR_ID FLAGS COUNT
 *
 * all numbers in hexadecimal. For each the answer is the block of the command queue, and the
 * doorbell record's second word.
 */
#define _GNU_SOURCE
#define PROGRAM "tags"
#include "peer.h"

enum {
	BLOCK = 64,
	MAX_TAGS = 64,
};

/* What the driver told the kernel of the last queue pair. */
static struct {
	uint64_t buffer;
	uint64_t record;
} queue;

/* Takes the place of libc's for the libraries. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);

	const void *creation_input = creation(OBJECT_QP, request, argument);
	if (creation_input)
		memcpy(&queue, creation_input, sizeof(queue));
	return next_ioctl(fd, request, argument);
}

static struct ibv_srq *make(uint32_t tags, uint32_t operations)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : NULL;
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 256, .wc_flags = IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex attr = { 0 };

	if (!context)
		fail("no device");
	attr.attr.max_wr = 16;
	attr.attr.max_sge = 1;
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			 IBV_SRQ_INIT_ATTR_TM;
	attr.srq_type = IBV_SRQT_TM;
	attr.pd = ibv_alloc_pd(context);
	attr.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &cq_attr));
	attr.tm_cap.max_num_tags = tags;
	attr.tm_cap.max_ops = operations;
	return ibv_create_srq_ex(context, &attr);
}

int main(int argc, char **argv)
{
	struct ibv_srq *srq;
	uint32_t handles[MAX_TAGS], adds = 0, posted = 0;
	char line[512];

	if (argc != 3)
		return 2;
	srq = make(strtoul(argv[1], NULL, 16), strtoul(argv[2], NULL, 16));
	if (!srq)
		fail("no tag-matching queue");
	while (fgets(line, sizeof(line), stdin)) {
		struct ibv_sge sge = { 0 };
		struct ibv_ops_wr wr = { 0 }, *bad;
		uint32_t which;

		if (sscanf(line,
			   "add %" SCNx64 " %x %x %" SCNx64 " %" SCNx64 " %" SCNx64 " %x %x", &wr.wr_id,
			   (unsigned *)&wr.flags, &wr.tm.unexpected_cnt, &wr.tm.add.tag,
			   &wr.tm.add.mask, &sge.addr, &sge.length, &sge.lkey) == 8) {
			wr.opcode = IBV_WR_TAG_ADD;
			wr.tm.add.sg_list = &sge;
			wr.tm.add.num_sge = 1;
		} else if (sscanf(line, "del %x %x %x", (unsigned *)&wr.flags,
				  &wr.tm.unexpected_cnt, &which) == 3) {
			wr.opcode = IBV_WR_TAG_DEL;
			wr.tm.handle = handles[which];
		} else if (sscanf(line, "sync %" SCNx64 " %x %x", &wr.wr_id, (unsigned *)&wr.flags,
				  &wr.tm.unexpected_cnt) == 3) {
			wr.opcode = IBV_WR_TAG_SYNC;
		} else {
			fail(line);
		}
		if (ibv_post_srq_ops(srq, &wr, &bad))
			fail("refused");
		if (wr.opcode == IBV_WR_TAG_ADD)
			handles[adds++] = wr.tm.handle;
		for (int i = 0; i < BLOCK; i++)
			printf("%02x", ((uint8_t *)(uintptr_t)queue.buffer)[posted * BLOCK + i]);
		printf(" ");
		for (int i = 0; i < 4; i++)
			printf("%02x", ((uint8_t *)(uintptr_t)queue.record)[4 + i]);
		printf("\n");
		posted++;
	}
	return 0;
}
