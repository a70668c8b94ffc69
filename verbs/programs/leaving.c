/*
 * Threads post and poll; meanwhile the process forks, starts programs, opens and closes libraries, and ends
 * in several ways. Traffic goes on; no descriptor is left to another program; every end has its status.
 * The program starts itself anew with the name of what it shall do.
 */
#include "bed.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 20 };

static struct bed bed;
static atomic_ulong done[THREADS];
static atomic_bool over;
static pthread_t threads[THREADS];

/* Writes and reads back, each thread by its own queue pair. */
static void *traffic(void *number)
{
	struct pair pair = make_pair(&bed, IBV_QPT_RC, 0);
	int at = (intptr_t)number * 64;
	struct ibv_sge sge = { (uintptr_t)bed.from + at, 64, bed.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)bed.to + at, bed.mr->rkey } }, *bad;
	struct ibv_wc wc;

	connect_pair(&bed, &pair);
	while (!over) {
		memset(bed.from + at, ++wr.wr_id, 64);
		must(!ibv_post_send(pair.qp, &wr, &bad), "ibv_post_send");
		poll_one(ibv_cq_ex_to_cq(pair.cq), &wc);
		must(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr.wr_id, "a completion");
		must(!memcmp(bed.from + at, bed.to + at, 64), "the data");
		done[(intptr_t)number]++;
	}
	drop_pair(&pair);
	return NULL;
}

/* Until every thread has moved something more. */
static void goes_on(void)
{
	for (int i = 0; i < THREADS; i++)
		for (unsigned long before = done[i]; done[i] < before + 5;)
			usleep(100);
}

static void start_traffic(void)
{
	bed = open_bed();
	for (intptr_t i = 0; i < THREADS; i++)
		must(!pthread_create(&threads[i], NULL, traffic, (void *)i), "a thread");
	goes_on();
}

static void stop_traffic(void)
{
	over = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close_bed(&bed);
}

static const char *ended(pid_t child)
{
	static char text[64];
	int status;

	must(child > 0 && waitpid(child, &status, 0) == child, "a child");
	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "signal %d", WTERMSIG(status));
	else
		snprintf(text, sizeof(text), "status %d", WEXITSTATUS(status));
	return text;
}

static pid_t start_again(const char *what)
{
	pid_t child = fork();

	if (!child) {
		execl("/proc/self/exe", "leaving", what, NULL);
		_exit(9);
	}
	return child;
}

/* The descriptors of the device, and of event files, that this program has from who started it. */
static int inherited(void)
{
	DIR *folder = opendir("/proc/self/fd");
	char path[300], target[300];
	struct dirent *entry;
	int count = 0;

	must(folder, "/proc/self/fd");
	while ((entry = readdir(folder))) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		length = readlink(path, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = 0;
		count += strstr(target, "uverbs") || strstr(target, "infinibandevent") ||
			 strstr(target, "eventfd") || strstr(target, "eventpoll");
	}
	closedir(folder);
	return count;
}

static void forks(void)
{
	start_traffic();
	for (int i = 0; i < ROUNDS; i++) {
		pid_t child = fork();

		if (!child)
			_exit(i % 7);
		if (i == 0 || i == ROUNDS - 1)
			printf("a child in traffic: %s\n", ended(child));
		else
			ended(child);
		goes_on();
	}
	printf("a program started in traffic: %s\n", ended(start_again("look")));
	goes_on();
	/* A child that opens the device for itself. */
	printf("a program that uses the device: %s\n", ended(start_again("exit")));
	goes_on();
	for (int i = 0; i < ROUNDS; i++) {
		void *first = dlopen("libmlx5.so.1", RTLD_NOW), *second = dlopen("libibverbs.so.1", RTLD_LAZY);

		must(first && second && !dlclose(first) && !dlclose(second), "dlopen");
	}
	goes_on();
	stop_traffic();
	printf("traffic went on\n");
}

/* Of what runs when the process ends. */
static void at_exit(void)
{
	struct ibv_cq *cq = ibv_create_cq(bed.context, 4, NULL, NULL, 0);

	printf("at the end: a queue %s, %s\n", cq ? "made" : name_of(errno),
	       cq ? name_of(ibv_destroy_cq(cq)) : "");
}

static void *leaves(void *unused)
{
	(void)unused;
	exit(3);
}

int main(int argc, char **argv)
{
	static const char *const ways[] = { "exit", "_exit", "return", "thread", "abort", "at_exit" };
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t thread;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!*what) {
		forks();
		for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
			printf("%s in traffic: %s\n", ways[i], ended(start_again(ways[i])));
		return 0;
	}
	if (!strcmp(what, "look"))
		return inherited();
	if (!strcmp(what, "at_exit"))
		atexit(at_exit);
	start_traffic();
	if (!strcmp(what, "return"))
		return 4;
	if (!strcmp(what, "_exit"))
		_exit(2);
	if (!strcmp(what, "abort"))
		abort();
	if (!strcmp(what, "thread")) {
		must(!pthread_create(&thread, NULL, leaves, NULL), "a thread");
		pthread_join(thread, NULL);
	}
	exit(1);
}
