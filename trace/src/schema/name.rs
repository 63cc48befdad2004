// SPDX-License-Identifier: GPL-2.0-only
//! Short text in a fixed place: a trace has millions of names.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A short name without an allocation, at most `N` bytes of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Name<N> {
    /// The first `N` bytes of `text`, cut at a character.
    pub fn new(text: &str) -> Self {
        let mut len = text.len().min(N).min(u8::MAX.into());
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self {
            bytes,
            len: len as u8,
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Made from text, cut at a character: always UTF-8.
        std::str::from_utf8(&self.bytes[..self.len.into()]).unwrap_or_default()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<const N: usize> Default for Name<N> {
    fn default() -> Self {
        Self::new("")
    }
}

impl<const N: usize> fmt::Debug for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> fmt::Display for Name<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl<const N: usize> Serialize for Name<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, const N: usize> Deserialize<'de> for Name<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<const N: usize>;
        impl<const N: usize> Visitor<'_> for Text<N> {
            type Value = Name<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string of at most {N} bytes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Name<N>, E> {
                Ok(Name::new(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
