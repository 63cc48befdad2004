// SPDX-License-Identifier: GPL-2.0-only
#include "report.hpp"

#include <algorithm>
#include <cstdio>

namespace
{
std::string quoted(const std::string &text)
{
	std::string out = "\"";

	for (const char c : text) {
		char escape[8];

		if (c == '"' || c == '\\') {
			out += '\\';
			out += c;
		} else if (static_cast<unsigned char>(c) < 0x20) {
			std::snprintf(escape, sizeof(escape), "\\u%04x", c);
			out += escape;
		} else {
			out += c;
		}
	}
	return out + '"';
}

std::string decimal(double value)
{
	char text[64];

	std::snprintf(text, sizeof(text), "%.6f", value);
	return text;
}

template <typename Range> std::string array(const Range &values)
{
	std::string out = "[";

	for (const auto &value : values)
		out += (out.size() > 1 ? "," : "") + std::to_string(value);
	return out + "]";
}

struct Sum {
	uint64_t tokens = 0, launches = 0, other_launches = 0, failures = 0, end_ns = 0;
	double user_s = 0, sys_s = 0;
	long voluntary = 0, involuntary = 0;
	std::vector<uint32_t> token_us;
	std::array<uint64_t, interval_le_ns.size() + 1> intervals{};
};

Sum add_up(const std::vector<const Measured *> &threads)
{
	Sum sum;

	for (const Measured *thread : threads) {
		sum.tokens += thread->token_us.size();
		sum.launches += thread->launches;
		sum.other_launches += thread->other_launches;
		sum.failures += thread->failures;
		sum.end_ns = std::max(sum.end_ns, thread->end_ns);
		sum.user_s += thread->user_s;
		sum.sys_s += thread->sys_s;
		sum.voluntary += thread->voluntary;
		sum.involuntary += thread->involuntary;
		sum.token_us.insert(sum.token_us.end(), thread->token_us.begin(),
				    thread->token_us.end());
		for (size_t i = 0; i < sum.intervals.size(); i++)
			sum.intervals[i] += thread->intervals[i];
	}
	return sum;
}

std::string detail(const std::vector<const Measured *> &threads)
{
	std::string out;

	for (const Measured *thread : threads)
		out += std::string(out.empty() ? "" : ",\n    ") +
		       "{\"tid\": " + std::to_string(thread->tid) +
		       ", \"gpu\": " + std::to_string(thread->gpu) +
		       ", \"first_launch_monotonic_ns\": " +
		       std::to_string(thread->first_launch_ns) +
		       ", \"tokens\": " + std::to_string(thread->token_us.size()) + "}";
	return "[" + out + "]";
}
} // namespace

std::string report_json(const Options &options, const Driver &driver,
			const std::vector<const Measured *> &threads, uint64_t start_ns)
{
	const Sum sum = add_up(threads);
	const double seconds = double(std::max(sum.end_ns, start_ns) - start_ns) / 1e9;
	const std::vector<uint64_t> counts(sum.intervals.begin(), sum.intervals.end() - 1);
	std::string out = "{\"schema\": 1, \"workload\": \"gpu_launch\"";

	out += ", \"profile\": " + quoted(options.profile_name);
	out += ",\n  \"driver\": {\"device_name\": " + quoted(driver.gpus.front().name) +
	       ", \"version\": " + std::to_string(driver.version) + "}";
	out += ",\n  \"sync\": " + quoted(options.profile.sync);
	out += ", \"gpus\": " + std::to_string(std::min(driver.gpus.size(), threads.size()));
	out += ", \"threads\": " + std::to_string(threads.size());
	out += ", \"warmup_tokens\": " + std::to_string(options.warmup_tokens);
	out += ",\n  \"tokens\": " + std::to_string(sum.tokens);
	out += ", \"seconds\": " + decimal(seconds);
	out += ", \"tokens_per_s\": " + decimal(seconds > 0 ? double(sum.tokens) / seconds : 0);
	out += ", \"launches\": " + std::to_string(sum.launches);
	out += ", \"launches_in_all\": " + std::to_string(sum.launches + sum.other_launches);
	out += ", \"failures\": " + std::to_string(sum.failures);
	out += ",\n  \"token_us\": " + array(sum.token_us);
	out += ",\n  \"launch_interval_ns\": {\"le\": " + array(interval_le_ns) +
	       ", \"count\": " + array(counts) +
	       ", \"over\": " + std::to_string(sum.intervals.back()) + "}";
	out += ",\n  \"cpu_s\": {\"user\": " + decimal(sum.user_s) +
	       ", \"sys\": " + decimal(sum.sys_s) + "}";
	out += ",\n  \"context_switches\": {\"voluntary\": " + std::to_string(sum.voluntary) +
	       ", \"involuntary\": " + std::to_string(sum.involuntary) + "}";
	out += ",\n  \"threads_detail\": " + detail(threads);
	out += ",\n  \"measured_monotonic_ns\": [" + std::to_string(start_ns) + ", " +
	       std::to_string(std::max(sum.end_ns, start_ns)) + "]}\n";
	return out;
}
