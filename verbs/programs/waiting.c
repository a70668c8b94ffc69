/*
 * Threads that wait for an event, while another thread destroys what they wait at: the channel, or the
 * device. As for any descriptor that is closed under a read, nothing that was destroyed is used after.
 */
#include "bed.h"

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
	atomic_bool over;
	int answer, number;
};

static void *waits(void *argument)
{
	struct waiter *waiter = argument;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	waiter->id = syscall(SYS_gettid);
	errno = 0;
	if (waiter->channel)
		waiter->answer = ibv_get_cq_event(waiter->channel, &cq, &context);
	else
		waiter->answer = ibv_get_async_event(waiter->context, &event);
	waiter->number = errno;
	waiter->over = true;
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

/* Until the thread has been asleep for a while, or is over. */
static void settle(struct waiter *waiter)
{
	for (int asleep = 0; asleep < 200 && !waiter->over;) {
		asleep = waiter->id && sleeps(waiter->id) ? asleep + 1 : 0;
		usleep(500);
	}
}

static void start_waiting(struct waiter *waiter)
{
	must(!pthread_create(&waiter->thread, NULL, waits, waiter), "a thread");
	settle(waiter);
	must(!waiter->over, "a thread that waits");
}

static void report(const char *what, struct waiter *waiter)
{
	settle(waiter);
	if (waiter->over)
		printf("%s: %d, %s\n", what, waiter->answer, name_of(waiter->number));
	else
		printf("%s: waits\n", what);
}

int main(void)
{
	/* Threads that wait for ever go on when this function is over. */
	static struct waiter asynchronous, completions, early;
	struct bed bed = open_bed();

	asynchronous.context = bed.context;
	completions.channel = ibv_create_comp_channel(bed.context);
	early.channel = ibv_create_comp_channel(bed.context);
	must(completions.channel && early.channel, "ibv_create_comp_channel");
	start_waiting(&asynchronous);
	start_waiting(&completions);
	start_waiting(&early);
	printf("ibv_destroy_comp_channel: %s\n", name_of(ibv_destroy_comp_channel(early.channel)));
	spoil();
	report("at a channel that was destroyed", &early);
	close_bed(&bed);
	spoil();
	report("asynchronous events of a device that was closed", &asynchronous);
	report("the channel of a device that was closed", &completions);
	report("at a channel that was destroyed before", &early);
	/* Life goes on beside them. */
	bed = open_bed();
	spoil();
	close_bed(&bed);
	report("asynchronous events", &asynchronous);
	return 0;
}
