//! The zones of a `FileRef`, one by one, then lives and deaths in a crowd.
use super::*;
use crate::rcu;
use std::sync::atomic::AtomicU32;

fn seeded(word: u64) -> FileRef {
    FileRef(AtomicU64::new(word))
}

fn word(refs: &FileRef) -> u64 {
    refs.0.load(Relaxed)
}

#[test]
fn counts_until_the_last() {
    let guard = rcu::pin();
    let refs = FileRef::new();
    assert_eq!(refs.count(), 1);
    assert_eq!(refs.get(), GetFile::Taken);
    assert_eq!(refs.count(), 2);
    assert_eq!(refs.put(&guard), PutFile::StillLive);
    assert_eq!(refs.put(&guard), PutFile::Last);
    assert_eq!(refs.count(), 0);
    for _ in 0..10 {
        assert_eq!(refs.get(), GetFile::Dead);
    }
    refs.reset();
    assert_eq!((refs.get(), refs.count()), (GetFile::Taken, 2));
}

#[test]
fn a_get_between_the_last_put_and_the_decision_revives() {
    let refs = seeded(NOREF);
    assert_eq!(refs.count(), 0, "zero references, and not dead");
    assert_eq!(refs.get(), GetFile::Taken);
    assert_eq!(refs.count(), 1);
    assert_eq!(refs.put_slow(NOREF), PutFile::StillLive, "the put that lost does not destroy");
    assert_eq!(refs.count(), 1);
}

#[test]
fn the_top_of_the_valid_zone_saturates_and_leaks() {
    let guard = rcu::pin();
    let refs = seeded(i64::MAX.cast_unsigned() - 1);
    assert_eq!(refs.get(), GetFile::Taken);
    assert_eq!(refs.get(), GetFile::Dead, "one more is refused");
    assert_eq!(refs.get(), GetFile::Dead);
    assert_eq!(refs.put(&guard), PutFile::StillLive);
    assert_eq!(word(&refs), SATURATED);
    assert_eq!(refs.put(&guard), PutFile::StillLive);
    assert_eq!(refs.get(), GetFile::Dead);
}

#[test]
fn many_at_once_are_taken_or_none() {
    let guard = rcu::pin();
    let refs = FileRef::new();
    assert_eq!((refs.get_many(300), refs.count()), (GetFile::Taken, 301));
    assert_eq!((refs.get_many(0), refs.count()), (GetFile::Taken, 301));
    for _ in 0..300 {
        assert_eq!(refs.put(&guard), PutFile::StillLive);
    }
    assert_eq!(refs.put(&guard), PutFile::Last);
    assert_eq!(refs.get_many(u16::MAX), GetFile::Dead);
    assert_eq!(refs.get_many(1), GetFile::Dead);

    let undecided = seeded(NOREF);
    assert_eq!((undecided.get_many(3), undecided.count()), (GetFile::Taken, 3));
    let nearly_full = seeded(i64::MAX.cast_unsigned() - 10);
    assert_eq!(nearly_full.get_many(11), GetFile::Dead, "all or none");
}

#[test]
fn who_expects_to_be_last_decides_in_one_step() {
    let refs = FileRef::new();
    assert_eq!(refs.get(), GetFile::Taken);
    assert_eq!(refs.put_close(), PutFile::StillLive);
    assert_eq!(refs.put_close(), PutFile::Last);
    assert_eq!((refs.get(), refs.count()), (GetFile::Dead, 0));
    let saturated = seeded(SATURATED + 5);
    assert_eq!(saturated.put_close(), PutFile::StillLive);
    assert_eq!(word(&saturated), SATURATED);
}

#[test]
#[should_panic(expected = "dropped twice")]
fn a_closing_put_of_the_dead_is_caught() {
    let refs = FileRef::new();
    assert_eq!(refs.put_close(), PutFile::Last);
    let _ = refs.put_close();
}

#[test]
#[should_panic(expected = "dropped twice")]
fn a_put_of_the_dead_is_caught() {
    let guard = rcu::pin();
    let refs = FileRef::new();
    assert_eq!(refs.put(&guard), PutFile::Last);
    let _ = refs.put(&guard);
}

#[test]
fn one_death_per_life_and_no_reference_after_it() {
    for _ in 0..300 {
        let refs = FileRef::new();
        let deaths = AtomicU32::new(0);
        let put = || {
            let guard = rcu::pin();
            if refs.put(&guard) == PutFile::Last {
                deaths.fetch_add(1, Relaxed);
            }
        };
        crate::testing::scope(|s| {
            let users = [(); 3].map(|()| {
                s.spawn(|| {
                    for _ in 0..50 {
                        if refs.get() == GetFile::Dead {
                            return;
                        }
                        assert_eq!(deaths.load(Relaxed), 0, "a reference after death");
                        put();
                    }
                })
            });
            s.spawn(put).join().unwrap();
            users.into_iter().for_each(|user| user.join().unwrap());
        });
        assert_eq!(deaths.load(Relaxed), 1);
        assert_eq!(refs.get(), GetFile::Dead);
    }
}
