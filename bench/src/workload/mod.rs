// SPDX-License-Identifier: GPL-2.0-only
//! Runs a workload once: started as the arm wants it, waited for until it measures and until it ends,
//! its report read. What happens around it (neighbours, scheduler) is the business of `run::cell`.

mod child;
pub mod driver;
mod gpu_launch;
mod llm_server;
mod pipeline;
mod place;
mod served;
mod server_cpu;
mod threads;

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::arm::WorkloadSettings;
use crate::cgroup::Cgroup;
use crate::matrix::{Pipeline, Program, Workload};
use crate::record::{LlmServing, ThreadSeen, WorkloadReport};
use child::Child;
pub use pipeline::check_graph;
pub use place::Place;
pub use served::{Standing, lacks_gpu_memory, read_outputs};
use server_cpu::ServerCpu;

/// Processes of the workload that somebody else has started.
pub fn running_already(workload: &Workload) -> Vec<u32> {
    match &workload.program {
        Program::Served(served) => served::running_already(served),
        _ => Vec::new(),
    }
}

/// How long the workload's own server may take until it answers, beyond the cells that it serves. In the lab, genuine
/// ones take minutes.
pub fn start_limit(workload: &Workload) -> Duration {
    match &workload.program {
        Program::Served(served) => served::start_limit(&served.server),
        _ => Duration::ZERO,
    }
}

/// The share of the first GPU's memory that the workload's server takes; `None`: none.
pub fn gpu_memory(workload: &Workload) -> Option<f64> {
    match &workload.program {
        Program::Served(served) => served::gpu_memory(&served.server),
        _ => None,
    }
}

/// The server that the workload's next cell is to find: the one that stands if it is that, else a new one; none where
/// each cell starts its own. Whoever else stands is ended, not to be felt in the cell. The tracer starts what it traces.
pub fn stand(
    workload: &Workload,
    settings: &WorkloadSettings,
    place: Place,
    standing: Option<Standing>,
) -> Result<Option<Standing>> {
    let wanted = match &workload.program {
        Program::Served(served) if workload.trace.is_none() => Some(served),
        _ => None,
    };
    let wanted = wanted.filter(|served| served::may_stand(&served.server));
    if let Some(server) = standing {
        if wanted.is_some_and(|served| server.serves(served, settings)) {
            return Ok(Some(server));
        }
        server.end();
    }
    wanted.map_or(Ok(None), |served| Standing::start(served, settings, place))
}

/// The commands of the workload's programs, to be read: ports and folders are others in a run.
///
/// # Errors
/// A program or a driver that it needs is not there.
pub fn commands(
    workload: &Workload,
    settings: &WorkloadSettings,
    seconds: f64,
    place: Place,
) -> Result<Vec<Command>> {
    let (prefix, round) = (&settings.prefix, 1);
    match &workload.program {
        Program::GpuLaunch(launch) => Ok(vec![gpu_launch::command(
            launch,
            prefix,
            seconds,
            place.target,
        )?]),
        Program::LlmServer(llm) => Ok(vec![
            llm_server::server(llm, prefix, place.target)?,
            llm_server::client(llm, "127.0.0.1:PORT", seconds, round, place),
        ]),
        Program::Pipeline(graph) => {
            let server = pipeline::server_command(graph, place)?;
            let address = server.as_ref().map(|_| "127.0.0.1:PORT");
            let pipeline = pipeline::command(graph, prefix, address, seconds, round, place)?;
            Ok(server.into_iter().chain([pipeline]).collect())
        }
        Program::Served(served) => served::commands(served, prefix, seconds, place),
        Program::Recording(_) => Ok(Vec::new()),
    }
}

/// A workload that runs; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    programs: Programs,
    server_cpu: ServerCpu,
    /// After the programs: it must be empty to be removed.
    _cgroup: Option<Cgroup>,
}

#[derive(Debug)]
enum Programs {
    GpuLaunch(Child),
    LlmServer {
        server: Child,
        client: Child,
    },
    Served(Box<served::Running>),
    Pipeline {
        server: Option<Child>,
        pipeline: Child,
    },
}

