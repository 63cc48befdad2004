// SPDX-License-Identifier: GPL-2.0-only
//! Compiles each scheduler's BPF source natively, as a shared object that needs nothing from outside: what it calls
//! comes through the pointers of `shim/sim/env.h`, which the simulator fills in.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// No libc and no kernel header: a name that the shim lacks is an error of the compiler or of the linker.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-g",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-nostdinc",
    "-ffreestanding",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    "-Wall",
    "-Werror",
    // BPF sources keep what the verifier wants: masks of masks, tests of addresses.
    "-Wno-unused-function",
    "-Wno-pointer-bool-conversion",
    "-Wno-tautological-pointer-compare",
    "-Wl,-z,defs",
    "-Wl,-Bsymbolic",
    "-Wl,--build-id=none",
];

/// Each basic block that is left after optimization says that it is entered: `shim/meter.c` counts.
const METERED: &[&str] = &[
    "-DSIM_METERED",
    "-fsanitize-coverage=bb,no-prune,trace-pc-guard",
    "shim/meter.c",
];

fn compile(clang: &str, source: &Path, object: &Path, more: &[&str]) {
    let mut command = Command::new(clang);
    command.args(FLAGS).args(more);
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "aarch64") {
        command.arg("-mno-outline-atomics");
    }
    command.args(["-Ishim", "-I../bpf", "-o"]).arg(object);
    command.arg(source).arg("shim/runtime.c");
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{clang}: {error}: set BPF_CLANG or run make setup"));
    assert!(status.success(), "{}: {clang}: {status}", source.display());
}

/// The linker lets weak names stay undefined: the dynamic loader would bind those to libc by accident.
fn refuse_undefined(object: &Path) {
    let output = Command::new("nm")
        .args(["--dynamic", "--undefined-only"])
        .arg(object)
        .output()
        .unwrap_or_else(|error| panic!("nm: {error}: run make setup"));
    let names = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "nm: {}", output.status);
    assert!(
        names.trim().is_empty(),
        "{} takes from outside:\n{names}",
        object.display()
    );
}

fn main() {
    for input in ["../bpf", "shim", "schedulers", "build.rs"] {
        println!("cargo:rerun-if-changed={input}");
    }
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang".to_owned());
    // For tests that compile variants.
    println!("cargo:rustc-env=SIM_CLANG={clang}");
    println!("cargo:rustc-env=SIM_CFLAGS={}", FLAGS.join(" "));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (scheduler, variant, more) in [
        ("gpuaware", "gpuaware", &[][..]),
        ("gpuaware", "gpuaware-metered", METERED),
        ("fifo", "fifo", &[]),
        ("eevdf", "eevdf", &[]),
        ("cfs", "cfs", &[]),
    ] {
        let object = out.join(format!("{variant}.so"));
        let source = format!("schedulers/{scheduler}.bpf.c");
        compile(&clang, Path::new(&source), &object, more);
        refuse_undefined(&object);
    }
}
