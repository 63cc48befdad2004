// SPDX-License-Identifier: GPL-2.0-only
#include "launcher.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.hpp"

std::atomic<bool> Shared::stop{false};

namespace
{
double seconds(const timeval &tv)
{
	return double(tv.tv_sec) + double(tv.tv_usec) / 1e6;
}

CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	check("cuGraphInstantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
	check("cuGraphDestroy", cuGraphDestroy(graph));
	return exec;
}
} // namespace

void Launcher::launch_kernel(uint64_t duration_ns)
{
	unsigned long long duration = duration_ns;
	void *params[] = {&duration};

	if (!measured_.first_launch_ns)
		measured_.first_launch_ns = now_ns();
	if (profile_.call == "cuLaunchKernelEx") {
		CUlaunchConfig config{};

		config.gridDimX = config.gridDimY = config.gridDimZ = 1;
		config.blockDimX = config.blockDimY = config.blockDimZ = 1;
		config.hStream = stream_;
		check("cuLaunchKernelEx", cuLaunchKernelEx(&config, gpu_.busy, params, nullptr));
	} else if (profile_.call == "cuLaunchCooperativeKernel") {
		check("cuLaunchCooperativeKernel",
		      cuLaunchCooperativeKernel(gpu_.busy, 1, 1, 1, 1, 1, 1, 0, stream_, params));
	} else {
		check("cuLaunchKernel",
		      cuLaunchKernel(gpu_.busy, 1, 1, 1, 1, 1, 1, 0, stream_, params, nullptr));
	}
}

void Launcher::launch(bool last)
{
	const bool longer = last && profile_.last_kernel_ns;

	if (graph_)
		check("cuGraphLaunch", cuGraphLaunch(longer ? last_graph_ : graph_, stream_));
	else
		launch_kernel(longer ? profile_.last_kernel_ns : profile_.kernel_ns);
	measured_.launches++;
}

// A graph of kernels_per_graph kernels in a row; a token's last one may end with the longer kernel.
void Launcher::capture_graph()
{
	for (CUgraphExec *exec : {&graph_, &last_graph_}) {
		CUgraph graph;

		check("cuStreamBeginCapture",
		      cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		for (uint64_t i = 1; i < profile_.kernels_per_graph; i++)
			launch_kernel(profile_.kernel_ns);
		launch_kernel(exec == &last_graph_ && profile_.last_kernel_ns
				      ? profile_.last_kernel_ns
				      : profile_.kernel_ns);
		check("cuStreamEndCapture", cuStreamEndCapture(stream_, &graph));
		*exec = instantiate(graph);
	}
}

void Launcher::prepare(unsigned index)
{
	const std::string name = "launch-" + std::to_string(index);

	pthread_setname_np(pthread_self(), name.c_str());
	measured_.tid = gettid();
	check("cuCtxSetCurrent", cuCtxSetCurrent(gpu_.context));
	check("cuStreamCreate", cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
	if (profile_.call == "cuGraphLaunch")
		capture_graph();
}

void Launcher::count_interval(uint64_t interval_ns)
{
	size_t i = 0;

	while (i < interval_le_ns.size() && interval_ns > interval_le_ns[i])
		i++;
	measured_.intervals[i]++;
}

// Launches, waits, then pays the framework's CPU time for a token. Intervals are from launch to
// launch within a token: between tokens lies the wait, which token_us tells.
void Launcher::token()
{
	uint64_t at_ns = now_ns();
	uint64_t previous_ns = 0;

	for (uint64_t i = 0; i < profile_.launches_per_token; i++) {
		at_ns = profile_.launch_gap_ns ? burn(at_ns, profile_.launch_gap_ns) : now_ns();
		if (previous_ns)
			count_interval(at_ns - previous_ns);
		previous_ns = at_ns;
		launch(i + 1 == profile_.launches_per_token);
		if (profile_.launch_gap_ns)
			at_ns = now_ns();
	}
	check("cuStreamSynchronize", cuStreamSynchronize(stream_));
	if (profile_.token_cpu_us)
		burn(now_ns(), profile_.token_cpu_us * 1000);
}

void Launcher::wait_for_go()
{
	ready_ = true;
	shared_.nr_ready.fetch_add(1);
	shared_.nr_ready.notify_all();
	shared_.go.wait(0);
}

void Launcher::measure(uint64_t tokens)
{
	uint64_t start_ns = now_ns();

	while (!Shared::stop && (!tokens || measured_.token_us.size() < tokens)) {
		const uint64_t deadline_ns = shared_.deadline_ns;

		if (deadline_ns && start_ns >= deadline_ns)
			break;
		token();
		const uint64_t end_ns = now_ns();
		measured_.token_us.push_back(uint32_t((end_ns - start_ns) / 1000));
		start_ns = end_ns;
	}
}

// As it did while it measured, for whoever looks at a launching thread now.
void Launcher::go_on()
{
	try {
		while (!shared_.released && !Shared::stop)
			token();
	} catch (const std::exception &error) {
		measured_.failures++;
		measured_.error = error.what();
	}
}

void Launcher::run(unsigned index, uint64_t warmup_tokens, uint64_t tokens)
{
	rusage before{}, after{};

	try {
		measured_.token_us.reserve(tokens ? std::min<uint64_t>(tokens, 1 << 20) : 1 << 16);
		prepare(index);
		for (uint64_t i = 0; i < warmup_tokens && !Shared::stop; i++)
			token();
		measured_.other_launches = measured_.launches;
		measured_.launches = 0;
		measured_.intervals.fill(0);
		wait_for_go();
		getrusage(RUSAGE_THREAD, &before);
		measure(tokens);
	} catch (const std::exception &error) {
		measured_.failures++;
		measured_.error = error.what();
		if (!ready_)
			wait_for_go();
	}
	getrusage(RUSAGE_THREAD, &after);
	measured_.end_ns = now_ns();
	measured_.user_s = seconds(after.ru_utime) - seconds(before.ru_utime);
	measured_.sys_s = seconds(after.ru_stime) - seconds(before.ru_stime);
	measured_.voluntary = after.ru_nvcsw - before.ru_nvcsw;
	measured_.involuntary = after.ru_nivcsw - before.ru_nivcsw;
	const uint64_t launches = measured_.launches;
	const auto intervals = measured_.intervals;
	shared_.nr_measured.fetch_add(1);
	shared_.nr_measured.notify_all();
	if (measured_.error.empty())
		go_on();
	measured_.other_launches += measured_.launches - launches;
	measured_.launches = launches;
	measured_.intervals = intervals;
}
