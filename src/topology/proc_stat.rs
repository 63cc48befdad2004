// SPDX-License-Identifier: GPL-2.0-only
//! Interrupt time from the text of `/proc/stat`, for programs that have nothing better. Pure.
//!
//! Kernels without `CONFIG_IRQ_TIME_ACCOUNTING` charge a whole tick to what it hits, so a short
//! sample is coarse there, and a storm that runs in step with the tick is missed.

use super::irq_load::IrqTime;

/// USER_HZ, the unit of `/proc/stat`: 100 on every architecture that sched_ext runs on.
const NS_PER_TICK: u64 = 10_000_000;

/// Hard and soft interrupt time of each online CPU since boot.
pub fn irq_times(text: &str) -> Vec<(u32, IrqTime)> {
    text.lines().filter_map(irq_time).collect()
}

fn irq_time(line: &str) -> Option<(u32, IrqTime)> {
    let mut fields = line.split_whitespace();
    let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
    // user nice system idle iowait irq softirq
    let mut ticks = fields.skip(5).map(|field| field.parse::<u64>().ok());
    let time = IrqTime {
        hard_ns: ticks.next()??.checked_mul(NS_PER_TICK)?,
        soft_ns: ticks.next()??.checked_mul(NS_PER_TICK)?,
    };
    Some((cpu, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_irq_and_softirq_of_each_cpu() {
        let text = "cpu  1411362 86 196327 1273043 6302 0 1608 629 0 0\n\
                    cpu0 709654 43 93460 640744 962 7 430 307 0 0\n\
                    cpu3 701708 43 102866 632298 5340 0 1178 322 0 0\n\
                    intr 29381109 0 0\nctxt 111040418\n";
        let time = |hard_ns, soft_ns| IrqTime { hard_ns, soft_ns };
        assert_eq!(
            irq_times(text),
            [
                (0, time(70_000_000, 4_300_000_000)),
                (3, time(0, 11_780_000_000))
            ]
        );
    }

    #[test]
    fn a_truncated_line_is_no_cpu() {
        assert!(irq_times("cpu0 1 2 3 4 5 6").is_empty());
        assert!(irq_times(&format!("cpu0 1 2 3 4 5 {} 7", u64::MAX)).is_empty());
    }
}
