/* What the benchmark knows of a case that is written in C. src/peer.rs has the same structure. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

/* Requests or completions of a round. A round is a multiple of every case's `operations`. */
#define ROUND 64

/* A function of its own, so that its instructions can be counted. */
#define OPERATION __attribute__((noinline, visibility("default")))
#define EXPORT __attribute__((visibility("default")))

struct bench_case {
	const char *name;
	const char *who;
	const char *function;
	/* Of one call of the function. */
	uint32_t operations;
	/* Whether its state is to be made with extended queues. */
	uint32_t extended;
	void (*prepare)(void *state, uint64_t first, uint32_t calls);
	void (*calls)(void *state, uint64_t first, uint32_t calls);
	void (*finish)(void *state, uint32_t calls);
};

#endif
