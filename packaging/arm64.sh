#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Compiles the scheduler for arm64 on a Debian machine of another processor: target/aarch64-unknown-linux-gnu/release.
# What it makes has run nowhere yet.
#   packaging/arm64.sh          everything, after make build
#   packaging/arm64.sh bpf      the BPF programs alone, with that processor's registers and kernel types
# The cross compiler is installed as Debian's package, Rust's standard library by rustup; libelf and zlib come into the
# cache, so that the machine's own apt knows no other processor afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/scx_gpuaware/arm64
target=aarch64-unknown-linux-gnu
triplet=aarch64-linux-gnu
sysroot=$cache/root

say() { printf 'arm64: %s\n' "$*"; }
die() { printf 'arm64: error: %s\n' "$*" >&2; exit 1; }

# By a name like that, clang compiles for that processor; scx_cargo asks it which one.
name_clang() {
	local clang=${BPF_CLANG:-clang-19}
	command -v "$clang" >/dev/null || die "$clang not found: run make setup"
	mkdir -p "$cache/bin"
	ln -sf "$(command -v "$clang")" "$cache/bin/$triplet-clang"
	export BPF_CLANG=$cache/bin/$triplet-clang
}

# newest PATTERN: the folder of target/ that was made last.
newest() {
	# shellcheck disable=SC2012,SC2086 # cargo names them; a pattern
	{ ls -dt target/release/build/$1 2>/dev/null || true; } | head -n 1
}

# With what make build has unpacked: scx's headers, the kernel's types among them, and libbpf's.
compile_bpf() {
	local scx libbpf source
	scx=$(newest 'scx_gpuaware-*/out/scx_utils-bpf_h')
	libbpf=$(newest 'libbpf-sys-*/out/include')
	if [ -z "$scx" ] || [ -z "$libbpf" ]; then die "headers not found: run make build"; fi
	for source in bpf/*.bpf.c; do
		"$BPF_CLANG" -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_arm64 -Wall -Werror \
			-Wno-compare-distinct-pointer-types -Wno-missing-declarations \
			-I"$scx/arch/arm64" -I"$scx" -I"$scx/bpf-compat" -I"$libbpf" -Ibpf \
			-idirafter "/usr/include/$(uname -m)-linux-gnu" -c "$source" -o /dev/null
		say "$source"
	done
}

install_compilers() {
	if ! command -v $triplet-gcc >/dev/null; then
		[ "$(id -u)" = 0 ] || die "installing gcc-$triplet needs root"
		say "installing gcc-$triplet: compiles libbpf, and links"
		apt-get -q update
		DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends gcc-$triplet libc6-dev-arm64-cross
	fi
	compgen -G "$(rustc --print target-libdir --target $target)/libstd-*" >/dev/null && return 0
	command -v rustup >/dev/null || die "rustup not found: install Rust's standard library for $target, then run this again"
	say "fetching Rust's standard library for $target (30 MB)"
	rustup --quiet target add $target
}

fetch_libraries() {
	[ ! -e "$sysroot" ] || return 0
	say "fetching libelf and zlib for arm64 into $sysroot"
	mkdir -p "$cache/lists/partial" "$cache/packages/partial"
	local apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::lists="$cache/lists"
		-o Dir::State::status=/dev/null -o Dir::Cache::archives="$cache/packages")
	"${apt[@]}" update
	"${apt[@]}" install --download-only -y --no-install-recommends libelf-dev zlib1g-dev
	# Of what these need, libc comes with the cross compiler.
	local package link
	rm -rf "$sysroot.part"
	for package in "$cache"/packages/{libelf,zlib1g,libzstd}*.deb; do
		[ ! -e "$package" ] || dpkg-deb -x "$package" "$sysroot.part"
	done
	# Some begin at the root, which is elsewhere here.
	find "$sysroot.part" -lname '/*' -print | while read -r link; do
		ln -srf "$sysroot.part$(readlink "$link")" "$link"
	done
	mv "$sysroot.part" "$sysroot"
	rm -rf "$cache/packages" "$cache/lists"
}

compile() {
	command -v apt-get >/dev/null || die "apt-get not found: this is for Debian"
	install_compilers
	fetch_libraries
	export CC_aarch64_unknown_linux_gnu=$triplet-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$triplet-gcc
	export CFLAGS_aarch64_unknown_linux_gnu=-I$sysroot/usr/include
	export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR=$sysroot
	export PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$triplet/pkgconfig
	# The linker looks into the second for what the libraries need themselves.
	local needed=$sysroot/usr/lib/$triplet:$sysroot/lib/$triplet
	RUSTFLAGS="${RUSTFLAGS:-} -L native=$sysroot/usr/lib/$triplet -C link-arg=-Wl,-rpath-link,$needed" \
		cargo build --release --target $target -p scx_gpuaware
	file "target/$target/release/scx_gpuaware"
}

case ${1:-all} in
all | bpf) name_clang ;;
*) die "expected bpf or nothing, got $1" ;;
esac
if [ "${1:-all}" = bpf ]; then compile_bpf; else compile; fi
