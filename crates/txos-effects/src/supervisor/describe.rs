//! What a refused call was asked for, in a few words.

use super::target::Target;
use crate::filter::rules::{IOCTLS, NEW_NAMESPACE, NEW_TIME};

const NAMESPACES: &[(u32, &str)] = &[
    (libc::CLONE_NEWNS as u32, "mount"),
    (libc::CLONE_NEWCGROUP as u32, "cgroup"),
    (libc::CLONE_NEWUTS as u32, "uts"),
    (libc::CLONE_NEWIPC as u32, "ipc"),
    (libc::CLONE_NEWUSER as u32, "user"),
    (libc::CLONE_NEWPID as u32, "pid"),
    (libc::CLONE_NEWNET as u32, "net"),
    (NEW_TIME, "time"),
];

const FAMILIES: &[(i32, &str)] = &[
    (libc::AF_INET, "AF_INET"),
    (libc::AF_INET6, "AF_INET6"),
    (libc::AF_PACKET, "AF_PACKET"),
    (libc::AF_VSOCK, "AF_VSOCK"),
    (libc::AF_NETLINK, "AF_NETLINK"),
    (libc::AF_BLUETOOTH, "AF_BLUETOOTH"),
    (libc::AF_CAN, "AF_CAN"),
    (libc::AF_TIPC, "AF_TIPC"),
    (libc::AF_KEY, "AF_KEY"),
    (libc::AF_XDP, "AF_XDP"),
];

/// The detail of a line: from registers where they tell, else one string of the target's memory.
pub(super) fn detail(call: &str, args: &[u64; 6], target: &Target<'_>) -> String {
    match call {
        "socket" | "socketpair" => family(args),
        "clone" => namespaces(args[0] as u32 & NEW_NAMESPACE),
        "unshare" => namespaces(args[0] as u32 & (NEW_NAMESPACE | NEW_TIME)),
        "ioctl" => {
            let name = IOCTLS.iter().find(|row| row.0 == args[1] as u32).map_or("?", |row| row.1);
            name.to_owned()
        }
        "mount" | "move_mount" => target.text(args[if call == "mount" { 1 } else { 3 }]),
        "umount2" | "pivot_root" | "swapon" | "swapoff" | "fsopen" => target.text(args[0]),
        "open_tree" | "open_tree_attr" | "fspick" | "mount_setattr" => target.text(args[1]),
        "delete_module" | "acct" => target.text(args[0]),
        "syslog" => format!("action {}", args[0] as i32),
        "bpf" | "keyctl" => format!("operation {}", args[0] as i32),
        _ => String::new(),
    }
}

/// Whether the detail of a call stands in memory.
pub(super) fn reads_memory(call: &str) -> bool {
    const NOT: [&str; 7] = ["socket", "socketpair", "clone", "unshare", "ioctl", "syslog", "bpf"];
    const NONE: [&str; 4] = ["keyctl", "sethostname", "setdomainname", "reboot"];
    !NOT.contains(&call) && !NONE.contains(&call)
}

fn family(args: &[u64; 6]) -> String {
    let family = args[0] as i32;
    let name = FAMILIES.iter().find(|row| row.0 == family).map(|row| row.1.to_owned());
    let name = name.unwrap_or_else(|| format!("family {family}"));
    match family {
        libc::AF_NETLINK => format!("{name}, protocol {}", args[2] as i32),
        _ => name,
    }
}

fn namespaces(flags: u32) -> String {
    let names: Vec<_> = NAMESPACES.iter().filter(|row| flags & row.0 != 0).map(|r| r.1).collect();
    format!("new {} namespace", names.join(" and "))
}
