// SPDX-License-Identifier: GPL-2.0-only
//! From a `Lab` to virtme-run's command line. Pure: it looks at nothing and starts nothing.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::spec::Lab;
use crate::words::quote;

/// How the guest's CPUs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// KVM, with this value of QEMU's `-cpu`.
    Kvm(&'static str),
    /// QEMU's translator, one thread a virtual CPU.
    Emulation,
}

/// One character stream between the guest and this process, over a virtio serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Stdout,
    Stderr,
    /// Lines about the command's life, and the guest's sign that this process is still there.
    Status,
}

impl Port {
    pub const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::Status];

    /// The port's name in the guest (`/sys/class/virtio-ports/*/name`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "gpuaware.stdout",
            Self::Stderr => "gpuaware.stderr",
            Self::Status => "gpuaware.status",
        }
    }

    /// The socket on this machine that QEMU connects to.
    pub fn socket(self, dir: &Path) -> PathBuf {
        dir.join(self.name())
    }
}

/// Files of this run that the machine is made of.
#[derive(Debug)]
pub struct Parts<'a> {
    pub image: &'a Path,
    /// Given: an initramfs loads the drivers that the guest's root file system needs.
    pub busybox: Option<&'a Path>,
    /// Holds the sockets of the ports.
    pub dir: &'a Path,
    pub guest_script: &'a Path,
    pub disk: Option<&'a Path>,
    /// (path in the guest where virtme-ng mounts it, path on this machine)
    pub rw_mounts: &'a [(PathBuf, PathBuf)],
}

/// Whether the machine can be built: CPUs divide evenly over cores and nodes.
pub fn check(lab: &Lab) -> Result<()> {
    let Lab {
        cpus, numa_nodes, ..
    } = *lab;
    ensure!(
        cpus > 0 && numa_nodes > 0,
        "a machine needs a CPU and a NUMA node"
    );
    ensure!(
        !lab.smt || cpus % 2 == 0,
        "--smt needs an even number of CPUs, not {cpus}"
    );
    let unit = if lab.smt { 2 } else { 1 };
    ensure!(
        cpus % (numa_nodes * unit) == 0,
        "{cpus} CPUs cannot be split evenly over {numa_nodes} NUMA nodes{}",
        if lab.smt { " in whole cores" } else { "" }
    );
    ensure!(
        lab.gpu_node.is_none_or(|node| node < numa_nodes),
        "the GPU's node must be one of 0 to {}",
        numa_nodes - 1
    );
    ensure!(
        !lab.boot_args.iter().any(|arg| arg.contains('"')),
        "a kernel parameter must not contain a double quote"
    );
    Ok(())
}

/// The arguments of `virtme-run`.
pub fn arguments(lab: &Lab, accel: Accel, parts: &Parts) -> Vec<String> {
    let mods = if parts.busybox.is_some() {
        "auto"
    } else {
        "none"
    };
    let mut args = vec![
        "--kimg".to_owned(),
        text(parts.image),
        // Modules are the guest script's business if all that is needed to boot is built in: virtme-ng
        // would build an initramfs for them, which needs a static busybox.
        format!("--mods={mods}"),
        // One kind of machine for KVM and emulation: the devices below are PCI.
        "--disable-microvm".to_owned(),
        "--name=gpuaware-lab".to_owned(),
        "--user=root".to_owned(),
        format!("--memory={}M", lab.memory_mib),
        format!("--cpus={}", smp(lab)),
        // The console goes to virtme-run's stderr, where the session reads it.
        "--show-boot-console".to_owned(),
        format!("--script-sh=exec sh {}", quote(&text(parts.guest_script))),
    ];
    args.extend(
        parts
            .busybox
            .map(|file| format!("--busybox={}", text(file))),
    );
    if accel == Accel::Emulation {
        args.push("--disable-kvm".to_owned());
    }
    args.extend(numa(lab));
    for (guest, host) in parts.rw_mounts {
        args.push(format!("--rwdir={}={}", text(guest), text(host)));
    }
    args.extend(kernel_parameters(lab, accel).map(|word| format!("--kopt={word}")));
    // --qemu-opts takes all that follows.
    args.push("--qemu-opts".to_owned());
    args.extend(qemu_options(accel, parts));
    args.extend(lab.gpu_node.map(gpu).unwrap_or_default());
    args
}

