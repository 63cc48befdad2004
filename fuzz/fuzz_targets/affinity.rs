// SPDX-License-Identifier: GPL-2.0-only
//! FastFlow's affinity syntax: what is taken means the same when it is printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scx_gpuaware::policy::affinity::{CpuGroup, labelled_groups};

fuzz_target!(|text: &str| {
    let _ = labelled_groups(text);
    if let Ok(group) = text.parse::<CpuGroup>() {
        let again: CpuGroup = group.to_string().parse().expect("what was printed");
        assert_eq!(again.set(), group.set());
        assert_eq!(again.assignment(), group.assignment());
        for turn in [0, 1, usize::MAX] {
            assert!(group.share_of(turn).difference(&group.set()).is_empty());
        }
    }
});
