// SPDX-License-Identifier: GPL-2.0-only
//! Tables of figures by neighbour and arm: columns that are shown where there is room for them.

use super::format::Detail;
use super::model::Report;
use super::table::{Align, TERMINAL_COLUMNS, Table};
use crate::record::neighbour::Neighbour;

use Align::{Left, Right};

/// Where a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Always,
    /// In a terminal only while the table fits.
    IfItFits,
    /// Not in a terminal.
    Full,
}

type Text<'a, T> = Box<dyn Fn(&T, Detail) -> String + 'a>;

/// A column of figures: its name, a shorter one for a terminal, and what stands in it.
pub struct Column<'a, T> {
    name: String,
    short: Option<&'static str>,
    shown: Shown,
    cell: Text<'a, T>,
}

impl<'a, T> Column<'a, T> {
    pub fn new(name: impl Into<String>, cell: impl Fn(&T, Detail) -> String + 'a) -> Self {
        Self {
            name: name.into(),
            short: None,
            shown: Shown::Always,
            cell: Box::new(cell),
        }
    }

    /// Only where there is room.
    pub fn full(name: impl Into<String>, cell: impl Fn(&T) -> String + 'a) -> Self {
        Self {
            shown: Shown::Full,
            ..Self::new(name, move |row: &T, _| cell(row))
        }
    }

    pub fn short(self, name: &'static str) -> Self {
        Self {
            short: Some(name),
            ..self
        }
    }

    pub fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// The same of other rows, empty where none belongs to one.
    pub fn of<Other>(self, row: impl Fn(&Other) -> Option<&'a T> + 'a) -> Column<'a, Other>
    where
        T: 'a,
    {
        let Self {
            name,
            short,
            shown,
            cell,
        } = self;
        Column {
            name,
            short,
            shown,
            cell: Box::new(move |other, detail| {
                row(other).map_or_else(String::new, |row| cell(row, detail))
            }),
        }
    }

    fn name(&self, detail: Detail) -> String {
        match self.short {
            Some(short) if detail == Detail::Terminal => short.to_owned(),
            _ => self.name.clone(),
        }
    }
}

/// A table whose first columns are the neighbour and the arm.
pub fn by_arm<T>(
    report: &Report,
    rows: &[&T],
    key: impl Fn(&T) -> (Neighbour, &str, String),
    mut columns: Vec<Column<T>>,
    detail: Detail,
) -> Table {
    let full = detail == Detail::Full;
    columns.retain(|column| full || column.shown != Shown::Full);
    loop {
        let mut table = Table::new(&[("neighbour", Left), ("arm", Left)]);
        let names = columns.iter().map(|column| (column.name(detail), Right));
        table.columns.extend(names);
        let mut last = None;
        for &row in rows {
            let (neighbour, arm, shown) = key(row);
            let first = table.next_row(&mut last, neighbour, arm == report.plan.matrix.subject);
            let neighbour = if first || full { neighbour.name() } else { "" };
            let mut cells = vec![neighbour.to_owned(), shown];
            cells.extend(columns.iter().map(|column| (column.cell)(row, detail)));
            table.rows.push(cells);
        }
        let spare = columns.iter().rposition(|c| c.shown == Shown::IfItFits);
        match spare {
            Some(spare) if !full && table.width() > TERMINAL_COLUMNS => drop(columns.remove(spare)),
            _ => return table,
        }
    }
}
