//! The numbers of a run: gathered from the core and the front end, printed as a table, stored as JSON.
//!
//! One structure serves `exec` and `walk` (at the end), `mount` (on SIGUSR1) and `stat` (live, from another process): a mount
//! publishes it as the JSON text of an extended attribute, and `stat` reads it back.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vfscale::{FileSystem, Vfs};
use vfscale_fuse::FuseStats;

use crate::error::CliError;

/// What is cached, now and at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// Names cached now, absent ones included.
    pub(crate) names: u64,
    /// Most names cached at one time.
    pub(crate) names_peak: u64,
    /// The limit on them; 0 is none.
    pub(crate) max_names: u64,
    /// Of the names: those known to be absent.
    pub(crate) negative: u64,
    /// Inodes known now.
    pub(crate) inodes: u64,
    /// Most inodes known at one time.
    pub(crate) inodes_peak: u64,
    /// Open files now.
    pub(crate) files: u64,
    /// Bytes the cache holds now.
    pub(crate) bytes: u64,
    /// Most bytes held at one time.
    pub(crate) bytes_peak: u64,
}

/// How names were found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lookups {
    /// In the cache, without a store to shared memory.
    pub(crate) rcu: u64,
    /// In the cache, by counted references.
    pub(crate) reference: u64,
    /// By asking the backend.
    pub(crate) backend: u64,
    /// Answered "absent" from the cache.
    pub(crate) negative_hits: u64,
    /// Waited for another thread's question for the same name.
    pub(crate) waits: u64,
}

/// What the shrinker and renames did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Upkeep {
    /// Names the shrinker looked at.
    pub(crate) scanned: u64,
    /// Names it freed.
    pub(crate) freed: u64,
    /// Renames.
    pub(crate) renames: u64,
}

/// The five primitives and RCU: how often each took its fast and its slow path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Primitives {
    /// Reference counts changed without the lock.
    pub(crate) lockref_fast: u64,
    /// Reference counts changed under the lock.
    pub(crate) lockref_slow: u64,
    /// Shared takes of a directory's lock.
    pub(crate) qrwlock_reads: u64,
    /// Exclusive takes of it.
    pub(crate) qrwlock_writes: u64,
    /// Takes that had to queue.
    pub(crate) qrwlock_contended: u64,
    /// Waiters that slept.
    pub(crate) qrwlock_parks: u64,
    /// Inode-list changes made at once.
    pub(crate) list_direct: u64,
    /// Batches that one thread worked off for all.
    pub(crate) list_batches: u64,
    /// Inode-list changes made in those batches.
    pub(crate) list_combined: u64,
    /// References taken on open files.
    pub(crate) file_gets: u64,
    /// References given back.
    pub(crate) file_puts: u64,
    /// Grace periods.
    pub(crate) rcu_grace_periods: u64,
    /// Objects whose freeing waited for one.
    pub(crate) rcu_deferred: u64,
    /// Objects that still wait.
    pub(crate) rcu_pending: u64,
}

/// The FUSE front end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fuse {
    /// Requests answered.
    pub(crate) requests: u64,
    /// Inodes the kernel knows.
    pub(crate) nodes: u64,
    /// Sum of its lookup counts.
    pub(crate) lookup_counts: u64,
    /// Files it has open.
    pub(crate) open_files: u64,
    /// Files among them that it reads and writes itself.
    #[serde(default)]
    pub(crate) passed_through: u64,
    /// FORGETs above the count, refused.
    pub(crate) refused_forgets: u64,
}

/// What is still held once a mount is gone; all zero unless something leaks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// Names.
    pub(crate) names: u64,
    /// Inodes.
    pub(crate) inodes: u64,
    /// Open files.
    pub(crate) files: u64,
}

/// How the command of an `exec` ended, and what its mount left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The exit code `exec` ended with.
    pub(crate) exit_code: u8,
    /// The signal that ended the command.
    pub(crate) signal: Option<i32>,
    /// The mount was taken from processes that still used it.
    pub(crate) detached: bool,
    /// What was still held after the unmount. Not known if the unmount failed.
    pub(crate) rest: Option<Rest>,
}

