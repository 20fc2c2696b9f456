//! The findings: disagreements with their cases, named faults, unknown values by their causes, and the subjects of the
//! cases.

use super::agree;
use super::ask::{Answered, Explained};
use super::draw_faults;
use super::draw_request::DrawnRequest;
use super::named_faults::{self, Case, Voice};
use super::one_file::{Outcome, Round};
use serde_json::Value;
use std::collections::BTreeMap;

/// The number of disagreements that are printed in full.
const SHOWN: usize = 20;

/// The findings of some cases.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: usize,
    files: usize,
    refused_files: usize,
    first_refused: Option<String>,
    by_reason: BTreeMap<String, usize>,
    by_cause: BTreeMap<&'static str, usize>,
    untold: BTreeMap<&'static str, usize>,
    unknown: BTreeMap<String, usize>,
    by_fault: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Tally {
    pub(super) fn of(round: &Round) -> Self {
        Self {
            files: 1,
            refused_files: round.refused.len(),
            first_refused: round.refused.first().cloned(),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        fn sum<K: Ord>(into: &mut BTreeMap<K, usize>, from: BTreeMap<K, usize>) {
            for (key, count) in from {
                *into.entry(key).or_default() += count;
            }
        }
        self.requests += other.requests;
        self.files += other.files;
        self.refused_files += other.refused_files;
        self.first_refused = self.first_refused.take().or(other.first_refused);
        sum(&mut self.by_reason, other.by_reason);
        sum(&mut self.by_cause, other.by_cause);
        sum(&mut self.untold, other.untold);
        sum(&mut self.unknown, other.unknown);
        sum(&mut self.by_fault, other.by_fault);
        self.wrong.extend(other.wrong);
    }

    /// Counts the subjects of a request.
    pub(super) fn count(&mut self, request: &DrawnRequest, answered: &Answered) {
        self.requests += 1;
        let reason = answered.line.as_ref().map_or("no answer", |line| {
            line["reason"].as_str().unwrap_or_default()
        });
        *self.by_reason.entry(reason.to_owned()).or_default() += 1;
        for cause in &request.early {
            *self.by_cause.entry(cause).or_default() += 1;
        }
        if let Some(why) = request.untellable {
            *self.untold.entry(why).or_default() += 1;
        }
    }

    pub(super) fn explained(&mut self, explained: &Explained) {
        let causes = explained.as_ref().map(agree::unknowns).unwrap_or_default();
        for cause in causes {
            *self.unknown.entry(cause).or_default() += 1;
        }
    }

    /// Notes a disagreement of the three, unless it is a known fault.
    pub(super) fn disagreement(
        &mut self,
        round: &Round,
        at: usize,
        case: &Case<'_>,
        voice: Voice,
        found: Vec<String>,
    ) {
        if found.is_empty() {
            return;
        }
        let is_other = std::env::var_os("TOLLGATE_UNDER_TEST").is_some();
        let named = named_faults::shown(case, voice).filter(|_| is_other);
        match named {
            Some(name) => *self.by_fault.entry(name.to_owned()).or_default() += 1,
            None => self.note(
                round,
                at,
                case.said,
                &format!("gateway and {voice:?}"),
                &found,
            ),
        }
    }

    fn note(&mut self, round: &Round, at: usize, said: &str, who: &str, found: &[String]) {
        let request = &round.requests[at];
        let text: String = request.text().chars().take(1500).collect();
        self.wrong.push(format!(
            "WALK_SEED={} request {at}, {who}:\n  {}\n{:?} from {} {:?}\n{text}\nsaid: {said}\n{}",
            round.seed,
            found.join("\n  "),
            request.early,
            request.from,
            request.tls,
            round.file.text,
        ));
    }

    /// Compares two programs: gateway with gateway, `explain` with `explain`, `simulate` with `simulate`.
    pub(super) fn compare_programs(
        &mut self,
        round: &Round,
        (new, new_decisions): (&Outcome, &[Value]),
        (old, old_decisions): (&Outcome, &[Value]),
    ) {
        let mut decided = new_decisions.iter().zip(old_decisions);
        // After a request that only one of the two counts, their counters differ.
        let mut is_astray = false;
        for (at, answered) in new.answers.iter().enumerate() {
            let mut pairs = vec![(Voice::Gateway, shown(answered), shown(&old.answers[at]))];
            if let (Some(new), Some(old)) = (&new.explained[at], &old.explained[at]) {
                pairs.push((Voice::Explain, spoken(new), spoken(old)));
            }
            if answered.line.is_some()
                && let Some((new, old)) = decided.next()
            {
                pairs.push((Voice::Simulate, new.to_string(), old.to_string()));
            }
            for (voice, new, old) in pairs {
                if new == old || (voice == Voice::Simulate && is_astray) {
                    continue;
                }
                is_astray |= voice == Voice::Simulate;
                let case = Case {
                    file: &round.file,
                    request: &round.requests[at],
                    answered,
                    said: &old,
                };
                match named_faults::shown(&case, voice) {
                    Some(name) => *self.by_fault.entry(format!("before: {name}")).or_default() += 1,
                    None => {
                        let same = new
                            .bytes()
                            .zip(old.bytes())
                            .take_while(|(one, other)| one == other);
                        let from = same.count().saturating_sub(60);
                        let part = |text: &str| {
                            String::from_utf8_lossy(&text.as_bytes()[from..])
                                .chars()
                                .take(400)
                                .collect::<String>()
                        };
                        let found = [
                            format!("now    ..{}", part(&new)),
                            format!("before ..{}", part(&old)),
                        ];
                        self.note(round, at, "", &format!("two programs' {voice:?}"), &found);
                    }
                }
            }
        }
    }

    pub(super) fn show(&self) {
        let refused = self.refused_files;
        println!(
            "{} requests for {} files; {refused} files were drawn that are none",
            self.requests, self.files
        );
        println!("answers: {:?}", self.by_reason);
        println!("early causes: {:?}", self.by_cause);
        println!("not told to explain: {:?}", self.untold);
        println!("unknown to explain: {:?}", self.unknown);
        for (name, count) in &self.by_fault {
            println!("{count} differ by a named fault: {name}");
        }
        println!("{} differ", self.wrong.len());
    }

    /// Fails if anything differs, or if the cases do not have the subjects that they should have.
    pub(super) fn verdict(self, is_whole: bool) {
        let shown: Vec<String> = self.wrong.iter().take(SHOWN).cloned().collect();
        assert!(
            self.wrong.is_empty(),
            "{} differ\n{}",
            self.wrong.len(),
            shown.join("\n----\n")
        );
        if !is_whole {
            return;
        }
        let refused = self.first_refused.unwrap_or_default();
        assert!(
            self.refused_files < self.files,
            "too many files are none, as this one:\n{refused}"
        );
        let passed = self.by_reason.get("ok").copied().unwrap_or_default();
        assert!(
            passed * 5 > self.requests,
            "few requests pass: {:?}",
            self.by_reason
        );
        if self.requests >= 2_000 {
            let missing: Vec<_> = draw_faults::names()
                .filter(|name| !self.by_cause.contains_key(name))
                .collect();
            assert!(missing.is_empty(), "never drawn: {missing:?}");
        }
    }
}

/// The output of a gateway about a request, without the values that change with each run.
fn shown(answered: &Answered) -> String {
    let line = answered.line.as_ref().map(|line| {
        let mut line = line.clone();
        let times = [
            "ts",
            "request_id",
            "duration_ms",
            "upstream_ms",
            "connect_ms",
            "queued_ms",
            "delay_ms",
            "remaining",
            "retry_after_ms",
        ];
        for name in times {
            line[name] = Value::Null;
        }
        if line["reason"] == "limit_refused" || line["method"] == "HEAD" {
            // The body of a refusal contains the wait. The earlier program also counts bytes in its own answers to
            // HEAD.
            line["bytes_out"] = Value::Null;
        }
        line
    });
    let forwarded = answered.forwarded.as_ref().map(|seen| {
        let mut seen = seen.clone();
        if let Some(fields) = seen["fields"].as_array_mut() {
            fields.retain(|pair| pair[0] != "x-request-id" && pair[0] != "tollgate-granted");
        }
        seen
    });
    let detail = answered
        .detail
        .as_deref()
        .map(|text| text.split(" Try again in ").next().unwrap_or_default());
    format!(
        "{:?} {detail:?} {:?} {} {}",
        answered.status,
        answered.location,
        forwarded.unwrap_or_default(),
        line.unwrap_or_default()
    )
}

fn spoken(explained: &Explained) -> String {
    let told = |told: &Value| {
        let mut told = told.clone();
        // The earlier program does not have this member.
        if let Some(members) = told.as_object_mut() {
            members.remove("unknown");
        }
        told.to_string()
    };
    explained.as_ref().map_or_else(Clone::clone, told)
}
