// SPDX-License-Identifier: GPL-2.0-only
//! The table of mounts, `/proc/PID/mounts`: what is mounted where, and what a path is on. Pure, but for
//! reading one's own.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    options: String,
}

impl Mount {
    /// Has it this option?
    pub fn has_option(&self, wanted: &str) -> bool {
        self.options.split(',').any(|option| option == wanted)
    }

    /// Can it only be read?
    pub fn is_read_only(&self) -> bool {
        self.has_option("ro")
    }
}

/// Mounts, in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Those that this process sees.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn of_this_process() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mounts")?))
    }

    /// From the text of the table, whose paths may have any bytes. Lines that do not parse are passed over.
    pub fn parse(table: &[u8]) -> Self {
        let mount = |line: &[u8]| {
            let mut fields = line.split(|&byte| byte == b' ').skip(1);
            let mut text = || fields.next();
            let point = PathBuf::from(OsString::from_vec(unescape(text()?)));
            let words = [text()?, text().unwrap_or_default()];
            let [kind, options] = words.map(|word| String::from_utf8_lossy(word).into_owned());
            Some(Mount {
                point,
                kind,
                options,
            })
        };
        Self(
            table
                .split(|&byte| byte == b'\n')
                .filter_map(mount)
                .collect(),
        )
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }

    /// What `path` is on: of the mounts at it or above it the last one, which hides what was there before.
    pub fn of(&self, path: &Path) -> Option<&Mount> {
        let mut latest_first = self.0.iter().rev();
        latest_first.find(|mount| path.starts_with(&mount.point))
    }

    /// Is there one of type `kind` at or above `path` that `top` hides?
    pub fn has_below(&self, top: &Mount, kind: &str, path: &Path) -> bool {
        let hidden = self.0.iter().take_while(|mount| !std::ptr::eq(*mount, top));
        hidden
            .into_iter()
            .any(|mount| mount.kind == kind && path.starts_with(&mount.point))
    }

    /// Where the cgroup v2 hierarchy is and nothing hides it.
    pub fn cgroup2(&self) -> Option<PathBuf> {
        let seen = |mount: &&Mount| {
            self.of(&mount.point)
                .is_some_and(|top| std::ptr::eq(top, *mount))
        };
        let mut mounts = self.0.iter().filter(|mount| mount.kind == "cgroup2");
        Some(mounts.find(seen)?.point.clone())
    }
}

/// A path as the kernel writes it into tables: blanks and backslashes as three octal digits.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut parts = path.split(|&byte| byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        bytes.push(code.unwrap_or(b'\\'));
        bytes.extend_from_slice(if code.is_some() { &part[3..] } else { part });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn finds_the_unified_hierarchy_whatever_else_is_mounted() {
        let cgroup2 = |mounts: &[u8]| Mounts::parse(mounts).cgroup2();
        let mounts = b"x /mnt/\xff\xfe ext4 rw 0 0\ntmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                       cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n";
        assert_eq!(cgroup2(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroup2(b"proc /proc proc rw 0 0\n"), None);
        // A tmpfs on top of it, and below that once more.
        let hidden = b"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ntmpfs /sys/fs/cgroup tmpfs rw 0 0\n";
        assert_eq!(cgroup2(hidden), None);
        let again = [&hidden[..], b"c /sys/fs/cgroup/unified cgroup2 rw 0 0\n"].concat();
        assert_eq!(cgroup2(&again), Some("/sys/fs/cgroup/unified".into()));
        let mounts = b"cgroup2 /a\\040b\\134c\\011\\x cgroup2 rw 0 0\n";
        assert_eq!(cgroup2(mounts), Some("/a b\\c\t\\x".into()));
    }

    #[test]
    fn a_path_is_on_what_was_mounted_last_at_or_above_it() {
        let mounts =
            Mounts::parse(b"a / ext4 rw 0 0\nb /a/b tmpfs ro,nosuid 0 0\nc /a xfs rw 0 0\n");
        let kind = |path: &str| mounts.of(Path::new(path)).unwrap().kind.as_str();
        assert_eq!(
            (kind("/x"), kind("/a/b/c"), kind("/ab")),
            ("ext4", "xfs", "ext4")
        );
        let hidden: Vec<_> = mounts.iter().filter(|mount| mount.is_read_only()).collect();
        assert_eq!(hidden.len(), 1);
        let top = mounts.of(Path::new("/a/b")).unwrap();
        assert!(mounts.has_below(top, "tmpfs", Path::new("/a/b")));
        assert!(!mounts.has_below(top, "xfs", Path::new("/a/b")));
    }

    proptest! {
        #[test]
        fn any_table_is_read_without_harm(table: Vec<u8>) {
            for mount in Mounts::parse(&table).iter() {
                prop_assert!(!mount.point.as_os_str().as_bytes().contains(&b' ') || table.contains(&b'\\'));
            }
        }
    }
}
