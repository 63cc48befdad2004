// SPDX-License-Identifier: GPL-2.0-only
//! The devices of which a process must have one open for its launches to count.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{major, minor};

use crate::policy::PathGlob;

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

#[cfg(test)]
mod tests {
    use super::*;

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
