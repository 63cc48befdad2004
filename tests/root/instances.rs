// SPDX-License-Identifier: GPL-2.0-only
//! One scx_gpuaware at a time, and what a killed one leaves. With `feed`, which needs no sched_ext kernel, in a mount
//! namespace of the test's own.

use std::path::Path;
use std::process::{Command, Stdio};

use super::feed::other_scheduler;
use crate::process::alone_with_cuda;
use crate::tier;

/// In the namespace: `$SCX` is the program, `$MAP` another scheduler's map.
fn inside(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let bpffs = crate::bpffs::Bpffs::mount();
    let map = bpffs.pins();
    other_scheduler(&map);
    let setup = "mount -t tmpfs run /run && mount -t bpf bpf /sys/fs/bpf || exit\n\
         feed() { \"$SCX\" feed --map \"$MAP\" 2>\"$1\" & until grep -qs 'feeding\\|error' \"$1\"; do sleep 0.1; done; }\n";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c"])
        .arg(format!("{setup}{script}"))
        .env("SCX", crate::process::program())
        .env("MAP", &map)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("unshare");
    std::fs::remove_file(&map).unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    said.into_owned()
}

fn can_run() -> bool {
    tier::root() && !Path::new("/sys/kernel/sched_ext/root").exists()
}

#[test]
fn the_second_is_refused_and_the_first_loses_nothing() {
    if !can_run() {
        return;
    }
    let _alone = alone_with_cuda();
    let said = inside(
        "feed one; one=$!\n\
         pins=$(ls -i /sys/fs/bpf/scx_gpuaware)\n\
         for n in 1 2 3; do feed two; wait $!; echo \"code $?\"; cat two; done\n\
         unshare -m bash -c 'mount -t tmpfs run /run; exec \"$SCX\" feed --map \"$MAP\"'; echo \"container: $?\"\n\
         [ \"$pins\" = \"$(ls -i /sys/fs/bpf/scx_gpuaware)\" ] && echo 'same pins'\n\
         \"$SCX\" mark --class launch --tid $$ && \"$SCX\" marks | grep -q \"^ *$$ \" && echo marked\n\
         rm /sys/fs/bpf/scx_gpuaware/marks; \"$SCX\" mark --class handoff --tid $$ && echo 'marked again'; sleep 0.5\n\
         rm -r /sys/fs/bpf/scx_gpuaware; \"$SCX\" marks\n\
         kill $one; wait $one; echo \"first: code $?\"; cat one\n\
         [ -e /sys/fs/bpf/scx_gpuaware ] || echo 'no pins'\n\
         echo \"runs as PID $one\"",
    );
    assert_eq!(said.matches("code 1").count(), 3, "{said}");
    let pid = said
        .lines()
        .find_map(|line| line.strip_prefix("runs as PID "));
    let pid = pid.unwrap_or_else(|| panic!("{said}"));
    let refused = format!("already runs, as feed with PID {pid}: stop it first");
    assert_eq!(said.matches(&refused).count(), 3, "{said}");
    for expected in [
        "container: 1",
        "already runs, in another container or on its host: it has its pins in /sys/fs/bpf: stop it first",
        "same pins",
        "marked\n",
        "marked again",
        "scx_gpuaware runs, and it is not ready yet or somebody has removed its pins",
        "first: code 0",
        "no pins",
    ] {
        assert!(said.contains(expected), "{expected} in {said}");
    }
}

#[test]
fn what_a_killed_one_leaves_answers_nobody_and_is_cleaned_by_the_next() {
    if !can_run() {
        return;
    }
    let _alone = alone_with_cuda();
    let said = inside(
        "feed one; one=$!; kill -9 $one; wait $one 2>/dev/null\n\
         ls /sys/fs/bpf/scx_gpuaware | grep -q marks && echo 'pins are left'\n\
         \"$SCX\" marks\n\
         mkdir -p /sys/fs/bpf/scx_gpuaware/more\n\
         feed two; two=$!; \"$SCX\" marks >marks && ls /sys/fs/bpf/scx_gpuaware\n\
         kill $two; wait $two; echo \"second: code $?\"",
    );
    for expected in [
        "pins are left",
        "does not run",
        "mark_task",
        "second: code 0",
    ] {
        assert!(said.contains(expected), "{expected} in {said}");
    }
    assert!(!said.contains("more"), "{said}");
}

#[test]
fn a_signal_during_the_start_leaves_nothing() {
    if !can_run() {
        return;
    }
    let _alone = alone_with_cuda();
    let said = inside(
        "for wait in 0 0.02 0.1 0.2 0.4; do\n\
         \"$SCX\" feed --map \"$MAP\" 2>log & pid=$!; sleep $wait; kill $pid; wait $pid 2>/dev/null; echo \"code $?\"\n\
         ls /sys/fs/bpf/scx_gpuaware 2>/dev/null | sed 's/^/left: /'; done",
    );
    let codes = said.matches("code 0").count() + said.matches("code 143").count();
    assert!(codes == 5 && !said.contains("left: "), "{said}");
}
