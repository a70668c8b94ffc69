/* Queues and keys with attributes of mlx5: what is made, what is refused and how, and requests for keys. */
#include "bed.h"

#include <infiniband/mlx5dv.h>

static struct bed bed;

static void cq(const char *what, struct mlx5dv_cq_init_attr dv)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 8 };
	struct mlx5dv_cq raw = {};
	struct mlx5dv_obj obj = {};
	struct ibv_cq_ex *made;

	errno = 0;
	made = mlx5dv_create_cq(bed.context, &attr, &dv);
	if (!made) {
		printf("%s: %s\n", what, name_of(errno));
		return;
	}
	obj.cq.in = ibv_cq_ex_to_cq(made);
	obj.cq.out = &raw;
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	printf("%s: CQEs of %u\n", what, raw.cqe_size);
	must(!ibv_destroy_cq(obj.cq.in), "ibv_destroy_cq");
}

static void completion_queues(void)
{
	cq("nothing", (struct mlx5dv_cq_init_attr){});
	for (int size = 0; size <= 256; size += 32)
		cq("a size", (struct mlx5dv_cq_init_attr){ .comp_mask = 4, .cqe_size = size });
	for (int format = 0; format < 10; format++) {
		cq("compressed", (struct mlx5dv_cq_init_attr){
			.comp_mask = 1, .cqe_comp_res_format = format });
		cq("compressed of 128", (struct mlx5dv_cq_init_attr){
			.comp_mask = 5, .cqe_comp_res_format = format, .cqe_size = 128 });
	}
	for (int flags = 0; flags < 4; flags++) {
		cq("flags", (struct mlx5dv_cq_init_attr){ .comp_mask = 2, .flags = flags });
		cq("flags of 128", (struct mlx5dv_cq_init_attr){
			.comp_mask = 6, .flags = flags, .cqe_size = 128 });
	}
	cq("unknown", (struct mlx5dv_cq_init_attr){ .comp_mask = 1 << 7 });
	setenv("MLX5_CQE_SIZE", "128", 1);
	cq("by the environment", (struct mlx5dv_cq_init_attr){});
	cq("against the environment", (struct mlx5dv_cq_init_attr){ .comp_mask = 4, .cqe_size = 64 });
	setenv("MLX5_CQE_SIZE", "100", 1);
	cq("nonsense in the environment", (struct mlx5dv_cq_init_attr){});
	unsetenv("MLX5_CQE_SIZE");
}

static struct ibv_qp *qp(enum ibv_qp_type type, uint64_t ops, struct ibv_cq *cq,
			 struct mlx5dv_qp_init_attr *dv)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { DEPTH, 1, 2, 1, 512 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = bed.pd,
		.send_ops_flags = ops,
	};

	errno = 0;
	return mlx5dv_create_qp(bed.context, &attr, dv);
}

static void try_qp(const char *what, int number, enum ibv_qp_type type,
		   struct mlx5dv_qp_init_attr dv)
{
	struct ibv_cq *cq = ibv_create_cq(bed.context, 8, NULL, NULL, 0);
	struct ibv_qp *made = qp(type, 0, cq, &dv);

	printf("%s %s %d: %s\n", type_name(type), what, number, made ? "made" : name_of(errno));
	if (made)
		must(!ibv_destroy_qp(made), "ibv_destroy_qp");
	must(!ibv_destroy_cq(cq), "ibv_destroy_cq");
}

static void queue_pairs(void)
{
	/* What raw packets, credits and data out of order need is left out: the device decides. */
	static const int flags[] = { 0, 3, 4, 6, 10 };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		try_qp("flag", flags[i], IBV_QPT_RC, (struct mlx5dv_qp_init_attr){
			.comp_mask = 1, .create_flags = i ? 1 << flags[i] : 0 });
	try_qp("flags", 24, IBV_QPT_RC,
	       (struct mlx5dv_qp_init_attr){ .comp_mask = 1, .create_flags = 24 });
	for (int bit = 0; bit < 4; bit++) {
		try_qp("operation", bit, IBV_QPT_RC,
		       (struct mlx5dv_qp_init_attr){ .comp_mask = 4, .send_ops_flags = 1 << bit });
		try_qp("operation", bit, IBV_QPT_UD,
		       (struct mlx5dv_qp_init_attr){ .comp_mask = 4, .send_ops_flags = 1 << bit });
		try_qp("operation", bit, IBV_QPT_UC,
		       (struct mlx5dv_qp_init_attr){ .comp_mask = 4, .send_ops_flags = 1 << bit });
	}
	try_qp("operation", 9, IBV_QPT_RC,
	       (struct mlx5dv_qp_init_attr){ .comp_mask = 4, .send_ops_flags = 1 << 9 });
	try_qp("nothing", 0, IBV_QPT_UD, (struct mlx5dv_qp_init_attr){});
	try_qp("dynamic", 0, IBV_QPT_RC, (struct mlx5dv_qp_init_attr){ .comp_mask = 2 });
	try_qp("unknown", 0, IBV_QPT_RC, (struct mlx5dv_qp_init_attr){ .comp_mask = 1 << 9 });
}

