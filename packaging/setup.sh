#!/usr/bin/env bash
# Takes a Debian 12 or 13 machine with Rust and root to a state in which `make demo` and
# `make test` work. Idempotent: it looks before it installs, and says what each thing is for.
# On another system it installs no package: it names what is missing, and goes on if the build needs
# none of it. Nothing is added to the system's apt sources.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/scx_gpuaware
venv=$cache/venv
cuda=$cache/cuda
virtiofsd=/usr/libexec/virtiofsd
# Pinned because the lab drives their command lines; bump on purpose, not by accident.
virtme_ng_version=1.42
virtiofsd_version=1.14.0
cuda_version=13
cargo_deb_version=3.8.0

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Debian's package: what it is for
to_build=(
	"build-essential: compiles the emulated libcuda and links Rust"
	"pkg-config: finds libelf and zlib"
	"clang-19: compiles BPF (scx needs clang >= 18)"
	"libclang-19-dev: bindgen reads bpf/intf.h with it"
	"libelf-dev: libbpf"
	"zlib1g-dev: libbpf"
	"python3-venv: a place of their own for virtme-ng and nvcc"
)
to_test=(
	"clang-format-19: make lint"
	"libseccomp-dev: virtiofsd, the lab's file sharing"
	"libcap-ng-dev: virtiofsd"
	"python3-jsonschema: tries the JSON Schema of policies in the tests"
	"kmod: modules of the lab's kernel"
	"file: tells the version of the lab's kernel"
	"iproute2: loopback in the lab"
	"tmux: a terminal for the test of top"
	"systemd: runs the package's service in the lab"
	"bpftool: what BPF programs cost, in matrices that ask for it"
	"stress-ng: the cpu neighbour"
	"iperf3: the network neighbour"
	"fio: the disk neighbour"
	"rt-tests: hackbench, a neighbour of short messages"
	"shellcheck: make lint"
	"strace: counts system calls in a test"
)

# A distribution's own cargo does not read rust-toolchain.toml.
need_cargo() {
	command -v cargo >/dev/null || die "cargo not found: install Rust (https://rustup.rs), then run make setup again"
	local wanted found
	wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "${0%/*}/../Cargo.toml")
	found=$(cargo --version | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
	[ -z "$found" ] || printf '%s\n' "$wanted" "$found" | sort -C -V ||
		die "cargo $found is too old: install Rust $wanted or newer (https://rustup.rs), then run make setup again"
}

debian_release() {
	# shellcheck disable=SC1090,SC1091
	. "${OS_RELEASE:-/etc/os-release}"
	case ${ID:-}:${VERSION_ID:-} in
	debian:12 | debian:13) printf '%s\n' "$VERSION_CODENAME" ;;
	*) return 1 ;;
	esac
}

missing_packages() {
	local entry
	for entry in "${to_build[@]}" "${to_test[@]}"; do
		dpkg-query -W -f '${db:Status-Status}' "${entry%%:*}" 2>/dev/null | grep -qx installed || printf '%s\n' "$entry"
	done
}

have() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null || return 1
	done
}

major_of() {
	{ "$@" --version 2>/dev/null || true; } | sed -n 's/.*version \([0-9][0-9]*\)\..*/\1/p' | head -n 1
}

