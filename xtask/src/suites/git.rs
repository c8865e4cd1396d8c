//! The life of a git repository on a mount: commits, branches, a merge, packing, a clone.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::mount::Mount;
use super::tools::need;
use super::{Bench, Tally};
use crate::run::{Outcome, output};

pub(crate) fn run(bench: &Bench, tally: &mut Tally) -> Outcome {
    need("git", "git")?;
    let files = bench.pick(100, 2_000);
    for &backend in &bench.backends {
        let mount = Mount::new(bench, backend.name(), backend)?;
        let dir = mount.path();
        let repo = dir.join("repo");
        let mut case = |name: &str, outcome: Outcome| {
            tally.case(&format!("{}: {name}", backend.name()), outcome);
        };
        case("init and first commit", first_commit(dir, &repo, files));
        case("status is clean", clean(&repo));
        case("branch, rename all, merge", merge(&repo, files));
        case("gc", git(&repo, &["gc", "--quiet", "--prune=now"]));
        case("fsck", git(&repo, &["fsck", "--full", "--strict"]));
        case("clone and compare", clone(dir, &repo));
        case("status is clean at the end", clean(&repo));
        mount.unmount()?;
    }
    Ok(())
}

/// One git command with an identity of its own and nobody's configuration.
fn git(repo: &Path, args: &[&str]) -> Outcome {
    said(repo, args).map(drop)
}

fn said(repo: &Path, args: &[&str]) -> Outcome<String> {
    let mut command = Command::new("git");
    command
        .args(["-c", "user.name=suite", "-c", "user.email=suite@localhost"])
        .args(["-c", "init.defaultBranch=main", "-c", "gc.auto=0", "-c", "safe.directory=*"])
        .args(args)
        .current_dir(repo)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    Ok(String::from_utf8_lossy(&output(&mut command)?).into_owned())
}

fn first_commit(dir: &Path, repo: &Path, files: usize) -> Outcome {
    git(dir, &["init", "--quiet", "repo"])?;
    for number in 0..files {
        let sub = repo.join(format!("dir{}", number % 20));
        fs::create_dir_all(&sub)?;
        fs::write(
            sub.join(format!("file{number}")),
            format!("line {number}\n").repeat(number % 50),
        )?;
    }
    git(repo, &["add", "."])?;
    git(repo, &["commit", "--quiet", "-m", "first"])
}

fn clean(repo: &Path) -> Outcome {
    let status = said(repo, &["status", "--porcelain"])?;
    if status.is_empty() { Ok(()) } else { Err(format!("status says:\n{status}").into()) }
}

fn merge(repo: &Path, files: usize) -> Outcome {
    git(repo, &["checkout", "--quiet", "-b", "moved"])?;
    git(repo, &["mv", "dir0", "moved-dir"])?;
    git(repo, &["commit", "--quiet", "-m", "move"])?;
    git(repo, &["checkout", "--quiet", "main"])?;
    fs::write(repo.join("dir1/file1"), "changed\n")?;
    git(repo, &["commit", "--quiet", "-a", "-m", "change"])?;
    git(repo, &["merge", "--quiet", "--no-edit", "moved"])?;
    let listed = said(repo, &["ls-files"])?.lines().count();
    if listed != files {
        return Err(format!("{listed} files after the merge, not {files}").into());
    }
    if repo.join("dir0").exists() || !repo.join("moved-dir").is_dir() {
        return Err("the merge did not move dir0".into());
    }
    Ok(())
}

fn clone(dir: &Path, repo: &Path) -> Outcome {
    git(dir, &["clone", "--quiet", "--no-hardlinks", "repo", "copy"])?;
    let (ours, theirs) =
        (said(repo, &["rev-parse", "HEAD"])?, said(&dir.join("copy"), &["rev-parse", "HEAD"])?);
    if ours != theirs {
        return Err("the clone's head differs".into());
    }
    // The clone's worktree against the first one's, by content.
    output(
        Command::new("diff")
            .args(["--recursive", "--exclude=.git", "repo", "copy"])
            .current_dir(dir),
    )
    .map(drop)
}
