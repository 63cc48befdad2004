// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF objects and generates their skeletons and the bindings of the headers that they share with user
//! space.

use scx_cargo::BpfBuilder;

fn skeleton(builder: &mut BpfBuilder, source: &str, name: &str) {
    builder
        .enable_skel(source, name)
        .build()
        .unwrap_or_else(|error| panic!("{source}: {error:#}"));
}

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    let builder =
        || BpfBuilder::new().expect("clang >= 18 compiles BPF: set BPF_CLANG or run make setup");
    // The bindings are the same for both: made once.
    skeleton(
        builder().enable_intf("bpf/intf.h", "bpf_intf.rs"),
        "bpf/gpuaware.bpf.c",
        "gpuaware",
    );
    skeleton(&mut builder(), "bpf/identify.bpf.c", "identify");
    skeleton(
        builder().enable_intf("bpf/trace_intf.h", "trace_intf.rs"),
        "bpf/trace.bpf.c",
        "trace",
    );
    skeleton(
        builder().enable_intf("bpf/trace_profile_intf.h", "trace_profile_intf.rs"),
        "bpf/trace_profile.bpf.c",
        "trace_profile",
    );
}
