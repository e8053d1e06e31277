//! Pitfalls of an ordinary user's view, where the overlay does not note which file a copy was made
//! from: a file that takes another's name keeps its own inode, ACL and further names, whatever is
//! done to it before and after, and by whichever tool.

use txos_tests::exec::find;
use txos_tests::op::{Op, escape};
use txos_tests::scenario::Scenario;
use txos_tests::txos::for_one;
use txos_tests::who::Who;
use txos_tests::xattr;

/// Two files with ACLs of their own, one without, and one with two names.
fn tree(scenario: Scenario) -> Scenario {
    let acl = |path: &str, uid: u32, perm: u16| Op::SetXattr {
        path: path.into(),
        name: "system.posix_acl_access".into(),
        value: escape(&xattr::acl_with_user(uid, perm)),
    };
    scenario
        .setup("for f in a b plain linked; do echo $f >$f; done; ln linked also; mkfifo p q")
        .setup_ops(vec![acl("a", 31, 6), acl("b", 32, 4), acl("p", 33, 6)])
        .by(Who::User)
}

#[test]
fn renamed_over_another_then_written() {
    for script in [
        "mv a b; echo x >>b",
        "mv plain b; echo x >>b",
        "mv a plain; echo x >plain",
        "mv b new; echo x >>new",
    ] {
        tree(Scenario::sh(script)).check();
    }
}

#[test]
fn written_then_renamed_over_another() {
    for script in [
        "echo x >>a; mv a b",
        "echo x >plain; chmod 600 plain; mv plain b",
        "echo x >a; touch a; mv a plain",
        "echo x >>a; echo y >>b; mv a c; mv b a; mv c b",
        "echo x >>also; mv also b",
    ] {
        tree(Scenario::sh(script)).check();
    }
}

/// Without ACLs, which tools that copy attributes cannot read in an ordinary user's view.
fn plain_tree(scenario: Scenario) -> Scenario {
    let attribute = Op::SetXattr { path: "a".into(), name: "user.mine".into(), value: "1".into() };
    scenario
        .setup("for f in a b linked; do echo $f >$f; done; chmod 600 b; ln linked also")
        .setup_ops(vec![attribute])
        .by(Who::User)
}

#[test]
fn a_tool_that_copies_all_attributes_copies_no_identity() {
    for script in [
        "echo x >>a; echo y >>b; cp --preserve=mode,timestamps,xattr a b",
        "cp --preserve=mode,xattr linked t; echo y >>t; mv t linked",
        "echo x >>linked; cp --preserve=mode,xattr linked t; echo y >>t; mv t a",
        "echo x >>a; cp --preserve=xattr a b",
        "echo x >>a; cp --preserve=xattr a new; echo y >>new",
        "echo x >>linked; cp --preserve=xattr linked also.new; mv also.new also; echo y >>also",
    ] {
        plain_tree(Scenario::sh(script)).check();
    }
}

#[test]
fn the_mark_of_a_copy_is_neither_shown_nor_set_nor_removed() {
    if find("setfattr").is_none() || find("getfattr").is_none() {
        eprintln!("Skip: needs setfattr(1) and getfattr(1)");
        return;
    }
    let script = "(echo x >>a; echo y >>b; setfattr -n user.mine -v 2 b
        getfattr -d -m - a b; getfattr -h -d -m ^user $PWD/a; ln -s $PWD/a l; getfattr -d l; rm l
        cd /; getfattr -d -m ^user ${OLDPWD#/}/a; cd - >/dev/null
        setfattr -x user.txos.origin a; setfattr -x user.mine b
        mv a b; echo y >>b) 2>&1 | grep -v -e '^# file' -e ^getfattr:";
    plain_tree(Scenario::sh(script)).check();
}

#[test]
fn an_object_made_anew_is_not_the_one_that_was_removed() {
    for script in [
        "rm p; mkfifo -m 600 p",
        "chmod 640 p; rm p; mkfifo -m 660 p",
        "mv p q",
        "chmod 640 p; mv p q",
        "chmod 640 p; mv p r; chmod 600 r; mkfifo p",
    ] {
        tree(Scenario::sh(script)).check();
    }
}

/// What the kernel cannot keep together in an ordinary user's view is refused, not lost.
#[test]
fn a_file_with_several_names_is_not_split_in_silence() {
    for script in [
        "echo x >>linked; echo n >t; mv t linked",
        "echo x >>linked; rm linked",
        "echo x >>linked; echo y >>also",
        "echo x >>linked; mv also new; echo y >>new",
    ] {
        for_one(Who::User, |scratch, txos| {
            let tree = scratch.inside();
            std::fs::write(tree.join("linked"), "old").unwrap();
            std::fs::hard_link(tree.join("linked"), tree.join("also")).unwrap();
            scratch.give_tree_to(Who::User);
            txos.sh(&[], script).expect(125).says(&["several names", "/inside/", "as root"]);
            assert_eq!(std::fs::read(tree.join("also")).unwrap(), b"old", "{script}");
        });
    }
}
