//! Guards that are lost keep their section open for ever, so this test has a process of its own.
#![cfg(all(feature = "std", not(any(loom, shuttle))))]
#![allow(missing_docs)]

use vfscale_sync::rcu;

/// Guards have no size, so a program can lose any number of them; the count of them never starts anew.
#[test]
fn sections_beyond_number_are_refused() {
    let outcome = std::thread::spawn(|| {
        let guard = rcu::pin();
        for _ in 0..1 << 24 {
            let _ = std::mem::ManuallyDrop::new(guard.clone());
        }
    })
    .join();
    let panic = outcome.unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("more sections"), "by name");
}
