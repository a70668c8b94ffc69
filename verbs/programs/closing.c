/*
 * A device that is closed before its objects are destroyed, as a garbage collector does: they are destroyed
 * as always, and the last one closes the device. C's library refuses that with EBADF, looks into memory that
 * it has freed, and keeps the objects.
 */
#include "bed.h"

#include <dirent.h>
#include <infiniband/mlx5dv.h>

/* The descriptors of this process. */
static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	must(folder, "/proc/self/fd");
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Every kind of object, destroyed when its device is closed. */
static void too_late(void)
{
	struct bed bed = open_bed();
	struct pair pair = make_pair(&bed, IBV_QPT_XRC_SEND, 0), datagrams = make_pair(&bed, IBV_QPT_UD, 0);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct ibv_cq *cq = ibv_create_cq(bed.context, 4, NULL, channel, 0);
	struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &init);
	struct ibv_mw *mw = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_1);
	struct ibv_td_init_attr none = {};
	struct ibv_td *thread = ibv_alloc_td(bed.context, &none);
	struct ibv_alloc_dm_attr length = { .length = 64 };
	struct ibv_dm *memory = ibv_alloc_dm(bed.context, &length);
	/* ALLOC_PD. */
	uint8_t in[16] = { 0x08, 0x00 }, out[16];
	struct mlx5dv_devx_obj *object = mlx5dv_devx_obj_create(bed.context, in, 16, out, 16);
	struct mlx5dv_devx_umem *umem =
		mlx5dv_devx_umem_reg(bed.context, bed.from, HALF, IBV_ACCESS_LOCAL_WRITE);
	struct mlx5dv_devx_uar *page = mlx5dv_devx_alloc_uar(bed.context, MLX5DV_UAR_ALLOC_TYPE_BF);

	must(channel && cq && srq && mw && thread && memory && object && umem && page, "objects");
	printf("closed: %s\n", name_of(ibv_close_device(bed.context)));
	spoil();
	printf("device memory: %s\n", name_of(ibv_free_dm(memory)));
	printf("thread domain: %s\n", name_of(ibv_dealloc_td(thread)));
	printf("window: %s\n", name_of(ibv_dealloc_mw(mw)));
	printf("shared queue: %s\n", name_of(ibv_destroy_srq(srq)));
	printf("channel in use: %s\n", name_of(ibv_destroy_comp_channel(channel)));
	printf("queue: %s\n", name_of(ibv_destroy_cq(cq)));
	printf("channel: %s\n", name_of(ibv_destroy_comp_channel(channel)));
	printf("queue pair: %s\n", name_of(ibv_destroy_qp(pair.qp)));
	printf("target: %s\n", name_of(ibv_destroy_qp(pair.peer)));
	printf("its shared queue: %s\n", name_of(ibv_destroy_srq(pair.srq)));
	printf("its domain: %s\n", name_of(ibv_close_xrcd(bed.domain)));
	printf("its queues: %s", name_of(ibv_destroy_cq(ibv_cq_ex_to_cq(pair.cq))));
	printf(" %s\n", name_of(ibv_destroy_cq(ibv_cq_ex_to_cq(pair.peer_cq))));
	printf("region: %s\n", name_of(ibv_dereg_mr(bed.mr)));
	printf("domain in use: %s\n", name_of(ibv_dealloc_pd(bed.pd)));
	drop_pair(&datagrams);
	printf("domain: %s\n", name_of(ibv_dealloc_pd(bed.pd)));
	printf("firmware's object: %s\n", name_of(mlx5dv_devx_obj_destroy(object)));
	printf("its memory: %s\n", name_of(mlx5dv_devx_umem_dereg(umem)));
	/* The last one, which closes the device. */
	mlx5dv_devx_free_uar(page);
	free(bed.from);
}

int main(void)
{
	int before;

	/* What a library keeps for good is there after the first. */
	too_late();
	before = descriptors();
	too_late();
	printf("descriptors left: %d\n", descriptors() - before);
	return 0;
}
