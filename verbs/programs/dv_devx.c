/* DEVX: commands, objects, umems and doorbell pages, passed through as they are given. */
#include "bed.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

enum {
	ALLOC_PD = 0x800,
	DEALLOC_PD = 0x801,
	QUERY_HCA_CAP = 0x100,
	QUERY_QP = 0x50b,
	QUERY_CQ = 0x402,
	MODIFY_CQ = 0x403,
	QUERY_XRC_SRQ = 0x707,
	ARM_XRC_SRQ = 0x708,
	MODIFY_RMP = 0x90d,
	QUERY_RMP = 0x90f,
	TO_ERR = 0x507,
	TO_RESET = 0x50a,
	SHORT = 16,
	MEDIUM = 272,
	LONG = 4112,
};

static struct bed bed;

/* The status that the firmware answered, and its syndrome. */
static void say(const char *what, int status, const uint8_t *out)
{
	printf("%s: %s, firmware %d %08x\n", what, name_of(status), out[0],
	       be32toh(*(const uint32_t *)(out + 4)));
}

static void put16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value;
}

static void put32(uint8_t *at, uint32_t value)
{
	*(uint32_t *)at = htobe32(value);
}

static void general(void)
{
	static uint8_t in[LONG], out[LONG];
	uint64_t sum = 0;
	int status;

	put16(in, QUERY_HCA_CAP);
	status = mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, LONG);
	for (int i = 0; i < LONG; i++)
		sum = sum * 31 + out[i];
	say("capabilities", status, out);
	printf("their sum %#" PRIx64 "\n", sum);
	memset(out, 0xa5, LONG);
	status = mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, 64);
	printf("a short answer: %s, behind it %02x\n", name_of(status), out[64]);
	put16(in + 6, 0x7fff);
	memset(out, 0, LONG);
	errno = 0;
	status = mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, LONG);
	say("capabilities that there are not", status, out);
	printf("errno says the same: %d\n", errno == status);
	put16(in, 0xfff);
	memset(out, 0, LONG);
	say("a command that there is not",
	    mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, SHORT), out);
	put16(in, ALLOC_PD);
	say("a command that makes an object",
	    mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, SHORT), out);
	say("no command", mlx5dv_devx_general_cmd(bed.context, in, 0, out, SHORT), out);
	put16(in, QUERY_HCA_CAP);
	say("no room", mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, 0), out);
	say("little room", mlx5dv_devx_general_cmd(bed.context, in, SHORT, out, 8), out);
}

static void objects(void)
{
	uint8_t in[LONG] = {}, out[LONG] = {};
	struct mlx5dv_devx_obj *object;

	put16(in, ALLOC_PD);
	object = mlx5dv_devx_obj_create(bed.context, in, SHORT, out, SHORT);
	say("an object", object ? 0 : errno, out);
	must(object, "mlx5dv_devx_obj_create");
	put16(in, QUERY_QP);
	say("a query of something else", mlx5dv_devx_obj_query(object, in, SHORT, out, SHORT), out);
	put16(in, TO_ERR);
	say("a change of something else", mlx5dv_devx_obj_modify(object, in, SHORT, out, SHORT), out);
	printf("destroyed: %s\n", name_of(mlx5dv_devx_obj_destroy(object)));
	put16(in, QUERY_HCA_CAP);
	errno = 0;
	object = mlx5dv_devx_obj_create(bed.context, in, SHORT, out, SHORT);
	printf("a query is no object: %d, %s\n", object == NULL, name_of(errno));
}

