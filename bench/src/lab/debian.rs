// SPDX-License-Identifier: GPL-2.0-only
//! Fetches a kernel with apt's own tools from the mirror that this machine already uses.
//!
//! The suite stands in an apt list of the lab's own; the machine's sources stay as they are.
//! Packages are unpacked beside the cache and renamed into it, so a half-fetched kernel is never seen.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tools;
use crate::folders;
use crate::kernel_release::{has_eevdf, in_series, release_numbers};

/// Where a series is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suite {
    name: &'static str,
    /// Its kernels have virtio as modules, which an initramfs loads with the help of a shell.
    needs_busybox: bool,
}

/// How the folders begin that something is fetched into.
const FETCHING: &str = ".fetch-";
/// Beside the image in the cache.
pub const SHELL: &str = "busybox";
/// Has kernels with sched_ext; Debian's own releases have it switched off.
const BACKPORTS: Suite = Suite {
    name: "trixie-backports",
    needs_busybox: false,
};
/// Has Linux 6.1: the scheduler before EEVDF.
const BEFORE_EEVDF: Suite = Suite {
    name: "bookworm",
    needs_busybox: true,
};
const BUSYBOX: &str = "busybox-static";
/// Boots without an initramfs on virtio-fs, and is small.
const FLAVOUR: &str = "-cloud-amd64";

/// A kernel as the suite has it.
#[derive(Debug, PartialEq, Eq)]
struct Release {
    version: String,
    packages: Vec<String>,
}

/// Fetches the newest release of the series into `kernels/VERSION`; returns the version. Who calls this holds the lock
/// of that folder: what others have left half-fetched in it is removed.
pub fn fetch(series: &str, kernels: &Path) -> Result<String> {
    remove_half_fetched(kernels)?;
    let suite = suite_of(series);
    let apt = Apt::with_suite(&folders::cache_dir()?.join("apt").join(suite.name), suite)?;
    let names = apt.run("apt-cache", &["pkgnames", "linux-"], Path::new("/"))?;
    let mut release = choose(&names, series, suite)?;
    if suite.needs_busybox {
        release.packages.push(BUSYBOX.to_owned());
    }
    eprintln!(
        "lab: fetching kernel {} ({} packages), once, into {}",
        release.version,
        release.packages.len(),
        kernels.display()
    );
    let work = tempfile::Builder::new()
        .prefix(FETCHING)
        .tempdir_in(kernels)
        .with_context(|| format!("cannot create a folder in {}", kernels.display()))?;
    let mut words = vec!["-q", "download"];
    words.extend(release.packages.iter().map(String::as_str));
    apt.run("apt-get", &words, work.path())?;
    let root = work.path().join("root");
    for package in packages_in(work.path())? {
        tools::output(Command::new("dpkg-deb").arg("-x").args([&package, &root]))?;
    }
    let ready = assemble(&root, &work.path().join("kernel"), &release.version)?;
    let place = kernels.join(&release.version);
    fs::rename(&ready, &place)
        .with_context(|| format!("cannot move the kernel to {}", place.display()))?;
    Ok(release.version)
}

/// Who is told to stop while a download takes its time ends at once, and leaves hundreds of megabytes.
fn remove_half_fetched(kernels: &Path) -> Result<()> {
    let cannot = || format!("cannot read {}", kernels.display());
    for entry in fs::read_dir(kernels).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(FETCHING.as_bytes()) {
            let folder = entry.path();
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    Ok(())
}

fn suite_of(series: &str) -> Suite {
    if has_eevdf(series) {
        BACKPORTS
    } else {
        BEFORE_EEVDF
    }
}

/// The newest release of the series of which every part is there. Debian removes the modules and
/// configuration of old releases before their signed images.
fn choose(pkgnames: &str, series: &str, suite: Suite) -> Result<Release> {
    let names: BTreeSet<&str> = pkgnames.split_whitespace().collect();
    let mut complete: Vec<Release> = names
        .iter()
        .filter_map(|name| image_version(name))
        .filter_map(|version| release(&names, version))
        .collect();
    complete.sort_by_key(|release| (release_numbers(&release.version), abi(&release.version)));
    let available: BTreeSet<Vec<u32>> = complete
        .iter()
        .map(|r| release_numbers(&r.version)[..2].to_vec())
        .collect();
    let available: Vec<String> = available
        .iter()
        .map(|n| format!("{}.{}", n[0], n[1]))
        .collect();
    complete.into_iter().rfind(|release| in_series(&release.version, series)).with_context(|| {
        format!(
            "no complete kernel of series {series} in {}; it has {} (or give --kernel the path of a vmlinuz)",
            suite.name,
            if available.is_empty() { "none".to_owned() } else { available.join(", ") }
        )
    })
}

fn image_version(package: &str) -> Option<&str> {
    ["linux-binary-unsigned-", "linux-binary-", "linux-image-"]
        .iter()
        .find_map(|prefix| package.strip_prefix(prefix))
        .filter(|version| version.ends_with(FLAVOUR) && release_numbers(version).len() > 1)
}

/// Debian's own releases keep the number of the series and count changes of the ABI: 6.1.0-50.
fn abi(version: &str) -> u32 {
    let abi = version.split('-').nth(1);
    abi.and_then(|abi| abi.parse().ok()).unwrap_or(0)
}

/// Up to 6.18 one package holds it all; later ones are split.
fn release(names: &BTreeSet<&str>, version: &str) -> Option<Release> {
    let named = |prefix: &str| {
        Some(format!("linux-{prefix}-{version}")).filter(|name| names.contains(name.as_str()))
    };
    let packages = match named("binary").or_else(|| named("binary-unsigned")) {
        Some(binary) => vec![binary, named("modules")?, named("base")?],
        None => vec![named("image")?],
    };
    Some(Release {
        version: version.to_owned(),
        packages,
    })
}

fn packages_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    Ok(entries
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| path.extension().is_some_and(|e| e == "deb"))
        .collect())
}

