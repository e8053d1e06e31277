//! What first touches cost: commands run natively, then twice in a view of `/`, in turns.
//!
//! `first_touches [-o OVERLAY_OPTIONS] [-r ROUNDS] [-t THREADS] [-n] find DIR | read DIR | run CMD…`
//!
//! `-n` turns prefetching off. Needs root.

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use support::Lab;
use txos_capture::{CaptureSpec, ValidateOptions, validate};
use txos_host::Tree;

#[derive(Clone, Debug)]
enum Work {
    /// The attributes of everything below a directory.
    Find(PathBuf),
    /// The content of every file below a directory.
    Read(PathBuf),
    /// A command, with `{}` for the root.
    Run(Vec<String>),
}

impl Work {
    /// Seconds that it takes, by the clock and of processors.
    fn time(&self, root: &Path) -> (f64, f64) {
        let inside = |dir: &Path| root.join(dir.strip_prefix("/").unwrap_or(dir));
        let (start, before) = (Instant::now(), processor_time());
        match self {
            Work::Find(dir) => {
                quiet(Command::new("find").arg(inside(dir)).args(["-xdev", "-size", "+0"]))
            }
            Work::Read(dir) => read_all(&inside(dir)),
            Work::Run(words) => {
                let root = root.to_str().expect("a path in UTF-8").trim_end_matches('/');
                let words: Vec<_> = words.iter().map(|word| word.replace("{}", root)).collect();
                quiet(Command::new(&words[0]).args(&words[1..]));
            }
        }
        (start.elapsed().as_secs_f64(), processor_time() - before)
    }
}

/// Processor time that this process and its children have used, but for threads of the class
/// `SCHED_IDLE`, in seconds.
fn processor_time() -> f64 {
    let ticks = |stat: String| -> u64 {
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // utime, stime; policy is field 41 of proc(5).
        let policy: u32 = fields[38].parse().unwrap_or(0);
        if policy == 5 { 0 } else { [11, 12].iter().map(|at| number(fields[*at])).sum() }
    };
    let number_of_children = |stat: String| -> u64 {
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        [13, 14].iter().map(|at| number(fields[*at])).sum()
    };
    let threads = fs::read_dir("/proc/self/task").expect("the threads").flatten();
    let own: u64 = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .map(ticks)
        .sum();
    let children = number_of_children(fs::read_to_string("/proc/self/stat").expect("proc"));
    (own + children) as f64 / 100.0
}

fn number(field: &str) -> u64 {
    field.parse().unwrap_or(0)
}

fn quiet(command: &mut Command) {
    command.stdout(Stdio::null()).status().expect("the command runs");
}

fn read_all(dir: &Path) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() {
            read_all(&entry.path());
        } else if kind.is_file() {
            fs::read(entry.path()).expect("a readable file");
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (mut rounds, mut threads, mut prefetch) = (3, 0, true);
    let mut overlay = support::OVERLAY.to_owned();
    let work = loop {
        let arg = args.next().expect("find, read or run");
        let mut value = || args.next().expect("a value");
        match arg.as_str() {
            "-o" => overlay = value(),
            "-r" => rounds = value().parse().expect("a number"),
            "-t" => threads = value().parse().expect("a number"),
            "-n" => prefetch = false,
            "find" => break Work::Find(value().into()),
            "read" => break Work::Read(value().into()),
            _ => break Work::Run(args.collect()),
        }
    };
    work.time(Path::new("/"));
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let (native, native_cpu) = work.time(Path::new("/"));
        let mut lab = Lab::new();
        lab.overlay = overlay.clone();
        let hidden = vec![lab.dir.path().to_owned()];
        let spec = CaptureSpec { hidden, threads, prefetch, ..CaptureSpec::default() };
        let inside = work.clone();
        let (captured, ((first, first_cpu), (second, _))) =
            lab.run(spec, move |root| (inside.time(root), inside.time(root)));
        ratios[0].push(first / native);
        ratios[1].push(second / native);
        let hidden = vec![lab.dir.path().to_owned()];
        let options = ValidateOptions { hidden, ..ValidateOptions::default() };
        let tree = Tree::open("/").expect("the root");
        let start = Instant::now();
        let conflicts = validate(&captured.workset, &tree, &options).expect("validation");
        let validated = start.elapsed().as_secs_f64();
        let stats = captured.workset.stats();
        println!(
            "native {native:.3} s (processors {native_cpu:.2}), first {first:.3} s ({:.2}x, processors {first_cpu:.2}), second {second:.3} s ({:.2}x); \
             {}; {} objects, {} names, {:.0} bytes each; validated in {validated:.3} s, {} conflicts{}",
            first / native,
            second / native,
            captured.requests,
            stats.objects,
            stats.names,
            stats.bytes as f64 / stats.objects as f64,
            conflicts.len(),
            captured.doomed.map(|conflict| format!("; {conflict}")).unwrap_or_default(),
        );
    }
    for (which, ratios) in ["first", "second"].into_iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        println!("{which}: median {:.2}x native", ratios[ratios.len() / 2]);
    }
}
