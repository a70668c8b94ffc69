/*
 * What the programs have in common that drive rdma-core's provider. Each names itself in PROGRAM, and
 * looks at calls to the kernel in its own `ioctl`, which passes them on with `next_ioctl`.
 */
#ifndef PEER_H
#define PEER_H

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* The driver's part of a call to the kernel, and objects that are created. */
	DRIVER_IN = 0x1000,
	OBJECT_QP = 4,
	OBJECT_SRQ = 5,
};

static void fail(const char *what)
{
	fprintf(stderr, PROGRAM ": %s: %s\n", what, strerror(errno));
	exit(1);
}

#define CHECK(what, condition)                                                                    \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail(what);                                                                \
	} while (0)

/* libc's, or that of a simulated device. */
static int next_ioctl(int fd, unsigned long request, void *argument)
{
	static int (*next)(int, unsigned long, void *);

	if (!next)
		next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	return next(fd, request, argument);
}

/* What the driver says in a call that creates such an object; NULL, of any other call. */
static const void *creation(uint16_t object, unsigned long request, const void *argument)
{
	const struct ib_uverbs_ioctl_hdr *header = argument;

	if (request != RDMA_VERBS_IOCTL || header->object_id != object || header->method_id)
		return NULL;
	for (int i = 0; i < header->num_attrs; i++)
		if (header->attrs[i].attr_id == DRIVER_IN)
			return (const void *)(uintptr_t)header->attrs[i].data;
	return NULL;
}

#endif
