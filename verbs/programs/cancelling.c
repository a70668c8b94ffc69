/*
 * Threads that are cancelled (`pthread_cancel`) while they wait for an event. The wait is over at once, no
 * descriptor is left of it, and an event that was not read goes to who reads next.
 */
#include "bed.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

struct waiter {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	pthread_t thread;
	atomic_int id;
	atomic_bool go;
	int answer, number;
};

/* Waits at the channel, or for an event of the device. */
static void wait_for_event(struct waiter *waiter)
{
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	errno = 0;
	if (waiter->channel)
		waiter->answer = ibv_get_cq_event(waiter->channel, &cq, &context);
	else
		waiter->answer = ibv_get_async_event(waiter->context, &event);
	waiter->number = errno;
	if (waiter->channel && !waiter->answer)
		ibv_ack_cq_events(cq, 1);
}

static void *waits(void *argument)
{
	struct waiter *waiter = argument;

	waiter->id = syscall(SYS_gettid);
	wait_for_event(waiter);
	return NULL;
}

/* As `waits`, but cancelled before it begins. */
static void *waits_late(void *argument)
{
	struct waiter *waiter = argument;
	int before;

	must(!pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before), "pthread_setcancelstate");
	waiter->id = syscall(SYS_gettid);
	while (!waiter->go)
		usleep(100);
	must(!pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before), "pthread_setcancelstate");
	wait_for_event(waiter);
	return NULL;
}

/* Whether a thread sleeps. */
static bool sleeps(int id)
{
	char path[64], text[256], *state;
	ssize_t length;
	int file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	file = open(path, O_RDONLY);
	if (file < 0)
		return false;
	length = read(file, text, sizeof(text) - 1);
	close(file);
	must(length > 0, path);
	text[length] = 0;
	state = strrchr(text, ')');
	return state && state[2] == 'S';
}

/* Begins to wait, and sleeps. */
static void begin(struct waiter *waiter)
{
	waiter->id = 0;
	must(!pthread_create(&waiter->thread, NULL, waits, waiter), "a thread");
	for (int asleep = 0; asleep < 20;) {
		asleep = waiter->id && sleeps(waiter->id) ? asleep + 1 : 0;
		usleep(500);
	}
}

static const char *end(struct waiter *waiter)
{
	void *result;

	must(!pthread_join(waiter->thread, &result), "pthread_join");
	if (result == PTHREAD_CANCELED)
		return "cancelled";
	return waiter->answer ? name_of(waiter->number) : "an event";
}

static const char *cancel(struct waiter *waiter)
{
	must(!pthread_cancel(waiter->thread), "pthread_cancel");
	return end(waiter);
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	must(folder, "/proc/self/fd");
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* A receive that is flushed completes, which is an event of an armed queue. */
static void complete_one(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = {}, *bad;

	must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	must(list && list[0], "a device");
	context = ibv_open_device(list[0]);
	must(context, "ibv_open_device");
	ibv_free_device_list(list);
	return context;
}

/* A device with threads that are cancelled at it, from opening to closing. */
static void visit(bool prints)
{
	struct waiter asynchronous = {}, completions = {};
	struct ibv_context *context = open_device();
	int before = descriptors();

	asynchronous.context = context;
	completions.channel = ibv_create_comp_channel(context);
	must(completions.channel, "ibv_create_comp_channel");
	begin(&asynchronous);
	begin(&completions);
	for (int i = 0; i < 3; i++) {
		const char *first = cancel(&asynchronous), *second = cancel(&completions);

		if (prints)
			printf("for an event of the device: %s; at a channel: %s\n", first, second);
		begin(&asynchronous);
		begin(&completions);
	}
	cancel(&completions);
	if (prints)
		printf("ibv_destroy_comp_channel: %s\n",
		       name_of(ibv_destroy_comp_channel(completions.channel)));
	else
		ibv_destroy_comp_channel(completions.channel);
	if (prints)
		printf("descriptors that the channel left: %d\n", descriptors() - before);
	cancel(&asynchronous);
	must(!ibv_close_device(context), "ibv_close_device");
}

/* An event is told although threads that waited for it were cancelled. */
static void events_stay(void)
{
	struct bed bed = open_bed();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bed.context);
	struct waiter waiter = { .channel = channel };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	must(channel, "ibv_create_comp_channel");
	cq = ibv_create_cq(bed.context, ENTRIES, NULL, channel, 0);
	must(cq, "ibv_create_cq");
	qp = make_qp(&bed, IBV_QPT_RC, cq, 0);
	must(qp && !to_init(qp) && !to_error(qp), "a queue pair");
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	begin(&waiter);
	printf("without an event: %s\n", cancel(&waiter));
	begin(&waiter);
	complete_one(qp);
	printf("with one, after another was cancelled: %s\n", end(&waiter));
	must(poll_one(cq, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR, "a flushed receive");
	/* A thread that was cancelled before it begins to wait leaves the event where it is. */
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	waiter.id = 0;
	must(!pthread_create(&waiter.thread, NULL, waits_late, &waiter), "a thread");
	while (!waiter.id)
		usleep(100);
	must(!pthread_cancel(waiter.thread), "pthread_cancel");
	complete_one(qp);
	waiter.go = true;
	printf("cancelled before it begins: %s\n", end(&waiter));
	wait_for_event(&waiter);
	printf("the event that it left: %s\n", waiter.answer ? name_of(waiter.number) : "an event");
	must(poll_one(cq, &wc) == 1, "a flushed receive");
	printf("ibv_destroy_qp: %s\n", name_of(ibv_destroy_qp(qp)));
	printf("ibv_destroy_cq: %s\n", name_of(ibv_destroy_cq(cq)));
	printf("ibv_destroy_comp_channel: %s\n", name_of(ibv_destroy_comp_channel(channel)));
	close_bed(&bed);
}

int main(void)
{
	int before;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* What the libraries open once is open. */
	visit(false);
	before = descriptors();
	visit(true);
	for (int i = 0; i < 10; i++)
		visit(false);
	printf("descriptors that the devices left: %d\n", descriptors() - before);
	events_stay();
	printf("descriptors that are left: %d\n", descriptors() - before);
	return 0;
}
