// SPDX-License-Identifier: GPL-2.0-only
//! iperf3: TCP streams over loopback, ten on a small machine, client and server both on this machine.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::program::{self, Own, Terms};
use crate::process::Supervised;

const STREAMS: u32 = 10;
/// It has no more.
const MOST_STREAMS: u32 = 128;
/// Where nobody chooses one.
pub(super) const USUAL_PORT: u16 = 5201;
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The server's command and the client's.
pub(super) fn commands(port: u16, terms: &Terms) -> [Command; 2] {
    let port = port.to_string();
    let streams = (STREAMS * program::size()).min(MOST_STREAMS).to_string();
    let [mut server, mut client] = [(); 2].map(|()| terms.command("iperf3"));
    server.args(["--server", "--one-off", "--port", &port]);
    client
        .args(["--client", "127.0.0.1", "--port", &port])
        // A day: the runner ends it. No interval reports: they would cost and grow the output.
        .args([
            "--parallel",
            &streams,
            "--time",
            "86400",
            "--interval",
            "0",
            "--json",
        ]);
    [server, client]
}

pub(super) fn start(output: &Path, terms: &Terms) -> Result<(Supervised, Supervised)> {
    let port = free_port()?;
    let [mut server, mut client] = commands(port, terms);
    server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut server = terms.spawn("iperf3 server", &mut server)?;
    wait_until_listening(port, &mut server)?;
    let out = fs::File::create(output).context("cannot create iperf3's output")?;
    let log =
        fs::File::create(output.with_extension("log")).context("cannot create iperf3's log")?;
    client.stdin(Stdio::null()).stdout(out).stderr(log);
    Ok((terms.spawn("iperf3", &mut client)?, server))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .context("cannot bind a TCP port on 127.0.0.1: is the loopback device up?")?;
    Ok(listener.local_addr().context("no local address")?.port())
}

fn wait_until_listening(port: u16, server: &mut Supervised) -> Result<()> {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    let mark = format!(":{port:04X} ");
    loop {
        let listening = ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
            fs::read_to_string(file).is_ok_and(|table| {
                // Columns: number, local address, remote address, state (0A = LISTEN).
                table
                    .lines()
                    .any(|line| line.contains(&mark) && line.contains(" 0A "))
            })
        });
        if listening {
            return Ok(());
        }
        if let Some(status) = server.ended()? {
            bail!("the iperf3 server ended at once ({status})");
        }
        if Instant::now() >= deadline {
            bail!(
                "the iperf3 server does not listen after {} s",
                LISTEN_TIMEOUT.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes received over the loopback device since boot.
pub(super) fn loopback_bytes() -> Result<u64> {
    let table = fs::read_to_string("/proc/net/dev").context("cannot read /proc/net/dev")?;
    received_bytes(&table, "lo").context("no lo in /proc/net/dev")
}

fn received_bytes(table: &str, device: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[derive(Deserialize)]
struct Report {
    end: End,
}

#[derive(Deserialize)]
struct End {
    sum_sent: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: f64,
}

/// Reads the client's JSON. An interrupted client reports what it sent, not what was received.
pub(super) fn parse(json: &str) -> Result<Own> {
    let report: Report = serde_json::from_str(json).context("no iperf3 report")?;
    let sum = report
        .end
        .sum_sent
        .context("no end.sum_sent: it never sent")?;
    if sum.seconds <= 0.0 {
        bail!("end.sum_sent.seconds is {}", sum.seconds);
    }
    Ok(Own {
        total: sum.bytes * 8.0,
        seconds: sum.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_bits_of_an_interrupted_client() {
        let own = parse(include_str!("../../tests/data/neighbour/iperf3.json")).unwrap();
        assert_eq!((own.total, own.seconds), (9_564_717_056.0 * 8.0, 1.490_321));
    }

    #[test]
    fn refuses_a_client_that_never_connected() {
        let json = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect to server"}"#;
        assert!(parse(json).unwrap_err().to_string().contains("never sent"));
        assert!(parse("").is_err());
    }

    #[test]
    fn finds_a_device_with_and_without_a_space() {
        let table = "Inter-| Receive\n face |bytes\n    lo:1234 5 0\n  eth0: 99 1 0\n";
        assert_eq!(received_bytes(table, "lo"), Some(1234));
        assert_eq!(received_bytes(table, "eth0"), Some(99));
        assert_eq!(received_bytes(table, "wlan0"), None);
    }
}
