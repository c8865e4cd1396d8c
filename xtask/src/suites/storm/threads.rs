//! What the threads of the storm do.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::run::Outcome;

/// Few enough that threads meet, more than the cache may hold together with the directories' other names.
const DIRS: u64 = 6;
const NAMES: u64 = 400;
/// Lines in each file; all of them are the same line.
const LINES: usize = 16;
const LINE: usize = 17;

/// What was done, and what went wrong.
#[derive(Debug, Default)]
pub(super) struct Report {
    done: BTreeMap<&'static str, u64>,
    lost_races: u64,
    wrong: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.done.values().sum();
        write!(f, "{total} operations, {} lost a race:", self.lost_races)?;
        for (what, count) in &self.done {
            write!(f, " {what} {count}")?;
        }
        Ok(())
    }
}

/// Runs the storm in `./storm`, and removes that again.
pub(super) fn run(threads: usize, how_long: Duration) -> Outcome<Report> {
    let root = Path::new("storm");
    fs::create_dir(root)?;
    for dir in 0..DIRS {
        fs::create_dir(root.join(format!("d{dir}")))?;
    }
    let end = Instant::now() + how_long;
    let over = AtomicBool::new(false);
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let forgetting = scope.spawn(|| forget(&over));
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    let mut worker = Worker::new(root, number as u64);
                    while Instant::now() < end && worker.report.wrong.len() < 10 {
                        worker.one();
                    }
                    worker.report
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // Before a worker's panic goes on: the scope waits for this thread too.
        over.store(true, Ordering::Relaxed);
        forgetting.join().expect("the forgetting thread");
        ends.into_iter().map(|end| end.expect("a worker")).collect()
    });
    let mut all = Report::default();
    for report in reports {
        for (what, count) in report.done {
            *all.done.entry(what).or_default() += count;
        }
        all.lost_races += report.lost_races;
        all.wrong.extend(report.wrong);
    }
    fs::remove_dir_all(root)?;
    if all.wrong.is_empty() { Ok(all) } else { Err(all.wrong.join("; ").into()) }
}

/// Makes the kernel forget names and inodes twice a second: that is where FORGET comes from.
fn forget(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        // Not being allowed to is no failure of the mount's.
        let _ = fs::write("/proc/sys/vm/drop_caches", "2");
        std::thread::sleep(Duration::from_millis(500));
    }
}

struct Worker<'a> {
    root: &'a Path,
    number: u64,
    state: u64,
    report: Report,
}

impl Worker<'_> {
    fn new(root: &Path, number: u64) -> Worker<'_> {
        Worker {
            root,
            number,
            state: (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            report: Report::default(),
        }
    }

    /// A number below `limit` (xorshift; the same sequence for a thread in every run).
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % limit
    }

    fn dir(&mut self) -> PathBuf {
        let dir = self.below(DIRS);
        self.root.join(format!("d{dir}"))
    }

    /// A path for one kind of entry; kinds do not share names, so that no operation meets a type it does not expect.
    fn path(&mut self, kind: char, names: u64) -> PathBuf {
        let name = self.below(names);
        self.dir().join(format!("{kind}{name}"))
    }

    fn one(&mut self) {
        let (what, outcome) = match self.below(100) {
            0..25 => ("create", self.create()),
            25..45 => ("lookup", self.lookup()),
            45..60 => ("open", self.open()),
            60..75 => ("rename", self.rename()),
            75..88 => ("unlink", self.unlink()),
            88..92 => ("link", self.link()),
            92..94 => ("symlink", self.symlink()),
            94..97 => ("mkdir", self.directories()),
            97..98 => ("list", self.list()),
            _ => ("unlinked-open", self.unlinked_open()),
        };
        *self.report.done.entry(what).or_default() += 1;
        match outcome {
            Ok(()) => {}
            Err(error) if lost_race(&error) => self.report.lost_races += 1,
            Err(error) => self.report.wrong.push(format!("{what}: {error}")),
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let path = self.path('f', NAMES);
        let tag = self.below(u64::MAX);
        File::create_new(path)?.write_all(&content(tag))
    }

    fn lookup(&mut self) -> io::Result<()> {
        let path = self.path('f', NAMES);
        let meta = fs::symlink_metadata(path)?;
        if meta.is_file() { Ok(()) } else { Err(io::Error::other("a file's name means no file")) }
    }

    fn open(&mut self) -> io::Result<()> {
        let path = self.path('f', NAMES);
        whole(&mut File::open(path)?)
    }

    fn rename(&mut self) -> io::Result<()> {
        let from = self.path('f', NAMES);
        let to = self.path('f', NAMES);
        fs::rename(from, to)
    }

    fn unlink(&mut self) -> io::Result<()> {
        let path = self.path('f', NAMES);
        fs::remove_file(path)
    }

    fn link(&mut self) -> io::Result<()> {
        let from = self.path('f', NAMES);
        let to = self.path('f', NAMES);
        fs::hard_link(from, to)
    }

    fn symlink(&mut self) -> io::Result<()> {
        let path = self.path('s', 20);
        let made = symlink("the target", &path);
        if fs::read_link(&path)? != Path::new("the target") {
            return Err(io::Error::other("a symbolic link with another target"));
        }
        fs::remove_file(&path)?;
        made
    }

    /// A directory that moves to another parent with a file in it, and goes.
    fn directories(&mut self) -> io::Result<()> {
        let number = self.number;
        let from = self.dir().join(format!("sub{number}"));
        let to = self.dir().join(format!("moved{number}"));
        // These names are this thread's own, so nothing here may fail.
        let step = |what: &str, outcome: io::Result<()>| {
            outcome.map_err(|error| io::Error::other(format!("{what} {}: {error}", from.display())))
        };
        step("create", fs::create_dir(&from))?;
        step("write in", fs::write(from.join("inside"), content(number)))?;
        step("rename", fs::rename(&from, &to))?;
        step("read in moved", whole(&mut File::open(to.join("inside"))?))?;
        if from.exists() {
            return Err(io::Error::other("a directory's old name still exists"));
        }
        step("unlink in moved", fs::remove_file(to.join("inside")))?;
        step("remove moved", fs::remove_dir(&to))
    }

    fn list(&mut self) -> io::Result<()> {
        let dir = self.dir();
        let mut seen = std::collections::HashSet::new();
        for entry in fs::read_dir(dir)? {
            seen.insert(entry?.file_name());
        }
        Ok(())
    }

    /// What was opened stays whole after its name is gone.
    fn unlinked_open(&mut self) -> io::Result<()> {
        let path = self.root.join(format!("own{}", self.number));
        let tag = self.below(u64::MAX);
        fs::write(&path, content(tag))?;
        let mut file = File::open(&path)?;
        fs::remove_file(&path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        if text == content(tag) {
            Ok(())
        } else {
            Err(io::Error::other("an unlinked file changed"))
        }
    }
}

/// Errors that another thread's success explains.
fn lost_race(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists)
}

fn content(tag: u64) -> Vec<u8> {
    format!("{tag:016x}\n").repeat(LINES).into_bytes()
}

/// A file is empty (its writer has not come that far) or whole.
fn whole(file: &mut File) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let torn = text.len() != LINES * LINE || text.chunks(LINE).any(|line| line != &text[..LINE]);
    if torn && !text.is_empty() {
        return Err(io::Error::other(format!("torn content of {} bytes", text.len())));
    }
    Ok(())
}
