//! Random operations on the core and on a plain map; the whole tree is compared after each step.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use vfscale::{
    Context, Errno, FileSystem, FileType, OpenFlags, Options, Reclaim, RenameFlags, Vfs,
};
use vfscale_backends::{Faulty, HostFs, HostOptions, MemFs};

const CX: Context = Context::root();

#[derive(Clone, Debug)]
enum Op {
    Mkdir(String),
    Write(String, Vec<u8>),
    Symlink(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String),
    Exchange(String, String),
    NoReplace(String, String),
    Shrink(u64),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[abc]", 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => path().prop_map(Op::Mkdir),
        4 => (path(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(p, d)| Op::Write(p, d)),
        1 => (path(), "[abc]{1,3}").prop_map(|(p, t)| Op::Symlink(p, t)),
        2 => (path(), path()).prop_map(|(a, b)| Op::Link(a, b)),
        2 => path().prop_map(Op::Unlink),
        2 => path().prop_map(Op::Rmdir),
        4 => (path(), path()).prop_map(|(a, b)| Op::Rename(a, b)),
        2 => (path(), path()).prop_map(|(a, b)| Op::Exchange(a, b)),
        1 => (path(), path()).prop_map(|(a, b)| Op::NoReplace(a, b)),
        1 => (0..10_u64).prop_map(Op::Shrink),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    Dir,
    /// An index into `Model::files`.
    File(usize),
    /// Which of all links made so far, and its target.
    Link(usize, String),
}

/// The tree as a plain map from paths.
#[derive(Default)]
struct Model {
    tree: BTreeMap<String, Thing>,
    files: Vec<Vec<u8>>,
    links: usize,
}

type Answer = Result<(), Errno>;

impl Model {
    fn parent_of(&self, path: &str) -> Answer {
        let mut end = 0;
        while let Some(next) = path[end + 1..].find('/') {
            end += 1 + next;
            match self.tree.get(&path[..end]) {
                Some(Thing::Dir) => {}
                Some(Thing::File(_)) => return Err(Errno::ENOTDIR),
                // Links here lead to names that never exist below themselves in a way the model follows: not generated as parents.
                Some(Thing::Link(..)) | None => return Err(Errno::ENOENT),
            }
        }
        Ok(())
    }

    fn get(&self, path: &str) -> Result<&Thing, Errno> {
        self.parent_of(path)?;
        self.tree.get(path).ok_or(Errno::ENOENT)
    }

    fn free(&self, path: &str) -> Answer {
        self.parent_of(path)?;
        if self.tree.contains_key(path) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.tree.keys().any(|key| key.starts_with(&below))
    }

    /// Takes `path` and all below it out of the tree.
    fn take(&mut self, path: &str) -> Vec<(String, Thing)> {
        let below = format!("{path}/");
        let keys: Vec<String> =
            self.tree.keys().filter(|k| *k == path || k.starts_with(&below)).cloned().collect();
        keys.into_iter()
            .map(|key| (key[path.len()..].to_owned(), self.tree.remove(&key).unwrap()))
            .collect()
    }

    fn put(&mut self, path: &str, things: Vec<(String, Thing)>) {
        for (rest, thing) in things {
            self.tree.insert(format!("{path}{rest}"), thing);
        }
    }

    fn rename(&mut self, from: &str, to: &str, replace: bool) -> Answer {
        self.parent_of(from)?;
        self.parent_of(to)?;
        let moved = self.get(from)?.clone();
        let target = self.tree.get(to).cloned();
        if target.is_some() && !replace {
            return Err(Errno::EEXIST);
        }
        let inside = |below: &str, above: &str| below.starts_with(&format!("{above}/"));
        if moved == Thing::Dir && inside(to, from) {
            return Err(Errno::EINVAL);
        }
        match (&moved, &target) {
            _ if from == to => return Ok(()),
            (_, Some(Thing::Dir)) if inside(from, to) => return Err(Errno::ENOTEMPTY),
            (Thing::Dir, Some(Thing::Dir)) if !self.is_empty(to) => return Err(Errno::ENOTEMPTY),
            (Thing::Dir, Some(Thing::Dir)) | (_, None) => {}
            (Thing::Dir, Some(_)) => return Err(Errno::ENOTDIR),
            (_, Some(Thing::Dir)) => return Err(Errno::EISDIR),
            // Two names of one file or link: nothing happens.
            (Thing::Link(a, _), Some(Thing::Link(b, _))) if a == b => return Ok(()),
            (Thing::File(a), Some(Thing::File(b))) if a == b => return Ok(()),
            _ => {}
        }
        self.tree.remove(to);
        let things = self.take(from);
        self.put(to, things);
        Ok(())
    }