static void keys(void)
{
	static const int entries[] = { 1, 4, 5, 40, 49, 200 };

	for (int flags = 0; flags < 64; flags++) {
		struct mlx5dv_mkey_init_attr attr = {
			.pd = bed.pd, .create_flags = flags, .max_entries = 3 };
		struct mlx5dv_mkey *key;

		errno = 0;
		key = mlx5dv_create_mkey(&attr);
		printf("key of flags %d: %s, entries %u\n", flags, key ? "made" : name_of(errno),
		       attr.max_entries);
		if (key) {
			printf("lowest byte %u, the same remotely %d\n", key->lkey & 0xff,
			       key->lkey == key->rkey);
			must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
		}
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		struct mlx5dv_mkey_init_attr attr = {
			.pd = bed.pd, .create_flags = 1, .max_entries = entries[i] };
		struct mlx5dv_mkey *key = mlx5dv_create_mkey(&attr);

		printf("key of %d entries: %d, %u\n", entries[i], key != NULL, attr.max_entries);
		if (key)
			must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
	}
}

static struct mlx5dv_mkey *make_key(int flags, int entries)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = bed.pd, .create_flags = flags, .max_entries = entries };
	struct mlx5dv_mkey *key = mlx5dv_create_mkey(&attr);

	must(key, "mlx5dv_create_mkey");
	return key;
}

enum { COMPLETE, NO_INLINE, NO_KEY, TWICE, TWICE_RIGHTS, TOO_MANY, RIGHTS, NO_SIGNATURE, NO_DOMAIN,
       CONFIGURED, OLD_LIST, OLD_STRIDES, NO_SETTERS, WORSE_CONFIGURATION, MISTAKES };

static const char *const mistakes[] = {
	"as it should be", "not inline", "a setter without a key", "a list twice", "rights twice",
	"too many entries", "unknown rights", "a signature of a key without", "no domain",
	"unknown configuration", "a list at once", "strides at once", "no setters", "unknown flags",
};

/* One configuration of a key, with a mistake. */
static int configure(struct ibv_qp *queue, struct mlx5dv_mkey *key, int mistake)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(queue);
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	struct mlx5dv_mkey_conf_attr conf = { .conf_flags = mistake == WORSE_CONFIGURATION ? 2 : 0,
					      .comp_mask = mistake == CONFIGURED };
	struct ibv_sge list[100];
	struct mlx5dv_mr_interleaved strides[2];
	struct mlx5dv_sig_block_attr none = {};
	struct mlx5dv_sig_crc crc = { .type = MLX5DV_SIG_CRC_TYPE_CRC32C };
	struct mlx5dv_sig_block_domain domain = {
		.sig_type = MLX5DV_SIG_TYPE_CRC, .sig.crc = &crc, .block_size = MLX5DV_BLOCK_SIZE_512 };
	struct mlx5dv_sig_block_attr wire = { .wire = &domain, .check_mask = 0xff };
	uint32_t rights = mistake == RIGHTS ? 1 << 10 : IBV_ACCESS_LOCAL_WRITE;

	for (int i = 0; i < 100; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)bed.from + i * 32, 16, bed.mr->lkey };
	for (int i = 0; i < 2; i++)
		strides[i] = (struct mlx5dv_mr_interleaved){
			(uintptr_t)bed.from + i * 64, 16, 16, bed.mr->lkey };
	ibv_wr_start(ex);
	ex->wr_id = mistake;
	ex->wr_flags = IBV_SEND_SIGNALED | (mistake == NO_INLINE ? 0 : IBV_SEND_INLINE);
	if (mistake == OLD_LIST) {
		mlx5dv_wr_mr_list(dv, key, rights, 3, list);
		return ibv_wr_complete(ex);
	}
	if (mistake == OLD_STRIDES) {
		mlx5dv_wr_mr_interleaved(dv, key, rights, 2, 2, strides);
		return ibv_wr_complete(ex);
	}
	if (mistake != NO_KEY)
		mlx5dv_wr_mkey_configure(dv, key, mistake == NO_SETTERS ? 0 : 3, &conf);
	if (mistake == NO_SETTERS)
		return ibv_wr_complete(ex);
	mlx5dv_wr_set_mkey_access_flags(dv, rights);
	if (mistake == TWICE_RIGHTS)
		mlx5dv_wr_set_mkey_access_flags(dv, rights);
	mlx5dv_wr_set_mkey_layout_list(dv, mistake == TOO_MANY ? 100 : 3, list);
	if (mistake == TWICE)
		mlx5dv_wr_set_mkey_layout_interleaved(dv, 1, 1, strides);
	mlx5dv_wr_set_mkey_sig_block(dv, mistake == NO_DOMAIN ? &none : &wire);
	return ibv_wr_complete(ex);
}

