//! One scenario, performed natively and in a transaction, and compared.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use crate::exec::Outcome;
use crate::known;
use crate::op::Op;
use crate::scratch::Scratch;
use crate::tree::{self, Run};
use crate::txos::{Txos, copy_for_users, helper, native_only};
use crate::who::{Who, am_root};

/// What runs in the tree.
#[derive(Clone, Debug)]
pub enum Body {
    /// A list of operations, by the `oplist` helper.
    Ops(Vec<Op>),
    /// A script for `sh -c`.
    Sh(String),
}

/// A tree and what runs in it. Build it, then [`Scenario::check`] it.
pub struct Scenario {
    setup: Vec<Body>,
    after_setup: Vec<Body>,
    body: Body,
    who: Who,
    options: Vec<String>,
    status: i32,
    opens_without_writing: bool,
}

impl Scenario {
    /// These operations.
    pub fn ops(ops: Vec<Op>) -> Scenario {
        Scenario::new(Body::Ops(ops))
    }

    /// This shell script.
    pub fn sh(script: &str) -> Scenario {
        Scenario::new(Body::Sh(script.to_owned()))
    }

    /// By root, with an empty tree, and exit status 0.
    pub fn new(body: Body) -> Scenario {
        Scenario {
            setup: Vec::new(),
            after_setup: Vec::new(),
            body,
            who: Who::Root,
            options: Vec::new(),
            status: 0,
            opens_without_writing: false,
        }
    }

    /// A shell script that makes the tree. All times are made old after it, and everything that
    /// root owns is given to the scenario's user.
    #[must_use]
    pub fn setup(mut self, script: &str) -> Self {
        self.setup.push(Body::Sh(script.to_owned()));
        self
    }

    /// Operations that make the tree.
    #[must_use]
    pub fn setup_ops(mut self, ops: Vec<Op>) -> Self {
        self.setup.push(Body::Ops(ops));
        self
    }

    /// A script by root after the tree was given to its owner: for what must be someone else's, or
    /// must have a special time.
    #[must_use]
    pub fn then_by_root(mut self, script: &str) -> Self {
        self.after_setup.push(Body::Sh(script.to_owned()));
        self
    }

    /// By whom.
    #[must_use]
    pub fn by(mut self, who: Who) -> Self {
        self.who = who;
        self
    }

