// SPDX-License-Identifier: GPL-2.0-only
//! What is counted, in all and in slices of time. Slices are what intervals are drawn from.

use serde::Serialize;

use super::event::{Api, IrqKind, OffReason};

/// Slices kept at most. When there are more, two become one.
const MAX_SLICES: usize = 128;
const FIRST_WIDTH_NS: u64 = 1_000_000;

/// Where time of a launching thread went that it did not compute in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Somebody else had its CPU while it could go on.
    Preempted,
    /// It had been woken and waited for a CPU.
    Waiting,
    /// It had called sched_yield and waited for its CPU.
    Yielded,
    /// A hard interrupt.
    HardIrq,
    /// A soft interrupt.
    SoftIrq,
    /// The timer, a reschedule, a function call.
    VectorIrq,
    /// It slept.
    Asleep,
    /// It was off the CPU; the trace does not say why.
    Unknown,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Preempted,
        Self::Waiting,
        Self::Yielded,
        Self::HardIrq,
        Self::SoftIrq,
        Self::VectorIrq,
        Self::Asleep,
        Self::Unknown,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Waiting => "woken, waiting for a CPU",
            Self::Yielded => "yielded",
            Self::HardIrq => "hard IRQ",
            Self::SoftIrq => "soft IRQ",
            Self::VectorIrq => "timer and other vectors",
            Self::Asleep => "asleep",
            Self::Unknown => "off the CPU, cause unknown",
        }
    }

    /// Of an interrupt.
    pub fn of_irq(kind: IrqKind) -> Self {
        match kind {
            IrqKind::Hard => Self::HardIrq,
            IrqKind::Soft => Self::SoftIrq,
            IrqKind::Vector => Self::VectorIrq,
        }
    }

    /// Of time that is over, before the thread could run again.
    pub fn of_reason(why: OffReason) -> Self {
        match why {
            OffReason::Preempted => Self::Preempted,
            OffReason::Yielded => Self::Yielded,
            OffReason::Blocked => Self::Asleep,
            OffReason::Unknown => Self::Unknown,
        }
    }
}

/// Nanoseconds, or times, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByCause([u64; Cause::ALL.len()]);

impl ByCause {
    /// Of one cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Adds to one cause.
    pub fn add(&mut self, cause: Cause, amount: u64) {
        self.0[cause as usize] += amount;
    }

    /// Of several causes.
    pub fn sum(&self, causes: &[Cause]) -> u64 {
        causes.iter().map(|&cause| self.of(cause)).sum()
    }

    fn merge(&mut self, other: &Self) {
        for cause in Cause::ALL {
            self.add(cause, other.of(cause));
        }
    }
}

/// Counts of some stretch of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Its length.
    pub duration_ns: u64,
    /// Launch rows, by interface.
    pub launch_rows: [u64; 3],
    /// Driver rows of launches that had a runtime row just before.
    pub seen_twice: u64,
    /// Scheduler rows: an off and an on are two.
    pub switches: u64,
    /// Times a thread left its CPU, by `OffReason`.
    pub offs: [u64; 4],
    /// Interrupts that began, by kind.
    pub irqs: [u64; 3],
    /// Time of interrupts as the trace says, by kind. What is nested counts twice.
    pub irq_ns: [u64; 3],
    /// Time lost, by cause; interrupts without what is nested in them.
    pub lost_ns: ByCause,
    /// Times it was lost, by cause.
    pub lost_times: ByCause,
}

impl Tally {
    /// Launch rows of every interface: what the studies call launches.
    pub fn launches(&self) -> u64 {
        self.launch_rows.iter().sum()
    }

    /// Launches, each once.
    pub fn unique_launches(&self) -> u64 {
        self.launches() - self.seen_twice
    }

    /// Rows of one interface.
    pub fn launches_by(&self, api: Api) -> u64 {
        self.launch_rows[api as usize]
    }

    /// Time of hard and soft interrupts as the trace says.
    pub fn handler_ns(&self) -> u64 {
        self.irq_ns[IrqKind::Hard as usize] + self.irq_ns[IrqKind::Soft as usize]
    }

    /// Times a thread left its CPU.
    pub fn all_offs(&self) -> u64 {
        self.offs.iter().sum()
    }

    /// Adds what `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.duration_ns += other.duration_ns;
        self.seen_twice += other.seen_twice;
        self.switches += other.switches;
        for (mine, theirs) in [
            (&mut self.launch_rows[..], &other.launch_rows[..]),
            (&mut self.offs[..], &other.offs[..]),
            (&mut self.irqs[..], &other.irqs[..]),
            (&mut self.irq_ns[..], &other.irq_ns[..]),
        ] {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        }
        self.lost_ns.merge(&other.lost_ns);
        self.lost_times.merge(&other.lost_times);
    }
}

