// SPDX-License-Identifier: GPL-2.0-only
//! Tier `host`: no rights, no special kernel.

mod analyze;
mod bench;
mod cli;
mod compare;
mod doctor;
mod documents;
mod fakecuda;
mod imports;
mod killed;
mod lab;
mod matrices;
mod neighbours;
mod package;
mod pin;
mod pipelines;
mod pipes;
mod policy;
mod report;
mod results;
mod rules_of_the_house;
mod serving;
mod setup;
mod simulated;
mod topology;
mod tune;
mod vllm;
