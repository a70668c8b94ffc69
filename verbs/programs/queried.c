/* ibv_query_device_ex and ibv_query_device: every byte, for every room that a caller may have. */
#include "bed.h"

enum { ROOM = 512 };

static void report(const char *what, int status, const uint8_t *room)
{
	printf("%s: %s", what, name_of(status));
	for (int at = 0; at < ROOM; at++) {
		if (at % 32 == 0)
			printf("\n %3d", at);
		printf(" %02x", room[at]);
	}
	printf("\n");
}

/* Where a field ends, which is where a structure of an older header may end. */
#define END(field) (offsetof(struct ibv_device_attr_ex, field) + \
		    sizeof(((struct ibv_device_attr_ex *)0)->field))

static const size_t ends[] = {
	0, END(orig_attr) - 1, END(orig_attr), END(comp_mask), END(odp_caps), END(completion_timestamp_mask),
	END(hca_core_clock), END(device_cap_flags_ex), END(tso_caps), END(rss_caps), END(max_wq_type_rq),
	END(packet_pacing_caps), END(raw_packet_caps), END(tm_caps), END(cq_mod_caps), END(max_dm_size),
	END(pci_atomic_caps), END(xrc_odp_caps), END(phys_port_cnt_ex),
};

/* Release 44 has no word for atomics that are atomic to the processors, too. */
static void forget_global(uint8_t *room)
{
	struct ibv_device_attr *attr = (void *)room;

	if (attr->atomic_cap == IBV_ATOMIC_GLOB)
		attr->atomic_cap = IBV_ATOMIC_HCA;
}

static int ask(struct ibv_context *context, uint8_t *room, size_t size)
{
	struct ibv_query_device_ex_input input = {};
	int status;

	memset(room, 0x5a, ROOM);
	status = verbs_get_ctx(context)->query_device_ex(context, &input, (void *)room, size);
	forget_global(room);
	return status;
}

int main(void)
{
	struct bed bed = open_bed();
	uint8_t room[ROOM], whole[ROOM];
	struct ibv_query_device_ex_input unknown = { .comp_mask = 1 };
	size_t size = sizeof(struct ibv_device_attr_ex);
	int status;

	status = ask(bed.context, whole, size);
	report("ibv_query_device_ex", status, whole);
	memset(room, 0x5a, ROOM);
	status = ibv_query_device(bed.context, (void *)room);
	report("ibv_query_device", status, room);
	/* With less room there are fewer bytes, and the same. */
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		int differing = 0;

		status = ask(bed.context, room, ends[i]);
		for (size_t at = 0; !status && at < ends[i]; at++)
			differing += room[at] != whole[at];
		printf("room for %zu: %s, %d differ, behind it %02x\n", ends[i], name_of(status), differing,
		       room[ends[i]]);
	}
	printf("unknown input: %s\n",
	       name_of(ibv_query_device_ex(bed.context, &unknown, (void *)room)));
	close_bed(&bed);
	return 0;
}
