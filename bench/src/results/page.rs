// SPDX-License-Identifier: GPL-2.0-only
//! docs/results.md: what each run that is quoted found, with its command, revision and kernel. Pure.

use super::cost;
use super::index::{Index, Kept};
use super::loaded::Loaded;
use super::markers::COLUMNS;
use crate::report::format::{Detail, figure, latency, percent, times};
use crate::report::table::{Align, Table};
use crate::report::{Report, checks, dominance, sections, tables};
use crate::study::Row;
use crate::words::wrap;

use Align::{Left, Right};

const HEAD: &str = "\
# Results

<!-- Written by `gpuaware-bench results` from bench/runs/index.toml and the raw cells of the runs: do not edit. -->
";

const READING: [&str; 4] = [
    "All of it was measured in virtual machines, most of them under software emulation, with an emulated GPU. Nothing \
     here is of a genuine GPU ([gpu-check.md](gpu-check.md) is) or of many CPUs.",
    "Speed is tokens/s over two references in the same round: those of the arm that reserves CPUs (isolcpus), beside the \
     same neighbour, and the arm's own on a quiet machine. The p99 is of a token's latency. *Work* is what the neighbours \
     got done, EEVDF = 100; *of possible* is that over what the launcher's own CPU time leaves. *Idle* is CPU time that \
     nobody used.",
    "In brackets stands the 95 % interval of [bench.md](bench.md#how-to-read-the-report), which has the other terms too. \
     Where there is none, there were too few boots or rounds for one.",
    "Each section ends with the command that makes the full report again.",
];

pub fn render(index: &Index, loaded: &Loaded) -> String {
    let mut text = HEAD.to_owned();
    for paragraph in READING {
        text += &format!("\n{}", wrap(paragraph, COLUMNS, ""));
    }
    for (kept, heading) in index.shown() {
        text += &format!(
            "\n## {heading}\n\n{}",
            section(kept, &loaded.reports[&kept.run])
        );
    }
    text += &format!(
        "\n## What it costs where nothing disturbs\n\n{}",
        cost::section(&loaded.pool, index)
    );
    text + &format!("\n## All runs that are kept\n\n{}", kept(index))
}

fn section(kept: &Kept, report: &Report) -> String {
    let mut text = wrap(&provenance(kept, report), COLUMNS, "");
    if let Some(note) = &kept.note {
        text += &format!("\n{}", wrap(note.trim(), COLUMNS, ""));
    }
    // A study of pipelines has dozens of workloads: what is to be read of them stands in docs/studies.md.
    let is_long = report.plan.matrix.published.is_some();
    for workload in &report.plan.matrix.workloads {
        let name = &workload.name;
        text += &format!("\n### {name}: {}\n\n", kept.run);
        text += &launcher(report, name).to_markdown();
        let parts = (!is_long).then(|| tables::of_parts(report, name, Detail::Full));
        for table in parts.into_iter().flatten() {
            text += &format!("\n{}", table.to_markdown());
        }
    }
    text.push('\n');
    let sentences = dominance::sentences(report)
        .into_iter()
        .chain(sections::sentences(report))
        .chain(checks::sentences(report));
    let mut said: Vec<String> = Vec::new();
    for sentence in sentences {
        if !said.contains(&sentence) {
            text += &wrap(&format!("- {sentence}"), COLUMNS, "  ");
            said.push(sentence);
        }
    }
    let more = match is_long {
        true => ", with each hand-over and stage, and the study's figures beside ours",
        false => "",
    };
    let again = format!(
        "Again: `gpuaware-bench report bench/runs/{}`; as kept: `bench/runs/{0}/report.md`{more}.",
        kept.run
    );
    text + &format!("\n{}", wrap(&again, COLUMNS, ""))
}

/// Where, when and how it was measured.
fn provenance(kept: &Kept, report: &Report) -> String {
    let plan = &report.plan;
    let boots = plan
        .blocks
        .iter()
        .filter(|block| block.group == crate::plan::SHARED);
    format!(
        "`{}` at revision {}, seed {}; {}; {} boots of the arms that share one.",
        plan.command_line,
        kept.revision,
        plan.seed,
        sections::setting(report),
        boots.count()
    )
}

/// The launcher's table, as narrow as it can be.
fn launcher(report: &Report, workload: &str) -> Table {
    let reserved = report.plan.matrix.reserved_arm();
    let mut table = Table::new(&[("beside", Left), ("arm", Left), ("tok/s", Right)]);
    let over = reserved.map(|arm| format!("× {arm}"));
    let p99_over = reserved.map(|arm| format!("p99 × {arm}"));
    let named = |name: &str| name.to_owned();
    let columns = over
        .into_iter()
        .chain([named("× own quiet"), named("p99 ms")])
        .chain(p99_over)
        .chain([named("work %"), named("of possible %"), named("idle %")]);
    table.columns.extend(columns.map(|name| (name, Right)));
    let mut last = None;
    let rows = report.summary.rows.iter();
    for row in rows.filter(|row| row.workload == workload) {
        let strong = row.arm == report.plan.matrix.subject;
        let first = table.next_row(&mut last, row.neighbour, strong);
        let beside = if first { row.neighbour.name() } else { "" };
        table.rows.push(cells(row, beside, reserved.is_some()));
    }
    table
}

fn cells(row: &Row, beside: &str, reserved: bool) -> Vec<String> {
    let mut cells = vec![
        beside.to_owned(),
        row.arm.clone(),
        figure(row.tokens_per_s, 0, false),
    ];
    cells.extend(reserved.then(|| times(row.over_isolcpus, true)));
    cells.push(times(row.over_own_quiet, true));
    cells.push(latency(row.token_p99_ms, false));
    cells.extend(reserved.then(|| times(row.p99_over_isolcpus, true)));
    cells.extend([
        percent(row.work_mean, 0, true),
        percent(row.work_of_possible, 0, true),
        figure(row.idle_percent, 1, false),
    ]);
    cells
}

/// Every run of the index, a line each.
fn kept(index: &Index) -> String {
    let mut table = Table::new(&[
        ("run", Left),
        ("matrix", Left),
        ("revision", Left),
        ("kernel", Left),
        ("what it is quoted for", Left),
        ("by", Left),
    ]);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    table.rows = index
        .runs
        .iter()
        .map(|kept| {
            let names = kept.quoted.iter().filter(|file| *file != "docs/results.md");
            let by: Vec<&str> = names.map(String::as_str).collect();
            vec![
                format!("`{}`", kept.run),
                or_none(&kept.matrix),
                kept.revision.clone(),
                or_none(&kept.kernel),
                kept.purpose.clone(),
                by.join(", "),
            ]
        })
        .collect();
    table.to_markdown()
}
