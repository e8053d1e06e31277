//! A transaction and an outsider that meet at an agreed moment.

use std::path::PathBuf;

use crate::exec::{LIMIT, Outcome};
use crate::gate::Gate;
use crate::scenario::{Body, perform_setup};
use crate::scratch::Scratch;
use crate::txos::Txos;
use crate::who::Who;

/// What comes together: a tree, a script inside, a script outside.
pub struct Meeting {
    /// Makes the tree.
    pub setup: &'static str,
    /// Runs inside; then the outsider acts; then comes `then`.
    pub first: &'static str,
    /// The outsider's script, in the same tree.
    pub outside: &'static str,
    /// Runs inside after the outsider.
    pub then: &'static str,
}

/// What came of a meeting.
pub struct Met {
    /// The scratch directory, for looking into the tree.
    pub scratch: Scratch,
    /// What `txos run` said.
    pub outcome: Outcome,
    /// How often the command was started.
    pub attempts: usize,
}

impl Met {
    /// A file of the tree; empty if it is not there.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A path of the tree.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.inside().join(name)
    }
}

impl Meeting {
    /// Lets them meet, with options of `txos run`. The outsider acts once, in the first attempt.
    ///
    /// # Panics
    /// If the set-up fails, or one side does not come, or something is left behind.
    #[track_caller]
    pub fn meet(&self, who: Who, options: &[&str]) -> Met {
        let scratch = Scratch::new();
        scratch.give_to(who);
        let script = |text: &str| Body::Sh(text.to_owned());
        let tree = scratch.inside();
        perform_setup(&scratch, &tree, &script(self.setup)).expect("set-up");
        scratch.give_tree_to(who);
        crate::tree::make_old(&tree).expect("old times");
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let inside = format!(
            "{}echo >>'{live}/attempts'\n{}\nreach first; await outside\n{}",
            gate.functions(),
            self.first,
            self.then
        );
        let mut all = vec!["--live", live.as_str()];
        all.extend(options);
        let outcome = {
            let txos = Txos::by(&scratch, who);
            let mut running = txos.start_sh(&all, &inside);
            while !gate.passed("first") && running.alive() {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            if gate.passed("first") {
                perform_setup(&scratch, &tree, &script(self.outside)).expect("outsider");
                gate.open("outside");
            }
            running.end(LIMIT)
        };
        let attempts = std::fs::read_to_string(gate.mark("attempts")).unwrap_or_default().len();
        assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{outcome}");
        Met { scratch, outcome, attempts }
    }

    /// They conflict: without retries the transaction ends with 75, names `object`, and changes
    /// nothing; with retries it commits in the second attempt, having seen the new state.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn conflicts(&self, object: &str) -> Met {
        let lost = self.meet(Who::Root, &["--no-retry"]);
        assert_eq!((lost.outcome.code(), lost.attempts), (75, 1), "{}", lost.outcome);
        lost.outcome.says(&[object]);
        self.same_as_outside_alone(&lost);
        let met = self.meet(Who::Root, &[]);
        assert_eq!((met.outcome.code(), met.attempts), (0, 2), "{}", met.outcome);
        met
    }

    /// They don't: the transaction commits in its first attempt.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn passes(&self, options: &[&str]) -> Met {
        let met = self.meet(Who::Root, options);
        assert_eq!((met.outcome.code(), met.attempts), (0, 1), "{}", met.outcome);
        met
    }

    /// The tree is as if the transaction had never been.
    #[track_caller]
    fn same_as_outside_alone(&self, met: &Met) {
        let model = met.scratch.native();
        for step in [self.setup, self.outside] {
            let body = Body::Sh(step.to_owned());
            perform_setup(&met.scratch, &model, &body).expect("model");
            if step == self.setup {
                crate::tree::make_old(&model).expect("old times");
            }
        }
        let start = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        let run = |root: &std::path::Path| crate::tree::Run {
            before: crate::tree::Tree::default(),
            after: crate::tree::Tree::of(root).expect("tree"),
            start,
        };
        let found = crate::tree::differences(&run(&model), &run(&met.scratch.inside()));
        assert!(found.is_empty(), "a lost transaction left: {found:#?}\n{}", met.outcome);
    }
}
