// SPDX-License-Identifier: GPL-2.0-only
//! A page for Prometheus on a loopback address: one thread, one request at a time. It asks whoever
//! holds the statistics, in this process: the statistics server would send them as JSON.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use log::{debug, info, warn};

use super::super::desk::Desk;

/// Larger than the head of any request for a page.
const MAX_HEAD: usize = 8192;
const MAX_HEADERS: usize = 64;
/// How long a client may take for its request: others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// An address for `--metrics`.
///
/// # Errors
/// It is not an IP address with a port, or others could reach it.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str =
        "expected a loopback address with a port, such as 127.0.0.1:9819 or [::1]:9819";
    let address: SocketAddr = text.parse().map_err(|_| EXPECTED.to_owned())?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "{} can be reached from elsewhere, and the page has no access control: {EXPECTED}; a \
             proxy in front of it can serve others",
            address.ip()
        ));
    }
    Ok(address)
}

/// Serves the page at `address` until this process ends; the statistics are asked for at `desk`.
///
/// # Errors
/// The address is in use, or not this machine's.
pub fn serve(address: SocketAddr, desk: Arc<Desk>) -> Result<()> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("--metrics: listening on {address}"))?;
    let address = listener.local_addr().context("--metrics")?;
    info!("metrics at http://{address}/metrics");
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.context("accepting a client");
                if let Err(error) = stream.and_then(|stream| answer(&stream, &desk)) {
                    debug!("metrics: {error:#}");
                }
            }
        })
        .context("--metrics: starting a thread")?;
    Ok(())
}

fn answer(mut stream: &TcpStream, desk: &Desk) -> Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, kind, body) = match read_path(stream)?.as_deref() {
        Some("/metrics") => page(desk),
        Some(_) => ("404 Not Found", "text/plain", b"try /metrics\n".to_vec()),
        None => (
            "405 Method Not Allowed",
            "text/plain",
            b"GET only\n".to_vec(),
        ),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // One write: a packet more costs more than a copy.
    stream.write_all(&[head.as_bytes(), &body].concat())?;
    Ok(())
}

fn page(desk: &Desk) -> (&'static str, &'static str, Vec<u8>) {
    match desk.ask().and_then(|metrics| Ok(super::page(&metrics)?)) {
        Ok(page) => ("200 OK", prometheus::TEXT_FORMAT, page),
        Err(error) => {
            warn!("metrics: {error:#}");
            let body = format!("{error:#}\n").into_bytes();
            ("503 Service Unavailable", "text/plain", body)
        }
    }
}

/// The path that is asked for, without its query; `None`: it is not a GET.
fn read_path(mut stream: &TcpStream) -> Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_HEAD {
            bail!("a request that does not end");
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(&mut piece)?;
        if length == 0 {
            bail!("a request that ends early");
        }
        head.extend_from_slice(&piece[..length]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        if request.parse(&head)?.is_partial() {
            continue;
        }
        let path = request.path.unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default().to_owned();
        return Ok((request.method == Some("GET")).then_some(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is answered to `request`, where no scheduler answers.
    fn answer_to(request: &str) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let (stream, _) = listener.accept().unwrap();
        answer(&stream, &Desk::new()?)?;
        drop(stream);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn only_loopback_addresses_are_taken() {
        assert!(loopback("127.0.0.1:9819").is_ok());
        assert!(loopback("[::1]:0").is_ok());
        for text in [
            "0.0.0.0:9819",
            "[::]:1",
            "192.168.1.2:80",
            "localhost:80",
            "127.0.0.1",
        ] {
            let error = loopback(text).unwrap_err();
            assert!(error.contains("expected a loopback address"), "{error}");
        }
    }

    #[test]
    fn other_pages_and_methods_are_declined() {
        let declined = answer_to("GET /?x HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(declined.starts_with("HTTP/1.1 404"), "{declined}");
        let declined = answer_to("POST /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(declined.starts_with("HTTP/1.1 405"), "{declined}");
    }

    #[test]
    fn without_a_scheduler_the_page_is_unavailable() {
        let declined = answer_to("GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(declined.starts_with("HTTP/1.1 503"), "{declined}");
    }

    #[test]
    fn nonsense_is_an_error_and_no_answer() {
        assert!(answer_to("\u{1}\r\n\r\n").is_err());
        assert!(answer_to("GET /metrics HTTP/1.1\r\n").is_err());
        assert!(answer_to(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(2 * MAX_HEAD))).is_err());
    }

    /// CPU time of all threads of this process.
    fn cpu_time() -> Duration {
        let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
        nix::time::clock_gettime(clock).unwrap().into()
    }

    /// All that user space does for a scrape, and the client's part of it.
    #[test]
    #[ignore = "measures: docs/metrics.md"]
    fn time_of_a_scrape_in_user_space() {
        const SCRAPES: u32 = 500;
        for nr_cpus in [2, 128, 512] {
            let metrics = super::super::tests::sample_of(nr_cpus);
            let page = || super::super::page(&metrics).unwrap();
            let start = cpu_time();
            let bytes = (0..SCRAPES)
                .map(|_| std::hint::black_box(page()).len())
                .sum::<usize>();
            let encoding = (cpu_time() - start) / SCRAPES;
            let desk = Arc::new(Desk::new().unwrap());
            let clerk = Arc::clone(&desk);
            let of_clerk = metrics.clone();
            let served = std::thread::spawn(move || {
                for _ in 0..SCRAPES {
                    while !clerk.wait(PATIENCE).unwrap() {}
                    clerk.answer(&of_clerk);
                }
            });
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let start = cpu_time();
            for _ in 0..SCRAPES {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                let (stream, _) = listener.accept().unwrap();
                let reader = std::thread::spawn(move || {
                    client.read_to_end(&mut Vec::new()).unwrap();
                });
                answer(&stream, &desk).unwrap();
                drop(stream);
                reader.join().unwrap();
            }
            let all = (cpu_time() - start) / SCRAPES;
            served.join().unwrap();
            let kib = bytes / SCRAPES as usize / 1024;
            eprintln!(
                "{nr_cpus} CPUs: a page of {kib} KiB: {encoding:?} to write, {all:?} with HTTP and its client"
            );
        }
    }
}
