/*
 * A second context over the descriptor of the first: objects that it imports are those of the first, and who
 * destroys them there has destroyed them. Unimporting them destroys nothing. The descriptor is the context's.
 */
#include "bed.h"

#include <fcntl.h>
#include <unistd.h>

static struct bed bed;

static struct ibv_context *part(void)
{
	int file = dup(bed.context->cmd_fd);
	struct ibv_context *context = ibv_import_device(file);

	must(context, "ibv_import_device");
	printf("its descriptor: %s\n", context->cmd_fd == file ? "as given" : "another");
	return context;
}

static bool is_open(int file)
{
	return fcntl(file, F_GETFD) >= 0;
}

static void invalid_devices(void)
{
	int files[] = { -1, 12345, open("/dev/null", O_RDWR), open("/proc/self/stat", O_RDONLY) };

	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct ibv_context *context = ibv_import_device(files[i]);

		printf("no device: %d, %s", context != NULL, name_of(errno));
		printf(", left open: %d\n", i > 1 && is_open(files[i]));
	}
}

static void unimported(void)
{
	struct ibv_context *context = part();
	int file = context->cmd_fd;
	struct ibv_pd *pd = ibv_import_pd(context, bed.pd->handle);
	struct ibv_mr *mr;

	must(pd, "ibv_import_pd");
	mr = ibv_import_mr(pd, bed.mr->handle);
	must(mr, "ibv_import_mr");
	printf("keys: %d %d\n", mr->lkey == bed.mr->lkey, mr->rkey == bed.mr->rkey);
	ibv_unimport_mr(mr);
	mr = ibv_import_mr(pd, bed.mr->handle);
	printf("imported again: %d\n", mr != NULL);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	printf("closed: %s", name_of(ibv_close_device(context)));
	printf(", descriptor open: %d\n", is_open(file));
}

static void destroyed(void)
{
	struct ibv_alloc_dm_attr length = { .length = 64 };
	struct ibv_dm *memory = ibv_alloc_dm(bed.context, &length), *their_memory;
	struct ibv_context *context = part();
	struct ibv_pd *pd = ibv_import_pd(context, bed.pd->handle);
	struct ibv_mr *mr;

	must(pd && memory, "objects");
	their_memory = ibv_import_dm(context, memory->handle);
	must(their_memory, "ibv_import_dm");
	mr = ibv_import_mr(pd, bed.mr->handle);
	must(mr, "ibv_import_mr");
	printf("a domain with a region: %s\n", name_of(ibv_dealloc_pd(pd)));
	printf("region: %s", name_of(ibv_dereg_mr(mr)));
	printf(", imported again: %d\n", ibv_import_mr(pd, bed.mr->handle) != NULL);
	printf("memory: %s", name_of(ibv_free_dm(their_memory)));
	printf(", imported again: %d\n", ibv_import_dm(context, memory->handle) != NULL);
	printf("domain: %s", name_of(ibv_dealloc_pd(pd)));
	printf(", imported again: %d\n", ibv_import_pd(context, bed.pd->handle) != NULL);
	printf("closed: %s\n", name_of(ibv_close_device(context)));
	/* What the first part has of them is gone. */
	printf("region: %d\n", ibv_dereg_mr(bed.mr) != 0);
	printf("memory: %d\n", ibv_free_dm(memory) != 0);
	printf("domain: %d\n", ibv_dealloc_pd(bed.pd) != 0);
}

int main(void)
{
	bed = open_bed();
	invalid_devices();
	unimported();
	destroyed();
	return 0;
}
