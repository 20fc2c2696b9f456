//! Calls whose answer was lost: repeated calls, and slots that may be taken without the gateway's knowledge.

use super::History;
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::{Limit, Mark, Ticket};
use crate::store::redis::tests::expected::Expected;
use crate::store::redis::tests::model::{Asked, How};
use crate::store::redis::wire::layout;
use crate::store::redis::wire::question::{self, CHOSEN, MarkerKey, Question};
use bb8_redis::redis::Cmd;
use std::sync::Arc;

/// The script's byte for a call that was applied before.
pub(super) const MADE_BEFORE: u8 = 4;

/// Calls of a history without an answer, since its beginning.
#[derive(Default)]
pub(super) struct Unheard {
    /// The last call number of each name.
    numbers: [u64; 2],
    /// The position of the present call's marker: the number of bytes that answer the same call later.
    mark: Option<usize>,
    /// Calls that were made, the number of bytes that answer each by now, and the keys of each.
    calls: Vec<(Cmd, usize, Vec<Vec<u8>>)>,
    /// The questions that free slots of earlier calls.
    slots: Vec<Slots>,
    /// The number of such slots that were there.
    pub(super) freed: usize,
}

struct Slots {
    key: Vec<u8>,
    question: Question,
    limit: Arc<Limit>,
    ticket: Ticket,
}

impl Unheard {
    /// Notes that slots are requested, from `chosen` on.
    pub(super) fn asked(&mut self, question: &Question, chosen: Option<u64>, checks: &[Asked<'_>]) {
        let Some(chosen) = chosen else { return };
        let takes = checks.iter().filter(|(.., check)| {
            check.limit.rule.concurrency().is_some() && check.cost > Cost::ZERO
        });
        for ((question, _), (key, _, check)) in question.releases().zip(takes) {
            self.slots.push(Slots {
                key: key.clone(),
                question,
                limit: check.limit.clone(),
                ticket: Ticket {
                    mark: Mark::Slot(chosen),
                    cost: check.cost,
                    record: None,
                    overflow: false,
                },
            });
        }
        let old = self.slots.len().saturating_sub(8);
        self.slots.drain(..old);
    }
}

impl History {
    /// The number of the first slot, if the gateway chooses. The range is so small that the number is sometimes taken.
    pub(super) fn choose(&mut self) -> Option<u64> {
        let some = [CHOSEN.start, CHOSEN.start + 4, CHOSEN.end - 1];
        match self.random.u8(..4) {
            0 => None,
            1 => Some(some[self.random.usize(..3)]),
            _ => Some(self.random.u64(CHOSEN)),
        }
    }

    /// The marker of a call about so many keys, if it has one.
    pub(super) fn mark_call(&mut self, keys: usize) -> Option<MarkerKey> {
        self.unheard.mark = None;
        if self.random.u8(..4) == 0 {
            return None;
        }
        let name = self.random.usize(..2);
        // Calls of a name are numbered in sequence; some numbers were lost.
        let number = self.unheard.numbers[name] + self.random.u64(1..3);
        self.unheard.numbers[name] = number;
        self.unheard.mark = Some(keys + 1);
        let sharing = self.random.bool().then_some(&b"t:1:any:tb:{a}"[..]);
        Some(MarkerKey {
            key: layout::marker(&format!("t{name}"), sharing, 7),
            number,
        })
    }

    /// Notes that the call was made.
    pub(super) fn made(&mut self, command: &Cmd, touched: &[Vec<u8>]) {
        if let Some(bytes) = self.unheard.mark {
            let calls = &mut self.unheard.calls;
            calls.push((command.clone(), bytes, touched.to_vec()));
            calls.drain(..calls.len().saturating_sub(8));
        }
    }

    /// Repeats an earlier call, after any other calls: it changes nothing.
    pub(super) fn repeat_call(&mut self) {
        let calls = &self.unheard.calls;
        if calls.is_empty() {
            return;
        }
        let (command, bytes, touched) = calls[self.random.usize(..calls.len())].clone();
        self.ask(command, Expected::Refunded(vec![MADE_BEFORE; bytes]));
        self.look(touched);
    }

    /// Frees slots that may have been taken, or have already been freed.
    pub(super) fn release_unheard(&mut self) {
        let slots = &mut self.unheard.slots;
        if slots.is_empty() {
            return;
        }
        let slots = slots.swap_remove(self.random.usize(..slots.len()));
        let now = Timestamp::from_micros(self.now);
        for _ in 0..2 {
            let place = (&*slots.key, None);
            let freed = self
                .model
                .refund(now, place, &slots.limit, slots.ticket, How::Refund);
            self.unheard.freed += usize::from(freed > 0);
            let command = question::refund(Some(now), std::iter::once(&slots.question), None);
            self.ask(command, Expected::Refunded(vec![freed]));
        }
        self.look(vec![slots.key]);
    }
}
