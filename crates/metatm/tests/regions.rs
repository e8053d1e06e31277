//! Figure 6's counters: I/O is counted where it is done, and nothing else is.

use metatm::Config;
use metatm::config::KernelKind;
use metatm::htm::status::Reason;
use metatm::kernel::site::Site;
use metatm::stats::{Region, Stats};
use metatm::workload::Workload;

fn region(s: &Stats, site: Site) -> Region {
    s.regions.get(usize::from(site.id())).copied().unwrap_or_default()
}

fn run(w: Workload, set: impl Fn(&mut Config)) -> Stats {
    let mut c = Config { cpus: 4, kernel: KernelKind::Cx, scale: 40, ..Config::default() };
    set(&mut c);
    w.run(&c).expect("run")
}

#[test]
fn io_counts_for_its_region_and_those_around_it() {
    let s = run(Workload::Mab, |_| ());
    let inner = region(&s, Site::IdeDo);
    assert!(inner.entries > 0);
    assert_eq!(inner.io, inner.entries, "every execution starts a request");
    let outer = region(&s, Site::BlockUnplug);
    assert_eq!(outer.io, inner.io, "all of them from within the queue's region");
    assert!(outer.io < outer.entries, "which does none where the controller has no room");
    assert_eq!(region(&s, Site::IdeBusy).io, 0, "a look at memory is no I/O");
    assert_eq!(region(&s, Site::PitRead).io, region(&s, Site::PitRead).entries);
}

#[test]
fn a_handlers_io_does_not_count_for_the_region_it_interrupts() {
    // Disk and timer interrupts come while files are created; creation itself does no I/O.
    let s = run(Workload::Mab, |c| c.hz = 5_000);
    for site in [Site::DLookup, Site::DAlloc, Site::TreeInsert, Site::FileMove] {
        assert!(region(&s, site).entries > 0);
        assert_eq!(region(&s, site).io, 0, "{}", Site::name_of(usize::from(site.id())));
    }
    assert!(region(&s, Site::IdeIntr).io > 0);
}

#[test]
fn an_overflow_is_exclusive_and_no_io() {
    let s = run(Workload::Bonnie, |c| {
        c.scale = 100;
        c.l1_bytes = 1024;
    });
    let overflowed: Vec<_> =
        s.regions.iter().filter(|r| r.exclusive[Reason::Overflow.index()] > 0).collect();
    assert!(!overflowed.is_empty(), "such a small L1 must overflow");
    assert!(overflowed.iter().any(|r| r.io == 0 && r.exclusive[Reason::Io.index()] == 0));
}

#[test]
fn sections_of_the_mixture_are_counted_right_in_any_order_of_time() {
    for (key, value) in [("skew", "1000"), ("bus", "40"), ("policy", "polite"), ("seed", "7")] {
        run(Workload::Mixed, |c| c.set(key, value).expect("a parameter"));
    }
}
