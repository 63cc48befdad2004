// SPDX-License-Identifier: GPL-2.0-only
//! The report as one self-contained HTML page: no network, light and dark, the summary embedded. It links to one
//! thing, the raw cells beside it.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::format::Detail;
use super::look::STYLE;
use super::model::Report;
use super::sections;
use super::table::{Table, escape};
use super::{
    bars, bpf, cdf, checks, dominance, kept, lines, published, reference, scatter, tables, traced,
};
use crate::record::neighbour::Neighbour;

pub fn render(report: &Report) -> Result<String> {
    let matrix = &report.plan.matrix;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name} · gpuaware-bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{name}: {}</h1>\n<p class=\"lead\">{}.</p>\n",
        escape(&matrix.description),
        escape(&sections::setting(report)),
        name = escape(&report.plan.name),
    );
    let _ = writeln!(
        page,
        "<p class=\"lead\"><code>{}</code>, seed {}</p>",
        escape(&report.plan.command_line),
        report.plan.seed
    );
    pictures(&mut page, report);
    sweeps(&mut page, report);
    by_workload(&mut page, report);
    list(&mut page, &sections::sentences(report));
    page += "<h2>Checks</h2>\n";
    list(&mut page, &checks::sentences(report));
    if let Some(table) = dominance::table(report) {
        let (heading, explanation) = (dominance::heading(report), dominance::explanation(report));
        explained(&mut page, &heading, &explanation, &table, "top");
    }
    if let Some((heading, sentence, table)) = reference::section(report) {
        explained(&mut page, &heading, &sentence, &table, "");
    }
    beside_study(&mut page, report);
    bar_charts(&mut page, report);
    let _ = writeln!(
        page,
        "<h2>What the neighbours got done, % of {}</h2>",
        escape(&matrix.baseline)
    );
    page += &tables::work(report).to_html();
    let _ = writeln!(
        page,
        "<h2>{} against the others</h2>",
        escape(&matrix.subject)
    );
    page += &tables::versus(report).to_html();
    for (heading, table) in traced::tables(report, Detail::Full) {
        let _ = writeln!(page, "<h2>{}</h2>", escape(heading));
        page += &table.to_html();
    }
    for (heading, table) in bpf::tables(report) {
        let _ = writeln!(page, "<h2>{}</h2>", escape(&heading));
        page += &table.to_html();
    }
    reading(&mut page, report);
    embed(&mut page, report)?;
    Ok(page + "</main>\n</body>\n</html>\n")
}

fn by_workload(page: &mut String, report: &Report) {
    for workload in &report.plan.matrix.workloads {
        let _ = writeln!(
            page,
            "<h2>{}</h2>\n<p class=\"lead\"><code>{}</code></p>\n<div class=\"stacked\">",
            escape(&workload.name),
            escape(&workload.describe())
        );
        *page += &tables::headline(report, &workload.name, Detail::Full).to_html();
        for table in tables::of_parts(report, &workload.name, Detail::Full) {
            *page += &table.to_html();
        }
        *page += "</div>\n";
    }
}

/// A heading, a paragraph and a table in a class of its own.
fn explained(page: &mut String, heading: &str, sentence: &str, table: &Table, class: &str) {
    let _ = writeln!(
        page,
        "<h2>{}</h2>\n<p>{}</p>\n<div class=\"{class}\">\n{}</div>",
        escape(heading),
        escape(sentence),
        table.to_html()
    );
}

fn pictures(page: &mut String, report: &Report) {
    *page += "<h2>Speed against the neighbours' work</h2>\n<p>Up is a faster launcher, right are neighbours that get more done: the upper right corner is where to be. \
              The broken line, where the launcher's CPU time is known, is the limit: with what it leaves, nobody's neighbours get more done. \
              Colours are arms, marks are neighbours; lines are 95 % intervals. Of neighbours that are always runnable (<em>cpu</em>, <em>heavy</em>) CPU time is the limit; \
              the others sleep as well, and get more or less done by when they run, too: hollow marks.</p>\n<div class=\"pair\">\n";
    for workload in &report.plan.matrix.workloads {
        let svg = scatter::panel(report, &workload.name);
        if !svg.is_empty() {
            let _ = writeln!(
                page,
                "<div class=\"card\"><h3>{}</h3>\n{svg}</div>",
                escape(&workload.name)
            );
        }
    }
    *page += "</div>\n";
}