/// Puts the unpacked parts where the cache has them: `vmlinuz`, `config`, `lib/modules/VERSION`.
fn assemble(root: &Path, to: &Path, version: &str) -> Result<PathBuf> {
    // Until Debian merged /usr for good they were in /lib.
    let modules = ["usr/lib/modules", "lib/modules"].map(|at| root.join(at).join(version));
    let modules = modules.iter().find(|folder| folder.join("kernel").is_dir());
    let modules =
        modules.with_context(|| format!("the packages of kernel {version} hold no modules"))?;
    let boot = root.join("boot");
    let image = [
        boot.join(format!("vmlinuz-{version}")),
        modules.join("vmlinuz"),
        modules.join("vmlinuz.unsigned"),
    ];
    let config = [
        boot.join(format!("config-{version}")),
        modules.join("config"),
    ];
    fs::create_dir_all(to.join("lib/modules"))?;
    for (name, places) in [("vmlinuz", &image[..]), ("config", &config[..])] {
        let place = places.iter().find(|path| path.is_file());
        let place =
            place.with_context(|| format!("the packages of kernel {version} hold no {name}"))?;
        fs::rename(place, to.join(name))?;
    }
    fs::rename(modules, to.join("lib/modules").join(version))?;
    let busybox = root.join("bin/busybox");
    if busybox.is_file() {
        fs::rename(&busybox, to.join(SHELL))?;
    }
    let depmod =
        folders::on_path("depmod").context("depmod not found (package kmod): run make setup")?;
    tools::output(Command::new(depmod).arg("-b").arg(to).arg(version))?;
    Ok(to.to_owned())
}

