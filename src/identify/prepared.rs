// SPDX-License-Identifier: GPL-2.0-only
//! Identification whose maps exist and of whose programs none is loaded: who shares the maps need not wait for the
//! kernel's verifier.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{AsRawLibbpf, OpenMapMut, OpenObject, libbpf_sys};

use crate::bpf::identify::{IdentifySkel, IdentifySkelBuilder, OpenIdentifySkel};

const LOADING: &str = "loading the identification programs";

/// See [`super::Identify::of`].
pub struct Prepared<'obj>(OpenIdentifySkel<'obj>);

/// The maps that tell a scheduler each task's class and GPU.
pub struct SharedMaps {
    pub task_marks: OwnedFd,
    pub gpu_processes: OwnedFd,
    pub cgroup_tags: OwnedFd,
    pub class_rules: OwnedFd,
    pub class_generation: OwnedFd,
}

impl<'obj> Prepared<'obj> {
    /// Opens the programs and makes their maps.
    ///
    /// # Errors
    /// Not enough rights, or a kernel without these maps.
    pub fn open(object: &'obj mut MaybeUninit<OpenObject>) -> Result<Self> {
        let open = IdentifySkelBuilder::default()
            .open(object)
            .context("opening the identification programs")?;
        let object = open.open_object().as_libbpf_object();
        // SAFETY: it is open, and nobody else has it.
        match unsafe { libbpf_sys::bpf_object__prepare(object.as_ptr()) } {
            0 => Ok(Self(open)),
            error => Err(io::Error::from_raw_os_error(-error)).context(LOADING),
        }
    }

    /// Descriptors of their own, for another object.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn shared_maps(&self) -> Result<SharedMaps> {
        let maps = &self.0.maps;
        let shared = |map: &OpenMapMut<'_>| {
            // SAFETY: the map's descriptor is open for as long as the object is.
            let fd = unsafe {
                BorrowedFd::borrow_raw(libbpf_sys::bpf_map__fd(map.as_libbpf_object().as_ptr()))
            };
            fd.try_clone_to_owned().context("sharing a map")
        };
        Ok(SharedMaps {
            task_marks: shared(&maps.task_marks)?,
            gpu_processes: shared(&maps.gpu_processes)?,
            cgroup_tags: shared(&maps.cgroup_tags)?,
            class_rules: shared(&maps.class_rules)?,
            class_generation: shared(&maps.class_generation)?,
        })
    }

    pub(super) fn load(self) -> Result<IdentifySkel<'obj>> {
        self.0.load().context(LOADING)
    }
}
