// SPDX-License-Identifier: GPL-2.0-only
// One launching thread: its stream, its tokens, and what it measured.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "driver.hpp"
#include "profile.hpp"

// Upper bounds of the launch intervals' histogram, in ns.
inline constexpr std::array<uint64_t, 26> interval_le_ns = {
	500,	 1000,	  1500,	   2000,     2500,     3000,	 4000,	    5000,      7500,
	10000,	 15000,	  20000,   25000,    30000,    50000,	 100000,    200000,    500000,
	1000000, 2000000, 5000000, 10000000, 20000000, 50000000, 100000000, 1000000000};

struct Measured {
	int tid = 0;
	int gpu = 0;
	uint64_t first_launch_ns = 0; // of the whole run, warm-up included
	uint64_t end_ns = 0;
	uint64_t launches = 0;
	uint64_t other_launches = 0; // before and after the measured part
	uint64_t failures = 0;
	std::vector<uint32_t> token_us;
	std::array<uint64_t, interval_le_ns.size() + 1> intervals{};
	double user_s = 0;
	double sys_s = 0;
	long voluntary = 0;
	long involuntary = 0;
	std::string error; // of the driver call that ended the thread
};

// What the main thread and the launching threads agree on.
struct Shared {
	std::atomic<uint64_t> nr_ready{0};
	std::atomic<uint32_t> go{0};
	std::atomic<uint64_t> deadline_ns{0}; // 0: by tokens
	std::atomic<uint64_t> nr_measured{0};
	std::atomic<bool> released{true}; // false: threads go on launching when they have measured
	static std::atomic<bool> stop;
};

class Launcher
{
      public:
	Launcher(const Gpu &gpu, const Profile &profile, Shared &shared)
	    : gpu_(gpu), profile_(profile), shared_(shared)
	{
		measured_.gpu = gpu.ordinal;
	}

	// The thread's body; never throws. tokens 0: until the deadline.
	void run(unsigned index, uint64_t warmup_tokens, uint64_t tokens);

	const Measured &measured() const
	{
		return measured_;
	}

      private:
	void prepare(unsigned index);
	void capture_graph();
	void wait_for_go();
	void token();
	void measure(uint64_t tokens);
	void go_on();
	void launch_kernel(uint64_t duration_ns);
	void launch(bool last);
	void count_interval(uint64_t interval_ns);

	const Gpu &gpu_;
	const Profile &profile_;
	Shared &shared_;
	CUstream stream_ = nullptr;
	CUgraphExec graph_ = nullptr;
	CUgraphExec last_graph_ = nullptr;
	bool ready_ = false;
	Measured measured_;
};
