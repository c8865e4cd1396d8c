//! The classes of the process, the orders seen between them, and what was measured of them.
//!
//! # Who writes
//! All of it lies under one lock of the standard library, which lockdep does not watch. What a thread holds is its own affair,
//! see `held`; so the lock is taken for a moment at each acquisition and release, and nothing is waited for under it.
//!
//! # A cycle
//! is looked for when an order is seen for the first time, by a search from the class that is taken to those that are held; a
//! known order costs one look-up.

use core::panic::Location;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::Mode;
use super::held::Hold;
use super::on::Key;

/// More classes or orders than this are not checked, and the process is told once.
const MAX: usize = 1 << 16;

type Place = &'static Location<'static>;

/// What a class goes by.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    /// Where its locks are made.
    Made(&'static str, u32, u32),
    /// The place in the slots of a pool.
    InSlot(&'static str, usize),
    /// One lock.
    At(usize),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Made(file, line, column) => write!(f, "lock made at {file}:{line}:{column}"),
            Name::InSlot(of, offset) => write!(f, "LockRef in {of} at byte {offset}"),
            Name::At(address) => write!(f, "LockRef at {address:#x}"),
        }
    }
}

/// One class.
struct Class {
    name: Name,
    /// Classes that were taken while one of this was held, and where that was first: this one's place, then the other's.
    after: HashMap<u32, (Place, Place)>,
    taken: u64,
    contended: u64,
    waited: Duration,
    held: Duration,
    longest: Duration,
}

struct Slots {
    base: usize,
    len: usize,
    size: usize,
    name: &'static str,
}

#[derive(Default)]
struct Graph {
    /// Class `n` is the `n - 1`-th.
    classes: Vec<Class>,
    numbers: HashMap<Name, u32>,
    slots: Vec<Slots>,
    orders: usize,
    is_full: bool,
}

fn graph() -> MutexGuard<'static, Graph> {
    static GRAPH: OnceLock<Mutex<Graph>> = OnceLock::new();
    START.get_or_init(Instant::now);
    GRAPH.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the first lock was taken.
static START: OnceLock<Instant> = OnceLock::new();

impl Graph {
    fn number(&mut self, name: Name) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        self.classes.push(Class {
            name: name.clone(),
            after: HashMap::new(),
            taken: 0,
            contended: 0,
            waited: Duration::ZERO,
            held: Duration::ZERO,
            longest: Duration::ZERO,
        });
        let number = u32::try_from(self.classes.len()).expect("fewer than 2^32 classes");
        self.numbers.insert(name, number);
        number
    }

    fn class(&mut self, number: u32) -> &mut Class {
        &mut self.classes[number as usize - 1]
    }

    /// The first step of a way from one class to another, if there is one.
    fn way(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        let mut ways = vec![vec![from]];
        let mut seen = vec![from];
        while let Some(way) = ways.pop() {
            let last = *way.last()?;
            for &next in self.classes[last as usize - 1].after.keys() {
                if seen.contains(&next) {
                    continue;
                }
                let mut longer = way.clone();
                longer.push(next);
                if next == to {
                    return Some(longer);
                }
                seen.push(next);
                ways.push(longer);
            }
        }
        None
    }

    /// Whether there is room for one more.
    fn has_room(&mut self) -> bool {
        let has_room = self.classes.len() < MAX && self.orders < MAX;
        if !has_room && !self.is_full {
            self.is_full = true;
            eprintln!("lockdep: more than {MAX} classes or orders; no new ones are checked");
        }
        has_room
    }
}

/// The number of the lock's class.
pub(super) fn class_of(key: Key<'_>) -> u32 {
    if let Some(class) = key.class {
        // Relaxed: a number, whoever stores it.
        let number = class.number.load(Relaxed);
        if number != 0 {
            return number;
        }
        let place = class.place;
        let number = graph().number(Name::Made(place.file(), place.line(), place.column()));
        class.number.store(number, Relaxed);
        return number;
    }
    let mut graph = graph();
    let slots = graph
        .slots
        .iter()
        .find(|slots| (slots.base..slots.base + slots.len).contains(&key.address));
    let name = match slots {
        Some(slots) => Name::InSlot(slots.name, (key.address - slots.base) % slots.size),
        None => Name::At(key.address),
    };
    graph.number(name)
}

/// A lock that was known by its address is gone; another may come to be there.
pub(super) fn forget(address: usize) {
    let mut graph = graph();
    if let Some(number) = graph.numbers.remove(&Name::At(address)) {
        graph.class(number).after.clear();
        for class in &mut graph.classes {
            class.after.remove(&number);
        }
    }
}