fn sweeps(page: &mut String, report: &Report) {
    for sweep in &report.plan.matrix.sweeps {
        let _ = writeln!(
            page,
            "<h2>By {}</h2>\n<p>A line an arm; strokes are 95 % intervals, and one that ends at the upper edge goes on beyond it.</p>\n<div class=\"pair\">",
            escape(&sweep.label)
        );
        cards(page, &lines::pictures(report, sweep));
    }
    for (heading, table) in kept::tables(report) {
        let _ = writeln!(page, "<h2>{}</h2>", escape(&heading));
        *page += &table.to_html();
    }
    let courses = lines::courses(report);
    if !courses.is_empty() {
        *page += "<h2>By the number of the request</h2>\n<p>Requests in the order of their arrival, as many in each point, warm-up left out; of these the slowest. A line an arm.</p>\n<div class=\"pair\">";
        cards(page, &courses);
    }
}

/// What stands in a `div` that is open, and its end.
fn cards(page: &mut String, pictures: &[lines::Picture]) {
    for picture in pictures {
        let _ = writeln!(
            page,
            "<div class=\"card\"><h3>{}</h3>\n{}</div>",
            escape(&picture.heading),
            picture.svg
        );
    }
    *page += "</div>\n";
}

fn beside_study(page: &mut String, report: &Report) {
    let Some((sentence, sections)) = published::sections(report) else {
        return;
    };
    let _ = writeln!(
        page,
        "<h2>Beside the published study</h2>\n<p>{}</p>",
        escape(&sentence)
    );
    for section in sections {
        let _ = writeln!(page, "<h3>{}</h3>", escape(&section.heading));
        if !section.note.is_empty() {
            let _ = writeln!(page, "<p>{}</p>", escape(&section.note));
        }
        if !section.table.rows.is_empty() {
            *page += &section.table.to_html();
        }
        *page += "<div class=\"pair\">";
        cards(page, &section.pictures);
    }
}

fn bar_charts(page: &mut String, report: &Report) {
    *page += "<h2>Share of own quiet speed beside each neighbour</h2>\n";
    charts(page, report, "", bars::chart);
    *page += "<h2>Latency beside each neighbour</h2>\n";
    charts(page, report, ": latency", cdf::chart);
}

/// A picture for each workload beside each noisy neighbour.
fn charts(
    page: &mut String,
    report: &Report,
    what: &str,
    chart: fn(&Report, &str, Neighbour) -> String,
) {
    *page += "<div class=\"pair\">\n";
    for workload in &report.plan.matrix.workloads {
        for &neighbour in report
            .plan
            .matrix
            .neighbours
            .iter()
            .filter(|n| **n != Neighbour::None)
        {
            let svg = chart(report, &workload.name, neighbour);
            if !svg.is_empty() {
                let _ = writeln!(
                    page,
                    "<div class=\"card\"><h3>{} beside {neighbour}{what}</h3>\n{svg}</div>",
                    escape(&workload.name)
                );
            }
        }
    }
    *page += "</div>\n";
}

fn list(page: &mut String, items: &[impl AsRef<str>]) {
    *page += "<ul>\n";
    for item in items {
        let _ = writeln!(page, "<li>{}</li>", escape(item.as_ref()));
    }
    *page += "</ul>\n";
}

fn reading(page: &mut String, report: &Report) {
    *page += "<h2>How to read it</h2>\n";
    list(page, sections::LEGEND);
    *page += "<div class=\"wrap\">\n";
    *page += &sections::arms(report).to_html();
    *page += "</div>\n<h2>Machine</h2>\n<div class=\"wrap\">\n";
    *page += &sections::facts(report).to_html();
    *page += "</div>\n";
}

fn embed(page: &mut String, report: &Report) -> Result<()> {
    let json = serde_json::to_string(report).context("cannot write the summary as JSON")?;
    // "</script>" in a string would end the element.
    let json = json.replace("</", "<\\/");
    // The cells of one run are tens of megabytes: the page finds them where the run left it.
    *page += "<h2>Data</h2>\n<p>The figures above are embedded in this page as JSON (<code>script#summary</code>). The raw measurements, \
              a file a cell, lie beside it in <a href=\"cells/\">cells/</a>; <code>gpuaware-bench report</code> makes this page \
              from them again.</p>\n";
    let _ = writeln!(
        page,
        "<script type=\"application/json\" id=\"summary\">{json}</script>"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_self_contained() {
        let page = render(&super::super::samples::report()).unwrap();
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside} in the page");
        }
        let links: Vec<&str> = page.split("href=").skip(1).collect();
        assert_eq!(links.len(), 1);
        assert!(links[0].starts_with("\"cells/\""), "{}", &links[0][..40]);
        assert!(page.contains("<svg") && page.contains("id=\"summary\""));
        assert_eq!(page.matches("<script").count(), 1);
    }
}
