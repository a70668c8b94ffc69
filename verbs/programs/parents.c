/*
 * A domain of another one stays as long as work queues have it. C's library frees it, and looks into it when
 * they are destroyed.
 */
#include "bed.h"

static void *own_memory(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	(void)pd;
	(void)context;
	(void)size;
	(void)alignment;
	(void)type;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void give_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	(void)pd;
	(void)context;
	(void)memory;
	(void)type;
}

/* A work queue in a domain with functions of the program's own, which its memory goes back to. */
static void in_parent(struct bed *bed, struct ibv_cq *cq)
{
	struct ibv_parent_domain_init_attr init = {
		.pd = bed->pd, .alloc = own_memory, .free = give_back,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct ibv_pd *parent = ibv_alloc_parent_domain(bed->context, &init);
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = parent,
		.cq = cq,
	};
	struct ibv_wq *queue;

	must(parent, "ibv_alloc_parent_domain");
	queue = ibv_create_wq(bed->context, &attr);
	must(queue, "ibv_create_wq");
	printf("parent of a work queue: %s\n", name_of(ibv_dealloc_pd(parent)));
	must(!ibv_destroy_wq(queue), "ibv_destroy_wq");
	printf("parent without one: %s\n", name_of(ibv_dealloc_pd(parent)));
}

int main(void)
{
	struct bed bed = open_bed();
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);

	in_parent(&bed, ibv_cq_ex_to_cq(cq));
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	close_bed(&bed);
	return 0;
}
