//! The rules: which calls a transaction answers itself, and how. The one source of truth.
//!
//! The BPF program is compiled from this table, the supervisor decides by it again from the same
//! registers, and the tests walk it. A call without a rule goes through untouched; the kernel's
//! per-call cache then lets it pass without running the filter at all, because every rule is
//! reached by call number alone (`seccomp_is_const_allow`, Linux 5.11).
//!
//! Invariants:
//! * Every decision rests on registers, which the target cannot change any more. Memory that the
//!   target could change behind our back decides nothing but the wording of a line, or what harms
//!   nobody else: a peer's address (the transaction's network namespace has no way out, so a
//!   changed one reaches nobody), a lock's range (another member misses its own protection), the
//!   name of an attribute (a member that wants to mislead its own transaction can).
//! * Rules whose arguments decide come first, hottest first; the others cost nothing to the rest.
//! * Only the low 32 bits of an argument are compared where the kernel itself takes an `int`, an
//!   `unsigned int`, or only the low half (`clone`: `lower_32_bits(clone_flags)`).

use super::class::Class;

/// A condition on the registers of a call. All conditions of a [`Case`] must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Some bit of the mask is set in the low half of the argument: `(argument, mask)`.
    Bits(u8, u32),
    /// The low half of the argument has this value: `(argument, value)`.
    Is(u8, u32),
    /// The low half of the argument, unsigned, is at least this value: `(argument, value)`.
    AtLeast(u8, u32),
    /// The argument, a pointer, is not null.
    Given(u8),
}

/// What the supervisor is asked to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Refuse it as the policy says.
    Refuse(Class),
    /// Make it for the target when it only reads the clock, else refuse it.
    Clock,
    /// Look where it goes: refuse it when that is outside and the network is not allowed, else note
    /// it and let it go on.
    Contact,
    /// Take the lock outside too, then let it go on.
    Lock,
    /// Keep it for the commit when it signals a process outside, else let it go on.
    Signal,
    /// Refuse it when it names a process outside, else let it go on.
    Outsider,
    /// Answer it without the attribute that the policy hides, if that matters; else let it go on.
    Hide,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Goes through.
    Allow,
    /// Returns at once with this error; 0 means success.
    Errno(u16),
    /// Goes to the supervisor.
    Ask(Ask),
}

/// One way that a call can be made, and what becomes of it then.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// All must hold; none means always.
    pub when: &'static [Test],
    /// What happens then.
    pub then: Action,
}

/// All cases of one call. The first that holds decides; when none does, the call goes through.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Name of the call, as in [`super::numbers::NUMBERS`].
    pub call: &'static str,
    /// Its cases, in order.
    pub cases: &'static [Case],
}

const DONE: Action = Action::Errno(0);
const ABSENT: Action = Action::Errno(libc::ENOSYS as u16);

const fn refuse(class: Class) -> Action {
    Action::Ask(Ask::Refuse(class))
}

const fn case(when: &'static [Test], then: Action) -> Case {
    Case { when, then }
}

const fn rule(call: &'static str, cases: &'static [Case]) -> Rule {
    Rule { call, cases }
}

/// A rule of one case that always holds.
macro_rules! always {
    ($call:literal, $then:expr) => {
        rule($call, const { &[case(&[], $then)] })
    };
}

/// Namespace flags of clone(2) and unshare(2), `CLONE_NEWTIME` excepted: in clone it is part of
/// the exit signal.
pub const NEW_NAMESPACE: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
/// `CLONE_NEWTIME`, for unshare(2).
pub const NEW_TIME: u32 = 0x80;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCCONS: u32 = 0x541D;
const FIFREEZE: u32 = 0xC004_5877;
const FITHAW: u32 = 0xC004_5878;
const FITRIM: u32 = 0xC018_5879;
const FS_IOC_SHUTDOWN: u32 = 0x8004_587D;

