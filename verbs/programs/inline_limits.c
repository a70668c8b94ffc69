/*
 * How much inline data a queue pair is granted for what is asked, up to the most that its requests hold, and
 * beside SGEs; and, of datagrams and connections, that a request holds as much.
 *
 * Datagrams and packets are granted the same by both libraries, what is left of the last block. C's grants
 * requests of 64 units, though a request can say that it has 63: what a program is granted beyond them is not
 * printed. In front of the data of other requests C's library leaves room for longer segments than ours
 * does, so of these it is only printed whether they are granted what they ask for.
 */
#include "bed.h"

enum {
	/* Of 63 units: behind control segment and address vector, and behind Ethernet's segment. */
	MOST_OF_UD = 63 * 16 - 64 - 4,
	MOST_OF_RAW = 63 * 16 - 48 - 4,
	/* What C's library has room for. */
	MOST_OF_RC = 828,
	MOST_OF_XRC = 812,
	TOO_MUCH = 1024,
};

static struct ibv_qp *sized(const struct bed *bed, struct ibv_cq_ex *cq, enum ibv_qp_type type,
			    struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = type == IBV_QPT_XRC_SEND ? NULL : ibv_cq_ex_to_cq(cq),
		.cap = *cap,
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(bed->pd, &attr);

	*cap = attr.cap;
	return qp;
}

/* Datagrams and packets. */
static void exact(const struct bed *bed, struct ibv_cq_ex *cq, const char *name, enum ibv_qp_type type,
		  uint32_t most)
{
	static const uint32_t sges[] = { 0, 1, 2, 5, 30, 59 };

	for (unsigned int i = 0; i < sizeof(sges) / sizeof(*sges); i++) {
		uint32_t last = UINT32_MAX;

		/* Without either, C's library says that there is less room than none. */
		for (uint32_t asked = !sges[i]; asked <= most; asked++) {
			struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = sges[i],
						  .max_inline_data = asked };
			struct ibv_qp *qp = sized(bed, cq, type, &cap);
			uint32_t granted = cap.max_inline_data < most ? cap.max_inline_data : most;

			must(qp, "ibv_create_qp");
			must(granted >= asked, "as much as was asked");
			if (granted != last)
				printf("%s, %u SGEs: of %u bytes on %u are granted\n", name, sges[i],
				       asked, granted);
			last = granted;
			must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
		}
	}
}

/* The errno of a queue pair; 0 if it is granted what it asks for. */
static int asked(const struct bed *bed, struct ibv_cq_ex *cq, enum ibv_qp_type type, uint32_t sges,
		 uint32_t bytes)
{
	struct ibv_qp_cap cap = { .max_send_wr = 4, .max_send_sge = sges, .max_inline_data = bytes };
	struct ibv_qp *qp = sized(bed, cq, type, &cap);

	if (!qp)
		return errno;
	must(cap.max_inline_data >= bytes, "as much as was asked");
	must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	return 0;
}

/* Those whose requests start otherwise than C's library leaves room for. */
static void other(const struct bed *bed, struct ibv_cq_ex *cq, const char *name, enum ibv_qp_type type,
		  uint32_t most)
{
	int count = 0;

	for (uint32_t bytes = 0; bytes <= most; bytes++)
		for (uint32_t sges = 0; sges <= 48; sges += 12) {
			int refused = asked(bed, cq, type, sges, bytes);

			if (refused)
				printf("%s, %u SGEs, %u bytes: %s\n", name, sges, bytes, name_of(refused));
			count += !refused;
		}
	printf("%s: %d are granted what they ask for\n", name, count);
}

static void too_much(const struct bed *bed, struct ibv_cq_ex *cq, const char *name, enum ibv_qp_type type)
{
	printf("%s, too much inline data: %s\n", name, name_of(asked(bed, cq, type, 1, TOO_MUCH)));
	printf("%s, too many SGEs: %s\n", name, name_of(asked(bed, cq, type, 64, 0)));
}

/* A message of so many bytes, the most that a request of its queue pair was to hold. */
static void whole(struct bed *bed, enum ibv_qp_type type, uint32_t bytes)
{
	struct pair pair = make_pair(bed, type, 0);
	struct ibv_qp_cap cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
				  .max_inline_data = bytes };
	struct ibv_sge sge = { (uintptr_t)bed->from, bytes, 0 };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
	uint32_t header = type == IBV_QPT_UD ? 40 : 0;
	struct ibv_wc wc;

	must(!ibv_destroy_qp(pair.qp), "ibv_destroy_qp");
	pair.qp = sized(bed, pair.cq, type, &cap);
	must(pair.qp, "ibv_create_qp");
	connect_pair(bed, &pair);
	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = pair.ah;
		wr.wr.ud.remote_qpn = pair.peer->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	for (int lap = 0; lap < 9; lap++) {
		memset(bed->to, 0, HALF);
		must(!post_receive(bed, &pair, 1), "ibv_post_recv");
		must(!ibv_post_send(pair.qp, &wr, &bad), "ibv_post_send");
		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		must(wc.status == IBV_WC_SUCCESS, "sent");
		poll_one(ibv_cq_ex_to_cq(pair.peer_cq), &wc);
		must(wc.status == IBV_WC_SUCCESS && wc.byte_len == header + bytes, "received");
		must(!memcmp(bed->to + header, bed->from, bytes), "as it was sent");
	}
	printf("%s: %u bytes arrive\n", type_name(type), bytes);
	drop_pair(&pair);
}

int main(void)
{
	struct bed bed = open_bed();
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);

	exact(&bed, cq, "UD", IBV_QPT_UD, MOST_OF_UD);
	exact(&bed, cq, "packets", IBV_QPT_RAW_PACKET, MOST_OF_RAW);
	other(&bed, cq, "RC", IBV_QPT_RC, MOST_OF_RC);
	other(&bed, cq, "UC", IBV_QPT_UC, MOST_OF_RC);
	other(&bed, cq, "XRC", IBV_QPT_XRC_SEND, MOST_OF_XRC);
	too_much(&bed, cq, "UD", IBV_QPT_UD);
	too_much(&bed, cq, "packets", IBV_QPT_RAW_PACKET);
	too_much(&bed, cq, "RC", IBV_QPT_RC);
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	whole(&bed, IBV_QPT_RC, MOST_OF_RC);
	whole(&bed, IBV_QPT_UC, MOST_OF_RC);
	whole(&bed, IBV_QPT_UD, MOST_OF_UD);
	close_bed(&bed);
	return 0;
}
