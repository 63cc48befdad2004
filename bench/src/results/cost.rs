// SPDX-License-Identifier: GPL-2.0-only
//! What the subject costs where nothing disturbs: all runs together. Pure.

use super::index::Index;
use super::markers::COLUMNS;
use crate::report::format::percent;
use crate::report::table::{Align, Table};
use crate::study::pool::Pool;
use crate::words::wrap;

use Align::{Left, Right};

/// The command that pools these runs.
pub fn command(index: &Index) -> String {
    let runs = index
        .pool
        .runs
        .iter()
        .map(|run| format!(" bench/runs/{run}"));
    format!(
        "gpuaware-bench pool --arm {}{}",
        index.pool.arm,
        runs.collect::<String>()
    )
}

/// "tokens/s 99.2 % [98.3–100.1] of EEVDF's (18 of 28 comparisons are below 100 %, their median is 99.3 %)".
pub fn sentence(pool: &Pool) -> String {
    format!(
        "{} {} % of EEVDF's ({} of {} comparisons are below 100 %, their median is {:.1} %)",
        pool.figure,
        percent(pool.ratio, 1, true),
        pool.below,
        pool.comparisons.len(),
        pool.median.unwrap_or(f64::NAN) * 100.0
    )
}

pub fn section(pools: &[Pool], index: &Index) -> String {
    let mut text = format!(
        "```\n{}\n```\n\n",
        command(index).replace(" bench", " \\\n  bench")
    );
    for pool in pools {
        let detectable = pool.detectable.map(|share| {
            format!(
                "; a difference of {:.1} % would have been found four times in five",
                share * 100.0
            )
        });
        let sentence = format!("- {}{}.", sentence(pool), detectable.unwrap_or_default());
        text += &wrap(&sentence, COLUMNS, "  ");
    }
    let mut table = Table::new(&[
        ("run", Left),
        ("workload", Left),
        ("rounds", Right),
        ("tokens/s ×", Right),
    ]);
    let speed = pools.first().map(|pool| &pool.comparisons[..]);
    for compared in speed.unwrap_or_default() {
        table.rows.push(vec![
            compared.run.clone(),
            compared.workload.clone(),
            compared.rounds.to_string(),
            format!("{:.3}", compared.ratio),
        ]);
    }
    text + &format!("\n{}", table.to_markdown())
}
