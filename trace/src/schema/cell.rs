// SPDX-License-Identifier: GPL-2.0-only
//! What is in a column, as text.

use super::name::Name;

/// What is in a column.
pub trait Cell {
    /// Appends it to `text`.
    fn write(&self, text: &mut String);
}

macro_rules! whole_numbers {
    ($($number:ty)*) => {
        $(impl Cell for $number {
            fn write(&self, text: &mut String) {
                text.push_str(itoa::Buffer::new().format(*self));
            }
        })*
    };
}

whole_numbers! { u32 u64 i32 }

impl Cell for char {
    fn write(&self, text: &mut String) {
        text.push(*self);
    }
}

impl<const N: usize> Cell for Name<N> {
    fn write(&self, text: &mut String) {
        text.push_str(self.as_str());
    }
}

impl<T: Cell> Cell for Option<T> {
    fn write(&self, text: &mut String) {
        if let Some(cell) = self {
            cell.write(text);
        }
    }
}
