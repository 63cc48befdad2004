// SPDX-License-Identifier: GPL-2.0-only
//! What stress-ng, fio, iperf3, hackbench, vLLM's benchmark and aiperf print: each reader gets everything.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| gpuaware_bench::read_outputs(text));
