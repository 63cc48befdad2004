// SPDX-License-Identifier: GPL-2.0-only
//! Shows figures: as tables in a terminal, as JSON, as one HTML page with pictures.

mod bars;
mod chart;
mod html;
mod ours;
mod sections;
mod study;
mod table;
mod words;

use serde::Serialize;

use super::compare::Comparison;
use super::figures::Analysis;

/// All that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the layout of this JSON.
    pub version: u32,
    /// One a file, in the order in which they were named.
    pub files: Vec<Analysis>,
    /// The files beside one another, if there are several arms.
    pub comparison: Option<Comparison>,
}

/// Version of the JSON.
pub const VERSION: u32 = 1;

impl Report {
    /// Puts the files beside one another.
    pub fn new(files: Vec<Analysis>) -> Self {
        Self {
            version: VERSION,
            comparison: super::compare::compare(&files),
            files,
        }
    }

    /// For a terminal. Of several files, what sets them apart; of one, everything.
    pub fn to_text(&self) -> String {
        let alone = self.files.len() == 1;
        let mut text = String::new();
        for section in sections::all(self, alone) {
            text += &section.to_text();
        }
        if !alone {
            text += "Launch pairs, tails, bursts, interrupts, stolen time: name one file, or use --html or --json.\n";
        }
        text
    }

    /// One page, without anything from outside.
    ///
    /// # Errors
    /// The figures cannot be written as JSON.
    pub fn to_html(&self) -> serde_json::Result<String> {
        html::render(self)
    }
}
