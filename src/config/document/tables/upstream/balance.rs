//! Keys of an upstream that decide which server gets a request, and the treatment of requests that no server can take.

use crate::config::document::{
    Fields, Form, Section as _, ValueShape, Zero, custom, inner_table, number, table, text_form,
    time, whole, words,
};
use crate::config::report::{Code, Details as _};
use crate::config::value::{Balance, balance, share};
use crate::upstream::balance_rule::{BalanceRule, NoneLeft, QueueRule};
use std::time::Duration;

table! {
    /// How a server is chosen, with more about it.
    BalanceTable = BALANCE, "upstreams", "the choice of a server", takes Some("`round-robin`, `least-requests`, `random`, `hash:KEY`, or a table as `{ by = \"hash:header:x-user\", bounded = \"125%\" }`");

    /// The way of choosing, as in `balance` without a table.
    by: Balance = text_form(balance), Required, "\"hash:header:x-user\"";

    /// With `hash:KEY`, how many requests a server may have in flight, as a share of the average: a server with more is
    /// passed over, and the next server in the order of the key takes the request.
    bounded: u32 = text_form(|text| share(text, 100..=1000)), Words("any number"), "\"125%\"";
}

table! {
    /// Requests that wait while all servers have as many as they take, in the order in which they came.
    QueueTable = QUEUE, "upstreams", "the queue";

    /// The most requests that wait, half of them of one client (an address, in IPv6 a /64). With 0 no request waits,
    /// and the answer is 503 at once.
    max: u32 = number(0, 1_000_000), Value("100"), "50";

    /// The longest wait, then 503 `server_busy`.
    wait: Duration = time(Zero::Refused), Value("\"1s\""), "\"500ms\"";
}

words! { NoneLeft: TryAll "try-all", Refuse "503" }

/// One of the words, `hash:KEY`, or a table.
pub(in crate::config::document) fn balance_form() -> impl Form<Balance> {
    custom(ValueShape::TextOrInner(&BALANCE), |key, fields| {
        if is_table(key, fields) {
            inner_table(bounded).read(key, fields)
        } else {
            fields.text(key, balance)
        }
    })
}

/// Is the value of `key` a table?
pub(in crate::config::document) fn is_table(key: &str, fields: &Fields<'_>) -> bool {
    fields
        .value(key)
        .is_some_and(|value| value.get_ref().is_table())
}

fn bounded(table: BalanceTable, fields: &mut Fields<'_>) -> Option<Balance> {
    let table = whole(table, fields)?;
    let mut balance = table.by.get()?.clone();
    if let Some(bounded) = table.bounded.at() {
        let BalanceRule::Hash { bounded: bound } = &mut balance.rule else {
            fields
                .wrong("bounded", Code::Conflict, "is for `hash:KEY` alone")
                .at(&bounded.span, "has no effect")
                .help("leave it out, or write `by = \"hash:header:x-user\"`");
            return None;
        };
        *bound = Some(bounded.value);
    }
    Some(balance)
}

/// The queue.
pub(in crate::config::document) fn queue_form() -> impl Form<QueueRule> {
    inner_table(|table: QueueTable, _| {
        (!table.is_bad()).then(|| QueueRule {
            max: table.max(),
            wait: table.wait(),
        })
    })
}
