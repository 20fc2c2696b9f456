//! A small plot for a terminal: one column for each stretch of time, what was admitted at its foot, what was refused on top.

use super::{stamp, time};
use crate::replay::course::{Course, Stretch};
use std::fmt::Write as _;

const COLUMNS: usize = 64;
const ROWS: u64 = 8;

/// What the plot is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Blocks, for terminals that have them.
    Blocks,
    /// Letters, for all others.
    Ascii,
}

impl Marks {
    /// Admitted, delayed, refused.
    fn of(self) -> [char; 3] {
        match self {
            Self::Blocks => ['░', '▒', '█'],
            Self::Ascii => ['.', '+', '#'],
        }
    }
}

/// Draws the course of one file.
pub(super) fn plot(out: &mut String, course: &Course, side: usize, title: &str, marks: Marks) {
    let (stretches, length) = course.of(side, COLUMNS);
    // Both files have the same requests, so both plots have the same height.
    let most = stretches
        .iter()
        .map(|stretch| stretch.all())
        .max()
        .unwrap_or(0);
    let signs = marks.of();
    // Writing into a string cannot fail.
    let _ = writeln!(
        out,
        "{title}: {} admitted, {} delayed, {} refused; a column is {}, its full height {}",
        signs[0],
        signs[1],
        signs[2],
        time(length),
        super::grouped(most),
    );
    for row in (0..ROWS).rev() {
        let line: String = stretches
            .iter()
            .map(|stretch| cell(*stretch, row, most, signs))
            .collect();
        let _ = writeln!(out, "  |{}", line.trim_end());
    }
    let _ = writeln!(out, "  +{}", "-".repeat(stretches.len()));
    let (start, end) = (
        course.start(),
        course.start() + length * stretches.len() as u64,
    );
    let (start, end) = (stamp(start), stamp(end));
    let gap = stretches
        .len()
        .saturating_sub(start.len() + end.len())
        .max(2);
    let _ = writeln!(out, "   {start}{}{end}", " ".repeat(gap));
}

/// The sign at a height. What is there at all fills at least one cell: a handful of refusals is what one looks for.
fn cell(stretch: Stretch, row: u64, most: u64, signs: [char; 3]) -> char {
    let [refused, delayed, admitted] =
        heights([stretch.refused, stretch.delayed, stretch.admitted], most);
    match row {
        row if row < admitted => signs[0],
        row if row < admitted + delayed => signs[1],
        row if row < admitted + delayed + refused => signs[2],
        _ => ' ',
    }
}

/// The rows of each part, rounded up in this order, within the height of them all.
fn heights(parts: [u64; 3], most: u64) -> [u64; 3] {
    let rows = |part: u64| {
        let rows = (u128::from(part) * u128::from(ROWS)).div_ceil(u128::from(most.max(1)));
        u64::try_from(rows).unwrap_or(ROWS)
    };
    let mut left =
        rows(parts.iter().sum()).max(parts.iter().filter(|part| **part > 0).count() as u64);
    parts.map(|part| {
        let own = rows(part).min(left);
        left -= own;
        own
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_filled_from_its_foot() {
        let mut course = Course::default();
        let stretch = |admitted, delayed, refused| Stretch {
            admitted,
            delayed,
            refused,
        };
        for (second, parts) in [
            (0, (80, 0, 0)),
            (1, (20, 20, 0)),
            (2, (60, 0, 1)),
            (4, (0, 0, 40)),
        ] {
            let stretch = stretch(parts.0, parts.1, parts.2);
            course.add(second * 1_000, [stretch, Stretch::default()]);
        }
        let mut out = String::new();
        plot(&mut out, &course, 0, "t", Marks::Ascii);
        let rows: Vec<&str> = out.lines().skip(1).take(9).collect();
        assert_eq!(
            rows,
            [
                "  |.", "  |. #", "  |. .", "  |. .", "  |.+. #", "  |.+. #", "  |... #",
                "  |... #", "  +-----"
            ]
        );
    }
}
