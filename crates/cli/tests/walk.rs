//! `vfscale walk`: no mount, no privileges, and the same names on both sides.

mod common;

use std::fs;

use common::{run_words, scratch};

#[test]
fn both_sides_find_the_same_names() {
    let dir = scratch();
    let root = dir.path().join("src");
    for number in 0..40 {
        let sub = root.join(format!("a{}/b{}", number % 4, number % 7));
        fs::create_dir_all(&sub).expect("made");
        fs::write(sub.join(format!("file {number}\n")), "x").expect("written");
        let _ = std::os::unix::fs::symlink("..", sub.join("up"));
    }
    let json = dir.path().join("out.json");
    let json = json.to_str().expect("plain");
    let root = root.to_str().expect("plain");
    for threads in ["1", "4"] {
        let words = ["walk", root, "--threads", threads, "--rounds", "2", "--json", json];
        let ran = run_words(words).expect_code(0);
        assert!(ran.stdout.contains("names per second"), "{}", ran.stdout);
        let data: serde_json::Value =
            serde_json::from_slice(&fs::read(json).expect("written")).expect("JSON");
        // 4 upper and 28 lower directories, one link in each lower one, 40 files.
        for side in ["host", "core"] {
            assert_eq!(data[side]["first"]["names"], 100, "{data:#}");
            assert_eq!(data[side]["again"]["names"], 100, "{data:#}");
            assert_eq!(data[side]["lookups"]["names"], 200, "{data:#}");
            assert_eq!(data[side]["directories"], 33, "{data:#}");
            assert_eq!(data[side]["first"]["failures"], serde_json::json!({}), "{data:#}");
        }
        // The backend was asked once for each name; everything later came from the cache.
        assert_eq!(data["summary"]["lookups"]["backend"], 100, "{data:#}");
        assert!(data["summary"]["lookups"]["rcu"].as_u64() > Some(300), "{data:#}");
    }
}

#[test]
fn a_tree_in_memory_keeps_to_the_limit() {
    let dir = scratch();
    let json = dir.path().join("out.json");
    let json = json.to_str().expect("plain");
    let words = [
        "walk",
        "mem:",
        "--files",
        "20000",
        "--max-names",
        "2000",
        "--rounds",
        "1",
        "--json",
        json,
    ];
    let ran = run_words(words).expect_code(0);
    assert!(ran.stdout.contains("limit 2,000"), "{}", ran.stdout);
    let data: serde_json::Value =
        serde_json::from_slice(&fs::read(json).expect("written")).expect("JSON");
    // 20,000 files in 200 directories in 2 above.
    assert_eq!(data["core"]["first"]["names"], 20_202, "{data:#}");
    assert_eq!(data["host"], serde_json::Value::Null);
    let peak = data["summary"]["cache"]["names_peak"].as_u64().expect("a number");
    assert!(peak <= 2_200, "{peak} names were cached");
    assert!(data["summary"]["upkeep"]["freed"].as_u64() > Some(10_000), "{data:#}");
}

#[test]
fn an_empty_directory_is_a_tree_too() {
    let dir = scratch();
    let ran = run_words(["walk", dir.path().to_str().expect("plain")]).expect_code(0);
    assert!(ran.stdout.contains("0 names in 1 directory"), "{}", ran.stdout);
}
