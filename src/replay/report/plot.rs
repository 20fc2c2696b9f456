//! A small plot for a terminal: one column for each stretch of time. Admitted, delayed and refused requests are drawn
//! below each other. Each has a scale of its own, so that one refused request among a hundred can be seen.

use super::{grouped, stamp, time};
use crate::replay::timeline::{OutcomeKind, Timeline};
use std::fmt::Write as _;

const COLUMNS: usize = 64;

/// Steps of a row.
const STEPS: u64 = 8;

/// The characters that the plot is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Blocks, for terminals that have them.
    Blocks,
    /// Letters, for terminals without blocks.
    Ascii,
}

impl Marks {
    /// A cell that is filled from its bottom by this number of steps.
    fn filled(self, steps: u64) -> char {
        const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const LETTERS: [char; 9] = [' ', '.', '.', ':', ':', ':', '|', '|', '#'];
        let signs = match self {
            Self::Blocks => BLOCKS,
            Self::Ascii => LETTERS,
        };
        signs[usize::try_from(steps.min(STEPS)).unwrap_or(0)]
    }
}

/// The outcomes that are drawn, each with its number of rows.
const ROWS: [(OutcomeKind, u64); 3] = [
    (OutcomeKind::Admitted, 5),
    (OutcomeKind::Delayed, 3),
    (OutcomeKind::Refused, 4),
];

/// Draws the course of one file, to the scales of all `sides`, so that two plots can be compared.
pub(super) fn plot(
    out: &mut String,
    timeline: &Timeline,
    side: usize,
    sides: usize,
    title: &str,
    marks: Marks,
) {
    let (intervals, length) = timeline.of(side, COLUMNS);
    let all: Vec<_> = (0..sides)
        .map(|side| timeline.of(side, COLUMNS).0)
        .collect();
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{title}; a column is {}", time(length));
    for (kind, rows) in ROWS {
        let (name, counts) = (kind.name(), all.iter().flatten());
        let most = counts.map(|interval| interval.of(kind)).max().unwrap_or(0);
        if most == 0 {
            let _ = writeln!(out, "  {name}: none");
            continue;
        }
        let _ = writeln!(out, "  {name}, {} at full height", grouped(most));
        for row in (0..rows).rev() {
            let cells = intervals.iter().map(|interval| {
                let steps = steps(interval.of(kind), most, rows);
                marks.filled(steps.saturating_sub(row * STEPS))
            });
            let line: String = cells.collect();
            let _ = writeln!(out, "  |{}", line.trim_end());
        }
    }
    let _ = writeln!(out, "  +{}", "-".repeat(intervals.len()));
    let (start, end) = (
        timeline.start(),
        timeline.start() + length * intervals.len() as u64,
    );
    let (start, end) = (stamp(start), stamp(end));
    let gap = intervals
        .len()
        .saturating_sub(start.len() + end.len())
        .max(2);
    let _ = writeln!(out, "   {start}{}{end}", " ".repeat(gap));
}

/// The height of `part` in steps, where `most` fills all rows. A part above zero has at least one step.
fn steps(part: u64, most: u64, rows: u64) -> u64 {
    let (part, most) = (u128::from(part), u128::from(most.max(1)));
    let steps = (part * u128::from(rows * STEPS) * 2 + most) / (most * 2);
    u64::try_from(steps.max(u128::from(part > 0))).unwrap_or(rows * STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::clients::SIDES;

    fn drawn(parts: &[(u64, u64, u64)], marks: Marks) -> Vec<String> {
        let mut timeline = Timeline::default();
        for (at, (admitted, delayed, refused)) in (0..).zip(parts) {
            for (kind, count) in OutcomeKind::ALL
                .into_iter()
                .zip([admitted, delayed, refused])
            {
                for _ in 0..*count {
                    timeline.add(at * 1_000, [kind; SIDES]);
                }
            }
        }
        let mut out = String::new();
        plot(&mut out, &timeline, 0, 1, "t", marks);
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_part_has_a_scale_of_its_own() {
        let parts = [(80, 0, 0), (40, 4, 0), (75, 0, 1), (0, 0, 0), (1, 0, 16)];
        let lines = drawn(&parts, Marks::Ascii);
        assert_eq!(
            lines[..16],
            [
                "t; a column is 1 ms",
                "  admitted, 80 at full height",
                "  |# |",
                "  |# #",
                "  |#:#",
                "  |###",
                "  |### .",
                "  delayed, 4 at full height",
                "  | #",
                "  | #",
                "  | #",
                "  refused, 16 at full height",
                "  |    #",
                "  |    #",
                "  |    #",
                "  |  . #",
            ]
        );
        assert_eq!(lines[16], "  +-----");
    }

    #[test]
    fn half_a_percent_is_an_eighth_of_a_row_and_no_more() {
        let lines = drawn(&[(0, 0, 1), (0, 0, 200)], Marks::Blocks);
        assert_eq!(lines[1..3], ["  admitted: none", "  delayed: none"]);
        assert_eq!(lines[4..8], ["  | █", "  | █", "  | █", "  |▁█"]);
        assert_eq!(
            [1, 100, 199, 200].map(|part| steps(part, 200, 4)),
            [1, 16, 32, 32]
        );
        assert_eq!(steps(0, 200, 4), 0);
        assert_eq!(steps(u64::MAX, u64::MAX, 5), 40);
    }
}
