#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs Ray Serve, on which a graph of docs/pipelines.md runs on several hosts: into the project's cache; nothing goes
# to the system. Idempotent.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/scx_gpuaware/ray
# Pinned, so that two runs compare with the same thing; bump on purpose.
ray=2.60.0

say() { printf 'ray: %s\n' "$*"; }

if [ ! -e "$cache/installed-$ray" ]; then
	say "installing ray[serve] $ray into $cache (half a gigabyte, a minute)"
	rm -rf "$cache"
	/usr/bin/python3 -m venv "$cache"
	"$cache/bin/python" -m pip --quiet --disable-pip-version-check install "ray[serve]==$ray"
	touch "$cache/installed-$ray"
fi
say "ready: $cache/bin/python bench/workloads/pipeline_ray/pipeline_ray.py GRAPH"
