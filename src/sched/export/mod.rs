// SPDX-License-Identifier: GPL-2.0-only
//! The statistics as Prometheus has them. Names, units and meanings are in docs/metrics.md, which a
//! test compares with what is exported. Pure, except for [`http`].

pub mod http;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, TextEncoder};

use crate::identify::window::Phase;

use super::stats::{ClassMetrics, CpuMetrics, Metrics};

/// What every name begins with.
const PREFIX: &str = "scx_gpuaware_";
/// Wakeups in bucket n took less than 2^(n + 10) ns.
const FIRST_BUCKET_LOG2_NS: i32 = 10;

/// A value with its labels.
type Sample<'l> = (Vec<(&'l str, String)>, f64);

/// The page that Prometheus reads: text format 0.0.4.
///
/// # Errors
/// A value that the format cannot express.
pub fn page(metrics: &Metrics) -> prometheus::Result<Vec<u8>> {
    let mut page = Vec::new();
    TextEncoder::new().encode(&families(metrics), &mut page)?;
    Ok(page)
}

/// Everything that has a value now.
fn families(metrics: &Metrics) -> Vec<MetricFamily> {
    let mut list = Families(Vec::new());
    tasks(&mut list, metrics);
    decisions(&mut list, metrics);
    cpus(&mut list, metrics);
    identification(&mut list, metrics);
    policies(&mut list, metrics);
    list.0
}

fn tasks(list: &mut Families, metrics: &Metrics) {
    let each = |value: fn(&ClassMetrics) -> f64| per_class(metrics, value);
    list.gauge(
        "tasks_runnable",
        "Tasks that run or wait for a CPU.",
        each(|class| class.runnable as f64),
    );
    list.gauge(
        "tasks_running",
        "Tasks that run.",
        each(|class| class.running as f64),
    );
    list.histogram(
        "wakeup_wait_seconds",
        "Time from wakeup to run.",
        metrics.classes.iter().map(|(name, class)| {
            let sum = seconds(class.wakeup_wait_us);
            (labels([("class", name)]), &class.wakeup_waits[..], sum)
        }),
    );
    list.gauge(
        "worst_wait_seconds",
        "Longest wait of a runnable task since the load.",
        each(|class| seconds(class.worst_wait_us)),
    );
    list.counter(
        "run_seconds_total",
        "CPU time, on preferred and on other CPUs; background on preferred ones is lent.",
        metrics.classes.iter().flat_map(|(name, class)| {
            [
                ("preferred", class.run_preferred_us),
                ("other", class.run_other_us),
            ]
            .map(|(cpus, us)| (labels([("class", name), ("cpus", cpus)]), seconds(us)))
        }),
    );
    list.counter(
        "preemptions_total",
        "Times that a task of the class took a CPU from a lower one.",
        each(|class| class.preempts as f64),
    );
    list.counter(
        "preempted_total",
        "Times that a task of the class lost its CPU to a higher one.",
        each(|class| class.preempted as f64),
    );
}

fn decisions(list: &mut Families, metrics: &Metrics) {
    let placements = [
        ("launch", "preferred", metrics.launch_to_preferred),
        ("launch", "preempting", metrics.launch_preempts),
        ("launch", "other", metrics.launch_to_other),
        ("launch", "queued", metrics.launch_queued),
        ("handoff", "direct", metrics.handoff_wakeups),
        ("handoff", "queued", metrics.handoff_queued),
        ("background", "direct", metrics.background_direct),
        ("background", "queued", metrics.background_queued),
    ];
    list.counter(
        "placements_total",
        "Tasks that became runnable, by what became of them.",
        placements
            .map(|(class, how, count)| (labels([("class", class), ("how", how)]), count as f64)),
    );
    shares_and_holds(list, metrics);
}

fn shares_and_holds(list: &mut Families, metrics: &Metrics) {
    for (name, help, value) in [
        (
            "background_turns_total",
            "Times that background got its minimum share from launchers.",
            metrics.background_turns as f64,
        ),
        (
            "background_overdue_total",
            "Background and throttled tasks that went to the head of background: they had waited too long.",
            metrics.background_overdue as f64,
        ),
        (
            "guard_throttles_total",
            "Times that a boosted task was put off: launch and handoff had used up their share.",
            metrics.guard_throttles as f64,
        ),
        (
            "cpu_max_delays_total",
            "Times that a task was put off: its cgroup had used up its cpu.max.",
            metrics.capped as f64,
        ),
        (
            "cgroups_left_out_total",
            "Cgroups whose weight and limit do not hold: too many, or nested too deep.",
            metrics.cgroups_left_out as f64,
        ),
        (
            "holds_total",
            "Times that a CPU was held idle for a launcher that sleeps, or runs on the same core.",
            metrics.holds as f64,
        ),
        (
            "holds_expired_total",
            "Holds that ended before the launcher was back.",
            metrics.holds_expired as f64,
        ),
        (
            "hold_seconds_total",
            "Time that CPUs were held idle.",
            seconds(metrics.hold_us),
        ),
        (
            "hold_waste_seconds_total",
            "Of the hold time, that in which background was seen waiting for the CPU.",
            seconds(metrics.hold_waste_us),
        ),
    ] {
        list.counter(name, help, [(Vec::new(), value)]);
    }
}

