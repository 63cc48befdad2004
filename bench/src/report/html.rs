// SPDX-License-Identifier: GPL-2.0-only
//! The report as one self-contained HTML page: no network, light and dark, the summary embedded. It links to one
//! thing, the raw cells beside it.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::contents::{contents, title};
use super::look::STYLE;
use super::model::Report;
use super::section::{Layout, Section};
use super::table::{Table, escape};

pub fn render(report: &Report) -> Result<String> {
    let title = title(report);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{} · gpuaware-bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{}</h1>\n<p class=\"lead\">{}</p>\n<p class=\"lead\"><code>{}</code>, seed {}</p>\n",
        escape(&report.plan.name),
        escape(&title.heading),
        escape(&title.setting),
        escape(&title.command),
        title.seed
    );
    for section in contents(report) {
        add(&mut page, &section);
    }
    embed(&mut page, report)?;
    Ok(page + "</main>\n</body>\n</html>\n")
}

fn add(page: &mut String, section: &Section) {
    let level = if section.is_part { 3 } else { 2 };
    let _ = writeln!(page, "<h{level}>{}</h{level}>", escape(&section.heading));
    if !section.command.is_empty() {
        let command = escape(&section.command);
        let _ = writeln!(page, "<p class=\"lead\"><code>{command}</code></p>");
    }
    if !section.text.is_empty() {
        let _ = writeln!(page, "<p>{}</p>", escape(&section.text));
    }
    if !section.list.is_empty() {
        let items = section.list.iter();
        let items: String = items
            .map(|item| format!("<li>{}</li>\n", escape(item)))
            .collect();
        let _ = writeln!(page, "<ul>\n{items}</ul>");
    }
    if !section.tables.is_empty() {
        let class = match section.layout {
            Layout::Plain => "",
            Layout::Stacked => " class=\"stacked\"",
            Layout::Top => " class=\"top\"",
            Layout::Wrapped => " class=\"wrap\"",
        };
        let tables: String = section.tables.iter().map(Table::to_html).collect();
        let _ = writeln!(page, "<div{class}>\n{tables}</div>");
    }
    if !section.pictures.is_empty() {
        let cards = section.pictures.iter().map(|picture| {
            let heading = escape(&picture.heading);
            format!(
                "<div class=\"card\"><h3>{heading}</h3>\n{}</div>\n",
                picture.svg
            )
        });
        let cards: String = cards.collect();
        let _ = writeln!(page, "<div class=\"pair\">\n{cards}</div>");
    }
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
