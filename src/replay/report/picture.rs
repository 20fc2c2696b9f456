//! The course as a picture, an SVG of a few kilobytes that needs nothing else: for pages, tickets and talks.

use super::{Report, grouped, percent, stamp, time};
use crate::replay::course::Stretch;
use std::fmt::Write as _;

const WIDTH: u64 = 720;
const LEFT: u64 = 60;
const RIGHT: u64 = 20;
const TOP: u64 = 40;
const HEIGHT: u64 = 140;
/// From one file's picture to the next one's.
const STEP: u64 = TOP + HEIGHT + 40;

/// Admitted, delayed, refused: told apart by those who see few colours, too.
const COLOURS: [(&str, &str); 3] = [
    ("#9ecae1", "admitted"),
    ("#f0b429", "delayed"),
    ("#c0392b", "refused"),
];

/// Where a part of a stretch begins, and how tall it is.
type Part = fn(&Stretch) -> (u64, u64);

/// The picture of a report. `sets` is what changed the file.
#[must_use]
pub fn picture(report: &Report, sets: &[String]) -> String {
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
    let (stretches, length) = report.course.of(side, 120);
    let most = stretches
        .iter()
        .map(|stretch| stretch.all())
        .max()
        .unwrap_or(0)
        .max(1);
    let (ground, across) = (top + TOP + HEIGHT, WIDTH - LEFT - RIGHT);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"600\">{}</text>",
        top + 22,
        escaped(title)
    );
    // In tenths, so that columns meet.
    let x = |index: usize| LEFT * 10 + across * 10 * index as u64 / stretches.len().max(1) as u64;
    let y = |count: u64| {
        let tall = u128::from(HEIGHT) * 10 * u128::from(count) / u128::from(most);
        ground * 10 - u64::try_from(tall).unwrap_or(HEIGHT * 10)
    };
    let parts: [Part; 3] = [
        |stretch| (0, stretch.admitted),
        |stretch| (stretch.admitted, stretch.delayed),
        |stretch| (stretch.admitted + stretch.delayed, stretch.refused),
    ];
    for ((colour, _), part) in COLOURS.iter().zip(parts) {
        let mut path = String::new();
        for (index, stretch) in stretches.iter().enumerate() {
            let (foot, tall) = part(stretch);
            if tall > 0 {
                let (left, right) = (tenths(x(index)), tenths(x(index + 1)));
                let (upper, lower) = (tenths(y(foot + tall)), tenths(y(foot)));
                let _ = write!(path, "M{left} {lower}V{upper}H{right}V{lower}z");
            }
        }
        if !path.is_empty() {
            let _ = writeln!(out, "<path fill=\"{colour}\" d=\"{path}\"/>");
        }
    }
    let right = WIDTH - RIGHT;
    let _ = writeln!(
        out,
        "<path stroke=\"#444\" fill=\"none\" d=\"M{LEFT} {}V{ground}H{right}\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#444\">{}</text>\n\
         <text x=\"{}\" y=\"{ground}\" text-anchor=\"end\" fill=\"#444\">0</text>",
        top + TOP,
        LEFT - 6,
        top + TOP + 10,
        grouped(most),
        LEFT - 6,
    );
    let start = report.course.start();
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#444\">{}</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\" fill=\"#444\">{}, a column is {}</text>",
        ground + 16,
        stamp(start),
        ground + 16,
        stamp(start + length * stretches.len() as u64),
        time(length),
    );
}

fn legend(out: &mut String, y: u64) {
    for (index, (colour, name)) in COLOURS.iter().enumerate() {
        let x = LEFT + 90 * index as u64;
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
