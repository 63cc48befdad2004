// SPDX-License-Identifier: GPL-2.0-only
//! Bounded queues between stages. An item carries the time at which it was ready to be handed over, so that whoever
//! takes it knows the delay, the waiting for room included.

use std::time::{Duration, Instant};

use crate::channel::{Receiver, Sender, bounded};
use crate::graph::{Route, Stage};
use crate::item::Item;
use crate::route::{self, Choice, Replicas};

/// An item on its way.
#[derive(Debug)]
pub struct Envelope {
    pub item: Item,
    /// Place in `Graph::edges`.
    pub edge: usize,
    pub ready: Instant,
}

/// The queues before a stage: one for all threads, or one each.
#[derive(Debug)]
pub struct Queues {
    senders: Vec<Sender<Envelope>>,
    receivers: Vec<Receiver<Envelope>>,
    route: Route,
    replicas: Replicas,
}

impl Queues {
    pub fn before(stage: &Stage) -> Self {
        let count = match stage.route {
            Route::Any => 1,
            _ => stage.all_threads(),
        };
        let (senders, receivers) = (0..count).map(|_| bounded(stage.queue)).unzip();
        Self {
            senders,
            receivers,
            route: stage.route,
            replicas: Replicas::of(stage),
        }
    }

    pub fn inbox(&self, thread: usize) -> Receiver<Envelope> {
        self.receivers[thread % self.receivers.len()].clone()
    }

    /// The way here for the sender with this number.
    pub fn outlet(&self, edge: usize, sender: usize) -> Outlet {
        Outlet {
            senders: self.senders.clone(),
            edge,
            route: self.route,
            replicas: self.replicas,
            sender,
            sent: 0,
        }
    }
}

#[derive(Debug)]
pub struct Outlet {
    senders: Vec<Sender<Envelope>>,
    edge: usize,
    route: Route,
    replicas: Replicas,
    sender: usize,
    sent: u64,
}

impl Outlet {
    /// Waits for room. How long that took.
    pub fn put(&mut self, item: Item) -> Duration {
        let choice = Choice {
            request: item.request.number,
            key: item.key,
            sender: self.sender,
            sent: self.sent,
        };
        self.sent += 1;
        let thread = route::thread(self.route, self.replicas, choice);
        let ready = Instant::now();
        let envelope = Envelope {
            item,
            edge: self.edge,
            ready,
        };
        // A stage ends after all that send to it, unless it has failed, which ends the run.
        self.senders[thread].send(envelope);
        ready.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::channel::Nothing;
    use crate::graph;
    use crate::item::{Account, Request};

    fn queues(keys: &str) -> Queues {
        let text = format!(
            "description = \"d\"\n[stage.a]\narrive = {{ loop = \"saturate\" }}\n[stage.b]\nfrom = [\"a\"]\n{keys}"
        );
        let graph = graph::read("g", &text, &[]).unwrap();
        Queues::before(&graph.stages[1])
    }

    fn item(number: u64) -> Item {
        let account = Arc::new(Account::new(Duration::from_secs(1), &[]));
        Item {
            request: Arc::new(Request::new(number, Instant::now(), &account, None)),
            key: number,
            payload: None,
        }
    }

    #[test]
    fn all_threads_share_a_queue_or_have_one_each() {
        let shared = queues("threads = 2\n");
        let mut outlet = shared.outlet(0, 0);
        outlet.put(item(1));
        assert_eq!(shared.inbox(1).take_now().unwrap().item.key, 1);
        let own = queues("threads = 2\nroute = \"request\"\n");
        let mut outlet = own.outlet(3, 0);
        outlet.put(item(1));
        assert_eq!(own.inbox(0).take_now().unwrap_err(), Nothing::Yet);
        assert_eq!(own.inbox(1).take_now().unwrap().edge, 3);
    }

    #[test]
    fn a_full_queue_holds_the_sender_up_and_the_delay_says_so() {
        let queues = queues("queue = 1\n");
        let (inbox, mut outlet) = (queues.inbox(0), queues.outlet(0, 0));
        outlet.put(item(1));
        let pause = Duration::from_millis(20);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| outlet.put(item(2)));
            std::thread::sleep(pause);
            inbox.take(None).unwrap();
            let second = inbox.take(None).unwrap();
            // Its sender was ready before it had room.
            let blocked = sender.join().unwrap();
            assert!(second.ready.elapsed() >= blocked);
        });
    }
}
