// SPDX-License-Identifier: GPL-2.0-only
//! A study's tables and figures beside ours: a table each, and where the study has an axis theirs and ours along it.

use std::collections::BTreeSet;

use super::chart::{Axis, Line, chart};
use super::format::figure;
use super::lines::Picture;
use super::model::Report;
use super::section::Section;
use super::table::{Align, Table};
use crate::matrix::{Figure, Measure, Published, PublishedRow, Value, Workload};
use crate::record::neighbour::Neighbour;
use crate::study::{Parts, Row};
use gpuaware_stats::Estimate;

use Align::{Left, Right};

/// The source and what is compared, then a section for each table and figure; none if the matrix stands beside no
/// study of pipelines.
pub fn sections(report: &Report) -> Vec<Section> {
    let Some(published) = &report.plan.matrix.published else {
        return Vec::new();
    };
    let Published {
        source,
        setting,
        figures,
    } = published;
    let first = Section {
        heading: "Beside the published study".to_owned(),
        text: format!(
            "Theirs: {source}; measured on {setting}. Ours: this run. The machines are different: compare what is relative."
        ),
        ..Section::default()
    };
    let of_figures = figures.iter().map(|of| {
        let heading = format!("{}: {}", of.name, of.title);
        let uncounted = uncounted(report, of);
        let text = uncounted.map(|why| format!("{} Ours were not counted: {why}.", of.note));
        let table = uncounted.is_none().then(|| table(report, of));
        Section {
            heading,
            is_part: true,
            text: text.unwrap_or_else(|| of.note.clone()),
            tables: Vec::from_iter(table.filter(|table| !table.rows.is_empty())),
            pictures: pictures(report, of),
            ..Section::default()
        }
    });
    std::iter::once(first).chain(of_figures).collect()
}

/// The arm of a row of ours.
fn arm<'a>(report: &'a Report, row: &'a PublishedRow) -> &'a str {
    row.arm.as_deref().unwrap_or(&report.plan.matrix.baseline)
}

/// The subject, where a figure's rows of ours are of other arms and it takes part in one of their workloads.
fn subject<'a>(report: &'a Report, of: &Figure) -> Option<&'a str> {
    let matrix = &report.plan.matrix;
    let subject = matrix.subject.as_str();
    let ours = || of.rows.iter().filter(|row| row.workload.is_some());
    let takes_part = |row: &PublishedRow| {
        let is_its = |workload: &&Workload| row.workload.as_ref() == Some(&workload.name);
        let workload = matrix.workloads.iter().find(is_its);
        workload.is_some_and(|its| its.has_arm(subject))
    };
    let has_it = matrix.arms.iter().any(|arm| arm == subject) && ours().any(takes_part);
    (has_it && ours().any(|row| arm(report, row) != subject)).then_some(subject)
}

fn table(report: &Report, of: &Figure) -> Table {
    let subject = subject(report, of);
    let mut table = Table::new(&[("", Left), ("ours", Left)]);
    for measure in of.measures() {
        let names = [format!("{}, theirs", measure.heading()), "ours".to_owned()];
        let subject = subject.map(str::to_owned);
        let names = names.into_iter().chain(subject);
        table.columns.extend(names.map(|name| (name, Right)));
    }
    for row in &of.rows {
        let mut cells = vec![row.name.clone(), place(report, row)];
        for measure in of.measures() {
            cells.push(theirs(row.values.get(&measure)));
            let arms = [Some(arm(report, row)), subject].into_iter().flatten();
            let full = arms.map(|arm| figure(ours(report, row, arm, measure), 2, true));
            cells.extend(full.take(1 + usize::from(subject.is_some())));
        }
        table.rows.push(cells);
    }
    table
}

/// Which of our rows it is.
fn place(report: &Report, row: &PublishedRow) -> String {
    let Some(workload) = &row.workload else {
        return String::new();
    };
    let over = row.over.iter().map(|over| format!(" over {over}"));
    let beside = match row.neighbour {
        Neighbour::None => String::new(),
        noisy => format!(" beside {noisy}"),
    };
    let over: String = over.collect();
    format!("{workload}{over}{beside}, {}", arm(report, row))
}

