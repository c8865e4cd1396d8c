//! A thread that acted as somebody is itself again, also after a panic.

use super::*;

/// The lines of this thread's status that tell who it is.
fn identity() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let tells =
        |line: &&str| ["Uid:", "Gid:", "Groups:", "CapEff:"].iter().any(|k| line.starts_with(k));
    status.lines().filter(tells).map(str::to_owned).collect()
}

fn somebody() -> Context {
    Context { uid: 1234, gid: 5678, groups: Some(vec![1, 2, 3]), pid: 0 }
}

#[test]
fn identity_is_put_back() {
    let before = identity();
    let server = Server::new(true);
    let acting = server.act_as(&somebody(), 0o2755).unwrap();
    if server.may_switch {
        let now = identity();
        assert!(now[0].ends_with("\t1234") && now[1].ends_with("\t5678"), "{now:?}");
        assert_eq!(now[2].split_ascii_whitespace().count(), 4);
        assert_ne!(now[3], before[3]);
    }
    drop(acting);
    assert_eq!(identity(), before);
}

#[test]
fn identity_is_put_back_after_a_panic() {
    let before = identity();
    let panicked = std::panic::catch_unwind(|| {
        let _acting = Server::new(true).act_as(&somebody(), 0o2755).unwrap();
        std::panic::resume_unwind(Box::new("no message"));
    });
    assert!(panicked.is_err());
    assert_eq!(identity(), before);
}

#[test]
fn other_threads_stay_the_server() {
    let before = identity();
    let (go, wait) = std::sync::mpsc::channel();
    // Spawned first: a thread starts with the identity of the one that starts it.
    let other = std::thread::spawn(move || {
        wait.recv().unwrap();
        identity()
    });
    let _acting = Server::new(true).act_as(&somebody(), 0).unwrap();
    go.send(()).unwrap();
    assert_eq!(other.join().unwrap(), before);
}

#[test]
fn an_id_that_means_unchanged_is_refused() {
    let nobody = Context { uid: u32::MAX, ..somebody() };
    let server = Server::new(true);
    assert_eq!(server.act_as(&nobody, 0).is_err(), server.may_switch);
}

#[test]
fn groups_are_read_from_the_process() {
    let own: Vec<u32> = getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
    let mut read = groups_of_process(std::process::id()).unwrap();
    read.sort_unstable();
    assert!(own.iter().all(|id| read.contains(id)));
    assert_eq!(groups_of_process(u32::MAX), None);
}

/// A thread that kept a caller's identity would serve the next one with it.
#[test]
fn who_cannot_become_itself_again_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const CHILD: &str = "VFSCALE_TEST_IDENTITY_LOST";
    if std::env::var_os(CHILD).is_some() {
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
        // No thread can take on this id.
        let uid = Some(u32::MAX);
        drop(Acting { caps: None, groups: None, uid, gid: None, _this_thread: PhantomData });
        return;
    }
    let name = "who_cannot_become_itself_again_ends_the_process";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", name])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the server's user id did not come back"), "{said}");
}
