#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Records what README's strip shows: who runs on both CPUs of the lab beside *heavy*, under EEVDF and under
# scx_gpuaware. The tracer follows every thread; launches are recorded in windows of 45 ms. What it leaves is cut by
# `gpuaware-bench results --cut FOLDER`. Run by hand, on a quiet machine: two minutes.
#
#   bench/strip.sh FOLDER
set -euo pipefail

repository=$(realpath "$(dirname "$0")/..")
target=$repository/target

noise() {
	# stress-ng writes to the folder that it starts in.
	cd "$(mktemp -d)"
	stress-ng --quiet --cpu 2 --cpu-method int64 &
	iperf3 --server --port 5201 >/dev/null &
	sleep 2
	iperf3 --client 127.0.0.1 --port 5201 --parallel 10 --time 86400 >/dev/null &
	fio --name=neighbour --rw=randwrite --bs=4k --iodepth=32 --numjobs=4 --direct=1 --ioengine=libaio --time_based \
		--runtime=86400 --thread --eta=never --filename="$GPUAWARE_LAB_DISK" >/dev/null &
	sleep 3
}

# Starts the launcher, waits until it is known, traces all threads of the machine. Beside the noise the tracer takes as
# long to start as it likes: the launcher goes on until it is done.
record() {
	LD_LIBRARY_PATH=$target/lab "$target/lab/gpu_launch" --profile eager --duration 300 >"$out/$1.json" &
	local launcher=$!
	sleep 6
	"$target/release/scx_gpuaware" trace --cgroup /sys/fs/cgroup --format csv --window-ms 45 --every-ms 500 \
		--duration 8 -o "$out/$1.csv"
	kill -INT "$launcher"
	wait "$launcher"
}

inside() {
	out=$1
	noise
	record eevdf
	"$target/release/scx_gpuaware" --preferred-cpus 1 &
	local scheduler=$!
	until grep -q gpuaware /sys/kernel/sched_ext/root/ops 2>/dev/null; do sleep 0.2; done
	record gpuaware
	kill -INT "$scheduler"
	wait "$scheduler"
	# The guest ends with this script, and the neighbours with it.
}

if [ "${1:-}" = --inside ]; then
	inside "$2"
	exit
fi
folder=${1:?usage: bench/strip.sh FOLDER}
mkdir -p "$folder"
folder=$(realpath "$folder")
"$target/release/gpuaware-bench" lab --cpus 2 --disk-driver null_blk --rwdir "$folder" -- \
	"$repository/bench/strip.sh" --inside "$folder"