static void on_queues(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
	uint8_t in[LONG] = {}, out[LONG] = {};

	connect_pair(&bed, &pair);
	put16(in, QUERY_QP);
	put32(in + 8, pair.qp->qp_num);
	say("a queue pair", mlx5dv_devx_qp_query(pair.qp, in, SHORT, out, 512), out);
	printf("its state %d\n", out[24] >> 4);
	put32(in + 8, pair.peer->qp_num);
	say("another's number", mlx5dv_devx_qp_query(pair.qp, in, SHORT, out, 512), out);
	put16(in, QUERY_CQ);
	put32(in + 8, pair.qp->qp_num + 100);
	say("another completion queue", mlx5dv_devx_cq_query(cq, in, SHORT, out, 512), out);
	memset(in, 0, SHORT);
	put16(in, TO_ERR);
	put32(in + 8, pair.qp->qp_num);
	say("to the error state", mlx5dv_devx_qp_modify(pair.qp, in, SHORT, out, SHORT), out);
	put16(in, TO_RESET);
	say("to the reset state", mlx5dv_devx_qp_modify(pair.qp, in, SHORT, out, SHORT), out);
	put16(in, QUERY_QP);
	printf("a query does not change: %s\n",
	       name_of(mlx5dv_devx_qp_modify(pair.qp, in, SHORT, out, SHORT)));
	drop_pair(&pair);
}

/* The receiving end of an extended connection has a number, too. */
static void on_target(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_XRC_SEND, 0);
	uint8_t in[LONG] = {}, out[LONG] = {};

	put16(in, TO_ERR);
	put32(in + 8, pair.peer->qp_num);
	say("a target to the error state", mlx5dv_devx_qp_modify(pair.peer, in, SHORT, out, SHORT), out);
	put16(in, QUERY_QP);
	say("it", mlx5dv_devx_qp_query(pair.peer, in, SHORT, out, 512), out);
	printf("its state %d\n", out[24] >> 4);
	put16(in, TO_RESET);
	say("and to the reset state", mlx5dv_devx_qp_modify(pair.peer, in, SHORT, out, SHORT), out);
	drop_pair(&pair);
}

static uint16_t get16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

