// SPDX-License-Identifier: GPL-2.0-only
//! Marks as the process sees them that loaded the programs. What others do to its pins does not concern it.

use anyhow::{Context, Result};
use libbpf_rs::Link;

use crate::bpf::intf;

use super::marks::{self, Counts};
use super::programs::read_iterator;

/// The iterator that lists marks.
#[derive(Debug)]
pub struct Listing(Link);

impl Listing {
    /// `link` attaches `list_marks`.
    pub fn new(link: Link) -> Self {
        Self(link)
    }

    /// The tasks that have a class, were refused one or launch.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn records(&self) -> Result<Vec<intf::gpuaware_mark_record>> {
        let bytes = read_iterator(&self.0).context("listing marks")?;
        Ok(marks::decode(&bytes))
    }

    /// How many have a class or were refused one, by class and source.
    ///
    /// # Errors
    /// As [`Listing::records`].
    pub fn count(&self) -> Result<Counts> {
        let mut counts = Counts::new();
        for reason in self.records()?.iter().filter_map(marks::reason) {
            *counts.entry(reason).or_default() += 1;
        }
        Ok(counts)
    }
}
