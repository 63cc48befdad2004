// SPDX-License-Identifier: GPL-2.0-only
//! Which kernel to boot: from the cache, fetched, or the user's own. Does not know how to fetch.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::debian;
use crate::folders;
use crate::kernel_release::{in_series, release_numbers};

/// A kernel that can be booted.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// `uname -r`.
    pub version: String,
    pub image: PathBuf,
    /// Its build configuration; libbpf reads it in the guest.
    pub config: PathBuf,
    /// Its modules with their modules.dep; none for a kernel that has all built in.
    pub modules: Option<PathBuf>,
    /// A shell for the initramfs that such a kernel needs which has its virtio drivers as modules.
    pub busybox: Option<PathBuf>,
}

impl Kernel {
    /// The kernel in a folder of the cache.
    fn cached(dir: &Path, version: &str) -> Self {
        Self {
            version: version.to_owned(),
            image: dir.join("vmlinuz"),
            config: dir.join("config"),
            modules: Some(dir.join("lib/modules").join(version)),
            busybox: Some(dir.join(debian::SHELL)).filter(|file| file.is_file()),
        }
    }
}

/// The kernel that `wanted` names: a path, or a series whose newest release is taken from the
/// cache, else fetched into it. Says on stderr which one it is.
pub fn obtain(wanted: &str) -> Result<Kernel> {
    if wanted.contains('/') {
        let kernel = own(Path::new(wanted))?;
        eprintln!(
            "lab: kernel {} ({})",
            kernel.version,
            kernel.image.display()
        );
        return Ok(kernel);
    }
    let kernels = folders::cache_dir()?.join("kernels");
    fs::create_dir_all(&kernels).with_context(|| format!("cannot create {}", kernels.display()))?;
    let (version, origin) = match newest_cached(&kernels, wanted)? {
        Some(version) => (version, "from the cache"),
        None => (fetch_locked(&kernels, wanted)?, "fetched just now"),
    };
    eprintln!("lab: kernel {version} ({origin})");
    Ok(Kernel::cached(&kernels.join(&version), &version))
}

fn newest_cached(kernels: &Path, series: &str) -> Result<Option<String>> {
    let entries =
        fs::read_dir(kernels).with_context(|| format!("cannot read {}", kernels.display()))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        // A fetch under way has a name that begins with a dot.
        .filter(|name| in_series(name, series))
        .max_by_key(|name| release_numbers(name)))
}

/// Fetches while holding a lock, so that of two labs that start at once one fetches and the other
/// finds the result.
fn fetch_locked(kernels: &Path, series: &str) -> Result<String> {
    let path = kernels.join(".lock");
    let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    lock.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    match newest_cached(kernels, series)? {
        Some(version) => Ok(version),
        None => debian::fetch(series, kernels),
    }
}

/// A kernel of the user's: its config and modules are looked for beside it and where
/// distributions and build trees have them.
fn own(path: &Path) -> Result<Kernel> {
    let image = path
        .canonicalize()
        .with_context(|| format!("no kernel at {}", path.display()))?;
    let version = image_version(&image)
        .with_context(|| format!("{} is not a kernel that the lab can boot", image.display()))?;
    let dir = image.parent().unwrap_or(Path::new("/"));
    let config = [
        dir.join("config"),
        dir.join(format!("config-{version}")),
        // arch/x86/boot/bzImage in a build tree
        dir.join("../../../.config"),
        Path::new("/boot").join(format!("config-{version}")),
    ];
    let modules = [
        dir.join("lib/modules").join(&version),
        dir.join("../lib/modules").join(&version),
        Path::new("/lib/modules").join(&version),
    ];
    let found = |paths: &[PathBuf]| paths.iter().find(|path| path.exists()).cloned();
    let Some(config) = found(&config) else {
        bail!(
            "no configuration for kernel {version}: expected {} (libbpf needs it)",
            config[1].display()
        );
    };
    let modules = found(&modules.map(|dir| dir.join("modules.dep")))
        .and_then(|file| file.parent()?.canonicalize().ok());
    if modules.is_none() {
        eprintln!(
            "lab: warning: no modules (with modules.dep) for kernel {version}: only what is built in will work"
        );
    }
    Ok(Kernel {
        version,
        image,
        config: config.canonicalize()?,
        modules,
        busybox: None,
    })
}

/// Reads `uname -r` from an x86 bzImage (Documentation/arch/x86/boot.rst: "HdrS" at 0x202, the
/// version's place less 0x200 at 0x20e).
fn image_version(image: &Path) -> Result<String> {
    let mut file = File::open(image)?;
    let mut header = [0; 0x210];
    file.read_exact(&mut header)
        .context("too short for a bzImage")?;
    ensure!(&header[0x202..0x206] == b"HdrS", "no bzImage header");
    let place = u64::from(u16::from_le_bytes([header[0x20e], header[0x20f]])) + 0x200;
    file.seek(SeekFrom::Start(place))?;
    let mut text = Vec::new();
    file.take(256).read_to_end(&mut text)?;
    let version: Vec<u8> = text.into_iter().take_while(u8::is_ascii_graphic).collect();
    ensure!(!version.is_empty(), "no version in the bzImage");
    Ok(String::from_utf8_lossy(&version).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_newest_release_of_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "6.18.9+deb13-cloud-amd64",
            "6.18.15+deb13-cloud-amd64",
            "7.3.4+deb13",
            ".fetch-6.18.20",
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let newest = |series| newest_cached(dir.path(), series).unwrap();
        assert_eq!(newest("6.18").as_deref(), Some("6.18.15+deb13-cloud-amd64"));
        assert_eq!(
            newest("6.18.9").as_deref(),
            Some("6.18.9+deb13-cloud-amd64")
        );
        assert_eq!(newest("6.12"), None);
    }

    #[test]
    fn reads_the_version_from_a_bzimage() {
        let mut image = vec![0; 0x1000];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x300_u16.to_le_bytes());
        image[0x500..0x50b].copy_from_slice(b"6.19.1-my x");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &image).unwrap();
        assert_eq!(image_version(file.path()).unwrap(), "6.19.1-my");
        fs::write(file.path(), b"#!/bin/sh").unwrap();
        assert!(image_version(file.path()).is_err());
    }
}
