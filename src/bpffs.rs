// SPDX-License-Identifier: GPL-2.0-only
//! The file system that BPF objects are pinned in: is it there, and can it be written to? Pure.

use std::path::Path;

use crate::proc::mounts::Mounts;

/// Where the kernel's own is.
pub const PLACE: &str = "/sys/fs/bpf";

/// What keeps objects from being pinned in a folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Another file system is there.
    #[error("no BPF file system on {PLACE}: nothing can be pinned there")]
    Missing,
    /// Another one is mounted over it.
    #[error(
        "the BPF file system on {PLACE} is hidden under a mount of {kind} on {on}: nothing can be pinned there"
    )]
    Hidden { kind: String, on: String },
    /// It can only be read.
    #[error("the BPF file system on {on} is mounted read-only: nothing can be pinned there")]
    ReadOnly { on: String },
}

impl Obstacle {
    /// What to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Missing => format!("mount -t bpf bpf {PLACE}"),
            Self::Hidden { on, .. } => format!("umount {on}, or mount -t bpf bpf {PLACE} over it"),
            Self::ReadOnly { on } => format!(
                "mount -o remount,rw {on}; in a container, have it mounted with rw (a volume of the host's {PLACE})"
            ),
        }
    }
}

/// What keeps objects from being pinned in `folder`, with these `mounts`.
pub fn obstacle(mounts: &Mounts, folder: &Path) -> Option<Obstacle> {
    let on = |path: &Path| path.display().to_string();
    match mounts.of(folder) {
        Some(mount) if mount.kind == "bpf" => mount.is_read_only().then(|| Obstacle::ReadOnly {
            on: on(&mount.point),
        }),
        Some(mount) if mounts.has_below(mount, "bpf", folder) => Some(Obstacle::Hidden {
            kind: mount.kind.clone(),
            on: on(&mount.point),
        }),
        _ => Some(Obstacle::Missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mounts: &str) -> Option<Obstacle> {
        let mounts = format!("sysfs /sys sysfs rw 0 0\n{mounts}");
        obstacle(
            &Mounts::parse(mounts.as_bytes()),
            Path::new("/sys/fs/bpf/pins"),
        )
    }

    #[test]
    fn only_a_file_system_that_is_seen_and_can_be_written_will_do() {
        assert_eq!(found("bpf /sys/fs/bpf bpf rw,nosuid 0 0\n"), None);
        assert_eq!(
            found("none /sys/fs/bpf bpf rw 0 0\ntmpfs /sys/fs/bpf2 tmpfs rw 0 0\n"),
            None
        );
        assert_eq!(found(""), Some(Obstacle::Missing));
        assert_eq!(
            found("tmpfs /sys/fs/bpf tmpfs rw 0 0\n"),
            Some(Obstacle::Missing)
        );
        let read_only = found("bpf /sys/fs/bpf bpf ro,nosuid 0 0\n").unwrap();
        assert!(read_only.to_string().contains("read-only"));
        assert!(read_only.remedy().contains("remount,rw /sys/fs/bpf"));
    }

    #[test]
    fn what_is_mounted_later_hides_it_also_further_up() {
        for (later, on) in [
            ("tmpfs /sys/fs/bpf tmpfs", "/sys/fs/bpf"),
            ("tmpfs /sys/fs tmpfs", "/sys/fs"),
        ] {
            let hidden = found(&format!("bpf /sys/fs/bpf bpf rw 0 0\n{later} rw 0 0\n")).unwrap();
            assert_eq!(
                hidden,
                Obstacle::Hidden {
                    kind: "tmpfs".to_owned(),
                    on: on.to_owned()
                }
            );
            assert!(
                hidden.remedy().starts_with(&format!("umount {on},")),
                "{hidden:?}"
            );
        }
        let again =
            "bpf /sys/fs/bpf bpf rw 0 0\ntmpfs /sys/fs tmpfs rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n";
        assert_eq!(found(again), None);
        let above = "tmpfs /sys/fs tmpfs rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n";
        assert_eq!(found(above), None);
    }
}
