// SPDX-License-Identifier: GPL-2.0-only
//! Linux lists of CPUs: what is taken means the same when it is printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scx_gpuaware::policy::cpuset::CpuSet;

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
    }
});
