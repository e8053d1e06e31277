//! Results: lines of `experiment,language,implementation,threads,ns`, the same from all languages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One measured case.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What was measured.
    pub experiment: String,
    /// In which language.
    pub language: String,
    /// By which implementation.
    pub implementation: String,
    /// On how many threads.
    pub threads: usize,
    /// Average time of an operation times the number of threads.
    pub ns: f64,
}

/// All lines, in the order in which they were measured.
#[derive(Default)]
pub struct Report {
    /// The lines.
    pub lines: Vec<Line>,
    /// The one implementation to measure, if not all.
    pub only: Option<String>,
    /// The most threads to measure with, if not all.
    pub up_to: Option<usize>,
}

impl Report {
    /// Adds a line and shows it.
    pub fn add(&mut self, experiment: &str, language: &str, name: &str, threads: usize, ns: f64) {
        println!("{experiment},{language},{name},{threads},{ns:.1}");
        self.lines.push(Line {
            experiment: experiment.into(),
            language: language.into(),
            implementation: name.into(),
            threads,
            ns,
        });
    }

    /// Measures a case, unless it was not asked for.
    pub fn measure(
        &mut self,
        experiment: &str,
        name: &str,
        threads: usize,
        case: impl FnOnce() -> f64,
    ) {
        let wanted = self.only.as_ref().is_none_or(|only| only == name)
            && self.up_to.is_none_or(|most| threads <= most);
        if wanted {
            self.add(experiment, "Rust", name, threads, case());
        }
    }

    /// Reads lines; what is not a result is passed over.
    pub fn parse(text: &str) -> Self {
        let line = |l: &str| {
            let mut part = l.split(',');
            Some(Line {
                experiment: part.next()?.into(),
                language: part.next()?.into(),
                implementation: part.next()?.into(),
                threads: part.next()?.parse().ok()?,
                ns: part.next()?.trim().parse().ok()?,
            })
        };
        Self { lines: text.lines().filter_map(line).collect(), ..Self::default() }
    }

    /// The experiments in order, each once.
    pub fn experiments(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for l in &self.lines {
            if !all.contains(&l.experiment) {
                all.push(l.experiment.clone());
            }
        }
        all
    }

    /// The figures of one experiment: by language and implementation, in order, then by threads.
    pub fn series(&self, experiment: &str) -> Vec<(String, BTreeMap<usize, f64>)> {
        let mut all: Vec<(String, BTreeMap<usize, f64>)> = Vec::new();
        for l in self.lines.iter().filter(|l| l.experiment == experiment) {
            let name = format!("{} {}", l.language, l.implementation);
            let at = all.iter().position(|(n, _)| *n == name).unwrap_or_else(|| {
                all.push((name.clone(), BTreeMap::new()));
                all.len() - 1
            });
            all[at].1.insert(l.threads, l.ns);
        }
        all
    }

    /// A Markdown table for each experiment.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for experiment in self.experiments() {
            let series = self.series(&experiment);
            let threads: Vec<usize> =
                series.first().map(|(_, s)| s.keys().copied().collect()).unwrap_or_default();
            let _ = writeln!(out, "\n**{}**\n", title(&experiment));
            let _ = write!(out, "| threads |");
            for t in &threads {
                let _ = write!(out, " {t} |");
            }
            let _ = write!(out, "\n|---|{}\n", "--:|".repeat(threads.len()));
            for (name, figures) in series {
                let _ = write!(out, "| {name} |");
                for t in &threads {
                    let cell = figures.get(t).map_or("–".into(), |ns| format!("{ns:.0}"));
                    let _ = write!(out, " {cell} |");
                }
                out.push('\n');
            }
        }
        out
    }
}

/// What an experiment is called where people read it.
pub fn title(experiment: &str) -> String {
    match experiment {
        "list 0" => "100-node list, read-only".into(),
        "list 10" => "100-node list, 10 % writes".into(),
        "list 100" => "100-node list, 100 % writes".into(),
        "move" => "Moves of a known node between two lists".into(),
        "find and move" => {
            "Moves between two sorted lists (100 nodes in all), found by search".into()
        }
        "find and move grown" => {
            "Moves between two sorted lists (100 nodes for each thread), found by search".into()
        }
        "dcache link" => "Four lists a name: link and unlink".into(),
        "dcache 90% lookup" => "Four lists a name: 90 % lookups, 10 % link and unlink".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_round_trip() {
        let text = "list 0,Rust,olf,2,12.5\nnoise\nlist 0,C,olf,2,13.0\nlist 0,Rust,olf,1,9\n";
        let report = Report::parse(text);
        assert_eq!(report.lines.len(), 3);
        assert_eq!(report.experiments(), ["list 0"]);
        let series = report.series("list 0");
        assert_eq!(series[0].0, "Rust olf");
        assert_eq!(series[0].1, BTreeMap::from([(1, 9.0), (2, 12.5)]));
        assert!(report.markdown().contains("| C olf | – | 13 |"));
    }
}
