//! `status` of a cost: what a request costs by the status of its answer.

use crate::config::document::{Fields, Form, Setting, ValueShape, custom, describe, table};
use crate::config::input::At;
use crate::config::report::{Code, Details as _};
use crate::config::value::{quoted, status_pattern, with_valid_offers};
use crate::key::{MOST_COST, StatusCosts, StatusPattern};
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// The word for all statuses that are not named.
const ELSE: &str = "else";

table! {
    /// A cost that the status of the answer decides.
    StatusCost = LIMIT_COST_BY_STATUS, "limits", "a cost by status";

    /// The costs by status: of one (`"401"`), of a class (`"4xx"`), of gRPC (`"grpc-16"`), and of all others (`else`, 0
    /// where it is left out). The most exact counts. The greatest cost is charged at the decision; when the final status
    /// is known, the charge becomes its cost. Many requests at once are therefore refused beyond the limit, whatever
    /// their answers would be. The gateway's own answers count, too, but no refusal does. If the client leaves before the
    /// answer, the greatest cost stays. A call of gRPC has the status of its head only if it ended by `grpc-0`.
    status: Arc<StatusCosts> = status_form(), Required, "{ \"401\" = 1, else = 0 }";
}

fn status_form() -> impl Form<Arc<StatusCosts>> {
    custom(ValueShape::StatusCosts, costs)
}

fn costs(key: &'static str, fields: &mut Fields<'_>) -> Setting<Arc<StatusCosts>> {
    let costs = fields.named(key, |fields, name, value| cost(key, fields, &name, value));
    costs.and_then(|costs, span| {
        if costs.iter().all(|(_, cost)| *cost == 0) {
            fields
                .wrong(key, Code::CostsNothing, "charges no answer")
                .at(span, "no cost is above 0")
                .help("write `status = { \"401\" = 1, else = 0 }` to count failures alone");
            return None;
        }
        let mut otherwise = 0;
        let mut named = Vec::new();
        for (pattern, cost) in costs {
            match pattern {
                Some(pattern) => named.push((pattern, cost)),
                None => otherwise = cost,
            }
        }
        Some(Arc::new(StatusCosts::new(named, otherwise)))
    })
}

/// One cost; the pattern is absent for `else`.
fn cost(
    key: &'static str,
    fields: &mut Fields<'_>,
    name: &At<String>,
    value: &Spanned<DeValue<'_>>,
) -> Option<(Option<StatusPattern>, u64)> {
    let read = |text: &str| {
        if text == ELSE {
            return Ok(None);
        }
        status_pattern(text, ELSE).map(Some)
    };
    let pattern = fields.take(with_valid_offers(&name.value, read), &name.span);
    let DeValue::Integer(number) = value.get_ref() else {
        let found = describe(value.get_ref());
        let (name, title) = (quoted(&name.value), fields.title());
        let message = format!("the cost after {name} in `{title}` is a whole number, not {found}");
        fields
            .error(Code::WrongType, message)
            .at(&value.span(), "a whole number from 0");
        return None;
    };
    let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
    let units = number.and_then(|number| u64::try_from(number).ok());
    let Some(units) = units.filter(|units| *units <= MOST_COST) else {
        let label = format!("must be from 0 to {MOST_COST}");
        fields
            .wrong(key, Code::BadNumber, "has a cost that is out of range")
            .at(&value.span(), label);
        return None;
    };
    Some((pattern?, units))
}
