//! The server over a queue in memory: what a kernel seldom does, it does here on purpose.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use vfscale::{
    Attr, Context, DirEntry, Entry, Errno, FileSystem, FileType, InodeKey, OpenFlags, Options,
    Place, Result, Timestamp, Vfs,
};

use super::*;
use crate::FuseStats;
use crate::wire::opcode;

/// Whatever name is asked for exists: a directory if it begins with `d`, else a file. `boom` panics.
struct AnyName {
    /// Handles that were not dropped yet.
    open: Arc<AtomicU32>,
}

struct OpenCount(Arc<AtomicU32>);

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

const LISTED: u64 = 100;

fn attr(ino: u64, kind: FileType) -> Attr {
    let time = Timestamp::default();
    let (uid, gid, rdev, size, blocks) = (0, 0, 0, 0, 0);
    Attr {
        ino,
        kind,
        perm: 0o755,
        nlink: 1,
        uid,
        gid,
        rdev,
        size,
        blocks,
        blksize: 4096,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
    }
}

impl AnyName {
    fn entry(name: &[u8]) -> Entry<Attr> {
        let ino = name.iter().fold(0, |sum, &byte| sum * 251 + u64::from(byte));
        let kind = if name.starts_with(b"d") { FileType::Directory } else { FileType::Regular };
        let attr = attr(ino, kind);
        Entry { key: InodeKey { ino, tag: 0 }, attr, node: attr }
    }

    fn handle(&self) -> OpenCount {
        self.open.fetch_add(1, Relaxed);
        OpenCount(Arc::clone(&self.open))
    }
}

impl FileSystem for AnyName {
    type Node = Attr;
    type Handle = OpenCount;

    fn root(&self) -> Result<Entry<Attr>> {
        Ok(AnyName::entry(b"d"))
    }

    fn lookup(&self, _: &Context, at: Place<'_, Attr>) -> Result<Entry<Attr>> {
        match at.name {
            b"boom" => panic!("the backend has a bug"),
            b"none" => Err(Errno::ENOENT),
            name => Ok(AnyName::entry(name)),
        }
    }

    fn getattr(&self, node: &Attr, _: Option<&OpenCount>) -> Result<Attr> {
        Ok(*node)
    }

    fn create(
        &self,
        _: &Context,
        at: Place<'_, Attr>,
        _: u32,
        _: OpenFlags,
    ) -> Result<(Entry<Attr>, OpenCount)> {
        Ok((AnyName::entry(at.name), self.handle()))
    }

    fn open(&self, _: &Context, _: &Attr, _: OpenFlags) -> Result<OpenCount> {
        Ok(self.handle())
    }

