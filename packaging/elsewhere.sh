#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds this checkout's HEAD in a root of another release, as somebody would on a system that make setup does not know:
# `make build` names what is missing, and works once that is there.
#   packaging/elsewhere.sh [SUITE [FOLDER]]    sid, a temporary folder
# As root on Debian, with debootstrap and Rust; 3 GB and a quarter of an hour on two cores. Exits with 1 if it does not.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:-sid}
root=${2:-$(mktemp -d)}

say() { printf 'elsewhere: %s\n' "$*"; }
die() { printf 'elsewhere: error: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "debootstrap needs root"
command -v debootstrap >/dev/null || die "debootstrap not found: apt-get install debootstrap"
# shellcheck disable=SC2016 # apt expands it
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
[ -n "$mirror" ] || die "no Debian mirror among this machine's apt sources (apt-get indextargets lists none)"

say "a root of $suite in $root"
debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
	die "debootstrap failed: see $root.log"
rust=$(rustc --print sysroot)
home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$root/opt/rust" "$root/opt/cargo"
trap 'umount -q "$root/opt/rust" "$root/opt/cargo" "$root/proc" "$root/dev" || true' EXIT
mount --bind "$rust" "$root/opt/rust"
mount --bind "$home" "$root/opt/cargo"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
git clone -q --depth 1 "file://$PWD" "$root/src"

# A network that looks into TLS has certificates of its own, which this machine knows.
certificates=/etc/ssl/certs/ca-certificates.crt
cp -L "$certificates" "$root$certificates"

# within COMMAND...: in the root, with the toolchain of this machine, whose shims of rustup are not looked at.
within() {
	chroot "$root" env -i HOME=/root PIP_CERT="$certificates" SSL_CERT_FILE="$certificates" \
		http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" PATH=/opt/rust/bin:/usr/bin:/bin:/usr/sbin:/sbin CARGO_HOME=/opt/cargo \
		BPF_CLANG="${clang:-}" DEBIAN_FRONTEND=noninteractive "$@"
}

clang="clang-19"
say "make build, with nothing installed:"
if within make -C /src build >"$root.missing" 2>&1; then
	die "it should have named what is missing"
fi
grep -E 'missing:|setup: ' "$root.missing" || die "it named nothing: see $root.missing"

# Debian's names; a release that has another clang has it without the number too.
wanted=(build-essential pkg-config clang-19 libclang-19-dev libelf-dev zlib1g-dev python3-venv)
# A mirror may be a snapshot, whose Release file is of its day.
within apt-get -q -o Acquire::Check-Valid-Until=false update >>"$root.log" 2>&1 || die "apt-get update failed: see $root.log"
if ! within apt-cache show clang-19 >/dev/null 2>&1; then
	wanted=("${wanted[@]/clang-19/clang}")
	wanted=("${wanted[@]/libclang-19-dev/libclang-dev}")
	clang=clang
fi
say "installing ${wanted[*]}"
within apt-get -q install -y --no-install-recommends "${wanted[@]}" >>"$root.log" 2>&1 || die "see $root.log"

say "make build, make install:"
within make -C /src build >"$root.build" 2>&1 || die "make build failed: see $root.build"
grep -E 'missing:|setup: ' "$root.build" || true
within make -C /src install DESTDIR=/installed >>"$root.build" 2>&1 || die "make install failed: see $root.build"
within /installed/usr/local/bin/scx_gpuaware --version
# shellcheck disable=SC2016 # the root's shell expands it
within sh -c '. /etc/os-release; echo "built on $PRETTY_NAME with $($BPF_CLANG --version | head -n 1)"'
