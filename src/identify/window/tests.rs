// SPDX-License-Identifier: GPL-2.0-only
//! What the controller does, and when.

mod fixed;

use super::*;
use fixed::{ALL_KNOWN, Fixed, NOBODY, STRANGERS, Unasked};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn counters(hits: u64, finds: u64, triggers: u64) -> Counters {
    Counters {
        hits,
        finds,
        triggers,
        ..Counters::default()
    }
}

const BOUNDS: Bounds = Bounds {
    always: false,
    sweep: Duration::from_millis(10),
    max_pause: Duration::from_secs(5),
};

/// A window at 200 ms whose one launcher was found at once and whose probes were taken away.
fn paused() -> Window {
    let mut window = Window::new(ms(0), BOUNDS);
    assert_eq!(
        window.step(ms(10), counters(1, 1, 1), &mut { ALL_KNOWN }),
        None
    );
    assert_eq!(
        window.step(ms(200), counters(9000, 1, 1), &mut { ALL_KNOWN }),
        Some(Action::Disarm)
    );
    window
}

#[test]
fn rests_armed_while_nobody_launches() {
    let mut window = Window::new(ms(0), BOUNDS);
    for second in 1..100 {
        let now = ms(second * 1000);
        assert_eq!(window.step(now, counters(0, 0, 0), &mut Unasked), None);
        assert_eq!(window.next_step(now), IDLE_STEP);
        assert_eq!(window.phase(now), Phase::Resting);
    }
    assert!(window.is_armed());
}

#[test]
fn keeps_looking_after_a_find() {
    let mut window = Window::new(ms(0), BOUNDS);
    let mut step =
        |at, hits, finds| window.step(ms(at), counters(hits, finds, 0), &mut { ALL_KNOWN });
    assert_eq!(step(500, 1, 1), None);
    assert_eq!(step(520, 50, 1), None);
    assert_eq!(step(525, 51, 2), None);
    assert_eq!(step(554, 9000, 2), None);
    assert_eq!(step(556, 9000, 2), Some(Action::Disarm));
}

#[test]
fn keeps_looking_after_a_find_for_two_seconds_where_that_is_cheap() {
    let ends = |hits_each_step: u64| {
        let mut window = Window::new(ms(0), BOUNDS);
        let mut hits = 1;
        let mut step = |at, finds| {
            hits += hits_each_step;
            window.step(ms(at), counters(hits, finds, 0), &mut { ALL_KNOWN })
        };
        assert_eq!(step(500, 1), None);
        (510..4000)
            .step_by(10)
            .find(|&at| step(at, 1) == Some(Action::Disarm))
    };
    assert_eq!(ends(0), Some(2500));
    assert_eq!(ends(15), Some(2500), "a pipeline of 1500 launches a second");
    assert_eq!(
        ends(200),
        Some(710),
        "a hot decoder: 40 ms of launches and no more"
    );
}

/// The longest pause between two sweeps from `from` to `to` seconds, beside a hot launcher.
fn longest_pause(from: u64, to: u64) -> Duration {
    let mut window = paused();
    let (mut hits, mut longest) = (9000, ms(0));
    let mut disarmed_at = ms(200);
    for now in (205..to * 1000).step_by(5).map(ms) {
        hits += u64::from(window.is_armed());
        match window.step(now, counters(hits, 1, 1), &mut { STRANGERS }) {
            Some(Action::Arm) if now >= ms(from * 1000) => {
                longest = longest.max(now - disarmed_at);
            }
            Some(Action::Disarm) => disarmed_at = now,
            _ => {}
        }
    }
    longest
}

#[test]
fn backs_off_while_strangers_run_and_nobody_is_found() {
    assert!(longest_pause(0, 3) < ms(1000), "{:?}", longest_pause(0, 3));
    let later = longest_pause(100, 200);
    assert!(later >= ms(4900) && later < ms(5100), "{later:?}");
}

