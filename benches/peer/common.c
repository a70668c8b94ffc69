/* Code that all peers in C use before and after the measured operations. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

void must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
		abort();
	}
}

void settle(const struct bench_machine *machine)
{
	struct timespec start, now;

	if (machine->settle) {
		machine->settle();
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - start.tv_sec) * 1000000000LL + (now.tv_nsec - start.tv_nsec) < 200000);
}