/// The numbers of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// This program's version.
    pub(crate) version: String,
    /// What is served.
    pub(crate) source: String,
    /// Where, if it is mounted.
    pub(crate) mountpoint: Option<String>,
    /// Seconds since it was.
    pub(crate) seconds: f64,
    /// What is cached.
    pub(crate) cache: Cache,
    /// How names were found.
    pub(crate) lookups: Lookups,
    /// What the shrinker did.
    pub(crate) upkeep: Upkeep,
    /// The primitives' paths.
    pub(crate) primitives: Primitives,
    /// The front end, if there is one.
    pub(crate) fuse: Option<Fuse>,
    /// Most memory this process had resident, in bytes.
    pub(crate) resident_peak_bytes: u64,
    /// The end of an `exec`.
    pub(crate) outcome: Option<Outcome>,
}

impl Summary {
    /// Gathers the numbers of `vfs`, and of its front end if it has one.
    pub(crate) fn gather<F: FileSystem>(vfs: &Vfs<F>, fuse: Option<&FuseStats>) -> Summary {
        let stats = vfs.stats();
        Summary {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cache: Cache {
                names: stats.names,
                names_peak: stats.names_peak,
                max_names: vfs.options().max_names,
                negative: stats.negative,
                inodes: stats.inodes,
                inodes_peak: stats.inodes_peak,
                files: stats.files,
                bytes: stats.bytes,
                bytes_peak: stats.bytes_peak,
            },
            lookups: Lookups {
                rcu: stats.lookups_rcu,
                reference: stats.lookups_ref,
                backend: stats.lookups_backend,
                negative_hits: stats.negative_hits,
                waits: stats.lookup_waits,
            },
            upkeep: Upkeep {
                scanned: stats.lru_scanned,
                freed: stats.lru_freed,
                renames: stats.renames,
            },
            primitives: Primitives {
                lockref_fast: stats.primitives.lockref_fast,
                lockref_slow: stats.primitives.lockref_slow,
                qrwlock_reads: stats.primitives.qrwlock_reads,
                qrwlock_writes: stats.primitives.qrwlock_writes,
                qrwlock_contended: stats.primitives.qrwlock_contended,
                qrwlock_parks: stats.primitives.qrwlock_parks,
                list_direct: stats.primitives.list_direct,
                list_batches: stats.primitives.list_batches,
                list_combined: stats.primitives.list_combined,
                file_gets: stats.primitives.file_gets,
                file_puts: stats.primitives.file_puts,
                rcu_grace_periods: stats.rcu.grace_periods,
                rcu_deferred: stats.rcu.deferred,
                rcu_pending: stats.rcu.pending,
            },
            fuse: fuse.map(|fuse| Fuse {
                requests: fuse.requests,
                nodes: fuse.nodes,
                lookup_counts: fuse.lookup_counts,
                open_files: fuse.open_files,
                passed_through: fuse.passed_through,
                refused_forgets: fuse.refused_forgets,
            }),
            resident_peak_bytes: resident_peak_bytes(),
            ..Summary::default()
        }
    }
}

