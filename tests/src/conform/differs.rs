//! What differs inside a transaction, and why: the one table of the conformance cases.

use crate::who::Who;

/// A difference that is known. A `*` stands for anything at the end of a word.
#[derive(Debug)]
pub struct Differs {
    /// Beginning of the cases, `group: case`.
    pub case: &'static str,
    /// Native answer; empty for any.
    pub native: &'static str,
    /// Answer inside; empty for any.
    pub inside: &'static str,
    /// For whom; `None` for everybody.
    pub who: Option<Who>,
    /// Why.
    pub reason: &'static str,
}

const COPIED: &str = "from a file that was not changed to one that was is from one layer to another, \
                      as between two file systems; programs copy by hand then";
const FAMILY: &str = "a socket family that could leave the transaction is refused before the kernel is \
                      asked whether it has it";
const ALARM: &str = "alarm clocks that wake the machine act on the machine: the capability for them is \
                     taken away";

/// All known differences.
pub const DIFFERS: &[Differs] = &[
    Differs {
        case: "asynchronous: io_uring",
        native: "",
        inside: "ENOSYS",
        who: None,
        reason: "io_uring makes calls that no filter sees, so it is absent, as on a kernel without it; \
                 programs fall back to plain calls",
    },
    Differs {
        case: "descriptors: name_to_handle_at",
        native: "0",
        inside: "EOPNOTSUPP",
        who: None,
        reason: "overlayfs gives no file handles here, as file systems that have none; a handle could \
                 be opened past the view",
    },
    Differs {
        case: "descriptors: preadv2 nowait",
        native: "ok",
        inside: "EOPNOTSUPP",
        who: None,
        reason: "overlayfs does not offer RWF_NOWAIT; callers read without it",
    },
    Differs {
        case: "descriptors: mmap validate sync",
        native: "EACCES",
        inside: "EOPNOTSUPP",
        who: None,
        reason: "refused either way: overlayfs has no MAP_SYNC and says so before it looks at the mode",
    },
    Differs {
        case: "descriptors: copy_file_range from",
        native: "4",
        inside: "EXDEV",
        who: None,
        reason: COPIED,
    },
    Differs {
        case: "moves: old copy_file_range",
        native: "5",
        inside: "EXDEV",
        who: None,
        reason: COPIED,
    },
    Differs {
        case: "sockets: socket",
        native: "E97",
        inside: "ENOTXSUPPORT",
        who: None,
        reason: FAMILY,
    },
    Differs {
        case: "sockets: socket",
        native: "EINVAL",
        inside: "ENOTXSUPPORT",
        who: None,
        reason: FAMILY,
    },
    Differs {
        case: "timers: timer",
        native: "ok",
        inside: "EPERM",
        who: Some(Who::Root),
        reason: ALARM,
    },
    Differs {
        case: "timers: timer",
        native: "ok",
        inside: "E95",
        who: Some(Who::Root),
        reason: ALARM,
    },
    Differs {
        case: "paths: rename",
        native: "ok",
        inside: "EXDEV",
        who: Some(Who::User),
        reason: "overlayfs grants redirect_dir to no user namespace, so a directory that exists outside \
                 can't be renamed by one call; mv and its kind copy instead",
    },
];

impl Differs {
    /// The row as the document has it.
    pub fn line(&self) -> String {
        let or_any =
            |answer: &str| if answer.is_empty() { "any".to_owned() } else { format!("`{answer}`") };
        let (native, inside) = (or_any(self.native), or_any(self.inside));
        let who = match self.who {
            None => "all",
            Some(Who::Root) => "root",
            Some(Who::User) => "users",
        };
        format!("| `{}` | {native} | {inside} | {who} | {} |", self.case, self.reason)
    }

    fn covers(&self, case: &str, native: &str, inside: &str, who: Who) -> bool {
        let one = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        case.starts_with(self.case)
            && one(self.native, native)
            && one(self.inside, inside)
            && self.who.is_none_or(|only| only == who)
    }
}

/// Compares two runs, line by line: what is known to differ (row and line), and what is not.
pub fn compare(native: &str, inside: &str, who: Who) -> (Vec<(usize, String)>, Vec<String>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    let (mut natives, mut insides) = (native.lines(), inside.lines());
    loop {
        let (native, inside) = match (natives.next(), insides.next()) {
            (None, None) => return (known, unknown),
            (native, inside) => (native.unwrap_or("nothing"), inside.unwrap_or("nothing")),
        };
        if native == inside {
            continue;
        }
        let (case, answer) = native.rsplit_once(": ").unwrap_or((native, ""));
        let found = inside.rsplit_once(": ").map_or(inside, |(_, found)| found);
        let line = format!("{case}: {answer} natively, {found} inside");
        match DIFFERS.iter().position(|row| row.covers(case, answer, found, who)) {
            Some(row) => known.push((row, line)),
            None => unknown.push(line),
        }
    }
}
