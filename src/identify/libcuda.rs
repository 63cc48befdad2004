// SPDX-License-Identifier: GPL-2.0-only
//! Where libcuda is and where its entry points are: `/proc/PID/maps`, the loader's cache, ELF. HIP's library, which is
//! both driver and runtime of AMD's GPUs, is found in the same way.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use object::{Architecture, Object, ObjectSegment, ObjectSymbol, ReadRef};

use crate::bpf::intf;

use super::probe_point;

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

/// The entry points of a shared runtime, by name. `__cudaLaunchKernel` is what nvcc's `<<<>>>` calls
/// from CUDA 12 on. Their indices follow those of [`LAUNCH_SYMBOLS`].
pub const RUNTIME_LAUNCH_SYMBOLS: [&str; 10] = [
    "cudaLaunchKernel",
    "cudaLaunchKernel_ptsz",
    "cudaLaunchKernelExC",
    "cudaLaunchKernelExC_ptsz",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchCooperativeKernel_ptsz",
    "cudaGraphLaunch",
    "cudaGraphLaunch_ptsz",
    "__cudaLaunchKernel",
    "__cudaLaunchKernel_ptsz",
];

/// The entry points of libamdhip64. Their indices follow those of [`RUNTIME_LAUNCH_SYMBOLS`]. From the list of what
/// ROCm's clr exports, hipamd/src/hip_hcc.map.in.
pub const HIP_LAUNCH_SYMBOLS: [&str; 16] = [
    "hipLaunchKernel",
    "hipLaunchKernel_spt",
    "hipLaunchKernelExC",
    "hipLaunchByPtr",
    "hipLaunchCooperativeKernel",
    "hipLaunchCooperativeKernel_spt",
    "hipExtLaunchKernel",
    HIP_EXT_MODULE_LAUNCH,
    "hipModuleLaunchKernel",
    "hipModuleLaunchCooperativeKernel",
    "hipDrvLaunchKernelEx",
    "hipGraphLaunch",
    "hipGraphLaunch_spt",
    "hipExtLaunchMultiKernelMultiDevice",
    "hipLaunchCooperativeKernelMultiDevice",
    "hipModuleLaunchCooperativeKernelMultiDevice",
];

/// rocBLAS launches by it. It is exported with the types of its arguments in its name too.
const HIP_EXT_MODULE_LAUNCH: &str = "hipExtModuleLaunchKernel";
const MANGLED: &str = "_Z24";

/// What makes a context current for a thread that will launch: the first is taken to be what CUDA's runtime does when a
/// thread calls it for the first time. Their indices begin with [`FIRST_CONTEXT`]. `cuCtxPushCurrent` is not there, as
/// some programs call it for each launch.
pub const CONTEXT_SYMBOLS: [&str; 2] = ["cuCtxSetCurrent", "hipSetDevice"];

/// The index of the first of [`CONTEXT_SYMBOLS`].
pub const FIRST_CONTEXT: usize = intf::gpuaware_limits_GPUAWARE_FIRST_CONTEXT_SYMBOL as usize;
const _: () = assert!(
    LAUNCH_SYMBOLS.len() + RUNTIME_LAUNCH_SYMBOLS.len() + HIP_LAUNCH_SYMBOLS.len() <= FIRST_CONTEXT
);

/// The entry point with this index.
pub fn symbol(index: usize) -> Option<&'static str> {
    if let Some(context) = index.checked_sub(FIRST_CONTEXT) {
        return CONTEXT_SYMBOLS.get(context).copied();
    }
    let mut launches = LAUNCH_SYMBOLS
        .iter()
        .chain(&RUNTIME_LAUNCH_SYMBOLS)
        .chain(&HIP_LAUNCH_SYMBOLS);
    launches.nth(index).copied()
}

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

/// One of them is called by every process that uses HIP: the second for each file with kernels in it, as it is loaded.
pub const HIP_INIT_SYMBOLS: [&str; 2] = ["hipInit", "__hipRegisterFatBinary"];

/// A file as the kernel tells files apart; containers share one inode under many paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// Major and minor number of the device, as `/proc/PID/maps` prints them.
    pub device: (u32, u32),
    /// Inode number on that device.
    pub number: u64,
}

/// One mapping of a library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// The mapped file.
    pub inode: Inode,
    /// `START-END` in hexadecimal: its name under `/proc/PID/map_files`.
    pub range: String,
    /// Path in the mount namespace of the process; may have been deleted since.
    pub path: PathBuf,
}

