// SPDX-License-Identifier: GPL-2.0-only
//! A figure and how well it is known: Student's intervals over boots.
//!
//! Cells of one boot are more alike than those of two, so a boot counts once, however many rounds it has: the
//! figure is the mean over boots of the means of their rounds, and its interval is Student's over the boots' means,
//! with as many degrees of freedom as there are boots, less one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::percentile::percentile;

/// What an interval covers of all that could be measured.
const LEVEL: f64 = 0.95;

/// What a mean is taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Logarithms: rates, latencies and ratios, which differ by factors. The mean is the geometric one.
    Log,
    /// The values: shares of time, counts that may be none, differences.
    Plain,
}

impl Scale {
    fn to(self, value: f64) -> f64 {
        match self {
            Self::Log => value.ln(),
            Self::Plain => value,
        }
    }

    fn back(self, value: f64) -> f64 {
        match self {
            Self::Log => value.exp(),
            Self::Plain => value,
        }
    }
}

/// A figure and its 95 % interval, Student's over boots; no interval of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
    /// Absent where it was read from a file.
    #[serde(skip)]
    spread: Option<Spread>,
}

/// What Student's t needs to judge a figure, on its scale.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    scale: Scale,
    mean: f64,
    error: f64,
    freedom: f64,
}

/// What a ratio says of two things.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Difference {
    More,
    Less,
    /// They are equivalent: the interval lies within this margin of 1.
    SameWithin(f64),
    /// None is shown, and none up to this share is excluded.
    UpTo(f64),
    /// There is no interval.
    Unknown,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::More => write!(f, "more"),
            Self::Less => write!(f, "less"),
            Self::SameWithin(margin) => write!(f, "the same within {:.0} %", margin * 100.0),
            // That nothing was found does not say that nothing is there.
            Self::UpTo(share) => write!(
                f,
                "no difference shown, one of up to {:.0} % could not be seen",
                (share * 100.0).ceil()
            ),
            Self::Unknown => write!(f, "too few boots for an interval"),
        }
    }
}

impl Estimate {
    /// A figure from elsewhere.
    pub fn new(value: f64, interval: Option<[f64; 2]>) -> Self {
        Self {
            value,
            interval,
            spread: None,
        }
    }

    /// From a mean on `scale`, its standard error and the degrees of freedom of that; `None`: no finite value.
    pub fn student(scale: Scale, mean: f64, error: f64, freedom: f64) -> Option<Self> {
        let value = scale.back(mean);
        if !value.is_finite() {
            return None;
        }
        let Some(t) = student_quantile(f64::midpoint(1.0, LEVEL), freedom) else {
            return Some(Self::new(value, None));
        };
        let [low, high] = [-t, t].map(|t| scale.back(mean + t * error));
        let finite = low.is_finite() && high.is_finite();
        Some(Self {
            value,
            interval: finite.then_some([low, high]),
            spread: finite.then_some(Spread {
                scale,
                mean,
                error,
                freedom,
            }),
        })
    }

    fn of_boots(scale: Scale, means: &[f64]) -> Option<Self> {
        let count = means.len() as f64;
        let mean = mean(means)?;
        let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        Self::student(scale, mean, error, count - 1.0)
    }

