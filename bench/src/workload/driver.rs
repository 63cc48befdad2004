// SPDX-License-Identifier: GPL-2.0-only
//! Which libcuda a workload gets: the emulated one of `bench/fakecuda`, or the machine's own with a GPU behind it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::matrix::{Driver, Gpus};

const LIBRARY: &str = "libcuda.so.1";
/// How the loader's cache marks libraries of 64 bits.
const BITS_64: Option<&str> = match () {
    () if cfg!(target_arch = "x86_64") => Some("x86-64"),
    () if cfg!(target_arch = "aarch64") => Some("AArch64"),
    () => None,
};

/// The command `line` with the driver that the matrix asks for. `lab` is the folder of the emulated one.
///
/// # Errors
/// The driver that is asked for is not there.
pub fn with_driver(line: &[OsString], lab: &Path, driver: Driver) -> Result<Command> {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    let is_there = lab.join(LIBRARY).exists();
    let emulated = match driver {
        Driver::Auto => is_there && missing().is_some(),
        Driver::Emulated => emulated(lab).map(|_| true)?,
        Driver::Real => match missing() {
            Some(missing) => bail!(
                "driver = \"real\": expected a GPU with its own driver: {missing}; \"emulated\" needs none"
            ),
            None => false,
        },
    };
    if emulated {
        command.env("LD_LIBRARY_PATH", lab);
    }
    Ok(command)
}

/// Says before a cell runs that the machine has fewer GPUs than it launches on; the emulated driver has any number.
///
/// # Errors
/// There are too few.
pub fn check_gpus(wanted: Gpus, driver: Driver) -> Result<()> {
    let Gpus::Count(wanted) = wanted else {
        return Ok(());
    };
    // Without a genuine driver it is the emulated one, or with_driver() says what is missing.
    if driver == Driver::Emulated || missing().is_some() {
        return Ok(());
    }
    let there = devices(Path::new("/dev"));
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    enough(wanted.get() as usize, there, visible.as_deref())
}

/// An operator may hide some of those that are `there`: CUDA stops at the first that it does not know.
fn enough(wanted: usize, there: usize, visible: Option<&str>) -> Result<()> {
    let is_one = |name: &&str| match name.parse::<usize>() {
        Ok(number) => number < there,
        Err(_) => name.starts_with("GPU-") || name.starts_with("MIG-"),
    };
    let (has, how) = match visible {
        None => (there, String::new()),
        Some(list) => (
            list.split(',').map(str::trim).take_while(is_one).count(),
            format!(" that CUDA_VISIBLE_DEVICES={list} shows"),
        ),
    };
    if wanted <= has {
        return Ok(());
    }
    let all = match has {
        0 => "",
        _ => "; gpus = \"all\" takes what is there",
    };
    bail!("gpus = {wanted}: expected no more than this machine has, got {has}{how}{all}")
}

/// The emulated driver's library.
///
/// # Errors
/// It is not built.
pub fn emulated(lab: &Path) -> Result<PathBuf> {
    let library = lab.join(LIBRARY);
    if !library.exists() {
        bail!(
            "driver = \"emulated\": expected {LIBRARY} in {}: run make build",
            lab.display()
        );
    }
    Ok(library)
}