/// A study's figures have no interval.
fn theirs(value: Option<&Value>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Value::Number(value)) => value.to_string(),
        Some(Value::Text(text)) => text.clone(),
    }
}

/// A row's figure under an arm.
fn ours(report: &Report, row: &PublishedRow, arm: &str, measure: Measure) -> Option<Estimate> {
    let own = value(report, row.workload.as_ref()?, row.neighbour, arm, measure)?;
    let Some(over) = &row.over else {
        return Some(own);
    };
    let below = value(report, over, row.neighbour, arm, measure)?.value;
    // Of two workloads, which are no pair in a round: without an interval.
    (below > 0.0).then(|| Estimate::new(own.value / below, None))
}

fn value(
    report: &Report,
    workload: &str,
    neighbour: Neighbour,
    arm: &str,
    measure: Measure,
) -> Option<Estimate> {
    let row = find(report, workload, neighbour, arm)?;
    let parts = || report.parts(row);
    let percent = |share: Estimate| share.scaled(100.0);
    match measure {
        Measure::ItemsPerS => row.tokens_per_s,
        Measure::P50Ms => row.token_p50_ms,
        Measure::P99Ms => row.token_p99_ms,
        Measure::MeanMs => parts()?.end_to_end.mean_ms,
        Measure::PrepareMs => parts()?.call()?.before.mean_ms,
        Measure::HandOverMs => parts()?.call()?.delay.mean_ms,
        Measure::CallsMs => parts()?.calls.values().next()?.mean_ms,
        Measure::SlowestHandOverMs => slowest(parts()?),
        Measure::Over200MsPercent => missed(parts()?, 200.0).map(percent),
        Measure::Over500MsPercent => missed(parts()?, 500.0).map(percent),
        Measure::GainPercent => gain(report, row),
        Measure::LlcMissesPercent => llc_change(report, row),
    }
}

fn find<'a>(
    report: &'a Report,
    workload: &str,
    neighbour: Neighbour,
    arm: &str,
) -> Option<&'a Row> {
    let mut rows = report.summary.rows.iter();
    rows.find(|row| {
        (row.workload.as_str(), row.neighbour, row.arm.as_str()) == (workload, neighbour, arm)
    })
}

/// Beside a neighbour it has no interval: shares are of quiet cells.
fn gain(report: &Report, row: &Row) -> Option<Estimate> {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    if row.neighbour == Neighbour::None {
        let share = row.share_of_clean?;
        let interval = share.interval.map(|ends| ends.map(percent));
        return Some(Estimate::new(percent(share.value), interval));
    }
    let baseline = &report.plan.matrix.baseline;
    let below = find(report, &row.workload, row.neighbour, baseline)?.tokens_per_s?;
    let ratio = row.tokens_per_s?.value / below.value;
    Some(Estimate::new(percent(ratio), None))
}

/// Without an interval, as beside a neighbour.
fn llc_change(report: &Report, row: &Row) -> Option<Estimate> {
    let of = |row| Some(report.parts(row)?.llc_misses_an_item?.value);
    let baseline = &report.plan.matrix.baseline;
    let below = of(find(report, &row.workload, row.neighbour, baseline)?)?;
    (below > 0.0).then_some(Estimate::new((of(row)? / below - 1.0) * 100.0, None))
}

/// Why a figure of cache misses has none of ours.
fn uncounted<'a>(report: &'a Report, of: &Figure) -> Option<&'a str> {
    let rows = of.rows.iter().filter(|row| row.workload.is_some());
    let is_asked = of.measures().contains(&Measure::LlcMissesPercent);
    let mut parts = rows.filter_map(|row| {
        let workload = row.workload.as_ref()?;
        report.parts(find(report, workload, row.neighbour, arm(report, row))?)
    });
    let first = parts.next().filter(|_| is_asked)?;
    let error = first.llc_misses_error.as_deref();
    error.filter(|_| parts.all(|parts| parts.llc_misses_an_item.is_none()))
}

fn missed(parts: &Parts, ms: f64) -> Option<Estimate> {
    let mut objectives = parts.objectives.iter();
    objectives.find(|objective| objective.ms == ms)?.share
}

