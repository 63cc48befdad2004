// SPDX-License-Identifier: GPL-2.0-only
//! Which processes of this machine serve an endpoint: their CPU time is the workload's, and no load from outside.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// The processes that listen at `address`; none if it is another machine's, or nobody does.
pub fn listeners(address: SocketAddr) -> Vec<u32> {
    if !is_local(address.ip()) {
        return Vec::new();
    }
    let inodes: BTreeSet<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, address.port()))
        .collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| holds(*pid, &inodes))
        .collect()
}

/// Only addresses of this machine can be bound.
fn is_local(ip: IpAddr) -> bool {
    TcpListener::bind((ip, 0)).is_ok()
}

/// The sockets in a table of `/proc/net` that listen on the port.
fn listening(table: &str, port: u16) -> Vec<u64> {
    let suffix = format!(":{port:04X}");
    let socket = |line: &str| {
        // Columns: number, local address, remote address, state (0A = LISTEN), …, inode.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == "0A";
        listens.then(|| fields.get(9)?.parse().ok())?
    };
    table.lines().filter_map(socket).collect()
}

fn holds(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    files.into_iter().flatten().flatten().any(|file| {
        let link = fs::read_link(file.path()).unwrap_or_default();
        let link = link.to_string_lossy();
        let inode = link
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inode.parse().is_ok_and(|inode| inodes.contains(&inode)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_whoever_listens_on_this_machine() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(listeners(address), [std::process::id()]);
        drop(listener);
        assert!(listeners(address).is_empty());
        // An address of nobody's, kept for documentation.
        assert!(listeners(SocketAddr::from(([192, 0, 2, 1], address.port()))).is_empty());
    }

    #[test]
    fn reads_only_sockets_that_listen_on_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1 0\n\
            1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 78 1 0\n\
            2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 79 1 0\n";
        assert_eq!(listening(table, 8080), [77]);
    }
}