/* How completions are moderated. */
static void on_cq(void)
{
	enum { PERIOD = 1, COUNT = 2 };
	struct ibv_cq *cq = ibv_create_cq(bed.context, 1, NULL, NULL, 0);
	struct ibv_cq *other = ibv_create_cq(bed.context, 1, NULL, NULL, 0);
	uint8_t in[LONG] = {}, out[LONG] = {};
	struct mlx5dv_cq parts = {}, of_other = {};
	struct mlx5dv_obj obj = { .cq = { cq, &parts } };

	must(cq && other && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	obj.cq.in = other;
	obj.cq.out = &of_other;
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	put16(in, MODIFY_CQ);
	put32(in + 8, parts.cqn);
	put32(in + 12, PERIOD | COUNT);
	put16(in + 32, 100);
	put16(in + 34, 7);
	say("a completion queue changed", mlx5dv_devx_cq_modify(cq, in, MEDIUM, out, SHORT), out);
	say("by another", mlx5dv_devx_cq_modify(other, in, MEDIUM, out, SHORT), out);
	put32(in + 12, 1 << 20);
	say("in an unknown way", mlx5dv_devx_cq_modify(cq, in, MEDIUM, out, SHORT), out);
	memset(in, 0, LONG);
	put16(in, QUERY_CQ);
	put32(in + 8, parts.cqn);
	say("it", mlx5dv_devx_cq_query(cq, in, SHORT, out, MEDIUM), out);
	printf("its period %d, its count %d\n", get16(out + 32), get16(out + 34));
	put32(in + 8, of_other.cqn);
	say("the other", mlx5dv_devx_cq_query(other, in, SHORT, out, MEDIUM), out);
	printf("its period %d, its count %d\n", get16(out + 32), get16(out + 34));
	must(!ibv_destroy_cq(other) && !ibv_destroy_cq(cq), "ibv_destroy_cq");
}

/* The limit of a shared receive queue: what has fewer receives reports at once. */
static void limit_reached(struct ibv_srq *srq)
{
	struct ibv_async_event event;

	must(!ibv_get_async_event(bed.context, &event), "ibv_get_async_event");
	printf("event %d, the queue's: %d\n", event.event_type, event.element.srq == srq);
	ibv_ack_async_event(&event);
}

static void query_pool(struct ibv_srq *srq, uint32_t number)
{
	uint8_t in[SHORT] = {}, out[MEDIUM] = {};

	put16(in, QUERY_RMP);
	put32(in + 8, number);
	say("it", mlx5dv_devx_srq_query(srq, in, SHORT, out, MEDIUM), out);
	printf("its limit %d\n", get16(out + 86));
	put16(in, QUERY_XRC_SRQ);
	say("as one of extended connections", mlx5dv_devx_srq_query(srq, in, SHORT, out, MEDIUM), out);
}

static void on_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { DEPTH, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &init);
	struct ibv_recv_wr wr = {}, *bad;
	uint8_t in[MEDIUM] = {}, out[SHORT] = {};
	struct mlx5dv_srq parts = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj obj = { .srq = { srq, &parts } };

	must(srq && !mlx5dv_init_obj(&obj, MLX5DV_OBJ_SRQ), "mlx5dv_init_obj");
	for (int i = 0; i < 2; i++)
		must(!ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
	put16(in, MODIFY_RMP);
	put32(in + 8, 1 << 28 | parts.srqn); /* it is ready */
	in[23] = 1; /* the limit */
	put16(in + 86, 1);
	say("a shared receive queue changed",
	    mlx5dv_devx_srq_modify(srq, in, MEDIUM, out, SHORT), out);
	query_pool(srq, parts.srqn);
	put16(in + 86, 3);
	say("and again", mlx5dv_devx_srq_modify(srq, in, MEDIUM, out, SHORT), out);
	limit_reached(srq);
	query_pool(srq, parts.srqn);
	in[23] = 0;
	say("in no way", mlx5dv_devx_srq_modify(srq, in, MEDIUM, out, SHORT), out);
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
}

static void on_extended_srq(void)
{
	struct pair pair = make_pair(&bed, IBV_QPT_XRC_SEND, 0);
	uint8_t in[LONG] = {}, out[LONG] = {};

	must(!post_receive(&bed, &pair, 1), "ibv_post_srq_recv");
	put16(in, ARM_XRC_SRQ);
	put32(in + 8, pair.srqn);
	put16(in + 14, 2);
	say("one of extended connections armed",
	    mlx5dv_devx_srq_modify(pair.srq, in, SHORT, out, SHORT), out);
	limit_reached(pair.srq);
	memset(in, 0, LONG);
	put16(in, QUERY_XRC_SRQ);
	put32(in + 8, pair.srqn);
	say("it", mlx5dv_devx_srq_query(pair.srq, in, SHORT, out, MEDIUM), out);
	printf("its limit %d\n", get16(out + 44));
	drop_pair(&pair);
}

static void umems(void)
{
	struct mlx5dv_devx_umem *umem, *second;
	struct mlx5dv_devx_umem_in in = {
		.addr = bed.from, .size = HALF, .access = IBV_ACCESS_LOCAL_WRITE,
		.pgsz_bitmap = UINT64_MAX & ~4095,
	};
	static const struct {
		const char *what;
		size_t size;
		uint32_t access;
	} tries[] = {
		{ "no memory", 0, IBV_ACCESS_LOCAL_WRITE },
		{ "read only", HALF, 0 },
		{ "remote", HALF, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE },
		{ "unknown rights", HALF, 1 << 19 },
		{ "too much", SIZE_MAX / 2, IBV_ACCESS_LOCAL_WRITE },
	};

	umem = mlx5dv_devx_umem_reg(bed.context, bed.from, HALF, IBV_ACCESS_LOCAL_WRITE);
	second = mlx5dv_devx_umem_reg_ex(bed.context, &in);
	must(umem && second, "mlx5dv_devx_umem_reg");
	printf("two numbers: %d\n", umem->umem_id != second->umem_id);
	printf("given back: %s", name_of(mlx5dv_devx_umem_dereg(umem)));
	printf(" and %s\n", name_of(mlx5dv_devx_umem_dereg(second)));
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		errno = 0;
		umem = mlx5dv_devx_umem_reg(bed.context, bed.from, tries[i].size, tries[i].access);
		printf("%s: %s\n", tries[i].what, umem ? "registered" : name_of(errno));
		if (umem)
			mlx5dv_devx_umem_dereg(umem);
	}
	in.pgsz_bitmap = 1 << 3;
	errno = 0;
	umem = mlx5dv_devx_umem_reg_ex(bed.context, &in);
	printf("pages of eight bytes: %s\n", umem ? "registered" : name_of(errno));
	in.comp_mask = 1 << 12;
	errno = 0;
	umem = mlx5dv_devx_umem_reg_ex(bed.context, &in);
	printf("unknown attribute: %s\n", umem ? "registered" : name_of(errno));
}

