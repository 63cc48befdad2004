// SPDX-License-Identifier: GPL-2.0-only
//! Reads Perfetto's traces for tests, with another library than the one that writes them and by Perfetto's own
//! definitions: `perfetto.proto`. Bindings of all of these take two minutes to compile.

include!(concat!(env!("OUT_DIR"), "/protos/mod.rs"));

pub use perfetto::*;
