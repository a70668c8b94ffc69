/*
 * A service that opens the device, becomes a daemon, and makes what it needs in the child. The process that
 * opened the device ends once the child works, as one does that tells who started it that the service is up.
 *
 * The simulated kernel lets a child have the device, but not the event files of its parent, which C's library
 * names when it creates a queue: it fails there.
 */
#include "bed.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void rights(struct bed *bed)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	bed->pd = ibv_alloc_pd(bed->context);
	printf("domain: %s\n", bed->pd ? "made" : name_of(errno));
	must(bed->pd, "ibv_alloc_pd");
	bed->from = aligned_alloc(4096, 2 * HALF);
	must(bed->from, "memory");
	memset(bed->from, 7, 2 * HALF);
	bed->to = bed->from + HALF;
	memset(bed->to, 0, HALF);
	bed->mr = ibv_reg_mr(bed->pd, bed->from, 2 * HALF, access);
	printf("region: %s\n", bed->mr ? "made" : name_of(errno));
	must(bed->mr, "ibv_reg_mr");
}

static void traffic(struct bed *bed)
{
	struct pair pair = make_pair(bed, IBV_QPT_RC, 0);
	struct ibv_sge sge = { (uintptr_t)bed->from, 64, bed->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	connect_pair(bed, &pair);
	must(!post_receive(bed, &pair, 9), "a receive");
	must(!ibv_post_send(pair.qp, &wr, &bad), "ibv_post_send");
	poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
	printf("sent: %" PRIu64 ", status %d\n", wc.wr_id, wc.status);
	poll_one(ibv_cq_ex_to_cq(pair.peer_cq), &wc);
	printf("received: %" PRIu64 ", %u bytes, the same %d\n", wc.wr_id, wc.byte_len,
	       !memcmp(bed->from, bed->to, 64));
	drop_pair(&pair);
}

/* What a thread that waits for events needs. */
static void events(struct bed *bed)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed->context);
	struct ibv_cq *cq;

	must(channel, "ibv_create_comp_channel");
	cq = ibv_create_cq(bed->context, 4, NULL, channel, 0);
	printf("queue with a channel: %s\n", cq ? "made" : name_of(errno));
	must(cq, "ibv_create_cq");
	printf("armed: %s\n", name_of(ibv_req_notify_cq(cq, 0)));
	printf("destroyed: %s", name_of(ibv_destroy_cq(cq)));
	printf(" %s\n", name_of(ibv_destroy_comp_channel(channel)));
}

/* As daemon(), but the parent ends only when the child closes the file that is returned. */
static int become_daemon(void)
{
	int up[2];
	char byte;

	must(!pipe(up), "pipe");
	switch (fork()) {
	case -1:
		must(false, "fork");
		break;
	case 0:
		close(up[0]);
		must(setsid() > 0, "setsid");
		return up[1];
	}
	close(up[1]);
	_exit(read(up[0], &byte, 1) != 0);
}

static int serve(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;
	struct bed bed = {};
	pid_t parent = getpid();
	int up;

	must(list && list[0], "a device");
	bed.context = ibv_open_device(list[0]);
	must(bed.context, "ibv_open_device");
	ibv_free_device_list(list);
	up = become_daemon();
	printf("asked: %s\n", name_of(ibv_query_device(bed.context, &attr)));
	must(!ibv_query_port(bed.context, 1, &bed.port), "ibv_query_port");
	must(!ibv_query_gid(bed.context, 1, 0, &bed.gid), "ibv_query_gid");
	rights(&bed);
	close(up);
	/* Until the parent has ended. */
	while (getppid() == parent)
		usleep(100);
	events(&bed);
	for (int i = 0; i < 2; i++)
		traffic(&bed);
	printf("region: %s\n", name_of(ibv_dereg_mr(bed.mr)));
	printf("domain: %s\n", name_of(ibv_dealloc_pd(bed.pd)));
	printf("closed: %s\n", name_of(ibv_close_device(bed.context)));
	free(bed.from);
	return 0;
}

int main(void)
{
	int status, left = 0;
	pid_t child;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* The daemon is this process's child when its parent ends. */
	must(!prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl");
	child = fork();
	must(child >= 0, "fork");
	if (!child)
		return serve();
	while (wait(&status) > 0)
		left |= status;
	printf("both ended with %d\n", left);
	return 0;
}