static void requests(void)
{
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_MR_LIST |
				  MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_RAW_WQE,
	};
	struct pair pair = { .type = IBV_QPT_RC };
	struct mlx5dv_mkey *plain = make_key(1, 8), *signs = make_key(3, 8);
	struct mlx5dv_mkey_err error;
	struct mlx5dv_qp_ex *ex;
	struct ibv_wc wc;

	pair.cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);
	pair.peer_cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);
	pair.qp = qp(IBV_QPT_RC, operations(IBV_QPT_RC), ibv_cq_ex_to_cq(pair.cq), &dv);
	pair.peer = make_qp(&bed, IBV_QPT_RC, ibv_cq_ex_to_cq(pair.peer_cq), 0);
	must(pair.qp && pair.peer, "queue pairs");
	connect_pair(&bed, &pair);
	ex = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(pair.qp));
	printf("functions: %d %d %d %d %d, of dynamic connections %d\n", ex->wr_mkey_configure != NULL,
	       ex->wr_mr_list != NULL, ex->wr_raw_wqe != NULL, ex->wr_set_mkey_sig_block != NULL,
	       ex->wr_memcpy != NULL, ex->wr_set_dc_addr != NULL);
	for (int mistake = 0; mistake < MISTAKES; mistake++) {
		bool mine = mistake == NO_SIGNATURE || mistake == OLD_LIST || mistake == OLD_STRIDES;
		int refused = configure(pair.qp, mine ? plain : signs, mistake);

		printf("%s: %s", mistakes[mistake], name_of(refused));
		if (!refused) {
			poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
			printf(", request %" PRIu64 " opcode %d status %d", wc.wr_id, wc.opcode,
			       wc.status);
		}
		printf("\n");
	}
	printf("errors of a key: %s", name_of(mlx5dv_mkey_check(signs, &error)));
	printf(", %d; of one without signatures: ", error.err_type);
	printf("%s\n", name_of(mlx5dv_mkey_check(plain, &error)));
	printf("cancelling on a queue that runs: %s\n",
	       name_of(mlx5dv_qp_cancel_posted_send_wrs(ex, 7)));
	drop_pair(&pair);
	must(!mlx5dv_destroy_mkey(plain) && !mlx5dv_destroy_mkey(signs), "mlx5dv_destroy_mkey");
}

/* Memory on the device: what is written to its mapping is what a copy reads. */
static void memory(void)
{
	for (int type = 0; type < 3; type++) {
		struct ibv_alloc_dm_attr attr = { .length = 128 };
		struct mlx5dv_alloc_dm_attr dv = { .type = type ? 7 + type : 0 };
		struct mlx5dv_dm raw = { .comp_mask = MLX5DV_DM_MASK_REMOTE_VA | 1 << 4 };
		struct mlx5dv_obj obj = { .dm.out = &raw };
		uint32_t read = 0;

		errno = 0;
		obj.dm.in = mlx5dv_alloc_dm(bed.context, &attr, &dv);
		printf("memory of type %d: %s\n", dv.type, obj.dm.in ? "there" : name_of(errno));
		if (!obj.dm.in)
			continue;
		must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM), "mlx5dv_init_obj");
		*(volatile uint32_t *)((uint8_t *)raw.buf + 64) = 0x12345678;
		must(!ibv_memcpy_from_dm(&read, obj.dm.in, 64, 4), "ibv_memcpy_from_dm");
		printf("length %" PRIu64 ", told %#" PRIx64 ", address there %" PRIu64 ", read %#x\n",
		       raw.length, raw.comp_mask, raw.remote_va, read);
		must(!ibv_free_dm(obj.dm.in), "ibv_free_dm");
	}
}

int main(void)
{
	bed = open_bed();
	completion_queues();
	queue_pairs();
	keys();
	requests();
	memory();
	close_bed(&bed);
	return 0;
}
