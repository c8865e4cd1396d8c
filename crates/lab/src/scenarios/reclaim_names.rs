//! What the reclaim scenarios share: a computed tree to ask, the cache of the core in front of it, and two general caches used as an author of a
//! file server would use them, with a key of directory and name for each component.

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use equivalent::Equivalent;
use vfscale::{
    Attr, Context, Entry, Errno, FileSystem, FileType, InodeKey, Options, Place, Reclaim, Vfs,
};

const CX: Context = Context::root();

/// A path of two components, ready to be looked up: `/d7/f123`, or `/d7/x123`, which is absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    bytes: [u8; 32],
    len: u8,
    /// Where the second slash is.
    slash: u8,
}

impl Path {
    /// Written by hand: what the formatter takes would hide what is measured.
    #[inline]
    pub(super) fn new(dir: u32, is_absent: bool, name: u64) -> Path {
        let mut path = Path { bytes: [0; 32], len: 0, slash: 0 };
        path.push(b"/d");
        path.push_number(u64::from(dir));
        path.slash = path.len;
        path.push(if is_absent { b"/x" } else { b"/f" });
        path.push_number(name);
        path.push(b".h");
        path
    }

    #[inline]
    fn push(&mut self, text: &[u8; 2]) {
        let start = self.len as usize;
        self.bytes[start..start + 2].copy_from_slice(text);
        self.len += 2;
    }

    #[inline]
    fn push_number(&mut self, number: u64) {
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let (start, mut left) = (self.len as usize, number);
        for byte in self.bytes[start..start + digits].iter_mut().rev() {
            *byte = b'0' + (left % 10) as u8;
            left /= 10;
        }
        self.len += digits as u8;
    }

    fn whole(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    pub(super) fn dir(&self) -> &[u8] {
        &self.bytes[1..self.slash as usize]
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.bytes[self.slash as usize + 1..self.len as usize]
    }
}

thread_local! {
    /// How often the running thread has asked for the second component of a path.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

const ROOT: u64 = 1;

/// What there is: any name that begins with a `d` is a directory, with an `f` a file.
fn ask(dir: u64, name: &[u8]) -> Option<Attr> {
    if dir != ROOT {
        ASKED.set(ASKED.get() + 1);
    }
    let ino = name.iter().fold(dir, |hash, &b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
    });
    match name[0] {
        b'd' => Some(Attr::new(ino, FileType::Directory)),
        b'f' => Some(Attr::new(ino, FileType::Regular)),
        _ => None,
    }
}

/// The same as a backend.
pub(super) struct Tree;

impl FileSystem for Tree {
    type Node = (u64, FileType);
    type Handle = ();

    fn root(&self) -> vfscale::Result<Entry<Self::Node>> {
        let attr = Attr::new(ROOT, FileType::Directory);
        Ok(Entry { key: InodeKey { ino: ROOT, tag: 0 }, attr, node: (ROOT, attr.kind) })
    }

    fn lookup(&self, _: &Context, at: Place<'_, Self::Node>) -> vfscale::Result<Entry<Self::Node>> {
        let attr = ask(at.dir.0, at.name).ok_or(Errno::ENOENT)?;
        Ok(Entry { key: InodeKey { ino: attr.ino, tag: 0 }, attr, node: (attr.ino, attr.kind) })
    }

    fn getattr(&self, node: &Self::Node, _: Option<&()>) -> vfscale::Result<Attr> {
        Ok(Attr::new(node.0, node.1))
    }
}

/// A cache of names.
pub(super) trait Names: Sync + Send + Debug {
    /// The attributes behind a path, asked for where the cache does not know.
    fn stat(&self, path: &Path) -> Option<Attr>;

