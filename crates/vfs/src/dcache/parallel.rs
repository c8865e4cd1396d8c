//! Two misses of one name ask the backend once; misses of different names in one directory ask at the same time.
//!
//! A miss makes a candidate dentry and inserts it, `IN_LOOKUP`, unless its bucket already holds one of that name: both are decided
//! under the bucket's lock, so there is one asker per name and no second table. Who finds a candidate of another sleeps on it
//! and then looks again. (The kernel's `d_alloc_parallel` keeps candidates in a table of their own; decision 2 says why we do not.)
//!
//! The directory lock is held shared meanwhile, so that no name of the directory is made or removed beside us.

use std::time::Duration;

use vfscale_sync::{FindOrInsert, Id, QRwLockWriteGuard, rcu};

use super::{Key, alloc, attach, index, is_below, rename, unhash};
use crate::clock::{self, Now};
use crate::dentry::{Birth, DentryRef};
use crate::inode::{InodeRef, Node};
use crate::superblock::{Count, SuperBlock};
use crate::{Attr, Errno, InodeKey, Result, inode_table, reclaim};

/// What the backend told of a name.
pub(crate) struct Asked {
    pub(crate) key: InodeKey,
    pub(crate) attr: Attr,
    pub(crate) node: Node,
}

impl Asked {
    /// Is it this inode? A number that is used again for another type is another object.
    pub(crate) fn is(&self, inode: &InodeRef) -> bool {
        inode.key() == self.key && inode.kind() == self.attr.kind
    }
}

/// A name that the backend can be asked about.
pub(crate) trait Question {
    fn ask(&self) -> Result<Asked>;

    /// The name was accepted and leads to an inode that was known: `again` was made for it in vain. Called under the directory
    /// lock alone.
    fn found_again(&self, known: &InodeRef, again: &Node);
}

/// How long what the backend tells is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ttl {
    pub(crate) entry: Duration,
    pub(crate) attr: Duration,
    pub(crate) negative: Duration,
}

/// Finds `name` in `dir`, in the cache or by asking. The answer may be negative.
///
/// # Errors
/// Those of the answer but `ENOENT`; `ENOENT` if the directory itself is gone; `ELOOP` if the backend shows a directory below itself.
pub(crate) fn lookup(
    sb: Id<SuperBlock>,
    ttl: Ttl,
    dir: &DentryRef,
    name: &[u8],
    question: &dyn Question,
) -> Result<DentryRef> {
    let superblock = SuperBlock::of(Some(sb));
    let dir_inode = dir.inode().ok_or(Errno::ENOENT)?;
    let key = Key::new(superblock, dir.id(), name);
    // Held from the moment it turns out that a directory has moved behind our back.
    let mut moves: Option<QRwLockWriteGuard<'_, ()>> = None;
    loop {
        reclaim::make_room(superblock);
        let may_be_absent = reclaim::make_room_for_absence(superblock, dir.id(), &dir_inode.0);
        let shared = dir_inode.0.dir_lock().read();
        if dir_inode.0.is_removed() {
            return Err(Errno::ENOENT);
        }
        let candidate = alloc(sb, Some(dir.clone()), key.hash, name, Birth::InLookup)?;
        let guard = rcu::pin();
        let stands = index().find_or_insert(
            key.hash,
            &guard,
            |_, dentry| dentry.stands_for(key.parent, key.hash, name, &guard),
            || Some(candidate.id()),
        );
        match stands {
            FindOrInsert::Found(id, _) => {
                let other = DentryRef::try_get(id, &guard);
                drop(guard);
                let Some(other) = other else { continue };
                if other.0.is_in_lookup() {
                    drop(shared);
                    superblock.bump(Count::LookupWait);
                    other.0.wait_for_lookup();
                } else if still_answers(&other, key)
                    && (other.0.is_valid(&Now::default())
                        || revalidate(superblock, ttl, &other, question)?)
                {
                    return Ok(other);
                }
            }
            FindOrInsert::Inserted(_) => {
                drop(guard);
                let mut lookup = InLookup { dentry: candidate, ended: false };
                superblock.bump(Count::LookupBackend);
                let (inode, again) = match question.ask() {
                    Ok(asked) => {
                        let until = clock::until(ttl.attr);
                        inode_table::get_or_create(sb, asked.key, &asked.attr, asked.node, until)?
                    }
                    Err(Errno::ENOENT) => {
                        // What is not to be believed for a moment is not worth its place (R3.14).
                        return Ok(if may_be_absent && !ttl.negative.is_zero() {
                            lookup.end_absent(clock::until(ttl.negative))
                        } else {
                            superblock.bump(Count::NegativeRefused);
                            lookup.end_unkept()
                        });
                    }
                    Err(error) => return Err(error),
                };
                let alias = match lookup.attach(inode.clone(), clock::until(ttl.entry)) {
                    Ok(()) => {
                        if let Some(again) = &again {
                            question.found_again(&inode, again);
                        }
                        return Ok(lookup.ended());
                    }
                    Err(alias) => alias,
                };
                if moves.is_none() {
                    // Moves come before directory locks: once more, in that order.
                    drop(lookup);
                    drop(shared);
                    moves = Some(superblock.rename_mutex());
                    continue;
                }
                if is_below(dir, &alias) {
                    return Err(Errno::ELOOP);
                }
                // The one dentry of this directory comes here (`d_splice_alias`); only then may waiters look again.
                rename(&alias, dir, name);
                alias.0.set_valid_until(clock::until(ttl.entry));
                if let Some(again) = &again {
                    question.found_again(&inode, again);
                }
                return Ok(alias);
            }
            FindOrInsert::Failed => return Err(Errno::ENFILE),
        }
    }
}

