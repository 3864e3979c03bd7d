//! Charts as SVG, whose colours come from the style sheet of the page.

use std::fmt::Write;

/// Width of a chart, of the column of names, and of the place for a number after a bar. All lengths are in
/// units of the view box.
const WIDTH: f64 = 920.0;
const NAMES: f64 = 300.0;
const VALUES: f64 = 64.0;
/// Height of a bar, and of the gap between two groups.
const BAR: f64 = 14.0;
const GAP: f64 = 10.0;
/// Height of the scale above the bars.
const HEAD: f64 = 24.0;

/// A bar between two values of the scale.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// The number of the side, which chooses the colour.
    pub side: usize,
    /// The ends of the bar.
    pub ends: [f64; 2],
    /// The text after the bar.
    pub value: String,
    /// The text that appears when the pointer is on the bar.
    pub hint: String,
}

/// The bars of one row.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub name: String,
    pub bars: Vec<Bar>,
}

/// Returns the text with the characters of HTML escaped.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the marks of a logarithmic scale: 1, 2 and 5 in each power of ten.
fn marks(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
    let all: Vec<f64> = all.filter(|mark| (low..=high).contains(mark)).collect();
    // On a long scale only the powers of ten have room.
    let is_power = |mark: &f64| (mark.log10() - mark.log10().round()).abs() < 1e-9;
    if all.len() > 12 { all.into_iter().filter(is_power).collect() } else { all }
}

/// Draws bars on a logarithmic scale. With `one`, a line marks the value 1.
pub(super) fn bars(groups: &[Group], one: bool) -> String {
    let ends = || groups.iter().flat_map(|group| &group.bars).flat_map(|bar| bar.ends);
    let ends = || ends().filter(|end| end.is_finite() && *end > 0.0);
    let low = ends().fold(if one { 0.8 } else { f64::INFINITY }, f64::min) * 0.9;
    let high = ends().fold(if one { 1.25 } else { low }, f64::max) * 1.1;
    if !low.is_finite() || !high.is_finite() || low >= high {
        return String::new();
    }
    let scale = (WIDTH - NAMES - VALUES) / (high / low).ln();
    let x = |value: f64| NAMES + (value.clamp(low, high) / low).ln() * scale;
    let height = |group: &Group| BAR * group.bars.len().max(1) as f64 + GAP;
    let all = HEAD + groups.iter().map(height).sum::<f64>();
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {all:.0}\" role=\"img\">\n");
    for mark in marks(low, high) {
        let (at, class) = (x(mark), if one && mark == 1.0 { "one" } else { "grid" });
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{HEAD}\" y2=\"{all:.0}\"/>"
        );
        let _ = writeln!(svg, "<text class=\"mark\" x=\"{at:.1}\" y=\"{:.0}\">{mark}</text>", HEAD - 8.0);
    }
    let mut y = HEAD + GAP / 2.0;
    for group in groups {
        let middle = y + (height(group) - GAP) / 2.0 + 4.0;
        let name = escaped(&group.name);
        let _ =
            writeln!(svg, "<text class=\"name\" x=\"{:.0}\" y=\"{middle:.1}\">{name}</text>", NAMES - 8.0);
        for bar in &group.bars {
            let [left, right] = bar.ends.map(x);
            let (left, width) = (left.min(right), (right - left).abs().max(2.0));
            let _ = writeln!(
                svg,
                "<g><title>{}</title><rect class=\"s{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\" rx=\"2\"/><text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                escaped(&bar.hint),
                bar.side,
                y + 1.0,
                BAR - 2.0,
                left + width + 5.0,
                y + BAR - 3.0,
                escaped(&bar.value),
            );
            y += BAR;
        }
        y += GAP;
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_a_bar_for_each_value() {
        let bar =
            |side, end| Bar { side, ends: [1.0, end], value: format!("{end}"), hint: "a < b".to_owned() };
        let groups = [
            Group { name: "open & close".to_owned(), bars: vec![bar(1, 4.0), bar(2, 0.5)] },
            Group { name: "stat".to_owned(), bars: vec![bar(1, 9.0)] },
        ];
        let svg = bars(&groups, true);
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(
            svg.contains("open &amp; close") && svg.contains("a &lt; b") && svg.contains("class=\"one\"")
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(bars(&[], false), "");
    }

    #[test]
    fn scale_has_round_marks() {
        assert_eq!(marks(0.4, 12.0), [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(marks(0.1, 10_000.0), [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }
}
