//! Finds an inode by superblock and key (`iget`): read under RCU, written under a bucket's lock.
//!
//! Two lookups of one object reach one inode. A dying inode may still stand in its chain; it is passed over, so that nobody waits
//! for its end.

use vfscale_sync::{FindOrInsert, HashIndex, Held, HeldSlot, Id, rcu};

use crate::inode::{self, Inode, InodeRef, Node};
use crate::superblock::SuperBlock;
use crate::{Attr, Errno, InodeKey, Result};

static TABLE: HashIndex<Inode> = HashIndex::new(&inode::INODES);

fn table() -> &'static HashIndex<Inode> {
    &TABLE
}

fn hash_of(sb: &SuperBlock, key: InodeKey) -> u32 {
    sb.hash_key().pair(key.ino, key.tag)
}

/// The inode of `sb` with this key: the living one, or a new one with these attributes. With a living one `node` comes back, not
/// wanted.
///
/// # Errors
/// `ENFILE` if the pool of inodes is used up.
pub(crate) fn get_or_create(
    sb: Id<SuperBlock>,
    key: InodeKey,
    attr: &Attr,
    node: Node,
    attr_until: u64,
) -> Result<(InodeRef, Option<Node>)> {
    let superblock = SuperBlock::of(Some(sb));
    let hash = hash_of(superblock, key);
    loop {
        let guard = rcu::pin();
        // An inode of another type has had its number used again behind our back; it is another object.
        let same = |_: Id<Inode>, inode: &Inode| {
            inode.key() == key
                && inode.sb_id() == Some(sb)
                && inode.kind() == attr.kind
                && !inode.is_dead()
        };
        if let Some((id, _)) = table().find(hash, &guard, same) {
            if let Some(held) = Held::try_get(id, &guard) {
                // Its attributes stay: these may have been asked for before they last changed.
                return Ok((InodeRef(held), Some(node)));
            }
            continue;
        }
        let fresh = inode::pool().alloc().ok_or(Errno::ENFILE)?;
        fresh.init(sb, hash, key, attr, node.clone(), attr_until);
        superblock.inode_count().up();
        let held: Held<Inode> = Held::from_fresh(fresh);
        match table().find_or_insert(hash, &guard, same, || Some(held.id())) {
            FindOrInsert::Inserted(id) => {
                superblock.inodes.add_head(id);
                return Ok((InodeRef(held), None));
            }
            // Another thread was first: ours goes the way of every last reference.
            FindOrInsert::Found(..) => {}
            FindOrInsert::Failed => return Err(Errno::ENFILE),
        }
    }
}

/// Takes a dead inode out of the table.
pub(crate) fn remove(id: Id<Inode>, inode: &Inode, guard: &rcu::Guard) {
    debug_assert!(inode.lockref().is_dead());
    table().remove(id, vfscale_sync::Chained::hash(inode), guard);
}
