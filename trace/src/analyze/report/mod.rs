// SPDX-License-Identifier: GPL-2.0-only
//! Shows figures: as tables in a terminal, as JSON, as one HTML page with pictures.

mod bars;
mod chart;
mod html;
mod model;
mod ours;
mod sections;
mod study;
mod table;
mod words;

use super::figures::Analysis;
pub use model::{Report, VERSION};

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
