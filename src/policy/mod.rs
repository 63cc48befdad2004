// SPDX-License-Identifier: GPL-2.0-only
//! Policy: what an operator wants, from TOML text to validated values.
//!
//! Pure: reads no file and knows no machine; what depends on one is checked against the CPUs that
//! the caller names. Text becomes a tree with places (`toml`), loses its unknown keys (`shape`), is
//! read into the types of `file` and `scalar`, and is validated as a whole (`validate`, `conflict`).

pub mod affinity;
mod conflict;
pub mod cpuset;
pub mod difference;
pub mod document;
pub mod effective;
pub mod file;
mod glob;
mod groups;
pub mod limits;
mod model;
pub mod pin;
pub mod report;
pub mod rule;
mod scalar;
mod shape;
mod spelling;
pub mod template;
mod terms;
mod validate;

pub use document::Document;
pub use glob::{CgroupGlob, NameGlob, PathGlob};
pub use model::{
    AUTO_LEND, Arming, Background, Class, EntryPoints, Guard, Hold, Identify, Irq, Max, NamedGroup,
    Pin, Policy, Preferred, Smt,
};
pub use report::PolicyError;
pub use rule::Rule;
pub use shape::json_schema;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
