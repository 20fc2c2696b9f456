//! Compiles the numbers of single customers, from the file that a limit names with `own`. A mistake is reported with
//! the line that has the numbers.

use super::rules::all_rules;
use super::{Scene, contradictions, cost, rates, warn_of_cost};
use crate::config::document::{Limit, RateEntry, Setting};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings, Severity, counted};
use crate::config::settings::number_files::{NumberFile, SHOWN, WrittenNumbers};
use crate::config::value::quoted;
use crate::key::{CustomerIndex, Customers};
use crate::limit;
use crate::limit::tier::Tier;
use crate::limit::tier::customer_numbers::{CustomerNumbers, NumberedCustomers, NumberedLine};
use std::sync::Arc;

/// Returns `limits`, which are compiled from `written` with their tiers, with the numbers of single customers.
pub(super) fn add(
    limits: Vec<limit::Limit>,
    written: &Limit,
    scene: &Scene<'_>,
    found: &mut Findings,
) -> Vec<limit::Limit> {
    let file = scene.numbers.of_limit(written);
    let (Some(file), Some(customers)) = (file, &scene.groups.customers) else {
        return limits;
    };
    let Some(first) = limits.first().filter(|one| one.by.counts_customers()) else {
        return limits;
    };
    let holders = Holders::new(file, customers, &first.tiers);
    let mut bases = Base::all(&limits, written, file);
    let mut faults = LineFaults::new(file, found);
    let mut compiled: Vec<Vec<Option<Arc<limit::Limit>>>> = limits.iter().map(|_| vec![]).collect();
    for (set, numbers) in file.sets.iter().enumerate() {
        for (tier, base) in bases.iter_mut().enumerate() {
            let holder = holders.first(set, tier);
            let made = holder.and_then(|holder| {
                faults.holder = Some(holder);
                base.compile(numbers, &mut faults)
            });
            let mut made = made.into_iter().flatten();
            for all in &mut compiled {
                all.push(made.next());
            }
        }
    }
    faults.finish();
    let numbered = Arc::new(holders.numbered(file, customers));
    let both = limits.into_iter().zip(compiled);
    both.map(|(limit, compiled)| {
        let numbers = CustomerNumbers::new(&numbered, compiled, limit.tiers.len());
        limit.edited(|policy| policy.customer_numbers = Some(Arc::new(numbers)))
    })
    .collect()
}

/// The customers of a file, and the tiers that each set of numbers can meet.
struct Holders<'a> {
    customers: Vec<(CustomerIndex, NumberedLine)>,
    /// For each set: the first customer with it that can have no tier, the first tier, and so on.
    meets: Vec<Option<NumberedName<'a>>>,
    width: usize,
}

/// A customer and its line.
#[derive(Debug, Clone, Copy)]
struct NumberedName<'a> {
    name: &'a str,
    line: u32,
}

impl<'a> Holders<'a> {
    fn new(file: &'a NumberFile, all: &Customers, tiers: &[Tier]) -> Self {
        let width = tiers.len() + 1;
        let mut meets = vec![None; file.sets.len() * width];
        let mut customers = Vec::with_capacity(file.lines.len());
        for written in &file.lines {
            // Every name of the file is among the customers.
            let Some(customer) = all.find(&written.name) else {
                continue;
            };
            let (numbers, line) = (written.set, written.line);
            customers.push((customer, NumberedLine { numbers, line }));
            let start = numbers as usize * width;
            let set = &mut meets[start..start + width];
            let holder = NumberedName {
                name: &written.name,
                line,
            };
            if !note_tiers(tiers, customer, holder, &mut set[1..]) {
                set[0].get_or_insert(holder);
            }
        }
        Self {
            customers,
            meets,
            width,
        }
    }

    /// The first customer with these numbers that can have this tier.
    fn first(&self, set: usize, tier: usize) -> Option<NumberedName<'a>> {
        self.meets[set * self.width + tier]
    }

    fn numbered(self, file: &NumberFile, all: &Arc<Customers>) -> NumberedCustomers {
        let path = file.path.value.as_str().into();
        NumberedCustomers::new(all, path, self.customers)
    }
}

/// Notes the tiers that the customer can have; returns whether the customer has one of them in any case.
fn note_tiers<'a>(
    tiers: &[Tier],
    customer: CustomerIndex,
    holder: NumberedName<'a>,
    meets: &mut [Option<NumberedName<'a>>],
) -> bool {
    for (tier, meets) in tiers.iter().zip(meets) {
        let named = tier.group.named();
        let is_member = named.is_some_and(|named| named.has(customer));
        // A credential of the request may decide.
        let may_be = named.is_none_or(|named| named.is_open() || named.len() < tier.group.len());
        if is_member || may_be {
            meets.get_or_insert(holder);
        }
        if is_member {
            return true;
        }
    }
    false
}

/// The limit or one of its tiers, as written and compiled: what a line leaves out comes from here.
struct Base {
    written: Limit,
    limits: Vec<Arc<limit::Limit>>,
    /// The numbers as written, which each line may replace.
    defaults: Limit,
    span: Span,
}

impl Base {
    /// The limit, then its tiers in their order.
    fn all(limits: &[limit::Limit], written: &Limit, file: &NumberFile) -> Vec<Self> {
        let plain = Limit {
            tiers: Setting::Absent,
            ..written.clone()
        };
        let of_limit = limits
            .iter()
            .map(|limit| Arc::new(limit.edited(|policy| policy.tiers.clear())));
        let mut all = vec![Self::new(plain.clone(), of_limit.collect(), file)];
        for (position, tier) in limits[0].tiers.iter().enumerate() {
            let mut entries = written.tiers.entries().iter();
            let entry = entries.find(|entry| *entry.value.name.value == *tier.group.name);
            let Some(entry) = entry else { continue };
            let of_tier = limits
                .iter()
                .map(|limit| Arc::clone(&limit.tiers[position].limit));
            all.push(Self::new(
                plain.with_tier(&entry.value),
                of_tier.collect(),
                file,
            ));
        }
        all
    }

