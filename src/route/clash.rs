//! Routes of one host and one path shape that can match the same request. Two of them cannot if their conditions
//! require different values of the same field, parameter or scheme. Routes are divided by such values, so that
//! contradicting pairs are never compared one by one.

use super::condition::ConditionSubject;
use super::trie::RouteEnd;
use http::Method;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow::{self, Break, Continue};
use std::rc::Rc;

/// Up to this number of pairs is compared one by one: to divide them would cost more.
const FEW_PAIRS: usize = 64;

/// The pairs of routes that have been found, by their positions: first the second route.
pub(super) struct Clashes {
    most: usize,
    pairs: BTreeSet<(usize, usize)>,
}

impl Clashes {
    /// The search stops after `most` pairs.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            pairs: BTreeSet::new(),
        }
    }

    /// The pairs, in the order of their second routes.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (usize, usize)> {
        self.pairs.iter().map(|(second, first)| (*first, *second))
    }

    /// Notes the pairs among the routes of one list.
    pub(super) fn look(&mut self, ends: &[RouteEnd]) {
        if ends.len() < 2 {
            return;
        }
        // Routes of one rank: with equally many conditions, and a common method or any method at all.
        let mut ranks: HashMap<(usize, Option<&Method>), Vec<Side<'_>>> = HashMap::new();
        for end in ends {
            let side = Side::of(end);
            let conditions = end.conditions.len();
            let any = end.methods.is_empty().then_some(None);
            for method in end.methods.iter().map(Some).chain(any) {
                ranks
                    .entry((conditions, method))
                    .or_default()
                    .push(side.clone());
            }
        }
        // If there are more pairs than the bound, every reading finds the same ones.
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_by_key(|((_, method), rank)| (rank[0].route, method.map(Method::as_str)));
        for (_, rank) in ranks {
            if self.within(rank).is_break() {
                return;
            }
        }
    }

    /// The pairs within one set.
    fn within(&mut self, mut all: Vec<Side<'_>>) -> ControlFlow<()> {
        while all.len() * all.len() > FEW_PAIRS {
            let Some(name) = dividing(&all, &all) else {
                break;
            };
            let (values, without) = divided(&all, name);
            if !without.is_empty() {
                let with: Vec<_> = values.values().flatten().cloned().collect();
                self.across(&with, &without)?;
            }
            for alike in values.into_values() {
                self.within(alike)?;
            }
            all = without;
        }
        for (position, second) in all.iter().enumerate() {
            for first in &all[..position] {
                self.pair(first, second)?;
            }
        }
        Continue(())
    }

    /// The pairs of one of `these` and one of `those`.
    fn across(&mut self, these: &[Side<'_>], those: &[Side<'_>]) -> ControlFlow<()> {
        if these.is_empty() || those.is_empty() {
            return Continue(());
        }
        let name = (these.len() * those.len() > FEW_PAIRS)
            .then(|| dividing(these, those))
            .flatten();
        let Some(name) = name else {
            for one in these {
                for other in those {
                    self.pair(one, other)?;
                }
            }
            return Continue(());
        };
        let (mut values, without) = divided(these, name);
        let (others, others_without) = divided(those, name);
        self.across(&without, those)?;
        let with: Vec<_> = values.values().flatten().cloned().collect();
        self.across(&with, &others_without)?;
        for (value, those) in others {
            self.across(&values.remove(value).unwrap_or_default(), &those)?;
        }
        Continue(())
    }

    /// Notes two routes, if one request can meet the conditions of both.
    fn pair(&mut self, one: &Side<'_>, other: &Side<'_>) -> ControlFlow<()> {
        let is_at_odds = |(name, value): (&ConditionSubject<'_>, &&[u8])| {
            let wanted = other.asked.get(name);
            wanted.is_some_and(|wanted| wanted != value)
        };
        if one.route == other.route || one.asked.iter().any(is_at_odds) {
            return Continue(());
        }
        let (first, second) = (one.route.min(other.route), one.route.max(other.route));
        self.pairs.insert((second, first));
        if self.pairs.len() < self.most {
            Continue(())
        } else {
            Break(())
        }
    }
}

/// One route of a pair, and the values that it requires.
#[derive(Clone)]
struct Side<'a> {
    route: usize,
    asked: Rc<HashMap<ConditionSubject<'a>, &'a [u8]>>,
}

impl<'a> Side<'a> {
    fn of(end: &'a RouteEnd) -> Self {
        let asked = end.conditions.iter().filter_map(|one| one.asked());
        Self {
            route: end.route,
            asked: Rc::new(asked.collect()),
        }
    }
}

