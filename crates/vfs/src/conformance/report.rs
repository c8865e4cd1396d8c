//! What came of a run.

use std::fmt;

/// What came of each case.
#[derive(Clone, Debug, Default)]
#[must_use = "it names the cases that failed"]
pub struct Report {
    /// Names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// The cases that did not.
    pub failed: Vec<Failure>,
    /// Names of the cases that were not run.
    pub left_out: Vec<&'static str>,
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name, `family::case`.
    pub case: &'static str,
    /// What it found. Where in the case, the panic hook has told.
    pub what: String,
}

impl Report {
    /// For the end of a test.
    ///
    /// # Panics
    /// With all cases that failed, if one has.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.failed.is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { passed, failed, left_out } = self;
        write!(f, "{} passed, {} failed, ", passed.len(), failed.len())?;
        write!(f, "{} left out", left_out.len())?;
        for Failure { case, what } in failed {
            write!(f, "\n  {case}: {}", what.replace('\n', "\n    "))?;
        }
        Ok(())
    }
}
