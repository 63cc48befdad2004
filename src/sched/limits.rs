// SPDX-License-Identifier: GPL-2.0-only
//! Which cgroups have a CPU limit, for kernels that do not tell schedulers of it.

use std::path::Path;

/// Paths of the cgroups below `root` whose `cpu.max` is a limit, relative to it, sorted.
pub fn limited_cgroups(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let limit = std::fs::read_to_string(folder.join("cpu.max"));
        if limit.is_ok_and(|limit| !limit.trim_start().starts_with("max")) {
            let relative = folder.strip_prefix(root).unwrap_or(&folder);
            found.push(relative.display().to_string());
        }
        // A folder that vanishes meanwhile has no limit.
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
        assert_eq!(limited_cgroups(root.path()), ["a/limited", "b"]);
    }
}
