#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs, runs, upgrades, removes and purges the Debian package under a systemd of its own, on an overlay of this
# machine's files that is gone afterwards. As root, on a sched_ext kernel that nobody schedules on:
#   gpuaware-bench lab -- packaging/try-deb.sh target/debian/scx-gpuaware_*.deb
set -euo pipefail

die() { printf 'try-deb: error: %s\n' "$*" >&2; exit 1; }
say() { printf 'try-deb: %3d s: %s\n' "$SECONDS" "$*"; }

[ $# -eq 1 ] || { echo "usage: try-deb.sh FILE.deb" >&2; exit 2; }
deb=$(realpath "$1")
repository=$(realpath "$(dirname "$0")/..")
base=/mnt
root=$base/root
policy=/etc/scx_gpuaware/policy.toml
unit=scx_gpuaware.service
init=

if [ -z "${TRY_DEB_INSIDE:-}" ]; then
	[ "$(id -u)" = 0 ] || die "needs root"
	[ "$(cat /sys/kernel/sched_ext/state 2>/dev/null)" = disabled ] ||
		die "needs a sched_ext kernel without a scheduler: gpuaware-bench lab -- $0 $*"
	# All mounts end with this namespace.
	TRY_DEB_INSIDE=1 exec unshare --mount --propagation private "$0" "$@"
fi

overlay() {
	mount -t tmpfs tmpfs "$base"
	mkdir "$base/upper" "$base/work" "$root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"
	local folder
	for folder in sys dev boot; do mount --rbind "/$folder" "$root/$folder"; done
	mount -t tmpfs tmpfs "$root/run"
	mkdir "$root/run/old" "$root/run/lab"
	# This repository may be below /tmp, of which the launcher has another one, or on another file system.
	mount --bind "$repository/target/lab" "$root/run/lab"
	# Images for containers forbid packages to touch services.
	rm -f "$root/usr/sbin/policy-rc.d"
	# Of the boot of this machine nothing is wanted but its log.
	rm -rf "$root"/etc/systemd/system/*.wants
	local wanted
	for wanted in /lib/systemd/system/{sysinit,sockets,timers}.target.wants/*; do
		case ${wanted##*/} in
		systemd-journald.* | systemd-journald-dev-log.socket) ;;
		*) ln -sf /dev/null "$root/etc/systemd/system/${wanted##*/}" ;;
		esac
	done
}

# systemd insists on being process 1.
boot() {
	# shellcheck disable=SC2016 # for the inner shell
	unshare --mount --uts --ipc --pid --fork --kill-child sh -c '
		cd "$1" && mount -t proc proc proc && pivot_root . run/old && umount -l /run/old && rmdir /run/old &&
		exec env -i container=try-deb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			/lib/systemd/systemd --unit=basic.target --log-target=journal' sh "$root" >/dev/null 2>&1 &
	local namespace=$!
	trap 'end' EXIT
	until init=$(cat "/proc/$namespace/task/$namespace/children" 2>/dev/null) && [ -n "$init" ]; do sleep 0.1; done
	init=${init% }
	wait_for 60 "systemd" inside systemctl is-active --quiet basic.target
}

end() {
	local code=$?
	if [ "$code" != 0 ]; then
		inside journalctl --no-pager --quiet --output=cat --unit="$unit" --unit=scx.service --unit=init.scope >&2 || true
		# Puts interrupts back, which are not this namespace's alone.
		inside systemctl stop "$unit" >/dev/null || true
	fi
	kill -KILL "$init" 2>/dev/null || true
	wait
	find /sys/fs/cgroup/init.scope /sys/fs/cgroup/system.slice /sys/fs/cgroup/user.slice -depth -type d \
		-exec rmdir {} + 2>/dev/null || true
	exit "$code"
}

inside() {
	nsenter --target "$init" --mount --uts --ipc --pid \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@" 2>&1
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || die "$what: not in time ($*)"
		sleep 0.2
	done
}

dpkg_() { inside dpkg --no-triggers "$@" || die "dpkg $* failed"; }
version() { inside dpkg-query -W -f "\${Version}" scx-gpuaware; }
is_loaded() { grep -q '^gpuaware' /sys/kernel/sched_ext/root/ops 2>/dev/null; }
is_unloaded() { [ "$(cat /sys/kernel/sched_ext/state)" = disabled ]; }
log() { inside journalctl --no-pager --quiet --output=cat --unit="$unit"; }
says() { log | grep -- "$1" >/dev/null; }
# An operator who starts it four times a minute has to say so; see StartLimitBurst.
again() {
	# systemd may have forgotten the unit, and its starts with it.
	inside systemctl reset-failed "$unit" >/dev/null || true
	inside systemctl "$1" "$unit"
}
main_pid() { inside systemctl show --property=MainPID --value "$unit"; }
runs_anew() { is_loaded && [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ]; }

