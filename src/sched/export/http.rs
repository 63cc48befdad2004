// SPDX-License-Identifier: GPL-2.0-only
//! A page for Prometheus on a loopback address. It asks whoever holds the statistics, in this process: the statistics
//! server would send them as JSON. Everybody on this machine can ask: what is served is the same for a tenth of a
//! second, and clients that say nothing, however many, do not keep others waiting.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use log::{debug, info, warn};

use super::super::requests::Requests;

/// Larger than the head of any request for a page.
const MAX_HEAD: usize = 8192;
const MAX_HEADERS: usize = 64;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients that are served at a time. One more, and the one that came first has to go.
const MAX_CLIENTS: usize = 32;
/// How long a page is served before the scheduler is asked again.
const FRESH: Duration = Duration::from_millis(100);

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

/// Serves the page at `address` until this process ends; the statistics are asked for through `requests`.
///
/// # Errors
/// The address is in use, or not this machine's.
pub fn serve(address: SocketAddr, requests: Arc<Requests>) -> Result<()> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("--metrics: listening on {address}"))?;
    let address = listener.local_addr().context("--metrics")?;
    info!("metrics at http://{address}/metrics");
    let pages = Pages::new(FRESH, move || Ok(super::page(&requests.ask()?)?));
    serve_at(listener, Arc::new(pages))
}

fn serve_at(listener: TcpListener, pages: Arc<Pages>) -> Result<()> {
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || serve_all(listener.incoming(), &pages))
        .context("--metrics: starting a thread")?;
    Ok(())
}

/// Between two tries to serve somebody.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Each client has a thread of its own for as long as it is served.
fn serve_all(came: impl Iterator<Item = io::Result<TcpStream>>, pages: &Arc<Pages>) {
    let mut clients = Clients::default();
    for stream in came {
        let served = stream.context("accepting a client").and_then(|stream| {
            let (client, pages) = (clients.admit(stream), Arc::clone(pages));
            let serve = move || answer(&client, &pages).unwrap_or_else(tell);
            let thread = std::thread::Builder::new().name("metrics".to_owned());
            thread.spawn(serve).context("starting a thread")
        });
        if let Err(error) = served {
            tell(error);
            // It waits for as long as no descriptor is free, say.
            std::thread::sleep(AFTER_FAILURE);
        }
    }
}

fn tell(error: anyhow::Error) {
    debug!("metrics: {error:#}");
}

/// Those that are served, who came first is in front.
#[derive(Default)]
struct Clients(VecDeque<Weak<TcpStream>>);

impl Clients {
    /// One more. Where they are too many, reads and writes of the first one end.
    fn admit(&mut self, stream: TcpStream) -> Arc<TcpStream> {
        self.0.retain(|client| client.strong_count() > 0);
        if self.0.len() >= MAX_CLIENTS
            && let Some(first) = self.0.pop_front().and_then(|client| client.upgrade())
        {
            // It may have gone by itself.
            let _ = first.shutdown(Shutdown::Both);
        }
        let client = Arc::new(stream);
        self.0.push_back(Arc::downgrade(&client));
        client
    }
}

/// Why there is no page, in words.
type Page = Result<Arc<Vec<u8>>, String>;

/// The page, made anew when it is not fresh any more.
struct Pages {
    fresh: Duration,
    make: Box<dyn Fn() -> Result<Vec<u8>> + Send + Sync>,
    /// Since when, and what. Who comes while it is made waits for it.
    latest: Mutex<Option<(Instant, Page)>>,
}

impl Pages {
    fn new(fresh: Duration, make: impl Fn() -> Result<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self {
            fresh,
            make: Box::new(make),
            latest: Mutex::default(),
        }
    }

    fn page(&self) -> Page {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((since, page)) if since.elapsed() < self.fresh => page.clone(),
            _ => {
                let made = (self.make)();
                let page = made.map(Arc::new).map_err(|error| format!("{error:#}"));
                if let Err(error) = &page {
                    warn!("metrics: {error}");
                }
                *latest = Some((Instant::now(), page.clone()));
                page
            }
        }
    }
}

fn answer(mut stream: &TcpStream, pages: &Pages) -> Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = |text: &str| Arc::new(text.as_bytes().to_vec());
    let (status, kind, body) = match read_path(stream)?.as_deref() {
        Some("/metrics") => match pages.page() {
            Ok(page) => ("200 OK", prometheus::TEXT_FORMAT, page),
            Err(error) => (
                "503 Service Unavailable",
                "text/plain",
                text(&format!("{error}\n")),
            ),
        },
        Some(_) => ("404 Not Found", "text/plain", text("try /metrics\n")),
        None => ("405 Method Not Allowed", "text/plain", text("GET only\n")),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    // One write: a packet more costs more than a copy.
    stream.write_all(&[head.as_bytes(), &body].concat())?;
    Ok(())
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
        let requests = Requests::new()?;
        answer(
            &stream,
            &Pages::new(FRESH, move || Ok(super::super::page(&requests.ask()?)?)),
        )?;
        drop(stream);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn who_cannot_be_taken_now_is_asked_for_again_after_a_pause() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let full = || Err(io::Error::from_raw_os_error(nix::libc::EMFILE));
        let pages = Pages::new(FRESH, || Ok("page".into()));
        let start = Instant::now();
        let came = [full(), full(), listener.accept().map(|(stream, _)| stream)];
        serve_all(came.into_iter(), &Arc::new(pages));
        assert!(start.elapsed() >= 2 * AFTER_FAILURE);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
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
    fn a_page_is_made_once_while_it_is_fresh() {
        let made_by = |fresh| {
            let made = Arc::new(Mutex::new(0));
            let counts = Arc::clone(&made);
            let pages = Pages::new(fresh, move || {
                *counts.lock().unwrap() += 1;
                Ok(vec![1])
            });
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..50).for_each(|_| assert_eq!(*pages.page().unwrap(), [1])));
                }
            });
            *made.lock().unwrap()
        };
        assert_eq!(made_by(Duration::MAX), 1);
        assert_eq!(made_by(Duration::ZERO), 200);
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_waiting() {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = TcpListener::bind::<SocketAddr>(address).unwrap();
        let address = listener.local_addr().unwrap();
        serve_at(
            listener,
            Arc::new(Pages::new(FRESH, || Ok(b"page".to_vec()))),
        )
        .unwrap();
        let mut silent: Vec<_> = (0..2 * MAX_CLIENTS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\npage"), "{text}");
        // Nobody's patience is over: the last of the others is still listened to.
        let last = silent.last_mut().unwrap();
        last.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        text.clear();
        last.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\npage"), "{text}");
        // Who came first had to go.
        assert!(!matches!(silent[0].read(&mut [0]), Ok(1..)));
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
    #[ignore = "measures: docs/decisions/scrape-cost.md"]
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
            let requests = Arc::new(Requests::new().unwrap());
            let clerk = Arc::clone(&requests);
            // Never fresh: each is asked for.
            let pages = Pages::new(Duration::ZERO, move || {
                Ok(super::super::page(&requests.ask()?)?)
            });
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
                answer(&stream, &pages).unwrap();
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
