//! The report as one HTML page with its plots inside.

use std::fmt::Write;

use super::svg::escape;
use super::{INTRO, Report, Table, basis};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;\
padding:0 1rem;color:#222}table{border-collapse:collapse;margin:1rem 0;font-size:13px;\
display:block;overflow-x:auto}th,td{border:1px solid #ccc;padding:.25rem .5rem;text-align:left}\
th{background:#f3f3f3}.no{background:#fde2dd}svg{max-width:100%}";

fn table(out: &mut String, t: &Table) {
    out.push_str("<table><tr>");
    for h in &t.head {
        let _ = write!(out, "<th>{}</th>", escape(h));
    }
    out.push_str("</tr>");
    for row in &t.rows {
        out.push_str("<tr>");
        for c in row {
            let _ = write!(out, "<td>{}</td>", escape(c));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>\n");
}

/// The whole report.
pub fn render(r: &Report) -> String {
    let held = r.claims.iter().filter(|c| c.holds).count();
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>TxLinux on metatm</title>\
         <style>{STYLE}</style><h1>TxLinux reproduced on metatm</h1><p>{}</p><h2>Verdict</h2>\
         <p>{held} of {} comparisons agree.</p><table><tr><th>source<th>claim<th>paper<th>measured\
         <th>basis<th>agrees<th>if not: cause</tr>",
        escape(INTRO),
        r.claims.len()
    );
    for c in &r.claims {
        let _ = writeln!(
            out,
            "<tr{}><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            if c.holds { "" } else { " class=\"no\"" },
            escape(c.source),
            escape(&c.what),
            escape(&c.paper),
            escape(&c.measured),
            basis(c.basis),
            if c.holds { "yes" } else { "no" },
            if c.holds { String::new() } else { escape(&c.why) },
        );
    }
    out.push_str("</table>\n");
    for s in &r.sections {
        let _ = writeln!(out, "<h2>{}</h2><p>{}</p>", escape(&s.title), escape(&s.text));
        for plot in &s.plots {
            out.push_str(&plot.svg);
        }
        for t in &s.tables {
            table(&mut out, t);
        }
    }
    out + "</html>\n"
}
