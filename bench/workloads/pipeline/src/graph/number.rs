// SPDX-License-Identifier: GPL-2.0-only
//! Numbers that are in range, and what is said where they are not. Pure.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::document::Problem;

/// The table that keys are read from: `stage.NAME` or one below.
#[derive(Debug, Clone)]
pub struct Table {
    path: String,
    span: Range<usize>,
}

impl Table {
    pub fn new(path: String, span: Range<usize>) -> Self {
        Self { path, span }
    }

    pub fn below<T>(&self, key: &str, value: &Spanned<T>) -> Self {
        Self::new(format!("{}.{key}", self.path), value.span())
    }

    /// A problem with the whole table, or with a key that it lacks.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        self.problem_at(self.span.clone(), key, message)
    }

    pub fn problem_at(&self, span: Range<usize>, key: &str, message: impl Into<String>) -> Problem {
        let key = match key {
            "" => self.path.clone(),
            key => format!("{}.{key}", self.path),
        };
        let message = message.into();
        Problem { span, key, message }
    }

    /// A whole number, `default` where there is none.
    pub fn count(
        &self,
        key: &str,
        value: Option<&Spanned<i64>>,
        default: usize,
        range: RangeInclusive<i64>,
    ) -> Result<usize, Problem> {
        let Some(value) = value else {
            return Ok(default);
        };
        self.in_range(key, value, &range)?;
        Ok(usize::try_from(*value.get_ref()).unwrap_or(default))
    }

    /// A number, `default` where there is none.
    pub fn number(
        &self,
        key: &str,
        value: Option<&Spanned<f64>>,
        default: Option<f64>,
        range: RangeInclusive<f64>,
    ) -> Result<f64, Problem> {
        let (least, most) = (*range.start(), *range.end());
        match (value, default) {
            (Some(value), _) => {
                self.in_range(key, value, &range)?;
                Ok(*value.get_ref())
            }
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.problem(
                key,
                format!("expected a number, {least} to {most}, got nothing: add the key"),
            )),
        }
    }

    fn in_range<T: PartialOrd + Display>(
        &self,
        key: &str,
        value: &Spanned<T>,
        range: &RangeInclusive<T>,
    ) -> Result<(), Problem> {
        if range.contains(value.get_ref()) {
            return Ok(());
        }
        let (least, most) = (range.start(), range.end());
        let message =
            format!("expected {least} to {most}, got {value}: leave it out for the default");
        Err(self.problem_at(value.span(), key, message))
    }
}
