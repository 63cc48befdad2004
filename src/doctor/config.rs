// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's configuration: where it is, and what of it scx_gpuaware needs.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use super::finding::{Judgement, ok, problem, warning};

/// What loading and identifying need.
const NEEDED: [&str; 8] = [
    "SCHED_CLASS_EXT",
    "BPF_SYSCALL",
    "BPF_JIT",
    "BPF_EVENTS",
    "DEBUG_INFO_BTF",
    "UPROBES",
    "UPROBE_EVENTS",
    "CGROUPS",
];
/// What part of the work needs, and which part.
const WANTED: [(&str, &str); 3] = [
    ("EXT_GROUP_SCHED", "cpu.weight and cpu.max do not count"),
    ("FANOTIFY", "xattrs of cgroups that change are noticed late"),
    ("PCI", "GPUs and network cards are not found"),
];

/// A kernel's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig {
    /// Its file.
    pub place: String,
    /// Names of the options that are built in or modules, without `CONFIG_`. Empty: the file is none.
    pub enabled: BTreeSet<String>,
}

impl KernelConfig {
    /// That of kernel `release`, below `root`, from where libbpf looks for it. `None`: there is no file.
    pub fn read(root: &Path, release: &str) -> Option<Self> {
        let places = [
            format!("boot/config-{release}"),
            "proc/config.gz".to_owned(),
        ];
        places.into_iter().find_map(|place| {
            let file = std::fs::File::open(root.join(&place)).ok()?;
            let mut text = String::new();
            // What cannot be read has no options.
            let _ = match place.ends_with(".gz") {
                true => flate2::read::GzDecoder::new(file).read_to_string(&mut text),
                false => std::io::BufReader::new(file).read_to_string(&mut text),
            };
            Some(Self {
                place: format!("/{place}"),
                enabled: text.lines().filter_map(enabled).collect(),
            })
        })
    }
}

/// `CONFIG_UPROBES=y`
fn enabled(line: &str) -> Option<String> {
    let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
    matches!(value, "y" | "m").then(|| name.to_owned())
}

/// The check of the configuration of kernel `release`.
pub fn judge(config: Option<&KernelConfig>, release: &str) -> Judgement {
    let Some(config) = config else {
        return problem(
            format!(
                "neither /boot/config-{release} nor /proc/config.gz can be read: libbpf refuses to \
                 load without one"
            ),
            "install the file that belongs to the kernel's package, or mount /boot",
        );
    };
    let place = &config.place;
    if config.enabled.is_empty() {
        return problem(
            format!("{place} is no kernel configuration"),
            "install the file that belongs to the kernel's package",
        );
    }
    let lacks = |option: &str| !config.enabled.contains(option);
    let missing: Vec<_> = NEEDED
        .into_iter()
        .filter(|option| lacks(option))
        .map(|option| format!("CONFIG_{option}"))
        .collect();
    if !missing.is_empty() {
        return problem(
            format!(
                "the kernel is built without {} ({place})",
                missing.join(", ")
            ),
            "boot a kernel that has them",
        );
    }
    match WANTED.into_iter().find(|(option, _)| lacks(option)) {
        Some((option, loss)) => warning(
            format!("the kernel is built without CONFIG_{option} ({place}): {loss}"),
            "boot a kernel that has it if that matters",
        ),
        None => ok(format!("the kernel has what is needed ({place})")),
    }
}

#[cfg(test)]
pub mod tests {
    use std::io::Write;

    use super::super::finding::Verdict;
    use super::*;

    /// One that lacks nothing.
    pub fn all() -> KernelConfig {
        KernelConfig {
            place: "/proc/config.gz".to_owned(),
            enabled: text().lines().filter_map(enabled).collect(),
        }
    }

    fn text() -> String {
        let wanted = WANTED.map(|(option, _)| option);
        let options = NEEDED.iter().chain(&wanted);
        options.fold("# CONFIG_NUMA is not set\n".to_owned(), |text, option| {
            format!("{text}CONFIG_{option}=y\n")
        })
    }

    fn judged(text: &str) -> (Verdict, String) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("boot")).unwrap();
        std::fs::write(root.path().join("boot/config-6.18"), text).unwrap();
        let config = KernelConfig::read(root.path(), "6.18");
        let (verdict, found, _) = judge(config.as_ref(), "6.18");
        (verdict, found)
    }

    #[test]
    fn an_option_that_is_off_is_named() {
        assert_eq!(judged(&text()).0, Verdict::Ok);
        let off = "# CONFIG_BPF_JIT is not set\n";
        let (verdict, found) = judged(&text().replace("CONFIG_BPF_JIT=y\n", off));
        assert_eq!(verdict, Verdict::Problem);
        assert!(
            found.contains("without CONFIG_BPF_JIT (/boot/config-6.18)"),
            "{found}"
        );
        let (verdict, found) = judged(&text().replace("EXT_GROUP_SCHED=y", "EXT_GROUP_SCHED=n"));
        assert_eq!(verdict, Verdict::Warning);
        assert!(found.contains("cpu.weight"), "{found}");
        let (verdict, found) = judged("hello\n");
        assert_eq!(verdict, Verdict::Problem);
        assert!(found.contains("no kernel configuration"), "{found}");
    }

    #[test]
    fn a_compressed_one_is_read_too() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let file = std::fs::File::create(root.path().join("proc/config.gz")).unwrap();
        let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        file.write_all(text().as_bytes()).unwrap();
        file.finish().unwrap();
        let config = KernelConfig::read(root.path(), "6.18").unwrap();
        assert_eq!(config.place, "/proc/config.gz");
        assert_eq!(judge(Some(&config), "6.18").0, Verdict::Ok);
        assert_eq!(KernelConfig::read(&root.path().join("boot"), "6.18"), None);
    }
}
