//! The shape of an examination, and how it reads as text.

use std::fmt;

use serde::Serialize;

use crate::isolation::Isolation;

/// What trying a mechanism showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It works as a transaction needs it.
    Ok,
    /// It works in part; the detail says what is lost.
    Limited,
    /// It does not work here.
    Missing,
}

/// One mechanism, tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// What was tried; stable, for programs to look up.
    pub name: &'static str,
    /// How it went.
    pub status: Status,
    /// What was seen: figures, the failing call and its error.
    pub detail: String,
    /// What would give more, where something is lacking.
    pub remedy: Option<String>,
}

impl Probe {
    pub(crate) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), remedy: None }
    }

    pub(crate) fn limited(
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { name, status: Status::Limited, detail: detail.into(), remedy }
    }

    pub(crate) fn missing(
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { name, status: Status::Missing, detail: detail.into(), remedy }
    }

    /// The same answer, without a remedy: for what no setting of the machine would give.
    pub(crate) fn without_remedy(mut self) -> Self {
        self.remedy = None;
        self
    }
}

/// All probes and what follows from them. `Display` renders it for people, serde for programs.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    /// Name, release and architecture of the running kernel.
    pub kernel: String,
    /// For whose privileges the report speaks.
    pub user: String,
    /// What was tried, in a fixed order.
    pub probes: Vec<Probe>,
    /// What a transaction gets here.
    pub isolation: Isolation,
}

impl DoctorReport {
    /// The probe of that name, if there is one.
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.name == name)
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, as {}", self.kernel, self.user)?;
        let width = self.probes.iter().map(|probe| probe.name.len()).max().unwrap_or(0);
        for probe in &self.probes {
            let mark = match probe.status {
                Status::Ok => "ok     ",
                Status::Limited => "limited",
                Status::Missing => "missing",
            };
            writeln!(f, "  {mark}  {:width$}  {}", probe.name, probe.detail)?;
            if let Some(remedy) = &probe.remedy {
                writeln!(f, "  {:7}  {:width$}  remedy: {remedy}", "", "")?;
            }
        }
        write!(f, "{}", self.isolation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::Level;

    fn report() -> DoctorReport {
        DoctorReport {
            kernel: "Linux 6.1 x86_64".into(),
            user: "root".into(),
            probes: vec![
                Probe::ok("openat2", "works"),
                Probe::missing("fanotify", "fanotify_init: EPERM", "run as root"),
            ],
            isolation: Isolation {
                level: Level::None,
                verdict: "none".into(),
                limits: vec!["a limit".into()],
            },
        }
    }

    #[test]
    fn text_names_each_probe_and_its_remedy() {
        let text = report().to_string();
        assert!(text.contains("ok       openat2   works\n"), "{text}");
        assert!(text.contains("missing  fanotify  fanotify_init: EPERM\n"), "{text}");
        assert!(text.contains("remedy: run as root\n"), "{text}");
        assert!(text.contains("a limit"), "{text}");
    }

    #[test]
    fn json_has_lower_case_states() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["probes"][1]["status"], "missing");
        assert_eq!(json["probes"][0]["remedy"], serde_json::Value::Null);
        assert_eq!(json["isolation"]["level"], "none");
    }

    #[test]
    fn probes_are_found_by_name() {
        assert_eq!(report().probe("openat2").map(|probe| probe.status), Some(Status::Ok));
        assert!(report().probe("nothing").is_none());
    }
}
