// SPDX-License-Identifier: GPL-2.0-only
//! Reports a run from its raw cells: a table for the terminal, report.md, report.html and
//! summary.json. Says what the study found; computes nothing itself.

mod bars;
mod bpf;
mod cdf;
mod chart;
pub mod checks;
mod columns;
mod contents;
pub mod dominance;
pub mod format;
mod html;
mod kept;
mod labels;
mod lines;
pub mod look;
mod markdown;
mod model;
mod pipelines;
mod published;
mod quiet;
mod reference;
pub mod scatter;
mod section;
pub mod sections;
mod softirqs;
pub mod table;
pub mod tables;
mod ticks;
mod traced;

use std::path::Path;

use crate::datafile::DataError;
use crate::plan::Plan;
use crate::record::facts::Facts;
use crate::record::{self, RunDir};
use crate::replace::put;
use crate::study;
use crate::words::wrap;
use anyhow::{Result, bail};
use format::Detail;
pub use format::figure;
pub use model::Report;
use table::TERMINAL_COLUMNS;

/// Studies the cells in `dir`.
pub fn read(dir: &Path) -> Result<Report> {
    let run = RunDir::open(dir)?;
    let plan: Plan = record::read_json(&dir.join("plan.json"))?;
    let cells = run.cells()?;
    if cells.is_empty() {
        bail!("{}: no cell has been measured", dir.display());
    }
    let mut summary = study::study(&plan, &cells);
    summary.versions.extend(own_kernels(dir, &plan)?);
    let mut report = Report {
        summary,
        plan,
        guest: facts(&dir.join("facts-block0.json"))?,
        host: facts(&dir.join("facts-host.json"))?,
    };
    if let Some(hz) = ticks::hz(&report) {
        report.summary.ticks = study::ticks::ticks(&report.plan, &cells, hz);
    }
    Ok(report)
}

/// Writes the reports of the run in `dir` beside its cells. False: its own checks found something.
pub fn write(dir: &Path, print: bool) -> Result<bool> {
    let report = read(dir)?;
    record::write_json(&dir.join("summary.json"), &report)?;
    for (name, text) in [
        ("report.md", markdown::render(&report)),
        ("report.html", html::render(&report)?),
    ] {
        put(&dir.join(name), text)?;
    }
    for workload in &report.plan.matrix.workloads {
        let svg = scatter::standalone(&report, &workload.name);
        if !svg.is_empty() {
            put(&dir.join(format!("scatter-{}.svg", workload.name)), svg)?;
        }
    }
    let sweeps = report.plan.matrix.sweeps.iter();
    let along = sweeps.flat_map(|sweep| lines::pictures(&report, sweep));
    write_pictures(dir, "lines", along.chain(lines::courses(&report)))?;
    let beside = published::sections(&report).into_iter();
    write_pictures(
        dir,
        "published",
        beside.flat_map(|section| section.pictures),
    )?;
    if print {
        print!("{}", text(&report));
        println!("{}", dir.join("report.html").display());
    }
    Ok(checks::passed(&report))
}

/// The report of the run in `dir` as report.md has it.
pub fn markdown(dir: &Path) -> Result<String> {
    Ok(markdown::render(&read(dir)?))
}

/// The picture of the report's page with this heading, as a file of its own.
///
/// # Errors
/// There is none; says which there are.
pub fn picture(report: &Report, heading: &str) -> Result<String> {
    let sections = contents::contents(report).into_iter();
    let pictures: Vec<_> = sections.flat_map(|section| section.pictures).collect();
    let Some(picture) = pictures.iter().find(|picture| picture.heading == heading) else {
        let headings: Vec<&str> = pictures
            .iter()
            .map(|picture| picture.heading.as_str())
            .collect();
        let message = format!(
            "picture: expected one of {headings:?}, which the report of {} has, got {heading:?}",
            report.plan.name
        );
        return Err(DataError::Usage(message).into());
    };
    Ok(look::standalone(&picture.svg))
}

/// As files of their own: NAME-1.svg and so on.
fn write_pictures(
    dir: &Path,
    name: &str,
    pictures: impl Iterator<Item = lines::Picture>,
) -> Result<()> {
    for (at, picture) in pictures.enumerate() {
        let file = dir.join(format!("{name}-{}.svg", at + 1));
        put(&file, look::standalone(&picture.svg))?;
    }
    Ok(())
}