#[test]
fn always_is_always() {
    let always = Bounds {
        always: true,
        ..BOUNDS
    };
    let mut window = Window::new(ms(0), always);
    assert_eq!(
        window.step(ms(9000), counters(9000, 1, 1), &mut { ALL_KNOWN }),
        None
    );
    let mut window = paused();
    window.set_bounds(ms(300), always);
    assert_eq!(
        window.step(ms(300), counters(9000, 1, 1), &mut { ALL_KNOWN }),
        Some(Action::Arm)
    );
}

#[test]
fn leaves_known_launchers_alone() {
    let mut window = paused();
    let (mut arms, mut armed) = (0, ms(0));
    for step in 0..5000 {
        let now = ms(200 + step * 10);
        armed += if window.is_armed() { ms(10) } else { ms(0) };
        // It launches rarely: no sweep meets it.
        if window.step(now, counters(9000, 1, 1), &mut { ALL_KNOWN }) == Some(Action::Arm) {
            arms += 1;
        }
    }
    assert_eq!(arms, 1, "one sweep for good measure in 50 s");
    assert!(armed <= ms(60), "{armed:?}");
}

#[test]
fn a_find_cuts_the_window_of_its_trigger_short() {
    let mut window = paused();
    let mut step =
        |at, hits, finds| window.step(ms(at), counters(hits, finds, 2), &mut { ALL_KNOWN });
    assert_eq!(step(300, 9000, 1), Some(Action::Arm));
    assert_eq!(step(310, 9000, 2), None);
    assert_eq!(step(341, 14_000, 2), Some(Action::Disarm));
}

#[test]
fn rests_armed_again_when_the_launchers_are_gone() {
    let mut window = paused();
    for step in 0..5000 {
        window.step(ms(200 + step * 10), counters(9000, 1, 1), &mut { NOBODY });
    }
    assert!(window.is_armed());
    // Asked once, and then not before the next one is found.
    window.step(ms(60_000), counters(9000, 1, 1), &mut Unasked);
    window.step(ms(60_010), counters(9001, 2, 1), &mut Unasked);
    assert_eq!(
        window.step(ms(60_100), counters(14_000, 2, 1), &mut { ALL_KNOWN }),
        Some(Action::Disarm)
    );
}

#[test]
fn asks_less_and_less_often_while_nobody_strange_runs() {
    struct Counting(u32);
    impl Threads for Counting {
        fn strangers_ran(&mut self) -> bool {
            self.0 += 1;
            false
        }

        fn launchers_alive(&mut self) -> bool {
            true
        }
    }
    let mut window = paused();
    assert_eq!(window.phase(ms(200)), Phase::Paused);
    let mut threads = Counting(0);
    for now in (205..100_000).step_by(5).map(ms) {
        window.step(now, counters(9000, 1, 1), &mut threads);
    }
    assert!(threads.0 < 60, "{} times in 100 s", threads.0);
    assert_eq!(window.pause(), BOUNDS.max_pause);
}

#[test]
fn a_trigger_arms_at_once() {
    let mut window = paused();
    assert_eq!(
        window.step(ms(201), counters(9000, 1, 2), &mut { ALL_KNOWN }),
        Some(Action::Arm)
    );
    assert_eq!(window.next_step(ms(201)), ARMED_STEP);
    // A hot launcher beside it does not end the window early.
    assert_eq!(
        window.step(ms(290), counters(5000, 1, 2), &mut { ALL_KNOWN }),
        None
    );
}

/// Steps every 10 ms from `from` to `to`, as `beside` sees fit to change the counters; returns for
/// how long the probes were armed.
fn armed_time(
    window: &mut Window,
    from: u64,
    to: u64,
    threads: Fixed,
    mut beside: impl FnMut(&mut Counters, Duration, bool),
) -> Duration {
    let mut counters = counters(9000, 1, 1);
    let mut armed = ms(0);
    for now in (from..to).step_by(10).map(ms) {
        armed += if window.is_armed() { ms(10) } else { ms(0) };
        beside(&mut counters, now, window.is_armed());
        window.step(now, counters, &mut { threads });
    }
    armed
}

/// A launcher that is known and probed like any other.
fn hot(counters: &mut Counters, is_armed: bool) {
    counters.hits += if is_armed { 1500 } else { 0 };
}

