//! Repetition among the questions of a call: equal questions, and equal forms of questions, are sent once.

use super::Question;
use crate::store::redis::MOST_IN_CALL;
use smallvec::SmallVec;

/// The number of equal questions from which on they are sent once, with their number. Two are cheaper in sequence.
const WORTH: usize = 3;

/// One byte for each question of a call.
pub(super) type Numbers = SmallVec<[u8; MOST_IN_CALL]>;

/// The questions of a call in the scripts' form: of adjacent equal ones the first, with their number.
pub(super) struct CountedQuestions<'q> {
    pub(super) different: SmallVec<[&'q Question; MOST_IN_CALL]>,
    pub(super) numbers: Numbers,
}

impl<'q> CountedQuestions<'q> {
    /// Counts `questions`, in order.
    pub(super) fn of(questions: impl Iterator<Item = &'q Question>) -> Self {
        let questions: SmallVec<[&Question; MOST_IN_CALL]> = questions.collect();
        let (mut different, mut numbers) = (SmallVec::new(), Numbers::new());
        let runs = questions.chunk_by(|question, next| question.is_equal(next));
        for run in runs.flat_map(|run| run.chunks(usize::from(u8::MAX))) {
            let asked = match run {
                [first, ..] if run.len() >= WORTH => std::slice::from_ref(first),
                _ => run,
            };
            let number = u8::try_from(run.len() / asked.len()).unwrap_or(u8::MAX);
            different.extend_from_slice(asked);
            numbers.extend(asked.iter().map(|_| number));
        }
        Self { different, numbers }
    }
}

/// The forms of the questions of a call: their content without their counters. Most clients meet the same limits.
pub(super) struct QuestionForms<'q> {
    /// The first question of each form.
    pub(super) firsts: SmallVec<[&'q Question; 8]>,
    /// The number of each question's form; numbers begin at 1.
    pub(super) numbers: Numbers,
}

impl<'q> QuestionForms<'q> {
    /// The forms of `questions`; `None` if each has a different one.
    pub(super) fn of(questions: &[&'q Question]) -> Option<Self> {
        let (mut firsts, mut numbers) = (SmallVec::<[&Question; 8]>::new(), Numbers::new());
        for question in questions {
            let mut known = firsts.iter();
            let form = known.rposition(|first| first.has_form_of(question));
            let form = form.unwrap_or_else(|| {
                firsts.push(question);
                firsts.len() - 1
            });
            numbers.push(u8::try_from(form + 1).ok()?);
        }
        (firsts.len() < questions.len()).then_some(Self { firsts, numbers })
    }
}
