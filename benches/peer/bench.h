/* What the benchmark knows of a case that is written in C. src/peer.rs has the same structures. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

/* Requests or completions of most rounds. */
#define ROUND 64

/* A function of its own, so that its instructions can be counted. */
#define OPERATION __attribute__((noinline, visibility("default")))
#define EXPORT __attribute__((visibility("default")))

/* Where a device comes from, and how it is made to work if it only does so when told to. */
struct bench_machine {
	const char *device;
	uint64_t (*settle)(void);
	int (*drain)(uint32_t qpn);
};

struct bench_case {
	const char *name;
	const char *who;
	const char *function;
	/* Calls of a round, and operations of a call. */
	uint32_t calls, operations;
	/* Makes the state; cases with the same one share it. */
	void *(*open)(const struct bench_machine *machine, int single_threaded);
	void (*prepare)(void *state, uint64_t first, uint32_t calls);
	void (*call)(void *state, uint64_t first, uint32_t calls);
	void (*finish)(void *state, uint32_t calls);
};

/* A table of cases; the last has no name. */
typedef const struct bench_case bench_cases[];

#endif