/// Names of the ioctls that are refused, for the lines about them.
pub const IOCTLS: [(u32, &str); 7] = [
    (TIOCSTI, "TIOCSTI"),
    (TIOCLINUX, "TIOCLINUX"),
    (TIOCCONS, "TIOCCONS"),
    (FIFREEZE, "FIFREEZE"),
    (FITHAW, "FITHAW"),
    (FITRIM, "FITRIM"),
    (FS_IOC_SHUTDOWN, "FS_IOC_SHUTDOWN"),
];

const AF_UNIX: u32 = libc::AF_UNIX as u32;
const AF_NETLINK: u32 = libc::AF_NETLINK as u32;
const AF_ALG: u32 = libc::AF_ALG as u32;
/// Far above the last socket family (Linux 6.18 has 46).
const NO_FAMILY: u32 = 64;
const NO_PROTOCOL: Action = Action::Errno(libc::EPROTONOSUPPORT as u16);

/// socket(2) and socketpair(2), by family and, for netlink, by protocol.
///
/// * Local sockets are the view's own: a host socket reached through the overlay refuses by itself.
/// * Internet sockets live in the transaction's own network namespace, where members reach one
///   another over loopback; where a call goes is looked at by connect(2) and its kind.
/// * Route and socket-diagnosis netlink tell about the transaction's own network namespace. (With
///   `--allow net` it is the host's: the members must hold no `CAP_NET_ADMIN`, then they can only
///   read.)
/// * Audit, SELinux and device events look as on a kernel without them, because programs that
///   change accounts take any other error for a failure.
/// * The kernel's cipher sockets look absent too; all users of them have a way of their own.
/// * No family at all, and numbers far above all families, are errors that the kernel itself names.
const SOCKET: &[Case] = &[
    case(&[Test::Is(0, AF_UNIX)], Action::Allow),
    case(&[Test::Is(0, libc::AF_INET as u32)], Action::Allow),
    case(&[Test::Is(0, libc::AF_INET6 as u32)], Action::Allow),
    case(&[Test::Is(0, AF_NETLINK), Test::Is(2, libc::NETLINK_ROUTE as u32)], Action::Allow),
    case(&[Test::Is(0, AF_NETLINK), Test::Is(2, libc::NETLINK_SOCK_DIAG as u32)], Action::Allow),
    case(&[Test::Is(0, AF_NETLINK), Test::Is(2, libc::NETLINK_AUDIT as u32)], NO_PROTOCOL),
    case(&[Test::Is(0, AF_NETLINK), Test::Is(2, libc::NETLINK_SELINUX as u32)], NO_PROTOCOL),
    case(&[Test::Is(0, AF_NETLINK), Test::Is(2, libc::NETLINK_KOBJECT_UEVENT as u32)], NO_PROTOCOL),
    case(&[Test::Is(0, AF_ALG)], Action::Errno(libc::EAFNOSUPPORT as u16)),
    case(&[Test::Is(0, libc::AF_UNSPEC as u32)], Action::Allow),
    case(&[Test::AtLeast(0, NO_FAMILY)], Action::Allow),
    case(&[], refuse(Class::Network)),
];

/// syslog(2): reading is harmless; consuming, clearing and the console level are the machine's.
const SYSLOG: &[Case] = &[
    case(&[Test::Is(0, 2)], refuse(Class::Machine)),
    case(&[Test::Is(0, 4)], refuse(Class::Machine)),
    case(&[Test::Is(0, 5)], refuse(Class::Machine)),
    case(&[Test::Is(0, 6)], refuse(Class::Machine)),
    case(&[Test::Is(0, 7)], refuse(Class::Machine)),
    case(&[Test::Is(0, 8)], refuse(Class::Machine)),
];

/// msync(2) reaches past the overlay to the file below it. Wrong arguments are left to the kernel,
/// which finds them before it waits for anything.
const MSYNC: &[Case] = &[
    case(&[Test::Bits(0, 0xfff)], Action::Allow),
    case(&[Test::Bits(2, !((libc::MS_SYNC | libc::MS_INVALIDATE) as u32))], Action::Allow),
    case(&[Test::Bits(2, libc::MS_SYNC as u32)], DONE),
];

