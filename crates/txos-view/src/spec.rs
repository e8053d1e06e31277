use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{SignalState, paths};

/// As whom the view is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Credentials {
    /// With the privileges of the initial user namespace (or a container's root that may mount).
    Privileged,
    /// In a user namespace that maps the caller's own user and group, and nobody else's.
    User {
        /// The caller's user id.
        uid: u32,
        /// The caller's group id.
        gid: u32,
    },
}

/// One overlay of the view: the shadow of one mount of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The mount point, on the host and in the view.
    #[serde(with = "paths::one")]
    pub point: PathBuf,
    /// Upper directory, or `None` where the host's mount is read-only.
    #[serde(with = "paths::optional")]
    pub upper: Option<PathBuf>,
    /// Work directory of the overlay, beside the upper directory.
    #[serde(with = "paths::optional")]
    pub work: Option<PathBuf>,
    /// Options of the host's mount that hold in the view as well.
    pub no_suid: bool,
    /// See [`Layer::no_suid`].
    pub no_exec: bool,
    /// Device nodes on this mount are not usable on the host either.
    pub no_dev: bool,
}

/// A file that the view starts with, in the shadow layer: a script of one line that hands over to
/// a helper. What the delta shows of it is not the command's doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plant {
    /// Where.
    #[serde(with = "paths::one")]
    pub path: PathBuf,
    /// Name of the helper.
    pub helper: String,
}

impl Plant {
    /// What is written there.
    pub fn content(&self) -> String {
        format!("#!/dev/txos/{}\n", self.helper)
    }
}

/// A program of the host that a helper needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its name.
    pub name: String,
    /// Where it is on the host.
    #[serde(with = "paths::one")]
    pub path: PathBuf,
}

/// All that is needed to make one view and run a command in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewSpec {
    /// As whom.
    pub credentials: Credentials,
    /// An empty directory over which the view is put together. In its own mount namespace: nothing
    /// of it shows outside.
    #[serde(with = "paths::one")]
    pub scaffold: PathBuf,
    /// The overlays, parents before children; the first is `/`.
    pub layers: Vec<Layer>,
    /// Where non-empty, only these directories can be written (`--tree`).
    #[serde(with = "paths::list")]
    pub trees: Vec<PathBuf>,
    /// Paths of the host that are let through for reading and writing (`--live`, `--allow PATH`).
    #[serde(with = "paths::list")]
    pub live: Vec<PathBuf>,
    /// Files of the host that are let through for appending alone (`--exempt-log`).
    #[serde(with = "paths::list")]
    pub logs: Vec<PathBuf>,
    /// Whether the view gets a network of its own, with nothing but a loopback interface.
    pub private_network: bool,
    /// Whether sockets are made in that network through which the manager lets members out.
    pub gateway: bool,
    /// Whether processes of root keep the capabilities of calls that act on the machine, because the system
    /// call filter lets such calls through (`--on-unsupported allow`).
    pub acts_on_machine: bool,
    /// Whether device nodes outside `/dev` may be used, because a device controller keeps the
    /// dangerous ones closed (see [`crate::DeviceGuard`]).
    pub devices_guarded: bool,
    /// Directories of control groups that the processes of the view belong to.
    #[serde(with = "paths::list")]
    pub groups: Vec<PathBuf>,
    /// The txos program, shown in the view as `/dev/txos/NAME` for each of `helpers`.
    #[serde(with = "paths::one")]
    pub program: PathBuf,
    /// Names under which the program is shown.
    pub helpers: Vec<String>,
    /// Programs of the host that the helpers need, shown as `/dev/txos/real-NAME`.
    pub originals: Vec<Original>,
    /// A file to which the helpers append their requests, shown as `/dev/txos/requests`.
    #[serde(with = "paths::one")]
    pub requests: PathBuf,
    /// Programs of the host that are shadowed by helpers, as long as the command leaves them alone.
    pub plants: Vec<Plant>,
    /// Working directory of the command.
    #[serde(with = "paths::one")]
    pub directory: PathBuf,
    /// Which of the three standard streams become the terminal of the view.
    pub terminal: [bool; 3],
    /// The signals that the command finds ignored and blocked: its caller's.
    pub signals: SignalState,
    /// Additional descriptors that the command inherits (`--pass-fd`).
    pub pass_fds: Vec<i32>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}
