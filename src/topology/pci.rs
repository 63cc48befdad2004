// SPDX-License-Identifier: GPL-2.0-only
//! GPUs and network cards on PCI, and which node they hang on.

use std::path::Path;

use crate::policy::cpuset::CpuSet;

use super::{Topology, intersection, sysfs};

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
const INTEL: u32 = 0x8086;

/// Base class and subclass, the upper 16 of PCI's 24 bits.
const CLASS_ETHERNET: u32 = 0x0200;
const CLASS_INFINIBAND: u32 = 0x0207;
/// The base class of displays: VGA, 3D (NVIDIA's data-centre GPUs), other.
const BASE_CLASS_DISPLAY: u32 = 0x03;
/// AMD's Instinct MI300 calls itself so. Intel's NPUs do too and are no GPUs.
const CLASS_ACCELERATOR: u32 = 0x1200;

/// A PCI device that matters to the choice of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Domain, bus, device and function: `0000:17:00.0`.
    pub address: String,
    /// PCI vendor number.
    pub vendor: u32,
    /// PCI device number.
    pub device: u32,
    /// NUMA node, where firmware says.
    pub node: Option<u32>,
    /// CPUs that the kernel calls local: all, where firmware does not say.
    pub local_cpus: CpuSet,
    /// Network interfaces; none for a GPU.
    pub interfaces: Vec<String>,
}

/// The devices of a machine, by ascending address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Display and compute devices of NVIDIA, AMD and Intel: not the server's own VGA chip.
    pub gpus: Vec<PciDevice>,
    /// Ethernet and InfiniBand cards that have a link.
    pub nics: Vec<PciDevice>,
}

impl Devices {
    /// Reads `root/bus/pci/devices`. Without PCI there are none.
    pub fn read(root: &Path) -> Self {
        let dir = root.join("bus/pci/devices");
        let mut devices = Self::default();
        for address in sysfs::entries(&dir) {
            let folder = dir.join(&address);
            let (Some(class), Some(vendor)) = (
                sysfs::hex(&folder.join("class")),
                sysfs::hex(&folder.join("vendor")),
            ) else {
                continue;
            };
            if is_gpu(class >> 8, vendor) {
                devices
                    .gpus
                    .push(device(&folder, address, vendor, Vec::new()));
            } else if matches!(class >> 8, CLASS_ETHERNET | CLASS_INFINIBAND) && has_link(&folder) {
                let interfaces = interfaces(&folder);
                devices
                    .nics
                    .push(device(&folder, address, vendor, interfaces));
            }
        }
        devices
    }
}

impl PciDevice {
    /// The node that the device is near: its own, or that of the CPUs that are called local, if
    /// these are not simply all.
    pub fn near_node(&self, topology: &Topology) -> Option<u32> {
        let local = intersection(&self.local_cpus, &topology.online());
        let told_by_cpus = || {
            (local.len() < topology.cpus.len())
                .then(|| local.iter().next())
                .flatten()
                .and_then(|cpu| topology.cpu(cpu))
                .map(|cpu| cpu.node)
        };
        self.node.or_else(told_by_cpus)
    }

    /// Who made it, as far as this program has a word for it.
    pub fn vendor_name(&self) -> &'static str {
        match self.vendor {
            NVIDIA => "NVIDIA",
            AMD => "AMD",
            INTEL => "Intel",
            0x15b3 => "Mellanox",
            0x14e4 => "Broadcom",
            0x1af4 => "virtio",
            _ => "other",
        }
    }
}

/// N of the `/dev/nvidiaN` of the GPU at `address`, if NVIDIA's driver has it. `root` is `/`, or what stands for it.
pub fn nvidia_minor(root: &Path, address: &str) -> Option<u32> {
    let file = root.join("proc/driver/nvidia/gpus").join(address);
    let text = sysfs::text(&file.join("information"))?;
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("Device Minor:"))?;
    number.trim().parse().ok()
}

fn is_gpu(class: u32, vendor: u32) -> bool {
    match vendor {
        NVIDIA | INTEL => class >> 8 == BASE_CLASS_DISPLAY,
        AMD => class >> 8 == BASE_CLASS_DISPLAY || class == CLASS_ACCELERATOR,
        _ => false,
    }
}