/// kill(2) and its kind: groups, and every process, are of members alone; a number below 2 is none of an
/// outsider's either (process 1 is the view's init).
const KILL: &[Case] = &[
    case(&[Test::Bits(0, 1 << 31)], Action::Allow),
    case(&[Test::AtLeast(0, 2)], Action::Ask(Ask::Signal)),
];

const LOCK: Action = Action::Ask(Ask::Lock);
const HIDE: Action = Action::Ask(Ask::Hide);

/// fcntl(2): only the commands about locks are asked about.
const FCNTL: &[Case] = &[
    case(&[Test::Is(1, libc::F_SETLK as u32)], LOCK),
    case(&[Test::Is(1, libc::F_SETLKW as u32)], LOCK),
    case(&[Test::Is(1, libc::F_GETLK as u32)], LOCK),
    case(&[Test::Is(1, libc::F_OFD_SETLK as u32)], LOCK),
    case(&[Test::Is(1, libc::F_OFD_SETLKW as u32)], LOCK),
    case(&[Test::Is(1, libc::F_OFD_GETLK as u32)], LOCK),
];

/// The table.
pub const RULES: &[Rule] = &[
    // Calls that are common and mostly go through: their arguments decide.
    rule(
        "ioctl",
        &[
            case(&[Test::Is(1, TIOCSTI)], refuse(Class::Terminal)),
            case(&[Test::Is(1, TIOCLINUX)], refuse(Class::Terminal)),
            case(&[Test::Is(1, TIOCCONS)], refuse(Class::Terminal)),
            case(&[Test::Is(1, FIFREEZE)], refuse(Class::Mount)),
            case(&[Test::Is(1, FITHAW)], refuse(Class::Mount)),
            case(&[Test::Is(1, FITRIM)], refuse(Class::Mount)),
            case(&[Test::Is(1, FS_IOC_SHUTDOWN)], refuse(Class::Mount)),
        ],
    ),
    rule("fcntl", FCNTL),
    rule("clone", &[case(&[Test::Bits(0, NEW_NAMESPACE)], refuse(Class::Namespace))]),
    rule("sendto", &[case(&[Test::Given(4)], Action::Ask(Ask::Contact))]),
    always!("connect", Action::Ask(Ask::Contact)),
    // Where these go stands in memory.
    always!("sendmsg", Action::Ask(Ask::Contact)),
    always!("sendmmsg", Action::Ask(Ask::Contact)),
    always!("flock", LOCK),
    // To a process outside they wait for the commit. (By descriptor members alone can be meant: there is
    // none of anybody else.)
    rule("kill", KILL),
    rule("tgkill", KILL),
    rule("tkill", KILL),
    rule("rt_sigqueueinfo", KILL),
    rule("rt_tgsigqueueinfo", KILL),
    rule("pidfd_open", &[case(&[Test::AtLeast(0, 2)], Action::Ask(Ask::Outsider))]),
    rule("socket", SOCKET),
    rule("socketpair", SOCKET),
    rule("msync", MSYNC),
    rule("unshare", &[case(&[Test::Bits(0, NEW_NAMESPACE | NEW_TIME)], refuse(Class::Namespace))]),
    rule("syslog", SYSLOG),
    // It would flush every file system of the machine. (fsync(2) and its kind go through: the view's
    // overlays are mounted `volatile`, so they wait for nothing there, and a live file is flushed.)
    always!("sync", DONE),
    // Only where the view keeps an attribute of its own (see `Policy::hidden_attribute`).
    always!("setxattr", HIDE),
    always!("lsetxattr", HIDE),
    always!("fsetxattr", HIDE),
    always!("setxattrat", HIDE),
    always!("removexattr", HIDE),
    always!("lremovexattr", HIDE),
    always!("fremovexattr", HIDE),
    always!("removexattrat", HIDE),
    always!("listxattr", HIDE),
    always!("llistxattr", HIDE),
    always!("flistxattr", HIDE),
    always!("listxattrat", HIDE),
    // Not offered: programs fall back. (clone3 hides its flags in memory.)
    always!("clone3", ABSENT),
    always!("io_uring_setup", ABSENT),
    always!("io_uring_enter", ABSENT),
    always!("io_uring_register", ABSENT),
    // The tree of mounts.
    always!("mount", refuse(Class::Mount)),
    always!("umount2", refuse(Class::Mount)),
    always!("pivot_root", refuse(Class::Mount)),
    always!("move_mount", refuse(Class::Mount)),
    always!("open_tree", refuse(Class::Mount)),
    always!("open_tree_attr", refuse(Class::Mount)),
    always!("fsopen", refuse(Class::Mount)),
    always!("fsconfig", refuse(Class::Mount)),
    always!("fsmount", refuse(Class::Mount)),
    always!("fspick", refuse(Class::Mount)),
    always!("mount_setattr", refuse(Class::Mount)),
    always!("swapon", refuse(Class::Mount)),
    always!("swapoff", refuse(Class::Mount)),
    always!("quotactl", refuse(Class::Mount)),
    always!("quotactl_fd", refuse(Class::Mount)),
    always!("nfsservctl", refuse(Class::Mount)),
    // A handle reaches any file of a file system, whatever the view covers.
    always!("open_by_handle_at", refuse(Class::Handle)),
    always!("setns", refuse(Class::Namespace)),
    // The machine.
    always!("reboot", refuse(Class::Machine)),
    always!("kexec_load", refuse(Class::Machine)),
    always!("kexec_file_load", refuse(Class::Machine)),
    always!("init_module", refuse(Class::Machine)),
    always!("finit_module", refuse(Class::Machine)),
    always!("delete_module", refuse(Class::Machine)),
    always!("create_module", refuse(Class::Machine)),
    always!("sethostname", refuse(Class::Machine)),
    always!("setdomainname", refuse(Class::Machine)),
    always!("acct", refuse(Class::Machine)),
    always!("iopl", refuse(Class::Machine)),
    always!("ioperm", refuse(Class::Machine)),
    always!("settimeofday", refuse(Class::Clock)),
    always!("clock_settime", refuse(Class::Clock)),
    always!("adjtimex", Action::Ask(Ask::Clock)),
    always!("clock_adjtime", Action::Ask(Ask::Clock)),
    // What watches or changes the kernel and other processes from beside.
    always!("bpf", refuse(Class::Watching)),
    always!("perf_event_open", refuse(Class::Watching)),
    always!("fanotify_init", refuse(Class::Watching)),
    // A page fault that a member answers could hold whoever reads its memory for the transaction.
    always!("userfaultfd", refuse(Class::Watching)),
    always!("add_key", refuse(Class::Keyring)),
    always!("request_key", refuse(Class::Keyring)),
    always!("keyctl", refuse(Class::Keyring)),
];

impl Test {
    /// Whether the condition holds for these registers.
    pub fn holds(self, args: &[u64; 6]) -> bool {
        match self {
            Test::Bits(arg, mask) => args[usize::from(arg)] as u32 & mask != 0,
            Test::Is(arg, value) => args[usize::from(arg)] as u32 == value,
            Test::AtLeast(arg, value) => args[usize::from(arg)] as u32 >= value,
            Test::Given(arg) => args[usize::from(arg)] != 0,
        }
    }
}

impl Rule {
    /// The first case that holds, or [`Action::Allow`].
    pub fn decide(&self, args: &[u64; 6]) -> Action {
        let found = self.cases.iter().find(|case| case.when.iter().all(|test| test.holds(args)));
        found.map_or(Action::Allow, |case| case.then)
    }
}

/// The rule of a call, by name.
pub fn rule_of(call: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.call == call)
}
