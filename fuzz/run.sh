#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Fuzzes all that parses what others write: each target in turn, or those that are named. Exits with 1 if any crashed.
#   fuzz/run.sh [SECONDS [TARGET...]]     60 seconds each
# Needs a C++ compiler, beside what `make build` does; neither cargo-fuzz nor a nightly toolchain: sanitizers of memory
# would find little in parsers of safe Rust. The input of a crash is in target/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/fuzz
# The target sysfs makes a tree of files of each input.
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm

# seeds TARGET: files that it begins with.
seeds() {
	case $1 in
	affinity | cpu_list) ls tests/data/cpus/* ;;
	policy) ls tests/data/policies/bad/*.toml scheds/policies/*.toml packaging/policy.toml ;;
	proc) ls tests/data/proc/* ;;
	sysfs) ls tests/data/sysfs/*.txt tests/data/hosts/*.txt ;;
	trace) ls tests/data/traces/* ;;
	outputs) ls bench/tests/data/*/* ;;
	*)
		echo "fuzz/run.sh: no target $1; there is: ${all[*]}" >&2
		exit 2
		;;
	esac
}

# manifest TARGET: of the crate that has it.
manifest() {
	[ "$1" = outputs ] && echo bench/fuzz/Cargo.toml || echo fuzz/Cargo.toml
}

all=(affinity cpu_list policy proc sysfs trace outputs)
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do seeds "$target" >/dev/null; done

# Those of cargo-fuzz, but for the sanitizer.
coverage=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
	-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0)
for target in "${targets[@]}"; do
	RUSTFLAGS="${coverage[*]}" cargo build --release --target "$host" --manifest-path "$(manifest "$target")" --bin "$target"
done

crashed=()
for target in "${targets[@]}"; do
	corpus=$CARGO_TARGET_DIR/corpus/$target artifacts=$CARGO_TARGET_DIR/artifacts/$target
	mkdir -p "$corpus" "$artifacts"
	seeds "$target" | while read -r seed; do cp "$seed" "$corpus/seed-$(basename "$seed")"; done
	echo "fuzz/run.sh: $target for $seconds s"
	"$CARGO_TARGET_DIR/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$artifacts/" "$corpus" || crashed+=("$target")
done
[ ${#crashed[@]} -eq 0 ] || {
	echo "fuzz/run.sh: crashed: ${crashed[*]}" >&2
	exit 1
}
