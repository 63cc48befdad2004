// SPDX-License-Identifier: GPL-2.0-only
//! A CPU that drowns in interrupts, whoever runs there and elsewhere.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};

const STEERING: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";
const EVERYBODY: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);
/// A softirq looks at every one of them for each packet, which takes some tenths of a millisecond on a CPU of today.
const MANY: usize = 800;
/// A packet may be lost, as where nobody has steered it yet.
const ANSWER_LIMIT: Duration = Duration::from_millis(20);

/// Packets to hundreds of sockets, received by the softirqs of one CPU. The next one is sent when one has arrived, so they never
/// pile up and next to no CPU time is needed anywhere else.
pub struct IrqStorm {
    is_over: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    _receivers: Vec<UdpSocket>,
}

impl IrqStorm {
    pub fn on(cpu: usize) -> Self {
        Self::of_receivers(MANY, cpu)
    }

    /// As many as can be, each of them short.
    pub fn of_short_ones_on(cpu: usize) -> Self {
        Self::of_receivers(0, cpu)
    }

    fn of_receivers(nr: usize, cpu: usize) -> Self {
        std::fs::write(STEERING, format!("{:x}", 1_u64 << cpu)).expect("receive packet steering");
        let sender = receiver(0);
        let port = sender.local_addr().expect("an address").port();
        let receivers = (0..nr).map(|_| receiver(port)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let sender = std::thread::spawn({
            let is_over = is_over.clone();
            move || send(&sender, &is_over)
        });
        Self {
            is_over,
            sender: Some(sender),
            _receivers: receivers,
        }
    }
}

impl Drop for IrqStorm {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.take().map(JoinHandle::join);
        let _ = std::fs::write(STEERING, "0");
        if !std::thread::panicking() {
            sent.expect("a sender").expect("packets are sent");
        }
    }
}

/// One of many sockets of `port`, 0 for a new one, that everything sent to everybody arrives at.
fn receiver(port: u16) -> UdpSocket {
    let any = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, any, None).expect("a socket");
    setsockopt(&socket, sockopt::ReuseAddr, &true).expect("SO_REUSEADDR");
    let address = SockaddrIn::from(SocketAddrV4::new(EVERYBODY, port));
    bind(socket.as_raw_fd(), &address).expect("a port of many");
    socket.into()
}

fn send(socket: &UdpSocket, is_over: &AtomicBool) {
    let everybody = socket.local_addr().expect("an address");
    socket.set_broadcast(true).expect("SO_BROADCAST");
    let limit = Some(ANSWER_LIMIT);
    socket.set_read_timeout(limit).expect("SO_RCVTIMEO");
    while !is_over.load(Ordering::Relaxed) {
        socket.send_to(b"!", everybody).expect("a packet is sent");
        let _ = socket.recv(&mut [0]);
    }
}
