#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What a scheduler costs those who wake each other, with no launcher on the machine: hackbench, iperf3 with one stream
# and with ten, POSIX message queues. EEVDF and each scheduler named, in turn. Prints CSV. In the lab:
#
#   gpuaware-bench lab --cpus 2 -- bench/without-launcher.sh ROUNDS SCHEDULER...
set -euo pipefail

[[ $# -ge 1 ]] || {
	echo "usage: ${0##*/} ROUNDS SCHEDULER..." >&2
	exit 2
}
rounds=$1
shift

switches() { awk '/^ctxt/ {print $2}' /proc/stat; }

# measure SCHEDULER WORKLOAD UNIT COMMAND...: a row; the command prints the value.
measure() {
	local scheduler=$1 workload=$2 unit=$3 before value
	shift 3
	before=$(switches)
	value=$("$@") || exit
	echo "$round,$scheduler,$workload,$value,$unit,$(($(switches) - before))"
}

hackbench_seconds() { hackbench -g 2 -l 300 | awk '/^Time/ {print $2}'; }

iperf3_gbits() {
	iperf3 --client 127.0.0.1 --time 4 --parallel "$1" --json |
		python3 -c 'import json, sys; print(round(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"] / 1e9, 3))'
}

mq_seconds() {
	local start
	start=$(date +%s.%N)
	stress-ng --quiet --mq 2 --mq-ops 300000 || return
	echo "$(date +%s.%N) $start" | awk '{printf "%.3f\n", $1 - $2}'
}

all() {
	measure "$1" hackbench s hackbench_seconds
	measure "$1" iperf3-1 Gbit/s iperf3_gbits 1
	measure "$1" iperf3-10 Gbit/s iperf3_gbits 10
	measure "$1" mq s mq_seconds
}

# until_state STATE: of sched_ext; five seconds at most.
until_state() {
	for _ in $(seq 50); do
		[[ $(< /sys/kernel/sched_ext/state) == "$1" ]] && return
		sleep 0.1
	done
	echo "sched_ext is not $1" >&2
	return 1
}

# stress-ng writes to the folder that it starts in.
cd "$(mktemp -d)"
iperf3 --server > /dev/null 2>&1 &
server=$!
trap 'kill "$server"' EXIT
sleep 1
echo round,scheduler,workload,value,unit,switches
for round in $(seq "$rounds"); do
	all eevdf
	for scheduler in "$@"; do
		"$scheduler" > /dev/null 2>&1 &
		pid=$!
		until_state enabled
		sleep 1
		all "${scheduler##*/}"
		kill -INT "$pid"
		wait "$pid" || true
		until_state disabled
	done
done