# What this machine has not, but for the books that dpkg keeps of every package that ever was, and systemd's of others.
added() {
	(
		cd "$base/upper"
		find . -mindepth 1 | while read -r path; do [ -e "/$path" ] || printf '%s\n' "$path"; done
		cd "$root"
		find run -name '*scx*' -printf './%p\n'
	) | grep -v -e '^\./var/lib/dpkg/' -e '^\./var/log/' -e '^\./var/cache/' |
		awk '!/^\.\/var\/lib\/systemd\// || /scx/' | sort
}

# Interrupts are the machine's, whatever the mounts.
affinities() { grep -H . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity; }
pins() { find /sys/fs/bpf -path '*gpuaware*'; }

# The same files as an older version, whose policy has one line more.
make_older() {
	local folder=$base/older
	dpkg-deb --raw-extract "$deb" "$folder"
	sed -i 's/^Version: .*/Version: 0.0.1-1/' "$folder/DEBIAN/control"
	echo '# of an older version' >>"$folder$policy"
	dpkg-deb --root-owner-group -Znone --build "$folder" "$root/run/older.deb" >/dev/null
	cp "$deb" "$root/run/newer.deb"
}

install() {
	dpkg_ -i /run/older.deb >/dev/null
	say "installed $(version)"
	local file
	for file in /usr/bin/scx_gpuaware /usr/share/man/man1/scx_gpuaware.1.gz \
		/usr/share/bash-completion/completions/scx_gpuaware /usr/share/zsh/vendor-completions/_scx_gpuaware \
		/usr/share/fish/vendor_completions.d/scx_gpuaware.fish; do
		[ -s "$root$file" ] || die "$file is missing"
	done
	inside systemd-analyze verify --man=no "/lib/systemd/system/$unit" | grep -e "$unit" && die "systemd-analyze verify"
	[ "$(inside systemctl is-enabled "$unit")" = disabled ] ||
		die "installing has enabled the service: that is the operator's to decide"
	is_unloaded || die "installing has loaded a scheduler"
}

# What of a policy and of the options hardening could forbid.
configure() {
	# The file ends within [guard].
	printf '%s\n' 'hint_gid = 4' '[[pin]]' 'match = { comm = "sleep" }' 'cpus = "0"' >>"$root$policy"
	echo 'SCX_FLAGS="--metrics 127.0.0.1:9819 --log-format json"' >>"$root/etc/default/scx_gpuaware"
	inside systemd-run --quiet --unit=pinned sleep 10000
}

check_configured() {
	local hints=/sys/fs/bpf/scx_gpuaware/hints pinned
	[ "$(stat -c '%g %a' "$hints")" = "4 660" ] || die "guard.hint_gid: $(stat -c '%g %a' "$hints")"
	pinned=$(inside systemctl show --property=MainPID --value pinned)
	wait_for 20 "a pinned thread" inside grep -q '^Cpus_allowed_list:[[:space:]]*0$' "/proc/$pinned/status"
	inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/9819 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3' |
		grep '^scx_gpuaware_policy_generation 1' >/dev/null || die "--metrics: no page"
	say "group 4 may hint, a thread is pinned, metrics are served"
}

# Everything else that hardening could forbid: BPF, probes, interrupts, another process's files.
run() {
	# Before the scheduler, which looks around when it starts: later it hears of programs from the kernel, by numbers
	# that mean nothing in this PID namespace.
	inside systemd-run --quiet --unit=launcher --property=PrivateTmp=yes --setenv=LD_LIBRARY_PATH=/run/lab \
		/run/lab/gpu_launch --profile eager --duration 600
	inside systemctl enable --quiet --now "$unit" || die "the service does not start"
	wait_for 40 "the scheduler" is_loaded
	say "runs"
	check_configured
	wait_for 30 "the mark of a launcher" inside sh -c 'scx_gpuaware marks | grep -q uprobe'
	inside systemctl stop launcher
	say "found a launcher that has mounts of its own"
	sed -i 's/^steer = .*/steer = true/' "$root$policy"
	# Which of a machine's interrupts can be moved is its own business, and the kernel may refuse all of them.
	wait_for 20 "steered interrupts" says 'irq.steer: false -> true'
	inside systemctl reload "$unit" || die "it does not reload"
	wait_for 20 "an answer to the reload" says 'reread, generation'
	say "reloaded, and steers interrupts"
	local pid
	pid=$(main_pid)
	inside systemctl kill --signal=KILL "$unit"
	wait_for 40 "a new start after a kill" runs_anew "$pid"
	say "killed, and was started again"
	# Interrupts of queues that drivers manage can be moved by nobody.
	! log | grep -e '"level":"warn"' -e '"level":"error"' | grep -v 'interrupts that cannot be moved' || die "it complains"
}

