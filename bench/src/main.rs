// SPDX-License-Identifier: GPL-2.0-only
//! The `gpuaware-bench` program. All of it is the library's, so that a fuzzer reaches what parses.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuaware_bench::main()
}