fn slowest(parts: &Parts) -> Option<Estimate> {
    let whole = parts.hand_overs.iter().filter_map(|hand_over| {
        let copying = hand_over.transfer.mean_ms.map_or(0.0, |ms| ms.value);
        Some(Estimate::new(
            hand_over.delay.mean_ms?.value + copying,
            None,
        ))
    });
    whole.max_by(|a, b| a.value.total_cmp(&b.value))
}

/// Of each measure theirs and ours, for as much as there is.
fn pictures(report: &Report, of: &Figure) -> Vec<Picture> {
    let Some(label) = &of.x else {
        return Vec::new();
    };
    let measures = of.measures().into_iter();
    let both = measures.flat_map(|measure| {
        let what = measure.heading();
        let number = |row: &PublishedRow| match row.values.get(&measure)? {
            Value::Number(value) => Some(Estimate::new(*value, None)),
            Value::Text(_) => None,
        };
        let theirs = lines(of, "", 0, number);
        let own = |row: &PublishedRow| ours(report, row, arm(report, row), measure);
        let mut own = lines(of, "", 0, own);
        if let Some(subject) = subject(report, of) {
            let under = |row: &PublishedRow| ours(report, row, subject, measure);
            own.extend(lines(of, subject, own.len(), under));
        }
        [("theirs", theirs), ("ours", own)].map(|(whose, lines)| draw(label, whose, what, &lines))
    });
    both.flatten().collect()
}

/// The name of a line, its place among those of a picture, and its points.
type Points = (String, usize, Vec<(f64, Estimate)>);

/// One through all rows of a name, in the order of the file.
fn lines(
    of: &Figure,
    under: &str,
    first: usize,
    value: impl Fn(&PublishedRow) -> Option<Estimate>,
) -> Vec<Points> {
    let mut lines: Vec<Points> = Vec::new();
    for row in &of.rows {
        let Some(point) = row.x.zip(value(row)) else {
            continue;
        };
        let name = match under {
            "" => row.name.clone(),
            arm => format!("{}, {arm}", row.name),
        };
        match lines.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., points)) => points.push(point),
            None => lines.push((name, first + lines.len(), vec![point])),
        }
    }
    lines
}