    /// With these options of `txos run`.
    #[must_use]
    pub fn options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|&o| o.to_owned()));
        self
    }

    /// With this exit status of the body.
    #[must_use]
    pub fn status(mut self, status: i32) -> Self {
        self.status = status;
        self
    }

    /// The body may open a file for writing, whose attributes alone it has changed before, and then
    /// write nothing: overlayfs (`metacopy`) copies the data at that moment, and the file's time
    /// becomes that of the copy. The delta undoes that where it can; on a busy machine it takes the
    /// time for that of a write. Times that are too new are forgiven.
    #[must_use]
    pub fn may_open_without_writing(mut self) -> Self {
        self.opens_without_writing = true;
        self
    }

    /// Performs both runs and requires that they are equal and that nothing is left.
    ///
    /// # Panics
    /// With every difference, if not.
    #[track_caller]
    pub fn check(&self) {
        if let Some(why) = self.impossible() {
            println!("Skip: {why}");
            return;
        }
        let found = self.differences();
        assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    }

    /// Why the scenario can't be performed here, if so.
    pub fn impossible(&self) -> Option<&'static str> {
        let foreign = !am_root() && !self.after_setup.is_empty();
        self.who.impossible().or(foreign.then_some("the set-up needs root"))
    }

    /// The same for root and for an ordinary user.
    ///
    /// # Panics
    /// As [`Scenario::check`].
    #[track_caller]
    pub fn check_both(mut self) {
        for who in [Who::Root, Who::User] {
            self.who = who;
            self.check();
        }
    }

    /// Performs both runs and says what differs.
    pub fn differences(&self) -> Vec<String> {
        let scratch = Scratch::new();
        match self.compare(&scratch) {
            Ok(found) => found,
            Err(why) => vec![why],
        }
    }

    fn compare(&self, scratch: &Scratch) -> Result<Vec<String>, String> {
        let command = self.body_command(scratch);
        scratch.give_to(self.who);
        for root in [scratch.native(), scratch.inside()] {
            self.prepare(scratch, &root)?;
        }
        let natively = |dir: &Path| {
            let txos = Txos::by(scratch, self.who).dir(dir);
            let program = Path::new(&command[0]);
            crate::exec::run(txos.command(program, &command[1..]))
        };
        let inside = |dir: &Path| {
            if native_only() {
                return natively(dir);
            }
            let mut args: Vec<OsString> = vec!["run".into()];
            args.extend(self.options.iter().map(OsString::from));
            args.push("--".into());
            args.extend(command.iter().cloned());
            Txos::by(scratch, self.who).dir(dir).call(args)
        };
        let (model, native) = Run::around(&scratch.native(), || natively(&scratch.native()))?;
        let (real, txos) = Run::around(&scratch.inside(), || inside(&scratch.inside()))?;

        let mut found = Vec::new();
        if native.code() != self.status {
            found.push(format!("the scenario itself fails natively: {native}"));
        }
        if txos.code() != native.code() {
            found.push(format!("exit status {} instead of {}", txos.code(), native.code()));
        }
        self.compare_output(&native, &txos, &mut found);
        let trees = tree::differences(&model, &real);
        let forgiven = |l: &String| {
            known::explained_in_tree(l, self.who)
                || self.opens_without_writing && l.contains(": time is of the run, should be ")
        };
        found.extend(trees.into_iter().filter(|l| !forgiven(l)));
        found.extend(scratch.leftovers().iter().map(|l| format!("left behind: {l}")));
        if !found.is_empty() {
            found.push(format!("inside: {txos}"));
        }
        Ok(found)
    }

    fn compare_output(&self, native: &Outcome, txos: &Outcome, found: &mut Vec<String>) {
        let Body::Ops(ops) = &self.body else {
            if native.stdout != txos.stdout {
                found.push(format!("standard output, should be\n{}", native.stdout));
            }
            return;
        };
        let (mut n, mut t) = (native.stdout.lines(), txos.stdout.lines());
        for (i, op) in ops.iter().enumerate() {
            let (n, t) = (n.next().unwrap_or("nothing"), t.next().unwrap_or("nothing"));
            if n != t && known::explained(op, n, t, self.who).is_none() {
                let op = Op::print(std::slice::from_ref(op));
                found.push(format!("operation {i} answers {t}, should {n}: {}", op.trim_end()));
            }
        }
    }

    fn body_command(&self, scratch: &Scratch) -> Vec<OsString> {
        match &self.body {
            Body::Sh(script) => ["sh", "-c", script].map(OsString::from).to_vec(),
            Body::Ops(ops) => {
                let list = scratch.base().join("ops.json");
                std::fs::write(&list, Op::print(ops)).expect("ops.json");
                let helper = helper("oplist");
                let program = match self.who {
                    Who::Root => helper,
                    Who::User => copy_for_users(scratch, &helper),
                };
                vec![program.into(), list.into()]
            }
        }
    }

    fn prepare(&self, scratch: &Scratch, root: &Path) -> Result<(), String> {
        for step in &self.setup {
            perform_setup(scratch, root, step)?;
        }
        if am_root() && self.who == Who::User {
            give_away(root, self.who.uid())?;
        }
        tree::make_old(root)?;
        for step in &self.after_setup {
            perform_setup(scratch, root, step)?;
        }
        tree::make_old(root)
    }
}

/// Performs a step of a set-up as the suite's own user.
///
/// # Errors
/// What failed in it.
pub fn perform_setup(scratch: &Scratch, root: &Path, step: &Body) -> Result<(), String> {
    match step {
        Body::Sh(script) => {
            let txos = Txos::new(scratch).dir(root);
            let out = crate::exec::run(txos.command(Path::new("sh"), ["-ec", script]));
            if out.code() == 0 { Ok(()) } else { Err(format!("set-up failed: {out}")) }
        }
        Body::Ops(ops) => {
            let list = scratch.base().join("setup.json");
            std::fs::write(&list, Op::print(ops)).map_err(|e| e.to_string())?;
            let txos = Txos::new(scratch).dir(root);
            let out = crate::exec::run(txos.command(&helper("oplist"), [list]));
            let answers = out.stdout.lines();
            match ops.iter().zip(answers).find(|(_, a)| !a.starts_with("ok")) {
                Some((op, answer)) => Err(format!("set-up: {op:?}: {answer}")),
                None if out.code() == 0 => Ok(()),
                None => Err(format!("set-up failed: {out}")),
            }
        }
    }
}

/// Gives everything that root owns below `path` to `uid`, keeping set-user-ID bits and capabilities
/// away from it (chown drops them: set them in `then_by_root`).
///
/// # Errors
/// The path that could not be given.
pub fn give_away(path: &Path, uid: u32) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    let meta = std::fs::symlink_metadata(path).map_err(at)?;
    if meta.is_dir() {
        for child in std::fs::read_dir(path).map_err(at)? {
            give_away(&child.map_err(at)?.path(), uid)?;
        }
    }
    if meta.uid() == 0 { lchown(path, Some(uid), Some(uid)).map_err(at) } else { Ok(()) }
}