/// Still in the cache under this key? It was found under its bucket's lock, without its sequence number.
fn still_answers(dentry: &DentryRef, key: Key<'_>) -> bool {
    let guard = rcu::pin();
    let start = dentry.0.seq.begin();
    dentry.0.answers(key.parent, key.hash, key.name, &guard) && !dentry.0.seq.retry(start)
}

/// Asks the backend whether a stale dentry still holds. If not, takes it out of the cache.
fn revalidate(
    superblock: &SuperBlock,
    ttl: Ttl,
    dentry: &DentryRef,
    question: &dyn Question,
) -> Result<bool> {
    superblock.bump(Count::Revalidate);
    let inode = dentry.inode();
    let sample = inode.as_ref().map(|inode| inode.0.attr_sample());
    match (question.ask(), inode.zip(sample)) {
        (Ok(asked), Some((inode, sample))) if asked.is(&inode) => {
            inode.0.store_asked(&asked.attr, clock::until(ttl.attr), sample);
            dentry.0.set_valid_until(clock::until(ttl.entry));
            question.found_again(&inode, &asked.node);
            Ok(true)
        }
        (Err(Errno::ENOENT), None) => {
            dentry.0.set_valid_until(clock::until(ttl.negative));
            Ok(true)
        }
        (Ok(_) | Err(Errno::ENOENT), _) => {
            unhash(dentry);
            Ok(false)
        }
        (Err(error), _) => Err(error),
    }
}

/// A candidate in the hash. However its lookup ends, also by a panic of the backend, its waiters go on.
struct InLookup {
    dentry: DentryRef,
    ended: bool,
}

impl InLookup {
    /// The name leads to `inode`. Nobody is told before the lookup has [`ended`](Self::ended).
    ///
    /// # Errors
    /// The one dentry that the directory has already.
    fn attach(&mut self, inode: InodeRef, until: u64) -> Result<(), DentryRef> {
        attach(&self.dentry, inode, until, |_| ())
    }

    /// The name is absent.
    fn end_absent(&mut self, until: u64) -> DentryRef {
        let lock = self.dentry.0.lock();
        self.dentry.0.instantiate(None, until, &lock);
        drop(lock);
        self.ended()
    }

    /// The name is absent, but there is no place for one more absence: the next lookup asks again.
    fn end_unkept(&mut self) -> DentryRef {
        unhash(&self.dentry);
        self.ended()
    }

    fn ended(&mut self) -> DentryRef {
        self.ended = true;
        self.dentry.0.end_lookup();
        self.dentry.clone()
    }
}

impl Drop for InLookup {
    fn drop(&mut self) {
        if !self.ended {
            unhash(&self.dentry);
            self.dentry.0.end_lookup();
        }
    }
}
