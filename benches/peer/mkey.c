/* Configures memory keys by mlx5dv_wr_mkey_configure. */
#include <infiniband/mlx5dv.h>
#include <stdlib.h>

#include "peer.h"

enum {
	/* Pieces of memory in a key. */
	PIECES = 4,
};

struct keyed {
	struct state *state;
	struct mlx5dv_qp_ex *dv;
	struct mlx5dv_mkey *mkey;
};

OPERATION int peer_mkey_configure(struct ibv_qp_ex *qp, struct mlx5dv_qp_ex *dv,
				  struct mlx5dv_mkey *mkey, struct ibv_sge *pieces, uint64_t wr_id)
{
	struct mlx5dv_mkey_conf_attr attr = {};

	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(dv, mkey, 2, &attr);
	mlx5dv_wr_set_mkey_access_flags(dv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
						    IBV_ACCESS_REMOTE_WRITE);
	mlx5dv_wr_set_mkey_layout_list(dv, PIECES, pieces);
	return ibv_wr_complete(qp);
}

static void *open_keyed(const struct bench_machine *machine, int single_threaded)
{
	struct options options = {
		.type = IBV_QPT_RC,
		.extended = 1,
		.single_threaded = single_threaded,
		.depth = DEPTH,
		.entries = ENTRIES,
		.mkey_configure = 1,
	};
	struct keyed *keyed = calloc(1, sizeof *keyed);
	struct mlx5dv_mkey_init_attr attr = {
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
		.max_entries = PIECES,
	};

	must(keyed != NULL, "memory");
	keyed->state = open_state(machine, options);
	keyed->dv = mlx5dv_qp_ex_from_ibv_qp_ex(keyed->state->qp_ex);
	attr.pd = keyed->state->pd;
	keyed->mkey = mlx5dv_create_mkey(&attr);
	must(keyed->mkey != NULL, "mlx5dv_create_mkey");
	return keyed;
}

static void calls_mkey_configure(void *state, uint64_t first, uint32_t calls)
{
	struct keyed *keyed = state;
	struct state *s = keyed->state;
	int bad = 0;

	for (uint32_t k = 0; k < calls; k++)
		bad |= peer_mkey_configure(s->qp_ex, keyed->dv, keyed->mkey,
					   &s->sges[k * PIECES % ROUND], first + k);
	must(!bad, "mkey_configure");
}

static void configured(void *state, uint32_t calls)
{
	complete(((struct keyed *)state)->state, calls);
}

bench_cases mkey_cases = {
	CASE("mkey_configure", "wr", mkey_configure, ROUND, 1, open_keyed, nothing, configured),
	{},
};
