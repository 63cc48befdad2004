// SPDX-License-Identifier: GPL-2.0-only
//! The report as one self-contained HTML page: no network, light and dark, data embedded.

use std::fmt::Write;

use super::bars::{self, Bar};
use super::model::Report;
use super::table::escape;
use super::words::{short, time_ms, time_us};
use super::{chart, sections};
use crate::analyze::compare::{Arm, Cell, Estimate};
use crate::analyze::figures::Analysis;

const STYLE: &str = include_str!("page.css");
const COLOURS: usize = 8;

pub fn render(report: &Report) -> serde_json::Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} · scx_gpuaware analyze</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>What the scheduler and interrupts did to launch paths</h1>\n",
        escape(&title(report))
    );
    for (at, section) in sections::all(report, false).iter().enumerate() {
        page += &section.to_html();
        if at == 0 {
            page += &compared(report);
        }
    }
    for file in &report.files {
        let _ = writeln!(page, "<hr>\n<h1>{}</h1>", escape(&file.source.label));
        page += &pictures(file);
        for section in sections::of_file(file) {
            page += &section.to_html();
        }
    }
    let json = serde_json::to_string(report)?;
    // "</script>" or "<!--" in a string would end the element, or never end it.
    let json = json.replace('<', "\\u003c");
    let _ = writeln!(
        page,
        "<script type=\"application/json\" id=\"figures\">{json}</script>"
    );
    Ok(page + "</main>\n</body>\n</html>\n")
}

fn title(report: &Report) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for file in &report.files {
        if !labels.contains(&file.source.label.as_str()) {
            labels.push(&file.source.label);
        }
    }
    labels.join(", ")
}

fn card(cards: &mut String, title: &str, svg: &str) {
    if !svg.is_empty() {
        let _ = writeln!(
            cards,
            "<div class=\"card\"><h3>{}</h3>\n{svg}</div>",
            escape(title)
        );
    }
}

fn cards(cards: &str) -> String {
    if cards.is_empty() {
        return String::new();
    }
    format!("<div class=\"pair\">\n{cards}</div>\n")
}

/// One chart for each figure that can be told of two arms at least.
fn compared(report: &Report) -> String {
    let mut all = String::new();
    if let Some(comparison) = &report.comparison {
        let arms = || comparison.arms.iter().enumerate();
        for row in &comparison.rows {
            let bar = |((at, arm), cell): ((usize, &Arm), &Option<Cell>)| {
                let Estimate { value, interval } = cell.as_ref()?.figure;
                let bar = Bar::new(&arm.label, value, short(value), at % COLOURS);
                Some(Bar { interval, ..bar })
            };
            let bars: Vec<Bar> = arms().zip(&row.arms).filter_map(bar).collect();
            if bars.len() > 1 {
                card(&mut all, row.name, &bars::chart(row.name, &bars));
            }
        }
    }
    cards(&all)
}

fn pictures(file: &Analysis) -> String {
    let mut all = String::new();
    if let Some(busiest) = &file.study.busiest {
        card(&mut all, "Launch intervals", &chart::intervals(busiest));
    }
    let launches = chart::launches(&file.timeline);
    card(&mut all, "Launches and switches", &launches);
    card(&mut all, "Time lost", &chart::lost(&file.timeline));
    let stolen = file.ours.stolen.iter().map(|row| {
        let colour = row.cause as usize % COLOURS;
        Bar::new(
            row.cause.words(),
            row.total_ms,
            time_ms(row.total_ms),
            colour,
        )
    });
    let irqs = file.study.irqs.iter().take(10).map(|row| {
        let colour = row.kind as usize + 3;
        Bar::new(&row.name, row.total_us, time_us(row.total_us), colour)
    });
    let preemptors = file.ours.preemptors.iter().map(|row| {
        let text = format!("{} in {}", time_ms(row.total_ms), row.times);
        Bar::new(&row.comm, row.total_ms, text, 1)
    });
    for (title, bars) in [
        (
            "Time in launch intervals that was not computing",
            stolen.collect::<Vec<_>>(),
        ),
        ("Interrupts, total time", irqs.collect()),
        ("Who preempted", preemptors.collect()),
    ] {
        card(&mut all, title, &bars::chart(title, &bars));
    }
    cards(&all)
}
