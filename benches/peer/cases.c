/* All tables of cases. */
#include <stddef.h>

#include "peer.h"

extern bench_cases post_cases, depth_cases, poll_cases, receive_cases, mkey_cases, cancel_cases;
extern bench_cases control_cases, ethernet_cases, floor_cases, floor_ethernet_cases;
extern bench_cases floor_strides_cases, floor_keys_cases, floor_compressed_cases;
extern bench_cases by_hand_cases;

EXPORT const struct bench_case *const bench_tables[] = {
	post_cases,
	depth_cases,
	poll_cases,
	receive_cases,
	mkey_cases,
	cancel_cases,
	control_cases,
/*
 * Our library has no raw packet queue pairs. Cases that do not depend on the library are in one
 * peer only.
 */
#ifndef OVER_OURS
	ethernet_cases,
	floor_cases,
	floor_ethernet_cases,
	floor_strides_cases,
	floor_keys_cases,
	floor_compressed_cases,
	by_hand_cases,
#endif
	NULL,
};
