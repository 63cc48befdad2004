// SPDX-License-Identifier: GPL-2.0-only
//! A table of text cells, and how it looks in a terminal, in Markdown and in HTML.

use std::fmt::Write;

pub const TERMINAL_COLUMNS: usize = 118;

/// Text columns keep left, figures right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone, Default)]
pub struct Table {
    pub columns: Vec<(String, Align)>,
    pub rows: Vec<Vec<String>>,
    /// Rows that are shown in bold: the subject's.
    pub strong: Vec<usize>,
    /// Rows that begin a group: a line above in HTML, a blank line in a terminal.
    pub group_starts: Vec<usize>,
}

impl Table {
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            ..Self::default()
        }
    }

    /// Notes of the row that comes next that it begins a group, if its `key` is not the `last` one's, and
    /// that it is the subject's. True: it begins one.
    pub fn next_row<K: PartialEq>(&mut self, last: &mut Option<K>, key: K, strong: bool) -> bool {
        let at = self.rows.len();
        let starts = last.as_ref() != Some(&key);
        if starts {
            self.group_starts.push(at);
            *last = Some(key);
        }
        if strong {
            self.strong.push(at);
        }
        starts
    }

    /// Of each column, in letters.
    fn widths(&self) -> Vec<usize> {
        (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                cells
                    .chain([&self.columns[at].0])
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect()
    }

    /// Of all columns and the blanks between them.
    pub fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
    }

    /// For a terminal, aligned by characters, two blanks between columns.
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let line = |cells: &mut dyn Iterator<Item = &String>| {
            let mut text = String::new();
            for ((cell, width), (_, align)) in cells.zip(&widths).zip(&self.columns) {
                let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
                text += match align {
                    Align::Left => format!("{cell}{fill}  "),
                    Align::Right => format!("{fill}{cell}  "),
                }
                .as_str();
            }
            text.trim_end().to_owned() + "\n"
        };
        let mut text = line(&mut self.columns.iter().map(|(name, _)| name));
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 && self.group_starts.contains(&at) {
                text.push('\n');
            }
            text += &line(&mut row.iter());
        }
        text
    }

    pub fn to_markdown(&self) -> String {
        let mut text = String::from("|");
        for (name, _) in &self.columns {
            text += &format!(" {name} |");
        }
        text += "\n|";
        for (_, align) in &self.columns {
            text += if *align == Align::Left {
                " --- |"
            } else {
                " ---: |"
            };
        }
        text.push('\n');
        for (at, row) in self.rows.iter().enumerate() {
            text.push('|');
            for cell in row {
                let cell = cell.replace('|', "\\|");
                let bold = self.strong.contains(&at) && !cell.is_empty();
                text += &if bold {
                    format!(" **{cell}** |")
                } else {
                    format!(" {cell} |")
                };
            }
            text.push('\n');
        }
        text
    }

    pub fn to_html(&self) -> String {
        let mut text = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
        for (name, align) in &self.columns {
            let _ = write!(text, "<th{}>{}</th>", class(*align), escape(name));
        }
        text += "</tr></thead>\n<tbody>\n";
        for (at, row) in self.rows.iter().enumerate() {
            let mut classes = Vec::new();
            if self.strong.contains(&at) {
                classes.push("subject");
            }
            if self.group_starts.contains(&at) {
                classes.push("group");
            }
            let _ = write!(text, "<tr class=\"{}\">", classes.join(" "));
            for (cell, (_, align)) in row.iter().zip(&self.columns) {
                let _ = write!(text, "<td{}>{}</td>", class(*align), faint_intervals(cell));
            }
            text += "</tr>\n";
        }
        text + "</tbody></table></div>\n"
    }
}

fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"n\"",
    }
}

/// The figure is what is read first; its interval steps back. Of several figures each has its own line.
fn faint_intervals(cell: &str) -> String {
    let mut parts = cell.split(" [");
    let mut text = escape(parts.next().unwrap_or_default());
    for part in parts {
        let (interval, rest) = part.split_once(']').unwrap_or((part, ""));
        let _ = write!(text, " <span class=\"i\">[{}]</span>", escape(interval));
        match rest.strip_prefix(", ") {
            Some(next) => text += &format!(",<br>{}", escape(next)),
            None => text += &escape(rest),
        }
    }
    text
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("arm", Align::Left), ("tok/s", Align::Right)]);
        table.rows = vec![
            vec!["eevdf".into(), "90".into()],
            vec!["a<b".into(), "101.5 [99–103]".into()],
        ];
        table.strong = vec![1];
        table.group_starts = vec![0, 1];
        table
    }

    #[test]
    fn aligns_for_a_terminal() {
        let expected = "\
arm             tok/s
eevdf              90

a<b    101.5 [99–103]
";
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn writes_markdown() {
        let expected = "\
| arm | tok/s |
| --- | ---: |
| eevdf | 90 |
| **a<b** | **101.5 [99–103]** |
";
        assert_eq!(table().to_markdown(), expected);
    }

    #[test]
    fn escapes_html() {
        let html = table().to_html();
        assert!(html.contains("<td>a&lt;b</td>"), "{html}");
        assert!(
            html.contains("101.5 <span class=\"i\">[99–103]</span>"),
            "{html}"
        );
        assert!(html.contains("<tr class=\"subject group\">"), "{html}");
        assert_eq!(
            faint_intervals("a 1 [0–2], b 3"),
            "a 1 <span class=\"i\">[0–2]</span>,<br>b 3"
        );
    }
}
