//! Transactions beside one another: what is independent runs at once, what conflicts ends as if one
//! had run after the other.

use txos_tests::exec::LIMIT;
use txos_tests::gate::Gate;
use txos_tests::needs_root;
use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, for_both};

#[test]
fn independent_transactions_run_at_once() {
    for_both(|scratch, txos| {
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let functions = gate.functions();
        // Each waits for the other while it runs: one after the other they could not end.
        let script = |me: &str, other: &str| {
            format!("{functions}echo {me} >{me}; reach {me}; await {other}; echo done >>{me}")
        };
        let options = ["--live", live.as_str()];
        let one = txos.start_sh(&options, &script("one", "two"));
        let two = txos.start_sh(&options, &script("two", "one"));
        one.end(LIMIT).expect(0);
        two.end(LIMIT).expect(0);
        for name in ["one", "two"] {
            let text = std::fs::read_to_string(scratch.inside().join(name)).unwrap();
            assert_eq!(text, format!("{name}\ndone\n"));
        }
    });
}

#[test]
fn creations_of_different_names_in_one_directory_commit_side_by_side() {
    needs_root!();
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.inside().join("d")).unwrap();
    let gate = Gate::new(scratch.live());
    let live = scratch.live().display().to_string();
    let functions = gate.functions();
    let script = |me: &str, other: &str| {
        format!("{functions}echo {me} >d/{me}; mkdir d/{me}.d; reach {me}; await {other}")
    };
    let txos = Txos::new(&scratch);
    let options = ["--no-retry", "--live", live.as_str()];
    let one = txos.start_sh(&options, &script("one", "two"));
    let two = txos.start_sh(&options, &script("two", "one"));
    one.end(LIMIT).expect(0);
    two.end(LIMIT).expect(0);
    for name in ["one", "one.d", "two", "two.d"] {
        assert!(scratch.inside().join("d").join(name).exists(), "{name}");
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn no_update_of_many_transactions_at_once_is_lost() {
    needs_root!();
    let scratch = Scratch::new();
    let counter = scratch.inside().join("counter");
    std::fs::write(&counter, "0\n").unwrap();
    let txos = Txos::new(&scratch);
    let rounds = 5;
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..rounds {
                    txos.sh(
                        &["--nondurable", "--retries", "1000", "-q"],
                        "read n <counter; echo $((n + 1)) >counter",
                    )
                    .expect(0);
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), format!("{}\n", 4 * rounds));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn recovery_leaves_alone_what_runs() {
    needs_root!();
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.live());
    let live = scratch.live().display().to_string();
    let script = format!("{}echo x >f; reach begun; await go; cat f", gate.functions());
    let txos = Txos::new(&scratch);
    let running = txos.start_sh(&["--live", &live], &script);
    gate.wait("begun");
    assert_eq!(txos.call(["recover"]).expect(0).stdout, "nothing to recover\n");
    txos.sh(&[], "echo y >g").expect(0);
    gate.open("go");
    assert_eq!(running.end(LIMIT).expect(0).stdout, "x\n");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