# Whether this system has what Debian has in a package.
has() {
	local major
	case $1 in
	build-essential) have cc c++ ;;
	clang-19)
		major=$(major_of "${BPF_CLANG:-clang-19}")
		[ "${major:-0}" -ge 18 ]
		;;
	libclang-19-dev)
		[ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib*/libclang*.so*' >/dev/null ||
			compgen -G '/usr/lib*/*/libclang*.so*' >/dev/null || compgen -G '/usr/lib/llvm*/lib*/libclang*.so*' >/dev/null
		;;
	libelf-dev) pkg-config --exists libelf &>/dev/null ;;
	zlib1g-dev) pkg-config --exists zlib &>/dev/null ;;
	python3-venv) python3 -c 'import ensurepip, venv' &>/dev/null ;;
	python3-jsonschema) python3 -c 'import jsonschema' &>/dev/null ;;
	libseccomp-dev | libcap-ng-dev) true ;; # to build virtiofsd, which is looked for itself
	virtiofsd) have virtiofsd || [ -x "$virtiofsd" ] || [ -x /usr/lib/virtiofsd ] || [ -x /usr/lib/qemu/virtiofsd ] ;;
	qemu-system-x86)
		major=$(major_of qemu-system-x86_64)
		[ "${major:-0}" -ge 9 ]
		;;
	kmod) have modprobe ;;
	iproute2) have ip ;;
	systemd) [ -x /usr/lib/systemd/systemd ] || [ -x /lib/systemd/systemd ] ;;
	rt-tests) have hackbench ;;
	prometheus) have promtool ;;
	apt) have apt-get ;;
	*) have "$1" ;; # the program has the package's name
	esac
}

# Prints those that this system does not have; fails if there are any.
print_missing() {
	local entry missing=0
	for entry in "$@"; do
		if ! has "${entry%%:*}"; then
			printf '  missing: %s\n' "$entry"
			missing=1
		fi
	done
	return $missing
}

# The names of packages are Debian's: what has the same elsewhere is the user's to know.
elsewhere() {
	local lab=(
		"qemu-system-x86: the lab's machine, version 9 or newer"
		"virtiofsd: shares this machine's files with the lab"
		"apt: fetches the lab's kernel from a Debian mirror; without one give lab and run --kernel PATH"
		"prometheus: promtool checks the metrics in the tests"
	)
	say "this is not Debian 12 or 13: no package is installed; names below are those of Debian's packages"
	if ! print_missing "${to_build[@]}"; then
		local clang hint="BPF_CLANG may name a clang >= 18"
		clang=$(major_of clang)
		has clang-19 || [ "${clang:-0}" -lt 18 ] ||
			hint="export BPF_CLANG=clang takes the clang $clang that is here"
		die "make build needs these: install them ($hint), then run make setup again"
	fi
	if print_missing "${to_test[@]}" "${lab[@]}"; then
		install_virtme_ng
		install_cargo_deb
	else
		say "make build, make peers and make install do without these; make demo, make test and make lint do not"
	fi
}

# apt with one more suite, in a list of its own: the machine's sources stay as they are. The
# mirror is the one that the machine already uses for Debian.
apt_with_suite() {
	local suite=$1 dir=$cache/apt/$1
	shift
	mkdir -p "$dir/lists/partial"
	local mirror
	# shellcheck disable=SC2016 # apt expands it
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
	[ -n "$mirror" ] || die "no Debian mirror among this machine's apt sources (apt-get indextargets lists none)"
	{
		cat /etc/apt/sources.list 2>/dev/null || true
		printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite"
	} >"$dir/sources.list"
	apt-get -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::State::lists="$dir/lists" "$@"
}

as_root_or_die() {
	[ "$(id -u)" = 0 ] || die "$1 needs root: run make setup as root (or sudo -E make setup)"
}

