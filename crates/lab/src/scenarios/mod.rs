//! The scenarios, one a file.

mod lockref;

use crate::scenario::Scenario;

/// All of them, in the order in which they are listed and run.
pub(crate) const ALL: &[&Scenario] = &[&lockref::SCENARIO];
