// SPDX-License-Identifier: GPL-2.0-only
//! Which libcuda files a host has, and what each is.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::identify::flavour::{Flavour, PLACES};
use crate::identify::libcuda;
use crate::printable::printable;

use super::finding::{Judgement, listed, ok, warning};

/// A libcuda that the loader or a process knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libcuda {
    /// As the loader or the process names it.
    pub path: String,
    /// What it is.
    pub flavour: Flavour,
    /// Does a process map it now?
    pub in_use: bool,
}

/// Those in the loader's cache, in places that loaders need not know, and those that processes have mapped.
pub fn gather(root: &Path, processes: &[PathBuf]) -> Vec<Libcuda> {
    let mut found = BTreeMap::new();
    let cache = std::fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
    let cached = cache.split(|&byte| byte == 0).filter_map(|name| {
        let is_path = name.starts_with(b"/") && libcuda::is_driver(name);
        is_path.then(|| PathBuf::from(OsStr::from_bytes(name)))
    });
    let elsewhere = PLACES.map(|place| Path::new(place).join("libcuda.so.1"));
    let elsewhere = elsewhere
        .into_iter()
        .filter(|path| below(root, path).exists());
    for path in cached.chain(elsewhere) {
        found.insert(path, false);
    }
    for process in processes {
        let maps = std::fs::read(process.join("maps")).unwrap_or_default();
        for mapping in libcuda::mappings(&maps, libcuda::is_driver) {
            found.insert(mapping.path, true);
        }
    }
    let library = |(path, in_use): (PathBuf, bool)| Libcuda {
        flavour: flavour(root, &path),
        path: path.display().to_string(),
        in_use,
    };
    let mut libraries: Vec<_> = found.into_iter().map(library).collect();
    libraries.sort_by_key(|library| library.flavour);
    libraries
}

/// An absolute path of the host, below `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// By its path, by where links lead to, and by its first bytes where it can be read.
fn flavour(root: &Path, path: &Path) -> Flavour {
    let by_name = Flavour::of(path);
    let target = resolved(root, path);
    if by_name.launches() && is_elf32(&below(root, &target)) {
        return Flavour::Bits32;
    }
    match Flavour::of(&target) {
        Flavour::Driver => by_name,
        by_target => by_target,
    }
}

/// `path` without the links in it, as who has `root` for root follows them.
fn resolved(root: &Path, path: &Path) -> PathBuf {
    /// As many as the kernel follows.
    const MOST_LINKS: usize = 40;
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.components();
        let parts = parts.filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut at = PathBuf::from("/");
    let mut rest = VecDeque::from(parts(path));
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let Ok(target) = std::fs::read_link(below(root, &at)) else {
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return path.to_owned();
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        } else {
            at.pop();
        }
        for part in parts(&target).into_iter().rev() {
            rest.push_front(part);
        }
    }
    at
}

fn is_elf32(file: &Path) -> bool {
    const ELFCLASS32: u8 = 1;
    let mut start = [0; 5];
    let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == [0x7f, b'E', b'L', b'F', ELFCLASS32]
}

/// The check.
pub fn judge(libraries: &[Libcuda]) -> Judgement {
    let named: Vec<_> = libraries.iter().map(named).collect();
    let names = listed(&named);
    let mut used = libraries.iter().filter(|library| library.in_use);
    if libraries.is_empty() {
        return warning(
            "no libcuda.so, and no libamdhip64.so, is known to the loader or mapped by a process",
            "install the GPU's driver; containers that bring their own are found when they run",
        );
    }
    if let Some(stub) = used.find(|library| library.flavour == Flavour::Stub) {
        return warning(
            format!(
                "a process maps {}, through which nothing launches",
                printable(&stub.path)
            ),
            "take the folder of stubs out of its LD_LIBRARY_PATH: it is for linking only",
        );
    }
    if !libraries.iter().any(|library| library.flavour.launches()) {
        return warning(
            format!("no driver's libcuda.so, only {names}"),
            "install the GPU's driver: a stub only links programs, and programs of 64 bits need a library of 64 \
             bits; containers that bring their own are found when they run",
        );
    }
    ok(names)
}

