// SPDX-License-Identifier: GPL-2.0-only
//! The report as Markdown, for a pull request or a README.

use super::format::Detail;
use super::model::Report;
use super::sections;
use super::{bpf, checks, dominance, kept, published, reference, tables, traced};

pub fn render(report: &Report) -> String {
    let matrix = &report.plan.matrix;
    let mut text = format!(
        "# {}: {}\n\n{}. Made with `{}`, seed {}.\n",
        report.plan.name,
        matrix.description,
        sections::setting(report),
        report.plan.command_line,
        report.plan.seed
    );
    for workload in &matrix.workloads {
        text += &format!("\n## {}\n\n", workload.name);
        text += &tables::headline(report, &workload.name, Detail::Full).to_markdown();
        for table in tables::of_parts(report, &workload.name, Detail::Full) {
            text.push('\n');
            text += &table.to_markdown();
        }
    }
    text.push('\n');
    for sentence in sections::sentences(report) {
        text += &format!("- {sentence}\n");
    }
    text += "\n## Checks\n\n";
    for line in checks::sentences(report) {
        text += &format!("- {line}\n");
    }
    if let Some(table) = dominance::table(report) {
        let (heading, explanation) = (dominance::heading(report), dominance::explanation(report));
        text += &format!("\n## {heading}\n\n{explanation}\n\n{}", table.to_markdown());
    }
    if let Some((heading, sentence, table)) = reference::section(report) {
        text += &format!("\n## {heading}\n\n{sentence}\n\n{}", table.to_markdown());
    }
    beside_study(&mut text, report);
    text += &format!(
        "\n## What the neighbours got done, % of {}\n\n",
        matrix.baseline
    );
    text += &tables::work(report).to_markdown();
    text += &format!("\n## {} against the others, ratios\n\n", matrix.subject);
    text += &tables::versus(report).to_markdown();
    for (heading, table) in traced::tables(report, Detail::Full) {
        text += &format!("\n## {heading}\n\n{}", table.to_markdown());
    }
    for (heading, table) in bpf::tables(report) {
        text += &format!("\n## {heading}\n\n{}", table.to_markdown());
    }
    text += "\n## How to read it\n\n";
    for line in sections::LEGEND {
        text += &format!("- {line}\n");
    }
    text.push('\n');
    text += &sections::arms(report).to_markdown();
    text += "\n## Machine\n\n";
    text += &sections::facts(report).to_markdown();
    text
}

/// Up to where objectives are kept, and what a study of pipelines published.
fn beside_study(text: &mut String, report: &Report) {
    for (heading, table) in kept::tables(report) {
        *text += &format!("\n## {heading}\n\n{}", table.to_markdown());
    }
    if let Some((sentence, sections)) = published::sections(report) {
        *text += &format!("\n## Beside the published study\n\n{sentence}\n");
        for section in sections {
            *text += &format!("\n### {}\n\n", section.heading);
            if !section.note.is_empty() {
                *text += &format!("{}\n\n", section.note);
            }
            if !section.table.rows.is_empty() {
                *text += &section.table.to_markdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_all_parts() {
        let text = render(&super::super::samples::report());
        for part in [
            "## qwen3",
            "| cpu | eevdf | 60.0 [58.1–62.0] |",
            "gpuaware against",
            "Clean, qwen3",
        ] {
            assert!(text.contains(part), "no {part} in:\n{text}");
        }
    }
}
