/* Address handles: which of them keep their protection domain. The kernel knows of them on Ethernet only. */
#include "bed.h"

int main(void)
{
	struct bed bed = open_bed();
	struct ibv_ah_attr path = path_to_self(&bed);
	struct ibv_pd *pd = ibv_alloc_pd(bed.context);
	bool ethernet = bed.port.link_layer == IBV_LINK_LAYER_ETHERNET;
	struct ibv_ah *ah;
	int freed;

	must(pd, "ibv_alloc_pd");
	ah = ibv_create_ah(pd, &path);
	must(ah, "ibv_create_ah");
	freed = ibv_dealloc_pd(pd);
	printf("the domain of a handle, Ethernet %d: %s\n", ethernet, name_of(freed));
	printf("the handle: %s\n", name_of(ibv_destroy_ah(ah)));
	if (freed)
		printf("the domain: %s\n", name_of(ibv_dealloc_pd(pd)));
	close_bed(&bed);
	return 0;
}