/// Firmware tells the node of a PCI root only, so the device gets a root of its own.
fn gpu(node: usize) -> Vec<String> {
    let options = format!(
        "-machine q35 -device pxb-pcie,id=gpu-root,bus_nr=128,numa_node={node} \
         -device pcie-root-port,id=gpu-port,bus=gpu-root,chassis=1 \
         -device ati-vga,bus=gpu-port,romfile="
    );
    options.split(' ').map(str::to_owned).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// QEMU's -smp: one socket a NUMA node.
fn smp(lab: &Lab) -> String {
    let threads = if lab.smt { 2 } else { 1 };
    let sockets = lab.numa_nodes;
    let cores = lab.cpus / threads / sockets;
    format!(
        "{},sockets={sockets},cores={cores},threads={threads}",
        lab.cpus
    )
}

fn numa(lab: &Lab) -> Vec<String> {
    if lab.numa_nodes == 1 {
        return Vec::new();
    }
    let cpus = lab.cpus / lab.numa_nodes;
    let nodes = lab.numa_nodes as u64;
    (0..lab.numa_nodes)
        .map(|node| {
            // The first node takes what does not divide.
            let spare = if node == 0 { lab.memory_mib % nodes } else { 0 };
            let mib = lab.memory_mib / nodes + spare;
            format!(
                "--numa={mib}M,cpus={}-{}",
                node * cpus,
                (node + 1) * cpus - 1
            )
        })
        .collect()
}

fn kernel_parameters(lab: &Lab, accel: Accel) -> impl Iterator<Item = &str> {
    // The emulated TSC is the host's, one for all CPUs. The kernel compares it with the HPET, which QEMU's
    // main loop answers for when it gets to it, and gives the TSC up on a busy host: from then on reading the
    // clock is a system call, and a launcher that reads it is a fifth slower until the guest ends.
    // For the same reason the timer that it tries at boot may come too late, and it would give up.
    let emulated: &[&str] = match accel {
        Accel::Emulation => &["tsc=reliable", "no_timer_check"],
        Accel::Kvm(_) => &[],
    };
    // An oops ends the guest, so that it is reported as what it is and not as a time limit.
    ["loglevel=4", "oops=panic"]
        .into_iter()
        .chain(emulated.iter().copied())
        .chain(lab.boot_args.iter().map(String::as_str))
}

fn qemu_options(accel: Accel, parts: &Parts) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |flag: &str, value: String| options.extend([flag.to_owned(), value]);
    match accel {
        // virtme-ng has asked for `host`; the last one counts.
        Accel::Kvm(cpu) => add("-cpu", cpu.to_owned()),
        Accel::Emulation => {
            add("-accel", "tcg,thread=multi".to_owned());
            // For vcpus.rs, which finds threads by name.
            add("-name", "debug-threads=on".to_owned());
        }
    }
    // Every virtqueue is one more event that QEMU's main loop polls for, and that loop drives the
    // guest's timers. virtme-ng's serial devices have 64 queues each by default: 466 events made
    // one turn of the loop cost 140 us, 17 % of a core that the guest's CPUs lacked.
    add("-global", "virtio-serial-device.max_ports=4".to_owned());
    add("-global", "virtio-serial-pci.ioeventfd=off".to_owned());
    add("-device", "virtio-serial-pci,id=gpuaware".to_owned());
    for port in Port::ALL {
        let name = port.name();
        let id = name.replace('.', "-");
        let socket = qemu_value(&port.socket(parts.dir));
        add("-chardev", format!("socket,id={id},path={socket}"));
        add(
            "-device",
            format!("virtserialport,bus=gpuaware.0,name={name},chardev={id}"),
        );
    }
    if let Some(disk) = parts.disk {
        let file = qemu_value(disk);
        // Away from the main loop, which drives the guest's timers.
        add("-object", "iothread,id=disk".to_owned());
        // Flushes are not passed on: the disk is a load for the guest's CPUs, not for this machine's disk.
        add(
            "-drive",
            format!("if=none,id=scratch,format=raw,cache=unsafe,discard=unmap,file={file}"),
        );
        add(
            "-device",
            "virtio-blk-pci,drive=scratch,serial=scratch,iothread=disk".to_owned(),
        );
    }
    options
}