    fn readdir(
        &self,
        _: &OpenCount,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        for i in cookie..LISTED {
            let name = match i {
                0 => ".".to_owned(),
                1 => "..".to_owned(),
                2 => "none".to_owned(),
                _ => format!("f{i}"),
            };
            let entry = DirEntry { name: name.as_bytes(), ino: i + 1, kind: None, next: i + 1 };
            if emit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Requests in a row; the replies are kept, or refused.
#[derive(Default)]
struct Queue {
    requests: Mutex<VecDeque<Vec<u8>>>,
    replies: Mutex<Vec<Vec<u8>>>,
    refuse: AtomicBool,
}

impl Transport for Queue {
    fn receive(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let request = self.requests.lock().unwrap().pop_front();
        Ok(request.map(|request| {
            buf[..request.len()].copy_from_slice(&request);
            request.len()
        }))
    }

    fn reply(&self, message: &[u8]) -> Delivery {
        if self.refuse.load(Relaxed) {
            return Delivery::Refused;
        }
        self.replies.lock().unwrap().push(message.to_owned());
        Delivery::Taken
    }
}

/// A front end and its client.
struct Client {
    front: FrontEnd<AnyName>,
    rules: Rules,
    queue: Queue,
    open: Arc<AtomicU32>,
}

/// Error number (0 for none) and data of a reply.
type Answer = (i32, Vec<u8>);

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn bytes<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

fn request(opcode: u32, node: u64, uid: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend((40 + body.len() as u32).to_ne_bytes());
    message.extend(opcode.to_ne_bytes());
    message.extend(bytes([77, node]));
    message.extend([uid, 0, 1, 0].map(u32::to_ne_bytes).concat());
    message.extend(body);
    message
}

impl Client {
    fn new() -> Client {
        let open = Arc::new(AtomicU32::new(0));
        let vfs = Vfs::new(AnyName { open: Arc::clone(&open) }, Options::default()).unwrap();
        let front = FrontEnd::new(Arc::new(vfs), Box::new(|_| String::new())).unwrap();
        Client { front, rules: Rules::default(), queue: Queue::default(), open }
    }

    fn send(&self, message: Vec<u8>) {
        self.queue.requests.lock().unwrap().push_back(message);
        run(&self.front, &self.rules, &self.queue, &Crew::default()).unwrap();
    }

    fn ask(&self, opcode: u32, node: u64, body: &[u8]) -> Answer {
        self.send(request(opcode, node, 0, body));
        let reply = self.queue.replies.lock().unwrap().pop().expect("a reply");
        assert_eq!(reply.len(), u32::from_ne_bytes(reply[..4].try_into().unwrap()) as usize);
        assert_eq!(u64_at(&reply, 8), 77);
        let error = i32::from_ne_bytes(reply[4..8].try_into().unwrap());
        (-error, reply[16..].to_owned())
    }

    /// Asks, and the reply is refused.
    fn ask_in_vain(&self, opcode: u32, node: u64, body: &[u8]) {
        self.queue.refuse.store(true, Relaxed);
        self.send(request(opcode, node, 0, body));
        self.queue.refuse.store(false, Relaxed);
    }

    fn lookup(&self, name: &str) -> u64 {
        let (error, data) = self.ask(opcode::LOOKUP, 1, format!("{name}\0").as_bytes());
        assert_eq!(error, 0);
        u64_at(&data, 0)
    }

    fn stats(&self) -> FuseStats {
        self.front.stats()
    }

    fn counts(&self) -> (u64, u64) {
        (self.stats().nodes, self.stats().lookup_counts)
    }
}

#[test]
fn each_lookup_is_one_count() {
    let client = Client::new();
    let (a, d) = (client.lookup("a"), client.lookup("dir"));
    assert_ne!(a, d);
    assert_eq!(client.lookup("a"), a);
    assert_eq!(client.counts(), (3, 3));
    client.send(request(opcode::FORGET, a, 0, &bytes([1])));
    assert_eq!(client.counts(), (3, 2));
    // More than it has: nothing changes.
    client.send(request(opcode::FORGET, a, 0, &bytes([2])));
    assert_eq!((client.counts(), client.stats().refused_forgets), ((3, 2), 1));
    client.send(request(opcode::BATCH_FORGET, 0, 0, &bytes([2, a, 1, d, 1])));
    assert_eq!(client.counts(), (1, 0));
    assert_eq!(client.ask(opcode::GETATTR, a, &bytes([0, 0])).0, Errno::ESTALE.raw());
    assert!(client.queue.replies.lock().unwrap().is_empty(), "a forget has no reply");
    // Looked up again it may have the same id or another; the root's and 0 it never has.
    assert!(client.lookup("a") > 1);
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn refused_forgets_are_logged_and_do_not_fill_the_log() {
    let (client, log) = (Client::new(), Log::default());
    let a = client.lookup("a");
    let out = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || out.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..1000 {
            client.send(request(opcode::FORGET, a, 0, &bytes([2])));
        }
    });
    assert_eq!(client.stats().refused_forgets, 1000);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!((1..=10).contains(&log.lines().count()), "{log}");
    assert!(log.lines().next().unwrap().contains("refused a FORGET"), "{log}");
    assert!(log.lines().last().unwrap().contains("refused=512"), "{log}");
}

#[test]
fn the_root_needs_no_count() {
    let client = Client::new();
    client.send(request(opcode::FORGET, 1, 0, &bytes([1000])));
    assert_eq!(client.ask(opcode::GETATTR, 1, &bytes([0, 0])).0, 0);
    assert_eq!(client.stats().refused_forgets, 0);
}

#[test]
fn absence_is_told_with_a_time() {
    let client = Client::new();
    let (error, data) = client.ask(opcode::LOOKUP, 1, b"none\0");
    assert_eq!((error, u64_at(&data, 0), u64_at(&data, 16)), (0, 0, 1));
    assert_eq!(client.counts(), (1, 0));
}

#[test]
fn what_a_refused_reply_gave_comes_back() {
    let client = Client::new();
    client.ask_in_vain(opcode::LOOKUP, 1, b"a\0");
    assert_eq!(client.counts(), (1, 0));
    let mut create = bytes([0, 0]);
    create.extend(b"new\0");
    client.ask_in_vain(opcode::CREATE, 1, &create);
    assert_eq!((client.counts(), client.stats().open_files), ((1, 0), 0));
    assert_eq!(client.open.load(Relaxed), 0);
    client.ask_in_vain(opcode::OPENDIR, 1, &bytes([0]));
    assert_eq!((client.stats().open_files, client.open.load(Relaxed)), (0, 0));
    let file = u64_at(&client.ask(opcode::OPENDIR, 1, &bytes([0])).1, 0);
    client.ask_in_vain(opcode::READDIRPLUS, 1, &bytes([file, 0, 4096, 0, 0]));
    assert_eq!(client.counts(), (1, 0));
    assert_eq!(client.ask(opcode::RELEASEDIR, 1, &bytes([file, 0, 0])).0, 0);
    assert_eq!(client.open.load(Relaxed), 0);
}

#[test]
fn a_listing_counts_what_it_tells() {
    let client = Client::new();
    let dir = u64_at(&client.ask(opcode::OPENDIR, 1, &bytes([0])).1, 0);
    let (mut cookie, mut names, mut given) = (0, 0, 0);
    loop {
        let (error, data) = client.ask(opcode::READDIRPLUS, 1, &bytes([dir, cookie, 1000, 0, 0]));
        assert_eq!(error, 0);
        assert!(data.len() <= 1000);
        let mut rest = &data[..];
        while !rest.is_empty() {
            given += u64::from(u64_at(rest, 0) != 0);
            cookie = u64_at(rest, 128 + 8);
            let len = u32::from_ne_bytes(rest[144..148].try_into().unwrap()) as usize;
            names += 1;
            rest = &rest[wire_size(len)..];
        }
        if data.is_empty() {
            break;
        }
    }
    // All but `.`, `..` and the name that was gone when it was looked up.
    assert_eq!((names, given), (LISTED, LISTED - 3));
    assert_eq!(client.counts(), (LISTED - 2, LISTED - 3));
    client.front.end();
    assert_eq!((client.counts(), client.stats().open_files), ((1, 0), 0));
    assert_eq!(client.open.load(Relaxed), 0);
}

fn wire_size(name_len: usize) -> usize {
    crate::wire::dirent_size(name_len, true)
}

#[test]
fn a_panic_is_an_error_of_one_request() {
    let client = Client::new();
    assert_eq!(client.ask(opcode::LOOKUP, 1, b"boom\0").0, Errno::EIO.raw());
    // The directory and the name work on.
    assert!(client.lookup("a") > 1);
    assert_eq!(client.ask(opcode::LOOKUP, 1, b"boom\0").0, Errno::EIO.raw());
    assert_eq!(client.counts(), (2, 1));
}

#[test]
fn errors_by_kind() {
    let client = Client::new();
    let file = client.lookup("a");
    let error = |opcode, node, body: &[u8]| client.ask(opcode, node, body).0;
    assert_eq!(error(opcode::LOOKUP, file, b"x\0"), Errno::ENOTDIR.raw());
    assert_eq!(error(opcode::LOOKUP, 99, b"x\0"), Errno::ESTALE.raw());
    for name in [&b"\0"[..], b".\0", b"..\0", b"a/b\0"] {
        assert_eq!(error(opcode::LOOKUP, 1, name), Errno::EINVAL.raw());
    }
    assert_eq!(error(opcode::LOOKUP, 1, &[b'n'; 256 + 1]), Errno::EINVAL.raw());
    assert_eq!(error(opcode::READ, 1, &bytes([55, 0, 1, 0, 0])), Errno::EBADF.raw());
    assert_eq!(error(opcode::READ, 1, &bytes([u64::MAX, 0, 1, 0, 0])), Errno::EBADF.raw());
    assert_eq!(error(opcode::RELEASE, 1, &bytes([3, 0, 0])), Errno::EBADF.raw());
    assert_eq!(error(opcode::OPENDIR, file, &bytes([0])), Errno::ENOTDIR.raw());
    assert_eq!(error(opcode::RENAME2, 1, &bytes([1, 8])), Errno::EINVAL.raw());
    assert_eq!(error(opcode::IOCTL, 1, &[]), Errno::ENOTTY.raw());
    assert_eq!(error(opcode::SETATTR, 1, &[0; 12]), Errno::EINVAL.raw());
    assert_eq!(error(9999, 1, &[]), Errno::ENOSYS.raw());
}

#[test]
fn a_session_may_be_for_one_user() {
    let mut client = Client::new();
    client.rules.only = Some(1000);
    let asks = |uid| {
        client.send(request(opcode::GETATTR, 1, uid, &bytes([0, 0])));
        let reply = client.queue.replies.lock().unwrap().pop().unwrap();
        -i32::from_ne_bytes(reply[4..8].try_into().unwrap())
    };
    assert_eq!([0, 1000, 1001].map(asks), [0, 0, Errno::EACCES.raw()]);
    // A descriptor that was passed on is closed by whoever has it: that may fail for want of a file, not of the right.
    client.send(request(opcode::FLUSH, 1, 1001, &bytes([55, 0, 0])));
    let reply = client.queue.replies.lock().unwrap().pop().unwrap();
    assert_eq!(-i32::from_ne_bytes(reply[4..8].try_into().unwrap()), Errno::EBADF.raw());
}

#[test]
fn the_live_numbers_are_made_ten_times_a_second_at_most() {
    let made = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&made);
    let mut client = Client::new();
    let vfs = Vfs::new(AnyName { open: Arc::clone(&client.open) }, Options::default()).unwrap();
    let report = move |stats: &FuseStats| {
        count.fetch_add(1, Relaxed);
        format!("{stats:?}")
    };
    client.front = FrontEnd::new(Arc::new(vfs), Box::new(report)).unwrap();
    let ask = || {
        let mut body = bytes([4096]);
        body.extend(format!("{}\0", crate::STATS_XATTR).as_bytes());
        let (error, text) = client.ask(opcode::GETXATTR, 1, &body);
        assert_eq!(error, 0);
        String::from_utf8(text).unwrap()
    };
    let start = std::time::Instant::now();
    (0..1000).for_each(|_| assert!(ask().contains("nodes: 1,")));
    let most = 1 + (start.elapsed().as_millis() / 100) as u32;
    assert!(made.load(Relaxed) <= most, "{made:?} in {:?}", start.elapsed());
    client.lookup("a");
    std::thread::sleep(std::time::Duration::from_millis(110));
    assert!(ask().contains("nodes: 2,"));
}

/// Whatever bytes come: an answer, and no panic. (A panic would be answered too, so the dispatcher is called without the net.)
#[test]
fn any_bytes_are_answered() {
    let client = Client::new();
    let known = [client.lookup("a"), client.lookup("dir"), 1];
    let mut reply = Reply::new();
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    for _ in 0..50_000 {
        let len = random() as usize % 120;
        let mut body: Vec<u8> =
            (0..len).map(|_| if random() % 3 == 0 { random() as u8 } else { 0 }).collect();
        if random() % 2 == 0 {
            body.push(0);
        }
        let node = known[random() as usize % 3];
        let mut message = request(random() as u32 % 56, node, 0, &body);
        if random() % 8 == 0 {
            message[36] = random() as u8 % 16;
        }
        let Some(request) = Request::parse(&message) else { continue };
        if matches!(request.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            continue; // may well forget what the others need
        }
        reply.clear();
        let answer = dispatch::answer(&client.front, &client.rules, &request, &mut reply);
        drop(answer); // as if refused
    }
    assert_eq!(client.counts(), (3, 2));
}
