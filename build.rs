// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the two BPF objects and generates their skeletons and the bindings of `bpf/intf.h`.

fn skeleton(source: &str, name: &str) {
    scx_cargo::BpfBuilder::new()
        .expect("clang >= 18 compiles BPF: set BPF_CLANG or run make setup")
        .enable_intf("bpf/intf.h", "bpf_intf.rs")
        .enable_skel(source, name)
        .build()
        .unwrap_or_else(|error| panic!("{source}: {error:#}"));
}

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    skeleton("bpf/gpuaware.bpf.c", "gpuaware");
    skeleton("bpf/identify.bpf.c", "identify");
}
