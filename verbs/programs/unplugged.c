/*
 * A device is pulled out. Objects of it are destroyed as before. Then a kernel for which they are not, whose
 * commands all fail with EIO: they cannot be destroyed, unless the program says that it wants no error of that.
 * It is started again by itself with the variable that says so.
 */
#include "bed.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char variable[] = "RDMAV_ALLOW_DISASSOC_DESTROY";

static void report(const char *what, int status)
{
	printf("%s: %s\n", what, name_of(status));
}

/* Whether commands fail, and the device file that they go to. */
static bool gone;
static int commands;

int ioctl(int file, unsigned long request, ...)
{
	int (*next)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	if (gone && file == commands) {
		errno = EIO;
		return -1;
	}
	return next(file, request, argument);
}

ssize_t write(int file, const void *bytes, size_t count)
{
	ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");

	if (gone && file == commands) {
		errno = EIO;
		return -1;
	}
	return next(file, bytes, count);
}

static void destroy_all(bool unplugs)
{
	struct bed bed = open_bed();
	int (*unplug)(void) = dlsym(RTLD_DEFAULT, "mlx5_sim_unplug");
	struct ibv_srq_init_attr srq_attr = { .attr = { DEPTH, 1, 0 } };
	struct ibv_ah_attr path = path_to_self(&bed);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(make_cq(&bed, channel, IBV_WC_STANDARD_FLAGS));
	struct ibv_qp *qp = make_qp(&bed, IBV_QPT_RC, cq, 0);
	struct ibv_qp *datagram = make_qp(&bed, IBV_QPT_UD, cq, operations(IBV_QPT_UD));
	struct ibv_srq *srq = ibv_create_srq(bed.pd, &srq_attr);
	struct ibv_mw *window = ibv_alloc_mw(bed.pd, IBV_MW_TYPE_2);
	struct ibv_xrcd_init_attr domain_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};
	struct ibv_xrcd *domain = ibv_open_xrcd(bed.context, &domain_attr);
	struct ibv_ah *ah = ibv_create_ah(bed.pd, &path);

	must(channel && qp && datagram && srq && window && domain && ah, "objects");
	printf("%s: %s, %s\n", variable, getenv(variable) ? getenv(variable) : "not set",
	       unplugs ? "pulled out" : "commands fail");
	must(!to_init(qp) && !to_rtr(&bed, qp, qp->qp_num) && !to_rts(qp), "connecting");
	commands = bed.context->cmd_fd;
	gone = !unplugs;
	must(!unplugs || (unplug && !unplug()), "unplugging");
	printf("ibv_alloc_pd: %s\n", ibv_alloc_pd(bed.context) ? "made" : name_of(errno));
	if (unplugs) {
		struct ibv_recv_wr wr = {}, *bad;
		struct ibv_wc wc;
		int posted = ibv_post_recv(qp, &wr, &bad), armed = ibv_req_notify_cq(cq, 0);

		/* C's library knows nothing of it; ours says so. */
		printf("posting is taken, or refused with EIO: %d\n", !posted || posted == EIO);
		printf("arming is taken, or refused with EIO: %d\n", !armed || armed == EIO);
		printf("completions: %d\n", ibv_poll_cq(cq, 1, &wc) > 0);
	}
	report("ibv_destroy_ah", ibv_destroy_ah(ah));
	report("ibv_dealloc_mw", ibv_dealloc_mw(window));
	report("ibv_destroy_qp", ibv_destroy_qp(qp));
	report("ibv_destroy_qp of datagrams", ibv_destroy_qp(datagram));
	report("ibv_destroy_srq", ibv_destroy_srq(srq));
	/* What the library refuses itself, since it is in use, the kernel is not asked for. */
	printf("ibv_destroy_cq: %s\n", ibv_destroy_cq(cq) ? "refused" : "0");
	report("ibv_close_xrcd", ibv_close_xrcd(domain));
	report("ibv_dereg_mr", ibv_dereg_mr(bed.mr));
	printf("ibv_dealloc_pd: %s\n", ibv_dealloc_pd(bed.pd) ? "refused" : "0");
	gone = false;
}

int main(int count, char **arguments)
{
	/* The device stays out. */
	destroy_all(false);
	destroy_all(true);
	if (!getenv(variable)) {
		must(count == 1 && !setenv(variable, "1", 1), "setenv");
		execv(arguments[0], arguments);
		must(false, "execv");
	}
	return 0;
}
