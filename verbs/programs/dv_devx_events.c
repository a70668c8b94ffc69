/*
 * Events of objects that firmware commands made, and answers to queries in the background: a completion queue
 * and a queue pair of commands alone, in memory of this program, complete, are armed, and break.
 */
#include "bed.h"

#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	CREATE_CQ = 0x400,
	QUERY_CQ = 0x402,
	CREATE_QP = 0x500,
	RST2INIT = 0x502,
	INIT2RTR = 0x503,
	RTR2RTS = 0x504,
	QUERY_QP = 0x50b,
	ALLOC_PD = 0x800,
	SHORT = 16,
	LONG = 272,

	COMP = 0x00,
	CQ_ERROR = 0x04,
	WQ_CATAS_ERROR = 0x05,
	PORT_CHANGE = 0x09,

	/* Places in the queues' memory. */
	CQES = 4,
	CQ_RECORD = 512,
	QP_RECORD = 576,
	RING = 4096,
	BLOCKS = 16,
	MEMORY = 8192,

	HEADER = sizeof(uint64_t),
	ENTRY = 64,
};

static struct bed bed;
static uint8_t *memory;
static struct mlx5dv_devx_umem *umem;
static struct mlx5dv_devx_uar *uar;
static struct mlx5dv_devx_obj *pd, *cq, *qp;
static uint32_t pdn, cqn, qpn, posted, armed;

static void put(uint8_t *at, uint64_t value, int bytes)
{
	while (bytes--) {
		at[bytes] = value;
		value >>= 8;
	}
}

static uint32_t number_at(const uint8_t *at)
{
	return at[1] << 16 | at[2] << 8 | at[3];
}

static struct mlx5dv_devx_obj *make(const uint8_t *in, size_t length, uint32_t *number)
{
	uint8_t out[SHORT] = {};
	struct mlx5dv_devx_obj *object = mlx5dv_devx_obj_create(bed.context, in, length, out, SHORT);

	must(object, "mlx5dv_devx_obj_create");
	*number = number_at(out + 8);
	return object;
}

static void make_cq_of_commands(void)
{
	uint8_t in[LONG] = {};
	uint32_t eqn;

	must(!mlx5dv_devx_query_eqn(bed.context, 0, &eqn), "mlx5dv_devx_query_eqn");
	put(in, CREATE_CQ, 2);
	put(in + 16 + 4, umem->umem_id, 4);
	in[16 + 12] = 2; /* the logarithm of CQES */
	put(in + 16 + 13, uar->page_id, 3);
	put(in + 16 + 20, eqn, 4);
	put(in + 16 + 56, CQ_RECORD, 8);
	put(in + 88, umem->umem_id, 4);
	cq = make(in, LONG, &cqn);
}

/* A datagram queue pair without a receive queue. */
static void make_qp_of_commands(void)
{
	static const uint16_t commands[] = { RST2INIT, INIT2RTR, RTR2RTS };
	uint8_t in[LONG] = {}, out[SHORT], *qpc = in + 24;

	put(in, CREATE_QP, 2);
	qpc[1] = 3; /* UD */
	qpc[2] = 3 << 3;
	put(qpc + 5, pdn, 3);
	qpc[10] = 4 << 3; /* the logarithm of BLOCKS */
	put(qpc + 13, uar->page_id, 3);
	put(qpc + 125, cqn, 3);
	put(qpc + 157, cqn, 3);
	put(qpc + 160, QP_RECORD, 8);
	qpc[172] = 3; /* no receive queue */
	put(qpc + 228, umem->umem_id, 4);
	put(in + 256, RING, 8);
	put(in + 264, umem->umem_id, 4);
	qp = make(in, LONG, &qpn);
	for (int i = 0; i < 3; i++) {
		memset(in, 0, LONG);
		put(in, commands[i], 2);
		put(in + 8, qpn, 4);
		qpc[2] = 3 << 3;
		qpc[8] = 3 << 5 | 24;
		qpc[24 + 37] = 1; /* port 1 */
		put(qpc + 168, QKEY, 4);
		must(!mlx5dv_devx_obj_modify(qp, in, LONG, out, SHORT), "mlx5dv_devx_obj_modify");
	}
}

/* Requests that do nothing, each with a completion. */
static void post(int count)
{
	while (count--) {
		uint8_t *block = memory + RING + 64 * (posted % BLOCKS);

		memset(block, 0, 64);
		put(block, (posted & 0xffff) << 8, 4);
		put(block + 4, qpn << 8 | 1, 4);
		block[11] = 8;
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		put(memory + QP_RECORD + 4, ++posted & 0xffff, 4);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		*(volatile uint64_t *)uar->reg_addr = *(uint64_t *)block;
	}
}

/* The next completion causes an event. All before are there, and seen. */
static void arm(void)
{
	const volatile uint8_t *owner = memory + 64 * ((posted - 1) % CQES) + 63;
	uint64_t bell;

	while (*owner >> 4 == 0xf || (*owner & 1) != ((posted - 1) / CQES & 1))
		;
	put(memory + CQ_RECORD, posted, 4);
	put(memory + CQ_RECORD + 4, (armed & 3) << 28 | posted, 4);
	put((uint8_t *)&bell, (uint64_t)((armed & 3) << 28 | posted) << 32 | cqn, 8);
	armed++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)((uint8_t *)uar->base_addr + 0x20) = bell;
}

