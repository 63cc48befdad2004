// SPDX-License-Identifier: GPL-2.0-only
#include "profile.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

namespace
{
const char *const numbers[] = {"launches_per_token", "kernels_per_graph", "kernel_ns",
			       "last_kernel_ns",     "launch_gap_ns",	  "token_cpu_us"};
const char *const texts[] = {"description", "call", "sync"};

std::string trim(const std::string &text)
{
	const auto first = text.find_first_not_of(" \t\r");
	const auto last = text.find_last_not_of(" \t\r");

	return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

uint64_t parse_number(const std::string &where, const std::string &key, std::string value)
{
	uint64_t number = 0;

	value.erase(std::remove(value.begin(), value.end(), '_'), value.end());
	const auto *end = value.data() + value.size();
	const auto [stop, error] = std::from_chars(value.data(), end, number);
	if (error != std::errc() || stop != end || number > 1'000'000'000'000)
		throw UsageError(where + ": " + key + " = " + value +
				 ": expected a whole number from 0 to 10^12");
	return number;
}

std::string known_keys()
{
	std::string keys;

	for (const char *key : texts)
		keys += std::string(keys.empty() ? "" : ", ") + key;
	for (const char *key : numbers)
		keys += std::string(", ") + key;
	return keys;
}

// The value of a line: a quoted text, or what stands before a comment.
std::string parse_value(const std::string &where, const std::string &text)
{
	if (!text.starts_with('"'))
		return trim(text.substr(0, text.find('#')));
	const auto end = text.find('"', 1);
	if (end == std::string::npos)
		throw UsageError(where + ": a text without its closing quote");
	const auto rest = trim(text.substr(end + 1));
	if (!rest.empty() && !rest.starts_with('#'))
		throw UsageError(where + ": expected nothing but a comment after the text, found " +
				 rest);
	return text.substr(1, end - 1);
}

void expect_one_of(const std::string &where, const std::string &key, const std::string &value,
		   const std::vector<std::string> &allowed)
{
	std::string list;

	if (std::find(allowed.begin(), allowed.end(), value) != allowed.end())
		return;
	for (const auto &item : allowed)
		list += (list.empty() ? "" : ", ") + item;
	throw UsageError(where + ": " + key + " = \"" + value + "\": expected one of " + list);
}
} // namespace

void Profile::set(const std::string &where, const std::string &key, const std::string &value)
{
	std::string *const text = key == "description" ? &description
				  : key == "call"      ? &call
				  : key == "sync"      ? &sync
						       : nullptr;
	uint64_t *const number = key == "launches_per_token"  ? &launches_per_token
				 : key == "kernels_per_graph" ? &kernels_per_graph
				 : key == "kernel_ns"	      ? &kernel_ns
				 : key == "last_kernel_ns"    ? &last_kernel_ns
				 : key == "launch_gap_ns"     ? &launch_gap_ns
				 : key == "token_cpu_us"      ? &token_cpu_us
							      : nullptr;

	if (text)
		*text = value;
	else if (number)
		*number = parse_number(where, key, value);
	else
		throw UsageError(where + ": unknown key " + key + ": expected one of " +
				 known_keys());
}

void Profile::check(const std::string &where) const
{
	expect_one_of(where, "call", call,
		      {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel",
		       "cuGraphLaunch"});
	expect_one_of(where, "sync", sync, {"auto", "spin", "yield", "block"});
	if (!launches_per_token || launches_per_token > 1'000'000)
		throw UsageError(where + ": launches_per_token: expected 1 to 1000000");
	if (!kernels_per_graph || kernels_per_graph > 100'000)
		throw UsageError(where + ": kernels_per_graph: expected 1 to 100000");
}

Profile read_profile(const std::string &dir, const std::string &name)
{
	const std::string path = dir + "/" + name + ".toml";
	std::ifstream file(path);
	Profile profile;
	std::string line;

	if (!file || std::filesystem::is_directory(path))
		throw UsageError(
			path +
			": no such profile: name one by --profile and its folder by --profiles");
	for (unsigned number = 1; std::getline(file, line); number++) {
		const std::string where = path + ":" + std::to_string(number);
		const std::string text = trim(line);
		const auto equals = text.find('=');

		if (text.empty() || text.starts_with('#'))
			continue;
		if (equals == std::string::npos)
			throw UsageError(where + ": expected key = value, found " + text);
		profile.set(where, trim(text.substr(0, equals)),
			    parse_value(where, trim(text.substr(equals + 1))));
	}
	profile.check(path);
	return profile;
}
