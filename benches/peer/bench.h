/* The benchmark's view of a case in C. src/peer.rs has the same structures. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>

/* Requests or completions in most rounds. */
#define ROUND 64

/* An exported function that is not inlined, so that its instructions can be counted. */
#define OPERATION __attribute__((noinline, visibility("default")))
#define EXPORT __attribute__((visibility("default")))

/* The device, and the function that makes it work if it stands still otherwise. */
struct bench_machine {
	const char *device;
	uint64_t (*settle)(void);
	int (*drain)(uint32_t qpn);
};

struct bench_case {
	const char *name;
	const char *who;
	const char *function;
	/* Calls in a round, and operations in a call. */
	uint32_t calls, operations;
	/* Creates the state; cases with the same function share one. */
	void *(*open)(const struct bench_machine *machine, int single_threaded);
	void (*prepare)(void *state, uint64_t first, uint32_t calls);
	void (*call)(void *state, uint64_t first, uint32_t calls);
	void (*finish)(void *state, uint32_t calls);
	/* In place of `call`: alternates calls with work that is not timed, and returns the
	 * nanoseconds of the calls. */
	uint64_t (*timed)(void *state, uint64_t first, uint32_t calls);
};

/* A table of cases; the last one has no name. */
typedef const struct bench_case bench_cases[];

/* Ends the program unless `holds` is true. */
void must(int holds, const char *what);
/* Lets the device work: a simulated one until it is idle, another one for a fixed time. */
void settle(const struct bench_machine *machine);

/*
 * Makes `calls` calls in a row; an operation must return `good`. It uses `i`, the number of the
 * call in all rounds, `k`, its number in this round, and the declarations that follow, which are
 * made from `state`.
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
