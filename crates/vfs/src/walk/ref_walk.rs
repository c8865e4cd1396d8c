//! ref-walk: counted references, the backend asked on a miss, symbolic links followed.

use super::{Access, MAX_LINKS, Rest, WalkFlags};
use crate::dentry::DentryRef;
use crate::{Context, Errno, FileSystem, FileType, Result, Vfs};

impl<F: FileSystem> Vfs<F> {
    pub(super) fn walk_ref(
        &self,
        cx: &Context,
        root: &DentryRef,
        start: DentryRef,
        rest: Rest<'_>,
        flags: WalkFlags,
    ) -> Result<DentryRef> {
        let hash = self.superblock().hash_key();
        let mut at = start;
        // What a link puts in front of the rest; the first rest needs none.
        let mut path;
        let mut rest = rest;
        let mut links = 0;
        'path: loop {
            while let Some((key, last)) = rest.next(hash, at.id())? {
                let dir = self.dir_inode(&at)?;
                self.check_access(cx, &dir, Access::SEARCH)?;
                if key.name == b".." {
                    at = if at == *root { at } else { self.parent(&at) };
                    continue;
                }
                let found = self.lookup_key(cx, &at, key)?;
                let wants_directory = rest.wants_directory();
                let stays = last && !wants_directory && flags.contains(WalkFlags::NOFOLLOW);
                if found.inode.kind() == FileType::Symlink && !stays {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::ELOOP);
                    }
                    let target = self.readlink(&found.inode)?;
                    if target.is_empty() {
                        return Err(Errno::ENOENT);
                    }
                    if target.first() == Some(&b'/') {
                        at = root.clone();
                    }
                    path = rest.behind(&target);
                    rest = Rest::new(&path)?;
                    continue 'path;
                }
                if wants_directory && found.inode.kind() != FileType::Directory {
                    return Err(Errno::ENOTDIR);
                }
                at = found.dentry;
            }
            return Ok(at);
        }
    }
}
