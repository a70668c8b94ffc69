/* Every table of cases. */
#include <stddef.h>

#include "bench.h"

extern bench_cases post_cases, poll_cases, receive_cases, mkey_cases, cancel_cases;
extern bench_cases control_cases, floor_cases;

EXPORT const struct bench_case *const bench_tables[] = {
	post_cases,   poll_cases,    receive_cases, mkey_cases,
	cancel_cases, control_cases, floor_cases,   NULL,
};
