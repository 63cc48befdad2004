// SPDX-License-Identifier: GPL-2.0-only
//! A graph of stages: TOML to validated values. Pure; `docs/pipelines.md` is the format.

mod curve;
mod document;
mod keys;
mod model;
mod number;
mod order;

pub use document::GraphError;
use document::{Document, Problem};
pub use model::*;

/// Reads the text of the graph `name`, with `changes`: KEY=VALUE each.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn read(name: &str, text: &str, changes: &[String]) -> Result<Graph, GraphError> {
    let document = Document::new(name, text, changes);
    let file: keys::File = document.read()?;
    graph(file).map_err(|problem| document.error(problem))
}

fn graph(file: keys::File) -> Result<Graph, Problem> {
    let mut drafts = Vec::with_capacity(file.stage.len());
    for (name, keys) in file.stage {
        drafts.push(keys::draft(&name, &keys)?);
    }
    let (stages, edges) = order::in_order(drafts)?;
    Ok(Graph {
        description: file.description,
        sync: file.sync,
        stages,
        edges,
    })
}

#[cfg(test)]
mod tests;