/// Has the loader of the lab's guest find the emulated driver as a host's finds a genuine one: schedulers look into its
/// cache before a program starts. For as long as the guest lives; `scratch` has the cache.
///
/// Nothing, where it is not built: who needs it says so.
///
/// # Errors
/// A command fails.
pub fn install_in_guest(lab: &Path, scratch: &Path) -> Result<()> {
    if !lab.join(LIBRARY).exists() {
        return Ok(());
    }
    let [folders, cache] = ["ld.so.conf", "ld.so.cache"].map(|name| scratch.join(name));
    let text = format!("include /etc/ld.so.conf\n{}\n", lab.display());
    fs::write(&folders, text).with_context(|| format!("cannot write {}", folders.display()))?;
    let mut ldconfig = Command::new("/sbin/ldconfig");
    ldconfig
        .arg("-X")
        .arg("-C")
        .arg(&cache)
        .arg("-f")
        .arg(&folders);
    let mut mount = Command::new("mount");
    mount.arg("--bind").arg(&cache).arg("/etc/ld.so.cache");
    for mut command in [ldconfig, mount] {
        let output = command
            .output()
            .with_context(|| format!("cannot run {command:?}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("{command:?} ended with {}: {}", output.status, said.trim());
        }
    }
    Ok(())
}

/// What "auto" stands for on this machine.
pub fn automatic() -> Driver {
    match missing() {
        Some(_) => Driver::Emulated,
        None => Driver::Real,
    }
}

/// What a genuine driver lacks here; `None`: nothing.
fn missing() -> Option<String> {
    if devices(Path::new("/dev")) == 0 {
        return Some("there is no /dev/nvidia0".to_owned());
    }
    let library = genuine_library();
    library
        .is_none()
        .then(|| format!("the loader knows no {LIBRARY}"))
}

/// GPUs that NVIDIA's driver has made devices for.
fn devices(dev: &Path) -> usize {
    let names = fs::read_dir(dev).into_iter().flatten().flatten();
    names
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix("nvidia");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .count()
}

/// Where the loader finds the machine's own libcuda, if it does.
fn genuine_library() -> Option<PathBuf> {
    let output = Command::new("/sbin/ldconfig").arg("-p").output().ok()?;
    let cache = String::from_utf8_lossy(&output.stdout).into_owned();
    library_in(&cache)
}

fn library_in(cache: &str) -> Option<PathBuf> {
    cache.lines().find_map(|line| {
        let (name, path) = line.trim().split_once(" => ")?;
        let (name, flags) = name.split_once(' ').unwrap_or((name, ""));
        // One of 32 bits is for other programs, one to link with for none.
        let of_this_machine = BITS_64.is_none_or(|flag| flags.contains(flag));
        let is_stub = path.contains("/stubs/");
        (name == LIBRARY && of_this_machine && !is_stub).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library_path(command: &Command) -> Option<OsString> {
        let mut set = command.get_envs();
        let (_, value) = set.find(|(name, _)| *name == "LD_LIBRARY_PATH")?;
        value.map(Into::into)
    }

    #[test]
    fn the_emulated_driver_is_used_where_it_is_asked_for() {
        let lab = tempfile::tempdir().unwrap();
        let line = [OsString::from("true")];
        let error = with_driver(&line, lab.path(), Driver::Emulated).unwrap_err();
        assert!(error.to_string().contains("run make build"), "{error}");
        fs::write(lab.path().join(LIBRARY), "").unwrap();
        let command = with_driver(&line, lab.path(), Driver::Emulated).unwrap();
        assert_eq!(library_path(&command), Some(lab.path().into()));
    }

    #[test]
    fn more_gpus_than_there_are_is_said_before_the_first_cell() {
        for (wanted, there, visible) in [
            (1, 1, None),
            (2, 8, Some("3,4")),
            (2, 2, Some("GPU-0815, MIG-1")),
        ] {
            assert!(enough(wanted, there, visible).is_ok(), "{visible:?}");
        }
        let said = |wanted, there, visible| enough(wanted, there, visible).unwrap_err().to_string();
        let few = said(4, 2, None);
        assert!(
            few.contains("gpus = 4: expected no more") && few.contains("got 2;"),
            "{few}"
        );
        // CUDA stops at what it does not know.
        for hidden in ["", "-1,0", "7,0", "no"] {
            let text = said(1, 2, Some(hidden));
            let shown = format!("got 0 that CUDA_VISIBLE_DEVICES={hidden} shows");
            assert!(text.contains(&shown), "{text}");
        }
        let many = Gpus::Count(std::num::NonZeroU32::MAX);
        assert!(check_gpus(many, Driver::Emulated).is_ok());
    }

    #[test]
    fn auto_is_whatever_this_machine_has() {
        let lab = tempfile::tempdir().unwrap();
        fs::write(lab.path().join(LIBRARY), "").unwrap();
        let line = [OsString::from("true")];
        let auto = with_driver(&line, lab.path(), Driver::Auto).unwrap();
        let real = with_driver(&line, lab.path(), Driver::Real);
        match automatic() {
            Driver::Real => assert!(library_path(&auto).is_none() && real.is_ok()),
            _ => {
                assert_eq!(library_path(&auto), Some(lab.path().into()));
                let error = real.unwrap_err().to_string();
                assert!(
                    error.starts_with("driver = \"real\": expected a GPU"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn knows_devices_and_libraries_by_their_names() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm"] {
            fs::write(dev.path().join(name), "").unwrap();
        }
        assert_eq!(devices(dev.path()), 2);
        let cache = "2 libs found\n\tlibcuda.so (libc6,x86-64) => /a/libcuda.so\n\
                     \tlibcuda.so.1 (libc6,x86-64) => /a/libcuda.so.1\n";
        assert_eq!(library_in(cache), Some("/a/libcuda.so.1".into()));
        assert_eq!(library_in("libcudart.so.1 (x) => /b\n"), None);
    }
}
