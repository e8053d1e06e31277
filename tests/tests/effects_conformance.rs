//! Many small cases of system calls, natively and in a transaction: every answer has to be the same, and
//! so has what is left of the tree. What is known to differ is one table
//! ([`txos_tests::conform::differs`]), which the document `docs/conformance.md` holds too.

use std::path::Path;

use txos_tests::conform::differs::{DIFFERS, compare};
use txos_tests::conform::paths::place_of;
use txos_tests::exec;
use txos_tests::known;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::tree::{self, Run};
use txos_tests::txos::{Txos, copy_for_users, helper, native_only};
use txos_tests::who::Who;

/// Longest time for one run of all cases.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

/// Runs the cases by `who` in two equal trees; `verb` makes the tree inside too, or not.
fn check(who: Who, verb: &str, options: &[&str]) {
    if native_only() {
        skip!("nothing to compare natively");
    }
    if let Some(why) = who.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    scratch.give_to(who);
    let conform = match who {
        Who::Root => helper("conform"),
        Who::User => copy_for_users(&scratch, &helper("conform")),
    };
    // A user's view refuses a file with several names that is changed under one and replaced under
    // another.
    let without = if who == Who::User && verb == "run" { "hard" } else { "" };
    let txos = |dir: &Path| Txos::by(&scratch, who).dir(dir).env("CONFORM_WITHOUT", without);
    let natively = |dir: &Path, verb: &str| {
        let command = txos(dir).command(&conform, [verb]);
        exec::Running::start(command, None).end(LIMIT)
    };
    // Keys, names and ports of the host are there once, and every native run uses the same.
    static NATIVE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let alone = || NATIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let trees = [scratch.native(), scratch.inside()];
    if verb == "run" {
        for dir in &trees {
            natively(dir, "prepare").expect(0);
            tree::make_old(dir).expect("old times");
        }
    }
    let inside = || {
        let mut args = vec!["run"];
        args.extend(options);
        let program = conform.to_string_lossy().into_owned();
        args.extend(["--", &program, verb]);
        txos(&trees[1]).start(args).end(LIMIT)
    };
    let (model, native) = {
        let _alone = alone();
        Run::around(&trees[0], || natively(&trees[0], verb)).expect("a snapshot")
    };
    let (real, ran) = Run::around(&trees[1], inside).expect("a snapshot");
    native.expect(0);
    ran.expect(0);
    assert!(native.stdout.lines().count() > 8000, "{native}");
    let (known, mut unknown) = compare(&native.stdout, &ran.stdout, who);
    // Where a call is known to answer otherwise, the tree is otherwise too.
    let other: Vec<String> = known
        .iter()
        .filter_map(|(_, line)| place_of(line.strip_prefix("paths: ")?.rsplit_once(": ")?.0))
        .collect();
    let excused = |line: &str| {
        let below =
            |place: &String| line.strip_prefix(place).is_some_and(|r| r.starts_with([':', '/']));
        known::explained_in_tree(line, who) || other.iter().any(below)
    };
    let left = tree::differences(&model, &real);
    unknown.extend(left.into_iter().filter(|line| !excused(line)));
    assert!(unknown.is_empty(), "{who:?}, {verb}:\n{}", unknown.join("\n"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn root_on_a_tree_that_was_there() {
    check(Who::Root, "run", &[]);
}

#[test]
fn root_on_a_tree_made_inside() {
    check(Who::Root, "fresh", &[]);
}

#[test]
fn a_user_on_a_tree_that_was_there() {
    check(Who::User, "run", &[]);
}

#[test]
fn a_user_on_a_tree_made_inside() {
    check(Who::User, "fresh", &[]);
}

#[test]
fn the_document_holds_every_known_difference() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
    let document = std::fs::read_to_string(document).expect("docs/conformance.md");
    for row in DIFFERS {
        let line = row.line();
        assert!(document.contains(&line), "docs/conformance.md lacks:\n{line}");
    }
}