/// Two tallies of the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Of all the time.
    pub all: Tally,
    /// Of the windows in which launches were recorded: the set that ratios per launch are made of.
    pub windows: Tally,
}

impl Tallies {
    /// Adds what `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        self.windows.merge(&other.windows);
    }
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Nanoseconds since the beginning.
    pub start_ns: u64,
    /// What was counted in it.
    pub tallies: Tallies,
}

/// Tallies of equal stretches of time, one after the other.
#[derive(Debug, Clone)]
pub struct Slices {
    width_ns: u64,
    slices: Vec<Tallies>,
}

impl Default for Slices {
    fn default() -> Self {
        Self {
            width_ns: FIRST_WIDTH_NS,
            slices: Vec::new(),
        }
    }
}

impl Slices {
    /// The slice of a moment, nanoseconds since the beginning.
    pub fn at(&mut self, since_ns: u64) -> &mut Tallies {
        while since_ns / self.width_ns >= MAX_SLICES as u64 {
            self.halve();
        }
        let at = (since_ns / self.width_ns) as usize;
        if self.slices.len() <= at {
            self.slices.resize(at + 1, Tallies::default());
        }
        &mut self.slices[at]
    }

    fn halve(&mut self) {
        self.slices = self
            .slices
            .chunks(2)
            .map(|two| {
                let mut sum = two[0];
                two[1..].iter().for_each(|slice| sum.merge(slice));
                sum
            })
            .collect();
        self.width_ns *= 2;
    }

    /// Spreads a stretch of the sampling windows over the slices that it touches.
    pub fn add_window(&mut self, from_ns: u64, to_ns: u64) {
        // Makes the last slice first: that may widen all of them.
        self.at(to_ns);
        let mut from_ns = from_ns;
        while from_ns < to_ns {
            let end = (from_ns / self.width_ns + 1) * self.width_ns;
            let part = end.min(to_ns) - from_ns;
            self.at(from_ns).windows.duration_ns += part;
            from_ns += part;
        }
    }

    /// All slices from `from_ns`, when counting began, to `end_ns`, their lengths set.
    pub fn finish(mut self, from_ns: u64, end_ns: u64) -> Vec<Slice> {
        self.at(end_ns);
        let mut slices: Vec<Slice> = Vec::with_capacity(self.slices.len());
        for (at, mut tallies) in self.slices.into_iter().enumerate() {
            let start_ns = at as u64 * self.width_ns;
            let stop_ns = (start_ns + self.width_ns).min(end_ns);
            if start_ns + self.width_ns <= from_ns {
                continue;
            }
            let start_ns = start_ns.max(from_ns);
            tallies.all.duration_ns = stop_ns.saturating_sub(start_ns);
            match slices.last_mut() {
                // What happened at the very end.
                Some(last) if tallies.all.duration_ns == 0 => last.tallies.merge(&tallies),
                _ => slices.push(Slice { start_ns, tallies }),
            }
        }
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_apart_by_their_place() {
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
        }
    }

    #[test]
    fn slices_stay_few_and_lose_nothing() {
        let mut slices = Slices::default();
        for millisecond in 0..10_000 {
            slices.at(millisecond * 1_000_000).all.switches += 1;
        }
        slices.add_window(500_000_000, 1_500_000_000);
        let slices = slices.finish(0, 10_000_000_000);
        assert_eq!(slices[1].start_ns, 128_000_000);
        assert_eq!(slices.len(), 79);
        let mut sum = Tallies::default();
        slices.iter().for_each(|slice| sum.merge(&slice.tallies));
        assert_eq!(sum.all.switches, 10_000);
        assert_eq!(sum.all.duration_ns, 10_000_000_000);
        assert_eq!(sum.windows.duration_ns, 1_000_000_000);
    }

    #[test]
    fn slices_before_counting_began_are_left_out() {
        let mut slices = Slices::default();
        slices.at(3_500_000).all.switches += 1;
        slices.at(5_000_000).all.switches += 1;
        let slices = slices.finish(3_200_000, 5_000_000);
        let spans: Vec<_> = slices
            .iter()
            .map(|slice| (slice.start_ns, slice.tallies.all.duration_ns))
            .collect();
        assert_eq!(spans, [(3_200_000, 800_000), (4_000_000, 1_000_000)]);
        // The last switch is at the very end.
        assert_eq!(slices[1].tallies.all.switches, 1);
    }
}
