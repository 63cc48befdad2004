// SPDX-License-Identifier: GPL-2.0-only
//! Files that are called libcuda and are not the driver's own library for this machine, told by where they
//! are. Pure.

use std::path::Path;

/// Folders that have the driver's library and that loaders need not know: NixOS, WSL, snaps, Debian's
/// alternatives, CUDA's package for older drivers, NVIDIA's operator for Kubernetes.
pub const PLACES: [&str; 9] = [
    "/run/opengl-driver/lib",
    "/usr/lib/wsl/lib",
    "/var/lib/snapd/lib/gl",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/local/cuda/compat",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
];

/// Which libcuda a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// The driver's.
    Driver,
    /// Of CUDA's package for drivers that are older than the toolkit.
    Compat,
    /// Of the driver of Windows.
    Wsl,
    /// From a snap.
    Snap,
    /// From Nix.
    Nix,
    /// For programs of 32 bits.
    Bits32,
    /// The toolkit's, to link programs with: each call of it fails.
    Stub,
}

impl Flavour {
    /// By `path`, which best has no links in it.
    pub fn of(path: &Path) -> Self {
        let folder = path.parent().unwrap_or(path);
        let has = |wanted: &[&str]| {
            let mut names = folder.iter().filter_map(|name| name.to_str());
            names.any(|name| wanted.contains(&name))
        };
        let below = |tops: &[&str]| tops.iter().any(|top| folder.starts_with(top));
        if has(&["stubs"]) {
            Self::Stub
        } else if has(&[
            "lib32",
            "i386-linux-gnu",
            "i686-linux-gnu",
            "arm-linux-gnueabihf",
            "opengl-driver-32",
        ]) {
            Self::Bits32
        } else if has(&["compat"]) {
            Self::Compat
        } else if below(&["/usr/lib/wsl"]) {
            Self::Wsl
        } else if below(&["/snap", "/var/lib/snapd"]) {
            Self::Snap
        } else if below(&["/nix/store", "/run/opengl-driver"]) {
            Self::Nix
        } else {
            Self::Driver
        }
    }

    /// Can programs of this machine launch through it?
    pub fn launches(self) -> bool {
        !matches!(self, Self::Stub | Self::Bits32)
    }

    /// What is peculiar about it.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Self::Driver => None,
            Self::Compat => Some("CUDA's forward compatibility"),
            Self::Wsl => Some("WSL"),
            Self::Snap => Some("a snap's"),
            Self::Nix => Some("Nix"),
            Self::Bits32 => Some("for programs of 32 bits"),
            Self::Stub => Some("the toolkit's stub"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_by_their_folders() {
        use Flavour::*;
        for (path, expected) in [
            ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", Driver),
            ("/usr/lib64/libcuda.so.1", Driver),
            (
                "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
                Driver,
            ),
            ("/usr/local/cuda/lib64/stubs/libcuda.so", Stub),
            (
                "/usr/local/cuda-12.4/targets/x86_64-linux/lib/stubs/libcuda.so",
                Stub,
            ),
            ("/opt/conda/lib/stubs/libcuda.so.1", Stub),
            ("/nix/store/x-cuda_cudart/lib/stubs/libcuda.so", Stub),
            ("/usr/lib/i386-linux-gnu/libcuda.so.1", Bits32),
            ("/usr/lib32/libcuda.so.1", Bits32),
            ("/run/opengl-driver-32/lib/libcuda.so.1", Bits32),
            ("/usr/local/cuda-12.4/compat/libcuda.so.550.54.15", Compat),
            ("/usr/lib/wsl/lib/libcuda.so.1", Wsl),
            (
                "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1",
                Wsl,
            ),
            ("/var/lib/snapd/lib/gl/libcuda.so.1", Snap),
            ("/snap/nvidia-core22/x/libcuda.so.1", Snap),
            ("/run/opengl-driver/lib/libcuda.so.1", Nix),
            ("/nix/store/abc-nvidia-x11-550/lib/libcuda.so.1", Nix),
            ("/home/me/mystubs/libcuda.so.1", Driver),
        ] {
            let found = Flavour::of(Path::new(path));
            assert_eq!(found, expected, "{path}");
            assert_eq!(found.launches(), !matches!(expected, Stub | Bits32));
        }
    }
}
