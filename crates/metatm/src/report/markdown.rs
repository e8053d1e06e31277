//! The report as Markdown.

use std::fmt::Write;

use super::{INTRO, Report, Table, basis};

fn cell(s: &str) -> String {
    s.replace('|', "\\|").replace('\n', " ")
}

fn table(out: &mut String, t: &Table) {
    let _ = writeln!(out, "| {} |", t.head.iter().map(|c| cell(c)).collect::<Vec<_>>().join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(t.head.len()));
    for row in &t.rows {
        let _ =
            writeln!(out, "| {} |", row.iter().map(|c| cell(c)).collect::<Vec<_>>().join(" | "));
    }
    out.push('\n');
}

/// The whole report.
pub fn render(r: &Report) -> String {
    let held = r.claims.iter().filter(|c| c.holds).count();
    let mut out = format!("# TxLinux reproduced on metatm\n\n{INTRO}\n\n## Verdict\n\n");
    let _ = writeln!(out, "{held} of {} comparisons agree.\n", r.claims.len());
    let mut t =
        Table::new(&["source", "claim", "paper", "measured", "basis", "agrees", "if not: cause"]);
    for c in &r.claims {
        t.row([
            c.source.to_owned(),
            c.what.clone(),
            c.paper.clone(),
            c.measured.clone(),
            basis(c.basis).to_owned(),
            if c.holds { "yes" } else { "**no**" }.to_owned(),
            if c.holds { String::new() } else { c.why.clone() },
        ]);
    }
    table(&mut out, &t);
    for s in &r.sections {
        let _ = writeln!(out, "## {}\n\n{}\n", s.title, s.text);
        for plot in &s.plots {
            let _ = writeln!(out, "![{}](plots/{})\n", plot.title, plot.file);
        }
        for t in &s.tables {
            table(&mut out, t);
        }
    }
    out
}
