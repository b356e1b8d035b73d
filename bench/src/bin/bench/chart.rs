//! Line charts as SVG, readable on light and on dark pages.

use std::fmt::Write;

use crate::table::group;

/// A chart with logarithmic scales.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) lines: Vec<Line>,
}

/// A line of a chart.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Whether it is the library's line. Those are solid, and the others dashed.
    pub(crate) ours: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 330.0;
/// The positions of the axes, from the edges of a chart.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 48.0;
/// The minimum distance between two names of lines.
const LABEL: f64 = 17.0;

const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.axis, .grid { stroke: #d1d9e0; stroke-width: 1; }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.raw { stroke-dasharray: 6 4; }
.c0 { stroke: #0969da; } .c1 { stroke: #1a7f37; } .c2 { stroke: #8250df; }
.c3 { stroke: #9a6700; } .c4 { stroke: #cf222e; } .c5 { stroke: #59636e; }
.dot { stroke-width: 0; }
.dot.c0, .name.c0 { fill: #0969da; } .dot.c1, .name.c1 { fill: #1a7f37; } .dot.c2, .name.c2 { fill: #8250df; }
.dot.c3, .name.c3 { fill: #9a6700; } .dot.c4, .name.c4 { fill: #cf222e; } .dot.c5, .name.c5 { fill: #59636e; }
.name { stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.axis, .grid { stroke: #3d444d; }
.c0 { stroke: #4493f8; } .c1 { stroke: #3fb950; } .c2 { stroke: #ab7df8; }
.c3 { stroke: #d29922; } .c4 { stroke: #f85149; } .c5 { stroke: #9198a1; }
.dot.c0, .name.c0 { fill: #4493f8; } .dot.c1, .name.c1 { fill: #3fb950; } .dot.c2, .name.c2 { fill: #ab7df8; }
.dot.c3, .name.c3 { fill: #d29922; } .dot.c4, .name.c4 { fill: #f85149; } .dot.c5, .name.c5 { fill: #9198a1; }
}
</style>
";

/// Returns the charts, one below another.
pub(crate) fn svg<'a>(charts: impl Iterator<Item = &'a Chart>) -> String {
    let charts: Vec<&Chart> = charts.collect();
    let height = HEIGHT * charts.len() as f64;
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n{STYLE}",
        titles.join("; ")
    );
    for (i, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", HEIGHT * i as f64);
        chart.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// A logarithmic scale from values to positions.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min).log10();
        let high = values.fold(f64::NEG_INFINITY, f64::max).log10();
        Self { low, high: high.max(low + 0.1), from, to }
    }

    /// Returns the scale with its ends moved outwards to 1, 2 or 5 times a power of ten.
    fn rounded(mut self) -> Self {
        let marks = || (-40..60).map(mark);
        self.low = marks().filter(|&at| at <= self.low + 1e-9).fold(f64::NEG_INFINITY, f64::max);
        self.high = marks().filter(|&at| at >= self.high - 1e-9).fold(f64::INFINITY, f64::min);
        self
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        let (low, high) = (self.low - 1e-9, self.high + 1e-9);
        (-40..60).filter(move |&i| (low..=high).contains(&mark(i))).map(|i| 10_f64.powf(mark(i)))
    }
}

/// Returns the logarithms of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, …
fn mark(i: i32) -> f64 {
    let step = [1.0_f64, 2.0, 5.0][usize::try_from(i.rem_euclid(3)).unwrap_or(0)];
    f64::from(i.div_euclid(3)) + step.log10()
}

impl Chart {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
        let x = Scale::new(points().map(|point| point.0), left, right);
        let y = Scale::new(points().map(|point| point.1), bottom, top).rounded();
        let _ = writeln!(svg, "<text class=\"title\" x=\"{left}\" y=\"24\">{}</text>", self.title);
        for value in y.marks() {
            let at = y.place(value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                at + 4.5,
                number(value)
            );
        }
        let mut sizes: Vec<f64> = points().map(|point| point.0).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        sizes.dedup();
        for value in sizes {
            let at = x.place(value);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 20.0,
                number(value)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(left, right),
            bottom + 40.0,
            self.x_label
        );
        for (colour, line) in self.lines.iter().enumerate() {
            let places: Vec<(f64, f64)> = line.points.iter().map(|&(a, b)| (x.place(a), y.place(b))).collect();
            let path: Vec<String> = places.iter().map(|(a, b)| format!("{a:.1},{b:.1}")).collect();
            let raw = if line.ours { "" } else { " raw" };
            let _ = writeln!(svg, "<polyline class=\"line c{colour}{raw}\" points=\"{}\"/>", path.join(" "));
            for (a, b) in places {
                let _ = writeln!(svg, "<circle class=\"dot c{colour}\" cx=\"{a:.1}\" cy=\"{b:.1}\" r=\"3.2\"/>");
            }
        }
        for (colour, name, at) in self.names(&y) {
            let _ = writeln!(
                svg,
                "<text class=\"name c{colour}\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
                right + 12.0,
                at + 4.5
            );
        }
    }

    /// Returns the positions of the lines' names beside their ends, moved apart if they would overlap.
    fn names(&self, y: &Scale) -> Vec<(usize, &'static str, f64)> {
        let end = |line: &Line| line.points.last().map(|point| y.place(point.1));
        let ends = self.lines.iter().enumerate().filter_map(|(i, line)| Some((i, line.name, end(line)?)));
        let mut names: Vec<(usize, &'static str, f64)> = ends.collect();
        names.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut lowest = f64::NEG_INFINITY;
        for name in &mut names {
            name.2 = name.2.max(lowest + LABEL);
            lowest = name.2;
        }
        // The last may have been moved below the axis.
        let mut highest = HEIGHT - BOTTOM + LABEL / 2.0;
        for name in names.iter_mut().rev() {
            name.2 = name.2.min(highest);
            highest = name.2 - LABEL;
        }
        names
    }
}

fn number(value: f64) -> String {
    if value >= 1_000.0 { group(value) } else { format!("{}", (value * 1e6).round() / 1e6) }
}
