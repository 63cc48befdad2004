// SPDX-License-Identifier: GPL-2.0-only
//! How long storms, windows and repetitions are: short in the gate, which is `make test`, and long in `make test-full`.
//! What is asserted is the same, as shares and counts per unit.

/// At full length?
pub fn is_full() -> bool {
    std::env::var_os("GPUAWARE_FULL").is_some()
}

/// A length of the gate, or the full one.
pub fn of<T>(gate: T, full: T) -> T {
    if is_full() { full } else { gate }
}
