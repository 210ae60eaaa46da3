//! A plot of bars: one per row, with the range over its runs, drawn as SVG.

use std::fmt::Write;

use super::html::escape;
use crate::rows::{Figure, number};

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Where it ends, and the range of it.
    pub figure: Figure,
    /// It was measured elsewhere.
    pub reference: bool,
}

const WIDTH: f64 = 900.0;
const LABELS: f64 = 380.0;
const VALUES: f64 = 110.0;
const STEP: f64 = 20.0;
const TOP: f64 = 24.0;

/// Distances of values over which a plot turns to a logarithmic scale.
const WIDE: f64 = 100.0;

/// How values become lengths: from 0, or by their logarithm where they lie far apart.
#[derive(Clone, Copy, Debug)]
enum Scale {
    Linear { most: f64 },
    Logarithmic { least: f64, most: f64 },
}

impl Scale {
    fn of(bars: &[Bar]) -> Self {
        let most = bars.iter().map(|bar| bar.figure.max).fold(0.0, f64::max);
        let positive = bars.iter().map(|bar| bar.figure.median).filter(|&median| median > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        match least.is_finite() && most / least > WIDE {
            true => Self::Logarithmic {
                least: 10f64.powf(least.log10().floor()),
                most,
            },
            false => Self::Linear {
                most: most.max(f64::MIN_POSITIVE),
            },
        }
    }

    /// 0 to 1.
    fn share(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { most } => value / most,
            Self::Logarithmic { least, most } => (value.max(least) / least).ln() / (most / least).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear from 0",
            Self::Logarithmic { .. } => "logarithmic",
        }
    }
}

/// Draw bars under a title.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let scale = Scale::of(bars);
    let height = TOP + STEP * bars.len() as f64 + 8.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <title>{title}</title>\n<text x=\"0\" y=\"15\" class=\"t\">{title} ({})</text>\n",
        scale.name(),
        title = escape(title),
    );
    let at = |value| LABELS + scale.share(value) * (WIDTH - LABELS - VALUES);
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

    fn bar(label: &str, value: f64) -> Bar {
        Bar {
            label: label.into(),
            figure: Figure::of(&[value]),
            reference: false,
        }
    }

    #[test]
    fn bars_are_drawn_whatever_the_values() {
        let odd = [bar("<none>", 0.0), bar("negative", -3.0), bar("nan", f64::NAN)];
        let svg = bars("odd & even", &odd);
        assert_eq!(3, svg.matches("<rect").count());
        assert!(svg.contains("&lt;none&gt;") && svg.contains("odd &amp; even"));
        assert!(!svg.contains("width=\"-") && !svg.contains("width=\"NaN"), "{svg}");
        assert!(bars("nothing", &[]).ends_with("</svg>\n"));
    }
}
