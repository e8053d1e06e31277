//! Bar charts as SVG, without any library: grouped or stacked bars with optional error bars.

use std::fmt::Write;

/// One series of values, a value for each category.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Values with half-widths of their intervals.
    pub values: Vec<(f64, f64)>,
}

const COLOURS: [&str; 6] = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#97bbf5"];
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 60.0;

/// Escapes text for XML.
pub fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A step that divides `span` into about five.
fn step(span: f64) -> f64 {
    let raw = (span / 5.0).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw).unwrap_or(raw)
}

/// A grouped bar chart; `unit` labels the axis.
pub fn bars(title: &str, unit: &str, categories: &[String], series: &[Series]) -> String {
    let values = series.iter().flat_map(|s| s.values.iter().flat_map(|(v, e)| [v - e, v + e]));
    let (low, high) = values.fold((0.0f64, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let step = step(high - low);
    let (low, high) = ((low / step).floor() * step, ((high / step).ceil() * step).max(step));
    let plot = HEIGHT - TOP - BOTTOM;
    let y = |v: f64| TOP + plot * (high - v) / (high - low);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/><text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>",
        escape(title)
    );
    let mut tick = low;
    while tick <= high + step / 2.0 {
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            WIDTH - 10.0,
            y(tick),
            LEFT - 6.0,
            y(tick) + 4.0,
            label(tick, step)
        );
        tick += step;
    }
    let _ = write!(
        out,
        "<text x=\"14\" y=\"{}\" transform=\"rotate(-90 14 {0})\" text-anchor=\"middle\">{}</text>",
        TOP + plot / 2.0,
        escape(unit)
    );
    let group = (WIDTH - LEFT - 10.0) / categories.len().max(1) as f64;
    let bar = group * 0.8 / series.len().max(1) as f64;
    for (c, name) in categories.iter().enumerate() {
        let x0 = LEFT + group * (c as f64 + 0.1);
        for (i, s) in series.iter().enumerate() {
            let Some((v, half)) = s.values.get(c) else { continue };
            let (top, bottom) = (y(v.max(0.0)), y(v.min(0.0)));
            let x = x0 + bar * i as f64;
            let _ = write!(
                out,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>{}: {v:.2}</title></rect>",
                bar * 0.92,
                (bottom - top).max(0.5),
                COLOURS[i % COLOURS.len()],
                escape(&s.name)
            );
            if *half > 0.0 {
                let mid = x + bar * 0.46;
                let _ = write!(
                    out,
                    "<line x1=\"{mid:.1}\" x2=\"{mid:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#333\"/>",
                    y(v + half),
                    y(v - half)
                );
            }
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x0 + group * 0.4,
            HEIGHT - BOTTOM + 16.0,
            escape(name)
        );
    }
    for (i, s) in series.iter().enumerate() {
        let x = LEFT + 200.0 * i as f64;
        let at = HEIGHT - 14.0;
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{at}\">{}</text>",
            at - 9.0,
            COLOURS[i % COLOURS.len()],
            x + 14.0,
            escape(&s.name)
        );
    }
    out + "</svg>\n"
}

fn label(v: f64, step: f64) -> String {
    if step >= 1.0 { format!("{v:.0}") } else { format!("{v:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_scale_with_values_and_text_is_escaped() {
        let series = [Series { name: "a<b".into(), values: vec![(10.0, 1.0), (-5.0, 0.0)] }];
        let svg = bars("t & u", "%", &["x".into(), "y".into()], &series);
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b"));
        assert_eq!(svg.matches("<title>").count(), 2);
        assert_eq!(svg.matches("stroke=\"#333\"").count(), 1, "one error bar");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(step(10.0), 2.0);
        assert_eq!(step(0.7), 0.2);
        assert_eq!(step(23.0), 5.0);
    }
}