/// The name that the most routes of both sets require, if they require different values of it.
fn dividing<'a>(these: &[Side<'a>], those: &[Side<'a>]) -> Option<ConditionSubject<'a>> {
    let (mut here, there) = (tally(these), tally(those));
    here.retain(|name, one| {
        let other = there.get(name);
        other.is_some_and(|other| one.differ || other.differ || one.value != other.value)
    });
    let names = here.into_iter();
    let both = names.map(|(name, one)| (one.many.min(there[&name].many), name));
    both.max_by_key(|(many, name)| (*many, name.spelled()))
        .map(|(_, name)| name)
}

/// The number of routes of a set that require a name.
struct ClashTally<'a> {
    many: usize,
    /// A value that one of them requires.
    value: &'a [u8],
    /// Do they require different values?
    differ: bool,
}

fn tally<'a>(all: &[Side<'a>]) -> HashMap<ConditionSubject<'a>, ClashTally<'a>> {
    let mut tallies: HashMap<ConditionSubject<'a>, ClashTally<'a>> = HashMap::new();
    for (name, value) in all.iter().flat_map(|side| side.asked.iter()) {
        let tally = tallies.entry(*name).or_insert(ClashTally {
            many: 0,
            value,
            differ: false,
        });
        tally.many += 1;
        tally.differ |= tally.value != *value;
    }
    tallies
}

/// A set divided by the values that its routes require, and the routes without such a condition.
type Divided<'a> = (BTreeMap<&'a [u8], Vec<Side<'a>>>, Vec<Side<'a>>);

fn divided<'a>(all: &[Side<'a>], name: ConditionSubject<'a>) -> Divided<'a> {
    let (mut values, mut without) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for side in all {
        match side.asked.get(&name) {
            Some(value) => values.entry(*value).or_default().push(side.clone()),
            None => without.push(side.clone()),
        }
    }
    (values, without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Condition;

    fn end(route: usize, asked: &[(&'static str, Option<u32>)]) -> RouteEnd {
        let conditions = asked.iter().map(|(name, value)| {
            let value = value.map(|value| value.to_string().into());
            Condition::Query((*name).into(), value)
        });
        RouteEnd {
            route,
            methods: [].into(),
            conditions: conditions.collect(),
        }
    }

    /// The division finds the same pairs as a comparison of each pair.
    #[test]
    fn pairs_that_are_divided_are_those_of_one_by_one() {
        let names = ["a", "b", "c", "d"];
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for values in [1, 2, 5, 40] {
            let ends: Vec<RouteEnd> = (0..60)
                .map(|route| {
                    let from = next(3) as usize;
                    let asked = names[from..from + 2].iter().map(|name| {
                        let value = next(values + 1) as u32;
                        (*name, (value > 0).then_some(value))
                    });
                    end(route, &asked.collect::<Vec<_>>())
                })
                .collect();
            let mut divided = Clashes::new(usize::MAX);
            divided.look(&ends);
            let mut pairs = Clashes::new(usize::MAX);
            let sides: Vec<Side<'_>> = ends.iter().map(Side::of).collect();
            for (position, second) in sides.iter().enumerate() {
                for first in &sides[..position] {
                    let _ = pairs.pair(first, second);
                }
            }
            assert!(divided.sorted().eq(pairs.sorted()), "{values}");
        }
    }

    /// If there are more pairs than the bound, each reading of a file finds the same.
    #[test]
    fn the_pairs_that_are_found_first_are_always_the_same() {
        let ends: Vec<RouteEnd> = (0..300)
            .map(|route| {
                let value = |of: usize| Some((route / of % 7) as u32);
                let mut end = end(route, &[("a", value(1)), ("b", value(7)), ("c", value(49))]);
                end.methods = [Method::GET, Method::PUT][route % 2..].to_vec().into();
                end
            })
            .chain((300..400).map(|route| end(route, &[("d", None)])))
            .chain((400..600).map(|route| end(route, &[("a", Some(1)), ("d", None)])))
            .collect();
        let first = || {
            let mut clashes = Clashes::new(20);
            clashes.look(&ends);
            clashes.sorted().collect::<Vec<_>>()
        };
        let found = first();
        assert_eq!(found.len(), 20);
        assert!((0..20).all(|_| first() == found), "{found:?}");
    }

    #[test]
    fn no_more_than_enough_are_looked_for() {
        let ends: Vec<RouteEnd> = (0..10_000).map(|route| end(route, &[])).collect();
        let mut clashes = Clashes::new(50);
        clashes.look(&ends);
        assert_eq!(clashes.sorted().count(), 50);
    }
}
