// SPDX-License-Identifier: GPL-2.0-only
//! The report as one self-contained HTML page: no network, light and dark, data embedded.

use std::fmt::Write;

use super::bars::{self, Bar};
use super::model::Report;
use super::table::escape;
use super::words::{short, time_us};
use super::{chart, sections};
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
    let Some(comparison) = &report.comparison else {
        return String::new();
    };
    let mut all = String::new();
    for row in &comparison.rows {
        let bars: Vec<Bar> = comparison
            .arms
            .iter()
            .zip(&row.arms)
            .enumerate()
            .filter_map(|(at, (arm, cell))| {
                let figure = cell.as_ref()?.figure;
                Some(Bar {
                    name: arm.label.clone(),
                    value: figure.value,
                    interval: figure.interval,
                    text: short(figure.value),
                    colour: at % COLOURS,
                })
            })
            .collect();
        if bars.len() > 1 {
            card(&mut all, row.name, &bars::chart(row.name, &bars));
        }
    }
    cards(&all)
}

fn pictures(file: &Analysis) -> String {
    let mut all = String::new();
    if let Some(busiest) = &file.study.busiest {
        card(&mut all, "Launch intervals", &chart::intervals(busiest));
    }
    card(
        &mut all,
        "Launches and switches",
        &chart::launches(&file.timeline),
    );
    card(&mut all, "Time lost", &chart::lost(&file.timeline));
    let stolen: Vec<Bar> = file
        .ours
        .stolen
        .iter()
        .map(|row| Bar {
            name: row.cause.words().to_owned(),
            value: row.total_ms,
            interval: None,
            text: time_us(row.total_ms * 1e3),
            colour: row.cause as usize % COLOURS,
        })
        .collect();
    let title = "Time in launch intervals that was not computing";
    card(&mut all, title, &bars::chart(title, &stolen));
    let irqs: Vec<Bar> = file
        .study
        .irqs
        .iter()
        .take(10)
        .map(|row| Bar {
            name: row.name.clone(),
            value: row.total_us,
            interval: None,
            text: time_us(row.total_us),
            colour: row.kind as usize + 3,
        })
        .collect();
    let title = "Interrupts, total time";
    card(&mut all, title, &bars::chart(title, &irqs));
    let preemptors: Vec<Bar> = file
        .ours
        .preemptors
        .iter()
        .map(|row| Bar {
            name: row.comm.clone(),
            value: row.total_ms,
            interval: None,
            text: format!("{} in {}", time_us(row.total_ms * 1e3), row.times),
            colour: 1,
        })
        .collect();
    let title = "Who preempted";
    card(&mut all, title, &bars::chart(title, &preemptors));
    cards(&all)
}