install_packages() {
	local -a missing names
	mapfile -t missing < <(missing_packages)
	[ ${#missing[@]} -gt 0 ] || return 0
	as_root_or_die "installing packages"
	say "installing ${#missing[@]} Debian packages:"
	printf '  %s\n' "${missing[@]}"
	names=("${missing[@]%%:*}")
	apt-get -q update
	if ! apt-cache show clang-19 >/dev/null 2>&1; then
		die "clang-19 is not in this machine's apt sources: enable the release's main and updates suites"
	fi
	DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${names[@]}"
}

# QEMU 7.2 (Debian 12) panicked guests under multi-threaded TCG; 10.0 did not.
install_qemu() {
	local release=$1 major
	major=$(major_of qemu-system-x86_64)
	[ "${major:-0}" -ge 9 ] && return 0
	as_root_or_die "installing QEMU"
	export DEBIAN_FRONTEND=noninteractive
	if [ "$release" = bookworm ]; then
		say "installing qemu-system-x86 from bookworm-backports: the lab's machine (7.2 is too old)"
		apt_with_suite bookworm-backports update
		apt_with_suite bookworm-backports install -y --no-install-recommends -t bookworm-backports qemu-system-x86
	else
		say "installing qemu-system-x86: the lab's machine"
		apt-get -q update
		apt-get -q install -y --no-install-recommends qemu-system-x86
	fi
}

install_virtiofsd() {
	local release=$1
	[ -x "$virtiofsd" ] && return 0
	as_root_or_die "installing virtiofsd"
	if [ "$release" = trixie ]; then
		say "installing virtiofsd: shares this machine's files with the lab"
		DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends virtiofsd
	else
		say "building virtiofsd $virtiofsd_version with cargo (Debian 12 has none): shares this machine's files with the lab"
		# Its profile has optimisation at link time, which the lab does not need.
		CARGO_PROFILE_RELEASE_LTO=off \
			cargo install --quiet --locked --root "$cache/virtiofsd" --version "$virtiofsd_version" virtiofsd
		install -D -m 755 "$cache/virtiofsd/bin/virtiofsd" "$virtiofsd"
	fi
}

# into_venv WORDS...: pip's install, in a place of its own.
into_venv() {
	[ -x "$venv/bin/python" ] || /usr/bin/python3 -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_virtme_ng() {
	[ ! -d "$(echo "$venv"/lib/python3*/site-packages/virtme_ng-"$virtme_ng_version".dist-info)" ] || return 0
	say "installing virtme-ng $virtme_ng_version into $venv: boots the lab"
	into_venv "virtme-ng==$virtme_ng_version"
}

install_nvcc() {
	[ ! -x "$cuda/nvidia/cu$cuda_version/bin/nvcc" ] || return 0
	say "installing nvcc $cuda_version into $cuda (350 MB): compiles the CUDA workload"
	rm -rf "$cuda"
	into_venv --no-deps --target "$cuda" \
		"nvidia-cuda-nvcc==$cuda_version.*" "nvidia-cuda-runtime==$cuda_version.*" \
		"nvidia-cuda-crt==$cuda_version.*" "nvidia-nvvm==$cuda_version.*" "nvidia-cuda-cccl==$cuda_version.*"
}

# The package would start a server and is five times as large as the one program of it.
install_promtool() {
	[ ! -x "$cache/bin/promtool" ] || return 0
	command -v promtool >/dev/null && return 0
	say "fetching promtool into $cache/bin (19 MB): a test checks the metrics with it"
	local folder
	folder=$(mktemp -d)
	if ! (cd "$folder" && apt-get -q download prometheus && dpkg-deb -x prometheus_*.deb .); then
		rm -rf "$folder"
		die "cannot fetch the Debian package prometheus from this machine's apt sources"
	fi
	install -D -m 755 "$folder/usr/bin/promtool" "$cache/bin/promtool"
	rm -rf "$folder"
}

install_cargo_deb() {
	local program=$cache/cargo-deb/bin/cargo-deb
	[ "$("$program" --version 2>/dev/null)" != "cargo-deb $cargo_deb_version" ] || return 0
	say "building cargo-deb $cargo_deb_version with cargo (a minute on two cores): makes the Debian package"
	# In its debug profile what compresses is optimised all the same.
	CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug --quiet --locked --root "$cache/cargo-deb" --version "$cargo_deb_version" cargo-deb
}

# The guest mounts its own modules there.
make_modules_folder() {
	[ -d /lib/modules ] && return 0
	as_root_or_die "making /lib/modules"
	say "making /lib/modules: where the lab's guest mounts its modules"
	install -d /lib/modules
}

main() {
	need_cargo
	local release
	mkdir -p "$cache"
	if release=$(debian_release); then
		install_packages
		# It compiles while others are fetched and unpacked.
		install_cargo_deb &
		local cargo_deb=$!
		install_qemu "$release"
		install_virtiofsd "$release"
		install_virtme_ng
		install_nvcc
		install_promtool
		make_modules_folder
		wait $cargo_deb
	else
		elsewhere
		install_nvcc
	fi
	say "ready (cache: $cache)"
}

main
