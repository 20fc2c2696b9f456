//! The calls that send questions: many decisions or many refunds in one call of a script.

use super::repetition::{CountedQuestions, Numbers, QuestionForms};
use super::{Question, ScriptLevel};
use crate::clock::Timestamp;
use crate::limit::wire;
use crate::store::redis::wire::script::{REFUND, Script};
use bb8_redis::redis::Cmd;
use smallvec::SmallVec;

/// One call that decides `questions` in order. Adjacent equal questions are sent once, with their number. `clock`
/// replaces the server's own, for tests.
pub(crate) fn decide<'q>(
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question>,
) -> Cmd {
    let mut rest = questions;
    let (first, second) = (rest.next(), rest.next());
    if let (Some(question), None) = (first, second) {
        return decide_alone(clock, question);
    }
    let questions = first.into_iter().chain(second).chain(rest);
    let CountedQuestions { different, numbers } = CountedQuestions::of(questions);
    let limits = |question: &&Question| u8::try_from(question.limits()).unwrap_or(u8::MAX);
    let shape: Numbers = different.iter().map(limits).collect();
    let level = different.iter().map(|question| question.level).max();
    let level = level.unwrap_or_default();
    let script = level.script();
    let forms = match level {
        ScriptLevel::Plain => QuestionForms::of(&different),
        ScriptLevel::Any | ScriptLevel::Once | ScriptLevel::Shadow => None,
    };
    let firsts = forms.as_ref().map_or(&different[..], |forms| &forms.firsts);
    let all = different.iter().copied();
    let mut command = call(script, clock, None, all, firsts.iter().copied());
    command.arg(&shape[..]);
    let has_equal = numbers.iter().any(|number| *number > 1);
    if has_equal || forms.is_some() {
        command.arg(if has_equal { &numbers[..] } else { b"" });
    }
    if let Some(forms) = &forms {
        command.arg(&forms.numbers[..]);
    }
    command
}

/// The call that decides one question, as sent by an idle gateway.
fn decide_alone(clock: Option<Timestamp>, question: &Question) -> Cmd {
    let all = std::iter::once(question);
    let mut command = call(question.level.script(), clock, None, all.clone(), all);
    let limits = u8::try_from(question.limits()).unwrap_or(u8::MAX);
    command.arg(&[limits]);
    command
}

/// The key of a call's marker, and the call's number under it.
pub(crate) struct MarkerKey {
    pub(crate) key: Vec<u8>,
    pub(crate) number: u64,
}

/// One call that refunds `questions`, each a single charge. A call with a marker can be repeated when it had no answer.
pub(crate) fn refund<'q>(
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question> + Clone,
    marker: Option<MarkerKey>,
) -> Cmd {
    let number = marker.as_ref().map(|marker| wire::double(marker.number));
    let key = marker.map(|marker| marker.key);
    let mut command = call(&REFUND, clock, key, questions.clone(), questions);
    command.arg(number.as_ref().map_or(&b""[..], |number| &number[..]));
    command
}

/// A call about the counters of `questions`, with the blocks of `forms`.
fn call<'q>(
    script: &Script,
    clock: Option<Timestamp>,
    marker: Option<Vec<u8>>,
    questions: impl Iterator<Item = &'q Question> + Clone,
    forms: impl Iterator<Item = &'q Question>,
) -> Cmd {
    let (mut limits, mut bytes, mut records) = (0, 0, 0);
    for question in questions.clone() {
        limits += question.limits();
        bytes += question.keys.len();
        records += question.records.len();
    }
    let mut blocks: SmallVec<[u8; 512]> = SmallVec::new();
    for question in forms {
        blocks.extend_from_slice(&question.blocks);
    }
    let keys = limits + records + usize::from(marker.is_some());
    let mut command = script.call(keys, bytes + blocks.len() + limits);
    for question in questions.clone() {
        for key in question.keys() {
            command.arg(key);
        }
    }
    if records > 0 {
        // The script takes the arguments from the end: it need not know the number of counters.
        let all: Vec<&[u8]> = questions
            .flat_map(|question| question.records.iter().map(Vec::as_slice))
            .collect();
        for record in all.into_iter().rev() {
            command.arg(record);
        }
    }
    if let Some(marker) = marker {
        command.arg(marker);
    }
    match clock {
        None => command.arg(b""),
        Some(at) => command.arg(&wire::double(at.micros())),
    };
    command.arg(&blocks[..]);
    command
}
