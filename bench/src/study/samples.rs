// SPDX-License-Identifier: GPL-2.0-only
//! Hand-made cells for tests: what the launcher used and what the neighbours got done.

use crate::record::neighbour::{Kind, Work};
use crate::record::{Cell, WorkloadReport};

/// The cell, with what its neighbours got done a second.
pub fn with_work(mut cell: Cell, rates: &[(Kind, f64)]) -> Cell {
    let measurement = cell.measurement.as_mut().unwrap();
    measurement.neighbours = rates
        .iter()
        .map(|&(kind, rate)| Work {
            kind,
            rate,
            unit: String::new(),
            own_total: rate,
            own_seconds: 1.0,
            window_evidence: 1,
            total_evidence: 1,
            evidence_unit: String::new(),
        })
        .collect();
    cell
}

/// The cell, with so many CPUs used by its launching thread.
pub fn with_launcher_cpus(mut cell: Cell, cpus: f64) -> Cell {
    let measurement = cell.measurement.as_mut().unwrap();
    let WorkloadReport::GpuLaunch(launch) = &mut measurement.workload else {
        panic!("a sample of another workload");
    };
    let cpu_s = serde_json::json!({"user": cpus * launch.seconds, "sys": 0.0});
    launch.rest.insert("cpu_s".to_owned(), cpu_s);
    cell
}
