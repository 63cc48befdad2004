// SPDX-License-Identifier: GPL-2.0-only
// gpu_launch: starts the threads, tells when the measured part begins, prints the JSON.
//
// The main thread loads the kernel and never launches it, so that whoever looks for launching
// threads must find the threads, not the process.

#include <csignal>
#include <cstdio>
#include <memory>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "clock.hpp"
#include "driver.hpp"
#include "launcher.hpp"
#include "options.hpp"
#include "report.hpp"

namespace
{
void stop(int)
{
	Shared::stop = true;
}

void install_signals()
{
	struct sigaction action{};

	action.sa_handler = stop;
	sigaction(SIGINT, &action, nullptr);
	sigaction(SIGTERM, &action, nullptr);
}

void wait_for_eof()
{
	char byte;

	while (!Shared::stop && read(STDIN_FILENO, &byte, 1) > 0)
		;
}

void idle(unsigned index, const std::atomic<bool> &done)
{
	const std::string name = "idle-" + std::to_string(index);
	const timespec period = {0, 10'000'000};

	pthread_setname_np(pthread_self(), name.c_str());
	while (!done)
		nanosleep(&period, nullptr);
}

// Lets every thread end, also when starting one of them failed and the others wait for the start.
struct Release {
	Shared &shared;
	std::atomic<bool> &idlers_done;

	~Release()
	{
		Shared::stop = true;
		shared.released = true;
		shared.go = 1;
		shared.go.notify_all();
		idlers_done = true;
	}
};

int run(const Options &options)
{
	const Driver driver(options.gpus, options.profile.sync);
	const uint64_t nr_threads = options.threads ? options.threads : driver.gpus.size();
	std::vector<std::unique_ptr<Launcher>> launchers;
	std::vector<const Measured *> measured;
	std::atomic<bool> done{false};
	Shared shared;
	std::vector<std::jthread> threads, idlers;
	const Release release{shared, done};
	int status = 0;

	install_signals();
	for (unsigned i = 0; i < options.idle_threads; i++)
		idlers.emplace_back([i, &done] { idle(i, done); });
	for (unsigned i = 0; i < nr_threads; i++) {
		const Gpu &gpu = driver.gpus[i % driver.gpus.size()];
		Launcher &launcher = *launchers.emplace_back(
			std::make_unique<Launcher>(gpu, options.profile, shared));

		measured.push_back(&launcher.measured());
		threads.emplace_back([i, &launcher, &options] {
			launcher.run(i, options.warmup_tokens, options.tokens);
		});
	}
	for (uint64_t ready; (ready = shared.nr_ready) < nr_threads;)
		shared.nr_ready.wait(ready);

	std::fprintf(stderr, "gpu_launch: measuring\n");
	const uint64_t start_ns = now_ns();
	if (options.duration_ns)
		shared.deadline_ns = start_ns + options.duration_ns;
	shared.released = !options.until_eof;
	shared.go = 1;
	shared.go.notify_all();
	for (uint64_t measured_now; (measured_now = shared.nr_measured) < nr_threads;)
		shared.nr_measured.wait(measured_now);
	std::fprintf(stderr, "gpu_launch: measured\n");
	if (options.until_eof)
		wait_for_eof();
	shared.released = true;
	threads.clear();
	done = true;
	idlers.clear();

	std::fputs(report_json(options, driver, measured, start_ns).c_str(), stdout);
	for (const Measured *thread : measured) {
		if (thread->error.empty())
			continue;
		std::fprintf(stderr, "gpu_launch: thread %d: %s\n", thread->tid,
			     thread->error.c_str());
		status = 1;
	}
	return std::fflush(stdout) ? 1 : status;
}
} // namespace

int main(int argc, char **argv)
{
	try {
		const Options options = parse_options(argc, argv);

		if (options.help) {
			std::fputs(usage_text, stdout);
			return 0;
		}
		return run(options);
	} catch (const UsageError &error) {
		std::fprintf(stderr, "gpu_launch: %s\n", error.what());
		return 2;
	} catch (const std::system_error &error) {
		std::fprintf(stderr, "gpu_launch: cannot start a thread: %s\n", error.what());
		return 1;
	} catch (const std::exception &error) {
		std::fprintf(stderr, "gpu_launch: %s\n", error.what());
		return 1;
	}
}
