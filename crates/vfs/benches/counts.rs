//! How many instructions the core's hot operations take when everything is cached and nobody else is there.
//!
//! `cargo xtask counts` runs this under callgrind and compares with `counts.txt`. A benchmark does its operation [`TIMES`] times. The
//! backend is `MemFs`; none of these operations asks it.

#[cfg(not(gungraun))]
fn main() {
    eprintln!("counts: built without `--cfg gungraun`; `cargo xtask counts` sets it");
    std::process::exit(2);
}

#[cfg(gungraun)]
mod counts {
    use std::hint::black_box;

    use gungraun::{library_benchmark, library_benchmark_group};
    use vfscale::{Context, Errno, FdTable, OpenFlags, Options, Vfs};
    use vfscale_backends::MemFs;

    /// How often a benchmark does its operation.
    const TIMES: u32 = 1000;
    const FIVE: &[u8] = b"/usr/share/doc/vfscale/README";

    fn repeat(mut operation: impl FnMut()) {
        (0..TIMES).for_each(|_| operation());
    }

    struct Mounted {
        vfs: Vfs<MemFs>,
        fds: FdTable,
        fd: u32,
        context: Context,
    }

    /// A few directories and a file that is open, all of it looked at once.
    fn mounted() -> Mounted {
        let context = Context::root();
        let vfs = Vfs::new(MemFs::new(), Options::exclusive()).expect("a file system in memory");
        for dir in [&b"/usr"[..], b"/usr/share", b"/usr/share/doc", b"/usr/share/doc/vfscale"] {
            vfs.mkdir_path(&context, dir, 0o755).expect("a directory");
        }
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
        let file = vfs.open_path(&context, FIVE, flags, 0o644).expect("a file");
        let fds = FdTable::new(64);
        let fd = fds.install(file).expect("room");
        vfs.stat(&context, FIVE).expect("it is there");
        assert_eq!(vfs.stat(&context, b"/nothing").err(), Some(Errno::ENOENT));
        Mounted { vfs, fds, fd, context }
    }

    #[library_benchmark(setup = mounted)]
    fn lookup(m: Mounted) -> Mounted {
        let root = m.vfs.root();
        repeat(|| assert!(m.vfs.lookup(&m.context, &root, black_box(b"usr")).is_ok()));
        m
    }

    #[library_benchmark(setup = mounted)]
    fn lookup_of_an_absent_name(m: Mounted) -> Mounted {
        let root = m.vfs.root();
        repeat(|| assert!(m.vfs.lookup(&m.context, &root, black_box(b"nothing")).is_err()));
        m
    }

    #[library_benchmark(setup = mounted)]
    fn stat_of_five_components(m: Mounted) -> Mounted {
        repeat(|| assert!(m.vfs.stat(&m.context, black_box(FIVE)).is_ok()));
        m
    }

    #[library_benchmark(setup = mounted)]
    fn fget(m: Mounted) -> Mounted {
        repeat(|| assert!(m.fds.fget(black_box(m.fd)).is_some()));
        m
    }

    library_benchmark_group!(
        name = hot,
        benchmarks = [lookup, lookup_of_an_absent_name, stat_of_five_components, fget]
    );
}

#[cfg(gungraun)]
use counts::hot;
#[cfg(gungraun)]
gungraun::main!(library_benchmark_groups = hot);
