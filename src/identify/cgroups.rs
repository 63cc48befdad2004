// SPDX-License-Identifier: GPL-2.0-only
//! cgroup folders: which ones the policy's globs match, which ones have a CPU limit.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::policy::{CgroupGlob, Policy};

use super::Class;

/// Folders that are looked at for a CPU limit before giving up.
const MAX_LOOKED_AT: usize = 20_000;

/// Where the cgroup v2 hierarchy is mounted, from the text of `/proc/self/mounts`.
pub fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// The globs of a policy, with their classes: the first that matches a cgroup wins.
pub fn rules(policy: &Policy) -> Vec<(CgroupGlob, Class)> {
    let launch = policy.launch.cgroups().map(|glob| (glob, Class::Launch));
    let handoff = policy.handoff.cgroups().map(|glob| (glob, Class::Handoff));
    let background = policy.background.cgroups();
    launch
        .chain(handoff)
        .chain(background.map(|glob| (glob, Class::Background)))
        .map(|(glob, class)| (glob.clone(), class))
        .collect()
}

/// Walks the hierarchy below `root` and returns the class of every folder that a rule matches, by
/// cgroup id (the inode number of the folder).
///
/// # Errors
/// `root` itself cannot be read. Folders that vanish on the way are passed over.
pub fn classify(root: &Path, rules: &[(CgroupGlob, Class)]) -> Result<HashMap<u64, Class>> {
    let mut classes = HashMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let relative = folder.strip_prefix(root).unwrap_or(&folder);
        let relative = relative.to_string_lossy();
        if let Some((_, class)) = rules.iter().find(|(glob, _)| glob.matches(&relative))
            && let Ok(metadata) = std::fs::metadata(&folder)
        {
            classes.insert(metadata.ino(), *class);
        }
        match std::fs::read_dir(&folder) {
            Ok(entries) => folders.extend(
                entries
                    .flatten()
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            ),
            Err(error) if folder == root => {
                return Err(error).with_context(|| format!("reading {}", root.display()));
            }
            Err(_) => {}
        }
    }
    Ok(classes)
}

/// Paths of the cgroups at and below `root` whose `cpu.max` is a limit, relative to it, sorted. A folder
/// that vanishes meanwhile has no limit.
pub fn limited(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    let mut nr_looked_at = 0;
    while let Some(folder) = folders.pop() {
        nr_looked_at += 1;
        if nr_looked_at > MAX_LOOKED_AT {
            break;
        }
        let limit = std::fs::read_to_string(folder.join("cpu.max"));
        if limit.is_ok_and(|limit| !limit.starts_with("max")) {
            let relative = folder.strip_prefix(root).unwrap_or(&folder);
            found.push(relative.display().to_string());
        }
        folders.extend(
            std::fs::read_dir(&folder)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_unified_hierarchy() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn first_matching_rule_classifies_a_folder() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["gpu.slice/a/b", "batch", "system.slice"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let rules = [
            (CgroupGlob::new("gpu.slice/**").unwrap(), Class::Launch),
            (
                CgroupGlob::new("{batch,gpu.slice/a}").unwrap(),
                Class::Background,
            ),
        ];
        let classes = classify(root.path(), &rules).unwrap();
        let class_of = |folder: &str| {
            let inode = std::fs::metadata(root.path().join(folder)).unwrap().ino();
            classes.get(&inode).copied()
        };
        assert_eq!(class_of("gpu.slice"), Some(Class::Launch));
        assert_eq!(class_of("gpu.slice/a"), Some(Class::Launch));
        assert_eq!(class_of("gpu.slice/a/b"), Some(Class::Launch));
        assert_eq!(class_of("batch"), Some(Class::Background));
        assert_eq!(class_of("system.slice"), None);
        assert_eq!(classes.len(), 4);
    }

    #[test]
    fn names_the_root_that_cannot_be_read() {
        let error = classify(Path::new("/nonexistent"), &[]).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent"));
    }

    #[test]
    fn names_cgroups_with_a_limit_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        for (folder, limit) in [
            ("a", "max 100000\n"),
            ("a/limited", "50000 100000\n"),
            ("b", "200000 100000\n"),
        ] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
            std::fs::write(root.path().join(folder).join("cpu.max"), limit).unwrap();
        }
        std::fs::create_dir(root.path().join("without_cpu_controller")).unwrap();
        assert_eq!(limited(root.path()), ["a/limited", "b"]);
    }
}