    pub fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            interval: self
                .interval
                .map(|[low, high]| [low * factor, high * factor]),
            spread: self.spread.map(|spread| match spread.scale {
                Scale::Log => Spread {
                    mean: spread.mean + factor.ln(),
                    ..spread
                },
                Scale::Plain => Spread {
                    mean: spread.mean * factor,
                    error: spread.error * factor.abs(),
                    ..spread
                },
            }),
        }
    }

    /// Within what it can be, such as 0 to 100 %.
    pub fn within(self, least: f64, most: f64) -> Self {
        Self {
            interval: self
                .interval
                .map(|interval| interval.map(|end| end.clamp(least, most))),
            ..self
        }
    }

    /// Whether the interval lies wholly on one side of `point`.
    pub fn excludes(&self, point: f64) -> bool {
        self.interval
            .is_some_and(|[low, high]| low > point || high < point)
    }

    /// Student's interval at another level; `None` where it was read from a file.
    pub fn interval_at(&self, level: f64) -> Option<[f64; 2]> {
        let Spread {
            scale,
            mean,
            error,
            freedom,
        } = self.spread?;
        let t = student_quantile(f64::midpoint(1.0, level), freedom)?;
        Some([-t, t].map(|t| scale.back(mean + t * error)))
    }

    /// The chance to find so much more than `point`, or still more, where there is none (one-sided p-value).
    pub fn p_above(&self, point: f64) -> Option<f64> {
        self.spread?.p(point, 1.0)
    }

    /// The same of so much less.
    pub fn p_below(&self, point: f64) -> Option<f64> {
        self.spread?.p(point, -1.0)
    }

    /// What the ratio says of the two: a difference, however small, or that they are the same within `margin`, or
    /// neither. That they are the same takes two one-sided tests (Schuirmann, Journal of Pharmacokinetics and
    /// Biopharmaceutics 15, 1987), at 2.5 % each: the 95 % interval lies within the margin.
    pub fn difference(&self, margin: f64) -> Difference {
        let Some([low, high]) = self.interval else {
            return Difference::Unknown;
        };
        if low > 1.0 {
            Difference::More
        } else if high < 1.0 {
            Difference::Less
        } else if low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin {
            Difference::SameWithin(margin)
        } else {
            Difference::UpTo((1.0 - low).max(high - 1.0))
        }
    }
}