upgrade() {
	local pid
	pid=$(main_pid)
	dpkg_ --force-confdef --force-confold -i /run/newer.deb >/dev/null
	[ "$(version)" = "$(dpkg-deb --field "$deb" Version)" ] || die "the upgrade left $(version)"
	grep -q '^steer = true' "$root$policy" || die "the upgrade has lost the operator's policy"
	[ "$(inside systemctl is-enabled "$unit")" = enabled ] || die "the upgrade has disabled the service"
	wait_for 40 "a new start after the upgrade" runs_anew "$pid"
	say "upgraded to $(version), which runs"
}

# As the packages of scx have it: one service for all schedulers.
run_under_scx() {
	cat >"$root/etc/systemd/system/scx.service" <<-'EOF'
		[Service]
		EnvironmentFile=/etc/default/scx
		ExecStart=/bin/bash -c 'exec ${SCX_SCHEDULER_OVERRIDE:-$SCX_SCHEDULER} ${SCX_FLAGS_OVERRIDE:-$SCX_FLAGS} '
	EOF
	printf '%s\n' 'SCX_SCHEDULER=scx_gpuaware' "SCX_FLAGS='--policy $policy'" >"$root/etc/default/scx"
	inside systemctl daemon-reload
	inside systemctl start scx.service
	[ "$(inside systemctl is-active "$unit")" = inactive ] || die "two services of schedulers run"
	wait_for 40 "the scheduler under scx.service" is_loaded
	again start
	[ "$(inside systemctl is-active scx.service)" != active ] || die "two services of schedulers run"
	wait_for 40 "the scheduler" is_loaded
	rm "$root/etc/systemd/system/scx.service" "$root/etc/default/scx"
	say "ran under scx.service"
}

refuse_a_bad_policy() {
	cp "$root$policy" "$base/policy.toml"
	echo 'nonsense = 1' >"$root$policy"
	again restart
	wait_for 20 "the end" inside systemctl is-failed "$unit"
	sleep 2
	[ "$(inside systemctl show --property=NRestarts --value "$unit")" = 0 ] || die "it insists on a bad policy"
	says 'nonsense: unknown key' || die "the log does not say what is wrong with the policy"
	cp "$base/policy.toml" "$root$policy"
	again start
	wait_for 40 "the scheduler" is_loaded
	say "ended for good with a bad policy, and came back with a good one"
}

# Whoever kills it again and again: the kernel's scheduler stays, until the operator starts ours.
exceed_the_limit() {
	local kills=0
	until inside systemctl is-failed --quiet "$unit"; do
		[ "$kills" -lt 8 ] || die "started again after $kills kills"
		if [ "$(main_pid)" != 0 ]; then
			inside systemctl kill --signal=KILL "$unit" || true
			kills=$((kills + 1))
		fi
		sleep 0.5
	done
	is_unloaded || die "failed, and loaded"
	says 'repeated too quickly' || die "it has failed for another reason"
	say "killed $kills times, was not started again"
	again start
	wait_for 40 "the scheduler" is_loaded
}

# By hand, as nobody cleans up after that.
kill_one() {
	inside systemctl disable --quiet --now "$unit"
	inside systemctl stop pinned
	[ -z "$(pins)" ] || die "stopping has left $(pins)"
	nsenter --target "$init" --mount --uts --ipc --pid /usr/bin/scx_gpuaware >/dev/null 2>&1 &
	local started=$!
	wait_for 40 "the scheduler" is_loaded
	inside kill -KILL "$(inside pidof scx_gpuaware)"
	wait "$started" || true
	wait_for 20 "the end" is_unloaded
	[ -n "$(pins)" ] || die "nothing is pinned: then nothing can be left"
}

remove() {
	dpkg_ -r scx-gpuaware >/dev/null
	is_unloaded || die "removing has left the scheduler loaded"
	[ ! -e "$root/usr/bin/scx_gpuaware" ] || die "removing has left the program"
	grep -q '^steer = true' "$root$policy" || die "removing has deleted the operator's policy"
	[ -z "$(pins)" ] || die "removing has left $(pins)"
	say "removed"
	dpkg_ -P scx-gpuaware >/dev/null
	local left
	left=$(comm -13 "$base/before" <(added))
	[ -z "$left" ] || die "purging has left"$'\n'"$left"
	diff "$base/affinities" <(affinities) || die "interrupts go elsewhere than before"
	say "purged, nothing is left"
}

overlay
boot
say "systemd runs"
make_older
added >"$base/before"
affinities >"$base/affinities"
install
configure
run
upgrade
run_under_scx
refuse_a_bad_policy
exceed_the_limit
kill_one
remove
