// SPDX-License-Identifier: GPL-2.0-only
//! Which candidate looks best: one number of what it gains over the default. It decides who goes on, never who is
//! recommended: that is `decide`'s. Pure.

use super::candidate::DEFAULT;
use super::goal::Prefer;
use crate::record::neighbour::Neighbour;
use crate::study::{Figure, Summary, Versus};

const TAILS: [Figure; 3] = [Figure::TokenP99, Figure::TtftP99, Figure::TpotP99];
/// A p99 of a few short cells says less than a mean.
const TAIL_WEIGHT: f64 = 0.5;
/// Of what is not preferred.
const MINOR: f64 = 0.25;

/// The logarithm of what `candidate` gains over the default, all neighbours together; `None`: it was not measured.
pub fn score(summary: &Summary, candidate: &str, prefer: Option<Prefer>) -> Option<f64> {
    let rows: Vec<f64> = summary
        .versus
        .iter()
        .filter(|row| row.subject == DEFAULT && row.other == candidate)
        // What a policy costs on a quiet machine is the proof's to see.
        .filter(|row| row.neighbour != Neighbour::None)
        .filter_map(|row| gain(row, prefer))
        .collect();
    (!rows.is_empty()).then(|| rows.iter().sum::<f64>() / rows.len() as f64)
}

fn gain(row: &Versus, prefer: Option<Prefer>) -> Option<f64> {
    let (isolation, work) = match prefer {
        None => (1.0, 1.0),
        Some(Prefer::Isolation) => (1.0, MINOR),
        Some(Prefer::Work) => (MINOR, 1.0),
    };
    // The default over the candidate: less of it is more for the candidate.
    let log = |figure: Figure| Some(figure.of(row)?.value.ln()).filter(|log| log.is_finite());
    let speed = -log(Figure::Speed)?;
    let tails: Vec<f64> = TAILS.into_iter().filter_map(log).collect();
    let tail = tails.iter().sum::<f64>() / tails.len().max(1) as f64;
    let work = work * -log(Figure::Work).unwrap_or(0.0);
    Some(isolation * (speed + TAIL_WEIGHT * tail) + work)
}

/// The candidates from best to worst, with their scores; those that were not measured come last.
pub fn ranked<'a>(
    summary: &Summary,
    candidates: impl IntoIterator<Item = &'a str>,
    prefer: Option<Prefer>,
) -> Vec<(&'a str, Option<f64>)> {
    let mut all: Vec<_> = candidates
        .into_iter()
        .map(|name| (name, score(summary, name, prefer)))
        .collect();
    let key = |score: Option<f64>| score.unwrap_or(f64::NEG_INFINITY);
    all.sort_by(|(_, a), (_, b)| key(*b).total_cmp(&key(*a)));
    all
}