#[test]
fn triggers_in_vain_are_answered_less_and_less() {
    let mut window = paused();
    let mut storm = |from, to| {
        armed_time(
            &mut window,
            from,
            to,
            ALL_KNOWN,
            |counters, now, is_armed| {
                hot(counters, is_armed);
                counters.triggers = 1 + now.as_millis() as u64 / 50;
            },
        )
    };
    let first = storm(200, 10_200);
    assert!(first >= ms(1900) && first <= ms(2200), "{first:?}");
    // 0.2 %, and a sweep for good measure.
    let later = storm(10_200, 110_200);
    assert!(later >= ms(150) && later <= ms(400), "{later:?}");
}

#[test]
fn an_order_is_answered_at_once_after_a_storm_of_triggers_in_vain() {
    let mut window = paused();
    let mut last = counters(9000, 1, 1);
    let storm = |counters: &mut Counters, now: Duration, is_armed| {
        hot(counters, is_armed);
        counters.triggers = 1 + now.as_millis() as u64 / 50;
        last = *counters;
    };
    armed_time(&mut window, 200, 10_200, ALL_KNOWN, storm);
    assert!(!window.is_armed());
    let mut step = |at, triggers, orders| {
        last.hits += 1500;
        let counters = Counters {
            triggers: last.triggers + triggers,
            orders,
            ..last
        };
        window.step(ms(at), counters, &mut { ALL_KNOWN })
    };
    assert_eq!(step(10_200, 1, 0), None, "the budget is spent");
    assert_eq!(step(10_210, 1, 1), Some(Action::Arm));
    // Further triggers are in vain too, a further order is not.
    assert_eq!(step(10_300, 2, 1), None);
    assert_eq!(step(10_305, 2, 2), None);
    assert_eq!(step(10_404, 3, 2), None);
    assert_eq!(step(10_405, 3, 2), Some(Action::Disarm));
}

#[test]
fn triggers_that_announce_launchers_are_answered_for_ever() {
    let mut window = paused();
    let mut seen = 0;
    for start in 1..500 {
        let at = ms(200 + start * 1000);
        // The hot launcher runs into the probes, the new one is found at once.
        let hits = 9000 + start * 5000;
        let trigger = counters(hits, start, 1 + start);
        if window.step(at, trigger, &mut { ALL_KNOWN }) == Some(Action::Arm) {
            seen += 1;
        }
        window.step(
            at + ms(10),
            counters(hits + 700, 1 + start, 1 + start),
            &mut { ALL_KNOWN },
        );
        window.step(
            at + ms(50),
            counters(hits + 5000, 1 + start, 1 + start),
            &mut { ALL_KNOWN },
        );
        assert!(!window.is_armed());
    }
    assert_eq!(seen, 499);
}

#[test]
fn a_call_that_cannot_be_paid_is_answered_when_it_can() {
    let mut window = paused();
    while window.budget.take(ms(100), ms(1)).is_some() {}
    assert_eq!(
        window.step(ms(210), counters(9000, 1, 2), &mut { ALL_KNOWN }),
        None
    );
    let armed_at = (220..10_000).step_by(10).find(|&now| {
        window.step(ms(now), counters(9000, 1, 2), &mut { ALL_KNOWN }) == Some(Action::Arm)
    });
    // A sweep's worth: 10 ms in 5 s.
    assert!(
        armed_at.is_some_and(|at| (5_000..=5_300).contains(&at)),
        "{armed_at:?}"
    );
}

#[test]
fn short_pauses_are_kept() {
    let keen = Bounds {
        max_pause: ms(50),
        ..BOUNDS
    };
    let mut window = Window::new(ms(0), keen);
    assert_eq!(window.pause(), ms(50));
    let found = counters(9000, 1, 1);
    window.step(ms(10), found, &mut { STRANGERS });
    let mut disarmed_at = None;
    let mut hits = 9000;
    for now in (20..5_000).step_by(10) {
        hits += if window.is_armed() { 1500 } else { 0 };
        match window.step(ms(now), counters(hits, 1, 1), &mut { STRANGERS }) {
            Some(Action::Disarm) => disarmed_at = Some(now),
            Some(Action::Arm) => assert_eq!(now - disarmed_at.unwrap(), 50, "at {now} ms"),
            None => {}
        }
    }
    // A pause that is under way is cut short too.
    let mut window = paused();
    window.set_bounds(ms(210), keen);
    assert_eq!(
        window.step(ms(260), found, &mut { STRANGERS }),
        Some(Action::Arm)
    );
}

