// SPDX-License-Identifier: GPL-2.0-only
//! cgroup folders: which ones the policy's globs match, which ones have a CPU limit.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use log::debug;
use nix::errno::Errno;

use crate::bpf::intf;
use crate::printable::printable;

use super::class::Class;
use super::evidence;
use super::rules::Rules;

/// The xattr of a folder that says the class of its tasks.
pub const XATTR: &str = "user.scx_gpuaware.class";
/// Folders that can have a tag.
pub const MAX_TAGS: usize = intf::gpuaware_limits_GPUAWARE_MAX_TAGGED_CGROUPS as usize;
const ROOT: u32 = 0;
/// Folders that are looked at for a CPU limit before giving up.
const MAX_LOOKED_AT: usize = 20_000;

/// What is said of a folder, and of those below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tag {
    /// The class of its tasks.
    pub class: Option<Class>,
    /// Which of [`Rules::texts`] gave it the class.
    pub text: u32,
    /// A bit for each rule whose cgroup term holds.
    pub rules: u64,
    /// Whose folder it is, if an xattr of his gave it the class.
    pub owner: Option<u32>,
}

/// Walks the hierarchy below `root` and returns the tag of every folder that a rule matches, by
/// cgroup id (the inode number of the folder). Of more than [`MAX_TAGS`] those near the root, which
/// folders below them inherit from.
///
/// # Errors
/// `root` itself cannot be read, or no descriptor or memory is free: tags would be lost that are there. Folders that
/// vanish on the way are passed over.
pub fn classify(root: &Path, rules: &Rules) -> Result<HashMap<u64, Tag>> {
    let mut tags = HashMap::new();
    let mut folders = VecDeque::from([root.to_path_buf()]);
    while let Some(folder) = folders.pop_front() {
        let relative = folder.strip_prefix(root).unwrap_or(&folder);
        let mut tag = tag_of(&relative.to_string_lossy(), rules);
        let reading = || format!("reading {}", printable(&folder.to_string_lossy()));
        if tag.class.is_none()
            && let Some((class, owner)) = xattr_of(&folder, rules).with_context(reading)?
        {
            (tag.class, tag.text, tag.owner) = (Some(class), evidence::XATTR, Some(owner));
        }
        if tag != Tag::default()
            && let Some(metadata) = there(std::fs::metadata(&folder)).with_context(reading)?
        {
            tags.insert(metadata.ino(), tag);
        }
        if tags.len() == MAX_TAGS {
            break;
        }
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if folder == root => Err(error),
            entries => there(entries),
        };
        for entry in entries.with_context(reading)?.into_iter().flatten() {
            if let Some(entry) = there(entry).with_context(reading)?
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                folders.push_back(entry.path());
            }
        }
    }
    Ok(tags)
}

/// What was asked of a folder; `None`: it has vanished, or says nothing of it to anybody.
///
/// # Errors
/// It may be there, and what it has is not known now.
fn there<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    const SHORTAGES: [Errno; 5] = [
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOMEM,
        Errno::EINTR,
        Errno::EAGAIN,
    ];
    match asked {
        Ok(known) => Ok(Some(known)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(errno) if SHORTAGES.contains(&errno) => Err(error),
            _ => Ok(None),
        },
    }
}

/// The class that the xattr of a folder says, if its owner may say so, and the owner. Who owns a folder can set its
/// xattrs: delegated ones belong to users.
fn xattr_of(folder: &Path, rules: &Rules) -> io::Result<Option<(Class, u32)>> {
    let Some(value) = there(xattr::get(folder, XATTR))?.flatten() else {
        return Ok(None);
    };
    let class = class_named(&value);
    let Some(metadata) = there(std::fs::metadata(folder))? else {
        return Ok(None);
    };
    let owner = metadata.uid();
    if class.is_none() {
        debug!(
            "{}: {XATTR} is {:?}: expected launch, handoff or background",
            folder.display(),
            String::from_utf8_lossy(&value)
        );
    }
    let class = class.filter(|_| owner == ROOT || rules.trusts(owner));
    Ok(class.map(|class| (class, owner)))
}

fn class_named(value: &[u8]) -> Option<Class> {
    match value.trim_ascii() {
        b"launch" => Some(Class::Launch),
        b"handoff" => Some(Class::Handoff),
        b"background" => Some(Class::Background),
        _ => None,
    }
}

fn tag_of(folder: &str, rules: &Rules) -> Tag {
    let mut tag = Tag::default();
    let mut tags = rules.tags.iter().enumerate();
    if let Some((number, (_, class))) = tags.find(|(_, (glob, _))| glob.matches(folder)) {
        tag.class = Some(*class);
        tag.text = (rules.judged.len() + number) as u32;
    }
    for (number, judged) in rules.judged.iter().enumerate() {
        let glob = judged.rule.cgroup.as_ref();
        if glob.is_some_and(|glob| glob.matches(folder)) {
            tag.rules |= 1 << number;
        }
    }
    tag
}

/// The cgroups at and below `root` whose `cpu.max` is a limit.
pub fn limited(root: &Path) -> Vec<String> {
    those_where(root, "cpu.max", |limit| !limit.starts_with("max"))
}

