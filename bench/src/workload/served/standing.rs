// SPDX-License-Identifier: GPL-2.0-only
//! A genuine server that stands while cells come and go: starting one takes half a minute, in the lab many.

use std::net::TcpListener;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::command;
use super::gpu_memory;
use super::health::wait_until_ready;
use super::vllm;
use crate::arm::WorkloadSettings;
use crate::cgroup::Cgroup;
use crate::matrix::{Served, Server};
use crate::workload::child::Child;
use crate::workload::place::{self, Place};
use crate::workload::threads;

/// A server that answers, as its arm wants it; dropping it kills it.
#[derive(Debug)]
pub struct Standing {
    served: Served,
    settings: WorkloadSettings,
    server: Child,
    /// Where its threads say that they launch, if it launches in the place of a model.
    launchers: TempDir,
    base_url: String,
    /// After the server: it must be empty to be removed.
    _cgroup: Option<Cgroup>,
}

impl Standing {
    /// Starts the server and waits until it answers. `None`: it is an endpoint, which runs already.
    pub fn start(
        served: &Served,
        settings: &WorkloadSettings,
        place: Place,
    ) -> Result<Option<Self>> {
        let port = free_port()?;
        let Some(mut command) = command::server(served, &settings.prefix, port, place)? else {
            return Ok(None);
        };
        let launchers = tempfile::tempdir().context("cannot create a folder for a server")?;
        vllm::launchers_say_so_in(&mut command, launchers.path());
        let cgroup = place::cgroup(settings)?;
        if let Some(cgroup) = &cgroup {
            cgroup.take(&mut command)?;
        }
        gpu_memory::wait_until_free(&served.server)?;
        let mut server = Child::start(served.server.name(), &mut command)?;
        let base_url = format!("http://127.0.0.1:{port}");
        wait_until_ready(Some(&mut server), &base_url, "/health")?;
        threads::apply(&settings.threads, server.pid())?;
        Ok(Some(Self {
            served: served.clone(),
            settings: settings.clone(),
            server,
            launchers,
            base_url,
            _cgroup: cgroup,
        }))
    }

    /// Whether it is what an arm with `settings` would start for `served`; who asks, and how, is the client's.
    pub fn serves(&self, served: &Served, settings: &WorkloadSettings) -> bool {
        let same = |a: &Served, b: &Served| {
            (&a.server, &a.model, &a.args) == (&b.server, &b.model, &b.args)
        };
        same(&self.served, served) && self.suits(settings)
    }

    /// Whether an arm with `settings` would start it so.
    pub fn suits(&self, settings: &WorkloadSettings) -> bool {
        self.settings == *settings
    }

    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its threads that launch in the place of a model, so far.
    pub fn launchers(&self) -> Vec<i64> {
        vllm::launchers_in(self.launchers.path())
    }

    /// An error once it has ended.
    pub fn must_live(&mut self) -> Result<()> {
        self.server.must_live()
    }

    /// Asks it to end, and waits for that.
    pub fn end(mut self) {
        self.server.dismiss();
    }
}

/// Whether such a server is the same in the tenth cell as in the first. vLLM is, which is told to forget the prompts of
/// the cells before; of llama-server's own memory of them that is not known.
pub fn may_stand(server: &Server) -> bool {
    matches!(server, Server::Vllm { .. })
}

/// A port that nobody listens on. Somebody may take it before the server does, which then says so.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener
        .local_addr()
        .context("a port without a number")?
        .port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Program, Workload};
    use crate::workload::stand;

    fn workload(text: &str, rate: u32) -> Workload {
        toml::from_str(&format!("name = \"x\"\n{text}\nrequest_rate = {rate}")).unwrap()
    }

    fn served(text: &str, rate: u32) -> Served {
        match workload(text, rate).program {
            Program::Served(served) => served,
            _ => panic!("not a genuine server"),
        }
    }

    /// A server of that, which is another program.
    fn standing(served: Served) -> Standing {
        let mut sleep = std::process::Command::new("sleep");
        Standing {
            served,
            settings: WorkloadSettings::default(),
            server: Child::start("sleep", sleep.arg("60")).unwrap(),
            launchers: tempfile::tempdir().unwrap(),
            base_url: String::new(),
            _cgroup: None,
        }
    }

    const VLLM: &str = "program = \"vllm\"\nmodel = \"m\"";

    #[test]
    fn a_server_stands_for_arms_that_would_start_the_same() {
        let vllm = served(VLLM, 4);
        let settings = WorkloadSettings::default();
        let standing = standing(vllm.clone());
        let rarer = served(VLLM, 2);
        assert!(standing.serves(&vllm, &settings) && standing.serves(&rarer, &settings));
        let other = served("program = \"vllm\"\nmodel = \"n\"", 4);
        assert!(!standing.serves(&other, &settings));
        let nice = WorkloadSettings {
            prefix: ["nice", "-n", "-10"].map(str::to_owned).to_vec(),
            ..WorkloadSettings::default()
        };
        assert!(!standing.serves(&vllm, &nice));
        assert!(may_stand(&vllm.server));
    }

    #[test]
    fn a_server_stands_on_for_its_own_cells_and_is_gone_before_others() {
        let place = Place {
            target: std::path::Path::new("/nowhere"),
            preferred: "1",
        };
        let finds = |next: &Workload| {
            let found = standing(served(VLLM, 4));
            let settings = WorkloadSettings::default();
            let found = stand(next, &settings, place, Some(found)).unwrap();
            found.is_some()
        };
        assert!(finds(&workload(VLLM, 2)));
        // Who is traced is started by the tracer.
        assert!(!finds(&workload(
            &format!("{VLLM}\ntrace = \"summary\""),
            4
        )));
        let launcher = toml::from_str("name = \"q\"\nprofile = \"qwen3\"").unwrap();
        assert!(!finds(&launcher));
    }
}
