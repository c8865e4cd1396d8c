//! `vfscale pages`: what packagers and shells read.

mod common;

use std::fs;
use std::process::Command;

use common::{installed, run, scratch, vfscale};

#[test]
fn pages_and_completions_know_every_command() {
    let dir = scratch();
    run(vfscale().arg("pages").arg(dir.path())).expect_code(0);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);
    let main = read("vfscale.1");
    for command in ["exec", "mount", "umount", "stat", "walk"] {
        assert!(main.contains(&format!("vfscale\\-{command}(1)")), "{command}: {main}");
        assert!(read(&format!("vfscale-{command}.1")).contains(".SH SYNOPSIS"));
        for completion in ["vfscale.bash", "_vfscale", "vfscale.fish"] {
            assert!(read(completion).contains(command), "{command} in {completion}");
        }
    }
    let mount = read("vfscale-mount.1");
    for option in ["passthrough", "cache", "background", "pid\\-file", "max\\-names"] {
        assert!(mount.contains(&format!("\\-\\-{option}")), "{option}: {mount}");
    }
    assert!(!mount.contains("detached"), "an inner option: {mount}");
    if installed("bash") {
        run(Command::new("bash").arg("-n").arg(dir.path().join("vfscale.bash"))).expect_code(0);
    }
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    run(vfscale().args(["pages", "/nowhere"])).expect_refusal(1, "No such file");
    run(vfscale().arg("pages")).expect_refusal(2, "<DIR>");
}
