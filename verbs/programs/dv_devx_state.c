/*
 * The state that a program reads in a queue pair follows firmware commands that change it, and so does
 * posting. C's library of release 44 goes on with the state before.
 */
#include "bed.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

enum {
	TO_ERR = 0x507,
	TO_RESET = 0x50a,
	SHORT = 16,
};

static void command(struct ibv_qp *qp, uint8_t opcode)
{
	uint8_t in[SHORT] = { 5, opcode }, out[SHORT] = {};

	*(uint32_t *)(in + 8) = htobe32(qp->qp_num);
	must(!mlx5dv_devx_qp_modify(qp, in, SHORT, out, SHORT), "mlx5dv_devx_qp_modify");
	printf("command %#x: state %d\n", 0x500 | opcode, qp->state);
}

static int write_one(struct bed *bed, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)bed->from, 8, bed->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)bed->to, bed->mr->rkey },
	}, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

int main(void)
{
	struct bed bed = open_bed();
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_wc wc;

	connect_pair(&bed, &pair);
	command(pair.qp, TO_ERR & 0xff);
	must(!write_one(&bed, pair.qp), "ibv_post_send");
	poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
	printf("flushed: %d\n", wc.status == IBV_WC_WR_FLUSH_ERR);
	command(pair.qp, TO_RESET & 0xff);
	printf("posting then: %s\n", name_of(write_one(&bed, pair.qp)));
	drop_pair(&pair);
	close_bed(&bed);
	return 0;
}
