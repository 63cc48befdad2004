// SPDX-License-Identifier: GPL-2.0-only
//! The script that sets the guest up and runs the command in it. Pure: text from facts.

use std::path::{Path, PathBuf};

use super::kernel::Kernel;
use super::machine::Port;
use super::spec::DiskDriver;
use crate::words::quote;

/// Environment variables of this process that the command sees.
const PASSED_ON: [&str; 13] = [
    "HOME",
    "PATH",
    "CI",
    "LANG",
    "LC_ALL",
    "TERM",
    "NO_COLOR",
    "COLUMNS",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    // Whose programs sudo's caller has: folders.rs.
    "SUDO_UID",
];

/// What the script is made of.
#[derive(Debug)]
pub struct Setup<'a> {
    pub command: &'a [String],
    pub env: &'a [(String, String)],
    pub working_dir: &'a Path,
    pub kernel: &'a Kernel,
    /// (where virtme-ng has mounted it, where it belongs)
    pub rw_mounts: &'a [(PathBuf, PathBuf)],
    /// Driver and size in MiB of the scratch disk.
    pub disk: Option<(DiskDriver, u64)>,
    /// Written to stdout and stderr after their last byte; letters, digits and dashes.
    pub end_mark: &'a str,
}

/// Whether a variable of this process is passed on.
pub fn passes_on(key: &str) -> bool {
    PASSED_ON.contains(&key) || (key.starts_with("GPUAWARE_") && !key.starts_with("GPUAWARE_LAB"))
}

/// The bytes that end a stream.
pub fn end_bytes(end_mark: &str) -> Vec<u8> {
    format!("\0{end_mark}\0").into_bytes()
}

/// The whole script, for a POSIX shell.
pub fn script(setup: &Setup) -> String {
    [ports(), file_systems(setup), devices(setup), command(setup)].concat()
}

/// File descriptors: 3 status, 4 stdout, 5 stderr. A port can be open once only.
fn ports() -> String {
    let [stdout, stderr, status] = Port::ALL.map(Port::name);
    format!(
        r#"#!/bin/sh
# Written by gpuaware-bench lab: sets the guest up and runs one command.
exec </dev/null
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The kernel names its ports while the first programs run already.
port() {{
	for try in $(seq 100); do
		for dir in /sys/class/virtio-ports/*; do
			name=
			[ ! -r "$dir/name" ] || read -r name <"$dir/name"
			[ "$name" != "$1" ] || {{ echo "/dev/${{dir##*/}}" && return; }}
		done
		sleep 0.1
	done
	echo "<3>gpuaware-bench lab: no serial port $1 after 10 s" >/dev/kmsg
}}
exec 3<>"$(port {status})" 4>"$(port {stdout})" 5>"$(port {stderr})"
# Written once the host's end is known to the kernel; a read would take it for closed until then.
echo started >&3
# The host holds the other end of 3: when it is gone, so is whoever wants this guest.
(cat <&3 >/dev/null; echo o >/proc/sysrq-trigger) &
fail() {{
	echo "error $*" >&3
	sleep 60
}}
must() {{
	said=$("$@" 2>&1) || fail "$*: $said"
}}
"#
    )
}

fn file_systems(setup: &Setup) -> String {
    let version = &setup.kernel.version;
    let mut text = format!(
        "must mount -t tmpfs lab /boot\nmust cp {} {}\n",
        path(&setup.kernel.config),
        quote(&format!("/boot/config-{version}"))
    );
    if let Some(modules) = &setup.kernel.modules {
        text += "must mount -t tmpfs lab /lib/modules\n";
        text += &format!(
            "must ln -s {} {}\n",
            path(modules),
            quote(&format!("/lib/modules/{version}"))
        );
    }
    // /tmp and /etc keep showing this machine's files; what is written stays in the guest's memory.
    text += r#"mkdir -p /run/gpuaware-lab
modprobe -q overlay
for dir in tmp etc; do
	layers=/run/gpuaware-lab/$dir
	mkdir -p "$layers/upper" "$layers/work"
	chmod --reference="/$dir" "$layers/upper"
	must mount -t overlay -o "lowerdir=/$dir,upperdir=$layers/upper,workdir=$layers/work" lab "/$dir"
done
mountpoint -q /sys/fs/bpf || must mount -t bpf bpf /sys/fs/bpf
mountpoint -q /sys/kernel/tracing || must mount -t tracefs tracefs /sys/kernel/tracing
mountpoint -q /sys/kernel/debug || must mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/fs/cgroup || must mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
"#;
    for (from, to) in setup.rw_mounts {
        let to = path(to);
        text += &format!("mkdir -p {to}\nmust mount --bind {} {to}\n", path(from));
    }
    text
}

fn devices(setup: &Setup) -> String {
    let mut text = "ip link set lo up\n".to_owned();
    match setup.disk {
        None => {}
        Some((DiskDriver::VirtioBlk, _)) => text += VIRTIO_DISK,
        Some((DiskDriver::NullBlk, mib)) => text += &null_disk(mib),
    }
    text
}

