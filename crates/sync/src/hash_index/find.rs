//! Looking for a slot: the walk along a chain, and when it has to be done again. The theory stands in the module above.

// unmodelled file: as the module above.

use super::bucket::Word;
use super::table::Table;
use super::{Chained, HashIndex};
use crate::Id;
use crate::prim::Ordering;
use crate::rcu::Guard;

impl<T: Chained> HashIndex<T> {
    /// The first slot under `hash` that `eq` accepts. Stores nothing that others read.
    ///
    /// A slot that is linked under `hash` during the whole call, and that `eq` accepts, is not missed.
    #[inline]
    pub fn find<'g>(
        &'static self,
        hash: u32,
        guard: &'g Guard,
        mut eq: impl FnMut(Id<T>, &'g T) -> bool,
    ) -> Option<(Id<T>, &'g T)> {
        let mut probe = |id, node| eq(id, node).then_some((id, node));
        let table = self.table(guard)?;
        let word = table.bucket(hash).load();
        if !word.is_moved() {
            if !word.may_hold(hash) {
                return None;
            }
            let found = self.walk(table, word, guard, &mut probe);
            if found.is_some() {
                return found;
            }
        }
        self.find_slow(table, hash, guard, probe)
    }

    /// What `probe` makes of the first slot under `hash` that it accepts: [`find`](Self::find) for the hottest of paths, to be
    /// inlined there. `probe` may be asked about a slot more than once, and should hold what it needs by value.
    // Always: the walk of a path is little else than this, once for each component.
    #[inline(always)]
    pub fn find_map<'g, R>(
        &'static self,
        hash: u32,
        guard: &'g Guard,
        probe: impl Fn(Id<T>, &'g T) -> Option<R> + Copy,
    ) -> Option<R> {
        let table = self.table(guard)?;
        let word = table.bucket(hash).load();
        if !word.is_moved() {
            if !word.may_hold(hash) {
                return None;
            }
            let found = self.walk(table, word, guard, probe);
            if found.is_some() {
                return found;
            }
        }
        self.find_slow(table, hash, guard, probe)
    }

    /// The refuted design: believes the first miss. Kept for the model that must catch it.
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn find_believing_misses<'g>(
        &'static self,
        hash: u32,
        guard: &'g Guard,
        mut eq: impl FnMut(Id<T>, &'g T) -> bool,
    ) -> Option<(Id<T>, &'g T)> {
        let mut table = self.table(guard)?;
        loop {
            let word = table.bucket(hash).load();
            if !word.is_moved() {
                let probe = |id, node| eq(id, node).then_some((id, node));
                return self.walk(table, word, guard, probe);
            }
            table = table.next(guard)?;
        }
    }

    /// Goes along the chain, once.
    #[inline(always)]
    fn walk<'g, R>(
        &'static self,
        table: &Table,
        word: Word,
        guard: &'g Guard,
        mut probe: impl FnMut(Id<T>, &'g T) -> Option<R>,
    ) -> Option<R> {
        let mut at = word.head();
        while let Some(id) = at {
            let node = self.pool.get(id, guard);
            let found = probe(id, node);
            if found.is_some() {
                return found;
            }
            // HX-2 Acquire.
            at = node.links().next[table.parity].load(Ordering::Acquire);
        }
        None
    }

    /// Goes along the chain, wherever it is, until it has stayed the same meanwhile.
    #[inline(never)]
    fn find_slow<'g, R>(
        &'static self,
        table: &'g Table,
        hash: u32,
        guard: &'g Guard,
        mut probe: impl FnMut(Id<T>, &'g T) -> Option<R>,
    ) -> Option<R> {
        let mut table = table;
        loop {
            let bucket = table.bucket(hash);
            let word = bucket.load();
            if word.is_moved() {
                table = table.next(guard)?;
                continue;
            }
            if !word.may_hold(hash) {
                return None;
            }
            let found = self.walk(table, word, guard, &mut probe);
            // HX-2: after the last link. The load is one of the word we hold already, so it hits the cache.
            if found.is_some() || word.is_same_chain(bucket.load()) {
                return found;
            }
        }
    }
}
