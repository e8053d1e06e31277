//! Transactions inside programs: those that a program begins itself, and those of the explicit API.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::Result;
use txos::phases::Phase;
use txos_api::{Options, System};

use crate::context::Context;
use crate::measure::{Pairs, median, run};
use crate::report::{Figure, Goal, Unit};
use crate::session::{Figures, PAGES, PHASES, Whole};

/// Transactions of each kind in one round.
const ROUNDS: usize = 200;

fn at_most(what: impl Into<String>, pairs: Pairs, goal: f64) -> Figure {
    let (unit, goal) = (Unit::Seconds, Goal::AtMost(goal));
    Figure { what: what.into(), unit, goal, pairs, note: None }
}

fn shown(seconds: f64) -> String {
    format!("{:.0} µs", seconds * 1e6)
}

/// What beginning and end cost, and the calls in between.
pub fn own(context: &Context) -> Result<Vec<Figure>> {
    let mut all = Vec::new();
    for _ in 0..context.short_rounds.min(5) {
        let dir = context.work.to_string_lossy().into_owned();
        let mut command = context.helper(&["session", &dir, &ROUNDS.to_string()])?;
        context.session(&mut command);
        all.push(Figures::parse(&run(command)?.stdout)?);
    }
    let figures = |of: &dyn Fn(&Figures) -> f64| all.iter().map(of).collect::<Vec<_>>();
    let pairs = |native: &dyn Fn(&Figures) -> f64, txos: &dyn Fn(&Figures) -> f64| Pairs {
        native: figures(native),
        txos: figures(txos),
    };
    let alone = |txos: &dyn Fn(&Figures) -> f64| Pairs { native: Vec::new(), txos: figures(txos) };
    let phases = |of: fn(&Figures) -> &Whole| {
        let part = |at: usize| shown(median(&figures(&|f| of(f)[at])));
        let parts = |phases: Range<usize>| {
            let each = phases.filter(|at| median(&figures(&|f| of(f)[3 + at])) > 0.0);
            each.map(|at| format!("{:?} {}", Phase::ALL[at], part(3 + at)))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let end = Phase::LookAgain as usize;
        let (begins, ends) = (parts(0..end), parts(end..PHASES));
        format!("beginning {} ({begins}), end {} ({ends})", part(1), part(2))
    };
    let plain = at_most(
        "sys_xbegin and sys_xend, empty, without rollback, not durable",
        alone(&|f| f.plain[0]),
        100e-6,
    );
    let rollback =
        at_most("the same with rollback of the program", alone(&|f| f.rollback[0]), 350e-6);
    let dirty = at_most(
        format!("the same, {PAGES} pages written inside"),
        pairs(&|f| f.dirty[0], &|f| f.dirty[1]),
        350e-6 + PAGES as f64 * 1e-6,
    );
    let aborted = Figure {
        what: format!("sys_xabort, {PAGES} pages put back, up to the second beginning"),
        unit: Unit::Seconds,
        goal: Goal::None,
        pairs: alone(&|f| f.aborted),
        note: None,
    };
    let calls = Figure::ratio(
        "access, open, write of 1 KB, close: what they add to a transaction",
        pairs(&|f| f.calls[0], &|f| f.calls[2] - f.plain[0]),
        5.0,
    );
    let inside = shown(median(&figures(&|f| f.calls[1])));
    Ok(vec![
        plain.note(phases(|f| &f.plain)),
        rollback.note(phases(|f| &f.rollback)),
        dirty.note("native: writing them"),
        aborted,
        calls.note(format!("inside they take {inside}, the rest is the commit of the file")),
    ])
}

/// Two reads and two small writes, durable and not, and a rename.
pub fn explicit(context: &Context) -> Result<Vec<Figure>> {
    let [mut quick, mut durable, mut rename] =
        [const { Pairs { native: vec![], txos: vec![] } }; 3];
    let [a, b, moved, file] = ["a", "b", "moved", "file"].map(|name| context.work.join(name));
    for path in [&a, &b] {
        fs::write(path, "0123456789")?;
    }
    let file = File::create(file)?;
    let system = |durable| {
        let state = Some(context.work.join("state"));
        System::open(Options { durable, state, ..Options::default() })
    };
    for _ in 0..context.short_rounds {
        for (pairs, is_durable) in [(&mut quick, false), (&mut durable, true)] {
            let system = system(is_durable)?;
            let round = |number: usize| {
                system.transaction(|tx| {
                    let (one, two) = (tx.read(&a)?, tx.read(&b)?);
                    let next = |digits: &[u8]| [b'0' + (digits[0] + number as u8) % 10];
                    tx.write_range(&a, 0, next(&one))?;
                    tx.write_range(&b, 0, next(&two))
                })
            };
            let native = each(|_| {
                if is_durable {
                    file.write_all_at(&[b'x'; 4096], 0)?;
                    return Ok(file.sync_data()?);
                }
                for path in [&a, &b] {
                    let digits = fs::read(path)?;
                    File::options().write(true).open(path)?.write_all_at(&digits[..1], 0)?;
                }
                Ok(())
            })?;
            pairs.push(native, each(|number| Ok(round(number)?))?);
        }
        let system = system(false)?;
        let name =
            |number: usize| if number.is_multiple_of(2) { (&b, &moved) } else { (&moved, &b) };
        let native = each(|number| {
            let (from, to) = name(number);
            Ok(fs::rename(from, to)?)
        })?;
        let txos = each(|number| {
            let (from, to) = name(number);
            Ok(system.transaction(|tx| {
                tx.link(from, to)?;
                tx.remove(from)
            })?)
        })?;
        rename.push(native, txos);
    }
    Ok(vec![
        at_most("two reads and two small writes, not durable", quick, 80e-6)
            .note("native: read, open, pwrite of each"),
        Figure::ratio("the same, durable, against fdatasync of a written block", durable, 2.5),
        Figure::ratio("rename as link and remove, not durable, against rename(2)", rename, 4.0),
    ])
}

/// Seconds that each of an even number of calls takes.
fn each(mut act: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    (0..ROUNDS).try_for_each(&mut act)?;
    Ok(start.elapsed().as_secs_f64() / ROUNDS as f64)
}
