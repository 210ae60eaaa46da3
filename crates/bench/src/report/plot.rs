//! A bar chart as SVG: one bar per row, which shows the median and the range over the runs.

use std::fmt::Write;

use super::escape;
use crate::rows::{Figure, number};

/// A bar: its label, its value with the range, and whether it is a published value.
#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    pub figure: Figure,
    pub reference: bool,
}

const WIDTH: f64 = 900.0;
const LABELS: f64 = 380.0;
const VALUES: f64 = 110.0;
const STEP: f64 = 20.0;
const TOP: f64 = 24.0;

/// Ratio between the largest and the smallest value above which the scale is logarithmic.
const WIDE: f64 = 100.0;

pub fn bars(title: &str, bars: &[Bar]) -> String {
    let max = bars.iter().map(|bar| bar.figure.max).fold(f64::MIN_POSITIVE, f64::max);
    let positive = bars.iter().map(|bar| bar.figure.median).filter(|&median| median > 0.0);
    let min = positive.fold(f64::INFINITY, f64::min);
    let is_wide = min.is_finite() && max / min > WIDE;
    let min = 10f64.powf(min.log10().floor());
    let at = |value: f64| {
        let share = match is_wide {
            true => (value.max(min) / min).ln() / (max / min).ln(),
            false => value / max,
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        LABELS + share * (WIDTH - LABELS - VALUES)
    };
    let scale = if is_wide { "logarithmic" } else { "linear from 0" };
    let height = TOP + STEP * bars.len() as f64 + 8.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n\
        <title>{title}</title>\n<text x=\"0\" y=\"15\" class=\"t\">{title} ({scale})</text>\n",
        title = escape(title),
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * index as f64;
        let Figure { min, median, max } = bar.figure;
        let class = if bar.reference { "r" } else { "b" };
        let (text, middle) = (y + 14.0, y + 9.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{text:.1}\" class=\"l\">{}</text>\
            <rect x=\"{LABELS}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" class=\"{class}\"/>\
            <path d=\"M{:.1} {middle:.1}H{:.1}\" class=\"w\"/>\
            <text x=\"{:.1}\" y=\"{text:.1}\">{}</text>",
            LABELS - 6.0,
            escape(&bar.label),
            y + 2.0,
            at(median) - LABELS,
            at(min),
            at(max),
            at(max) + 6.0,
            number(median, median),
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_whatever_the_values() {
        let bar = |label: &str, value: f64| Bar {
            label: label.into(),
            figure: Figure::of(&[value]),
            reference: false,
        };
        let svg = bars(
            "odd & even",
            &[bar("<none>", 0.0), bar("negative", -3.0), bar("nan", f64::NAN)],
        );
        assert_eq!(3, svg.matches("<rect").count());
        assert!(svg.contains("&lt;none&gt;") && svg.contains("odd &amp; even"));
        assert!(!svg.contains("width=\"-") && !svg.contains("width=\"NaN"), "{svg}");
        let half = bars("half", &[bar("a", 50.0), bar("b", 100.0)]);
        assert!(
            half.contains("width=\"205.0\"") && half.contains("width=\"410.0\""),
            "{half}"
        );
        assert!(bars("wide", &[bar("a", 5.0), bar("b", 5_000.0)]).contains("(logarithmic)"));
    }
}