const VIRTIO_DISK: &str = r#"modprobe -q virtio_blk
for tries in 1 2 3 4 5 6 7 8 9 10; do
	for dir in /sys/block/*; do
		[ "$(cat "$dir/serial" 2>/dev/null)" != scratch ] || GPUAWARE_LAB_DISK=/dev/${dir##*/}
	done
	[ -z "${GPUAWARE_LAB_DISK:-}" ] || break
	sleep 0.1
done
[ -b "${GPUAWARE_LAB_DISK:-}" ] || fail "the scratch disk did not appear (module virtio_blk)"
export GPUAWARE_LAB_DISK
"#;

/// Made through configfs, because the module's own parameters know whole GiB only.
fn null_disk(mib: u64) -> String {
    format!(
        r#"modprobe -q null_blk nr_devices=0 || fail "the guest's kernel has no module null_blk"
mountpoint -q /sys/kernel/config || must mount -t configfs configfs /sys/kernel/config
nullb=/sys/kernel/config/nullb/scratch
must mkdir "$nullb"
echo {mib} >"$nullb/size" && echo 1 >"$nullb/memory_backed" && echo 1 >"$nullb/power" ||
	fail "the scratch disk cannot be switched on (module null_blk)"
export GPUAWARE_LAB_DISK="/dev/$([ -b /dev/scratch ] && echo scratch || echo "nullb$(cat "$nullb/index")")"
[ -b "$GPUAWARE_LAB_DISK" ] || fail "the scratch disk did not appear (module null_blk)"
"#
    )
}

fn command(setup: &Setup) -> String {
    // Kernel parameters that the kernel did not know end up in the environment of all.
    let mut text =
        "unset nr_open raid OLDPWD\nexport GPUAWARE_LAB=1 USER=root LOGNAME=root SHELL=/bin/bash\n"
            .to_owned();
    for (key, value) in setup.env {
        text += &format!("export {key}={}\n", quote(value));
    }
    let words: Vec<_> = setup.command.iter().map(|word| quote(word)).collect();
    let sync: String = setup
        .rw_mounts
        .iter()
        .map(|(_, dir)| format!("sync -f {}\n", path(dir)))
        .collect();
    text += &format!(
        "ulimit -n 1048576\nulimit -l unlimited\ncd {} || fail 'the working directory is not in the guest: '{0}\n",
        path(setup.working_dir)
    );
    text += "echo ready >&3\n";
    // exec: a word that is also a builtin of the shell's means the program.
    text += &format!(
        "(exec {}) >&4 2>&5 3>&- 4>&- 5>&-\ncode=$?\n{sync}",
        words.join(" ")
    );
    let mark = setup.end_mark;
    text += &format!(
        "printf '\\000{mark}\\000' >&4\nprintf '\\000{mark}\\000' >&5\necho \"exit $code\" >&3\n"
    );
    // The host ends the guest once it has all output.
    text += "sleep 60\n";
    text
}

fn path(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            version: "6.18.15+deb13-cloud-amd64".into(),
            image: "/k/vmlinuz".into(),
            config: "/k/config".into(),
            modules: Some("/k/lib/modules/6.18.15+deb13-cloud-amd64".into()),
            busybox: None,
        }
    }

    fn text(command: &[&str], env: &[(&str, &str)], working_dir: &str) -> String {
        let owned = |text: &&str| (*text).to_owned();
        let command: Vec<_> = command.iter().map(owned).collect();
        let env: Vec<_> = env.iter().map(|(k, v)| (owned(k), owned(v))).collect();
        script(&Setup {
            command: &command,
            env: &env,
            working_dir: Path::new(working_dir),
            kernel: &kernel(),
            rw_mounts: &[("/run/gpuaware-lab/rw/0".into(), "/data/it's here".into())],
            disk: Some((DiskDriver::VirtioBlk, 512)),
            end_mark: "end-1",
        })
    }

    #[test]
    fn is_a_script_that_sh_can_read() {
        let text = text(
            &["echo", "it's", "$HOME"],
            &[("A", "b 'c'\n$d")],
            "/work dir",
        );
        let status = Command::new("sh")
            .args(["-n", "-c", &text])
            .status()
            .unwrap();
        assert!(status.success());
    }

    #[test]
    fn keeps_words_and_values_as_they_are() {
        let text = text(&["echo", "it's", "$HOME"], &[("A", "$d")], "/w");
        assert!(
            text.contains(r"(exec 'echo' 'it'\''s' '$HOME') >&4 2>&5"),
            "{text}"
        );
        assert!(text.contains("export A='$d'\n"), "{text}");
    }

    #[test]
    fn puts_the_kernels_config_and_modules_where_they_are_looked_for() {
        let text = text(&["true"], &[], "/w");
        assert!(text.contains("'/boot/config-6.18.15+deb13-cloud-amd64'"));
        assert!(text.contains("'/lib/modules/6.18.15+deb13-cloud-amd64'"));
    }

    #[test]
    fn passes_on_the_harness_variables_but_not_the_labs_own() {
        assert!(passes_on("HOME") && passes_on("CI") && passes_on("GPUAWARE_REQUIRE"));
        // Else peers and vLLM of who calls sudo are found here and not there.
        assert!(passes_on("SUDO_UID"));
        assert!(
            !passes_on("GPUAWARE_LAB") && !passes_on("GPUAWARE_LAB_DISK") && !passes_on("TMPDIR")
        );
    }
}