    /// What is to be told of it.
    fn values(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// [`stat`](Names::stat), and whether the cache knew. The answer is checked.
    #[inline]
    fn look(&self, path: &Path) -> bool {
        let before = ASKED.get();
        let found = self.stat(path).is_some();
        assert_eq!(found, path.name()[0] == b'f', "a wrong answer for {path:?}");
        ASKED.get() == before
    }
}

/// How a cache of names is made.
pub(super) type Make = fn(bytes: u64) -> Box<dyn Names>;

/// What a name weighs: bytes of memory, all counted, by the scenario `reclaim-bytes` with a million names, and those of them that an absent
/// one has not. So the same memory is another number of names for each.
#[derive(Clone, Copy, Debug)]
struct Weight {
    present: u32,
    absent: u32,
}

/// An absence has no inode and no node.
const OURS: Weight = Weight { present: 420, absent: 140 };
/// An absence has no attributes.
const QUICK: Weight = Weight { present: 259, absent: 99 };
const MOKA: Weight = Weight { present: 514, absent: 354 };

impl Weight {
    fn of(self, value: &Value) -> u32 {
        if value.is_some() { self.present } else { self.absent }
    }
}

impl quick_cache::Weighter<Key, Value> for Weight {
    fn weight(&self, _: &Key, value: &Value) -> u64 {
        u64::from(self.of(value))
    }
}

pub(super) struct Ours(pub(super) Vfs<Tree>);

impl Debug for Ours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ours").field(&self.0).finish()
    }
}

impl Ours {
    pub(super) fn new(bytes: u64, policy: Reclaim) -> Ours {
        let mut options = Options::exclusive();
        // The core counts its own 320 bytes of a name's 420.
        options.max_bytes = bytes / u64::from(OURS.present) * 320;
        options.max_names = 0;
        options.max_negative = 0;
        options.max_negative_per_dir = 0;
        options.reclaim = policy;
        Ours(Vfs::new(Tree, options).expect("a computed tree"))
    }

    /// Looks up with a reference, in a directory that is known.
    pub(super) fn lookup(&self, dir: &vfscale::DentryRef, name: &[u8]) -> vfscale::Found {
        self.0.lookup(&CX, dir, name).expect("it is there")
    }
}

impl Names for Ours {
    #[inline]
    fn stat(&self, path: &Path) -> Option<Attr> {
        self.0.stat(&CX, path.whole()).ok()
    }

    fn values(&self) -> Vec<(&'static str, f64)> {
        let stats = self.0.stats();
        vec![("steps_per_victim", stats.lru_scanned as f64 / stats.lru_freed.max(1) as f64)]
    }
}

pub(super) fn lru(bytes: u64) -> Box<dyn Names> {
    Box::new(Ours::new(bytes, Reclaim::Lru))
}

pub(super) fn clock(bytes: u64) -> Box<dyn Names> {
    Box::new(Ours::new(bytes, Reclaim::Clock))
}

pub(super) fn sieve(bytes: u64) -> Box<dyn Names> {
    Box::new(Ours::new(bytes, Reclaim::Sieve))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    dir: u64,
    name: Box<[u8]>,
}

/// A key that owns nothing.
#[derive(Hash)]
struct Asked<'a> {
    dir: u64,
    name: &'a [u8],
}

impl Equivalent<Key> for Asked<'_> {
    #[inline]
    fn equivalent(&self, key: &Key) -> bool {
        self.dir == key.dir && *self.name == *key.name
    }
}

/// Attributes, or that there are none.
type Value = Option<Arc<Attr>>;
type Hasher = foldhash::fast::RandomState;

/// A cache for any keys and values.
trait General: Sync + Send {
    fn get(&self, key: &Asked<'_>) -> Option<Value>;
    fn put(&self, key: Key, value: Value);
}

impl General for quick_cache::sync::Cache<Key, Value, Weight, Hasher> {
    #[inline]
    fn get(&self, key: &Asked<'_>) -> Option<Value> {
        self.get(key)
    }

    fn put(&self, key: Key, value: Value) {
        self.insert(key, value);
    }
}

impl General for moka::sync::Cache<Key, Value, Hasher> {
    #[inline]
    fn get(&self, key: &Asked<'_>) -> Option<Value> {
        self.get(key)
    }