#[test]
fn sweeps_are_long_where_that_is_cheap() {
    let sweep = |hits_each_step: u64| {
        let mut window = paused();
        let mut hits = 9000;
        let mut armed = ms(0);
        for now in (400..600).step_by(10) {
            armed += if window.is_armed() { ms(10) } else { ms(0) };
            hits += if window.is_armed() { hits_each_step } else { 0 };
            window.step(ms(now), counters(hits, 1, 1), &mut { STRANGERS });
        }
        armed
    };
    assert_eq!(sweep(1500), ms(10), "beside a hot launcher");
    assert_eq!(
        sweep(1),
        ms(190),
        "as long as the pause, and that is longer than this test"
    );
    assert_eq!(sweep(60), ms(40), "it has become dear");
}

#[test]
fn a_loop_that_launches_every_30_ms_is_met_by_every_sweep() {
    let mut window = paused();
    let mut sweeps = Vec::new();
    armed_time(
        &mut window,
        200,
        60_000,
        STRANGERS,
        |counters, now, is_armed| {
            if is_armed && sweeps.last().is_none_or(|&(_, ended)| ended) {
                sweeps.push((0, false));
            }
            match sweeps.last_mut() {
                Some((met, _)) if is_armed && now.as_millis() % 30 == 0 => {
                    *met += 1;
                    counters.hits += 1;
                }
                Some((_, ended)) if !is_armed => *ended = true,
                _ => {}
            }
        },
    );
    assert!(
        sweeps.len() > 10 && sweeps.iter().all(|&(met, _)| met > 0),
        "{sweeps:?}"
    );
}

/// Found late, a stage of a pipeline is background beside launchers, launches ever more rarely and is found ever later.
#[test]
fn a_starved_stage_of_a_pipeline_is_met_within_seconds() {
    let found_after = |launches_in_10_ms: u64| {
        let mut window = paused();
        let mut hits = 9000;
        for now in (205..60_000).step_by(5) {
            let is_launching = now % 700 < 8;
            if window.is_armed() && is_launching {
                return Some(now);
            }
            hits += u64::from(window.is_armed()) * launches_in_10_ms / 2;
            window.step(ms(now), counters(hits, 1, 1), &mut { STRANGERS });
        }
        None
    };
    let slow = found_after(18);
    assert!(slow.is_some_and(|at| at < 5000), "{slow:?}");
}

/// Threads that launch for the first time, one after the other, beside a hot launcher.
#[test]
fn launchers_that_come_all_the_time_do_not_keep_others_probed() {
    let mut window = paused();
    let (mut hits, mut finds, mut in_the_last_minute) = (9000, 1, 0);
    for now in (210..120_000).step_by(10) {
        if window.is_armed() {
            hits += 500;
            finds += u64::from(now % 50 == 0);
            in_the_last_minute += if now > 60_000 { 500 } else { 0 };
        }
        window.step(ms(now), counters(hits, finds, 1), &mut { STRANGERS });
    }
    assert!(finds > 50, "{finds}");
    // In sweeps and in the 30 ms after each find, of 50,000 a second.
    assert!(in_the_last_minute < 60 * 50_000 / 4, "{in_the_last_minute}");
}

#[test]
fn a_launcher_that_is_found_with_its_trigger_is_followed_by_others_as_well() {
    let mut window = Window::new(ms(0), BOUNDS);
    let mut step =
        |at, hits, triggers| window.step(ms(at), counters(hits, 1, triggers), &mut { ALL_KNOWN });
    assert_eq!(step(1000, 1, 1), None);
    assert_eq!(step(1500, 100, 1), None);
    assert_eq!(step(2900, 300, 1), None);
    assert_eq!(step(3000, 310, 1), Some(Action::Disarm));
}
