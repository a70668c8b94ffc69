/*
 * Every structure that a call writes lies between bytes that nothing may write, and ends where the caller's
 * header says: a library of a newer release, or of an older one, writes no byte more. Sizes are those of the
 * oldest header, of this one, and some between.
 */
#include "bed.h"

#include <infiniband/mlx5dv.h>
#include <stddef.h>

enum { GUARD = 256, MOST = 4096, FILL = 0xa5 };

static uint8_t room[GUARD + MOST + GUARD] __attribute__((aligned(64)));

/* Room for a structure of so many bytes, all of them the same. */
static void *guarded(void)
{
	memset(room, FILL, sizeof(room));
	return room + GUARD;
}

/* Says whether nothing before or behind it was written. */
static void check(const char *what, size_t size, int result)
{
	int before = 0, behind = 0;

	for (int i = 0; i < GUARD; i++)
		before += room[i] != FILL;
	for (size_t i = GUARD + size; i < sizeof(room); i++)
		behind += room[i] != FILL;
	printf("%s, %zu bytes: %s, %d written before, %d behind\n", what, size, name_of(result), before, behind);
}

/* The bytes that the first releases have of it. */
#define UPTO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* The symbol, which the header hides behind a macro that passes a newer structure. */
extern int old_query_port(struct ibv_context *context, uint8_t port, void *attr) __asm__("ibv_query_port");

static void queries(struct bed *bed)
{
	static const size_t device_sizes[] = {
		UPTO(struct ibv_device_attr_ex, comp_mask), UPTO(struct ibv_device_attr_ex, odp_caps),
		UPTO(struct ibv_device_attr_ex, hca_core_clock), UPTO(struct ibv_device_attr_ex, tso_caps),
		UPTO(struct ibv_device_attr_ex, tm_caps), UPTO(struct ibv_device_attr_ex, max_dm_size),
		sizeof(struct ibv_device_attr_ex),
	};
	struct verbs_context *verbs = verbs_get_ctx(bed->context);
	union ibv_gid *gid;

	check("ibv_query_device", sizeof(struct ibv_device_attr), ibv_query_device(bed->context, guarded()));
	check("ibv_query_port of old programs", 48, old_query_port(bed->context, 1, guarded()));
	for (size_t size = 48; size <= sizeof(struct ibv_port_attr); size += 4)
		check("ibv_query_port", size, verbs->query_port(bed->context, 1, guarded(), size));
	for (size_t i = 0; i < sizeof(device_sizes) / sizeof(device_sizes[0]); i++)
		check("ibv_query_device_ex", device_sizes[i],
		      verbs->query_device_ex(bed->context, NULL, guarded(), device_sizes[i]));
	gid = guarded();
	check("ibv_query_gid", sizeof(*gid), ibv_query_gid(bed->context, 1, 0, gid));
	check("ibv_query_pkey", 2, ibv_query_pkey(bed->context, 1, 0, guarded()));
	check("ibv_query_gid_ex", sizeof(struct ibv_gid_entry),
	      ibv_query_gid_ex(bed->context, 1, 0, guarded(), 0));
	check("ibv_query_gid_table of one", sizeof(struct ibv_gid_entry),
	      ibv_query_gid_table(bed->context, guarded(), 1, 0) == 1 ? 0 : EINVAL);
}

