//! A cost that members of a JSON body state: the numbers of the members are weighted and added.
//!
//! Members are found by steps from name to name, so that one reading of a body finds all of them.

use crate::key::price::MOST_COST;
use std::fmt;

/// The most members of a cost.
pub const MOST_MEMBERS: usize = 16;
/// The most places at which all members of a cost are looked up.
pub const MOST_PLACES: usize = 32;

/// The step at which every text begins.
pub const ROOT: u16 = 0;

/// The parts of one in which a weight is counted.
const PARTS_OF_WEIGHT: i64 = 1000;
/// The parts of one in which a number is counted.
const PARTS_OF_NUMBER: u128 = 1_000_000_000;
/// A number that is as large as any: greater numbers count as this one.
const LARGEST: u128 = (1 << 53) * PARTS_OF_NUMBER;

/// The names that lead to a member, from the outermost object on.
pub type JsonPlace = Box<[Box<str>]>;

/// The factor of a member, in thousandths, from -1,000 to 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(i64);

/// A number of a body, in billionths. Smaller parts are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonNumber(u128);

/// A member that is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeighedMember {
    /// The places at which the member may be; the first that has a number counts.
    pub places: Vec<JsonPlace>,
    /// The factor of its number.
    pub weight: Weight,
}

/// The members whose sum is the cost of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonCost {
    members: Box<[WeighedMember]>,
    steps: Box<[Step]>,
}

/// What may follow some names on the way to members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Step {
    /// The names that lead further, each to its step.
    names: Vec<(Box<str>, u16)>,
    /// The number of the place that these names lead to.
    place: Option<u16>,
}

impl Weight {
    /// The weight of a member that is counted as it is.
    pub const ONE: Self = Self(PARTS_OF_WEIGHT);

