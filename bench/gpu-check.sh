#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What a machine with a genuine GPU and driver has to say, in eight minutes and one JSON file: does identification find
# the threads of real frameworks, what do probes cost on the driver's own entry points, and what does the emulated
# driver get wrong. Needs root, python3, and neither network nor compiler. docs/gpu-check.md says what the file has.
#
#   bench/gpu-check.sh -o result.json            after make build
#   bench/gpu-check.sh pack DIR                  everything that it needs, 13 MB, for a bare machine; there:
#   DIR/gpu-check.sh -o result.json
#
#   -o FILE        where the result goes [gpu-check.json]
#   --emulated     on the emulated driver: tries the check, says nothing of a GPU
#   --quick        short cells: tries the check
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
fail() {
	echo "gpu-check: $1" >&2
	exit 2
}

# Beside this script where it was packed, else where make build puts things.
if [ -x "$here/scx_gpuaware" ]; then
	scheduler=$here/scx_gpuaware lab=$here parts=$here
else
	scheduler=$here/../target/release/scx_gpuaware lab=$here/../target/lab parts=$here/gpu_check
fi
for program in "$scheduler" "$lab/gpu_launch"; do
	[ -x "$program" ] || fail "expected $program: run make build first"
done

if [ "${1:-}" = pack ]; then
	to=${2:-}
	[ -n "$to" ] || fail "pack: expected the folder to pack into: bench/gpu-check.sh pack DIR"
	mkdir -p "$to/lib"
	strip -o "$to/scx_gpuaware" "$scheduler"
	cp -r "$lab/gpu_launch" "$lab/profiles" "$here/gpu-check.sh" "$parts"/*.py "$parts"/*.toml "$to/"
	# A bare image may lack these two; nothing else is linked that every system does not have.
	ldd "$scheduler" | awk '$1 ~ /^lib(elf|z)\.so/ { print $3 }' | xargs cp -L -t "$to/lib"
	echo "gpu-check: $(du -sh "$to" | cut -f1) in $to; on the machine with the GPU: $to/gpu-check.sh"
	exit
fi

[ "$(id -u)" = 0 ] || fail "run as root: probes and tracing need it"
python=$(command -v python3) || fail "no python3 on this machine: install it"
if ldd "$scheduler" | grep -q 'not found'; then
	export GPU_CHECK_LIBRARIES=$here/lib
fi
# Marks are pinned there. Mounted for the check only where nobody has.
if ! mountpoint -q /sys/fs/bpf; then
	mount -t bpf bpf /sys/fs/bpf || fail "no BPF file system on /sys/fs/bpf, and none can be mounted"
	trap 'umount /sys/fs/bpf' EXIT
fi
"$python" "$parts/check.py" --scheduler "$scheduler" --lab "$lab" "$@"
