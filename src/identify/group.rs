// SPDX-License-Identifier: GPL-2.0-only
//! The probes of one kind on one library: launches, or contexts.

use libbpf_rs::{Link, ProgramMut};
use log::warn;

use super::library::Library;

/// The probes of a library that come and go together.
#[derive(Default)]
pub struct Group {
    /// Also if the kernel refused: it is asked again when somebody may be new.
    is_armed: bool,
    link: Option<Link>,
}

impl Group {
    /// Is there something to be done so that they are, or are not? `again`: also if the kernel has refused before.
    pub fn is_to_change(&self, is_armed: bool, again: bool) -> bool {
        is_armed != self.is_armed || is_armed && again && self.link.is_none()
    }

    /// Has them attached, or taken away.
    pub fn set(
        &mut self,
        is_armed: bool,
        library: &Library,
        program: &ProgramMut<'_>,
        points: &[(usize, usize)],
    ) {
        self.is_armed = is_armed;
        self.link = None;
        if !is_armed || points.is_empty() {
            return;
        }
        match library.attach(program, points) {
            Ok(link) => self.link = Some(link),
            Err(error) => warn!("cannot arm: {error:#}"),
        }
    }
}
