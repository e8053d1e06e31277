//! The examination of the machine that the tests run on.

use std::path::Path;

use txos_doctor::{Status, examine};

/// Directories of cgroups, mounts and state that an examination could leave behind.
fn traces(state: &Path) -> (Vec<String>, Vec<String>) {
    let names = std::fs::read_dir(state)
        .expect("the state directory can be listed")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    // Others may mount meanwhile.
    let ours = mounts.lines().filter(|line| line.contains(&state.display().to_string()));
    (names, ours.map(str::to_owned).collect())
}

#[test]
fn it_leaves_nothing_behind() {
    let state = tempfile::tempdir().unwrap();
    let before = traces(state.path());
    let report = examine(state.path());
    assert_eq!(traces(state.path()), before);
    assert!(report.probes.len() > 20, "{report}");
}

#[test]
fn names_are_unique_and_faults_have_details() {
    let state = tempfile::tempdir().unwrap();
    let report = examine(state.path());
    let mut names: Vec<_> = report.probes.iter().map(|probe| probe.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), report.probes.len());
    for probe in &report.probes {
        assert!(!probe.detail.is_empty(), "{probe:?}");
        assert!(probe.remedy.as_deref() != Some(""), "{probe:?}");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_said() {
    let report = examine(Path::new("/proc/self/no/such"));
    let probe = report.probe("state directory").unwrap();
    assert_eq!(probe.status, Status::Missing, "{report}");
    assert!(probe.detail.contains("/proc/self/no/such"), "{report}");
}

#[test]
fn what_this_test_can_do_itself_is_found() {
    // These two work for everybody on every kernel that txos supports at all.
    let state = tempfile::tempdir().unwrap();
    let report = examine(state.path());
    assert_eq!(report.probe("openat2").map(|probe| probe.status), Some(Status::Ok), "{report}");
    assert!(report.probe("open files").is_some());
}
