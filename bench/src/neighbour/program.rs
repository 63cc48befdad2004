// SPDX-License-Identifier: GPL-2.0-only
//! What all programs of neighbours have in common: how they are started, and what they say of themselves.

use std::process::Command;

use anyhow::{Result, bail};

use crate::arm::NeighbourSettings;
use crate::cgroup::Cgroup;
use crate::cpus;
use crate::process::Supervised;

/// Of neighbours that an arm confines.
const CGROUP: &str = "gpuaware-bench-neighbours";

/// So many times as large as on the lab's machine is the noise that is not one worker a CPU, such as streams and jobs: it
/// grows with each four CPUs.
pub fn size() -> u32 {
    size_for(cpus::online().len())
}

fn size_for(nr_cpus: usize) -> u32 {
    u32::try_from(nr_cpus / 4).map_or(1, |size| size.max(1))
}

/// The terms on which an arm lets neighbours run.
#[derive(Debug, Default)]
pub struct Terms {
    prefix: Vec<String>,
    cgroup: Option<Cgroup>,
}

impl Terms {
    /// Makes the cgroup that the arm wants them in, if it does.
    pub fn of(settings: &NeighbourSettings) -> Result<Self> {
        let mut cgroup = settings
            .confined()
            .then(|| Cgroup::make(CGROUP))
            .transpose()?;
        if let Some(cgroup) = &mut cgroup {
            if let Some(cpus) = &settings.cpuset {
                cgroup.confine(cpus, false)?;
            }
            if let Some(weight) = settings.weight {
                cgroup.weigh(weight)?;
            }
            if settings.idle {
                cgroup.make_idle()?;
            }
        }
        Ok(Self {
            prefix: settings.prefix.clone(),
            cgroup,
        })
    }

    /// To see the commands: nothing is made.
    pub fn on_paper(settings: &NeighbourSettings) -> Self {
        Self {
            prefix: settings.prefix.clone(),
            cgroup: None,
        }
    }

    /// The command of a program, after the arm's prefix.
    pub fn command(&self, program: &str) -> Command {
        let mut words = self.prefix.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words);
        command
    }

    /// Starts a program in the arm's cgroup.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<Supervised> {
        if let Some(cgroup) = &self.cgroup {
            cgroup.take(command)?;
        }
        Supervised::spawn(name, command)
    }
}

/// What a program reports of itself when it has ended: how much it did, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Own {
    pub total: f64,
    pub seconds: f64,
}

impl Own {
    /// Itself, if it can be: programs print `nan` and `inf` too.
    pub fn checked(self) -> Result<Self> {
        let Self { total, seconds } = self;
        if !(total >= 0.0 && total.is_finite() && seconds > 0.0 && seconds.is_finite()) {
            bail!("{total} in {seconds} s");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_amount_or_no_time_is_refused() {
        let own = |total, seconds| Own { total, seconds }.checked().is_ok();
        assert!(own(0.0, 0.5) && own(1e12, 60.0));
        for (total, seconds) in [
            (f64::NAN, 1.0),
            (f64::INFINITY, 1.0),
            (-1.0, 1.0),
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
            (1.0, 0.0),
            (1.0, -1.0),
        ] {
            assert!(!own(total, seconds), "{total} in {seconds} s");
        }
    }

    #[test]
    fn noise_grows_with_the_machine() {
        assert_eq!([1, 2, 7, 8, 64, 512].map(size_for), [1, 1, 1, 2, 16, 128]);
    }

    #[test]
    fn the_arm_is_put_before_every_program() {
        let words = |prefix: &[&str]| {
            let settings = NeighbourSettings {
                prefix: prefix.iter().map(|&word| word.to_owned()).collect(),
                ..NeighbourSettings::default()
            };
            let command = Terms::of(&settings).unwrap().command("fio");
            let program = [command.get_program()].into_iter();
            let words = program.chain(command.get_args());
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&[]), ["fio"]);
        assert_eq!(
            words(&["chrt", "--idle", "0"]),
            ["chrt", "--idle", "0", "fio"]
        );
    }
}
