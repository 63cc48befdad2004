// SPDX-License-Identifier: GPL-2.0-only
//! The `gpuaware-bench` program. All of it is the library's, so that a fuzzer reaches what parses.

use std::process::ExitCode;

fn main() -> ExitCode {
    // From make. Here and not in the library: another revision compiles this file only.
    gpuaware_bench::main(option_env!("GPUAWARE_REVISION"))
}