static struct mlx5dv_devx_event_channel *channel(enum mlx5dv_devx_create_event_channel_flags flags)
{
	struct mlx5dv_devx_event_channel *made = mlx5dv_devx_create_event_channel(bed.context, flags);

	must(made, "mlx5dv_devx_create_event_channel");
	return made;
}

static void get(struct mlx5dv_devx_event_channel *from, size_t room)
{
	uint8_t record[HEADER + ENTRY + 8] = {}, *entry = record + HEADER, *data = entry + 32;
	struct mlx5dv_devx_async_event_hdr *header = (void *)record;
	ssize_t length;

	errno = 0;
	length = mlx5dv_devx_get_event(from, header, room);
	if (length < 0) {
		printf("no event: %s\n", name_of(errno));
		return;
	}
	printf("%zd bytes, cookie %#" PRIx64, length, (uint64_t)header->cookie);
	if (length == HEADER)
		printf("\n");
	else if (entry[1] == CQ_ERROR)
		printf(", the completion queue: %d, syndrome %d\n", number_at(data) == cqn, data[11]);
	else if (entry[1] == COMP)
		printf(", a completion, the queue: %d\n", number_at(data + 24) == cqn);
	else
		printf(", event %d, the queue pair: %d, of type %d\n", entry[1],
		       number_at(data + 24) == qpn, data[20]);
}

static void do_not_wait(int fd)
{
	must(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), "O_NONBLOCK");
}

static bool readable(int fd)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	return poll(&one, 1, 0) == 1 && one.revents & POLLIN;
}