/// apt's tools with one more suite, in a state of their own.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// Makes the list and updates it.
    fn with_suite(dir: &Path, suite: Suite) -> Result<Self> {
        let name = suite.name;
        fs::create_dir_all(dir.join("lists/partial"))
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let targets = [
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
            "Label: Debian",
        ];
        let mirrors = tools::output(Command::new("apt-get").args(targets))
            .context("fetching a kernel needs apt and Debian's sources (or give --kernel the path of a vmlinuz)")?;
        let mirror = mirrors
            .lines()
            .next()
            .context("no Debian mirror among this machine's apt sources (or give --kernel the path of a vmlinuz)")?;
        let list = dir.join("sources.list");
        let line = format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {name} main\n"
        );
        fs::write(&list, line).with_context(|| format!("cannot write {}", list.display()))?;
        let option = |key: &str, path: &Path| format!("-o{key}={}", path.display());
        let apt = Self {
            options: vec![
                option("Dir::Etc::SourceList", &list),
                option("Dir::Etc::SourceParts", Path::new("/dev/null")),
                option("Dir::State::Lists", &dir.join("lists")),
                // What is installed here is not what can be fetched.
                option("Dir::State::status", Path::new("/dev/null")),
                option("Dir::Cache", dir),
                // The cache is the user's own folder; apt's download user may not enter it.
                "-oAPT::Sandbox::User=root".to_owned(),
                "-oAPT::Update::Error-Mode=any".to_owned(),
            ],
        };
        apt.run("apt-get", &["-q", "update"], Path::new("/"))
            .with_context(|| format!("cannot read {name} of this machine's Debian mirror"))?;
        Ok(apt)
    }

    fn run(&self, program: &str, words: &[&str], dir: &Path) -> Result<String> {
        tools::output(
            Command::new(program)
                .args(&self.options)
                .args(words)
                .current_dir(dir),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `apt-cache pkgnames linux-` of trixie-backports, shortened.
    const NAMES: &str = "
        linux-image-6.18.9+deb13-cloud-amd64 linux-image-6.18.15+deb13-cloud-amd64 linux-image-6.18.15+deb13-amd64
        linux-image-6.18.15+deb13-rt-amd64 linux-image-cloud-amd64 linux-doc-6.18
        linux-image-7.0.13+deb13-cloud-amd64 linux-binary-7.0.13+deb13-cloud-amd64
        linux-image-7.2.12+deb13-cloud-amd64 linux-image-7.2.12+deb13-cloud-amd64-dbg
        linux-binary-7.2.12+deb13-cloud-amd64 linux-binary-unsigned-7.2.12+deb13-cloud-amd64
        linux-modules-7.2.12+deb13-cloud-amd64 linux-base-7.2.12+deb13-cloud-amd64
        linux-binary-unsigned-7.3.4+deb13-cloud-amd64 linux-image-7.3.4+deb13-cloud-amd64-dbg
        linux-modules-7.3.4+deb13-cloud-amd64 linux-base-7.3.4+deb13-cloud-amd64 linux-base";

    #[test]
    fn takes_the_newest_release_of_a_series() {
        let release = choose(NAMES, "6.18", BACKPORTS).unwrap();
        assert_eq!(release.version, "6.18.15+deb13-cloud-amd64");
        assert_eq!(release.packages, ["linux-image-6.18.15+deb13-cloud-amd64"]);
    }

    #[test]
    fn a_series_before_eevdf_is_debians_own_and_its_abi_is_a_number() {
        let names = "linux-image-6.1.0-9-cloud-amd64 linux-image-6.1.0-50-cloud-amd64 \
                     linux-image-6.1.0-50-cloud-amd64-unsigned linux-image-6.1.0-50-amd64";
        assert_eq!(
            (suite_of("6.1"), suite_of("6.18")),
            (BEFORE_EEVDF, BACKPORTS)
        );
        let release = choose(names, "6.1", BEFORE_EEVDF).unwrap();
        assert_eq!(release.version, "6.1.0-50-cloud-amd64");
    }

    #[test]
    fn what_a_fetch_that_was_stopped_has_left_is_removed_and_nothing_else() {
        let kernels = tempfile::tempdir().unwrap();
        let kept = ["6.18.15+deb13-cloud-amd64", "mine"];
        for name in [".fetch-Ab1", ".fetch-Cd2", kept[0], kept[1]] {
            fs::create_dir_all(kernels.path().join(name).join("root")).unwrap();
        }
        fs::write(kernels.path().join(".lock"), "").unwrap();
        remove_half_fetched(kernels.path()).unwrap();
        let left = fs::read_dir(kernels.path()).unwrap().flatten();
        let left: BTreeSet<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, [".lock", kept[0], kept[1]].map(Into::into).into());
    }

    #[test]
    fn takes_one_release_when_it_is_named() {
        assert_eq!(
            choose(NAMES, "6.18.9", BACKPORTS).unwrap().version,
            "6.18.9+deb13-cloud-amd64"
        );
    }

    #[test]
    fn takes_all_parts_of_a_split_release_and_prefers_the_signed_image() {
        let packages = choose(NAMES, "7.2", BACKPORTS).unwrap().packages;
        let parts = ["binary", "modules", "base"]
            .map(|part| format!("linux-{part}-7.2.12+deb13-cloud-amd64"));
        assert_eq!(packages, parts);
        assert_eq!(
            choose(NAMES, "7.3", BACKPORTS).unwrap().packages[0],
            "linux-binary-unsigned-7.3.4+deb13-cloud-amd64"
        );
    }

    #[test]
    fn names_what_is_available_when_a_series_is_not_or_not_whole() {
        for series in ["6.12", "7.0"] {
            let error = choose(NAMES, series, BACKPORTS).unwrap_err().to_string();
            assert!(
                error.contains(series) && error.contains("6.18, 7.2, 7.3"),
                "{error}"
            );
        }
        assert!(
            choose("", "6.18", BACKPORTS)
                .unwrap_err()
                .to_string()
                .contains("it has none")
        );
    }
}