    fn new(defaults: Limit, limits: Vec<Arc<limit::Limit>>, file: &NumberFile) -> Self {
        Self {
            written: defaults.clone(),
            limits,
            defaults,
            span: file.path.span.clone(),
        }
    }

    /// The limits with these numbers; `None` if the numbers have a mistake, which is noted.
    fn compile(
        &mut self,
        numbers: &WrittenNumbers,
        faults: &mut LineFaults<'_>,
    ) -> Option<Vec<Arc<limit::Limit>>> {
        let (many, rates) = (numbers.rates.len(), self.defaults.rate.entries().len());
        if many > 0 && rates > 0 && many != rates {
            let rates = counted(rates, "rate");
            let message = format!("{} has {rates}, and the line {many}", self.defaults);
            let fault = Diagnostic::error(Code::BadOwn, message)
                .at(&self.span, "in this file")
                .help("write as many, in the same order, with commas between");
            faults.add(fault);
            return None;
        }
        self.take(numbers);
        let mut notes = Findings::default();
        contradictions::note_contradictions(&self.written, &mut notes);
        let rules = all_rules(&self.written, &mut notes);
        let rules = rules.filter(|_| !notes.has_error_since(0));
        if let Some(rules) = &rules {
            rates::compare(&self.written, rules, &mut notes);
            warn_of_cost(&self.written, rules, cost(&self.written), &mut notes);
        }
        let is_right = !notes.has_error_since(0);
        for note in notes.into_inner() {
            faults.add(note);
        }
        let rules = rules.filter(|rules| is_right && rules.len() == self.limits.len())?;
        let both = self.limits.iter().zip(rules);
        let limits = both.map(|(base, rated)| {
            let window = base.window.is_some().then(|| rated.shown.into());
            Arc::new(base.with_numbers(rated.rate, rated.rule, window))
        });
        Some(limits.collect())
    }

    /// Writes the numbers into the limit. Each rate of a list keeps its burst.
    fn take(&mut self, numbers: &WrittenNumbers) {
        let (span, defaults) = (&self.span, &self.defaults);
        let rates = numbers.rates.iter().enumerate().map(|(position, quota)| {
            let before = defaults.rate.entries().get(position);
            let burst = before.map_or(Setting::Absent, |entry| entry.value.burst.clone());
            let quota = At::new(*quota, span.clone());
            At::new(RateEntry { quota, burst }, span.clone())
        });
        let written = &mut self.written;
        written.rate = if numbers.rates.is_empty() {
            defaults.rate.clone()
        } else {
            Setting::Valid(At::new(rates.collect(), span.clone()))
        };
        written.burst = number(numbers.burst, &defaults.burst, span);
        written.max = number(numbers.max, &defaults.max, span);
        written.queue = number(numbers.queue, &defaults.queue, span);
        written.max_wait = match numbers.max_wait {
            Some(time) => Setting::Valid(At::new(time, span.clone())),
            None => defaults.max_wait.clone(),
        };
    }
}

/// The number of a line, or the one that it leaves out.
fn number<T: Clone>(written: Option<T>, default: &Setting<T>, span: &Span) -> Setting<T> {
    match written {
        Some(number) => Setting::Valid(At::new(number, span.clone())),
        None => default.clone(),
    }
}

/// The mistakes in the numbers of a file.
struct LineFaults<'a> {
    file: &'a NumberFile,
    /// The customer whose numbers are compiled.
    holder: Option<NumberedName<'a>>,
    found: &'a mut Findings,
    /// The mistakes that were found before, of the limit itself.
    before: usize,
    errors: usize,
    warnings: usize,
}

impl<'a> LineFaults<'a> {
    fn new(file: &'a NumberFile, found: &'a mut Findings) -> Self {
        Self {
            file,
            holder: None,
            before: found.len(),
            found,
            errors: 0,
            warnings: 0,
        }
    }

    /// Notes what is wrong with the numbers of a line. What is wrong with the limit itself has been reported.
    fn add(&mut self, mut fault: Diagnostic) {
        let span = |one: &Diagnostic| one.primary.as_ref().map(|label| label.span.clone());
        let is_same = |one: &Diagnostic| one.code == fault.code && span(one) == span(&fault);
        if self.found[..self.before].iter().any(is_same) {
            return;
        }
        let path = &self.file.path;
        let count = match fault.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning | Severity::Ignored => &mut self.warnings,
        };
        *count += 1;
        if *count > SHOWN {
            return;
        }
        if let Some(NumberedName { name, line }) = self.holder {
            let (path, name) = (&path.value, quoted(name));
            fault.message = format!("{path}:{line}: customer {name}: {}", fault.message);
        }
        if fault.severity == Severity::Error {
            fault.code = Code::BadOwn;
        }
        let primary = fault.primary.take();
        let label = primary.map(|label| label.text).unwrap_or_default();
        let label = if label.is_empty() {
            "in this file".to_owned()
        } else {
            label
        };
        fault.others.retain(|other| other.span != path.span);
        self.found.push(fault.at(&path.span, label));
    }

    /// Notes how many mistakes are not shown.
    fn finish(self) {
        let more = self.errors.saturating_sub(SHOWN) + self.warnings.saturating_sub(SHOWN);
        if let (Some(last), 1..) = (self.found.last_mut(), more) {
            last.note = Some(format!("and {more} more like this"));
        }
    }
}