impl Programs {
    /// The server first, which the stages that call one ask for its models.
    fn pipeline(
        graph: &Pipeline,
        prefix: &[String],
        seconds: f64,
        round: u32,
        place: Place,
        start: impl Fn(&'static str, Command) -> Result<Child>,
    ) -> Result<Self> {
        let mut server = pipeline::server(graph, place)?;
        let address = server
            .as_mut()
            .map(|server| server.wait_for_start(llm_server::LISTENING))
            .transpose()?;
        let address = address.as_deref();
        let command = pipeline::command(graph, prefix, address, seconds, round, place)?;
        let mut pipeline = start("pipeline", command)?;
        // All threads have their names then, which the arm finds them by.
        pipeline.wait_for_start(pipeline::STARTED)?;
        Ok(Self::Pipeline { server, pipeline })
    }
}

impl Running {
    /// Starts the workload for `seconds` of measured time; `round` settles what is random in it. A genuine server that
    /// stands is asked.
    pub fn start(
        workload: &Workload,
        settings: &WorkloadSettings,
        seconds: f64,
        round: u32,
        place: Place,
        standing: Option<Standing>,
    ) -> Result<Self> {
        let cgroup = match &workload.program {
            // Its server's, as long as that stands.
            Program::Served(_) => None,
            _ => place::cgroup(settings)?,
        };
        let start = |name, mut command: Command| -> Result<Child> {
            if let Some(cgroup) = &cgroup {
                cgroup.take(&mut command)?;
            }
            Child::start(name, &mut command)
        };
        let prefix = &settings.prefix;
        let programs = match &workload.program {
            Program::GpuLaunch(launch) => {
                let command = gpu_launch::command(launch, prefix, seconds, place.target)?;
                let launcher = start("gpu_launch", command)?;
                threads::apply(&settings.threads, launcher.pid())?;
                Programs::GpuLaunch(launcher)
            }
            Program::LlmServer(llm) => {
                let command = llm_server::server(llm, prefix, place.target)?;
                let mut server = start("llm_server", command)?;
                let address = server.wait_for_start(llm_server::LISTENING)?;
                threads::apply(&settings.threads, server.pid())?;
                let mut command = llm_server::client(llm, &address, seconds, round, place);
                let client = Child::start("llm_client", &mut command)?;
                Programs::LlmServer { server, client }
            }
            Program::Pipeline(graph) => {
                let running = Programs::pipeline(graph, prefix, seconds, round, place, start)?;
                if let Programs::Pipeline { pipeline, .. } = &running {
                    threads::apply(&settings.threads, pipeline.pid())?;
                }
                running
            }
            Program::Served(served) => {
                let running =
                    served::Running::start(served, settings, seconds, round, place, standing)?;
                Programs::Served(Box::new(running))
            }
            Program::Recording(_) => bail!("what was recorded is simulated only"),
        };
        Ok(Self {
            programs,
            server_cpu: ServerCpu::default(),
            _cgroup: cgroup,
        })
    }

    /// Waits until the measured window begins.
    pub fn wait_until_measuring(&mut self) -> Result<()> {
        match &mut self.programs {
            Programs::GpuLaunch(child) => child.wait_for_start(gpu_launch::MEASURING),
            Programs::LlmServer { client, .. } => client.wait_for_start(llm_server::MEASURING),
            Programs::Served(running) => running.wait_until_measuring().map(|()| String::new()),
            Programs::Pipeline { pipeline, .. } => pipeline.wait_for_start(pipeline::MEASURING),
        }?;
        self.server_cpu.window_begins(self.server_pid());
        Ok(())
    }

    /// The first process of a server that was started here, or the pipeline.
    fn server_pid(&self) -> Option<u32> {
        match &self.programs {
            Programs::GpuLaunch(_) => None,
            Programs::LlmServer { server, .. } => Some(server.pid()),
            Programs::Served(running) => running.server_pid(),
            Programs::Pipeline { pipeline, .. } => Some(pipeline.pid()),
        }
    }

    /// Waits until it has measured. Its threads are still there then.
    pub fn wait_until_measured(&mut self, seconds: f64) -> Result<()> {
        match &mut self.programs {
            Programs::GpuLaunch(child) => child
                .wait_for_result(gpu_launch::MEASURED, seconds)
                .map(drop),
            Programs::LlmServer { server, client } => {
                client.wait_for_end(seconds, || server.must_live())
            }
            Programs::Served(running) => running.wait_until_measured(seconds),
            Programs::Pipeline { pipeline, .. } => pipeline
                .wait_for_result(pipeline::MEASURED, seconds)
                .map(drop),
        }?;
        self.server_cpu.window_ends(self.server_pid());
        Ok(())
    }

    /// How the kernel schedules its threads; none of one that somebody else has started.
    pub fn threads(&self) -> Vec<ThreadSeen> {
        let process = match &self.programs {
            Programs::GpuLaunch(child)
            | Programs::LlmServer { server: child, .. }
            | Programs::Pipeline {
                pipeline: child, ..
            } => Some(child.pid()),
            Programs::Served(running) => running.server_pid(),
        };
        process.map(threads::seen).unwrap_or_default()
    }

    /// Lets it end. Its report, if it is a good one, and the server that stands on.
    pub fn report(self) -> Result<(WorkloadReport, Option<Standing>)> {
        let window_cpus = self.server_cpu.cpus();
        let (mut report, standing) = Self::report_of(self.programs)?;
        match &mut report {
            WorkloadReport::LlmServing(serving) => serving.server.window_cpus = window_cpus,
            WorkloadReport::Pipeline(pipeline) => pipeline.window_cpus = window_cpus,
            WorkloadReport::GpuLaunch(_) => {}
        }
        Ok((report, standing))
    }

    fn report_of(programs: Programs) -> Result<(WorkloadReport, Option<Standing>)> {
        let report = match programs {
            Programs::GpuLaunch(mut child) => {
                child.release()?;
                let report = child.document()?;
                if let WorkloadReport::GpuLaunch(launch) = &report {
                    gpu_launch::check(launch)?;
                }
                report
            }
            Programs::LlmServer { mut server, client } => {
                server.stop()?;
                let report = LlmServing {
                    client: client.document()?,
                    server: server.document()?,
                };
                llm_server::check(&report)?;
                WorkloadReport::LlmServing(report)
            }
            Programs::Served(running) => {
                let (serving, standing) = running.report()?;
                return Ok((WorkloadReport::LlmServing(serving), standing));
            }
            Programs::Pipeline {
                mut server,
                mut pipeline,
            } => {
                pipeline.release()?;
                if let Some(server) = &mut server {
                    server.stop()?;
                }
                let mut report = pipeline.document()?;
                if let WorkloadReport::Pipeline(pipeline) = &mut report {
                    pipeline.server = server.map(Child::document).transpose()?;
                    pipeline::check(pipeline)?;
                }
                report
            }
        };
        Ok((report, None))
    }
}