    fn exchange(&mut self, from: &str, to: &str) -> Answer {
        self.parent_of(from)?;
        self.parent_of(to)?;
        self.get(from)?;
        self.get(to)?;
        let inside = |below: &str, above: &str| below.starts_with(&format!("{above}/"));
        if inside(to, from) || inside(from, to) {
            return Err(Errno::EINVAL);
        }
        let (a, b) = (self.take(from), self.take(to));
        self.put(to, a);
        if from != to {
            self.put(from, b);
        }
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Answer {
        match op {
            Op::Mkdir(path) => {
                self.free(path)?;
                self.tree.insert(path.clone(), Thing::Dir);
            }
            Op::Write(path, data) => match self.get(path) {
                Ok(&Thing::File(file)) => self.files[file] = data.clone(),
                Ok(Thing::Dir) => return Err(Errno::EISDIR),
                Ok(Thing::Link(..)) => return Err(Errno::ELOOP),
                Err(Errno::ENOENT) => {
                    self.parent_of(path)?;
                    self.files.push(data.clone());
                    self.tree.insert(path.clone(), Thing::File(self.files.len() - 1));
                }
                Err(error) => return Err(error),
            },
            Op::Symlink(path, target) => {
                self.free(path)?;
                self.links += 1;
                self.tree.insert(path.clone(), Thing::Link(self.links, target.clone()));
            }
            Op::Link(from, to) => {
                let thing = self.get(from)?.clone();
                // What exists is told first.
                self.free(to)?;
                if thing == Thing::Dir {
                    return Err(Errno::EPERM);
                }
                self.tree.insert(to.clone(), thing);
            }
            Op::Unlink(path) => {
                if *self.get(path)? == Thing::Dir {
                    return Err(Errno::EISDIR);
                }
                self.tree.remove(path);
            }
            Op::Rmdir(path) => {
                if *self.get(path)? != Thing::Dir {
                    return Err(Errno::ENOTDIR);
                }
                if !self.is_empty(path) {
                    return Err(Errno::ENOTEMPTY);
                }
                self.tree.remove(path);
            }
            Op::Rename(from, to) => return self.rename(from, to, true),
            Op::NoReplace(from, to) => return self.rename(from, to, false),
            Op::Exchange(from, to) => return self.exchange(from, to),
            Op::Shrink(_) => {}
        }
        Ok(())
    }
}

fn apply<F: FileSystem>(vfs: &Vfs<F>, op: &Op) -> Answer {
    match op {
        Op::Mkdir(path) => vfs.mkdir_path(&CX, path.as_bytes(), 0o755),
        Op::Write(path, data) => {
            let flags =
                OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE | OpenFlags::NOFOLLOW;
            let file = vfs.open_path(&CX, path.as_bytes(), flags, 0o644)?;
            vfs.write(&file, 0, data).map(drop)
        }
        Op::Symlink(path, target) => vfs.symlink_path(&CX, target.as_bytes(), path.as_bytes()),
        Op::Link(from, to) => vfs.link_path(&CX, from.as_bytes(), to.as_bytes()),
        Op::Unlink(path) => vfs.unlink_path(&CX, path.as_bytes()),
        Op::Rmdir(path) => vfs.rmdir_path(&CX, path.as_bytes()),
        Op::Rename(from, to) => {
            vfs.rename_path(&CX, from.as_bytes(), to.as_bytes(), RenameFlags::empty())
        }
        Op::NoReplace(from, to) => {
            vfs.rename_path(&CX, from.as_bytes(), to.as_bytes(), RenameFlags::NOREPLACE)
        }
        Op::Exchange(from, to) => {
            vfs.rename_path(&CX, from.as_bytes(), to.as_bytes(), RenameFlags::EXCHANGE)
        }
        Op::Shrink(n) => {
            vfs.shrink(*n);
            Ok(())
        }
    }
}

/// Everything the core shows: names, types, contents, link counts.
fn compare<F: FileSystem>(vfs: &Vfs<F>, model: &Model) {
    let mut seen = 0;
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let listed = vfs.readdir_all(&CX, format!("{dir}/").as_bytes()).unwrap();
        for entry in listed {
            let path = format!("{dir}/{}", String::from_utf8(entry.name).unwrap());
            seen += 1;
            let attr = vfs.lstat(&CX, path.as_bytes()).unwrap();
            assert_eq!(attr.ino, entry.ino, "{path}");
            match &model.tree[&path] {
                Thing::Dir => {
                    assert_eq!(attr.kind, FileType::Directory, "{path}");
                    dirs.push(path);
                }
                Thing::File(file) => {
                    let names = model.tree.values().filter(|t| **t == Thing::File(*file)).count();
                    assert_eq!(
                        (attr.kind, attr.nlink),
                        (FileType::Regular, names as u32),
                        "{path}"
                    );
                    let mut data = vec![0; attr.size as usize + 1];
                    let open = vfs.open_path(&CX, path.as_bytes(), OpenFlags::READ, 0).unwrap();
                    let n = vfs.read(&open, 0, &mut data).unwrap();
                    assert_eq!(data[..n], model.files[*file], "{path}");
                }
                Thing::Link(_, target) => {
                    let read = vfs.readlink_path(&CX, path.as_bytes()).unwrap();
                    assert_eq!(read, target.as_bytes(), "{path}");
                }
            }
        }
    }
    assert_eq!(seen, model.tree.len());
    for absent in ["/a", "/b", "/c", "/a/a", "/a/b", "/b/a", "/c/c"] {
        let through_link = matches!(model.tree.get(&absent[..2]), Some(Thing::Link(..)));
        if !(model.tree.contains_key(absent) || through_link && absent.len() > 2) {
            assert!(vfs.lstat(&CX, absent.as_bytes()).is_err(), "{absent}");
        }
    }
}

/// Does a path of `op` lead through a link? The model does not follow those; `walk.rs` is about them.
fn through_link(model: &Model, op: &Op) -> bool {
    let through = |path: &str| {
        model.tree.iter().any(|(at, thing)| {
            matches!(thing, Thing::Link(..)) && path.starts_with(&format!("{at}/"))
        })
    };
    match op {
        Op::Mkdir(a) | Op::Write(a, _) | Op::Symlink(a, _) | Op::Unlink(a) | Op::Rmdir(a) => {
            through(a)
        }
        Op::Link(a, b) | Op::Rename(a, b) | Op::Exchange(a, b) | Op::NoReplace(a, b) => {
            through(a) || through(b)
        }
        Op::Shrink(_) => false,
    }
}

fn policy() -> impl Strategy<Value = Reclaim> {
    prop_oneof![Just(Reclaim::Lru), Just(Reclaim::Clock), Just(Reclaim::Sieve)]
}

fn check(ops: &[Op], max_names: u64, policy: Reclaim) {
    let mut options = Options::exclusive();
    options.max_names = max_names;
    options.reclaim = policy;
    check_on(MemFs::new(), ops, options);
}

fn check_on<F: FileSystem>(fs: F, ops: &[Op], options: Options) {
    let vfs = Vfs::new(fs, options).unwrap();
    let mut model = Model::default();
    for (step, op) in ops.iter().enumerate() {
        if through_link(&model, op) {
            continue;
        }
        let expected = model.apply(op);
        assert_eq!(apply(&vfs, op), expected, "step {step}: {op:?}\n{:?}", model.tree);
        compare(&vfs, &model);
    }
    vfs.unmount().unwrap();
}

fn asking() -> Options {
    let mut options = Options::exclusive();
    let never = Duration::ZERO;
    (options.entry_ttl, options.attr_ttl, options.negative_ttl) = (never, never, never);
    options
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_core_does_what_a_plain_map_does(ops in prop::collection::vec(op(), 1..120)) {
        check(&ops, 0, Reclaim::Lru);
    }

    #[test]
    fn and_so_it_does_with_hardly_any_names_cached(ops in prop::collection::vec(op(), 1..120), policy in policy()) {
        check(&ops, 3, policy);
    }

    /// Nothing is believed for a moment: each step of a walk asks, and no answer comes without a reference.
    #[test]
    fn the_same_when_every_name_is_asked_for(ops in prop::collection::vec(op(), 1..80)) {
        check_on(MemFs::new(), &ops, asking());
    }

    #[test]
    fn the_same_through_a_backend_that_wraps_another(ops in prop::collection::vec(op(), 1..60)) {
        check_on(Faulty::new(MemFs::new()), &ops, Options::exclusive());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_on_a_host_directory(ops in prop::collection::vec(op(), 1..50), asks in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let fs = HostFs::new(dir.path(), HostOptions::default()).unwrap();
        check_on(fs, &ops, if asks { asking() } else { Options::exclusive() });
    }
}
