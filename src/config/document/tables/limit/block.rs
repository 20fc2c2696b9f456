//! `block` of a limit: for how long a refusal shuts its key out.

use crate::config::document::{
    Fields, Form, ValueShape, custom, inner_table, table, time_within, whole,
};
use crate::config::report::{Code, Details as _};
use crate::limit::BlockRule;
use std::num::NonZeroU64;
use std::time::Duration;

table! {
    /// Blocks that last longer where they follow each other.
    GrowingBlock = LIMIT_BLOCK, "limits", "a block", takes Some("a time, as `\"15min\"`, or a table as `{ for = \"1min\", up_to = \"1d\" }`");

    /// The length of a first block.
    r#for: Duration = length(), Required, "\"1min\"";

    /// The greatest length. A block that begins so soon after the end of another that the time between them is shorter
    /// than the other was lasts twice as long as that, `up_to` at most.
    up_to: Duration = length(), Required, "\"1d\"";
}

/// The length of a block.
fn length() -> impl Form<Duration> {
    time_within(
        "1s"..="90d",
        "a shorter block hardly keeps a client out, and a longer one is a decision for a person",
    )
}

/// A time, or a table with two of them.
pub(super) fn block_form() -> impl Form<BlockRule> {
    custom(ValueShape::TextOrInner(&LIMIT_BLOCK), |key, fields| {
        let value = fields.value(key);
        if value.is_some_and(|value| value.get_ref().is_table()) {
            return inner_table(growing).read(key, fields);
        }
        let time = length().read(key, fields);
        time.and_then(|time, _| rule(time, time))
    })
}

fn growing(table: GrowingBlock, fields: &mut Fields<'_>) -> Option<BlockRule> {
    let table = whole(table, fields)?;
    let (first, most) = (table.r#for.at()?, table.up_to.at()?);
    if most.value < first.value {
        fields
            .wrong("up_to", Code::Conflict, "is shorter than `for`")
            .at(&most.span, "the longest block")
            .and(&first.span, "the first block")
            .help("write the longer of the two into `up_to`");
        return None;
    }
    rule(first.value, most.value)
}

fn rule(first: Duration, most: Duration) -> Option<BlockRule> {
    let micros = |time: Duration| NonZeroU64::new(u64::try_from(time.as_micros()).ok()?);
    Some(BlockRule::new(micros(first)?, micros(most)?))
}
