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
# each test if it is of a nightly toolchain, or if RUSTC_BOOTSTRAP is set. A shell has what it starts with & ignore
# SIGINT, which tests send, and Ctrl-C.
timed() {
	local program=$1
	shift
	echo "at $SECONDS s: ${program##*/} $*"
	env --default-signal=INT,QUIT "$runner=$program" \
		cargo test --release --workspace "$@" -Z unstable-options --report-time |
		tee -a "$GPUAWARE_TIMES"
}

# lab FLAGS WORDS...: tests that WORDS choose, in a guest with FLAGS.
lab() {
	local flags=$1
	shift
	timed "$PWD/target/release/gpuaware-bench lab --env RUSTC_BOOTSTRAP=1 --restarts 2 $flags --" \
		--test integration -- --ignored --test-threads=1 "$@"
}

# together ONE OTHER: two functions at the same time. What OTHER prints comes when both are done. Both with &: left of ||
# a function would go on after a command that fails.
together() {
	local log=target/test-$2.log times=target/test-times-$2.log failed=
	rm -f "$times"
	GPUAWARE_TIMES=$times "$2" >"$log" 2>&1 &
	local other=$!
	"$1" &
	wait $! || failed=1
	wait $other || failed=1
	cat "$log"
	cat "$times" >>"$GPUAWARE_TIMES"
	[ -z "$failed" ]
}

# What judges no time.
with_package=(vm::package:: vm::cgroups::cgroups_that_sleep vm::lifecycle::loads vm::lifecycle::of_two
	vm::lifecycle::second vm::reload::a_reload_forgets)
untimed=(vm::bench::a_ vm::doctor:: vm::irq:: vm::killed:: vm::metrics::sightings vm::observed::
	vm::policy:: vm::top:: vm::trace:: vm::verifier::)
timed_ones=(vm::)
for other in vm::large:: "${with_package[@]}" "${untimed[@]}"; do timed_ones+=(--skip "$other"); done
# What calculates and reads, and maps no libcuda that the probes of tier `root` would meet.
calculating=(host::analyze:: host::compare:: host::documents:: host::imports:: host::report:: host::results::
	host::rules_of_the_house:: host::simulated:: host::topology::)
# What says who had a CPU when, to the microsecond, or measures cells of the bench: on a quiet machine.
exact=(root::trace:: root::traced_cell::)
# Of these, what judges no time.
whenever=(root::trace::ends:: root::trace::profile::a_ root::trace::targets::)
# Ten windows in a row; guests that boot, as root, but without a probe.
long_waits=(host::tune:: root::crash::)
others_of_host=(--skip root:: --skip host::tune::)
for one in "${calculating[@]}"; do others_of_host+=(--skip "$one"); done
others_of_root=(root:: --skip root::crash::)
for one in "${exact[@]}"; do others_of_root+=(--skip "$one"); done
for one in "${whenever[@]}"; do exact+=(--skip "$one"); done

here="env RUSTC_BOOTSTRAP=1"
# What is compiled once more for unit tests alone, quickly.
units=(--exclude gpuaware-tests)
for package in scx_gpuaware pipeline llm_client llm_server; do
	units+=(--config "profile.release.package.$package.opt-level=0")
done
kernels=("${@:-6.18}")

guest_with_package() { lab "--kernel $kernel --cpus 2 --timeout 900" "${with_package[@]}"; }

guest_untimed() { lab "--kernel $kernel --cpus 2 --timeout 900" "${untimed[@]}"; }

other_units() { timed "bash $PWD/tests/units.sh others" "${units[@]}" --tests --; }

tunings_and_crashes() { timed "$here" --test integration -- --test-threads=7 "${long_waits[@]}"; }

# What waits for much of its time. Tests of tier `root` take turns.
waiting() {
	timed "$here" --test integration -- --test-threads=1 "${others_of_root[@]}"
	timed "$here" --test integration -- --test-threads=1 "${whenever[@]}"
	together other_units tunings_and_crashes
	timed "$here" --test integration -- --test-threads=3 "${others_of_host[@]}"
}

# It has of the CPUs what the others leave.
beside() {
	chrt --idle --pid 0 $BASHPID
	timed "$here" --test integration -- "${calculating[@]}"
	timed "bash $PWD/tests/units.sh calculating" "${units[@]}" --tests --
	for kernel in "${kernels[@]}"; do together guest_untimed guest_with_package; done
}

rm -f "$GPUAWARE_TIMES"
together waiting beside
timed "$here" --test integration -- --test-threads=1 "${exact[@]}"
for kernel in "${kernels[@]}"; do
	lab "--kernel $kernel --cpus 2 --timeout $limit" "${timed_ones[@]}"
	lab "--kernel $kernel --cpus 8 --smt --numa 2 --gpu-node 0 --timeout 900" vm::large::
done
cargo test --release --workspace --test integration -- --ignored --nocapture times::