impl fmt::Display for Summary {
    /// The table, each line indented, without a line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { cache, lookups, upkeep, primitives, .. } = self;
        let limit = match cache.max_names {
            0 => "no limit".to_owned(),
            limit => format!("limit {}", grouped(limit)),
        };
        let line = |f: &mut fmt::Formatter<'_>, what: &str, numbers: &[(&str, u64)]| {
            write!(f, "\n  {what:<9}")?;
            for (place, (name, number)) in numbers.iter().enumerate() {
                let comma = if place == 0 { "" } else { ", " };
                write!(f, "{comma}{name} {}", grouped(*number))?;
            }
            Ok(())
        };
        write!(
            f,
            "  {:<9}names {} (peak {}, {limit}), absent {}, inodes {} (peak {}), open files {}",
            "cache",
            grouped(cache.names),
            grouped(cache.names_peak),
            grouped(cache.negative),
            grouped(cache.inodes),
            grouped(cache.inodes_peak),
            grouped(cache.files),
        )?;
        write!(
            f,
            "\n  {:<9}cached {} (peak {}), process resident peak {}",
            "memory",
            size(cache.bytes),
            size(cache.bytes_peak),
            size(self.resident_peak_bytes),
        )?;
        line(
            f,
            "lookups",
            &[
                ("rcu", lookups.rcu),
                ("ref", lookups.reference),
                ("backend", lookups.backend),
                ("negative hits", lookups.negative_hits),
                ("waits", lookups.waits),
            ],
        )?;
        line(
            f,
            "upkeep",
            &[("scanned", upkeep.scanned), ("freed", upkeep.freed), ("renames", upkeep.renames)],
        )?;
        line(
            f,
            "lockref",
            &[("fast", primitives.lockref_fast), ("slow", primitives.lockref_slow)],
        )?;
        line(
            f,
            "qrwlock",
            &[
                ("reads", primitives.qrwlock_reads),
                ("writes", primitives.qrwlock_writes),
                ("contended", primitives.qrwlock_contended),
                ("parks", primitives.qrwlock_parks),
            ],
        )?;
        line(
            f,
            "inodes",
            &[
                ("list direct", primitives.list_direct),
                ("batches", primitives.list_batches),
                ("combined", primitives.list_combined),
            ],
        )?;
        line(f, "files", &[("gets", primitives.file_gets), ("puts", primitives.file_puts)])?;
        line(
            f,
            "rcu",
            &[
                ("grace periods", primitives.rcu_grace_periods),
                ("deferred", primitives.rcu_deferred),
                ("pending", primitives.rcu_pending),
            ],
        )?;
        if let Some(fuse) = &self.fuse {
            line(
                f,
                "fuse",
                &[
                    ("requests", fuse.requests),
                    ("nodes", fuse.nodes),
                    ("lookup counts", fuse.lookup_counts),
                    ("open files", fuse.open_files),
                    ("passed through", fuse.passed_through),
                    ("refused forgets", fuse.refused_forgets),
                ],
            )?;
        }
        if let Some(outcome) = &self.outcome {
            match &outcome.rest {
                None => write!(f, "\n  {:<9}unknown", "left")?,
                Some(rest) if *rest == Rest::default() => write!(f, "\n  {:<9}nothing", "left")?,
                Some(Rest { names, inodes, files }) => {
                    line(f, "left", &[("names", *names), ("inodes", *inodes), ("files", *files)])?;
                }
            }
        }
        Ok(())
    }
}

/// A file for JSON, opened before the run it tells about, so that a bad name fails early.
#[derive(Debug)]
pub(crate) struct JsonFile {
    path: PathBuf,
    file: File,
}

impl JsonFile {
    /// Creates or empties the file.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn create(path: &Path) -> Result<JsonFile, CliError> {
        let file = File::create(path).map_err(|error| CliError::io(path, error))?;
        Ok(JsonFile { path: path.to_owned(), file })
    }

    /// Writes `value` as its only content.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn write<T: Serialize>(mut self, value: &T) -> Result<(), CliError> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| CliError::Other(format!("cannot write JSON: {error}")))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|error| CliError::io(&self.path, error))
    }
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in the largest unit that leaves a digit before the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The most memory this process had resident, or 0 where the system does not tell.
fn resident_peak_bytes() -> u64 {
    resident_bytes("VmHWM:")
}

/// The memory this process has resident, or 0 where the system does not tell.
pub(crate) fn resident_now_bytes() -> u64 {
    resident_bytes("VmRSS:")
}

fn resident_bytes(row: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(row));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn sizes_take_the_fitting_unit() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
    }

    #[test]
    fn a_summary_survives_json() {
        let summary = Summary {
            source: "/a".into(),
            outcome: Some(Outcome { exit_code: 130, signal: Some(2), ..Outcome::default() }),
            ..Summary::default()
        };
        let text = serde_json::to_string(&summary).expect("plain data");
        let back: Summary = serde_json::from_str(&text).expect("what we wrote");
        assert_eq!(summary, back);
    }

    #[test]
    fn a_leak_is_shown_and_its_absence_said() {
        let mut outcome = Outcome { rest: Some(Rest::default()), ..Outcome::default() };
        let clean = Summary { outcome: Some(outcome.clone()), ..Summary::default() };
        assert!(clean.to_string().ends_with("left     nothing"), "{clean}");
        outcome.rest = Some(Rest { files: 2, ..Rest::default() });
        let leaky = Summary { outcome: Some(outcome), ..Summary::default() };
        assert!(leaky.to_string().contains("files 2"), "{leaky}");
    }

    #[test]
    fn resident_memory_is_known_here() {
        assert!(resident_now_bytes() > 100_000);
        assert!(resident_peak_bytes() > 100_000);
    }
}
