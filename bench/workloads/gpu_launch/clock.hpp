// SPDX-License-Identifier: GPL-2.0-only
// Monotonic time and CPU time that is really burnt.
#pragma once

#include <cstdint>
#include <ctime>

inline uint64_t now_ns()
{
	timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return uint64_t(ts.tv_sec) * 1'000'000'000 + uint64_t(ts.tv_nsec);
}

// Burns cost_ns of wall-clock time from start_ns on; returns the last time it read. In pieces, each
// begun anew: a thread preempted for 3 ms must not find its whole cost paid by the waiting.
inline uint64_t burn(uint64_t start_ns, uint64_t cost_ns)
{
	constexpr uint64_t piece_ns = 20'000;

	while (cost_ns) {
		const uint64_t piece = cost_ns < piece_ns ? cost_ns : piece_ns;
		const uint64_t deadline_ns = start_ns + piece;

		do {
			start_ns = now_ns();
		} while (start_ns < deadline_ns);
		// A small overshoot is time paid, a large one is preemption and is not.
		const uint64_t over_ns = start_ns - deadline_ns;
		cost_ns -= piece;
		if (over_ns < piece_ns)
			cost_ns -= over_ns < cost_ns ? over_ns : cost_ns;
	}
	return start_ns;
}
