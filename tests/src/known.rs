//! What differs inside a transaction, and why: the one table.
//!
//! A difference that is not here is a bug. Each row names an operation, what native execution
//! answers, what the view answers instead, and to whom.

use crate::op::Op;
use crate::who::Who;

/// One row.
pub struct Known {
    /// The operation's name in JSON.
    pub op: &'static str,
    /// What has to occur in the operation's JSON besides.
    pub with: &'static str,
    /// Native answer; `*` for any.
    pub native: &'static str,
    /// Answer inside.
    pub inside: &'static str,
    /// For whom; `None` for everybody.
    pub who: Option<Who>,
    /// Why nothing can be done about it, or why nothing should.
    pub reason: &'static str,
}

/// All known differences.
pub const KNOWN: &[Known] = &[
    Known {
        op: "rename",
        with: "",
        native: "ok",
        inside: "EXDEV",
        who: Some(Who::User),
        reason: "overlayfs grants redirect_dir to no user namespace, so a directory that exists \
                 outside can't be renamed by one call; programs fall back to copying",
    },
    Known {
        op: "rename",
        with: "",
        native: "ok",
        inside: "ESTALE",
        who: Some(Who::User),
        reason: "overlayfs gives its index to no user namespace, so two names of one file are two files; \
                 natively nothing is done, and nothing is done here",
    },
    Known {
        op: "mknod",
        with: "",
        native: "ok",
        inside: "EPERM",
        who: Some(Who::Root),
        reason: "a character device 0:0 is overlayfs's own sign for a removed name",
    },
    Known {
        op: "*",
        with: "",
        native: "ENXIO",
        inside: "EPERM",
        who: Some(Who::Root),
        reason: "the node of a device that isn't there: inside no node of a device with state opens",
    },
    Known {
        op: "*",
        with: "",
        native: "ok",
        inside: "EOVERFLOW",
        who: Some(Who::User),
        reason: "a file of an owner who is not mapped into the user's namespace can't be copied up, \
                 so it can't be changed even where its mode bits would allow it",
    },
    Known {
        op: "*",
        with: "",
        native: "EPERM",
        inside: "EOVERFLOW",
        who: Some(Who::User),
        reason: "refused either way: overlayfs looks at the unmapped owner first",
    },
    Known {
        op: "chown",
        with: "",
        native: "EPERM",
        inside: "EINVAL",
        who: Some(Who::User),
        reason: "refused either way: an unmapped owner can't be named in a user namespace",
    },
    Known {
        op: "list",
        with: "",
        native: "ok",
        inside: "EACCES",
        who: Some(Who::User),
        reason: "overlayfs looks up what it lists, so a directory without search permission can't be \
                 listed",
    },
    Known {
        op: "remove_xattr",
        with: "system.posix_acl_",
        native: "ok",
        inside: "ENODATA",
        who: None,
        reason: "overlayfs looks whether there is an ACL before it removes it; ext4 doesn't mind",
    },
];

/// Whether a difference between two trees ([`crate::tree::differences`]) is known for this user.
///
/// A directory that exists outside is renamed by copying (`EXDEV`), so all below it is new.
///
/// For a file that overlayfs has to copy whole, it does so in pieces of 1 MiB (`ovl_copy_up_file` in
/// `fs/overlayfs/copy_up.c`) and fills the holes in a piece that holds any data.
pub fn explained_in_tree(line: &str, who: Who) -> bool {
    if who == Who::User && additional_blocks(line).is_some_and(|more| more <= 4096) {
        return true;
    }
    let Some((path, rest)) = line.split_once(": identity is ") else { return false };
    let Some((real, old)) = rest.split_once(", should be the inode that was ") else {
        return false;
    };
    who == Who::User && old != path && real.starts_with("a new inode, ")
}

/// The row that explains why `op` answered `native` outside and `inside` inside, if there is one.
pub fn explained(op: &Op, native: &str, inside: &str, who: Who) -> Option<&'static Known> {
    let text = Op::print(std::slice::from_ref(op));
    KNOWN.iter().find(|k| {
        (k.op == "*" || k.op == op.kind())
            && (k.native == "*" || native.split(' ').next() == Some(k.native))
            && k.inside == inside
            && text.contains(k.with)
            && k.who.is_none_or(|w| w == who)
    })
}

/// By how many blocks of 512 bytes a file is larger than its model, if the line says so.
fn additional_blocks(line: &str) -> Option<u64> {
    let (real, model) = line.split_once(": blocks is ")?.1.split_once(", should be ")?;
    real.parse::<u64>().ok()?.checked_sub(model.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_user_copied_directories_are_new_and_holes_may_be_filled() {
        let copied = "e/f: identity is a new inode, e/f, should be the inode that was d/f";
        assert!(explained_in_tree(copied, Who::User));
        assert!(!explained_in_tree(copied, Who::Root));
        let over = "b: identity is the inode that was b, should be the inode that was a";
        assert!(!explained_in_tree(over, Who::User));
        let replaced = "a: identity is a new inode, a, should be the inode that was a";
        assert!(!explained_in_tree(replaced, Who::User));
        assert!(explained_in_tree("a: blocks is 2056, should be 16", Who::User));
        assert!(!explained_in_tree("a: blocks is 20560, should be 16", Who::User));
        assert!(!explained_in_tree("a: blocks is 2056, should be 16", Who::Root));
        assert!(!explained_in_tree("a: mode is 600, should be 644", Who::User));
    }
}