fn cpus(list: &mut Families, metrics: &Metrics) {
    let each = |value: fn(&CpuMetrics) -> f64| {
        let cpus = metrics.cpus.iter();
        cpus.map(move |(cpu, metrics)| (labels([("cpu", &cpu.to_string())]), value(metrics)))
    };
    list.gauge(
        "cpu_preferred",
        "1 if launchers prefer the CPU.",
        each(|cpu| cpu.preferred as f64),
    );
    list.gauge(
        "cpu_irq_heavy",
        "1 if interrupts take too much of the CPU.",
        each(|cpu| cpu.irq_heavy as f64),
    );
    list.gauge(
        "cpu_irq_load_ratio",
        "Smoothed part of the CPU's time in interrupts.",
        each(|cpu| cpu.irq_percent / 100.0),
    );
    list.counter(
        "cpu_irq_seconds_total",
        "Time in interrupts; a hard one within a soft one counts as hard.",
        metrics.cpus.iter().flat_map(|(cpu, metrics)| {
            let cpu = cpu.to_string();
            [("hard", metrics.irq_hard_us), ("soft", metrics.irq_soft_us)]
                .map(|(kind, us)| (labels([("cpu", &cpu), ("kind", kind)]), seconds(us)))
        }),
    );
    list.counter(
        "preferred_changes_total",
        "Changes of the preferred CPUs, by cause.",
        (metrics.preferred_changes.iter())
            .map(|(cause, count)| (labels([("cause", cause)]), *count as f64)),
    );
}

fn identification(list: &mut Families, metrics: &Metrics) {
    list.gauge(
        "marks",
        "Tasks that have a class, by who said so; counted every 30 seconds.",
        metrics.marks.iter().map(|mark| {
            let labels = labels([("class", &mark.class), ("source", &mark.source)]);
            (labels, mark.tasks as f64)
        }),
    );
    list.one_gauge(
        "probes_armed",
        "1 while the launch probes are armed.",
        metrics.probes_armed as f64,
    );
    list.gauge(
        "probe_state",
        "1 for what the launch probes do.",
        Phase::ALL.map(|phase| {
            let is_now = metrics.probe_state == phase.name();
            (
                labels([("state", phase.name())]),
                f64::from(u8::from(is_now)),
            )
        }),
    );
    list.one_gauge(
        "probe_pause_seconds",
        "How long the launch probes are taken away the next time.",
        seconds(metrics.probe_pause_us),
    );
    list.one_gauge(
        "probed_libraries",
        "libcuda, libamdhip64 and libcudart files that are probed.",
        metrics.libraries as f64,
    );
    for (name, help, value) in [
        (
            "probe_windows_total",
            "Times that the launch probes were armed.",
            metrics.probe_windows,
        ),
        (
            "probe_hits_total",
            "Launches that were probed.",
            metrics.probe_hits,
        ),
        (
            "launchers_found_total",
            "Launching threads that probes have found.",
            metrics.launchers_found,
        ),
        (
            "sightings_refused_total",
            "Sightings that guard.trust_uids or guard.trust_devices did not let count.",
            metrics.sightings_refused,
        ),
    ] {
        list.counter(name, help, [(Vec::new(), value as f64)]);
    }
}

fn policies(list: &mut Families, metrics: &Metrics) {
    list.one_gauge(
        "policy_generation",
        "Policies that have been in force since the start.",
        metrics.policy_generation as f64,
    );
    list.counter(
        "policy_refused_total",
        "Times that a policy was refused while an older one stayed in force.",
        [(Vec::new(), metrics.policy_refused as f64)],
    );
    list.one_gauge(
        "policy_error",
        "1 if the policy that was read last was refused.",
        f64::from(u8::from(!metrics.policy_error.is_empty())),
    );
}

fn per_class(metrics: &Metrics, value: fn(&ClassMetrics) -> f64) -> Vec<Sample<'static>> {
    let classes = metrics.classes.iter();
    classes
        .map(|(name, class)| (labels([("class", name)]), value(class)))
        .collect()
}

fn labels<'l, const N: usize>(labels: [(&'l str, &str); N]) -> Vec<(&'l str, String)> {
    labels.map(|(name, value)| (name, value.to_owned())).into()
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The families so far.
struct Families(Vec<MetricFamily>);

impl Families {
    fn one_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, [(Vec::new(), value)]);
    }

    fn gauge<'l>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample<'l>>) {
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = with_labels(labels);
            metric.set_gauge(gauge);
            metric
        });
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    fn counter<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'l>>,
    ) {
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut counter = Counter::default();
            counter.set_value(value);
            let mut metric = with_labels(labels);
            metric.set_counter(counter);
            metric
        });
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    /// Samples: labels, counts by bucket, the sum in seconds.
    fn histogram<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'l str, String)>, &'l [u64], f64)>,
    ) {
        let metrics = samples.into_iter().map(|(labels, counts, sum)| {
            let mut metric = with_labels(labels);
            metric.set_histogram(histogram(counts, sum));
            metric
        });
        self.add(name, help, MetricType::HISTOGRAM, metrics.collect());
    }

    /// The format has no families without values.
    fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("{PREFIX}{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }
}

fn with_labels(labels: Vec<(&str, String)>) -> Metric {
    let pairs = labels.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    });
    let mut metric = Metric::default();
    metric.set_label(pairs.collect());
    metric
}

fn histogram(counts: &[u64], sum: f64) -> Histogram {
    // The last bucket has no upper bound: the encoder adds it.
    let bounded = counts.split_last().map_or(counts, |(_, bounded)| bounded);
    let mut cumulative = 0;
    let buckets = bounded
        .iter()
        .zip(FIRST_BUCKET_LOG2_NS..)
        .map(|(count, log2)| {
            cumulative += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(f64::from(log2).exp2() / 1e9);
            bucket.set_cumulative_count(cumulative);
            bucket
        });
    let buckets = buckets.collect();
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(sum);
    histogram
}

#[cfg(test)]
pub mod tests;
