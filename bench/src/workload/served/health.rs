// SPDX-License-Identifier: GPL-2.0-only
//! Whether a server answers yet.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::workload::child::Child;

/// Loading a model takes minutes; in a lab without KVM, vLLM's imports alone take ten.
pub const START_TIMEOUT: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_millis(250);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until `path` of the server is answered; an error once a server that was started here has ended.
pub fn wait_until_ready(mut server: Option<&mut Child>, base_url: &str, path: &str) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    while !answers(base_url, path)? {
        interrupt::check()?;
        if let Some(server) = &mut server {
            server.must_live()?;
        }
        if Instant::now() >= deadline {
            bail!(
                "{base_url}{path} did not answer within {} s",
                START_TIMEOUT.as_secs()
            );
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Whether a GET is answered with 200: a server that still loads its model refuses or says 503.
fn answers(base_url: &str, path: &str) -> Result<bool> {
    let (authority, address) = address_of(base_url)?;
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        // In one write: a server that answers early and closes would reset what comes after.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        // The answer may come in pieces.
        let mut head = String::new();
        BufReader::new(socket.take(256)).read_line(&mut head)?;
        Ok(head)
    };
    Ok(ask().is_ok_and(|head| head.split(' ').nth(1) == Some("200")))
}

/// HOST:PORT of a URL, as written and as found.
pub fn address_of(base_url: &str) -> Result<(&str, SocketAddr)> {
    let authority = base_url
        .strip_prefix("http://")
        .with_context(|| format!("base_url: expected http://HOST:PORT, got {base_url:?}"))?
        .trim_end_matches('/');
    let with_port = if authority.contains(':') {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let address = with_port
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("base_url: nobody knows {authority:?}"))?;
    Ok((authority, address))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn free_port() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    /// Answers one request after the other with these states.
    fn server(states: &'static [&'static str]) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for state in states {
                let (mut socket, _) = listener.accept().unwrap();
                let mut request = [0; 256];
                let _ = socket.read(&mut request);
                let _ = write!(socket, "HTTP/1.1 {state}\r\nContent-Length: 0\r\n\r\n");
            }
        });
        url
    }

    #[test]
    fn a_server_that_loads_is_waited_for() {
        let url = server(&["503 Service Unavailable", "200 OK"]);
        let began = Instant::now();
        wait_until_ready(None, &url, "/health").unwrap();
        assert!(began.elapsed() >= POLL);
    }

    #[test]
    fn nobody_there_is_no_answer_and_no_url_is_a_mistake() {
        let port = free_port();
        assert!(!answers(&format!("http://127.0.0.1:{port}"), "/health").unwrap());
        let error = answers("127.0.0.1:1", "/health").unwrap_err().to_string();
        assert!(error.starts_with("base_url: expected http://"), "{error}");
    }
}
