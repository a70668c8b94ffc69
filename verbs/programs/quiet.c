/*
 * Polls that find nothing, more than a million in each way to poll: none makes a system call, so that a program
 * which spins disturbs nobody, and may have forbidden itself such calls.
 */
#include "bed.h"

#include <dlfcn.h>
#include <poll.h>

enum { POLLS = 3000000 };

static int commands, waits;

int ioctl(int file, unsigned long request, ...)
{
	int (*next)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	commands++;
	return next(file, request, argument);
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
	int (*next)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");

	waits++;
	return next(files, count, timeout);
}

int main(void)
{
	struct bed bed = open_bed();
	struct ibv_cq_ex *cq = make_cq(&bed, NULL, IBV_WC_STANDARD_FLAGS);
	struct ibv_poll_cq_attr attr = {};
	struct ibv_wc wc[16];
	int found = 0;

	commands = waits = 0;
	for (int i = 0; i < POLLS; i++)
		found += ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, wc);
	printf("of one completion: %d found, %d commands, %d waits\n", found, commands, waits);
	for (int i = 0; i < POLLS; i++)
		found += ibv_poll_cq(ibv_cq_ex_to_cq(cq), 16, wc);
	printf("of several: %d found, %d commands, %d waits\n", found, commands, waits);
	for (int i = 0; i < POLLS; i++)
		found += ibv_start_poll(cq, &attr) != ENOENT;
	printf("in steps: %d found, %d commands, %d waits\n", found, commands, waits);
	must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	close_bed(&bed);
	return 0;
}