pub(super) fn add_slots(base: usize, len: usize, size: usize, name: &'static str) {
    graph().slots.push(Slots { base, len, size, name });
}

/// Notes that a lock of `class` is taken at `place` while `hold` is held, and complains if it was the
/// other way round before.
pub(super) fn order(hold: &Hold, class: u32, place: Place) {
    let mut graph = graph();
    if graph.class(hold.class).after.contains_key(&class) || !graph.has_room() {
        return;
    }
    let complaint = graph.way(class, hold.class).map(|way| {
        let name = |number: u32| &graph.classes[number as usize - 1].name;
        let mut text = format!(
            "locks in two orders\n  {} is taken at {place}\n  while {} is held, taken at {}\nbefore that:",
            name(class),
            name(hold.class),
            hold.place
        );
        for step in way.windows(2) {
            let (first, then) = graph.classes[step[0] as usize - 1].after[&step[1]];
            text += &format!(
                "\n  {} was taken at {then}\n  while {} was held, taken at {first}",
                name(step[1]),
                name(step[0])
            );
        }
        text
    });
    // Noted either way: one complaint is enough.
    graph.class(hold.class).after.insert(class, (hold.place, place));
    graph.orders += 1;
    drop(graph);
    if let Some(complaint) = complaint {
        complain(&complaint);
    }
}

/// The text of a lock taken twice.
pub(super) fn taken_twice(hold: &Hold, mode: Mode, place: Place) -> String {
    let graph = graph();
    let why = if hold.mode != Mode::Exclusive && mode != Mode::Exclusive {
        "a writer may come in between and wait for the first, and the second for it: take it nested"
    } else {
        "it waits for itself"
    };
    format!(
        "a lock taken twice by one thread: {why}\n  {} is taken at {place}\n  and is held, taken at {}",
        graph.classes[hold.class as usize - 1].name,
        hold.place
    )
}

/// Panics, or prints while a panic is under way already.
#[track_caller]
pub(super) fn complain(text: &str) {
    if std::thread::panicking() {
        eprintln!("lockdep: {text}");
    } else {
        panic!("lockdep: {text}");
    }
}

pub(super) fn note_taken(class: u32, waited: Option<Duration>) {
    let mut graph = graph();
    let class = graph.class(class);
    class.taken += 1;
    if let Some(waited) = waited {
        class.contended += 1;
        class.waited += waited;
    }
}

pub(super) fn note_given_back(class: u32, held: Duration) {
    let mut graph = graph();
    let class = graph.class(class);
    class.held += held;
    class.longest = class.longest.max(held);
}

/// What was measured of one class of locks since the process took its first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClassReport {
    /// Where its locks are made, or what they are part of.
    pub name: String,
    /// How often one was taken.
    pub taken: u64,
    /// How often it was not free at once.
    pub contended: u64,
    /// How long threads waited for it, together.
    pub waited: Duration,
    /// How long it was held, by all holders together.
    pub held: Duration,
    /// The longest that it was held.
    pub longest: Duration,
    /// How long the process has taken locks.
    pub elapsed: Duration,
}

impl ClassReport {
    /// Takings that were not at once, in percent of all.
    #[must_use]
    pub fn contention(&self) -> f64 {
        100.0 * self.contended as f64 / self.taken.max(1) as f64
    }

    /// Time held in percent of the time that passed. Shared holders count each for itself, as do the
    /// locks of a class.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        100.0 * self.held.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for ClassReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10} taken {:>6.2} % contended {:>6.2} % utilised, waited {:?}, held {:?}, at most {:?}: {}",
            self.taken,
            self.contention(),
            self.utilisation(),
            self.waited,
            self.held,
            self.longest,
            self.name
        )
    }
}

/// What was measured of each class whose locks were taken, the most contended first.
///
/// ```
/// use vfscale_sync::{QMutex, lockdep};
///
/// let names = QMutex::new(Vec::new());
/// names.lock().push("usr");
/// for class in lockdep::report() {
///     println!("{class}");
/// }
/// assert!(lockdep::report().iter().any(|class| class.taken > 0));
/// ```
#[must_use]
pub fn report() -> Vec<ClassReport> {
    let graph = graph();
    let elapsed = START.get().map_or(Duration::ZERO, Instant::elapsed);
    let mut classes: Vec<ClassReport> = graph
        .classes
        .iter()
        .filter(|class| class.taken > 0)
        .map(|class| ClassReport {
            name: class.name.to_string(),
            taken: class.taken,
            contended: class.contended,
            waited: class.waited,
            held: class.held,
            longest: class.longest,
            elapsed,
        })
        .collect();
    classes.sort_by_key(|class| std::cmp::Reverse((class.contended, class.taken)));
    classes
}
