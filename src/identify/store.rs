// SPDX-License-Identifier: GPL-2.0-only
//! From rules and tags to the maps that BPF judges by.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::{ErrorKind, MapCore, MapFlags};

use crate::bpf::identify::IdentifySkel;
use crate::bpf::intf;
use crate::policy::PathGlob;
use crate::policy::rule::Endpoint;

use super::cgroups::{self, Tag};
use super::class::Class;
use super::devices;
use super::evidence;
use super::rules::{Rules, wire_endpoint};

const TEXT_LEN: usize = intf::gpuaware_limits_GPUAWARE_TEXT_LEN as usize;

/// Structs of `bpf/intf.h` that have no padding.
trait Wire {}
impl Wire for intf::gpuaware_rule {}
impl Wire for intf::gpuaware_cgroup_tag {}
impl Wire for intf::gpuaware_endpoint {}

fn bytes<T: Wire>(value: &T) -> &[u8] {
    // SAFETY: reads the bytes of a live value; `Wire` types have no padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// Writes what BPF judges by, instead of what was there.
///
/// # Errors
/// The kernel refuses a change of a map.
pub fn rules(skel: &mut IdentifySkel<'_>, rules: &Rules) -> Result<()> {
    let end = intf::gpuaware_rule {
        needs: 0,
        class: intf::gpuaware_class_GPUAWARE_CLASS_NONE,
        by_name: 0,
        by_cgroup: 0,
        pad: [0; 2],
    };
    let maps = &skel.maps;
    for number in 0..intf::gpuaware_limits_GPUAWARE_MAX_RULES {
        let rule = rules.judged.get(number as usize);
        let wire = rule.map_or(end, super::rules::Judged::wire);
        maps.class_rules
            .update(&number.to_ne_bytes(), bytes(&wire), MapFlags::ANY)
            .context("storing rules")?;
    }
    clear(&maps.endpoints).context("forgetting endpoints")?;
    for (number, endpoint) in (0u32..).zip(&rules.endpoints) {
        let key = wire_endpoint(endpoint);
        maps.endpoints
            .update(bytes(&key), &number.to_ne_bytes(), MapFlags::ANY)
            .context("storing endpoints")?;
    }
    clear(&maps.trusted_uids).context("forgetting trusted users")?;
    for uid in rules.trusted_uids.iter().flatten() {
        maps.trusted_uids
            .update(&uid.to_ne_bytes(), &[1], MapFlags::ANY)
            .context("storing trusted users")?;
    }
    if let Some(globs) = &rules.trusted_devices {
        trusted_devices(skel, globs)?;
    }
    text(skel, evidence::REFUSED, evidence::why_refused(rules))?;
    for (number, rule) in (0u32..).zip(rules.texts()) {
        text(skel, number, &rule)?;
    }
    text(skel, evidence::XATTR, cgroups::XATTR)?;
    let unix = |endpoint: &&Endpoint| matches!(endpoint, Endpoint::Unix(_));
    let nr_unix = rules.endpoints.iter().filter(unix).count();
    let bss = skel.maps.bss_data.as_deref_mut();
    let bss = bss.context("the BPF object has no data")?;
    bss.unix_endpoints = nr_unix as u32;
    bss.trust_by_uid = rules.trusted_uids.is_some().into();
    bss.trust_by_device = rules.trusted_devices.is_some().into();
    bss.names_asked = rules.judged.iter().any(|judged| judged.by_name()).into();
    Ok(())
}

/// Writes which devices match `globs` now. Who has one open is trusted all the while.
///
/// # Errors
/// The kernel refuses a change of the map.
pub fn trusted_devices(skel: &IdentifySkel<'_>, globs: &[PathGlob]) -> Result<()> {
    let there = devices::find(globs).into_iter();
    let there = there.map(|number| (number, vec![1])).collect();
    exchange(&skel.maps.trusted_devices, &there).context("storing devices")
}

/// Writes which devices are GPUs now, and where these are.
///
/// # Errors
/// The kernel refuses a change of the map.
pub fn gpu_devices(skel: &IdentifySkel<'_>) -> Result<()> {
    let there = devices::gpu_nodes(Path::new("/")).into_iter();
    let there = there.map(|(number, node)| {
        (
            number,
            node.map_or(0, |node| node + 1).to_ne_bytes().to_vec(),
        )
    });
    exchange(&skel.maps.gpu_devices, &there.collect()).context("storing the nodes of GPUs")
}

/// Makes `map` hold what is in `there`; what stays is there all the while.
fn exchange(map: &impl MapCore, there: &BTreeMap<u32, Vec<u8>>) -> Result<()> {
    let is_gone = |key: &Vec<u8>| {
        !there
            .keys()
            .any(|number| number.to_ne_bytes()[..] == key[..])
    };
    for key in map.keys().filter(is_gone).collect::<Vec<_>>() {
        map.delete(&key)?;
    }
    for (number, value) in there {
        map.update(&number.to_ne_bytes(), value, MapFlags::ANY)?;
    }
    Ok(())
}

/// Stores what people are told of number `key`, cut to what has room.
///
/// # Errors
/// The kernel refuses a change of the map.
pub fn text(skel: &IdentifySkel<'_>, key: u32, text: &str) -> Result<()> {
    let mut value = [0; TEXT_LEN];
    let len = text.len().min(TEXT_LEN - 1);
    value[..len].copy_from_slice(&text.as_bytes()[..len]);
    skel.maps
        .texts
        .update(&key.to_ne_bytes(), &value, MapFlags::ANY)
        .context("storing what marks are explained with")
}

/// Forgets what people are told of number `key`.
pub fn forget_text(skel: &IdentifySkel<'_>, key: u32) {
    // It may never have been stored.
    let _ = skel.maps.texts.delete(&key.to_ne_bytes());
}

/// A new thread of process `tgid` may launch soon.
///
/// # Errors
/// The kernel refuses a change of the map.
pub fn gpu_process(skel: &IdentifySkel<'_>, tgid: u32) -> Result<()> {
    skel.maps
        .gpu_tgids
        .update(&tgid.to_ne_bytes(), &[1], MapFlags::ANY)
        .with_context(|| format!("remembering GPU process {tgid}"))
}

/// Writes the tags `now` where `before` are.
///
/// # Errors
/// The kernel refuses a change of a map.
pub fn tags(
    skel: &IdentifySkel<'_>,
    before: &HashMap<u64, Tag>,
    now: &HashMap<u64, Tag>,
) -> Result<()> {
    let map = &skel.maps.cgroup_tags;
    for id in before.keys().filter(|id| !now.contains_key(id)) {
        match map.delete(&id.to_ne_bytes()) {
            // By a round that failed after it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            deleted => deleted.with_context(|| format!("forgetting cgroup {id}"))?,
        }
    }
    for (id, tag) in now {
        let wire = intf::gpuaware_cgroup_tag {
            rules: tag.rules,
            class: tag
                .class
                .map_or(intf::gpuaware_class_GPUAWARE_CLASS_NONE, Class::wire),
            text: tag.text,
        };
        map.update(&id.to_ne_bytes(), bytes(&wire), MapFlags::ANY)
            .with_context(|| format!("tagging cgroup {id}"))?;
    }
    bump_generation(skel)
}

/// Makes the scheduler derive every task's class anew.
///
/// # Errors
/// The kernel refuses a change of the map.
pub fn bump_generation(skel: &IdentifySkel<'_>) -> Result<()> {
    let next = generation(skel)? + 1;
    let key = 0u32.to_ne_bytes();
    skel.maps
        .class_generation
        .update(&key, &next.to_ne_bytes(), MapFlags::ANY)
        .context("changing the class generation")
}

/// How often rules or tags have changed.
///
/// # Errors
/// The kernel refuses.
pub fn generation(skel: &IdentifySkel<'_>) -> Result<u64> {
    let found = skel
        .maps
        .class_generation
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .context("reading the class generation")?;
    Ok(found
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_ne_bytes))
}

/// Has any cgroup a class?
pub fn has_tags(skel: &IdentifySkel<'_>) -> bool {
    skel.maps.cgroup_tags.keys().next().is_some()
}

fn clear(map: &impl MapCore) -> Result<()> {
    let keys: Vec<_> = map.keys().collect();
    for key in keys {
        map.delete(&key)?;
    }
    Ok(())
}
