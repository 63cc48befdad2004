// SPDX-License-Identifier: GPL-2.0-only
//! Where libcuda is and where its entry points are: `/proc/PID/maps`, the loader's cache, ELF.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::{Object, ObjectSegment, ObjectSymbol};

/// The entry points through which every CUDA program launches, whatever it links: the runtime,
/// cuBLAS, NCCL and Triton all end here. A mark names its entry point by index into this list.
pub const LAUNCH_SYMBOLS: [&str; 8] = [
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
];

/// The calls that wait for the GPU.
pub const SYNC_SYMBOLS: [&str; 5] = [
    "cuCtxSynchronize",
    "cuCtxSynchronize_v2",
    "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz",
    "cuEventSynchronize",
];

/// Called once by every CUDA process, before it can launch.
pub const INIT_SYMBOL: &str = "cuInit";

/// A file as the kernel tells files apart; containers share one inode under many paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// Major and minor number of the device, as `/proc/PID/maps` prints them.
    pub device: (u32, u32),
    /// Inode number on that device.
    pub number: u64,
}

/// One executable mapping of a libcuda.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// The mapped file.
    pub inode: Inode,
    /// `START-END` in hexadecimal: its name under `/proc/PID/map_files`.
    pub range: String,
    /// Path in the mount namespace of the process; may have been deleted since.
    pub path: PathBuf,
}

/// File offsets of the entry points that a library has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPoints {
    /// Index into [`LAUNCH_SYMBOLS`] and file offset.
    pub launches: Vec<(usize, usize)>,
    /// Index into [`SYNC_SYMBOLS`] and file offset.
    pub syncs: Vec<(usize, usize)>,
    /// File offset of [`INIT_SYMBOL`].
    pub init: Option<usize>,
}

/// Is this the path of a libcuda?
pub fn is_libcuda(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name == b"libcuda.so" || name.starts_with(b"libcuda.so.")
}

/// The libcuda mappings in the text of a `/proc/PID/maps`: one for each inode. Lines that do not
/// parse are passed over: the file is written while the process runs.
pub fn mappings(maps: &[u8]) -> BTreeSet<Mapping> {
    let mut seen = BTreeSet::new();
    maps.split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .filter(|mapping| seen.insert(mapping.inode))
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    // 7f00-7f10 r-xp 00001000 fe:00 1234    /usr/lib/libcuda.so.1
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|&byte| byte != b' ')?;
        let end = rest[start..].iter().position(|&byte| byte == b' ')? + start;
        let field = &rest[start..end];
        rest = &rest[end..];
        std::str::from_utf8(field).ok()
    };
    let range = field()?;
    let _permissions = field()?;
    let _offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let number = field()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    is_libcuda(path).then_some(())?;
    Some(Mapping {
        inode: Inode {
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            number,
        },
        range: range.to_owned(),
        path: PathBuf::from(OsStr::from_bytes(path)),
    })
}

/// The libcudas in the output of `ldconfig -p`, without duplicates.
pub fn in_loader_cache(listing: &str) -> BTreeSet<PathBuf> {
    listing
        .lines()
        .filter_map(|line| line.split_once(" => "))
        .map(|(_, path)| PathBuf::from(path.trim()))
        .filter(|path| is_libcuda(path.as_os_str().as_bytes()))
        .collect()
}

/// Finds the entry points in an ELF shared library.
///
/// # Errors
/// Not a readable ELF file.
pub fn entry_points(path: &Path) -> Result<EntryPoints> {
    let data = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let file =
        object::File::parse(&*data).with_context(|| format!("{}: not ELF", path.display()))?;
    let offset_of = |address: u64| {
        file.segments().find_map(|segment| {
            let (offset, size) = segment.file_range();
            let within = address.checked_sub(segment.address())?;
            (within < size).then_some((offset + within) as usize)
        })
    };
    let mut found = EntryPoints {
        launches: Vec::new(),
        syncs: Vec::new(),
        init: None,
    };
    for symbol in file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
    {
        let Ok(name) = symbol.name() else { continue };
        let place_in = |symbols: &[&str]| {
            let index = symbols.iter().position(|&listed| listed == name)?;
            Some((index, offset_of(symbol.address())?))
        };
        if name == INIT_SYMBOL {
            found.init = offset_of(symbol.address());
        }
        found.launches.extend(place_in(&LAUNCH_SYMBOLS));
        found.syncs.extend(place_in(&SYNC_SYMBOLS));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55d0c0-55d0c1 r-xp 00000000 fe:00 99 /usr/bin/server\n\
7f10a0-7f10b0 r--p 00000000 fe:01 4711                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n\
7f10b0-7f10c0 r-xp 00010000 fe:01 4711                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n\
7f20b0-7f20c0 r-xp 00010000 00:2f 12                         /a b/libcuda.so.1 (deleted)\n\
7f30b0-7f30c0 r-xp 00010000 fe:01 13                         /usr/lib/libcudart.so.12\n\
7f40b0-7f40c0 rw-p 00000000 00:00 0                          [stack]\n\
garbage\n\xff\xfe\n";

    #[test]
    fn finds_each_libcuda_inode_once() {
        let found: Vec<_> = mappings(MAPS).into_iter().collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].inode,
            Inode {
                device: (0, 0x2f),
                number: 12
            }
        );
        assert_eq!(found[0].path, Path::new("/a b/libcuda.so.1 (deleted)"));
        assert_eq!(found[1].range, "7f10a0-7f10b0");
    }

    #[test]
    fn reads_the_loader_cache() {
        let listing = "\
2 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
";
        assert_eq!(
            in_loader_cache(listing),
            BTreeSet::from([PathBuf::from("/lib/x86_64-linux-gnu/libcuda.so.1")])
        );
    }

    #[test]
    fn a_library_without_entry_points_has_none() {
        let libc = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .find_map(|line| {
                line.split_whitespace()
                    .nth(5)
                    .filter(|path| path.contains("/libc.so"))
            })
            .map(PathBuf::from)
            .unwrap();
        assert_eq!(
            entry_points(&libc).unwrap(),
            EntryPoints {
                launches: vec![],
                syncs: vec![],
                init: None
            }
        );
        assert!(entry_points(Path::new("/proc/self/cmdline")).is_err());
    }
}