/// The cgroups at and below `root` that `cpu.idle` makes idle.
pub fn idle(root: &Path) -> Vec<String> {
    those_where(root, "cpu.idle", |idle| idle.trim() == "1")
}

/// Paths of the cgroups at and below `root` whose `file` holds what `is_meant` says, relative to it, sorted, for people:
/// users may name them.
/// A folder that vanishes meanwhile is none.
fn those_where(root: &Path, file: &str, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    let mut nr_looked_at = 0;
    while let Some(folder) = folders.pop() {
        nr_looked_at += 1;
        if nr_looked_at > MAX_LOOKED_AT {
            break;
        }
        if std::fs::read_to_string(folder.join(file)).is_ok_and(|text| is_meant(&text)) {
            let relative = folder.strip_prefix(root).unwrap_or(&folder);
            found.push(printable(&relative.to_string_lossy()));
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::policy::Policy;

    proptest! {
        #[test]
        fn any_xattr_is_read_without_harm(xattr: Vec<u8>) {
            class_named(&xattr);
        }
    }

    #[test]
    fn folders_that_vanish_meanwhile_are_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let policy = "[class.launch]\nmatch = [{ cgroup = \"stays\" }]\n";
        let rules = Rules::new(&Policy::parse(policy).unwrap());
        let stays = root.path().join("stays");
        std::fs::create_dir(&stays).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let goes = root.path().join("goes");
                while !stop.load(Ordering::Relaxed) {
                    std::fs::create_dir_all(goes.join("a/b")).unwrap();
                    std::fs::remove_dir_all(&goes).unwrap();
                }
            });
            for _ in 0..300 {
                let tags = classify(root.path(), &rules).unwrap();
                let inode = std::fs::metadata(&stays).unwrap().ino();
                assert_eq!(tags.keys().copied().collect::<Vec<_>>(), [inode]);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn first_matching_rule_classifies_a_folder() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["gpu.slice/a/b", "batch", "system.slice"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let policy = "[class.launch]\nmatch = [{ cgroup = \"gpu.slice/**\" }]\n\
                      [class.handoff]\nmatch = [{ comm = \"a\", cgroup = \"batch\" }]\n\
                      [class.background]\nmatch = [{ cgroup = \"{batch,gpu.slice/a}\" }]\n";
        let rules = Rules::new(&Policy::parse(policy).unwrap());
        let tags = classify(root.path(), &rules).unwrap();
        let tag_of = |folder: &str| {
            let inode = std::fs::metadata(root.path().join(folder)).unwrap().ino();
            tags.get(&inode).copied()
        };
        for folder in ["gpu.slice", "gpu.slice/a", "gpu.slice/a/b"] {
            let tag = tag_of(folder).unwrap();
            assert_eq!(
                (tag.class, tag.text, tag.rules),
                (Some(Class::Launch), 1, 0)
            );
        }
        let batch = tag_of("batch").unwrap();
        assert_eq!(batch.class, Some(Class::Background));
        assert_eq!(
            (batch.text, batch.rules),
            (2, 1),
            "and a term of the first rule"
        );
        assert_eq!(tag_of("system.slice"), None);
        assert_eq!(tags.len(), 4);
    }

    #[test]
    fn of_too_many_folders_those_near_the_root_are_tagged() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a");
        for number in 0..10_000 {
            std::fs::create_dir_all(inner.join(number.to_string())).unwrap();
        }
        std::fs::create_dir(root.path().join("b")).unwrap();
        let policy = "[class.launch]\nmatch = [{ cgroup = \"**\" }]\n";
        let rules = Rules::new(&Policy::parse(policy).unwrap());
        let tags = classify(root.path(), &rules).unwrap();
        assert_eq!(tags.len(), MAX_TAGS);
        for folder in ["a", "b"] {
            let inode = std::fs::metadata(root.path().join(folder)).unwrap().ino();
            assert!(tags.contains_key(&inode), "{folder}");
        }
    }

    #[test]
    fn what_is_short_is_no_folder_that_vanished() {
        let asked = |errno: Errno| there::<()>(Err(io::Error::from_raw_os_error(errno as i32)));
        for vanished in [
            Errno::ENOENT,
            Errno::ENODEV,
            Errno::EACCES,
            Errno::EOPNOTSUPP,
        ] {
            assert!(asked(vanished).unwrap().is_none(), "{vanished}");
        }
        for short in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            assert!(asked(short).is_err(), "{short}");
        }
    }

    #[test]
    fn names_the_root_that_cannot_be_read() {
        let error = classify(Path::new("/nonexistent"), &Rules::default()).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent"));
    }

    #[test]
    fn names_cgroups_with_a_limit_or_idle_and_no_others() {
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
        std::fs::write(root.path().join("a/cpu.idle"), "0\n").unwrap();
        std::fs::write(root.path().join("b/cpu.idle"), "1\n").unwrap();
        assert_eq!(idle(root.path()), ["b"]);
        let red = root.path().join("a\x1b[31m");
        std::fs::create_dir(&red).unwrap();
        std::fs::write(red.join("cpu.idle"), "1\n").unwrap();
        assert!(!idle(root.path()).concat().contains('\x1b'));
    }
}
