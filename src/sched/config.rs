// SPDX-License-Identifier: GPL-2.0-only
//! What the command line says of a run, its policy apart.

use std::net::SocketAddr;

/// How to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Size of the kernel's dump when it throws the scheduler out, bytes; 0: its default.
    pub exit_dump_len: u32,
    /// Where Prometheus may read the statistics; a loopback address.
    pub metrics: Option<SocketAddr>,
    /// Log libbpf's debug output too.
    pub verbose: bool,
}
