// SPDX-License-Identifier: GPL-2.0-only
//! Many studies of one thing, pooled: random effects.

use crate::estimate::student_quantile;

/// What studies say together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pooled {
    pub mean: f64,
    pub error: f64,
    /// Of `error`: studies less one.
    pub freedom: f64,
    /// Standard deviation of the true effect between studies.
    pub tau: f64,
}

impl Pooled {
    /// The smallest effect that would have been found four times in five, two-sided at 5 %.
    pub fn detectable(&self) -> Option<f64> {
        let [found, power] = [0.975, 0.8].map(|level| student_quantile(level, self.freedom));
        Some((found? + power?) * self.error)
    }
}

/// Effects and the squares of their standard errors, a pair a study. The spread between studies is DerSimonian and
/// Laird's ("Meta-analysis in clinical trials", Controlled Clinical Trials 7, 1986); the error of the mean is Knapp
/// and Hartung's ("Improved tests for a random effects meta-regression", Statistics in Medicine 22, 2003), never below
/// what the weights say. `None`: fewer than two studies, or an error that is none.
pub fn random_effects(studies: &[(f64, f64)]) -> Option<Pooled> {
    let freedom = studies.len() as f64 - 1.0;
    let is_known = |(_, variance): &(f64, f64)| *variance > 0.0 && variance.is_finite();
    if freedom < 1.0 || !studies.iter().all(is_known) {
        return None;
    }
    let fixed = Weighted::of(studies, 0.0);
    let squares: f64 = fixed.weights.iter().map(|weight| weight.powi(2)).sum();
    let between = (fixed.q - freedom) / (fixed.sum - squares / fixed.sum);
    let tau_squared = between.max(0.0);
    let random = Weighted::of(studies, tau_squared);
    Some(Pooled {
        mean: random.mean,
        error: ((random.q / freedom).max(1.0) / random.sum).sqrt(),
        freedom,
        tau: tau_squared.sqrt(),
    })
}

struct Weighted {
    weights: Vec<f64>,
    sum: f64,
    mean: f64,
    /// Cochran's Q.
    q: f64,
}

impl Weighted {
    fn of(studies: &[(f64, f64)], between: f64) -> Self {
        let weight = |(_, variance): &(f64, f64)| 1.0 / (variance + between);
        let weights: Vec<f64> = studies.iter().map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let pairs = || weights.iter().zip(studies);
        let mean = pairs()
            .map(|(weight, (effect, _))| weight * effect)
            .sum::<f64>()
            / sum;
        let q = pairs()
            .map(|(weight, (effect, _))| weight * (effect - mean).powi(2))
            .sum();
        Self {
            weights,
            sum,
            mean,
            q,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thirteen trials of the BCG vaccine against tuberculosis (Colditz and others, JAMA 271, 1994), as many books on
    /// meta-analysis have them: vaccinated with and without tuberculosis, others with and without.
    const BCG: [[f64; 4]; 13] = [
        [4.0, 119.0, 11.0, 128.0],
        [6.0, 300.0, 29.0, 274.0],
        [3.0, 228.0, 11.0, 209.0],
        [62.0, 13536.0, 248.0, 12619.0],
        [33.0, 5036.0, 47.0, 5761.0],
        [180.0, 1361.0, 372.0, 1079.0],
        [8.0, 2537.0, 10.0, 619.0],
        [505.0, 87886.0, 499.0, 87892.0],
        [29.0, 7470.0, 45.0, 7232.0],
        [17.0, 1699.0, 65.0, 1600.0],
        [186.0, 50448.0, 141.0, 27197.0],
        [5.0, 2493.0, 3.0, 2338.0],
        [27.0, 16886.0, 29.0, 17825.0],
    ];

    #[test]
    fn a_published_example() {
        let studies = BCG.map(|[ill, well, others_ill, others_well]| {
            let (all, others) = (ill + well, others_ill + others_well);
            let effect = (ill / all / (others_ill / others)).ln();
            let variance = 1.0 / ill - 1.0 / all + 1.0 / others_ill - 1.0 / others;
            (effect, variance)
        });
        let near = |got: f64, published: f64| assert!((got - published).abs() < 5e-5, "{got}");
        near(Weighted::of(&studies, 0.0).q, 152.2330);
        let pooled = random_effects(&studies).unwrap();
        near(pooled.tau.powi(2), 0.3088);
        near(pooled.mean, -0.7141);
        near(
            1.0 / Weighted::of(&studies, pooled.tau.powi(2)).sum.sqrt(),
            0.1787,
        );
        assert_eq!(pooled.freedom, 12.0);
    }

    /// Effects 0 and 1 with errors of 1: Q = 0.5 is below its freedom of 1, so there is no spread between them.
    #[test]
    fn studies_that_agree_have_the_error_of_their_weights() {
        let pooled = random_effects(&[(0.0, 1.0), (1.0, 1.0)]).unwrap();
        assert_eq!((pooled.mean, pooled.tau), (0.5, 0.0));
        assert!((pooled.error - 0.5_f64.sqrt()).abs() < 1e-12);
        // t(0.975; 1) = 12.7062, t(0.8; 1) = 1.37638.
        assert!((pooled.detectable().unwrap() - 14.0826 * 0.5_f64.sqrt()).abs() < 1e-3);
        assert_eq!(random_effects(&[(0.0, 1.0)]), None);
        assert_eq!(random_effects(&[(0.0, 1.0), (0.0, 0.0)]), None);
        // Where each has one round, nobody knows.
        assert_eq!(random_effects(&[(0.0, f64::NAN), (1.0, f64::NAN)]), None);
    }

    /// Effects 0 and 4 with errors of 1: Q = 8, tau squared = 7 / (2 - 1); weights of 1 / 8, and Q over its freedom is 1.
    #[test]
    fn studies_that_differ_have_the_spread_between_them() {
        let pooled = random_effects(&[(0.0, 1.0), (4.0, 1.0)]).unwrap();
        assert!((pooled.tau.powi(2) - 7.0).abs() < 1e-12);
        assert!((pooled.error - 2.0).abs() < 1e-12);
    }
}