fn draw(label: &str, whose: &str, what: &str, lines: &[Points]) -> Option<Picture> {
    let values: BTreeSet<u64> = (lines.iter())
        .flat_map(|(.., points)| points.iter().map(|(x, _)| x.to_bits()))
        .collect();
    let mut values: Vec<f64> = values.into_iter().map(f64::from_bits).collect();
    values.sort_by(f64::total_cmp);
    let drawn = lines.iter().map(|(name, place, points)| Line {
        name,
        colour: place % super::look::COLOURS,
        points: points.clone(),
    });
    let drawn: Vec<Line> = drawn.collect();
    let axis = Axis {
        label,
        values: &values,
    };
    (!drawn.is_empty()).then(|| Picture {
        heading: format!("{whose}: {what}"),
        svg: chart(&axis, what, &drawn),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    /// The sample's workload, and one twice as fast.
    fn report(figures: &str) -> Report {
        let mut report = samples::report();
        let text = format!("source = \"a paper\"\nsetting = \"a GPU\"\n{figures}");
        report.plan.matrix.published = Some(toml::from_str(&text).unwrap());
        let mut rows = report.summary.rows.clone();
        for row in &mut rows {
            row.workload = "qwen3-2".to_owned();
            row.tokens_per_s = row.tokens_per_s.map(|speed| speed.scaled(2.0));
        }
        report.summary.rows.extend(rows);
        report
    }

    #[test]
    fn theirs_ours_and_the_subject_stand_side_by_side() {
        let report = report(
            "[[figure]]\nname = \"Table 1\"\ntitle = \"speeds\"\nnote = \"n\"\nrow = [\n\
             { name = \"CS0\", workload = \"qwen3\", values = { items_per_s = 0.67, gain_percent = \"none\" } },\n\
             { name = \"CS2\", workload = \"qwen3\", neighbour = \"cpu\", values = { items_per_s = 0.84 } },\n\
             { name = \"twice\", workload = \"qwen3-2\", over = \"qwen3\", values = { items_per_s = 1.5 } },\n\
             { name = \"theirs alone\", values = { items_per_s = 3 } },\n]\n",
        );
        let sections = sections(&report);
        let [first, section] = sections.as_slice() else {
            panic!("the source, and one table")
        };
        assert!(
            first
                .text
                .starts_with("Theirs: a paper; measured on a GPU.")
        );
        assert_eq!(
            (section.heading.as_str(), section.pictures.len()),
            ("Table 1: speeds", 0)
        );
        let table = &section.tables[0];
        let names: Vec<&str> = table
            .columns
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(
            names.join("|"),
            "|ours|items/s, theirs|ours|gpuaware|gain %, theirs|ours|gpuaware"
        );
        let row = |at: usize| table.rows[at].join("|");
        assert!(
            row(0).starts_with("CS0|qwen3, eevdf|0.67|99.99 "),
            "{}",
            row(0)
        );
        assert!(row(0).contains("|none|0.00"), "{}", row(0));
        assert!(
            row(1).starts_with("CS2|qwen3 beside cpu, eevdf|0.84|59."),
            "{}",
            row(1)
        );
        // 98 over 60.
        assert!(row(1).contains("|–|0.00|63."), "{}", row(1));
        assert!(
            row(2).starts_with("twice|qwen3-2 over qwen3, eevdf|1.5|2.00|2.00|"),
            "{}",
            row(2)
        );
        assert_eq!(row(3), "theirs alone||3|–|–|–|–|–");
    }

    #[test]
    fn along_an_axis_both_are_drawn() {
        let report = report(
            "[[figure]]\nname = \"Figure 3\"\ntitle = \"speed\"\nx = \"k\"\nrow = [\n\
             { name = \"L0\", x = 1, workload = \"qwen3\", values = { items_per_s = 2.65 } },\n\
             { name = \"L0\", x = 2, workload = \"qwen3-2\", values = { items_per_s = 2.74 } },\n\
             ]\n",
        );
        let pictures = &sections(&report)[1].pictures;
        let headings: Vec<&str> = pictures.iter().map(|p| p.heading.as_str()).collect();
        assert_eq!(headings, ["theirs: items/s", "ours: items/s"]);
        assert_eq!(pictures[0].svg.matches("<circle").count(), 2);
        let ours = &pictures[1].svg;
        assert_eq!(
            ours.matches("<polyline").count(),
            2,
            "EEVDF and the subject"
        );
        assert!(ours.contains(">L0, gpuaware</text>"));
    }

    #[test]
    fn misses_of_caches_are_beside_the_baselines_or_say_why_not() {
        let mut report = report(
            "[[figure]]\nname = \"Misses\"\ntitle = \"t\"\nnote = \"n\"\nrow = [\n\
             { name = \"a\", workload = \"qwen3\", arm = \"gpuaware\", values = { llc_misses_percent = \"below 0\" } },\n]\n",
        );
        let parts = |arm: &str, misses: Option<f64>, why: Option<&str>| -> Parts {
            serde_json::from_value(serde_json::json!({"workload": "qwen3", "neighbour": "none", "arm": arm, "offered": 1,
                "failed": 0, "unfinished": 0, "hand_overs": [], "calls": {}, "llc_misses_error": why,
                "llc_misses_an_item": misses.map(|value| Estimate::new(value, None))}))
            .unwrap()
        };
        report.summary.pipelines = vec![
            parts("eevdf", Some(8.0), None),
            parts("gpuaware", Some(6.0), None),
        ];
        let shown = &sections(&report)[1];
        let row = shown.tables[0].rows[0].join("|");
        assert_eq!(row, "a|qwen3, gpuaware|below 0|-25.00");
        report.summary.pipelines = ["eevdf", "gpuaware"]
            .map(|arm| parts(arm, None, Some("No such file or directory")))
            .into();
        let shown = &sections(&report)[1];
        assert!(shown.tables.is_empty());
        let why = "n Ours were not counted: No such file or directory.";
        assert_eq!(shown.text, why);
    }
}