    /// Reads a number with three decimals at most: `5`, `-0.9`, `1.25`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (is_negative, digits) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) {
            return None;
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 3 {
            return None;
        }
        let whole: i64 = whole.parse().ok()?;
        let decimals: i64 = format!("{decimals:0<3}").parse().ok()?;
        let thousandths = whole.checked_mul(PARTS_OF_WEIGHT)?.checked_add(decimals)?;
        let is_within = thousandths <= 1000 * PARTS_OF_WEIGHT;
        is_within.then_some(Self(if is_negative {
            -thousandths
        } else {
            thousandths
        }))
    }

    /// Does the member add to the cost?
    #[must_use]
    pub const fn adds(self) -> bool {
        self.0 > 0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, parts) = (
            self.0.abs() / PARTS_OF_WEIGHT,
            self.0.abs() % PARTS_OF_WEIGHT,
        );
        write!(f, "{sign}{whole}")?;
        if parts > 0 {
            let parts = format!("{parts:03}");
            write!(f, ".{}", parts.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

impl JsonNumber {
    /// The number `digits` times ten to the power of `exponent`.
    #[must_use]
    pub fn of(digits: u64, exponent: i64) -> Self {
        let digits = u128::from(digits);
        let billionths = match exponent.saturating_add(9) {
            _ if digits == 0 => 0,
            0 => digits,
            up @ 1..=18 => digits.saturating_mul(10_u128.pow(up as u32)),
            down @ -38..=-1 => digits / 10_u128.pow(down.unsigned_abs() as u32),
            19.. => LARGEST,
            _ => 0,
        };
        Self(billionths.min(LARGEST))
    }
}

impl JsonCost {
    /// The sum of these members; `None` if there are none, too many, or one place stands there twice.
    #[must_use]
    pub fn new(members: Vec<WeighedMember>) -> Option<Self> {
        let mut steps = vec![Step::default()];
        let mut count = 0;
        for place in members.iter().flat_map(|member| &member.places) {
            let mut at = usize::from(ROOT);
            for name in place {
                at = step_after(&mut steps, at, name)?;
            }
            if steps[at].place.replace(count).is_some() || at == usize::from(ROOT) {
                return None;
            }
            count += 1;
        }
        let fits = (1..=MOST_MEMBERS).contains(&members.len()) && usize::from(count) <= MOST_PLACES;
        fits.then(|| Self {
            members: members.into(),
            steps: steps.into(),
        })
    }

    /// The number of places at which members are looked up.
    #[must_use]
    pub fn count_places(&self) -> usize {
        self.members.iter().map(|one| one.places.len()).sum()
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &[WeighedMember] {
        &self.members
    }

    /// The place that the names up to `step` lead to.
    #[must_use]
    pub fn place(&self, step: u16) -> Option<u16> {
        self.steps.get(usize::from(step))?.place
    }

    /// The names that lead further from `step`, each to its step.
    pub fn names(&self, step: u16) -> impl Iterator<Item = (&str, u16)> {
        let step = self.steps.get(usize::from(step));
        let names = step.into_iter().flat_map(|step| &step.names);
        names.map(|(name, to)| (&**name, *to))
    }

    /// The numbers of the members, if these are the numbers of all places.
    fn numbers(
        &self,
        found: &[Option<JsonNumber>],
    ) -> impl Iterator<Item = (Weight, Option<JsonNumber>)> {
        let mut found = found.iter().copied();
        self.members.iter().map(move |member| {
            let mut number = None;
            for _ in &member.places {
                number = number.or(found.next().flatten());
            }
            (member.weight, number)
        })
    }

    /// The cost, where `found` has the number of each place: rounded up, and 0 at least. `None` if no member that adds
    /// to it has a number.
    #[must_use]
    pub fn of(&self, found: &[Option<JsonNumber>]) -> Option<u64> {
        let mut is_said = false;
        let mut sum: i128 = 0;
        for (weight, number) in self.numbers(found) {
            let Some(JsonNumber(number)) = number else {
                continue;
            };
            is_said |= weight.adds();
            // At most 16 members of 2^53 * 10^9 * 10^6: below 2^127.
            sum += i128::from(weight.0) * i128::try_from(number).unwrap_or(i128::MAX >> 24);
        }
        let whole = i128::from(PARTS_OF_WEIGHT) * 1_000_000_000;
        let units = sum.max(0) / whole + i128::from(sum.max(0) % whole > 0);
        is_said.then(|| u64::try_from(units).unwrap_or(MOST_COST).min(MOST_COST))
    }

    /// Have all members that add to the cost a number? A stream that breaks off may have stated some of them alone.
    #[must_use]
    pub fn is_complete(&self, found: &[Option<JsonNumber>]) -> bool {
        self.numbers(found)
            .all(|(weight, number)| number.is_some() || !weight.adds())
    }
}

/// The step behind `name`, which is made if it is new. `None` if there are too many.
fn step_after(steps: &mut Vec<Step>, at: usize, name: &str) -> Option<usize> {
    if let Some((_, next)) = steps[at].names.iter().find(|(known, _)| **known == *name) {
        return Some(usize::from(*next));
    }
    let next = u16::try_from(steps.len()).ok()?;
    steps[at].names.push((name.into(), next));
    steps.push(Step::default());
    Some(usize::from(next))
}

/// `usage.input_tokens + 5 x usage.output_tokens`.
impl fmt::Display for JsonCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, member) in self.members.iter().enumerate() {
            if index > 0 {
                f.write_str(" + ")?;
            }
            if member.weight != Weight::ONE {
                write!(f, "{} x ", member.weight)?;
            }
            let places: Vec<String> = member.places.iter().map(|place| place.join(".")).collect();
            f.write_str(&places.join("|"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> JsonPlace {
        text.split('.').map(Box::from).collect()
    }

    fn cost(members: &[(&str, &str)]) -> Option<JsonCost> {
        let members = members.iter().map(|(places, weight)| WeighedMember {
            places: places.split('|').map(place).collect(),
            weight: Weight::read(weight).unwrap(),
        });
        JsonCost::new(members.collect())
    }

    #[test]
    fn weights_have_three_decimals_at_most() {
        for (text, shown) in [
            ("5", "5"),
            ("-0.9", "-0.9"),
            ("1.250", "1.25"),
            ("0.001", "0.001"),
            ("+2.0", "2"),
            ("-1000", "-1000"),
            ("1.000000", "1"),
        ] {
            assert_eq!(Weight::read(text).unwrap().to_string(), shown);
        }
        for text in [
            "",
            "-",
            ".",
            "1.",
            ".5",
            "1.0001",
            "1001",
            "-1000.001",
            "1e3",
            "inf",
            "nan",
            "1_0",
        ] {
            assert_eq!(Weight::read(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_weighted_exactly_and_rounded_up_at_the_end() {
        let sum = cost(&[("a", "0.1"), ("b", "-0.9"), ("c", "1.25")]).unwrap();
        let number = |digits, exponent| Some(JsonNumber::of(digits, exponent));
        for (found, units) in [
            ([number(1, 0), None, None], Some(1)),
            ([number(10, 0), None, None], Some(1)),
            ([number(101, -1), None, None], Some(2)),
            ([number(10, 0), number(1, 0), None], Some(1)),
            ([number(10, 0), number(2, 0), None], Some(0)),
            ([None, number(5, 0), None], None),
            ([None, None, None], None),
            ([None, None, number(4, 0)], Some(5)),
            ([None, None, number(5, 0)], Some(7)),
            ([number(0, 0), None, None], Some(0)),
            // A tenth of 2^53, the greatest number.
            (
                [number(u64::MAX, 300), None, None],
                Some(900_719_925_474_100),
            ),
            ([number(1, -300), None, None], Some(0)),
        ] {
            assert_eq!(sum.of(&found), units, "{found:?}");
        }
    }

    #[test]
    fn the_first_alternative_with_a_number_counts() {
        let sum = cost(&[("a|b", "1"), ("c", "1")]).unwrap();
        let number = |n| Some(JsonNumber::of(n, 0));
        assert_eq!(sum.of(&[number(1), number(2), number(4)]), Some(5));
        assert_eq!(sum.of(&[None, number(2), number(4)]), Some(6));
        assert!(!sum.is_complete(&[None, number(2), None]));
        assert!(sum.is_complete(&[None, number(2), number(0)]));
    }

    #[test]
    fn one_place_is_counted_once() {
        assert_eq!(cost(&[("a", "1"), ("b|a", "1")]), None);
        assert_eq!(JsonCost::new(Vec::new()), None);
        let many: Vec<String> = (0..17).map(|at| format!("m{at}")).collect();
        let many: Vec<_> = many.iter().map(|name| (&**name, "1")).collect();
        assert_eq!(cost(&many), None);
        let shown = cost(&[("u.i|m.u.i", "1"), ("u.o", "5")]).unwrap();
        assert_eq!(shown.to_string(), "u.i|m.u.i + 5 x u.o");
        assert_eq!(shown.count_places(), 3);
    }

    /// The greatest numbers and weights leave the sum exact.
    #[test]
    fn the_edges_do_not_overflow() {
        let members: Vec<String> = (0..16).map(|at| format!("m{at}")).collect();
        let members: Vec<_> = members.iter().map(|name| (&**name, "1000")).collect();
        let sum = cost(&members).unwrap();
        assert_eq!(sum.of(&[Some(JsonNumber(LARGEST)); 16]), Some(MOST_COST));
        let one = cost(&[("a", "1")]).unwrap();
        let small = u64::from(u32::MAX);
        for number in [small, small + 1, MOST_COST - 1, MOST_COST] {
            assert_eq!(one.of(&[Some(JsonNumber::of(number, 0))]), Some(number));
        }
        let more = one.of(&[Some(JsonNumber::of(MOST_COST + 1, 0))]);
        assert_eq!(more, Some(MOST_COST));
    }
}
