//! What a transaction may do that cannot be isolated: the user's choice, as data.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The error of a call that a transaction cannot isolate or roll back (`ENOTXSUPPORT`).
///
/// The number is the original system's; no Linux call returns it otherwise.
pub const ENOTXSUPPORT: i32 = 134;

/// What happens when a member makes a call that cannot be isolated or rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnsupported {
    /// The call fails with [`ENOTXSUPPORT`], and a line names it.
    #[default]
    Error,
    /// The transaction ends at once; nothing of it stays.
    Abort,
    /// The call is made for real, outside the transaction, and the report warns of it.
    Allow,
}

/// The choices that the filter and its supervisor are built from.
///
/// It travels to the fresh child (serde), because the filter is built and installed there while
/// the supervisor runs in the manager: both must come from the same policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// The answer to calls that are not supported.
    pub on_unsupported: OnUnsupported,
    /// `--allow net`: sockets of every family go through, and what was contacted is reported.
    pub allow_net: bool,
    /// `--allow net:HOST[:PORT]`: connections to these are let through, and reported.
    #[serde(default)]
    pub allow_hosts: Vec<Host>,
    /// `--net record`: streams to those (to all, where none is named) are recorded, so that a retry
    /// sees the same bytes.
    #[serde(default)]
    pub record: bool,
    /// An extended attribute that the view itself keeps on shadow objects: members are not shown it
    /// in lists, and can neither set nor remove it.
    #[serde(default)]
    pub hidden_attribute: Option<String>,
}

/// A host that members may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its address.
    pub ip: IpAddr,
    /// Its port, or `None` for all.
    pub port: Option<u16>,
}
