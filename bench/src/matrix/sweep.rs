// SPDX-License-Identifier: GPL-2.0-only
//! A parameter of a pipeline that takes one value after the other: each is a workload of its own, and the report draws
//! lines through them.

use serde::{Deserialize, Serialize};

use super::workload::{Program, Workload};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The workloads that are repeated, each with all values.
    pub workloads: Vec<String>,
    /// Keys of its graph, which all get the value.
    pub set: Vec<String>,
    pub values: Vec<f64>,
    /// What the axis says.
    pub label: String,
}

impl Sweep {
    /// What a workload is called with this value.
    pub fn name(workload: &str, value: f64) -> String {
        format!("{workload}-{value}")
    }

    /// Puts its workloads in the place of those that it repeats.
    pub fn expand(&self, workloads: &mut Vec<Workload>) -> Result<(), String> {
        let increase = self.values.windows(2).all(|pair| pair[0] < pair[1]);
        if self.values.len() < 2 || !increase {
            return Err("values: expected at least two, each above the one before".to_owned());
        }
        if self.set.is_empty() || self.workloads.is_empty() {
            return Err(
                "expected at least one key of the graph in set, and one in workloads".to_owned(),
            );
        }
        self.workloads
            .iter()
            .try_for_each(|name| self.repeat(name, workloads))
    }

    fn repeat(&self, name: &str, workloads: &mut Vec<Workload>) -> Result<(), String> {
        let known: Vec<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
        let Some(place) = known.iter().position(|known| *known == name) else {
            return Err(format!(
                "workloads: expected some of {}, each in one sweep, got {name:?}",
                known.join(", ")
            ));
        };
        let mut names = self.values.iter().map(|&value| Self::name(name, value));
        if let Some(taken) = names.find(|taken| known.contains(&taken.as_str())) {
            return Err(format!(
                "workloads: {name:?} would be called {taken:?}, as another [[workload]] is: call one of them something else"
            ));
        }
        let base = workloads[place].clone();
        let Program::Pipeline(pipeline) = &base.program else {
            return Err(format!(
                "workloads: expected pipelines, whose graphs have the keys, got {name:?}"
            ));
        };
        let repeated = self.values.iter().map(|&value| {
            let mut pipeline = pipeline.clone();
            let changes = self.set.iter().map(|key| format!("{key}={value}"));
            pipeline.set.extend(changes);
            Workload {
                name: Self::name(name, value),
                program: Program::Pipeline(pipeline),
                ..base.clone()
            }
        });
        let repeated: Vec<Workload> = repeated.collect();
        workloads.splice(place..=place, repeated);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workloads() -> Vec<Workload> {
        [
            "name = \"q\"\nprofile = \"qwen3\"",
            "name = \"p\"\nprogram = \"pipeline\"\ngraph = \"windflow\"\nset = [\"a=1\"]",
        ]
        .map(|text| toml::from_str(text).unwrap())
        .into()
    }

    fn sweep(workload: &str, values: &[f64]) -> Sweep {
        Sweep {
            workloads: vec![workload.to_owned()],
            set: vec!["b".to_owned(), "c".to_owned()],
            values: values.to_owned(),
            label: "b and c".to_owned(),
        }
    }

    #[test]
    fn each_value_is_a_workload_in_the_place_of_the_one_that_is_repeated() {
        let mut workloads = workloads();
        sweep("p", &[0.0, 0.5, 2000.0])
            .expand(&mut workloads)
            .unwrap();
        let names: Vec<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["q", "p-0", "p-0.5", "p-2000"]);
        let Program::Pipeline(pipeline) = &workloads[3].program else {
            panic!("{workloads:?}")
        };
        assert_eq!(pipeline.set, ["a=1", "b=2000", "c=2000"]);
    }

    #[test]
    fn what_cannot_be_repeated_is_refused() {
        let error = |workload: &str, values: &[f64]| {
            sweep(workload, values)
                .expand(&mut workloads())
                .unwrap_err()
        };
        assert!(error("p", &[1.0]).starts_with("values: expected at least two"));
        assert!(error("p", &[2.0, 1.0]).starts_with("values: expected at least two"));
        assert!(error("x", &[1.0, 2.0]).contains("expected some of q, p"));
        assert!(error("q", &[1.0, 2.0]).starts_with("workloads: expected pipelines"));
        let mut twice = workloads();
        sweep("p", &[1.0, 2.0]).expand(&mut twice).unwrap();
        assert!(sweep("p", &[1.0, 2.0]).expand(&mut twice).is_err());
    }
}
