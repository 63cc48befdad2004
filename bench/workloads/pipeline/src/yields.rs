// SPDX-License-Identifier: GPL-2.0-only
//! Which threads of a test have called `sched_yield`.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

static YIELDED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// By the thread's name.
pub fn has_yielded(name: &str) -> bool {
    let yielded = YIELDED.lock().unwrap_or_else(PoisonError::into_inner);
    yielded.contains(name)
}

/// Takes the place of the C library's in the program of the tests; does not yield, which it need not.
// SAFETY: name and type are those of the C library's, and nothing else here has this name.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    let thread = std::thread::current();
    let mut yielded = YIELDED.lock().unwrap_or_else(PoisonError::into_inner);
    yielded.insert(thread.name().unwrap_or_default().to_owned());
    0
}
