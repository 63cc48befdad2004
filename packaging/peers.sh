#!/usr/bin/env bash
# Installs the sched_ext schedulers that the bench compares with, by crate name, into the project's
# cache; nothing goes to the system. Idempotent: what is there in the pinned version is left alone.
# An interrupted build goes on where it was.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/scx_gpuaware/peers
# Pinned, so that two runs compare with the same thing; bump on purpose, and run the matrix again.
peers=(
	"scx_bpfland 1.1.4"
	"scx_cosmos 1.1.7"
	"scx_lavd 1.1.4"
	"scx_layered 1.1.4"
)

say() { printf 'peers: %s\n' "$*"; }
die() { printf 'peers: error: %s\n' "$*" >&2; exit 1; }

# scx's programs answer "NAME VERSION TARGET".
installed_version() {
	[ -x "$cache/bin/$1" ] || return 0
	"$cache/bin/$1" --version 2>/dev/null | sed -n "1s/^$1 \([0-9.]*\).*/\1/p"
}

# One target folder for all: they share most of their dependencies.
install() {
	local name=$1 version=$2 began=$SECONDS
	say "building $name $version with cargo (one to four minutes on two cores)"
	cargo install --quiet --locked --root "$cache" --target-dir "$cache/target" --version "$version" "$name"
	say "$name $version is installed ($((SECONDS - began)) s)"
}

main() {
	command -v cargo >/dev/null || die "cargo not found: install Rust (https://rustup.rs), then run make peers again"
	# cargo install does not read the repository's .cargo/config.toml.
	export BPF_CLANG=${BPF_CLANG:-clang-19}
	command -v "$BPF_CLANG" >/dev/null || die "$BPF_CLANG not found: run make setup, or let BPF_CLANG name clang 18 or newer"
	mkdir -p "$cache"
	local peer name version
	for peer in "${peers[@]}"; do
		read -r name version <<<"$peer"
		if [ "$(installed_version "$name")" = "$version" ]; then
			say "$name $version is there"
		else
			install "$name" "$version"
		fi
	done
	say "ready: $cache/bin (the build folder $cache/target may be removed)"
}

main
