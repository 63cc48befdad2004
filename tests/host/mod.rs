// SPDX-License-Identifier: GPL-2.0-only
//! Tier `host`: no rights, no special kernel.

mod analyze;
mod cli;
mod doctor;
mod fakecuda;
mod lab;
mod pin;
mod policy;
mod rules_of_the_house;
mod topology;
