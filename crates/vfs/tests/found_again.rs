//! A backend hears of the nodes that it made for an object which the core knew: where the place was accepted, and only there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use vfscale::sync::QRwLock;
use vfscale::{
    Attr, Context, Entry, Errno, FileSystem, FileType, InodeKey, Options, Place, RenameFlags,
    Result, Vfs,
};

const CX: Context = Context::root();

/// Each node made for an object has a number of its own.
#[derive(Debug)]
struct Node {
    ino: u64,
    made: u32,
}

/// Directories have numbers below 100. Names are changed behind the core's back.
#[derive(Default)]
struct State {
    names: QRwLock<HashMap<(u64, Vec<u8>), u64>>,
    made: AtomicU32,
    /// Object, the node known, the node made again.
    heard: QRwLock<Vec<(u64, u32, u32)>>,
}

struct Backend(Arc<State>);

impl State {
    fn set(&self, dir: u64, name: &str, ino: u64) {
        self.names.write().insert((dir, name.into()), ino);
    }

    fn clear(&self, dir: u64, name: &str) {
        self.names.write().remove(&(dir, name.into()));
    }

    fn entry(&self, ino: u64) -> Entry<Node> {
        let kind = if ino < 100 { FileType::Directory } else { FileType::Regular };
        let attr = Attr::new(ino, kind);
        let made = self.made.fetch_add(1, SeqCst);
        Entry { key: InodeKey { ino, tag: 0 }, attr, node: Node { ino, made } }
    }

    /// The objects that were heard of since the last call; the known node is always the first.
    fn heard(&self) -> Vec<u64> {
        let heard = std::mem::take(&mut *self.heard.write());
        assert!(heard.iter().all(|(_, known, again)| known < again), "{heard:?}");
        heard.into_iter().map(|(ino, ..)| ino).collect()
    }
}

impl FileSystem for Backend {
    type Node = Node;
    type Handle = ();

    fn root(&self) -> Result<Entry<Node>> {
        Ok(self.0.entry(1))
    }

    fn lookup(&self, _: &Context, at: Place<'_, Node>) -> Result<Entry<Node>> {
        let ino = self.0.names.read().get(&(at.dir.ino, at.name.to_vec())).copied();
        Ok(self.0.entry(ino.ok_or(Errno::ENOENT)?))
    }

    fn found_again(&self, known: &Node, again: &Node) {
        assert_eq!(known.ino, again.ino);
        self.0.heard.write().push((known.ino, known.made, again.made));
    }

    fn getattr(&self, node: &Node, _: Option<&()>) -> Result<Attr> {
        Ok(self.0.entry(node.ino).attr)
    }

    /// Makes an object that is there already, as a number that is used again would.
    fn mkdir(&self, _: &Context, _: Place<'_, Node>, perm: u32) -> Result<Entry<Node>> {
        Ok(self.0.entry(u64::from(perm)))
    }

    fn mknod(&self, _: &Context, _: Place<'_, Node>, _: u32, rdev: u64) -> Result<Entry<Node>> {
        Ok(self.0.entry(rdev))
    }

    fn rename(
        &self,
        _: &Context,
        from: Place<'_, Node>,
        to: Place<'_, Node>,
        _: RenameFlags,
        moved: &Node,
        _: Option<&Node>,
    ) -> Result<()> {
        self.0.names.write().remove(&(from.dir.ino, from.name.to_vec()));
        self.0.names.write().insert((to.dir.ino, to.name.to_vec()), moved.ino);
        Ok(())
    }
}

fn mount(ttl: Duration) -> (Vfs<Backend>, Arc<State>) {
    let state = Arc::new(State::default());
    let mut options = Options::exclusive();
    (options.entry_ttl, options.attr_ttl, options.negative_ttl) = (ttl, ttl, ttl);
    (Vfs::new(Backend(state.clone()), options).unwrap(), state)
}

#[test]
fn a_second_name_and_a_stale_one() {
    let (vfs, state) = mount(Duration::ZERO);
    state.set(1, "x", 200);
    state.set(1, "y", 200);
    let root = vfs.root();
    vfs.lookup(&CX, &root, b"x").unwrap();
    assert_eq!(state.heard(), []);
    vfs.lookup(&CX, &root, b"y").unwrap();
    assert_eq!(state.heard(), [200], "another name of the inode");
    vfs.lookup(&CX, &root, b"x").unwrap();
    assert_eq!(state.heard(), [200], "the name was asked for again");
    state.set(1, "x", 201);
    vfs.lookup(&CX, &root, b"x").unwrap();
    assert_eq!(state.heard(), [], "it leads to another, which is new");
    // Under the exclusive lock.
    vfs.rename(&CX, &root, b"y", &root, b"z", RenameFlags::empty()).unwrap();
    assert!(state.heard().contains(&200));
}

#[test]
fn a_directory_is_heard_of_where_it_is_accepted() {
    let (vfs, state) = mount(Duration::ZERO);
    let root = vfs.root();
    state.set(1, "a", 7);
    state.set(7, "b", 8);
    state.set(1, "c", 9);
    let a = vfs.lookup(&CX, &root, b"a").unwrap();
    let b = vfs.lookup(&CX, &a.dentry, b"b").unwrap();
    let c = vfs.lookup(&CX, &root, b"c").unwrap();
    state.heard();
    // Moved behind our back.
    state.clear(7, "b");
    state.set(9, "b", 8);
    assert_eq!(vfs.lookup(&CX, &c.dentry, b"b").unwrap().dentry, b.dentry);
    assert_eq!(state.heard(), [8]);
    // Shown below itself: refused.
    state.set(8, "loop", 9);
    assert_eq!(vfs.lookup(&CX, &b.dentry, b"loop").map(drop), Err(Errno::ELOOP));
    assert_eq!(state.heard(), []);
}

#[test]
fn what_was_made_is_known_already() {
    let (vfs, state) = mount(Duration::MAX);
    let root = vfs.root();
    state.set(1, "x", 200);
    state.set(1, "d", 9);
    vfs.lookup(&CX, &root, b"x").unwrap();
    vfs.lookup(&CX, &root, b"d").unwrap();
    vfs.mknod(&CX, &root, b"new", 0o644, 201).unwrap();
    assert_eq!(state.heard(), []);
    vfs.mknod(&CX, &root, b"again", 0o644, 200).unwrap();
    assert_eq!(state.heard(), [200]);
    // A directory has one place, so this one is refused.
    assert_eq!(vfs.mkdir(&CX, &root, b"e", 9).map(drop), Err(Errno::ESTALE));
    assert_eq!(state.heard(), []);
}
