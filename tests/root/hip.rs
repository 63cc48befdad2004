// SPDX-License-Identifier: GPL-2.0-only
//! Launches through HIP, which is what AMD's GPUs have in place of CUDA: on a library with the functions of ROCm's,
//! which do nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::Command;

use scx_gpuaware::identify::libcuda::{HIP_INIT_SYMBOLS, HIP_LAUNCH_SYMBOLS};
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;
use tempfile::TempDir;

use super::late::python;
use super::place::{Place, identify_until, marks_of};
use crate::process::Process;

const EXT_MODULE_LAUNCH: &str = "hipExtModuleLaunchKernel";
/// As ROCm exports it: rocBLAS calls it in C++.
const MANGLED: &str = "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j";

/// What gives a thread its class: a launch, or the choice of a device before it.
fn probed() -> impl Iterator<Item = &'static str> {
    HIP_LAUNCH_SYMBOLS.into_iter().chain(["hipSetDevice"])
}

fn library() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut source = format!("int {EXT_MODULE_LAUNCH}(void) __asm__(\"{MANGLED}\");\n");
    // Those that return the same would be made one.
    for (number, name) in (1..).zip(probed().chain(HIP_INIT_SYMBOLS)) {
        writeln!(source, "int {name}(void) {{ return {number}; }}").unwrap();
    }
    let (file, library) = (
        folder.path().join("hip.c"),
        folder.path().join("libamdhip64.so.6"),
    );
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
    let status = cc.args([&library, &file]).status();
    assert!(status.expect("cc").success());
    (folder, library)
}

#[test]
fn every_entry_point_of_hip_is_told_apart() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, library) = library();
    let symbols = probed().map(|symbol| match symbol {
        EXT_MODULE_LAUNCH => format!("'{MANGLED}'"),
        plain => format!("'{plain}'"),
    });
    let symbols: Vec<_> = symbols.collect();
    let script = format!(
        "lib = load()
def work(symbol):
    say('thread', threading.get_native_id(), symbol)
    launch(lib, symbol)
for symbol in [{}]:
    threading.Thread(target=work, args=(symbol,), daemon=True).start()
say('all')
sys.stdin.read()
",
        symbols.join(", ")
    );
    let mut process = Process::start(python(&script, &library));
    process.wait_for_line("all");
    let found = identify_until(&mut identify, |_| {
        marks_of(&pins, process.pid()).len() == symbols.len()
    });
    assert!(found, "{:?}", marks_of(&pins, process.pid()));
    process.drain();
    let threads = process.log.iter().filter_map(|line| {
        let (tid, symbol) = line.strip_prefix("thread ")?.split_once(' ')?;
        let symbol = if symbol == MANGLED {
            EXT_MODULE_LAUNCH
        } else {
            symbol
        };
        Some((tid.parse::<i32>().ok()?, symbol.to_owned()))
    });
    let expected: BTreeMap<_, _> = threads.collect();
    let mut seen = BTreeMap::new();
    for mark in marks_of(&pins, process.pid()) {
        assert_eq!((mark.class, mark.source), (Class::Launch, Source::Uprobe));
        assert!(mark.evidence.contains("libamdhip64.so.6"), "{mark:?}");
        seen.insert(mark.tid, mark.symbol.unwrap_or("none").to_owned());
    }
    assert_eq!(seen, expected);
}

#[test]
fn who_initialises_hip_has_the_probes_back() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let (_folder, library) = library();
    let script = "lib = load()\nsay('ready')\nfor line in sys.stdin: lib[line.strip()](None)\n";
    let mut process = Process::start(python(script, &library));
    process.wait_for_line("ready");
    let found = identify_until(&mut identify, |identify| {
        identify.sightings().libraries == before + 1
    });
    assert!(found, "{:?}", identify.sightings());
    for init in HIP_INIT_SYMBOLS {
        let before = identify.sightings().triggers;
        process.write_line(init);
        let triggered = identify_until(&mut identify, |identify| {
            identify.sightings().triggers > before
        });
        assert!(triggered, "{init}: {:?}", identify.sightings());
    }
}
