// SPDX-License-Identifier: GPL-2.0-only
//! What is written for what is seen.

use nix::libc::{ENOSPC, EPERM};

use super::*;

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn wish(preferred: &str) -> Wish {
    Wish {
        preferred: set(preferred),
        online: set("0-7"),
    }
}

fn irq(irq: u32, affinity: &str) -> Line {
    Line {
        target: Target::Irq(irq),
        name: format!("device{irq}"),
        affinity: set(affinity),
        effective: set(affinity),
    }
}

fn default(affinity: &str) -> Line {
    Line {
        target: Target::Default,
        ..irq(0, affinity)
    }
}

/// Plans, and carries the writes out on `seen` as a kernel would that accepts all.
fn follow(ledger: &mut Ledger, seen: &mut [Line], preferred: &str) -> Plan {
    let plan = ledger.plan(seen, &wish(preferred));
    for write in &plan.writes {
        let line = seen.iter_mut().find(|line| line.target == write.target);
        let line = line.unwrap();
        line.affinity = write.to.clone();
        line.effective = write.to.clone();
        ledger.settle(write.target, Ok(Some(write.to.clone())));
    }
    plan
}

fn lists(writes: &[Write]) -> Vec<String> {
    writes.iter().map(|write| write.to.to_string()).collect()
}

fn restored(ledger: &Ledger, seen: &[Line]) -> Vec<String> {
    lists(&ledger.restoration(seen))
}

#[test]
fn leaves_the_part_of_an_affinity_that_is_not_preferred() {
    let mut ledger = Ledger::default();
    let mut seen = [default("0-7"), irq(1, "4-7"), irq(2, "6"), irq(3, "0-5")];
    let plan = follow(&mut ledger, &mut seen, "6-7");
    assert_eq!(lists(&plan.writes), ["0-5", "4-5", "0-5"]);
    assert_eq!(ledger.nr_steered(), 2);
    assert!(follow(&mut ledger, &mut seen, "6-7").writes.is_empty());
    assert_eq!(restored(&ledger, &seen), ["0-7", "4-7", "6"]);
}

#[test]
fn a_new_set_starts_from_the_originals() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "4-7"), irq(2, "0-3")];
    follow(&mut ledger, &mut seen, "6-7");
    let plan = follow(&mut ledger, &mut seen, "2-3");
    // The first one is back where it was, which leaves nothing to restore.
    assert_eq!(lists(&plan.writes), ["4-7", "0-1"]);
    assert_eq!(restored(&ledger, &seen), ["0-3"]);
}

/// A network card that is down for a while, and one that another device joins.
#[test]
fn what_it_had_at_first_is_known_though_handlers_come_and_go() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "6"), irq(2, "4-7")];
    follow(&mut ledger, &mut seen, "6-7");
    let names = seen.clone().map(|line| line.name);
    seen[0].name.clear();
    seen[1].name = format!("another, {}", names[1]);
    assert!(follow(&mut ledger, &mut seen, "6-7").writes.is_empty());
    assert_eq!(restored(&ledger, &seen), ["6", "4-7"]);
    for (line, name) in seen.iter_mut().zip(names) {
        line.name = name;
    }
    assert!(follow(&mut ledger, &mut seen, "6-7").writes.is_empty());
    assert_eq!(restored(&ledger, &seen), ["6", "4-7"]);
    // Another device's by now, which has what the first one had been given.
    seen[0].name = "other".to_owned();
    assert!(follow(&mut ledger, &mut seen, "6-7").writes.is_empty());
    assert_eq!(restored(&ledger, &seen), ["4-7"]);
}

#[test]
fn interrupts_that_nobody_handles_are_left_alone() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "6"), default("0-7")];
    seen[0].name.clear();
    assert_eq!(
        lists(&follow(&mut ledger, &mut seen, "6-7").writes),
        ["0-5"]
    );
    assert_eq!(restored(&ledger, &seen), ["0-7"]);
}

#[test]
fn offline_cpus_are_no_place_to_go() {
    let mut ledger = Ledger::default();
    let wish = Wish {
        preferred: set("2-3"),
        online: set("0,2-3"),
    };
    let plan = ledger.plan(&[irq(1, "0-3"), irq(2, "1-2")], &wish);
    assert_eq!(lists(&plan.writes), ["0", "0"]);
    let nowhere = Wish {
        preferred: set("0-3"),
        online: set("0-3"),
    };
    let plan = Ledger::default().plan(&[irq(1, "0-3")], &nowhere);
    assert!(plan.writes.is_empty());
}