impl Spread {
    fn p(self, point: f64, side: f64) -> Option<f64> {
        let above = side * (self.mean - self.scale.to(point));
        if self.error == 0.0 {
            return Some(if above > 0.0 { 0.0 } else { 1.0 });
        }
        let student = StudentsT::new(0.0, 1.0, self.freedom).ok()?;
        Some(student.sf(above / self.error))
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The quantile of Student's t; `None` below one degree of freedom.
pub fn student_quantile(level: f64, freedom: f64) -> Option<f64> {
    if freedom < 1.0 {
        return None;
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(student.inverse_cdf(level))
}

/// The means of boots on `scale`, from values by boot.
fn boot_means(values: &[(u32, f64)], scale: Scale) -> Vec<f64> {
    let mut boots: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (boot, value) in values {
        boots.entry(*boot).or_default().push(scale.to(*value));
    }
    boots.values().filter_map(|values| mean(values)).collect()
}

/// The mean over boots of values, each with its boot.
pub fn over_boots(values: &[(u32, f64)], scale: Scale) -> Option<Estimate> {
    // Relative to one of them, so that what is always the same comes out as it went in.
    let unit = match (scale, values.first()?.1) {
        (Scale::Log, first) if first > 0.0 => first,
        _ => 1.0,
    };
    let relative: Vec<(u32, f64)> = values.iter().map(|(boot, v)| (*boot, v / unit)).collect();
    Some(Estimate::of_boots(scale, &boot_means(&relative, scale))?.scaled(unit))
}

/// The ratio `above` over `below` of values that are not paired, each with its boot: Welch's.
pub fn welch(above: &[(u32, f64)], below: &[(u32, f64)]) -> Option<Estimate> {
    let sides = [above, below].map(|values| boot_means(values, Scale::Log));
    let [above, below] = sides.each_ref().map(|means| mean(means));
    let ratio = above? - below?;
    let [a, b] = sides.map(|means| {
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count - 1.0) / count, count - 1.0)
    });
    let error = a.0 + b.0;
    let freedom = if error == 0.0 {
        a.1 + b.1
    } else {
        error.powi(2) / (a.0.powi(2) / a.1 + b.0.powi(2) / b.1)
    };
    Estimate::student(Scale::Log, ratio, error.sqrt(), freedom)
}

/// A percentile: of all samples of a boot, then the geometric mean over boots.
pub fn percentile_over_boots(rounds: &[(u32, &[f64])], percent: f64) -> Option<Estimate> {
    let mut boots: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (boot, samples) in rounds {
        boots.entry(*boot).or_default().extend_from_slice(samples);
    }
    let values: Vec<(u32, f64)> = boots
        .into_iter()
        .filter_map(|(boot, mut samples)| Some((boot, percentile(&mut samples, percent)?)))
        .collect();
    over_boots(&values, Scale::Log)
}

/// The ratio of two such percentiles, paired by boot.
pub fn percentile_ratio_over_boots(
    rounds: &[(u32, &[f64], &[f64])],
    percent: f64,
) -> Option<Estimate> {
    let mut boots: BTreeMap<u32, [Vec<f64>; 2]> = BTreeMap::new();
    for (boot, above, below) in rounds {
        let samples = boots.entry(*boot).or_default();
        samples[0].extend_from_slice(above);
        samples[1].extend_from_slice(below);
    }
    let ratio = |[mut above, mut below]: [Vec<f64>; 2]| {
        let below = percentile(&mut below, percent).filter(|below| *below > 0.0)?;
        Some(percentile(&mut above, percent)? / below)
    };
    let values: Vec<(u32, f64)> = boots
        .into_iter()
        .filter_map(|(boot, samples)| Some((boot, ratio(samples)?)))
        .collect();
    over_boots(&values, Scale::Log)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(estimate: Estimate, expected: [f64; 3]) {
        let [low, high] = estimate.interval.unwrap();
        for (got, expected) in [estimate.value, low, high].into_iter().zip(expected) {
            assert!((got / expected - 1.0).abs() < 1e-6, "{estimate:?}");
        }
    }

    #[test]
    fn an_interval_by_hand() {
        // Logs -0.1, 0, 0.1: mean 0, deviation 0.1, t(0.975; 2) = 4.30265273: 0.1 x 4.30265273 / sqrt 3.
        let values: Vec<(u32, f64)> = (0..).zip([-0.1_f64, 0.0, 0.1].map(f64::exp)).collect();
        let half = 0.1 * 4.302_652_73 / 3.0_f64.sqrt();
        let estimate = over_boots(&values, Scale::Log).unwrap();
        near(estimate, [1.0, (-half).exp(), half.exp()]);
        near(
            estimate.scaled(100.0),
            [100.0, 100.0 * (-half).exp(), 100.0 * half.exp()],
        );
        let plain = [(0, 9.0), (1, 10.0), (2, 11.0)];
        let half = 4.302_652_73 / 3.0_f64.sqrt();
        let plain = over_boots(&plain, Scale::Plain).unwrap();
        near(plain, [10.0, 10.0 - half, 10.0 + half]);
        assert_eq!(plain.within(0.0, 11.0).interval.unwrap()[1], 11.0);
    }

    #[test]
    fn a_boot_counts_once_however_many_rounds_it_has() {
        let rounds = [(0, 8.0), (0, 10.0), (0, 12.0), (1, 13.0), (1, 15.0)];
        let boots = [(0, 10.0), (1, 14.0)];
        let estimate = over_boots(&rounds, Scale::Plain).unwrap();
        assert_eq!(Some(estimate), over_boots(&boots, Scale::Plain));
        // Means 10 and 14: error 2, t(0.975; 1) = 12.7062047.
        near(
            estimate,
            [12.0, 12.0 - 2.0 * 12.706_204_7, 12.0 + 2.0 * 12.706_204_7],
        );
        // Were rounds taken for boots, it would be narrower by far.
        let as_rounds: Vec<(u32, f64)> = (0..).zip(rounds.map(|(_, value)| value)).collect();
        let [low, high] = over_boots(&as_rounds, Scale::Plain)
            .unwrap()
            .interval
            .unwrap();
        assert!(high - low < 8.0);
    }

    #[test]
    fn one_boot_has_no_interval_and_what_is_not_positive_no_logarithm() {
        let one = over_boots(&[(3, 2.0), (3, 8.0)], Scale::Log).unwrap();
        assert!((one.value - 4.0).abs() < 1e-12 && one.interval.is_none());
        assert_eq!(over_boots(&[], Scale::Log), None);
        let none = over_boots(&[(0, 0.0), (1, 2.0), (2, 2.0)], Scale::Log).unwrap();
        assert_eq!((none.value, none.interval), (0.0, None));
        assert_eq!(over_boots(&[(0, -1.0), (1, 2.0)], Scale::Log), None);
    }

    #[test]
    fn a_constant_has_an_interval_without_width() {
        let estimate = over_boots(&[(0, 5.0), (1, 5.0), (2, 5.0)], Scale::Plain).unwrap();
        assert_eq!(estimate.interval, Some([5.0, 5.0]));
        assert!(estimate.excludes(4.9) && !estimate.excludes(5.0));
        assert_eq!(estimate.p_above(4.9), Some(0.0));
        assert_eq!(estimate.p_above(5.0), Some(1.0));
    }

    #[test]
    fn p_values_agree_with_the_interval() {
        let values: Vec<(u32, f64)> = (0..).zip([1.02, 1.05, 1.03, 1.08, 1.01]).collect();
        let estimate = over_boots(&values, Scale::Log).unwrap();
        let [low, high] = estimate.interval.unwrap();
        assert!((estimate.p_above(low).unwrap() - 0.025).abs() < 1e-6);
        assert!((estimate.p_below(high).unwrap() - 0.025).abs() < 1e-6);
        let percent = estimate.scaled(100.0);
        assert!((percent.p_above(low * 100.0).unwrap() - 0.025).abs() < 1e-6);
        assert_eq!(Estimate::new(1.0, Some([0.9, 1.1])).p_above(1.0), None);
    }

    #[test]
    fn the_same_is_said_only_within_a_margin() {
        let ratio = |low, high| Estimate::new(1.0, Some([low, high]));
        let within = Difference::SameWithin(0.02);
        assert_eq!(ratio(0.99, 1.01).difference(0.02), within);
        assert_eq!(ratio(0.97, 0.99).difference(0.02), Difference::Less);
        assert_eq!(ratio(1.005, 1.01).difference(0.02), Difference::More);
        let Difference::UpTo(share) = ratio(0.96, 1.03).difference(0.02) else {
            panic!("neither")
        };
        assert!((share - 0.04).abs() < 1e-12);
        let words = ratio(0.963, 1.03).difference(0.02).to_string();
        let expected = "no difference shown, one of up to 4 % could not be seen";
        assert_eq!(words, expected);
        assert_eq!(within.to_string(), "the same within 2 %");
        assert_eq!(
            Estimate::new(1.0, None).difference(0.02),
            Difference::Unknown
        );
    }

    /// By hand: logs 0.1 and 0.3 over -0.1, 0, 0.1. Errors squared 0.01 and 1/300; the freedom is that of Satterthwaite.
    #[test]
    fn what_is_not_paired_has_the_spread_of_both_sides() {
        let boots = |logs: &[f64]| -> Vec<(u32, f64)> {
            (0..).zip(logs.iter().map(|log| log.exp())).collect()
        };
        let ratio = welch(&boots(&[0.1, 0.3]), &boots(&[-0.1, 0.0, 0.1])).unwrap();
        let spread = ratio.spread.unwrap();
        let error = 0.01 + 0.01 / 3.0;
        assert!((spread.error - f64::sqrt(error)).abs() < 1e-12);
        let freedom = error * error / (1e-4 + (0.01_f64 / 3.0).powi(2) / 2.0);
        assert!((spread.freedom - freedom).abs() < 1e-9);
        assert!((ratio.value - 0.2_f64.exp()).abs() < 1e-12);
        let thin = welch(&boots(&[0.1]), &boots(&[0.0, 0.1, 0.2]));
        assert_eq!(thin.unwrap().interval, None);
    }

    #[test]
    fn percentiles_are_of_boots() {
        let (a, b) = (vec![1.0; 100], vec![4.0; 100]);
        let estimate = percentile_over_boots(&[(0, &a), (0, &a), (1, &b)], 99.0).unwrap();
        assert!((estimate.value - 2.0).abs() < 1e-12);
        let pairs = [(0, &b[..], &a[..]), (1, &b[..], &a[..])];
        let ratio = percentile_ratio_over_boots(&pairs, 99.0).unwrap();
        near(ratio, [4.0, 4.0, 4.0]);
        let nothing = percentile_ratio_over_boots(&[(0, &b, &[]), (1, &[], &a)], 99.0);
        assert_eq!(nothing, None);
    }
}
