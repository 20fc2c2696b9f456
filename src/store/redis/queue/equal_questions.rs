//! Equal questions of a call are made adjacent, since the scripts decide them together, with their number.
//!
//! The order in which questions are decided stays equivalent. A question moves forward past another only if the two
//! have no counter in common: neither changes the other's answer.

use super::pending_decision::QueuedDecision;
use crate::store::redis::MOST_IN_CALL;
use crate::store::redis::wire::question::Question;
use smallvec::SmallVec;

/// A group's last access to a counter.
struct Touch {
    digest: u32,
    group: u8,
}

/// The groups of equal questions of a call.
#[derive(Default)]
struct QuestionGroups<'q> {
    /// The first question of each group.
    firsts: SmallVec<[&'q Question; MOST_IN_CALL]>,
    touches: SmallVec<[Touch; MOST_IN_CALL]>,
}

impl<'q> QuestionGroups<'q> {
    /// The group of the next question, which is a new one if the question can join none.
    fn next(&mut self, question: &'q Question) -> u8 {
        // No later question could have accessed the newest group's counters.
        if self
            .firsts
            .last()
            .is_some_and(|newest| newest.is_equal(question))
        {
            return group_number(self.firsts.len() - 1);
        }
        let last = self.last_of(question);
        let first = last.and_then(|group| self.firsts.get(usize::from(group)));
        if let (Some(group), true) = (last, first.is_some_and(|first| first.is_equal(question))) {
            return group;
        }
        let group = group_number(self.firsts.len());
        self.firsts.push(question);
        let counters = question.counters().iter();
        self.touches.extend(counters.map(|counter| Touch {
            digest: counter.digest,
            group,
        }));
        group
    }

    /// The last group that accesses any of the question's counters, if it is the last group to access each of them.
    fn last_of(&self, question: &Question) -> Option<u8> {
        let mut groups = question.counters().iter().map(|counter| {
            let mut touches = self.touches.iter().rev();
            let touch = touches.find(|touch| touch.digest == counter.digest);
            touch.map(|touch| touch.group)
        });
        let first = groups.next()??;
        groups.all(|group| group == Some(first)).then_some(first)
    }
}

/// A call has no more groups than fit into a byte.
fn group_number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// The number of each question's group. Groups are numbered in the order of their first questions.
pub(crate) fn groups<'q>(
    questions: impl Iterator<Item = &'q Question>,
) -> SmallVec<[u8; MOST_IN_CALL]> {
    let mut groups = QuestionGroups::default();
    questions.map(|question| groups.next(question)).collect()
}

/// Makes equal questions adjacent, in the order of their arrival.
pub(crate) fn gather(batch: &mut [QueuedDecision]) {
    if batch.len() < 2 {
        return;
    }
    let groups = groups(batch.iter().map(|decision| &decision.question));
    if groups.is_sorted() {
        return;
    }
    for (decision, group) in batch.iter_mut().zip(groups) {
        decision.group = group;
    }
    batch.sort_by_key(|decision| decision.group);
}
