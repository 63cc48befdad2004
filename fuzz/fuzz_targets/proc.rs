// SPDX-License-Identifier: GPL-2.0-only
//! What is read of `/proc` and of the loader's cache, of which others write names and paths.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scx_gpuaware::identify::libcuda;
use scx_gpuaware::printable::printable;
use scx_gpuaware::proc::Stat;
use scx_gpuaware::proc::mounts::Mounts;
use scx_gpuaware::topology::proc_stat::irq_times;

fuzz_target!(|bytes: &[u8]| {
    let _ = Stat::parse(bytes);
    let mounts = Mounts::parse(bytes);
    let _ = mounts.cgroup2();
    for mount in mounts.iter() {
        assert!(mounts.of(&mount.point).is_some());
    }
    for mapping in libcuda::mappings(bytes, |path| {
        libcuda::is_libcuda(path) || libcuda::is_libcudart(path)
    }) {
        assert!(!mapping.path.as_os_str().is_empty());
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = libcuda::in_loader_cache(&text, libcuda::is_libcuda);
    let _ = irq_times(&text);
    assert!(!printable(&text).contains(char::is_control));
});
