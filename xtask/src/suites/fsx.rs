//! Random reads, writes, maps, truncations and copies of one file by fsx, each read compared with what must be there.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::mount::Mount;
use super::tools::Tool;
use super::{Backend, Bench, Tally};
use crate::run::{Outcome, output};

const FSX: Tool = Tool { name: "fsx", version: "0.3.2" };

/// Three starting numbers for its generator.
const SEEDS: [u64; 3] = [1, 20_260_801, 987_654_321];

/// All the operations it knows on Linux. Its defaults are a third of them.
const ALL_OPERATIONS: &[(&str, u32)] = &[
    ("close_open", 1),
    ("read", 10),
    ("write", 10),
    ("mapread", 10),
    ("mapwrite", 10),
    ("invalidate", 1),
    ("truncate", 10),
    ("fsync", 1),
    ("fdatasync", 1),
    ("posix_fallocate", 2),
    ("punch_hole", 2),
    ("sendfile", 2),
    ("posix_fadvise", 1),
    ("copy_file_range", 3),
];

pub(crate) fn run(bench: &Bench, tally: &mut Tally) -> Outcome {
    let program = FSX.install()?;
    let config = bench.scratch.join("fsx.toml");
    let mut weights = "[weights]\n".to_owned();
    for (operation, weight) in ALL_OPERATIONS {
        writeln!(weights, "{operation} = {weight}")?;
    }
    std::fs::write(&config, weights)?;
    let operations: u32 = bench.pick(5_000, 100_000);
    for &backend in &bench.backends {
        let mount = Mount::new(bench, backend.name(), backend)?;
        // All starting numbers on the host; what `mem` does with bytes is the same code whatever the order.
        let seeds =
            if backend == Backend::Mem { &SEEDS[..1] } else { bench.pick(&SEEDS[..1], &SEEDS[..]) };
        let defaults = seeds.iter().map(|&seed| (seed, "default", None));
        let all = (SEEDS[0], "all", Some(config.as_path()));
        for (seed, what, config) in defaults.chain([all]) {
            let name = format!("{}: {operations} {what} operations, seed {seed}", backend.name());
            tally.case(&name, exercise(&program, config, mount.path(), operations, seed));
        }
        mount.unmount()?;
    }
    Ok(())
}

fn exercise(
    program: &Path,
    config: Option<&Path>,
    dir: &Path,
    operations: u32,
    seed: u64,
) -> Outcome {
    let file = dir.join(format!("fsx-{seed}"));
    let mut command = Command::new("timeout");
    command.arg("900").arg(program);
    command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
    if let Some(config) = config {
        command.arg("-f").arg(config);
    }
    let artifacts = dir.with_file_name("artifacts");
    std::fs::create_dir_all(&artifacts)?;
    output(command.arg("-P").arg(&artifacts).arg(&file))?;
    std::fs::remove_file(&file)?;
    Ok(())
}