/// File offsets of the entry points that a library has: of where they are probed, which is where [`probe_point`] says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryPoints {
    /// Index into [`LAUNCH_SYMBOLS`] and file offset.
    pub launches: Vec<(usize, usize)>,
    /// See [`symbol`]: those of a runtime, and file offset.
    pub runtime_launches: Vec<(usize, usize)>,
    /// See [`symbol`]: those of HIP, and file offset.
    pub hip_launches: Vec<(usize, usize)>,
    /// See [`symbol`]: those of contexts, and file offset.
    pub contexts: Vec<(usize, usize)>,
    /// Index into [`SYNC_SYMBOLS`] and file offset.
    pub syncs: Vec<(usize, usize)>,
    /// File offsets of [`INIT_SYMBOL`] or [`HIP_INIT_SYMBOLS`].
    pub inits: Vec<usize>,
}

/// Is this the path of a libcuda?
pub fn is_libcuda(path: &[u8]) -> bool {
    let name = file_name(path);
    name == b"libcuda.so" || name.starts_with(b"libcuda.so.")
}

/// Is this the path of HIP's library?
pub fn is_libamdhip(path: &[u8]) -> bool {
    let name = file_name(path);
    name == b"libamdhip64.so" || name.starts_with(b"libamdhip64.so.")
}

/// Is this the path of a library through which every launch on some GPU goes?
pub fn is_driver(path: &[u8]) -> bool {
    is_libcuda(path) || is_libamdhip(path)
}

/// Is this the path of a shared runtime? Python packages have it as `libcudart-HASH.so.12`.
pub fn is_libcudart(path: &[u8]) -> bool {
    let Some(rest) = file_name(path).strip_prefix(b"libcudart") else {
        return false;
    };
    rest.ends_with(b".so") || rest.windows(4).any(|part| part == b".so.")
}

