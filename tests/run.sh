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

# What judges no time: in two guests side by side.
with_package=(vm::package:: vm::cgroups::cgroups_that_sleep vm::lifecycle::loads vm::lifecycle::of_two
	vm::lifecycle::second vm::reload::a_reload_forgets)
untimed=(vm::callbacks:: vm::doctor:: vm::irq:: vm::killed:: vm::metrics::sightings vm::observed:: vm::policy::
	vm::top:: vm::trace:: vm::verifier::)
timed_ones=(vm::)
for other in vm::large:: "${with_package[@]}" "${untimed[@]}"; do timed_ones+=(--skip "$other"); done

# on KERNEL: all tests of the lab.
on() {
	lab "--kernel $1 --cpus 2 --timeout $limit" "${timed_ones[@]}"
	lab "--kernel $1 --cpus 8 --smt --numa 2 --gpu-node 0 --timeout 900" vm::large::
	local package=target/test-package.log failed=
	GPUAWARE_TIMES=/dev/null lab "--kernel $1 --cpus 2 --timeout 900" "${with_package[@]}" >$package 2>&1 &
	lab "--kernel $1 --cpus 2 --timeout 900" "${untimed[@]}" || failed=1
	wait $! || failed=1
	tee -a "$GPUAWARE_TIMES" <$package
	[ -z "$failed" ]
}

rm -f "$GPUAWARE_TIMES"
here="env RUSTC_BOOTSTRAP=1"
# The scheduler's library is compiled once more for them, quickly.
timed "$here" --config 'profile.release.package.scx_gpuaware.opt-level=0' --exclude gpuaware-tests --tests --
timed "$here" --test integration -- --skip root::
# They take turns anyway, and who waits for its turn is not slow.
timed "$here" --test integration -- --test-threads=1 root::
for kernel in "${@:-6.18}"; do on "$kernel"; done
cargo test --release --workspace --test integration -- --ignored --nocapture times::
