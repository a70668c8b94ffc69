/*
 * UCX's own data path: the transport rc_mlx5, through UCT. It takes queues over from libmlx5 and
 * drives them by itself. It posts to endpoints, and polls by progress.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct/api/uct.h>

#include "bench.h"

enum {
	MEMORY = 1 << 16,
	PIECE = 64,
	LENGTH = 8,
	ID = 1,
};

#define TRANSPORT "rc_mlx5"

/* A request with a completion callback. */
struct request {
	uct_completion_t completion;
	struct ends *ends;
	uint64_t wr_id;
};

/* A connected pair of endpoints. */
struct ends {
	const struct bench_machine *machine;
	uct_worker_h worker;
	uct_md_h md;
	uct_component_h component;
	uct_iface_h iface, peer_iface;
	uct_ep_h ep, peer;
	uct_mem_h memory;
	uct_rkey_t rkey;
	uint64_t remotes[ROUND];
	uct_iov_t pieces[ROUND];
	struct request requests[ROUND];
	uint64_t results[ROUND];
	uint8_t bytes[PIECE];
	unsigned length;
	uint32_t completed, received;
	uint64_t sum;
};

static void good(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "ucx: %s: %s\n", what, ucs_status_string(status));
		abort();
	}
}

/* A request succeeds at once, or its callback is called when it completes. */
static inline int accepted(ucs_status_t status)
{
	return status == UCS_OK || status == UCS_INPROGRESS;
}

OPERATION int ucx_put_short(uct_ep_h ep, uint64_t remote, uct_rkey_t rkey, const void *bytes,
			    unsigned length)
{
	return accepted(uct_ep_put_short(ep, bytes, length, remote, rkey));
}

static size_t pack(void *to, void *from)
{
	memcpy(to, from, LENGTH);
	return LENGTH;
}

OPERATION int ucx_put_bcopy(uct_ep_h ep, uint64_t remote, uct_rkey_t rkey, void *bytes)
{
	return uct_ep_put_bcopy(ep, pack, bytes, remote, rkey) == LENGTH;
}

OPERATION int ucx_put_zcopy(uct_ep_h ep, uint64_t remote, uct_rkey_t rkey, const uct_iov_t *piece,
			    uct_completion_t *completion)
{
	return accepted(uct_ep_put_zcopy(ep, piece, 1, remote, rkey, completion));
}

OPERATION int ucx_am_short(uct_ep_h ep, uint64_t header)
{
	return accepted(uct_ep_am_short(ep, ID, header, NULL, 0));
}

OPERATION int ucx_am_zcopy(uct_ep_h ep, const uct_iov_t *piece, uct_completion_t *completion)
{
	return accepted(uct_ep_am_zcopy(ep, ID, NULL, 0, piece, 1, 0, completion));
}

OPERATION int ucx_fetch_add(uct_ep_h ep, uint64_t remote, uct_rkey_t rkey, uint64_t add,
			    uint64_t *result, uct_completion_t *completion)
{
	return accepted(uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, add, result, remote, rkey,
					      completion));
}

OPERATION int ucx_progress_one(uct_iface_h iface)
{
	return uct_iface_progress(iface);
}

OPERATION int ucx_progress_empty(uct_iface_h iface)
{
	return uct_iface_progress(iface);
}

/* Fields of a completion that are read. */
static void completed(uct_completion_t *completion)
{
	struct request *request = (void *)completion;

	if (completion->status == UCS_OK)
		request->ends->sum += request->wr_id;
	request->ends->completed++;
}

static ucs_status_t received(void *arg, void *data, size_t length, unsigned flags)
{
	struct ends *e = arg;

	(void)data, (void)flags;
	e->sum += length;
	e->received++;
	return UCS_OK;
}

/* Work before and after the operations. */

static void prepare_requests(struct ends *e, uint64_t first)
{
	e->completed = 0;
	for (int k = 0; k < ROUND; k++) {
		struct request *request = &e->requests[k];

		request->completion.func = completed;
		request->completion.count = 1;
		request->completion.status = UCS_OK;
		request->ends = e;
		request->wr_id = first + k;
	}
}

static void prepare(void *state, uint64_t first, uint32_t calls)
{
	(void)calls;
	prepare_requests(state, first);
}

