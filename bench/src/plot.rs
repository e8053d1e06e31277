//! Line plots as SVG, with the points' values beside them.

use std::fmt::Write;

/// One line of a plot.
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Points (x, y), x on a logarithmic scale.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 60.0;
const COLOURS: [&str; 4] = ["#1f5fa8", "#b3541e", "#3d7a3d", "#7a3d7a"];

/// Draws lines over a logarithmic x axis and a y axis that begins at 0.
pub fn svg(title: &str, x_label: &str, y_label: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let low = points().map(|point| point.0.log10()).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.0.log10()).fold(f64::NEG_INFINITY, f64::max);
    let top = points().map(|point| point.1).fold(0.0, f64::max) * 1.15;
    let span = (high - low).max(f64::MIN_POSITIVE);
    let place = |&(x, y): &(f64, f64)| {
        (
            MARGIN + (x.log10() - low) / span * (WIDTH - 2.0 * MARGIN),
            HEIGHT - MARGIN - y / top.max(f64::MIN_POSITIVE) * (HEIGHT - 2.0 * MARGIN),
        )
    };
    let (centre, middle) = (WIDTH / 2.0, HEIGHT / 2.0);
    let (right, bottom, foot) = (WIDTH - MARGIN, HEIGHT - MARGIN, HEIGHT - 14.0);
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{centre}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n\
         <path d=\"M{MARGIN} {MARGIN}V{bottom}H{right}\" fill=\"none\" stroke=\"#444\"/>\n\
         <text x=\"{centre}\" y=\"{foot}\" text-anchor=\"middle\">{x_label}</text>\n\
         <text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 16 {middle})\">{y_label}</text>\n",
    );
    for (number, line) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<_> =
            line.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}</text>\n",
            path.join(" "),
            MARGIN + 12.0,
            MARGIN + 4.0 + 16.0 * number as f64,
            line.name,
        );
        for point in &line.points {
            let (x, y) = place(point);
            let _ = write!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{colour}\">{:.1}</text>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                y - 8.0,
                point.1,
                HEIGHT - MARGIN + 16.0,
                point.0,
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_drawn_inside() {
        let line = |name: &str, y: f64| Line {
            name: name.into(),
            points: vec![(100.0, y), (1000.0, y * 2.0), (10000.0, y)],
        };
        let text = svg("T", "x", "y", &[line("a", 5.0), line("b", 7.0)]);
        assert_eq!(text.matches("<circle").count(), 6);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
