//! A small view for tests: a thread with a mount name space of its own, the mirror mounted in it,
//! and an overlay over that.

#![allow(dead_code)] // each test binary uses its part

use std::{
    ffi::CString,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::UnshareFlags,
};
use tempfile::TempDir;
use txos_capture::{Capture, CaptureSpec, Captured};

/// Why a test that mounts cannot run here, if it cannot.
pub fn cannot_mount() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root");
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, "/dev/fuse", flags, Mode::empty()).is_err().then_some("/dev/fuse cannot be opened")
}

/// Ends the calling test where mounting is impossible, and says so.
#[macro_export]
macro_rules! needs_mounts {
    () => {
        if let Some(why) = support::cannot_mount() {
            eprintln!("skipped: {why}");
            return;
        }
    };
}

/// Options of the overlay; [`OVERLAY`] are those of a view made by root.
pub const OVERLAY: &str = "redirect_dir=on,index=on,volatile";

/// The directories of a view.
#[derive(Clone)]
pub struct Places {
    pub fuse: PathBuf,
    pub upper: PathBuf,
    pub work: PathBuf,
    pub merged: PathBuf,
}

/// What a test sees.
pub struct Lab {
    pub dir: TempDir,
    pub places: Places,
    pub overlay: String,
}

impl Default for Lab {
    fn default() -> Self {
        Lab::new()
    }
}

impl Lab {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory for the test");
        let place = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).expect("a directory of the view");
            path
        };
        let places = Places {
            fuse: place("fuse"),
            upper: place("upper"),
            work: place("work"),
            merged: place("merged"),
        };
        place("tree");
        Lab { dir, places, overlay: OVERLAY.to_owned() }
    }

    /// The stable tree of this test.
    pub fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    /// A specification that mirrors the stable tree of this test.
    pub fn spec(&self) -> CaptureSpec {
        CaptureSpec { root: self.tree(), ..CaptureSpec::default() }
    }

    /// Runs `program` in a view of what `spec` mirrors, with the root of the view and the running
    /// capture, and gives what was captured with its result.
    pub fn run<T: Send + 'static>(
        &self,
        spec: CaptureSpec,
        program: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> (Captured, T) {
        self.run_beside(spec, program, |_| {})
    }

    /// As [`Lab::run`]; `beside` is given the capture when the program has ended.
    pub fn run_beside<T: Send + 'static>(
        &self,
        spec: CaptureSpec,
        program: impl FnOnce(&Path) -> T + Send + 'static,
        beside: impl FnOnce(&Capture),
    ) -> (Captured, T) {
        let (fd_out, fd_in) = mpsc::channel::<OwnedFd>();
        let (mounted_out, mounted_in) = mpsc::channel::<()>();
        let (go_out, go_in) = mpsc::channel::<()>();
        let (places, overlay) = (self.places.clone(), self.overlay.clone());
        let view = thread::spawn(move || {
            fd_out.send(enter(&places)).expect("the descriptor goes to the capture");
            mount_overlay(&places, &overlay);
            mounted_out.send(()).expect("the capture waits for the mount");
            go_in.recv().expect("recording begins");
            program(&places.merged)
        });
        let fuse = fd_in.recv().expect("the view opens the device");
        let capture = Capture::start(fuse, spec).expect("the capture starts");
        mounted_in.recv().expect("the view is mounted");
        capture.begin_recording();
        go_out.send(()).expect("the program waits to begin");
        let outcome = view.join();
        beside(&capture);
        let captured = capture.stop().expect("the capture ends");
        (captured, outcome.expect("the program in the view ends well"))
    }
}

/// Makes the calling thread's own mount name space with the mirror in it.
fn enter(places: &Places) -> OwnedFd {
    #[allow(unsafe_code)] // unshare(2) of a part of the process's state
    // SAFETY: only the mount name space and the working directory of this thread are unshared; no
    // descriptor table or memory is concerned.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }
        .expect("a mount name space");
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).expect("private mounts");
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fuse = openat(CWD, "/dev/fuse", flags, Mode::empty()).expect("the device");
    let number = std::os::fd::AsRawFd::as_raw_fd(&fuse);
    let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other");
    let data = CString::new(data).expect("options without NUL");
    mount("txos", &places.fuse, "fuse.txos", MountFlags::RDONLY, Some(data.as_c_str()))
        .expect("the mirror is mounted");
    fuse
}

fn mount_overlay(places: &Places, options: &str) {
    let comma = if options.is_empty() { "" } else { "," };
    let data = format!(
        "lowerdir={},upperdir={},workdir={}{comma}{options}",
        places.fuse.display(),
        places.upper.display(),
        places.work.display()
    );
    let data = CString::new(data).expect("options without NUL");
    mount("txos", &places.merged, "overlay", MountFlags::empty(), Some(data.as_c_str()))
        .expect("the overlay is mounted");
}
