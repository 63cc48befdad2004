// SPDX-License-Identifier: GPL-2.0-only
//! A block whose cells are simulated: nothing boots, nothing is disturbed, and each cell is measured once.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::inside;
use super::progress::Progress;
use crate::interrupt;
use crate::plan::Plan;
use crate::record::{self, Cell, CellKey, RunDir};
use crate::simulator::{self, Machine};

/// Simulates block `index` of the plan. Cells that failed are results.
pub fn block(plan: &Plan, index: usize, run: &RunDir, target: &Path) -> Result<()> {
    let name = plan.machine.as_deref().context("the plan has no machine")?;
    let machine = Machine::find(name, target)?;
    let chooser = simulator::chooser(plan, target)?;
    let facts = run.root().join(format!("facts-block{index}.json"));
    record::write_json(&facts, &machine.facts())?;
    let mut progress = Progress::new(plan, run, index);
    let missing: Vec<CellKey> = plan.blocks[index]
        .keys()
        .filter(|key| !run.has(key))
        .collect();
    for key in missing {
        interrupt::check()?;
        let (started_unix_ms, began) = (inside::unix_ms(), Instant::now());
        let result = simulator::measure(plan, &key, (&machine, chooser.as_ref()), target);
        // A simulator that was given up for that is no failed cell.
        interrupt::check()?;
        let took: Duration = began.elapsed();
        let (measurement, failure) = match result {
            Ok(measurement) => (Some(measurement), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let cell = Cell {
            schema: record::SCHEMA,
            key,
            group: plan.blocks[index].group.clone(),
            block: index,
            started_unix_ms,
            failure,
            cannot_run: false,
            measurement,
            disturbed: Vec::new(),
            discarded: Vec::new(),
            phases_ms: [("simulate".to_owned(), took.as_millis() as u64)].into(),
        };
        run.write_cell(&cell)?;
        eprintln!("{}", progress.line(&cell, took, false));
    }
    Ok(())
}