fn device(folder: &Path, address: String, vendor: u32, interfaces: Vec<String>) -> PciDevice {
    PciDevice {
        address,
        vendor,
        device: sysfs::hex(&folder.join("device")).unwrap_or(0),
        // -1 where firmware does not say: no u32.
        node: sysfs::number(&folder.join("numa_node")),
        local_cpus: sysfs::list(&folder.join("local_cpulist")).unwrap_or_default(),
        interfaces,
    }
}

/// Interfaces hang below the card, or below its virtio device.
fn net_folders(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let virtio = sysfs::entries(folder)
        .into_iter()
        .filter(|name| name.starts_with("virtio"))
        .map(|name| folder.join(name).join("net"))
        .collect::<Vec<_>>();
    std::iter::once(folder.join("net")).chain(virtio)
}

fn interfaces(folder: &Path) -> Vec<String> {
    net_folders(folder)
        .flat_map(|net| sysfs::entries(&net))
        .collect()
}

/// A cable that carries something: Ethernet and IPoIB say so in `carrier`, plain InfiniBand in the
/// state of a port.
fn has_link(folder: &Path) -> bool {
    let carrier = net_folders(folder).any(|net| {
        sysfs::entries(&net)
            .iter()
            .any(|name| sysfs::number(&net.join(name).join("carrier")) == Some(1))
    });
    carrier || has_active_port(&folder.join("infiniband"))
}

fn has_active_port(infiniband: &Path) -> bool {
    sysfs::entries(infiniband).iter().any(|name| {
        let ports = infiniband.join(name).join("ports");
        sysfs::entries(&ports).iter().any(|port| {
            sysfs::text(&ports.join(port).join("state"))
                .is_some_and(|state| state.starts_with("4:"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, address: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.join("bus/pci/devices").join(address).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    fn addresses(devices: &[PciDevice]) -> Vec<&str> {
        devices.iter().map(|it| it.address.as_str()).collect()
    }

    #[test]
    fn gpus_are_told_from_vga_chips_sound_and_npus() {
        let root = tempfile::tempdir().unwrap();
        for (address, class, vendor) in [
            ("0000:00:0b.0", "0x120000", "0x8086"),
            ("0000:03:00.0", "0x030000", "0x1a03"),
            ("0000:17:00.0", "0x030200", "0x10de"),
            ("0000:17:00.1", "0x040300", "0x10de"),
            ("0000:31:00.0", "0x038000", "0x1002"),
            ("0000:75:00.0", "0x120000", "0x1002"),
        ] {
            write(
                root.path(),
                address,
                &[("class", class), ("vendor", vendor)],
            );
        }
        let devices = Devices::read(root.path());
        let expected = ["0000:17:00.0", "0000:31:00.0", "0000:75:00.0"];
        assert_eq!(addresses(&devices.gpus), expected);
        assert!(devices.nics.is_empty());
    }

    #[test]
    fn network_cards_count_when_they_have_a_link() {
        let root = tempfile::tempdir().unwrap();
        let ethernet = [("class", "0x020000"), ("vendor", "0x15b3")];
        let infiniband = [("class", "0x020700"), ("vendor", "0x15b3")];
        write(root.path(), "0000:01:00.0", &ethernet);
        write(root.path(), "0000:01:00.0", &[("net/eth0/carrier", "0")]);
        write(root.path(), "0000:02:00.0", &ethernet);
        write(root.path(), "0000:02:00.0", &[("net/eth1/carrier", "1")]);
        write(root.path(), "0000:03:00.0", &ethernet);
        write(
            root.path(),
            "0000:03:00.0",
            &[("virtio2/net/eth2/carrier", "1")],
        );
        write(root.path(), "0000:04:00.0", &infiniband);
        let port = "infiniband/mlx5_0/ports/1/state";
        write(root.path(), "0000:04:00.0", &[(port, "4: ACTIVE")]);
        write(root.path(), "0000:05:00.0", &infiniband);
        write(root.path(), "0000:05:00.0", &[(port, "1: DOWN")]);
        let nics = Devices::read(root.path()).nics;
        let expected = ["0000:02:00.0", "0000:03:00.0", "0000:04:00.0"];
        assert_eq!(addresses(&nics), expected);
        assert_eq!(nics[1].interfaces, ["eth2"]);
    }

    #[test]
    fn a_machine_without_pci_has_no_devices() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Devices::read(root.path()), Devices::default());
    }
}
