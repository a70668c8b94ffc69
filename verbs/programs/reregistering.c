/* Memory regions that are changed (ibv_rereg_mr): what the library refuses, what the kernel, what a change leaves. */
#include "bed.h"

enum { REGION = 4096 };

static struct bed bed;

static const char *step(int answer)
{
	switch (answer) {
	case 0: return "done";
	case IBV_REREG_MR_ERR_INPUT: return "refused";
	case IBV_REREG_MR_ERR_CMD: return "failed";
	case IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW: return "failed, and forking";
	default: return "something else";
	}
}

static void change(const char *what, struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		   int access)
{
	int answer;

	errno = 0;
	answer = ibv_rereg_mr(mr, flags, pd, addr, length, access);
	printf("%s: %s", what, step(answer));
	if (answer)
		printf(", %s", name_of(errno));
	printf("; address %d, length %zu, domain %s\n", mr->addr == addr, mr->length,
	       mr->pd == bed.pd ? "the first" : "another");
}

static struct ibv_mr *make(void *memory, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(bed.pd, memory, REGION, access);

	must(mr, "ibv_reg_mr");
	return mr;
}

int main(void)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_alloc_dm_attr on_device = { .length = 64 };
	uint8_t *memory, *other;
	struct ibv_mr *mr, *null;
	struct ibv_pd *pd;
	struct ibv_dm *dm;

	bed = open_bed();
	pd = ibv_alloc_pd(bed.context);
	memory = aligned_alloc(4096, 4 * REGION);
	must(pd && memory, "a domain and memory");
	other = memory + 2 * REGION;
	memset(memory, 0, 4 * REGION);

	mr = make(memory, IBV_ACCESS_LOCAL_WRITE);
	change("nothing", mr, 0, NULL, NULL, 0, 0);
	mr = make(memory, IBV_ACCESS_LOCAL_WRITE);
	change("an unknown flag", mr, 8, NULL, NULL, 0, 0);
	change("a negative flag", mr, 1 << 31, NULL, NULL, 0, 0);
	change("rights that are not to change", mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, all);
	change("memory without length", mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, 0, 0);
	change("memory without address", mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, REGION, 0);
	change("rights", mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, all);
	change("no rights", mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0);
	change("the domain", mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0);
	change("memory", mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, 2 * REGION, 0);
	change("everything", mr,
	       IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, bed.pd,
	       memory, REGION, all);
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");

	mr = make(memory, IBV_ACCESS_LOCAL_WRITE);
	change("writing for peers alone", mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
	mr = make(memory, IBV_ACCESS_LOCAL_WRITE);
	change("negative rights", mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 31);
	mr = make(memory, IBV_ACCESS_LOCAL_WRITE);
	change("more than there is", mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, SIZE_MAX, 0);

	/* Regions that stay as they are. */
	null = ibv_alloc_null_mr(bed.pd);
	if (null) {
		change("a null region", null, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0);
		must(!ibv_dereg_mr(null), "ibv_dereg_mr of a null region");
	}
	mr = ibv_import_mr(bed.pd, bed.mr->handle);
	must(mr, "ibv_import_mr");
	change("an imported region", mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0);
	ibv_unimport_mr(mr);
	dm = ibv_alloc_dm(bed.context, &on_device);
	must(dm, "ibv_alloc_dm");
	mr = ibv_reg_dm_mr(bed.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	must(mr, "ibv_reg_dm_mr");
	change("device memory", mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0);
	return 0;
}