static void pages(void)
{
	struct mlx5dv_devx_uar *flame = mlx5dv_devx_alloc_uar(bed.context, 0);
	struct mlx5dv_devx_uar *other = mlx5dv_devx_alloc_uar(bed.context, 0);
	struct mlx5dv_devx_uar *plain =
		mlx5dv_devx_alloc_uar(bed.context, MLX5DV_UAR_ALLOC_TYPE_NC);
	struct mlx5dv_devx_uar *again =
		mlx5dv_devx_alloc_uar(bed.context, MLX5DV_UAR_ALLOC_TYPE_NC);

	must(flame && other && plain && again, "mlx5dv_devx_alloc_uar");
	printf("registers at %#lx and %#lx, mask %#" PRIx64 "\n",
	       (long)flame->reg_addr - (long)flame->base_addr,
	       (long)plain->reg_addr - (long)plain->base_addr, flame->comp_mask);
	printf("the one without BlueFlame is shared: %d, the others differ: %d\n", plain == again,
	       flame->reg_addr != other->reg_addr);
	mlx5dv_devx_free_uar(plain);
	mlx5dv_devx_free_uar(other);
	again = mlx5dv_devx_alloc_uar(bed.context, MLX5DV_UAR_ALLOC_TYPE_NC);
	printf("and stays: %d\n", plain == again && plain->page_id == again->page_id);
	mlx5dv_devx_free_uar(flame);
	errno = 0;
	flame = mlx5dv_devx_alloc_uar(bed.context, 1 << 7);
	printf("unknown: %s\n", flame ? "there" : name_of(errno));
}

/* What this device lacks: the answer says so. */
static void lacking(void)
{
	struct mlx5dv_var *var;
	struct mlx5dv_pp *pp;
	uint8_t rate[48] = {};

	errno = 0;
	var = mlx5dv_alloc_var(bed.context, 0);
	printf("virtio pages: %s\n", var ? "there" : name_of(errno));
	errno = 0;
	var = mlx5dv_alloc_var(bed.context, 1 << 6);
	printf("unknown virtio pages: %s\n", var ? "there" : name_of(errno));
	errno = 0;
	pp = mlx5dv_pp_alloc(bed.context, sizeof(rate), rate, 0);
	printf("rates: %s\n", pp ? "there" : name_of(errno));
	errno = 0;
	pp = mlx5dv_pp_alloc(bed.context, sizeof(rate), rate, 1 << 3);
	printf("unknown rates: %s\n", pp ? "there" : name_of(errno));
}

int main(void)
{
	uint32_t first = 0, second = 0;

	bed = open_bed();
	general();
	objects();
	on_queues();
	on_target();
	on_cq();
	on_srq();
	on_extended_srq();
	umems();
	pages();
	lacking();
	must(!mlx5dv_devx_query_eqn(bed.context, 0, &first), "mlx5dv_devx_query_eqn");
	must(!mlx5dv_devx_query_eqn(bed.context, 1, &second), "mlx5dv_devx_query_eqn");
	printf("event queues differ: %d\n", first != second);
	printf("a vector too large: %s\n",
	       name_of(mlx5dv_devx_query_eqn(bed.context, 100000, &first)));
	close_bed(&bed);
	return 0;
}