static void objects(struct bed *bed)
{
	struct pair pair = make_pair(bed, IBV_QPT_RC, 0);
	struct ibv_srq_init_attr wanted = { .attr = { 4, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed->pd, &wanted);
	struct ibv_qp_init_attr init, *guarded_init;
	struct ibv_srq_init_attr *guarded_srq;
	struct ibv_qp_attr attr;
	struct ibv_wc *wc;
	struct ibv_grh grh = {};
	struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
	struct ibv_ah_attr *path;
	struct ibv_values_ex *values;
	struct ibv_qp *qp;
	int mask = IBV_QP_STATE | IBV_QP_CAP | IBV_QP_AV;

	must(srq, "ibv_create_srq");
	connect_pair(bed, &pair);
	check("ibv_query_qp, attributes", sizeof(attr), ibv_query_qp(pair.qp, guarded(), mask, &init));
	check("ibv_query_qp, what it was made with", sizeof(init), ibv_query_qp(pair.qp, &attr, mask, guarded()));
	check("ibv_query_srq", sizeof(struct ibv_srq_attr), ibv_query_srq(srq, guarded()));
	guarded_init = guarded();
	*guarded_init = (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC };
	qp = ibv_create_qp(bed->pd, guarded_init);
	check("ibv_create_qp", sizeof(*guarded_init), qp ? 0 : errno);
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	guarded_srq = guarded();
	*guarded_srq = wanted;
	srq = ibv_create_srq(bed->pd, guarded_srq);
	check("ibv_create_srq", sizeof(*guarded_srq), srq ? 0 : errno);
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	/* Two completions, and room for one. */
	must(!post_receive(bed, &pair, 1) && !post_receive(bed, &pair, 2), "ibv_post_recv");
	must(!to_error(pair.peer), "ERR");
	wc = guarded();
	while (!ibv_poll_cq(ibv_cq_ex_to_cq(pair.peer_cq), 1, wc))
		;
	check("ibv_poll_cq of one", sizeof(*wc), 0);
	path = guarded();
	wc = calloc(1, sizeof(*wc));
	wc->slid = bed->port.lid;
	if (bed->port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		check("ibv_init_ah_from_wc", sizeof(*path),
		      ibv_init_ah_from_wc(bed->context, 1, wc, &grh, path) ? errno : 0);
	free(wc);
	values = guarded();
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	check("ibv_query_rt_values_ex", sizeof(*values), ibv_query_rt_values_ex(bed->context, values));
	check("ibv_query_ece", sizeof(struct ibv_ece), ibv_query_ece(pair.qp, guarded()));
	drop_pair(&pair);
}

static void of_the_driver(struct bed *bed)
{
	struct pair pair = make_pair(bed, IBV_QPT_RC, 0);
	struct mlx5dv_context *device;
	struct mlx5dv_obj obj = {};
	struct mlx5dv_qp *qp;
	struct mlx5dv_cq *cq;

	/* Each bit that an older header has not asks for bytes that its structure has not. */
	for (int bits = -1; bits < 9; bits++) {
		static const size_t ends[] = {
			UPTO(struct mlx5dv_context, comp_mask), UPTO(struct mlx5dv_context, cqe_comp_caps),
			UPTO(struct mlx5dv_context, sw_parsing_caps),
			UPTO(struct mlx5dv_context, striding_rq_caps),
			UPTO(struct mlx5dv_context, tunnel_offloads_caps),
			UPTO(struct mlx5dv_context, max_dynamic_bfregs),
			UPTO(struct mlx5dv_context, max_clock_info_update_nsec),
			UPTO(struct mlx5dv_context, flow_action_flags),
			UPTO(struct mlx5dv_context, dc_odp_caps), UPTO(struct mlx5dv_context, hca_core_clock),
		};

		device = guarded();
		device->comp_mask = (1ull << (bits + 1)) - 1;
		check("mlx5dv_query_device", ends[bits + 1], mlx5dv_query_device(bed->context, device));
	}
	qp = guarded();
	memset(qp, 0, UPTO(struct mlx5dv_qp, comp_mask));
	obj.qp.in = pair.qp;
	obj.qp.out = qp;
	check("mlx5dv_init_obj of a queue pair, the first members", UPTO(struct mlx5dv_qp, comp_mask),
	      mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP));
	cq = guarded();
	obj.cq.in = ibv_cq_ex_to_cq(pair.cq);
	obj.cq.out = cq;
	memset(cq, 0, sizeof(*cq));
	check("mlx5dv_init_obj of a completion queue", sizeof(*cq), mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ));
	drop_pair(&pair);
}

int main(void)
{
	struct bed bed = open_bed();

	queries(&bed);
	objects(&bed);
	of_the_driver(&bed);
	close_bed(&bed);
	return 0;
}
