// SPDX-License-Identifier: GPL-2.0-only
//! Devices that a process may have open: those by which its launches are trusted, and those of GPUs, which say near
//! which memory it should run.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{major, minor};

use crate::policy::PathGlob;
use crate::proc::NVIDIA_MAJOR;
use crate::topology::{pci::nvidia_minor, sysfs};

/// As in `bpf/observe.bpf.h`.
const MOST: usize = 1024;
/// Bits of a minor number in a device number of the kernel.
const MINOR_BITS: u32 = 20;

/// The numbers, as the kernel has them, of the character devices that are there and match one of `globs`. The policy
/// has no wildcard in folders: one look at a folder for each glob.
pub fn find(globs: &[PathGlob]) -> BTreeSet<u32> {
    let matching = globs.iter().flat_map(|glob| {
        let folder = Path::new(glob.text()).parent();
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        let files = entries.into_iter().flatten().flatten();
        files.filter(|file| glob.matches(&file.path().to_string_lossy()))
    });
    let devices = matching.filter_map(|file| {
        let metadata = file.metadata().ok()?;
        let is_device = metadata.file_type().is_char_device();
        is_device.then(|| number(metadata.rdev()))
    });
    devices.take(MOST).collect()
}

fn number(device: u64) -> u32 {
    (major(device) << MINOR_BITS | minor(device)) as u32
}

/// The NUMA nodes of GPUs, where firmware says, by the number of their device, as the kernel has it: NVIDIA's
/// `/dev/nvidiaN`, and render nodes of all. `root` is `/`, or what stands for it.
pub fn gpu_nodes(root: &Path) -> BTreeMap<u32, Option<u32>> {
    let mut nodes = BTreeMap::new();
    let driver = root.join("proc/driver/nvidia/gpus");
    for address in sysfs::entries(&driver) {
        if let Some(minor) = nvidia_minor(root, &address) {
            let device = root.join("sys/bus/pci/devices").join(&address);
            nodes.insert(NVIDIA_MAJOR << MINOR_BITS | minor, node_in(&device));
        }
    }
    let drm = root.join("sys/class/drm");
    for name in sysfs::entries(&drm) {
        let folder = drm.join(&name);
        if let Some(number) = render_number(&name, &folder.join("dev")) {
            nodes.insert(number, node_in(&folder.join("device")));
        }
    }
    nodes.into_iter().take(MOST).collect()
}

/// -1 where firmware does not say: no u32.
fn node_in(device: &Path) -> Option<u32> {
    sysfs::number(&device.join("numa_node"))
}

/// `226:128` in `dev`. Cards are opened by whoever draws on a screen, too.
fn render_number(name: &str, dev: &Path) -> Option<u32> {
    let text = sysfs::text(dev).filter(|_| name.starts_with("renderD"))?;
    let (major, minor) = text.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(major << MINOR_BITS | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_have_the_nodes_of_their_pci_devices_where_firmware_says() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (address, minor, node) in [
            ("0000:17:00.0", 2, "1\n"),
            ("0000:31:00.0", 0, "0\n"),
            ("0000:b1:00.0", 1, "-1\n"),
        ] {
            let text = format!("Model: \t\t H100\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n");
            write(
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                &text,
            );
            write(&format!("sys/bus/pci/devices/{address}/numa_node"), node);
        }
        for (name, dev) in [("renderD128", "226:128\n"), ("card0", "226:0\n")] {
            write(&format!("sys/class/drm/{name}/dev"), dev);
            write(&format!("sys/class/drm/{name}/device/numa_node"), "3\n");
        }
        let expected = [
            (195 << 20, Some(0)),
            (195 << 20 | 1, None),
            (195 << 20 | 2, Some(1)),
            (226 << 20 | 128, Some(3)),
        ];
        assert_eq!(gpu_nodes(root.path()), BTreeMap::from(expected));
        assert!(gpu_nodes(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn devices_have_the_kernels_numbers_and_other_files_none() {
        let find = |glob: &str| find(&[PathGlob::new(glob).unwrap()]);
        assert_eq!(find("/dev/null"), BTreeSet::from([1 << 20 | 3]));
        let both = find("/dev/{null,zer?}");
        assert_eq!(both, BTreeSet::from([1 << 20 | 3, 1 << 20 | 5]));
        for none in ["/dev/std*", "/dev/nonexistent", "/nonexistent/*"] {
            assert!(find(none).is_empty(), "{none}");
        }
    }
}
