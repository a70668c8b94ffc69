/* mlx5dv_query_device: exactly what the mask asks for is written, and the mask tells what was. */
#include "bed.h"

#include <infiniband/mlx5dv.h>

enum {
	/* What came after release 44 is not asked for: that release knows nothing of it. */
	BITS = 14,
	ROOM = 512,
};

static void ask(struct ibv_context *context, const char *what, uint64_t mask)
{
	uint64_t answered[2];
	uint8_t room[2][ROOM];
	bool clock;
	int status = 0;

	for (int i = 0; i < 2; i++) {
		struct mlx5dv_context *attrs = (void *)room[i];

		memset(room[i], i ? 0x5a : 0xa5, ROOM);
		attrs->comp_mask = mask;
		status = mlx5dv_query_device(context, attrs);
		answered[i] = attrs->comp_mask;
		/* Release 44 has no flag for BlueFlame. */
		attrs->flags &= ~(1ull << 8);
	}
	clock = answered[0] & MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK;
	printf("%s: %s, told %#" PRIx64 ", same %d, written", what, name_of(status), answered[0],
	       answered[0] == answered[1]);
	for (int at = 0; at < ROOM; at++) {
		size_t pointer = at - offsetof(struct mlx5dv_context, hca_core_clock);
		size_t hole = at - offsetof(struct mlx5dv_context, crypto_caps.flags) + 3;
		bool written = room[0][at] != 0xa5 || room[1][at] != 0x5a;

		/* The clock is mapped anywhere, and no field is in the hole. */
		if (hole < 3)
			continue;
		if (written && clock && pointer < sizeof(void *))
			printf(" %d", at);
		else if (written)
			printf(" %d:%02x", at, room[0][at]);
	}
	printf("\n");
}

static void clocks(struct ibv_context *context)
{
	struct mlx5dv_context attrs = { .comp_mask = MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK };
	struct mlx5dv_clock_info first, second;
	volatile uint32_t *clock;
	uint8_t room[ROOM];
	int written = 0;

	must(!mlx5dv_query_device(context, &attrs), "mlx5dv_query_device");
	must(!mlx5dv_get_clock_info(context, &first), "mlx5dv_get_clock_info");
	must(!mlx5dv_get_clock_info(context, &second), "mlx5dv_get_clock_info again");
	printf("clock info: mult %u, shift %u, mask %#" PRIx64 ", time goes on %d\n", first.mult,
	       first.shift, first.mask, second.nsec >= first.nsec && first.nsec);
	memset(room, 0xa5, ROOM);
	must(!mlx5dv_get_clock_info(context, (void *)room), "mlx5dv_get_clock_info");
	for (int at = sizeof(first); at < ROOM; at++)
		written += room[at] != 0xa5;
	printf("bytes behind it that were written: %d\n", written);
	if (attrs.comp_mask & MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK) {
		clock = attrs.hca_core_clock;
		printf("the device's clock can be read: %d\n", clock[0] + clock[1] != 0);
	}
}

static void ports(struct ibv_context *context)
{
	uint8_t room[ROOM];

	for (int port = 0; port < 4; port++)
		for (size_t len = 0; len <= 48; len += 8) {
			int status, written = 0;

			memset(room, 0xa5, ROOM);
			status = _mlx5dv_query_port(context, port, (void *)room, len);
			for (int at = len; at < ROOM; at++)
				written += room[at] != 0xa5;
			printf("port %d, %zu bytes: %s, behind them %d\n", port, len, name_of(status),
			       written);
		}
}

static void opening(struct ibv_device *device)
{
	static const struct mlx5dv_context_attr attrs[] = {
		{ .flags = 0 },
		{ .flags = MLX5DV_CONTEXT_FLAGS_DEVX },
		{ .flags = 1 << 5 },
		{ .comp_mask = 1 << 9 },
	};

	printf("supported: %d\n", mlx5dv_is_supported(device));
	for (int i = 0; i < 4; i++) {
		struct mlx5dv_context_attr attr = attrs[i];
		struct ibv_context *context;

		errno = 0;
		context = mlx5dv_open_device(device, &attr);
		printf("opening %d: %s\n", i, context ? "open" : name_of(errno));
		if (context)
			must(!ibv_close_device(context), "ibv_close_device");
	}
}

int main(void)
{
	struct bed bed = open_bed();

	ask(bed.context, "nothing", 0);
	for (int bit = 0; bit < BITS; bit++) {
		char what[16];

		snprintf(what, sizeof(what), "bit %d", bit);
		ask(bed.context, what, 1ull << bit);
	}
	ask(bed.context, "all", (1 << BITS) - 1);
	ask(bed.context, "unknown", 1ull << 40);
	ask(bed.context, "known and unknown", 1ull << 40 | MLX5DV_CONTEXT_MASK_CQE_COMPRESION);
	clocks(bed.context);
	ports(bed.context);
	opening(bed.context->device);
	close_bed(&bed);
	return 0;
}
