// SPDX-License-Identifier: GPL-2.0-only
// The JSON document: schema 1, described in README.md.
#pragma once

#include <string>
#include <vector>

#include "driver.hpp"
#include "launcher.hpp"
#include "options.hpp"

std::string report_json(const Options &options, const Driver &driver,
			const std::vector<const Measured *> &threads, uint64_t start_ns);