fn named(library: &Libcuda) -> String {
    match library.flavour.remark() {
        Some(remark) => format!("{} ({remark})", printable(&library.path)),
        None => printable(&library.path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::finding::Verdict;
    use super::*;

    const CACHE: &str = "etc/ld.so.cache";

    fn host(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        root
    }

    fn judged(root: &Path, processes: &[PathBuf]) -> (Verdict, String) {
        let (verdict, found, _) = judge(&gather(root, processes));
        (verdict, found)
    }

    #[test]
    fn a_stub_or_32_bits_alone_are_no_driver() {
        for (path, remark) in [
            (
                "/usr/local/cuda/lib64/stubs/libcuda.so",
                "the toolkit's stub",
            ),
            ("/usr/lib/i386-linux-gnu/libcuda.so.1", "32 bits"),
        ] {
            let cache = format!("glibc\0libcuda.so\0{path}\0");
            let root = host(&[(CACHE, cache.as_bytes())]);
            let (verdict, found) = judged(root.path(), &[]);
            assert_eq!(verdict, Verdict::Warning, "{found}");
            assert!(found.contains(path) && found.contains(remark), "{found}");
        }
    }

    #[test]
    fn a_path_that_a_user_chose_is_spelled_out() {
        let cache = "glibc\0libcuda.so.1\0/opt/\x1b[31m/libcuda.so.1\0";
        let root = host(&[(CACHE, cache.as_bytes())]);
        let (_, found) = judged(root.path(), &[]);
        assert!(
            found.contains("/libcuda.so.1") && !found.contains('\x1b'),
            "{found:?}"
        );
    }

    #[test]
    fn links_and_the_files_themselves_say_what_a_library_is() {
        let cache = b"/opt/lib/libcuda.so.1\0/opt/lib/libcuda.so\0".as_slice();
        let elf32 = b"\x7fELF\x01\x01".as_slice();
        let root = host(&[
            (CACHE, cache),
            ("opt/lib/libcuda.so.1", elf32),
            ("opt/cuda/stubs/libcuda.so", b"\x7fELF\x02\x01"),
        ]);
        symlink(
            "../cuda/stubs/libcuda.so",
            root.path().join("opt/lib/libcuda.so"),
        )
        .unwrap();
        let flavours = || -> Vec<_> {
            let found = gather(root.path(), &[]);
            found.iter().map(|library| library.flavour).collect()
        };
        assert_eq!(flavours(), [Flavour::Bits32, Flavour::Stub]);
        assert_eq!(judged(root.path(), &[]).0, Verdict::Warning);
        // As who builds images writes it, through a folder that is a link too; and a link to itself.
        let link = root.path().join("opt/lib/libcuda.so");
        std::fs::remove_file(&link).unwrap();
        symlink("/opt/cuda", root.path().join("opt/cuda-12")).unwrap();
        symlink("/opt/cuda-12/stubs/libcuda.so", &link).unwrap();
        assert_eq!(flavours(), [Flavour::Bits32, Flavour::Stub]);
        std::fs::remove_file(&link).unwrap();
        symlink("libcuda.so", &link).unwrap();
        assert_eq!(flavours(), [Flavour::Driver, Flavour::Bits32]);
    }

    #[test]
    fn a_driver_is_found_where_loaders_do_not_look_and_named_for_what_it_is() {
        let remarks: [&str; PLACES.len()] = [
            "(Nix)",
            "(WSL)",
            "(a snap's)",
            "libcuda",
            "libcuda",
            "compat",
            "libcuda",
            "libcuda",
            "libcuda",
        ];
        for (place, remark) in PLACES.iter().zip(remarks) {
            let file = format!("{}/libcuda.so.1", &place[1..]);
            let root = host(&[
                (CACHE, b"/usr/local/cuda/lib64/stubs/libcuda.so\0"),
                (&file, b"\x7fELF\x02\x01"),
            ]);
            let (verdict, found) = judged(root.path(), &[]);
            assert_eq!(verdict, Verdict::Ok, "{found}");
            assert!(
                found.starts_with(place) && found.contains(remark),
                "{found}"
            );
            assert!(found.ends_with("(the toolkit's stub)"), "{found}");
        }
    }

    #[test]
    fn a_process_that_maps_a_stub_is_told_of() {
        let root = host(&[
            (CACHE, b"/usr/lib64/libcuda.so.1\0"),
            (
                "proc/7/maps",
                b"7f00-7f10 r-xp 00000000 fe:01 4711 /opt/stubs/libcuda.so.1\n",
            ),
        ]);
        let (verdict, found) = judged(root.path(), &[root.path().join("proc/7")]);
        assert_eq!(verdict, Verdict::Warning);
        assert!(found.contains("maps /opt/stubs/libcuda.so.1"), "{found}");
    }
}