/// A path as the value of a QEMU option, where a comma separates.
fn qemu_value(path: &Path) -> String {
    text(path).replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(rw_mounts: &'a [(PathBuf, PathBuf)], disk: Option<&'a Path>) -> Parts<'a> {
        Parts {
            image: Path::new("/k/vmlinuz"),
            busybox: None,
            dir: Path::new("/t/a,b"),
            guest_script: Path::new("/t/it's here/guest.sh"),
            disk,
            rw_mounts,
        }
    }

    fn lab(cpus: usize, smt: bool, numa_nodes: usize) -> Lab {
        Lab {
            cpus,
            smt,
            numa_nodes,
            ..Lab::default()
        }
    }

    #[test]
    fn kvm_has_the_cpu_that_a_guest_booted_with() {
        let args = arguments(&lab(2, false, 1), Accel::Kvm("host,-x"), &parts(&[], None));
        let options = args.iter().position(|arg| arg == "--qemu-opts").unwrap();
        let cpu = args.iter().rposition(|arg| arg == "-cpu").unwrap();
        assert!(cpu > options && args[cpu + 1] == "host,-x", "{args:?}");
    }

    #[test]
    fn a_kernel_with_virtio_as_modules_gets_an_initramfs() {
        let none = arguments(&lab(2, false, 1), Accel::Kvm("host"), &parts(&[], None)).join(" ");
        assert!(
            none.contains("--mods=none") && !none.contains("busybox"),
            "{none}"
        );
        let parts = Parts {
            busybox: Some(Path::new("/k/busybox")),
            ..parts(&[], None)
        };
        let some = arguments(&lab(2, false, 1), Accel::Kvm("host"), &parts).join(" ");
        assert!(
            some.contains("--mods=auto") && some.contains("--busybox=/k/busybox"),
            "{some}"
        );
    }

    #[test]
    fn emulates_on_all_threads_when_kvm_does_not_work() {
        let args = arguments(&lab(2, false, 1), Accel::Emulation, &parts(&[], None)).join(" ");
        assert!(args.contains("--disable-kvm"), "{args}");
        assert!(args.contains("-accel tcg,thread=multi"), "{args}");
        let args = arguments(&lab(2, false, 1), Accel::Kvm("host"), &parts(&[], None)).join(" ");
        assert!(
            !args.contains("--disable-kvm") && !args.contains("tcg"),
            "{args}"
        );
    }

    #[test]
    fn puts_two_threads_on_a_core_with_smt() {
        assert_eq!(smp(&lab(4, true, 1)), "4,sockets=1,cores=2,threads=2");
        assert_eq!(smp(&lab(4, false, 1)), "4,sockets=1,cores=4,threads=1");
        assert_eq!(smp(&lab(8, true, 2)), "8,sockets=2,cores=2,threads=2");
    }

    #[test]
    fn splits_cpus_and_memory_over_numa_nodes() {
        let mut lab = lab(4, false, 2);
        lab.memory_mib = 4097;
        assert_eq!(
            numa(&lab),
            ["--numa=2049M,cpus=0-1", "--numa=2048M,cpus=2-3"]
        );
        lab.numa_nodes = 1;
        assert!(numa(&lab).is_empty());
    }

    #[test]
    fn puts_the_gpu_on_its_node() {
        let mut lab = lab(4, false, 2);
        let args = |lab: &Lab| arguments(lab, Accel::Emulation, &parts(&[], None)).join(" ");
        assert!(!args(&lab).contains("ati-vga"));
        lab.gpu_node = Some(1);
        assert!(args(&lab).contains("numa_node=1"), "{}", args(&lab));
        assert!(check(&lab).is_ok());
        lab.gpu_node = Some(2);
        assert!(check(&lab).is_err());
    }

    #[test]
    fn rejects_cpus_that_do_not_divide() {
        assert!(check(&lab(3, true, 1)).is_err());
        assert!(check(&lab(3, false, 2)).is_err());
        assert!(check(&lab(2, true, 2)).is_err());
        assert!(check(&lab(4, true, 2)).is_ok());
    }

    #[test]
    fn appends_the_callers_kernel_parameters_last() {
        let mut lab = lab(2, false, 1);
        lab.boot_args = vec!["loglevel=7".into(), "isolcpus=1".into()];
        let args = arguments(&lab, Accel::Kvm("host"), &parts(&[], None));
        let kopts: Vec<_> = args
            .iter()
            .filter_map(|a| a.strip_prefix("--kopt="))
            .collect();
        assert_eq!(
            kopts,
            ["loglevel=4", "oops=panic", "loglevel=7", "isolcpus=1"]
        );
        let emulated = arguments(&lab, Accel::Emulation, &parts(&[], None));
        for word in ["--kopt=tsc=reliable", "--kopt=no_timer_check"] {
            assert!(emulated.contains(&word.to_owned()), "{emulated:?}");
        }
    }

    #[test]
    fn quotes_paths_for_sh_and_for_qemu() {
        let args = arguments(
            &lab(1, false, 1),
            Accel::Kvm("host"),
            &parts(&[], Some(Path::new("/d,x"))),
        );
        assert!(args.contains(&r"--script-sh=exec sh '/t/it'\''s here/guest.sh'".to_owned()));
        assert!(
            args.iter()
                .any(|a| a.ends_with("path=/t/a,,b/gpuaware.status"))
        );
        assert!(args.iter().any(|a| a.ends_with("file=/d,,x")));
    }

    #[test]
    fn mounts_writable_directories_before_the_greedy_qemu_options() {
        let mounts = [(PathBuf::from("run/x/0"), PathBuf::from("/t/rw0"))];
        let args = arguments(&lab(1, false, 1), Accel::Kvm("host"), &parts(&mounts, None));
        let at = |word: &str| args.iter().position(|a| a == word).unwrap();
        assert!(at("--rwdir=run/x/0=/t/rw0") < at("--qemu-opts"));
    }
}