fn file_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// The mappings of files whose path `is_wanted`, in the text of a `/proc/PID/maps`: one for each
/// inode. Lines that do not parse or do not end are passed over: the file is written while the
/// process runs.
pub fn mappings(maps: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> BTreeSet<Mapping> {
    let mut seen = BTreeSet::new();
    maps.split_inclusive(|&byte| byte == b'\n')
        .filter_map(|line| parse_line(line.strip_suffix(b"\n")?, &is_wanted))
        .filter(|mapping| seen.insert(mapping.inode))
        .collect()
}

fn parse_line(line: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> Option<Mapping> {
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
    // Not a name that a program gave to its own memory, such as [anon:/libcuda.so.1].
    (path.starts_with(b"/") && is_wanted(path)).then_some(())?;
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

/// The libraries in the output of `ldconfig -p` whose path `is_wanted`, without duplicates.
pub fn in_loader_cache(listing: &str, is_wanted: impl Fn(&[u8]) -> bool) -> BTreeSet<PathBuf> {
    listing
        .lines()
        .filter_map(|line| line.split_once(" => "))
        .map(|(_, path)| PathBuf::from(path.trim()))
        .filter(|path| is_wanted(path.as_os_str().as_bytes()))
        .collect()
}

/// NVIDIA's has about 100 MB. Anybody can map a file of that name, and a sparse one of any size.
const MAX_LEN: u64 = 256 << 20;
/// NVIDIA's has fewer than 1000.
const MAX_SYMBOLS: usize = 100_000;

/// Finds the entry points in an ELF shared library. Reads no more of it than its tables.
///
/// # Errors
/// Not a readable ELF file, or larger than any libcuda.
pub fn entry_points(path: &Path) -> Result<EntryPoints> {
    let reading = || format!("reading {}", path.display());
    let data = std::fs::File::open(path).with_context(reading)?;
    let len = data.metadata().with_context(reading)?.len();
    ensure!(
        len <= MAX_LEN,
        "{}: {} MiB are too many for such a library",
        path.display(),
        len >> 20
    );
    let data = object::ReadCache::new(data);
    let file =
        object::File::parse(&data).with_context(|| format!("{}: not ELF", path.display()))?;
    let is_known_code = file.architecture() == Architecture::X86_64;
    let offset_of = |address: u64| {
        let (offset, rest) = file.segments().find_map(|segment| {
            let (offset, size) = segment.file_range();
            let within = address.checked_sub(segment.address())?;
            (within < size).then(|| (offset + within, size - within))
        })?;
        let looked_at = rest.min(probe_point::LOOKED_AT as u64);
        let code = is_known_code.then(|| (&data).read_bytes_at(offset, looked_at));
        let within = code.and_then(Result::ok).map_or(0, probe_point::offset_in);
        Some(offset as usize + within)
    };
    let mut found = EntryPoints::default();
    for symbol in file
        .dynamic_symbols()
        .take(MAX_SYMBOLS)
        .filter(|symbol| symbol.is_definition())
    {
        let Ok(name) = symbol.name() else { continue };
        let name = unmangled(name);
        // The first of `symbols` has index `first`.
        let place_in = |symbols: &[&str], first: usize| {
            let index = symbols.iter().position(|&listed| listed == name)?;
            Some((first + index, offset_of(symbol.address())?))
        };
        if name == INIT_SYMBOL || HIP_INIT_SYMBOLS.contains(&name) {
            found.inits.extend(offset_of(symbol.address()));
        }
        let (runtime, hip) = (
            LAUNCH_SYMBOLS.len(),
            LAUNCH_SYMBOLS.len() + RUNTIME_LAUNCH_SYMBOLS.len(),
        );
        found.launches.extend(place_in(&LAUNCH_SYMBOLS, 0));
        let of_runtime = place_in(&RUNTIME_LAUNCH_SYMBOLS, runtime);
        found.runtime_launches.extend(of_runtime);
        found
            .hip_launches
            .extend(place_in(&HIP_LAUNCH_SYMBOLS, hip));
        found
            .contexts
            .extend(place_in(&CONTEXT_SYMBOLS, FIRST_CONTEXT));
        found.syncs.extend(place_in(&SYNC_SYMBOLS, 0));
    }
    Ok(found)
}

fn unmangled(name: &str) -> &str {
    let rest = name.strip_prefix(MANGLED);
    match rest.filter(|rest| rest.starts_with(HIP_EXT_MODULE_LAUNCH)) {
        Some(_) => HIP_EXT_MODULE_LAUNCH,
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAPS: &[u8] = b"\
55d0c0-55d0c1 r-xp 00000000 fe:00 99 /usr/bin/server\n\
7f10a0-7f10b0 r--p 00000000 fe:01 4711                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n\
7f10b0-7f10c0 r-xp 00010000 fe:01 4711                       /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n\
7f20b0-7f20c0 r-xp 00010000 00:2f 12                         /a b/libcuda.so.1 (deleted)\n\
7f30b0-7f30c0 r-xp 00010000 fe:01 13                         /usr/lib/libcudart.so.12\n\
7f40b0-7f40c0 rw-p 00000000 00:00 0                          [stack]\n\
garbage\n\xff\xfe\n\
7f50b0-7f50c0 r-xp 00010000 fe:01 14                         /usr/lib/libcuda.so.1";

    #[test]
    fn finds_each_libcuda_inode_once() {
        let found: Vec<_> = mappings(MAPS, is_libcuda).into_iter().collect();
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
    fn a_runtime_may_have_a_hash_in_its_name() {
        for name in ["libcudart.so", "libcudart.so.12", "libcudart-9f0a.so.11.0"] {
            assert!(
                is_libcudart(format!("/a/{name} (deleted)").as_bytes()),
                "{name}"
            );
            assert!(!is_libcuda(name.as_bytes()), "{name}");
        }
        for name in [
            "libcudart_static.a",
            "libcudart.sox",
            "libcuda.so.1",
            "xlibcudart.so",
        ] {
            assert!(!is_libcudart(name.as_bytes()), "{name}");
        }
        let found = mappings(MAPS, is_libcudart);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn symbols_of_driver_and_runtime_have_one_numbering() {
        assert_eq!(symbol(6), Some("cuGraphLaunch"));
        assert_eq!(symbol(8), Some("cudaLaunchKernel"));
        assert_eq!(symbol(16), Some("__cudaLaunchKernel"));
        assert_eq!(symbol(18), Some("hipLaunchKernel"));
        assert_eq!(symbol(30), Some("hipGraphLaunch_spt"));
        assert_eq!(symbol(33), HIP_LAUNCH_SYMBOLS.last().copied());
        assert_eq!(symbol(34), None);
        assert_eq!(symbol(FIRST_CONTEXT), Some("cuCtxSetCurrent"));
        assert_eq!(symbol(FIRST_CONTEXT + CONTEXT_SYMBOLS.len()), None);
    }

    #[test]
    fn hips_library_is_a_driver_and_one_of_its_functions_has_two_names() {
        for name in [
            "libamdhip64.so",
            "/opt/rocm/lib/libamdhip64.so.6.4 (deleted)",
        ] {
            assert!(is_driver(name.as_bytes()), "{name}");
            assert!(!is_libcuda(name.as_bytes()), "{name}");
        }
        assert!(!is_driver(b"/x/libamdhip64.sox") && is_driver(b"/x/libcuda.so.1"));
        let mangled = "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_t";
        assert_eq!(unmangled(mangled), "hipExtModuleLaunchKernel");
        for name in ["_Z24hipExtModuleLaunch", "_Z24", "cuInit"] {
            assert_eq!(unmangled(name), name);
        }
    }

    /// Paths as the kernel prints them: any bytes, a newline as `\012`, perhaps deleted.
    fn path(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
        let folder = proptest::collection::vec(1u8.., 0..20);
        (folder, any::<bool>()).prop_map(move |(folder, is_deleted)| {
            let mut path = vec![b'/'];
            for byte in folder {
                match byte {
                    b'\n' => path.extend(b"\\012"),
                    other => path.push(other),
                }
            }
            path.push(b'/');
            path.extend(name.bytes());
            path.extend(if is_deleted { &b" (deleted)"[..] } else { b"" });
            path
        })
    }

    fn line(number: u64, path: &[u8]) -> Vec<u8> {
        let start = format!("7f{number:x}000-7f{number:x}fff r-xp 00001000 fe:01 {number}  ");
        [start.as_bytes(), path, b"\n"].concat()
    }

    proptest! {
        #[test]
        fn any_path_to_a_libcuda_is_found_and_no_other(
            found in path("libcuda.so.1"),
            versioned in path("libcuda.so.550.54.15"),
            others in proptest::collection::vec(
                prop_oneof![
                    path("libcudart.so.12"), path("libcuda.so-1"), path("libcuda.so.1x/a"),
                    path("libcuda"), path("libcuda.so.1\\012"), path("xlibcuda.so.1"),
                ],
                0..4,
            ),
        ) {
            // The one name that is both: it may only be deleted, or called so.
            let others: Vec<_> = others.into_iter().filter(|path| !is_libcuda(path)).collect();
            let mut maps = Vec::new();
            for (number, path) in (10..).zip(&others) {
                maps.extend(line(number, path));
            }
            maps.extend(line(1, &found));
            maps.extend(line(2, &versioned));
            let mapped: Vec<_> = mappings(&maps, is_libcuda).into_iter().collect();
            let numbers: Vec<_> = mapped.iter().map(|mapping| mapping.inode.number).collect();
            prop_assert_eq!(numbers, [1, 2]);
            prop_assert_eq!(mapped[0].path.as_os_str().as_bytes(), &found);
            prop_assert_eq!(&mapped[0].range, "7f1000-7f1fff");
            // Cut anywhere, as by a process that goes away: less is found, never something else.
            for end in 0..maps.len() {
                for mapping in mappings(&maps[..end], is_libcuda) {
                    prop_assert!(mapped.iter().any(|whole| whole.inode == mapping.inode));
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>, text: String) {
            for mapping in mappings(&bytes, is_libcuda) {
                prop_assert!(is_libcuda(mapping.path.as_os_str().as_bytes()));
            }
            in_loader_cache(&text, is_libcuda);
        }
    }

    #[test]
    fn memory_that_is_named_after_a_library_is_none() {
        let named = b"7f10-7f20 r-xp 00000000 00:00 0    [anon:/x/libcuda.so.1 (deleted)\n";
        assert!(mappings(named, is_libcuda).is_empty());
    }

    #[test]
    fn reads_the_loader_cache() {
        let listing = "\
2 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
";
        assert_eq!(
            in_loader_cache(listing, is_libcuda),
            BTreeSet::from([PathBuf::from("/lib/x86_64-linux-gnu/libcuda.so.1")])
        );
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let sparse = tempfile::NamedTempFile::new().unwrap();
        sparse.as_file().set_len(MAX_LEN + (1 << 20)).unwrap();
        let error = format!("{:#}", entry_points(sparse.path()).unwrap_err());
        assert!(error.contains("257 MiB are too many"), "{error}");
        sparse.as_file().set_len(MAX_LEN).unwrap();
        let error = format!("{:#}", entry_points(sparse.path()).unwrap_err());
        assert!(error.contains("not ELF"), "{error}");
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
        assert_eq!(entry_points(&libc).unwrap(), EntryPoints::default());
        assert!(entry_points(Path::new("/proc/self/cmdline")).is_err());
    }
}