static void refusals(void)
{
	struct mlx5dv_devx_event_channel *events = channel(0);
	uint16_t completion = COMP, port = PORT_CHANGE, unknown = 0xff, many[17] = {};
	int file = open("/dev/null", O_RDWR);

	must(file >= 0, "/dev/null");
	printf("a port's of an object: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event(events, cq, 2, &port, 1)));
	printf("an object's of none: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event(events, NULL, 2, &completion, 1)));
	printf("unknown: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event(events, cq, 2, &unknown, 1)));
	printf("half of one: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event(events, cq, 3, many, 1)));
	printf("none: %s\n", name_of(mlx5dv_devx_subscribe_devx_event(events, cq, 0, many, 1)));
	printf("sixteen: %s\n", name_of(mlx5dv_devx_subscribe_devx_event(events, qp, 32, many, 1)));
	printf("seventeen: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event(events, qp, 34, many, 1)));
	printf("a port's: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event(events, NULL, 2, &port, 1)));
	printf("no eventfd: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event_fd(events, file, cq, COMP)));
	printf("no descriptor: %s\n",
	       name_of(mlx5dv_devx_subscribe_devx_event_fd(events, -1, cq, COMP)));
	mlx5dv_devx_destroy_event_channel(events);
	errno = 0;
	events = mlx5dv_devx_create_event_channel(bed.context, 1 << 5);
	printf("unknown flags: %s\n", events ? "there" : name_of(errno));
	close(file);
}

static void events(void)
{
	struct mlx5dv_devx_event_channel *bare =
		channel(MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
	struct mlx5dv_devx_event_channel *redirected = channel(0), *whole = channel(0);
	uint16_t of_cq[] = { COMP, CQ_ERROR }, of_qp = WQ_CATAS_ERROR;
	int eventfd_of_cq = eventfd(0, EFD_NONBLOCK);
	uint64_t count = 0;

	/* Who subscribed last hears last: what it hears, the others have heard. */
	must(!mlx5dv_devx_subscribe_devx_event(bare, cq, 2, of_cq, 0x5ca1ab1e), "subscribing");
	must(!mlx5dv_devx_subscribe_devx_event_fd(redirected, eventfd_of_cq, cq, COMP), "subscribing");
	must(!mlx5dv_devx_subscribe_devx_event(whole, cq, sizeof(of_cq), of_cq, UINT64_MAX - 1),
	     "subscribing");
	must(!mlx5dv_devx_subscribe_devx_event(whole, qp, sizeof(of_qp), &of_qp, 7), "subscribing");
	do_not_wait(bare->fd);
	post(1);
	printf("not armed: %d %d\n", readable(whole->fd), readable(bare->fd));
	for (int i = 0; i < 2; i++) {
		arm();
		post(1);
		get(whole, HEADER + ENTRY);
	}
	get(bare, HEADER - 1);
	get(bare, HEADER + ENTRY);
	get(bare, HEADER + ENTRY);
	must(read(eventfd_of_cq, &count, sizeof(count)) == sizeof(count), "the eventfd");
	printf("the eventfd: %" PRIu64 ", and nothing beside it: %d\n", count,
	       !readable(redirected->fd));
	mlx5dv_devx_destroy_event_channel(redirected);
	arm();
	post(1);
	get(whole, HEADER + ENTRY);
	printf("the eventfd after its channel: %d\n", readable(eventfd_of_cq));
	/* More completions than there is room for. */
	post(CQES + 1);
	get(whole, HEADER + ENTRY + 8);
	get(whole, HEADER);
	get(whole, HEADER + ENTRY);
	do_not_wait(whole->fd);
	get(whole, HEADER + ENTRY);
	mlx5dv_devx_destroy_event_channel(whole);
	mlx5dv_devx_destroy_event_channel(bare);
	close(eventfd_of_cq);
}

static void answer(struct mlx5dv_devx_cmd_comp *from, size_t length, const uint8_t *expected)
{
	uint8_t record[HEADER + LONG] = {};
	struct mlx5dv_devx_async_cmd_hdr *header = (void *)record;
	int status = mlx5dv_devx_get_async_cmd_comp(from, header, HEADER + length);

	printf("an answer: %s", name_of(status));
	if (!status)
		printf(", number %#" PRIx64 ", as the query: %d", (uint64_t)header->wr_id,
		       !memcmp(header->out_data, expected, length));
	printf("\n");
}

static void answers(void)
{
	struct mlx5dv_devx_cmd_comp *comp = mlx5dv_devx_create_cmd_comp(bed.context);
	uint8_t of_cq[SHORT] = {}, of_qp[SHORT] = {}, cq_said[LONG] = {}, qp_said[LONG] = {};
	int asked = 0;

	must(comp, "mlx5dv_devx_create_cmd_comp");
	put(of_cq, QUERY_CQ, 2);
	put(of_cq + 8, cqn, 4);
	put(of_qp, QUERY_QP, 2);
	put(of_qp + 8, qpn, 4);
	must(!mlx5dv_devx_obj_query(cq, of_cq, SHORT, cq_said, LONG), "mlx5dv_devx_obj_query");
	must(!mlx5dv_devx_obj_query(qp, of_qp, SHORT, qp_said, LONG), "mlx5dv_devx_obj_query");
	printf("the completion queue has status %d, the queue pair state %d\n", cq_said[16] >> 4,
	       qp_said[24] >> 4);
	printf("asked: %s",
	       name_of(mlx5dv_devx_obj_query_async(cq, of_cq, SHORT, LONG, UINT64_MAX, comp)));
	printf(" and %s", name_of(mlx5dv_devx_obj_query_async(qp, of_qp, SHORT, LONG, 5, comp)));
	printf(" and %s\n", name_of(mlx5dv_devx_obj_query_async(qp, of_qp, SHORT, SHORT, 6, comp)));
	answer(comp, LONG - 1, cq_said);
	answer(comp, LONG, cq_said);
	answer(comp, LONG, qp_said);
	answer(comp, SHORT, qp_said);
	do_not_wait(comp->fd);
	answer(comp, LONG, cq_said);
	printf("another's number: %s\n",
	       name_of(mlx5dv_devx_obj_query_async(cq, of_qp, SHORT, LONG, 1, comp)));
	put(of_qp, RST2INIT, 2);
	printf("no query: %s\n",
	       name_of(mlx5dv_devx_obj_query_async(qp, of_qp, SHORT, LONG, 1, comp)));
	printf("too long: %s\n",
	       name_of(mlx5dv_devx_obj_query_async(cq, of_cq, SHORT, 1 << 16, 1, comp)));
	while (!mlx5dv_devx_obj_query_async(cq, of_cq, SHORT, UINT16_MAX, asked, comp))
		asked++;
	printf("long ones that wait: %d, then %s\n", asked,
	       name_of(mlx5dv_devx_obj_query_async(cq, of_cq, SHORT, UINT16_MAX, 1, comp)));
	mlx5dv_devx_destroy_cmd_comp(comp);
}

int main(void)
{
	uint8_t in[SHORT] = {};

	bed = open_bed();
	memory = aligned_alloc(4096, MEMORY);
	must(memory, "memory");
	memset(memory, 0, MEMORY);
	for (int i = 0; i < CQES; i++)
		memory[64 * i + 63] = 0xf1; /* not written, the device's */
	umem = mlx5dv_devx_umem_reg(bed.context, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
	must(umem, "mlx5dv_devx_umem_reg");
	uar = mlx5dv_devx_alloc_uar(bed.context, 0);
	must(uar, "mlx5dv_devx_alloc_uar");
	put(in, ALLOC_PD, 2);
	pd = make(in, SHORT, &pdn);
	make_cq_of_commands();
	make_qp_of_commands();
	refusals();
	events();
	answers();
	must(!mlx5dv_devx_obj_destroy(qp), "mlx5dv_devx_obj_destroy");
	must(!mlx5dv_devx_obj_destroy(cq), "mlx5dv_devx_obj_destroy");
	must(!mlx5dv_devx_obj_destroy(pd), "mlx5dv_devx_obj_destroy");
	mlx5dv_devx_free_uar(uar);
	must(!mlx5dv_devx_umem_dereg(umem), "mlx5dv_devx_umem_dereg");
	free(memory);
	close_bed(&bed);
	return 0;
}
