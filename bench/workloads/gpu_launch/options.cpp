// SPDX-License-Identifier: GPL-2.0-only
#include "options.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <vector>

const char usage_text[] =
	"usage: gpu_launch --profile NAME (--tokens N | --duration SEC) [options]\n"
	"Launches CUDA work token by token and prints one JSON document of what came of it.\n"
	"  --profile NAME       qwen3, graph, eager, or another NAME.toml in the profiles' folder\n"
	"  --profiles DIR       folder of profiles [beside the program: profiles/]\n"
	"  --tokens N           measured tokens of each launching thread\n"
	"  --duration SEC       measured time in seconds; the token under way is finished\n"
	"  --warmup-tokens N    tokens of each thread before the measured part [5]\n"
	"  --until-eof yes|no   go on launching after the measured part until stdin ends [no]\n"
	"  --sync MODE          auto, spin, yield or block: how threads wait [the profile's]\n"
	"  --gpus N|all         GPUs; each thread launches on the next one [1]\n"
	"  --threads N          launching threads, each with its own stream [one for each GPU]\n"
	"  --idle-threads N     threads that wake 100 times a second and never launch [0]\n"
	"  --set KEY=VALUE      overrides a key of the profile; may be repeated\n";

namespace
{
uint64_t parse_count(const std::string &flag, const std::string &text, uint64_t min, uint64_t max)
{
	uint64_t number = 0;
	const auto *end = text.data() + text.size();
	const auto [stop, error] = std::from_chars(text.data(), end, number);

	if (error != std::errc() || stop != end || number < min || number > max)
		throw UsageError(flag + " " + text + ": expected a whole number from " +
				 std::to_string(min) + " to " + std::to_string(max));
	return number;
}

uint64_t parse_seconds(const std::string &text)
{
	char *end;
	const double seconds = std::strtod(text.c_str(), &end);

	if (text.empty() || *end || !std::isfinite(seconds) || seconds <= 0 || seconds > 1e6)
		throw UsageError("--duration " + text + ": expected seconds, more than 0");
	return uint64_t(seconds * 1e9);
}

bool parse_yes(const std::string &flag, const std::string &text)
{
	if (text != "yes" && text != "no")
		throw UsageError(flag + " " + text + ": expected yes or no");
	return text == "yes";
}

std::string default_profiles()
{
	std::error_code error;
	const auto self = std::filesystem::read_symlink("/proc/self/exe", error);

	return (self.parent_path() / "profiles").string();
}

struct Overrides {
	std::string dir;
	std::string sync;
	std::vector<std::string> sets;
};

void load_profile(Options &options, const Overrides &overrides)
{
	const auto dir = overrides.dir.empty() ? default_profiles() : overrides.dir;

	options.profile = read_profile(dir, options.profile_name);
	for (const auto &set : overrides.sets) {
		const auto equals = set.find('=');

		if (equals == std::string::npos)
			throw UsageError("--set " + set + ": expected KEY=VALUE");
		options.profile.set("--set " + set, set.substr(0, equals), set.substr(equals + 1));
	}
	if (!overrides.sync.empty())
		options.profile.sync = overrides.sync;
	options.profile.check("after --set and --sync");
}

void take_flag(Options &options, Overrides &overrides, const std::string &flag,
	       const std::string &value)
{
	if (flag == "--profile")
		options.profile_name = value;
	else if (flag == "--profiles")
		overrides.dir = value;
	else if (flag == "--sync")
		overrides.sync = value;
	else if (flag == "--set")
		overrides.sets.push_back(value);
	else if (flag == "--gpus")
		options.gpus = value == "all" ? 0 : parse_count(flag, value, 1, 1024);
	else if (flag == "--threads")
		options.threads = parse_count(flag, value, 1, 1024);
	else if (flag == "--idle-threads")
		options.idle_threads = parse_count(flag, value, 0, 1024);
	else if (flag == "--warmup-tokens")
		options.warmup_tokens = parse_count(flag, value, 0, 1'000'000);
	else if (flag == "--until-eof")
		options.until_eof = parse_yes(flag, value);
	else if (flag == "--tokens")
		options.tokens = parse_count(flag, value, 1, 100'000'000);
	else if (flag == "--duration")
		options.duration_ns = parse_seconds(value);
	else
		throw UsageError("unknown option " + flag + ": see gpu_launch --help");
}
} // namespace

Options parse_options(int argc, char **argv)
{
	Options options;
	Overrides overrides;

	for (int i = 1; i < argc; i++) {
		std::string flag = argv[i];
		const auto equals = flag.find('=');

		if (flag == "--help" || flag == "-h") {
			options.help = true;
			return options;
		}
		if (flag.starts_with("--") && equals != std::string::npos) {
			take_flag(options, overrides, flag.substr(0, equals),
				  flag.substr(equals + 1));
			continue;
		}
		if (!flag.starts_with("--"))
			throw UsageError("unexpected argument " + flag + ": see gpu_launch --help");
		if (i + 1 == argc)
			throw UsageError(flag +
					 ": expected a value after it: see gpu_launch --help");
		take_flag(options, overrides, flag, argv[++i]);
	}
	if (options.profile_name.empty())
		throw UsageError("--profile is missing: see gpu_launch --help");
	if (!options.tokens == !options.duration_ns)
		throw UsageError("give either --tokens N or --duration SEC");
	load_profile(options, overrides);
	return options;
}
