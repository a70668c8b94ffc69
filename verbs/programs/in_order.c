/* ibv_query_qp_data_in_order: in each state of queue pairs of each type, for each operation that it is for. */
#include "bed.h"

static struct bed bed;

static void ask(struct ibv_qp *qp, enum ibv_qp_type type, const char *state)
{
	static const enum ibv_wr_opcode operations[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};

	printf("%s %s:", type_name(type), state);
	for (int i = 0; i < 3; i++)
		printf(" %d", ibv_query_qp_data_in_order(qp, operations[i], 0));
	/* A flag that no release knows. */
	printf(", unknown flag %d\n", ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 1u << 31));
}

static void in_each_state(enum ibv_qp_type type)
{
	struct pair pair = make_pair(&bed, type, operations(type));

	ask(pair.qp, type, "RESET");
	must(!to_init(pair.qp), "INIT");
	ask(pair.qp, type, "INIT");
	must(!to_rtr(&bed, pair.qp, pair.peer->qp_num), "RTR");
	ask(pair.qp, type, "RTR");
	must(!to_rts(pair.qp), "RTS");
	ask(pair.qp, type, "RTS");
	must(!to_error(pair.qp), "ERR");
	ask(pair.qp, type, "ERR");
	drop_pair(&pair);
}

int main(void)
{
	bed = open_bed();
	in_each_state(IBV_QPT_RC);
	in_each_state(IBV_QPT_UC);
	in_each_state(IBV_QPT_UD);
	in_each_state(IBV_QPT_XRC_SEND);
	close_bed(&bed);
	return 0;
}
