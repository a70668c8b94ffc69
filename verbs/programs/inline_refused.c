/*
 * A list whose third request has too much inline data: the two before it are posted.
 *
 * C's library rings for them with the WQE of the third, of which it wrote only a part: the device reads
 * what was there before.
 */
#include "bed.h"

int main(void)
{
	struct bed bed = open_bed();
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	struct ibv_sge sge = { (uintptr_t)bed.from, 8, bed.mr->lkey };
	struct ibv_sge much = { (uintptr_t)bed.from, HALF, 0 };
	struct ibv_send_wr list[4] = {}, *bad = NULL;
	int refused;

	connect_pair(&bed, &pair);
	for (int i = 0; i < 4; i++)
		list[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i < 3 ? &list[i + 1] : NULL,
			.sg_list = i == 2 ? &much : &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED | (i == 2 ? IBV_SEND_INLINE : 0),
			.wr.rdma = { (uintptr_t)bed.to, bed.mr->rkey },
		};
	refused = ibv_post_send(pair.qp, list, &bad);
	printf("%s, bad %ld\n", name_of(refused), (long)(bad - list));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;

		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		printf("completed %" PRIu64 ", status %d\n", wc.wr_id, wc.status);
	}
	drop_pair(&pair);
	close_bed(&bed);
	return 0;
}
