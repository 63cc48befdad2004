// SPDX-License-Identifier: GPL-2.0-only
//! What a report holds, in its order: the one list of sections that [`super::html`] and [`super::markdown`] write.

use super::format::Detail;
use super::lines::Picture;
use super::model::Report;
use super::section::{Layout, Section};
use super::{
    bars, bpf, cdf, checks, dominance, kept, lines, published, reference, scatter, sections,
    tables, traced,
};
use crate::matrix::Workload;
use crate::record::neighbour::Neighbour;

const SCATTER: &str = "Up is a faster launcher, right are neighbours that get more done: the upper right corner is where to be. \
     The broken line, where the launcher's CPU time is known, is the limit: with what it leaves, nobody's neighbours get more done. \
     Colours are arms, marks are neighbours; lines are 95 % intervals. Of neighbours that are always runnable (cpu, heavy) CPU time \
     is the limit; the others sleep as well, and get more or less done by when they run, too: hollow marks.";
const SWEEP: &str = "A line an arm; strokes are 95 % intervals, and one that ends at the upper edge goes on beyond it.";
const COURSES: &str = "Requests in the order of their arrival, as many in each point, warm-up left out; of these the slowest. A line an arm.";

/// What stands before all sections.
pub struct Title {
    pub heading: String,
    pub setting: String,
    pub command: String,
    pub seed: u64,
}

pub fn title(report: &Report) -> Title {
    let plan = &report.plan;
    Title {
        heading: format!("{}: {}", plan.name, plan.matrix.description),
        setting: format!("{}.", sections::setting(report)),
        command: plan.command_line.clone(),
        seed: plan.seed,
    }
}

pub fn contents(report: &Report) -> Vec<Section> {
    let matrix = &report.plan.matrix;
    let mut all = Vec::new();
    all.extend(scatters(report));
    all.extend(along(report));
    all.extend(
        matrix
            .workloads
            .iter()
            .map(|workload| headline(report, workload)),
    );
    all.push(Section::with_list("Findings", sections::sentences(report)));
    all.push(Section::with_list("Checks", checks::sentences(report)));
    all.extend(dominance::table(report).map(|table| Section {
        text: dominance::explanation(report),
        layout: Layout::Top,
        ..Section::with_table(dominance::heading(report), table)
    }));
    all.extend(reference::section(report).map(|(heading, text, table)| {
        let section = Section::with_table(heading, table);
        Section { text, ..section }
    }));
    all.extend(published::sections(report));
    all.extend(charts(report));
    all.push(Section::with_table(
        format!("What the neighbours got done, % of {}", matrix.baseline),
        tables::work(report),
    ));
    all.push(Section::with_table(
        format!("{} against the others, ratios", matrix.subject),
        tables::versus(report),
    ));
    for (heading, table) in traced::tables(report, Detail::Full) {
        all.push(Section::with_table(heading, table));
    }
    for (heading, table) in bpf::tables(report) {
        all.push(Section::with_table(heading, table));
    }
    let legend = sections::LEGEND.iter().map(|line| (*line).to_owned());
    all.push(Section {
        list: legend.collect(),
        layout: Layout::Wrapped,
        ..Section::with_table("How to read it", sections::arms(report))
    });
    all.push(Section {
        layout: Layout::Wrapped,
        ..Section::with_table("Machine", sections::facts(report))
    });
    all
}

fn scatters(report: &Report) -> Option<Section> {
    let panels = report.plan.matrix.workloads.iter().map(|workload| Picture {
        heading: workload.name.clone(),
        svg: scatter::panel(report, &workload.name),
    });
    let heading = "Speed against the neighbours' work";
    Section::with_pictures(heading, SCATTER, drawn(panels))
}

/// Along the axes of sweeps, and along the requests of a server.
fn along(report: &Report) -> Vec<Section> {
    let sweeps = report.plan.matrix.sweeps.iter();
    let lines_of = sweeps.filter_map(|sweep| {
        let heading = format!("By {}", sweep.label);
        Section::with_pictures(&heading, SWEEP, lines::pictures(report, sweep))
    });
    let kept = kept::tables(report).into_iter();
    let kept = kept.map(|(heading, table)| Section::with_table(heading, table));
    let heading = "By the number of the request";
    let courses = Section::with_pictures(heading, COURSES, lines::courses(report));
    lines_of.chain(kept).chain(courses).collect()
}

fn headline(report: &Report, workload: &Workload) -> Section {
    let mut tables = vec![tables::headline(report, &workload.name, Detail::Full)];
    tables.extend(tables::of_parts(report, &workload.name, Detail::Full));
    Section {
        heading: workload.name.clone(),
        command: workload.describe(),
        tables,
        layout: Layout::Stacked,
        ..Section::default()
    }
}

fn charts(report: &Report) -> impl Iterator<Item = Section> {
    let speed = "Share of own quiet speed beside each neighbour";
    let latency = "Latency beside each neighbour";
    [
        Section::with_pictures(speed, "", beside_each(report, "", bars::chart)),
        Section::with_pictures(latency, "", beside_each(report, ": latency", cdf::chart)),
    ]
    .into_iter()
    .flatten()
}

/// A picture for each workload beside each noisy neighbour.
fn beside_each(
    report: &Report,
    what: &str,
    chart: fn(&Report, &str, Neighbour) -> String,
) -> Vec<Picture> {
    let matrix = &report.plan.matrix;
    let noisy = matrix.neighbours.iter().filter(|n| **n != Neighbour::None);
    let noisy: Vec<Neighbour> = noisy.copied().collect();
    let all = matrix.workloads.iter().flat_map(|workload| {
        noisy.iter().map(move |&neighbour| Picture {
            heading: format!("{} beside {neighbour}{what}", workload.name),
            svg: chart(report, &workload.name, neighbour),
        })
    });
    drawn(all)
}

/// Those that something was measured for.
fn drawn(pictures: impl Iterator<Item = Picture>) -> Vec<Picture> {
    pictures.filter(|picture| !picture.svg.is_empty()).collect()
}
