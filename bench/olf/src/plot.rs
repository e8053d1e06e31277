//! Plots as SVG: threads across, ns upwards, both on logarithmic scales.

use crate::report::{Report, title};
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 8] =
    ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#17becf"];

/// One experiment.
pub fn svg(report: &Report, experiment: &str) -> String {
    let series = report.series(experiment);
    let points = || series.iter().flat_map(|(_, s)| s.iter());
    let most = points().map(|(t, _)| *t).max().unwrap_or(1) as f64;
    let low = points().map(|(_, ns)| *ns).fold(f64::MAX, f64::min).max(1.0);
    let high = points().map(|(_, ns)| *ns).fold(low * 10.0, f64::max);
    let (floor, ceiling) = (low.log10().floor(), high.log10().ceil());
    let x = |t: usize| LEFT + (WIDTH - LEFT - RIGHT) * (t as f64).log2() / most.log2().max(1.0);
    let y = |ns: f64| {
        let part = (ns.max(1.0).log10() - floor) / (ceiling - floor);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
        title(experiment)
    );
    let mut decade = floor;
    while decade <= ceiling {
        let (at, right) = (y(10f64.powf(decade)), WIDTH - RIGHT);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            10f64.powf(decade)
        );
        decade += 1.0;
    }
    let mut ticks: Vec<usize> = points().map(|(t, _)| *t).collect();
    ticks.sort_unstable();
    ticks.dedup();
    for t in ticks {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{t}</text>",
            x(t),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">threads</text>\n\
         <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">\
         ns an operation × threads</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 12.0,
        (TOP + HEIGHT - BOTTOM) / 2.0
    );
    for (i, (name, figures)) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        // Languages beyond the eighth line repeat the colours with dashes.
        let dash = ["", "6 3", "2 3"][i / COLOURS.len() % 3];
        let width = if name.ends_with(" olf") { 3.0 } else { 1.5 };
        let path: Vec<String> =
            figures.iter().map(|(t, ns)| format!("{:.1},{:.1}", x(*t), y(*ns))).collect();
        let at = TOP + 10.0 + 17.0 * i as f64;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dash}\"/>\n\
             <line x1=\"{x1}\" x2=\"{x2}\" y1=\"{at}\" y2=\"{at}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\" stroke-dasharray=\"{dash}\"/>\
             <text x=\"{xt}\" y=\"{yt}\">{name}</text>",
            path.join(" "),
            x1 = WIDTH - RIGHT + 15.0,
            x2 = WIDTH - RIGHT + 40.0,
            xt = WIDTH - RIGHT + 46.0,
            yt = at + 4.0,
        );
    }
    out.push_str("</svg>\n");
    out
}