static void prepare_completions(void *state, uint64_t first, uint32_t calls)
{
	struct ends *e = state;

	prepare_requests(e, first);
	for (uint32_t k = 0; k < calls; k++)
		must(ucx_put_zcopy(e->ep, e->remotes[k], e->rkey, &e->pieces[k],
				   &e->requests[k].completion), "put_zcopy");
	settle(e->machine);
}

/* Lets the device complete the posted requests, and polls them. */
static void finish(void *state, uint32_t calls)
{
	struct ends *e = state;
	unsigned count = 0, progress;

	do {
		settle(e->machine);
		progress = uct_iface_progress(e->peer_iface);
		progress += uct_iface_progress(e->iface);
		count += progress;
	} while (progress);
	must(count >= calls, "completions");
}

static void finish_requests(void *state, uint32_t calls)
{
	struct ends *e = state;

	finish(e, calls);
	must(e->completed == calls, "requests that reported their completion");
}

static void arrived(void *state, uint32_t calls)
{
	struct ends *e = state;

	finish(e, calls);
	must(e->received == calls, "messages");
	e->received = 0;
}

static void polled(void *state, uint32_t calls)
{
	struct ends *e = state;

	must(e->completed == calls, "all polled");
}

static void nothing_polled(void *state, uint32_t calls)
{
	struct ends *e = state;

	(void)calls;
	must(e->completed == 0, "nothing to poll");
}

#define CALLS(name, good, operation) \
	BENCH_CALLS(name, good, operation, struct ends *e = state)

CALLS(put_short, 1, ucx_put_short(e->ep, e->remotes[k], e->rkey, e->bytes, e->length))
CALLS(put_bcopy, 1, ucx_put_bcopy(e->ep, e->remotes[k], e->rkey, e->bytes))
CALLS(put_zcopy, 1,
      ucx_put_zcopy(e->ep, e->remotes[k], e->rkey, &e->pieces[k], &e->requests[k].completion))
CALLS(am_short, 1, ucx_am_short(e->ep, i))
CALLS(am_zcopy, 1, ucx_am_zcopy(e->ep, &e->pieces[k], &e->requests[k].completion))
CALLS(fetch_add, 1,
      ucx_fetch_add(e->ep, e->remotes[k], e->rkey, i, &e->results[k], &e->requests[k].completion))
CALLS(progress_one, 1, ucx_progress_one(e->iface))
CALLS(progress_empty, 0, ucx_progress_empty(e->iface))

/* Opens the memory domain of a device. */
static void open_domain(struct ends *e, const char *device)
{
	uct_component_h *components;
	unsigned count;

	good(uct_query_components(&components, &count), "uct_query_components");
	for (unsigned i = 0; i < count && !e->md; i++) {
		uct_component_attr_t attr = { .field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT };
		uct_md_config_t *config;

		good(uct_component_query(components[i], &attr), "uct_component_query");
		uct_md_resource_desc_t domains[attr.md_resource_count + 1];

		attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
		attr.md_resources = domains;
		good(uct_component_query(components[i], &attr), "uct_component_query");
		for (unsigned k = 0; k < attr.md_resource_count && !e->md; k++) {
			if (strcmp(domains[k].md_name, device))
				continue;
			good(uct_md_config_read(components[i], NULL, NULL, &config), "uct_md_config_read");
			good(uct_md_open(components[i], device, config, &e->md), "uct_md_open");
			uct_config_release(config);
			e->component = components[i];
		}
	}
	uct_release_component_list(components);
	must(e->md != NULL, "a memory domain of the device");
}

/* Every request is signaled, as with the others, and none waits for credits of the peer. */
static uct_iface_h open_interface(const struct ends *e, const char *device)
{
	char name[UCT_DEVICE_NAME_MAX];
	uct_iface_params_t params = {
		.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
		.open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
		.mode.device = { TRANSPORT, name },
	};
	uct_iface_config_t *config;
	uct_iface_h iface;

	snprintf(name, sizeof name, "%s:1", device);
	good(uct_md_iface_config_read(e->md, TRANSPORT, NULL, NULL, &config),
	     "uct_md_iface_config_read");
	good(uct_config_modify(config, "RC_TX_CQ_MODERATION", "0"), "TX_CQ_MODERATION");
	good(uct_config_modify(config, "RC_FC_ENABLE", "n"), "FC_ENABLE");
	good(uct_iface_open(e->md, e->worker, &params, config, &iface), "uct_iface_open");
	uct_config_release(config);
	uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
	return iface;
}

