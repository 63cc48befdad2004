// SPDX-License-Identifier: GPL-2.0-only
//! Threads that stay what they are.

use crate::identify::window::Threads;

/// What the threads are like.
#[derive(Clone, Copy)]
pub struct Fixed {
    pub strangers: bool,
    pub launchers: bool,
}

/// Nobody has to ask.
pub struct Unasked;

impl Threads for Unasked {
    fn strangers_ran(&mut self) -> bool {
        unreachable!("strangers")
    }

    fn launchers_alive(&mut self) -> bool {
        unreachable!("launchers")
    }
}

impl Threads for Fixed {
    fn strangers_ran(&mut self) -> bool {
        self.strangers
    }

    fn launchers_alive(&mut self) -> bool {
        self.launchers
    }
}

pub const NOBODY: Fixed = Fixed {
    strangers: false,
    launchers: false,
};
pub const ALL_KNOWN: Fixed = Fixed {
    strangers: false,
    launchers: true,
};
pub const STRANGERS: Fixed = Fixed {
    strangers: true,
    launchers: true,
};
