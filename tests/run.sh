#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs every tier of tests that this machine can, after `make deb`, and says which tests took longest.
#   tests/run.sh                              make test
#   GPUAWARE_FULL=1 tests/run.sh KERNEL...    make test-full: at full length, the lab's tests on each kernel
set -euo pipefail
cd "$(dirname "$0")/.."

export GPUAWARE_TIMES=$PWD/target/test-times.log
# In CI a tier that cannot run is a failure, not a skip.
[ "${CI:-}" != true ] || export GPUAWARE_REQUIRE="${GPUAWARE_REQUIRE:-host,root,vm}"
runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER
limit=2400
[ -z "${GPUAWARE_FULL:-}" ] || limit=7200

# timed PROGRAM WORDS...: with WORDS for cargo and libtest, whose test binaries PROGRAM starts. libtest tells the time of
# each test if it is of a nightly toolchain, or if this variable is set.
timed() {
	local program=$1
	shift
	env "$runner=$program" cargo test --release --workspace "$@" -Z unstable-options --report-time |
		tee -a "$GPUAWARE_TIMES"
}

# lab FLAGS WORDS...: tests that WORDS choose, in a guest with FLAGS.
lab() {
	local flags=$1
	shift
	timed "$PWD/target/release/gpuaware-bench lab --env RUSTC_BOOTSTRAP=1 --restarts 2 $flags --" \
		--test integration -- --ignored --test-threads=1 "$@"
}

# What judges no time.
with_package=(vm::package:: vm::cgroups::cgroups_that_sleep vm::lifecycle::loads vm::lifecycle::of_two
	vm::lifecycle::second vm::reload::a_reload_forgets)
untimed=(vm::doctor:: vm::irq:: vm::killed:: vm::metrics::sightings vm::observed:: vm::policy::
	vm::top:: vm::trace:: vm::verifier::)
timed_ones=(vm::)
for other in vm::large:: "${with_package[@]}" "${untimed[@]}"; do timed_ones+=(--skip "$other"); done
# What calculates and reads, and maps no libcuda that the probes of tier `root` would meet.
calculating=(host::analyze:: host::compare:: host::documents:: host::imports:: host::report:: host::results::
	host::rules_of_the_house:: host::simulated:: host::topology::)
# What says who had a CPU when, to the microsecond, or measures cells of the bench: on a quiet machine.
exact=(root::trace:: root::traced_cell::)
others_of_host=() others_of_root=(root::)
for one in "${exact[@]}"; do others_of_root+=(--skip "$one"); done
for one in root:: "${calculating[@]}"; do others_of_host+=(--skip "$one"); done

# side_by_side KERNEL: in two guests.
side_by_side() {
	local package=target/test-package.log failed=
	GPUAWARE_TIMES=/dev/null lab "--kernel $1 --cpus 2 --timeout 900" "${with_package[@]}" >$package 2>&1 &
	lab "--kernel $1 --cpus 2 --timeout 900" "${untimed[@]}" || failed=1
	wait $! || failed=1
	tee -a "$GPUAWARE_TIMES" <$package
	[ -z "$failed" ]
}

# beside_root KERNEL...: what may take its time.
beside_root() {
	timed "$here" --test integration -- "${calculating[@]}"
	timed "bash $PWD/tests/units.sh calculating" "${units[@]}" --tests --
	local kernel
	for kernel in "$@"; do side_by_side "$kernel"; done
}

here="env RUSTC_BOOTSTRAP=1"
# The scheduler's library is compiled once more for unit tests, quickly.
units=(--config 'profile.release.package.scx_gpuaware.opt-level=0' --exclude gpuaware-tests)
kernels=("${@:-6.18}")

# Tests of tier `root` take turns, and wait for much of their time. The others have of the CPUs what these leave
# (SCHED_IDLE), and are shown when both are done.
shown=target/test-beside-root.log times=target/test-times-beside-root.log failed=
rm -f "$GPUAWARE_TIMES" $times
(
	chrt --idle --pid 0 $BASHPID
	GPUAWARE_TIMES=$times beside_root "${kernels[@]}"
) >$shown 2>&1 &
beside=$!
timed "$here" --test integration -- --test-threads=1 "${others_of_root[@]}" || failed=1
wait $beside || failed=1
cat $shown
cat $times >>"$GPUAWARE_TIMES"
[ -z "$failed" ]

timed "$here" --test integration -- --test-threads=1 "${exact[@]}"
timed "bash $PWD/tests/units.sh others" "${units[@]}" --tests --
# Three at a time: they wait for half of theirs.
timed "$here" --test integration -- --test-threads=3 "${others_of_host[@]}"
for kernel in "${kernels[@]}"; do
	lab "--kernel $kernel --cpus 2 --timeout $limit" "${timed_ones[@]}"
	lab "--kernel $kernel --cpus 8 --smt --numa 2 --gpu-node 0 --timeout 900" vm::large::
done
cargo test --release --workspace --test integration -- --ignored --nocapture times::
