// SPDX-License-Identifier: GPL-2.0-only
//! The report as Markdown, for a pull request or a README.

use super::contents::{contents, title};
use super::model::Report;
use super::section::Section;
use super::table::Table;

pub fn render(report: &Report) -> String {
    let title = title(report);
    let mut text = format!(
        "# {}\n\n{} Made with `{}`, seed {}.\n",
        title.heading, title.setting, title.command, title.seed
    );
    for section in contents(report) {
        if !section.is_pictures_alone() {
            text += &of(&section);
        }
    }
    text
}

fn of(section: &Section) -> String {
    let level = if section.is_part { "###" } else { "##" };
    let mut text = format!("\n{level} {}\n", section.heading);
    let list: String = section
        .list
        .iter()
        .map(|item| format!("- {item}\n"))
        .collect();
    let command = match section.command.as_str() {
        "" => String::new(),
        command => format!("`{command}`\n"),
    };
    let words = match section.text.as_str() {
        "" => String::new(),
        words => format!("{words}\n"),
    };
    let tables = section.tables.iter().map(Table::to_markdown);
    for paragraph in [command, words, list].into_iter().chain(tables) {
        if !paragraph.is_empty() {
            text.push('\n');
            text += &paragraph;
        }
    }
    text
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
        assert!(!text.contains("beside each neighbour"), "pictures:\n{text}");
    }
}
