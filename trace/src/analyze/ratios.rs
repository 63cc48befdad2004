// SPDX-License-Identifier: GPL-2.0-only
//! The ratios that the published studies of cuda_sched_trace define, as plain arithmetic, and
//! their published figures as tests.

/// Events per thousand launches: Sched/1K, Soft IRQ/1K, Hard IRQ/1K.
pub fn per_1k(events: u64, launches: u64) -> Option<f64> {
    (launches > 0).then(|| events as f64 / launches as f64 * 1000.0)
}

/// Part of a whole, percent.
pub fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole * 100.0)
}

/// How much slower than the baseline, percent, from tokens per second.
pub fn slowdown_percent(baseline: f64, scenario: f64) -> Option<f64> {
    percent(baseline - scenario, baseline)
}

/// How many times the baseline.
pub fn times(scenario: f64, baseline: f64) -> Option<f64> {
    (baseline > 0.0).then(|| scenario / baseline)
}

/// Time that affected pairs took beyond others: pairs × penalty.
pub fn impact_s(affected_pairs: u64, penalty_us: f64) -> f64 {
    affected_pairs as f64 * penalty_us / 1e6
}

/// The arithmetic of two published studies, from their inputs: "When CPU Noise Slows Down GPU
/// Inference" (qwen3.cu) and "CPU Scheduler Overhead Analysis" (llama-server).
#[cfg(test)]
mod published {
    use super::*;

    fn rounded(value: Option<f64>, digits: usize) -> String {
        format!("{:.digits$}", value.unwrap())
    }

    #[test]
    fn impact_in_a_clean_environment_is_1_2_percent() {
        // 62 pairs × 15 ms = 0.93 s of 79.5 s.
        let impact = impact_s(62, 15_000.0);
        assert_eq!(format!("{impact:.2}"), "0.93");
        assert_eq!(rounded(percent(impact, 79.5), 1), "1.2");
        // The unrounded penalty, 15.3 ms - 2 µs, gives the same.
        let impact = impact_s(62, 15_300.0 - 2.0);
        assert_eq!(rounded(percent(impact, 79.5), 1), "1.2");
        // Where it does not hold together: the same table has 7.88 ms off the CPU in all, 0.01 % of
        // the run, which is the most that an ideal scheduler could give back. The pairs are long
        // because the application paused in them, not because a switch happened in the pause: the
        // impact is 120 times the time that the thread was away.
        assert_eq!(rounded(percent(7.88e-3, 79.5), 2), "0.01");
        assert_eq!(rounded(times(impact, 7.88e-3), 0), "120");
    }

    #[test]
    fn tail_attribution_follows_from_its_counts() {
        assert_eq!(51_401 + 62, 51_464 - 1);
        assert_eq!(rounded(percent(62.0, 51_463.0), 1), "0.1");
        assert_eq!(rounded(percent(62.0, 2580.0), 1), "2.4");
        assert_eq!(rounded(percent(62.0, 515.0), 1), "12.0");
    }

    #[test]
    fn context_switch_increase_of_36_414_needs_the_unrounded_baseline() {
        // 3.6 per 1,000 of 394,664 launches is 1,437 switches; only that whole number gives both
        // published multiples.
        let baseline = per_1k(1437, 394_664);
        assert_eq!(rounded(baseline, 1), "3.6");
        let baseline = baseline.unwrap();
        assert_eq!(rounded(times(132_585.0, baseline), 0), "36414");
        assert_eq!(rounded(times(81_006.7, baseline), 0), "22248");
        assert_eq!(rounded(times(15.2, baseline), 1), "4.2");
        // Where it does not hold together: the printed inputs give another figure. And 132,585
        // switches per 1,000 launches is 46.8 million in a run whose tokens/s fell by a tenth:
        // a spin on sched_yield, not time slicing.
        assert_eq!(rounded(times(132_585.0, 3.6), 0), "36829");
        assert_eq!((132.585_f64 * 352_957.0 / 1e6).round(), 47.0);
    }

    #[test]
    fn slowdowns_follow_from_tokens_per_second() {
        for (baseline, scenario, published) in [
            (209.82, 188.93, "10.0"),
            (209.82, 208.54, "0.6"),
            (209.82, 209.74, "0.0"),
            (209.82, 146.69, "30.1"),
            (209.82, 181.62, "13.4"),
            (54.77, 49.93, "8.8"),
            (54.77, 53.23, "2.8"),
            (54.77, 54.95, "-0.3"),
            (54.77, 43.56, "20.5"),
            (54.77, 53.75, "1.9"),
            // The tracer's own overhead is the same formula.
            (209.82, 209.67, "0.1"),
            (188.93, 163.96, "13.2"),
            (146.69, 135.82, "7.4"),
        ] {
            assert_eq!(rounded(slowdown_percent(baseline, scenario), 1), published);
        }
    }

    #[test]
    fn switch_increases_of_qwen3_need_the_unrounded_baseline_too() {
        let baseline = per_1k(1295, 56_882).unwrap();
        assert_eq!(format!("{baseline:.1}"), "22.8");
        assert_eq!(rounded(times(11_932.8, baseline), 0), "524");
        assert_eq!(rounded(times(6_044.6, baseline), 1), "265.5");
        assert_eq!(rounded(times(11_932.8, 22.8), 0), "523");
        // Pinning: 96.3 % fewer switches, still 19.5 times the baseline.
        assert_eq!(rounded(slowdown_percent(11_932.8, 445.2), 1), "96.3");
        assert_eq!(rounded(times(445.2, 22.8), 1), "19.5");
        // Where it does not hold together: (53.75 - 49.93) / 49.93 is 7.65 %, published as 7.6 %.
        assert_eq!(rounded(percent(53.75 - 49.93, 49.93), 2), "7.65");
    }

    #[test]
    fn irq_share_follows_and_its_breakdown_adds_up() {
        assert_eq!(rounded(percent(1.38e-3, 4.99), 3), "0.028");
        assert_eq!(317 + 291 + 30 + 15, 653);
        assert_eq!(rounded(percent(317.0, 653.0), 0), "49");
        assert_eq!(rounded(percent(30.0, 653.0), 1), "4.6");
        // llama-server under heavy load: the vectors' counts are the 85.2 per 1,000 launches.
        let soft = 16_215 + 3_513 + 2_950 + 2_942 + 326;
        assert_eq!(rounded(per_1k(soft, 304_503), 1), "85.2");
    }

    #[test]
    fn launches_per_token_do_not_hold_together() {
        // "~950 launches per token" against 56,882 launches in 3.00 s at 54.77 tokens/s.
        let launches_per_token = 56_882.0_f64 / (3.00 * 54.77);
        assert_eq!(launches_per_token.round(), 346.0);
        // "950 launches in less than 100 µs" against a median interval of 2 µs.
        assert_eq!(950.0 * 2.0, 1900.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(per_1k(3, 0), None);
        assert_eq!(percent(1.0, 0.0), None);
        assert_eq!(slowdown_percent(0.0, 1.0), None);
        assert_eq!(times(1.0, 0.0), None);
    }
}
