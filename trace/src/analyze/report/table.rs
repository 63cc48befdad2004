// SPDX-License-Identifier: GPL-2.0-only
//! A titled table, and how it looks in a terminal and in HTML.

use std::fmt::Write;

use crate::printable::printable;

/// A column: its name, and how its cell is made of what the row is about.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// A table with what must be said about it. The first column is text, the others are figures.
#[derive(Debug, Clone, Default)]
pub struct Section {
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Section {
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// A row for each of `rows`.
    pub fn of<T>(title: &str, rows: impl IntoIterator<Item = T>, columns: &[Column<T>]) -> Self {
        let cells = |row: T| columns.iter().map(|(_, cell)| cell(&row)).collect();
        Self {
            title: title.to_owned(),
            notes: Vec::new(),
            columns: columns.iter().map(|&(name, _)| name.to_owned()).collect(),
            rows: rows.into_iter().map(cells).collect(),
        }
    }

    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Without what a name of a thread or file would do to a terminal.
    fn printable(&self) -> Self {
        let all = |texts: &[String]| texts.iter().map(|text| printable(text)).collect();
        Self {
            title: printable(&self.title),
            notes: all(&self.notes),
            columns: all(&self.columns),
            rows: self.rows.iter().map(|row| all(row)).collect(),
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|name| letters(name)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = letters(cell).max(*width);
            }
        }
        widths
    }

    pub fn to_text(&self) -> String {
        self.printable().aligned()
    }

    fn aligned(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        let widths = self.widths();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let fill = " ".repeat(width - letters(cell));
                line += &match at {
                    0 => format!("  {cell}{fill}"),
                    _ => format!("  {fill}{cell}"),
                };
            }
            line.trim_end().to_owned() + "\n"
        };
        if !self.rows.is_empty() {
            if self.columns.iter().any(|name| !name.is_empty()) {
                text += &line(&self.columns);
            }
            for row in &self.rows {
                text += &line(row);
            }
        }
        text + "\n"
    }

    pub fn to_html(&self) -> String {
        let mut text = format!("<h2>{}</h2>\n", escape(&self.title));
        for note in &self.notes {
            let _ = writeln!(text, "<p class=\"lead\">{}</p>", escape(note));
        }
        if self.rows.is_empty() {
            return text;
        }
        let class = |at: usize| if at == 0 { "" } else { " class=\"n\"" };
        text += "<div class=\"scroll\"><table>\n<thead><tr>";
        for (at, name) in self.columns.iter().enumerate() {
            let _ = write!(text, "<th{}>{}</th>", class(at), escape(name));
        }
        text += "</tr></thead>\n<tbody>\n";
        for row in &self.rows {
            text += "<tr>";
            for (at, cell) in row.iter().enumerate() {
                let _ = write!(text, "<td{}>{}</td>", class(at), faint_interval(cell));
            }
            text += "</tr>\n";
        }
        text + "</tbody></table></div>\n"
    }
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// The figure is what is read first; its interval steps back.
fn faint_interval(cell: &str) -> String {
    match cell.split_once(" [") {
        Some((value, rest)) => format!(
            "{} <span class=\"i\">[{}</span>",
            escape(value),
            escape(rest)
        ),
        None => escape(cell),
    }
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

    const TWO_TEXTS: [Column<(&str, &str)>; 2] = [
        ("thread", &|row| row.0.to_owned()),
        ("µs", &|row| row.1.to_owned()),
    ];

    fn section() -> Section {
        let rows = [("a<b", "15.5 [1, 2]"), ("runcu", "3")];
        Section::of("Bursts", rows, &TWO_TEXTS).note("of <all>")
    }

    #[test]
    fn aligns_for_a_terminal() {
        let expected = "\
Bursts
  of <all>
  thread           µs
  a<b     15.5 [1, 2]
  runcu             3

";
        assert_eq!(section().to_text(), expected);
    }

    #[test]
    fn names_add_neither_lines_nor_escape_sequences() {
        let rows = [("c\nd\u{9b}31m", "3")];
        let section = Section::of("of a\x1b[2J", rows, &TWO_TEXTS).note("of b\n");
        let text = section.to_text();
        assert!(
            !text.contains(|c: char| c != '\n' && c.is_control()),
            "{text:?}"
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn escapes_html() {
        let html = section().to_html();
        assert!(html.contains("<td>a&lt;b</td>"), "{html}");
        assert!(html.contains("of &lt;all&gt;"), "{html}");
        assert!(
            html.contains("15.5 <span class=\"i\">[1, 2]</span>"),
            "{html}"
        );
    }
}
