// SPDX-License-Identifier: GPL-2.0-only
//! One section of a report, whatever the report is written as.

use super::lines::Picture;
use super::table::Table;

/// What is empty is left out.
#[derive(Debug, Clone, Default)]
pub struct Section {
    pub heading: String,
    /// It belongs to the section before it.
    pub is_part: bool,
    /// How the workload was called, as a command.
    pub command: String,
    pub text: String,
    pub list: Vec<String>,
    pub tables: Vec<Table>,
    /// How a page sets the tables.
    pub layout: Layout,
    /// For pages only.
    pub pictures: Vec<Picture>,
}

/// A class of the style sheet.
#[derive(Debug, Clone, Copy, Default)]
pub enum Layout {
    #[default]
    Plain,
    /// Many narrow columns: intervals stand below their values.
    Stacked,
    /// Long cells that begin at the top.
    Top,
    /// Cells with sentences.
    Wrapped,
}

impl Section {
    pub fn with_list(heading: impl Into<String>, list: Vec<String>) -> Self {
        Self {
            heading: heading.into(),
            list,
            ..Self::default()
        }
    }

    pub fn with_table(heading: impl Into<String>, table: Table) -> Self {
        Self {
            heading: heading.into(),
            tables: vec![table],
            ..Self::default()
        }
    }

    /// Without any, there is no such section.
    pub fn with_pictures(heading: &str, text: &str, pictures: Vec<Picture>) -> Option<Self> {
        (!pictures.is_empty()).then(|| Self {
            heading: heading.to_owned(),
            text: text.to_owned(),
            pictures,
            ..Self::default()
        })
    }

    /// Is there nothing in it that a text could show?
    pub fn is_pictures_alone(&self) -> bool {
        !self.pictures.is_empty() && self.list.is_empty() && self.tables.is_empty()
    }
}