/// The kernels of arms that have one of their own, as the versions of what these arms are.
fn own_kernels(dir: &Path, plan: &Plan) -> Result<Vec<(String, String)>> {
    let mut kernels = Vec::new();
    for (index, block) in plan.blocks.iter().enumerate() {
        if block.kernel.is_none() {
            continue;
        }
        let facts = facts(&dir.join(format!("facts-block{index}.json")))?;
        if let Some(kernel) = facts.get("kernel") {
            let version = format!("Linux {kernel}");
            kernels.extend(
                block
                    .arms()
                    .iter()
                    .map(|arm| ((*arm).to_owned(), version.clone())),
            );
        }
    }
    Ok(kernels)
}

/// The facts in a file of a run's folder; none without it: a boot that never came up leaves no facts.
pub fn facts(file: &Path) -> Result<Facts> {
    if file.exists() {
        record::read_json(file)
    } else {
        Ok(Facts::new())
    }
}

fn text(report: &Report) -> String {
    let setting = format!("{}: {}", report.plan.name, sections::setting(report));
    let mut text = format!("\n{}", wrap(&setting, TERMINAL_COLUMNS, "  "));
    for workload in &report.plan.matrix.workloads {
        text += &format!("\n{}\n", workload.name);
        text += &tables::headline(report, &workload.name, Detail::Terminal).to_text();
        for table in tables::of_parts(report, &workload.name, Detail::Terminal) {
            text.push('\n');
            text += &table.to_text();
        }
    }
    for (heading, table) in traced::tables(report, Detail::Terminal) {
        text += &format!("\n{heading}\n{}", table.to_text());
    }
    text.push('\n');
    for sentence in sections::sentences(report)
        .into_iter()
        .chain(checks::sentences(report))
    {
        text += &wrap(&sentence, TERMINAL_COLUMNS, "  ");
    }
    text
}

#[cfg(test)]
pub mod samples {
    use super::*;
    use crate::record::neighbour::{Kind, Neighbour};
    use crate::record::samples::cell;
    use crate::study::samples::{with_launcher_cpus, with_work};

    /// Five rounds: the isolating arms leave 1.2 CPUs of 2, EEVDF 1.5.
    pub fn report() -> Report {
        let plan = crate::plan::samples::plan();
        let cells: Vec<_> = (1..=5)
            .flat_map(|round| {
                [
                    ("eevdf", 60.0, 0.5, 100.0),
                    ("isolcpus", 99.0, 0.8, 50.0),
                    ("gpuaware", 98.0, 0.8, 60.0),
                ]
                .into_iter()
                .flat_map(move |(arm, noisy, cpus, work)| {
                    let spread = f64::from(round) - 3.0;
                    let beside = cell(round, arm, Neighbour::Cpu, noisy + spread);
                    let beside = with_launcher_cpus(beside, cpus);
                    [
                        cell(round, arm, Neighbour::None, 100.0 + spread),
                        with_work(beside, &[(Kind::StressNg, work)]),
                    ]
                })
            })
            .collect();
        Report {
            summary: study::study(&plan, &cells),
            plan,
            guest: Facts::from([("kernel".to_owned(), "6.18.15".to_owned())]),
            host: Facts::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_table_fits_120_columns() {
        let text = text(&samples::report());
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 120, "{widest} columns:\n{text}");
        assert!(text.contains("gpuaware"), "{text}");
    }

    #[test]
    fn redoes_the_report_from_raw_cells() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        record::write_json(&dir.path().join("plan.json"), &crate::plan::samples::plan()).unwrap();
        let error = write(dir.path(), false).unwrap_err().to_string();
        assert!(error.ends_with("no cell has been measured"), "{error}");
        run.write_cell(&record::samples::cell(
            1,
            "eevdf",
            crate::record::neighbour::Neighbour::None,
            9.0,
        ))
        .unwrap();
        write(dir.path(), false).unwrap();
        for name in ["summary.json", "report.md", "report.html"] {
            assert!(
                dir.path().join(name).metadata().unwrap().len() > 100,
                "{name}"
            );
        }
    }
}
