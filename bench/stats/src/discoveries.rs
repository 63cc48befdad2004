// SPDX-License-Identifier: GPL-2.0-only
//! Which of many comparisons show something, so that few of those that do are wrong.

/// Whether each of `p_values` is a discovery: of all discoveries a share of `rate` at most is expected to be false,
/// and where there is nothing to discover the chance of any at all is `rate`. Benjamini and Hochberg, "Controlling
/// the False Discovery Rate", Journal of the Royal Statistical Society B 57 (1995); it holds for comparisons that
/// depend on each other positively, as those with one subject do (Benjamini and Yekutieli, Annals of Statistics 29,
/// 2001).
pub fn discoveries(p_values: &[f64], rate: f64) -> Vec<bool> {
    let mut sorted = p_values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let limit = sorted
        .iter()
        .enumerate()
        .rev()
        .find(|(at, p)| **p <= rate * (*at as f64 + 1.0) / count)
        .map(|(_, p)| *p);
    let shown = |p: &f64| limit.is_some_and(|limit| *p <= limit);
    p_values.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper, its section 3.2: of fifteen, four are discoveries at 5 %; Bonferroni finds three.
    #[test]
    fn the_example_of_the_paper() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let found = discoveries(&p, 0.05);
        assert_eq!(found.iter().filter(|found| **found).count(), 4);
        assert_eq!(found[..4], [true; 4]);
        let bonferroni = p.iter().filter(|p| **p <= 0.05 / 15.0).count();
        assert_eq!(bonferroni, 3);
    }

    #[test]
    fn a_step_up_takes_those_below_it_along() {
        // 0.04 is above 0.05 / 2, but with 0.045 both are below 0.05.
        assert_eq!(discoveries(&[0.045, 0.04], 0.05), [true, true]);
        assert_eq!(discoveries(&[0.06, 0.04], 0.05), [false, false]);
        assert_eq!(discoveries(&[], 0.05), Vec::<bool>::new());
    }
}
