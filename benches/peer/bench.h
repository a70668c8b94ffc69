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

/* Ends the program unless it `holds`. */
void must(int holds, const char *what);
/* Lets the device work: a simulated one until it has nothing left to do, another one for a while. */
void settle(const struct bench_machine *machine);

/*
 * `calls` calls in a row; what an operation answers is `good`. It has `i`, which numbers calls of all rounds,
 * `k`, which numbers those of this one, and what the declarations behind it make of `state`.
 */
#define BENCH_CALLS(name, good, operation, ...)                                     \
	static void calls_##name(void *state, uint64_t first, uint32_t calls)       \
	{                                                                           \
		__VA_ARGS__;                                                        \
		int bad = 0;                                                        \
                                                                                    \
		for (uint32_t k = 0; k < calls; k++) {                              \
			uint64_t i = first + k;                                     \
                                                                                    \
			(void)i;                                                    \
			bad |= (operation) ^ (good);                                \
		}                                                                   \
		must(!bad, #name);                                                  \
	}

#endif