#[test]
fn an_immovable_one_is_tried_once() {
    let mut ledger = Ledger::default();
    let seen = [irq(1, "0-7")];
    for code in [EPERM, EIO] {
        ledger.known.clear();
        assert_eq!(ledger.plan(&seen, &wish("7")).writes.len(), 1);
        let refused = Err(io::Error::from_raw_os_error(code));
        ledger.settle(Target::Irq(1), refused);
        assert_eq!((ledger.nr_left_alone(), ledger.has_changes()), (1, false));
        assert!(ledger.plan(&seen, &wish("7")).writes.is_empty());
        assert!(ledger.plan(&seen, &wish("6")).writes.is_empty());
    }
}

#[test]
fn one_that_failed_is_tried_again_when_the_set_changes() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "0-7")];
    follow(&mut ledger, &mut seen, "7");
    assert_eq!(lists(&ledger.plan(&seen, &wish("6")).writes), ["0-5,7"]);
    let full = Err(io::Error::from_raw_os_error(ENOSPC));
    ledger.settle(Target::Irq(1), full);
    assert!(ledger.plan(&seen, &wish("6")).writes.is_empty());
    // What was written before the failure is still ours to restore.
    assert_eq!(restored(&ledger, &seen), ["0-7"]);
    assert_eq!(lists(&ledger.plan(&seen, &wish("5")).writes), ["0-4,6-7"]);
}

#[test]
fn what_somebody_else_has_set_is_theirs() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "0-7")];
    follow(&mut ledger, &mut seen, "7");
    seen[0].affinity = set("3,7");
    assert!(restored(&ledger, &seen).is_empty());
    let plan = follow(&mut ledger, &mut seen, "7");
    assert_eq!(plan.taken_over, ["1 (device1)"]);
    assert!(plan.writes.is_empty());
    assert!(follow(&mut ledger, &mut seen, "7").taken_over.is_empty());
    assert!(restored(&ledger, &seen).is_empty());
    // A new set is a new question, and the answer to go back to is theirs.
    assert_eq!(lists(&follow(&mut ledger, &mut seen, "3").writes), ["7"]);
    assert_eq!(restored(&ledger, &seen), ["3,7"]);
}

#[test]
fn an_interrupt_born_under_our_default_gets_the_original_one() {
    let mut ledger = Ledger::default();
    let mut seen = vec![default("0-7"), irq(1, "0-6")];
    follow(&mut ledger, &mut seen, "7");
    seen.push(irq(2, "0-6"));
    assert_eq!(restored(&ledger, &seen), ["0-7", "0-7"]);
    assert!(follow(&mut ledger, &mut seen, "7").writes.is_empty());
    assert_eq!(ledger.nr_steered(), 1);
    assert_eq!(restored(&ledger, &seen), ["0-7", "0-7"]);
}

#[test]
fn a_number_that_somebody_else_got_is_another_interrupt() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "0-7"), irq(2, "0-7")];
    follow(&mut ledger, &mut seen, "7");
    seen[0].name = "newcomer".to_owned();
    assert_eq!(restored(&ledger, &seen), ["0-7"]);
    follow(&mut ledger, &mut seen, "7");
    assert_eq!(ledger.nr_steered(), 1);
    // The second one has vanished.
    follow(&mut ledger, &mut seen[..1], "7");
    assert_eq!(ledger.nr_steered(), 0);
}

#[test]
fn one_that_has_not_moved_yet_is_named_once() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "0-7")];
    assert!(follow(&mut ledger, &mut seen, "7").late.is_empty());
    seen[0].effective = set("7");
    assert_eq!(ledger.plan(&seen, &wish("7")).late, ["1 (device1)"]);
    assert!(ledger.plan(&seen, &wish("7")).late.is_empty());
}

#[test]
fn a_kill_before_or_after_a_write_leaves_the_same_to_restore() {
    let mut ledger = Ledger::default();
    let mut seen = [irq(1, "0-7")];
    follow(&mut ledger, &mut seen, "7");
    let plan = ledger.plan(&seen, &wish("6"));
    assert_eq!(restored(&ledger, &seen), ["0-7"]);
    seen[0].affinity = plan.writes[0].to.clone();
    assert_eq!(restored(&ledger, &seen), ["0-7"]);
}
