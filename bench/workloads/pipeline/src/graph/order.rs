// SPDX-License-Identifier: GPL-2.0-only
//! Who takes from whom: stages in an order in which items can flow, and what no such order exists for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;

use super::document::Problem;
use super::model::{By, Edge, Route, Stage};
use super::number::Table;

/// A stage, and whom it says that it takes from.
#[derive(Debug, Clone)]
pub struct Draft {
    pub stage: Stage,
    pub from: Vec<Spanned<String>>,
    pub route: Option<Spanned<Route>>,
    pub table: Table,
}

/// # Errors
/// A stage that is not there, a cycle, nothing to begin with, a join of less than two, a route that parts what belongs
/// together.
pub fn in_order(drafts: Vec<Draft>) -> Result<(Vec<Stage>, Vec<Edge>), Problem> {
    let names: BTreeSet<&str> = drafts
        .iter()
        .map(|draft| draft.stage.name.as_str())
        .collect();
    for draft in &drafts {
        check_from(draft, &names)?;
    }
    let mut open: Vec<Draft> = drafts;
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let (mut stages, mut edges) = (Vec::new(), Vec::new());
    while !open.is_empty() {
        let is_ready = |draft: &Draft| {
            let mut from = draft.from.iter();
            from.all(|name| places.contains_key(name.get_ref()))
        };
        let Some(next) = open.iter().position(is_ready) else {
            return Err(cycle(&open));
        };
        let draft = open.remove(next);
        let to = stages.len();
        edges.extend(draft.from.iter().map(|name| Edge {
            from: places[name.get_ref()],
            to,
        }));
        places.insert(draft.stage.name.clone(), to);
        stages.push(routed(draft)?);
    }
    if stages.is_empty() {
        return Err(Problem {
            span: 0..0,
            key: "stage".to_owned(),
            message: "expected at least one [stage.NAME] with arrive, got none".to_owned(),
        });
    }
    Ok((stages, edges))
}

fn check_from(draft: &Draft, names: &BTreeSet<&str>) -> Result<(), Problem> {
    let table = &draft.table;
    match (draft.from.is_empty(), draft.stage.arrive.is_some()) {
        (true, false) => {
            let message = "expected the names of stages, got nothing: name them, or add arrive if items begin here";
            return Err(table.problem("from", message));
        }
        (false, true) => {
            let message =
                "expected none in a stage that takes from others: leave arrive out, or from";
            return Err(table.problem("arrive", message));
        }
        (true, true) if draft.stage.grow.is_some() => {
            let message = "expected none in a source, whose threads share its items: leave it out";
            return Err(table.problem("grow", message));
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for name in &draft.from {
        let known: Vec<&str> = names.iter().copied().collect();
        if !names.contains(name.get_ref().as_str()) {
            let message = format!(
                "expected the name of a stage, got {:?}: there is {}",
                name.get_ref(),
                known.join(", ")
            );
            return Err(table.problem_at(name.span(), "from", message));
        }
        if !seen.insert(name.get_ref()) {
            let message = format!("expected every stage once, got {:?} twice", name.get_ref());
            return Err(table.problem_at(name.span(), "from", message));
        }
    }
    if draft.stage.join.is_some() && draft.from.len() < 2 {
        let message = format!(
            "expected at least two stages to join, got {}: leave join out or name more",
            draft.from.len()
        );
        return Err(table.problem("from", message));
    }
    Ok(())
}

/// All of `open` wait for one another or for such: going back from any of them ends in the cycle.
fn cycle(open: &[Draft]) -> Problem {
    let find = |name: &str| open.iter().find(|draft| draft.stage.name == name);
    let back = |draft: &Draft| {
        let mut from = draft.from.iter();
        from.find_map(|name| {
            find(name.get_ref()).map(|source| (source.stage.name.clone(), name.span()))
        })
    };
    let mut path: Vec<String> = vec![open[0].stage.name.clone()];
    loop {
        let last = path[path.len() - 1].clone();
        let Some((before, span)) = find(&last).and_then(back) else {
            return open[0].table.problem("from", "expected no cycle");
        };
        if let Some(at) = path.iter().position(|name| *name == before) {
            let mut round: Vec<&str> = path[at..].iter().map(String::as_str).collect();
            round.push(&before);
            round.reverse();
            let message = format!(
                "expected no way back to where items come from, got {}: take one of these out",
                round.join(" -> ")
            );
            let table = find(&last).map_or(&open[0].table, |draft| &draft.table);
            return table.problem_at(span, "from", message);
        }
        path.push(before);
    }
}

/// With the route that it asks for, if that one keeps together what belongs together.
fn routed(draft: Draft) -> Result<Stage, Problem> {
    let Draft {
        mut stage,
        route,
        table,
        ..
    } = draft;
    let needed = stage.route;
    if let Some(asked) = &route {
        stage.route = *asked.get_ref();
    }
    let by = (stage.join.map(|join| join.by)).or(stage.window.map(|window| window.by));
    let keeps_together = stage.route == needed || stage.all_threads() == 1;
    if let (Some(asked), Some(By::Key | By::Request), false) = (&route, by, keeps_together) {
        let message = format!(
            "expected {:?} for what is joined or collected by several threads: leave it out",
            format!("{needed:?}").to_lowercase()
        );
        return Err(table.problem_at(asked.span(), "route", message));
    }
    if stage.grow.is_some() && !matches!(stage.route, Route::Turn | Route::Request) {
        let message = "expected \"turn\" or \"request\" where threads join later: the first request for them is a number";
        return Err(table.problem("route", message));
    }
    Ok(stage)
}