static uct_ep_h create_endpoint(uct_iface_h iface)
{
	uct_ep_params_t params = { .field_mask = UCT_EP_PARAM_FIELD_IFACE, .iface = iface };
	uct_ep_h ep;

	good(uct_ep_create(&params, &ep), "uct_ep_create");
	return ep;
}

static void connect_endpoint(uct_ep_h ep, uct_iface_h iface, uct_ep_h to)
{
	uct_iface_attr_t attr;

	good(uct_iface_query(iface, &attr), "uct_iface_query");
	uint8_t device[attr.device_addr_len], address[attr.ep_addr_len];

	good(uct_iface_get_device_address(iface, (void *)device), "uct_iface_get_device_address");
	good(uct_ep_get_address(to, (void *)address), "uct_ep_get_address");
	good(uct_ep_connect_to_ep(ep, (void *)device, (void *)address), "uct_ep_connect_to_ep");
}

static void register_memory(struct ends *e)
{
	void *memory = aligned_alloc(4096, MEMORY);
	uct_md_attr_t attr;
	uct_rkey_bundle_t bundle;

	must(memory != NULL, "memory");
	memset(memory, 0, MEMORY);
	good(uct_md_mem_reg(e->md, memory, MEMORY, UCT_MD_MEM_ACCESS_ALL, &e->memory),
	     "uct_md_mem_reg");
	good(uct_md_query(e->md, &attr), "uct_md_query");
	uint8_t packed[attr.rkey_packed_size];

	good(uct_md_mkey_pack(e->md, e->memory, packed), "uct_md_mkey_pack");
	good(uct_rkey_unpack(e->component, packed, &bundle), "uct_rkey_unpack");
	e->rkey = bundle.rkey;
	for (int i = 0; i < ROUND; i++) {
		uint8_t *piece = (uint8_t *)memory + i * PIECE;

		e->remotes[i] = (uintptr_t)piece;
		e->pieces[i] = (uct_iov_t){ piece, PIECE, e->memory, 0, 1 };
	}
}

static void *open_ends(const struct bench_machine *machine, int single_threaded)
{
	struct ends *e = calloc(1, sizeof *e);
	ucs_async_context_t *async;

	(void)single_threaded;
	must(e != NULL, "memory");
	e->machine = machine;
	e->length = LENGTH;
	good(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async), "ucs_async_context_create");
	good(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &e->worker), "uct_worker_create");
	open_domain(e, machine->device);
	e->iface = open_interface(e, machine->device);
	e->peer_iface = open_interface(e, machine->device);
	good(uct_iface_set_am_handler(e->peer_iface, ID, received, e, 0),
	     "uct_iface_set_am_handler");
	e->ep = create_endpoint(e->iface);
	e->peer = create_endpoint(e->peer_iface);
	connect_endpoint(e->ep, e->peer_iface, e->peer);
	connect_endpoint(e->peer, e->iface, e->ep);
	register_memory(e);
	return e;
}

#define CASE(name, operation, prepare, finish) \
	{ name, "ucx", "ucx_" #operation, ROUND, 1, open_ends, prepare, calls_##operation, finish, 0 }

static bench_cases ucx_cases = {
	CASE("post_inline8", put_short, prepare, finish),
	CASE("post_sge", put_zcopy, prepare, finish_requests),
	CASE("post_send", am_zcopy, prepare, arrived),
	CASE("post_fetch_add", fetch_add, prepare, finish_requests),
	CASE("put_bcopy8", put_bcopy, prepare, finish),
	CASE("am_short8", am_short, prepare, arrived),
	CASE("poll1", progress_one, prepare_completions, polled),
	CASE("empty_poll", progress_empty, prepare, nothing_polled),
	{},
};

EXPORT const struct bench_case *const bench_tables[] = { ucx_cases, NULL };
