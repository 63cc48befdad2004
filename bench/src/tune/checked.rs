// SPDX-License-Identifier: GPL-2.0-only
//! Which candidates are tried: those that the scheduler takes on this machine, that differ from the default there, and
//! that the simulator can do if it is simulated.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::candidate::{Candidate, Dropped};
use super::folder::{TuneDir, is_default, refusal};
use super::look::Seen;
use crate::simulator::{CHOOSING, Chooser, Wish};

/// The machine that candidates are for.
pub struct Machine<'a> {
    pub seen: &'a Seen,
    pub target: &'a Path,
    /// Of one that is simulated, and how many threads want preferred CPUs there.
    pub simulated: Option<(&'a Chooser, u32)>,
}

/// Writes the candidates whose names are not `reserved`. Returns those that are tried, and the others with the reason.
pub fn checked(
    mut candidates: Vec<Candidate>,
    reserved: &[&str],
    dir: &TuneDir,
    machine: &Machine<'_>,
) -> Result<(Vec<Candidate>, Dropped)> {
    let mut names: BTreeSet<String> = reserved.iter().map(|&name| name.to_owned()).collect();
    candidates.retain(|candidate| names.insert(candidate.name.clone()));
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match machine.objection(&candidate, dir)? {
            Some(why) => dropped.push((candidate.name, why)),
            None => kept.push(candidate),
        }
    }
    Ok((kept, dropped))
}

impl Machine<'_> {
    fn objection(&self, candidate: &Candidate, dir: &TuneDir) -> Result<Option<String>> {
        let file = dir.write_candidate(candidate)?;
        if let Some(why) = refusal(&file, &self.seen.online, self.target)? {
            return Ok(Some(first_error(&why)));
        }
        if is_default(&file, &self.seen.online, self.target)? {
            return Ok(Some("it comes to the same as the default".to_owned()));
        }
        let Some((chooser, threads)) = self.simulated else {
            return Ok(None);
        };
        if let Some(why) = dir.not_simulated(candidate, self.seen)? {
            return Ok(Some(why));
        }
        let keys = candidate.keys();
        if !keys.iter().all(|(key, _)| CHOOSING.contains(&key.as_str())) {
            return Ok(None);
        }
        let chosen = |policy: &str| {
            let policy = policy.to_owned();
            chooser.preferred(&Wish { policy, threads })
        };
        let is_same = chosen(&candidate.policy)? == chosen("")?;
        Ok(is_same.then(|| {
            format!("the same CPUs are preferred as by default, for as many threads as launch here: {threads}")
        }))
    }
}

fn first_error(said: &str) -> String {
    let line = said.lines().find(|line| line.contains(": error: "));
    let line = line.or_else(|| said.lines().next()).unwrap_or_default();
    line.rsplit_once("error: ")
        .map_or(line, |(_, why)| why)
        .to_owned()
}