    fn put(&self, key: Key, value: Value) {
        self.insert(key, value);
    }
}

struct Peer<C>(C);

impl<C> Debug for Peer<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

impl<C: General> Peer<C> {
    #[inline]
    fn component(&self, dir: u64, name: &[u8]) -> Value {
        if let Some(value) = self.0.get(&Asked { dir, name }) {
            return value;
        }
        let value = ask(dir, name).map(Arc::new);
        self.0.put(Key { dir, name: name.into() }, value.clone());
        value
    }
}

impl<C: General> Names for Peer<C> {
    #[inline]
    fn stat(&self, path: &Path) -> Option<Attr> {
        let dir = self.component(ROOT, path.dir())?;
        self.component(dir.ino, path.name()).map(|attr| *attr)
    }
}

fn quick_cache_of(bytes: u64, weight: Weight) -> Box<dyn Names> {
    Box::new(Peer(quick_cache::sync::Cache::<Key, Value, _, Hasher>::with(
        (bytes / u64::from(weight.present)) as usize,
        bytes,
        weight,
        Hasher::default(),
        quick_cache::sync::DefaultLifecycle::default(),
    )))
}

fn moka_of(bytes: u64, weight: Weight) -> Box<dyn Names> {
    let cache = moka::sync::Cache::builder().max_capacity(bytes);
    let cache = cache.weigher(move |_: &Key, value: &Value| weight.of(value));
    Box::new(Peer(cache.build_with_hasher(Hasher::default())))
}

pub(super) fn quick_cache(bytes: u64) -> Box<dyn Names> {
    quick_cache_of(bytes, QUICK)
}

/// With as many names as ours.
pub(super) fn quick_cache_alike(bytes: u64) -> Box<dyn Names> {
    quick_cache_of(bytes, OURS)
}

pub(super) fn moka(bytes: u64) -> Box<dyn Names> {
    moka_of(bytes, MOKA)
}

/// With as many names as ours.
pub(super) fn moka_alike(bytes: u64) -> Box<dyn Names> {
    moka_of(bytes, OURS)
}

/// Numbers without pattern (xorshift), the same in every run.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    #[inline]
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let mixed = self.next().wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(mixed) * u128::from(end)) >> 64) as u64
    }
}

/// Times sorted into buckets, each 6 % wider than the one before: a quantile is right to that.
#[derive(Debug)]
pub(super) struct Times(Vec<u64>);

impl Times {
    const FINE: u32 = 4;

    pub(super) fn new() -> Times {
        Times(vec![0; 64 << Times::FINE])
    }

    #[inline]
    pub(super) fn add(&mut self, ns: u64) {
        let ns = ns.max(1 << Times::FINE);
        let shift = ns.ilog2() - Times::FINE;
        let bucket = ((shift as usize) << Times::FINE) + (ns >> shift) as usize;
        self.0[bucket] += 1;
    }

    /// The time that this share of them does not exceed; 0 without times.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut left = (all as f64 * share).ceil() as u64;
        for (bucket, count) in self.0.iter().enumerate() {
            if *count > 0 && left <= *count {
                let fine = 1 << Times::FINE;
                // Buckets of one power of two begin at its own number: see `add`.
                let shift = (bucket / fine).saturating_sub(1);
                return ((bucket - (shift << Times::FINE)) << shift) as f64;
            }
            left -= count;
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_they_say() {
        let path = Path::new(0, false, u64::MAX);
        assert_eq!(path.whole(), b"/d0/f18446744073709551615.h");
        let path = Path::new(120, true, 0);
        assert_eq!(
            (path.whole(), path.dir(), path.name()),
            (&b"/d120/x0.h"[..], &b"d120"[..], &b"x0.h"[..])
        );
    }

    #[test]
    fn quantiles_are_right_to_a_bucket() {
        let mut times = Times::new();
        assert_eq!(times.quantile(0.5), 0.0);
        (1..=100_000).for_each(|ns| times.add(ns));
        for (share, exact) in
            [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0), (0.01, 1_000.0)]
        {
            let found = times.quantile(share);
            assert!(found <= exact && found > exact * 0.93, "{share}: {found}");
        }
    }

    #[test]
    fn the_arms_give_the_same_answers() {
        let arms: [Make; 5] = [lru, clock, sieve, quick_cache, moka];
        for make in arms {
            let cache = make(1 << 16);
            let mut random = Random(9);
            for _ in 0..5_000 {
                let at = random.below(500);
                let path = Path::new((at % 7) as u32, at.is_multiple_of(5), at);
                cache.look(&path);
                assert_eq!(
                    cache.stat(&path).map(|attr| attr.ino),
                    lru(1 << 20).stat(&path).map(|attr| attr.ino)
                );
            }
        }
    }
}
