//! The course as a picture for pages, tickets and talks: an SVG of a few kilobytes that refers to no other file.
//! Refused requests are drawn below the rest, to a scale of their own.

use super::{Report, grouped, percent, stamp, time};
use crate::replay::timeline::{OutcomeKind, TimelineInterval};
use std::fmt::Write as _;

/// The most columns of a picture.
const MOST: usize = 120;
const WIDTH: u64 = 720;
const LEFT: u64 = 60;
const RIGHT: u64 = 20;
const TOP: u64 = 40;
/// Heights: of the panel of admitted requests, of the panel of refused ones, and of the gap between them.
const HEIGHT: u64 = 110;
const LOWER: u64 = 60;
const GAP: u64 = 14;
/// The distance from one file's picture to the next one's.
const STEP: u64 = TOP + HEIGHT + GAP + LOWER + 40;

/// The colour of each outcome. Colour-blind people can distinguish these colours, too.
const COLOURS: [&str; OutcomeKind::ALL.len()] = ["#9ecae1", "#f0b429", "#c0392b"];

/// A panel, in which outcomes are stacked on one base line.
struct Panel {
    foot: u64,
    height: u64,
    kinds: &'static [OutcomeKind],
}

const PANELS: [Panel; 2] = [
    Panel {
        foot: TOP + HEIGHT,
        height: HEIGHT,
        kinds: &[OutcomeKind::Admitted, OutcomeKind::Delayed],
    },
    Panel {
        foot: TOP + HEIGHT + GAP + LOWER,
        height: LOWER,
        kinds: &[OutcomeKind::Refused],
    },
];

impl Panel {
    /// The height of a column below outcome number `end` of the panel.
    fn below(&self, interval: &TimelineInterval, end: usize) -> u64 {
        self.kinds[..end]
            .iter()
            .map(|kind| interval.of(*kind))
            .sum()
    }
}

/// The picture of a report. `sets` are the options that changed the file.
#[must_use]
pub fn svg(report: &Report, sets: &[String]) -> String {
    let height = STEP * report.tallies.len() as u64 + 20;
    // Writing into a string cannot fail.
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (side, tally) in report.tallies.iter().enumerate() {
        let name = match (side, report.tallies.len()) {
            (0, 1) => "the file".to_owned(),
            (0, _) => "the file as it is".to_owned(),
            _ => format!("with {}", sets.join(" ")),
        };
        let title = format!(
            "{name}: {} requests, {} refused ({}), {} delayed ({})",
            grouped(report.requests),
            grouped(tally.refused),
            percent(tally.refused, report.requests),
            grouped(tally.delayed),
            percent(tally.delayed, report.requests),
        );
        chart(&mut out, report, side, &title, STEP * side as u64);
    }
    legend(&mut out, height - 8);
    out.push_str("</svg>\n");
    out
}

fn chart(out: &mut String, report: &Report, side: usize, title: &str, top: u64) {
    let (intervals, length) = report.timeline.of(side, MOST);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"600\">{}</text>",
        top + 22,
        escaped(title)
    );
    for one in &PANELS {
        panel(out, report, &intervals, one, top);
    }
    let start = report.timeline.start();
    let (right, below) = (WIDTH - RIGHT, top + STEP - 40 + 16);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{below}\" fill=\"#444\">{}</text>\n\
         <text x=\"{right}\" y=\"{below}\" text-anchor=\"end\" fill=\"#444\">{}, a column is {}</text>",
        stamp(start),
        stamp(start + length * intervals.len() as u64),
        time(length),
    );
}

/// One panel, to a scale that it has in the pictures of both files.
fn panel(
    out: &mut String,
    report: &Report,
    intervals: &[TimelineInterval],
    panel: &Panel,
    top: u64,
) {
    let all = (0..report.tallies.len()).flat_map(|side| report.timeline.of(side, MOST).0);
    let tallest = all.map(|interval| panel.below(&interval, panel.kinds.len()));
    let most = tallest.max().unwrap_or(0);
    let (ground, height, across) = (top + panel.foot, panel.height, WIDTH - LEFT - RIGHT);
    // The positions are in tenths of a pixel, so that columns meet.
    let x = |index: usize| LEFT * 10 + across * 10 * index as u64 / intervals.len().max(1) as u64;
    let y = |count: u64| {
        let tall = u128::from(height) * 10 * u128::from(count) / u128::from(most.max(1));
        ground * 10 - u64::try_from(tall).unwrap_or(height * 10)
    };
    for (position, kind) in panel.kinds.iter().enumerate() {
        let mut path = String::new();
        for (index, interval) in intervals.iter().enumerate() {
            if interval.of(*kind) > 0 {
                let (left, right) = (tenths(x(index)), tenths(x(index + 1)));
                let [lower, upper] =
                    [0, 1].map(|end| tenths(y(panel.below(interval, position + end))));
                let _ = write!(path, "M{left} {lower}V{upper}H{right}V{lower}z");
            }
        }
        if !path.is_empty() {
            let colour = COLOURS[*kind as usize];
            let _ = writeln!(out, "<path fill=\"{colour}\" d=\"{path}\"/>");
        }
    }
    let (right, upper, label) = (WIDTH - RIGHT, ground - height, LEFT - 6);
    let _ = writeln!(
        out,
        "<path stroke=\"#444\" fill=\"none\" d=\"M{LEFT} {upper}V{ground}H{right}\"/>\n\
         <text x=\"{label}\" y=\"{ground}\" text-anchor=\"end\" fill=\"#444\">0</text>"
    );
    if most > 0 {
        let _ = writeln!(
            out,
            "<text x=\"{label}\" y=\"{}\" text-anchor=\"end\" fill=\"#444\">{}</text>",
            upper + 10,
            grouped(most),
        );
    }
}

fn legend(out: &mut String, y: u64) {
    for kind in OutcomeKind::ALL {
        let (x, colour, name) = (LEFT + 90 * kind as u64, COLOURS[kind as usize], kind.name());
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
            y - 9,
            x + 15,
        );
    }
}

fn tenths(value: u64) -> String {
    match value % 10 {
        0 => (value / 10).to_string(),
        part => format!("{}.{part}", value / 10),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
