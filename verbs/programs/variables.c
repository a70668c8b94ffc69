/*
 * What variables of the environment change. Each line is of a process of its own, started with one variable, as
 * most are read once. Where no huge pages are set aside, queues that must have some are refused, by either library.
 * Not CONTIG, which C's library refuses wherever the kernel is not its vendor's.
 */
#include "bed.h"

#include <infiniband/mlx5dv.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes of the pages of memory: /proc/self/smaps has a line of them for each mapping. */
static long pages_at(const void *address)
{
	unsigned long begin, end, looked_for = (unsigned long)address;
	bool inside = false;
	char line[512];
	long kilobytes = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");

	must(maps, "smaps");
	while (!kilobytes && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = begin <= looked_for && looked_for < end;
		else if (inside)
			sscanf(line, "KernelPageSize: %ld kB", &kilobytes);
	}
	fclose(maps);
	return kilobytes;
}

static void pages(const char *what, bool made, const void *buffer)
{
	if (made)
		printf("%s %ld KiB", what, pages_at(buffer));
	else
		printf("%s %s", what, name_of(errno));
}

/* The memory of each kind of queue. */
static void queues(void)
{
	struct bed bed = open_bed();
	struct ibv_cq *completions = ibv_create_cq(bed.context, ENTRIES, NULL, NULL, 0);
	struct ibv_cq_init_attr_ex plain = { .cqe = ENTRIES };
	struct ibv_qp_init_attr sends = {
		.cap = { DEPTH, DEPTH, SGES, SGES, INLINE_BYTES },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_srq_init_attr shared = { .attr = { DEPTH, SGES, 0 } };
	struct ibv_wq_init_attr receives = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = DEPTH,
		.max_sge = SGES,
		.pd = bed.pd,
	};
	struct mlx5dv_cq cq_parts = {};
	struct mlx5dv_qp qp_parts = {};
	struct mlx5dv_srq srq_parts = {};
	struct mlx5dv_rwq rwq_parts = {};
	struct mlx5dv_obj parts = {
		.cq = { .out = &cq_parts },
		.qp = { .out = &qp_parts },
		.srq = { .out = &srq_parts },
		.rwq = { .out = &rwq_parts },
	};

	/* The variable may refuse this one, and those below need one. */
	if (!completions) {
		printf("cq %s, then ", name_of(errno));
		unsetenv("MLX_CQ_ALLOC_TYPE");
		completions = ibv_cq_ex_to_cq(ibv_create_cq_ex(bed.context, &plain));
	}
	must(completions, "a completion queue");
	sends.send_cq = sends.recv_cq = receives.cq = completions;
	parts.cq.in = completions;
	must(!mlx5dv_init_obj(&parts, MLX5DV_OBJ_CQ), "the parts of a completion queue");
	pages("cq", true, cq_parts.buf);

	parts.qp.in = ibv_create_qp(bed.pd, &sends);
	if (parts.qp.in)
		must(!mlx5dv_init_obj(&parts, MLX5DV_OBJ_QP), "the parts of a queue pair");
	pages(", qp", parts.qp.in, qp_parts.sq.buf);

	parts.srq.in = ibv_create_srq(bed.pd, &shared);
	if (parts.srq.in)
		must(!mlx5dv_init_obj(&parts, MLX5DV_OBJ_SRQ), "the parts of a shared receive queue");
	pages(", srq", parts.srq.in, srq_parts.buf);

	parts.rwq.in = ibv_create_wq(bed.context, &receives);
	if (parts.rwq.in)
		must(!mlx5dv_init_obj(&parts, MLX5DV_OBJ_RWQ), "the parts of a work queue");
	pages(", rwq", parts.rwq.in, rwq_parts.buf);
	printf("\n");
}

/* How a queue pair rings. */
static void doorbells(void)
{
	struct bed bed = open_bed();
	struct ibv_cq *cq = ibv_create_cq(bed.context, ENTRIES, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { DEPTH, DEPTH, SGES, SGES, INLINE_BYTES },
		.qp_type = IBV_QPT_RC,
	};
	struct mlx5dv_qp qp_parts = {};
	struct mlx5dv_obj parts = { .qp = { .out = &qp_parts } };

	parts.qp.in = ibv_create_qp(bed.pd, &init);
	must(parts.qp.in && !mlx5dv_init_obj(&parts, MLX5DV_OBJ_QP), "a queue pair");
	printf("BlueFlame: %d\n", qp_parts.bf.size != 0);
}

/* Whether memory is kept from children. */
static void forks(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	must(list, "devices");
	printf("fork: %d\n", ibv_is_fork_initialized());
}

static const struct {
	const char *name;
	void (*say)(void);
} CASES[] = { { "queues", queues }, { "doorbells", doorbells }, { "forks", forks } };

static void with(const char *name, const char *variable, const char *value)
{
	int status;
	pid_t child;

	printf("%s=%s ", variable, value ? value : "");
	fflush(stdout);
	child = fork();
	must(child >= 0, "fork");
	if (!child) {
		if (value)
			setenv(variable, value, 1);
		execl("/proc/self/exe", "variables", name, NULL);
		_exit(1);
	}
	must(waitpid(child, &status, 0) == child && !status, variable);
}

int main(int arguments, char **argument)
{
	static const char *const TYPES[] = { "ANON", "HUGE", "PREFER_HUGE", "ALL", "prefer_huge", "PREFER_CONTIG",
					     "nonsense", "" };
	static const char *const OWNERS[] = { "MLX_CQ_ALLOC_TYPE", "MLX_QP_ALLOC_TYPE", "MLX_SRQ_ALLOC_TYPE",
					      "MLX_RWQ_ALLOC_TYPE" };
	static const char *const SWITCHES[] = { "", "0", "1", "yes" };

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; arguments == 2 && i < sizeof(CASES) / sizeof(*CASES); i++)
		if (!strcmp(argument[1], CASES[i].name)) {
			CASES[i].say();
			return 0;
		}
	with("queues", "no variable", NULL);
	with("doorbells", "no variable", NULL);
	with("forks", "no variable", NULL);
	for (size_t i = 0; i < sizeof(OWNERS) / sizeof(*OWNERS); i++)
		for (size_t j = 0; j < sizeof(TYPES) / sizeof(*TYPES); j++)
			with("queues", OWNERS[i], TYPES[j]);
	for (size_t j = 0; j < sizeof(SWITCHES) / sizeof(*SWITCHES); j++) {
		with("doorbells", "MLX5_SHUT_UP_BF", SWITCHES[j]);
		with("forks", "RDMAV_FORK_SAFE", SWITCHES[j]);
		with("forks", "IBV_FORK_SAFE", SWITCHES[j]);
		with("forks", "RDMAV_HUGEPAGES_SAFE", SWITCHES[j]);
	}
	return 0;
}
