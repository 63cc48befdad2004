// SPDX-License-Identifier: GPL-2.0-only
/*
 * A streaming pipeline source -> flatmap -> aggreg -> sink, each operator with some replicas, each
 * replica a thread that is named after it: source0, source1, flatmap0, ... as FastFlow and WindFlow
 * programs are built. Replica n hands its items to all replicas of the next operator in turn.
 *
 * It knows nothing of any scheduler and sets no affinity. Every second it prints one line of JSON:
 * which thread worked on which CPU for how many items.
 */
#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{
using Clock = std::chrono::steady_clock;

constexpr std::array operators = {"source", "flatmap", "aggreg", "sink"};
constexpr size_t max_cpus = 1024;
constexpr size_t max_waiting = 64;

struct Options {
	unsigned replicas = 2;
	unsigned items_per_s = 200; /* of each source */
	unsigned work_us = 50;	    /* CPU time of one item at each operator */
};

/* Items that wait for one replica. A full inbox holds the sender up. */
class Inbox
{
      public:
	void put()
	{
		std::unique_lock lock(mutex);
		changed.wait(lock, [this] { return waiting < max_waiting; });
		waiting++;
		changed.notify_all();
	}

	void take()
	{
		std::unique_lock lock(mutex);
		changed.wait(lock, [this] { return waiting > 0; });
		waiting--;
		changed.notify_all();
	}

      private:
	std::mutex mutex;
	std::condition_variable changed;
	size_t waiting = 0;
};

struct Replica {
	std::string name;
	size_t stage;
	size_t number;
	Inbox inbox;
	std::array<std::atomic<unsigned>, max_cpus> items_on{};
};

void work(Replica &self, unsigned work_us)
{
	timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	const auto us = [&now] { return now.tv_sec * 1'000'000 + now.tv_nsec / 1000; };
	const long end = us() + work_us;

	while (us() < end)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	const int cpu = sched_getcpu();
	if (cpu >= 0 && static_cast<size_t>(cpu) < max_cpus)
		self.items_on[cpu].fetch_add(1, std::memory_order_relaxed);
}

using Replicas = std::vector<std::unique_ptr<Replica>>;

[[noreturn]] void run(Replica &self, Replicas &all, const Options &options)
{
	const auto gap = std::chrono::microseconds(1'000'000 / options.items_per_s);
	const bool is_last = self.stage + 1 == operators.size();
	size_t next = self.number;
	auto due = Clock::now();

	for (;;) {
		if (self.stage == 0)
			std::this_thread::sleep_until(due += gap);
		else
			self.inbox.take();
		work(self, options.work_us);
		if (is_last)
			continue;
		next = (next + 1) % options.replicas;
		all[(self.stage + 1) * options.replicas + next]->inbox.put();
	}
}

void print_second(Replicas &all)
{
	const char *between_threads = "{";

	for (auto &replica : all) {
		const char *between_cpus = "";

		std::printf("%s\"%s\":{", between_threads, replica->name.c_str());
		for (size_t cpu = 0; cpu < max_cpus; cpu++) {
			const unsigned items = replica->items_on[cpu].exchange(0);
			if (!items)
				continue;
			std::printf("%s\"%zu\":%u", between_cpus, cpu, items);
			between_cpus = ",";
		}
		std::printf("}");
		between_threads = ",";
	}
	std::printf("}\n");
	std::fflush(stdout);
}

[[noreturn]] void usage(const char *problem)
{
	std::fprintf(
		stderr,
		"pipeline: %s\nusage: pipeline [--replicas N] [--items-per-s N] [--work-us N]\n"
		"each N is a whole number, 1 to 1000000\n",
		problem);
	std::exit(2);
}

Options parse(int argc, char **argv)
{
	Options options;

	for (int i = 1; i < argc; i += 2) {
		unsigned *value = nullptr;
		char *end = nullptr;

		if (!std::strcmp(argv[i], "--replicas"))
			value = &options.replicas;
		else if (!std::strcmp(argv[i], "--items-per-s"))
			value = &options.items_per_s;
		else if (!std::strcmp(argv[i], "--work-us"))
			value = &options.work_us;
		if (!value || i + 1 == argc)
			usage(argv[i]);
		const long number = std::strtol(argv[i + 1], &end, 10);
		if (*end || number < 1 || number > 1'000'000)
			usage(argv[i + 1]);
		*value = static_cast<unsigned>(number);
	}
	return options;
}
} // namespace

int main(int argc, char **argv)
{
	const Options options = parse(argc, argv);
	Replicas all;

	for (size_t stage = 0; stage < operators.size(); stage++)
		for (size_t number = 0; number < options.replicas; number++) {
			all.push_back(std::make_unique<Replica>());
			all.back()->name = operators[stage] + std::to_string(number);
			all.back()->stage = stage;
			all.back()->number = number;
		}
	for (auto &replica : all) {
		std::thread thread([&all, &options, &self = *replica] { run(self, all, options); });

		pthread_setname_np(thread.native_handle(), replica->name.c_str());
		thread.detach();
	}
	for (;;) {
		sleep(1);
		print_second(all);
	}
}
