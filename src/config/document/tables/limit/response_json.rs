//! `response_json` of a cost: a member, a list of members that are added, or a table with a weight for each.

use crate::config::document::{Fields, Form, Setting, ValueShape, custom, describe};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, counted};
use crate::config::value::{json_member, odd_name, quoted, with_valid_offers};
use crate::key::{JsonCost, MOST_MEMBERS, MOST_PLACES, WeighedMember, Weight};
use std::collections::HashSet;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// A member as the file writes it.
type WrittenMember = At<WeighedMember>;

/// A text, a list of texts, or a table of weights.
pub(super) fn members_form() -> impl Form<Arc<JsonCost>> {
    custom(ValueShape::JsonMembers, members)
}

fn members(key: &'static str, fields: &mut Fields<'_>) -> Setting<Arc<JsonCost>> {
    let plain = |places| WeighedMember {
        places,
        weight: Weight::ONE,
    };
    let members = match fields.value(key).map(Spanned::get_ref) {
        Some(DeValue::Table(_)) => {
            fields.named(key, |fields, name, value| weighed(key, fields, name, value))
        }
        // A text with blanks is a sum sooner than a list.
        Some(DeValue::String(_)) => fields.text(key, json_member).and_then(|places, span| {
            let member = At::new(plain(places), span.clone());
            Some(vec![member])
        }),
        _ => {
            let members = fields.texts(key, json_member);
            members.map(|members| members.into_iter().map(|at| at.map(plain)).collect())
        }
    };
    members.and_then(|members, span| checked(key, fields, members, span))
}

/// A member of a table, with its weight.
fn weighed(
    key: &'static str,
    fields: &mut Fields<'_>,
    name: At<String>,
    value: &Spanned<DeValue<'_>>,
) -> Option<WrittenMember> {
    let places = fields.take(with_valid_offers(&name.value, json_member), &name.span);
    let text = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        other => {
            let found = describe(other);
            let message = format!(
                "the weight of {} in `{}` is a number, not {found}",
                quoted(&name.value),
                fields.title()
            );
            fields
                .error(Code::WrongType, message)
                .at(&value.span(), "a number, as `4` or `-0.9`");
            return None;
        }
    };
    let Some(weight) = Weight::read(&text.replace('_', "")) else {
        fields
            .wrong(
                key,
                Code::BadJsonMember,
                "has a weight that is out of range",
            )
            .at(
                &value.span(),
                "from -1000 to 1000, with three decimals at most",
            );
        return None;
    };
    let places = places?;
    Some(At::new(WeighedMember { places, weight }, name.span))
}

/// The members of a valid cost; warns of unlikely names.
fn checked(
    key: &'static str,
    fields: &mut Fields<'_>,
    members: Vec<WrittenMember>,
    span: &Span,
) -> Option<Arc<JsonCost>> {
    if members.is_empty() {
        fields
            .wrong(key, Code::EmptyList, "names no member")
            .at(span, "at least one")
            .help("write `response_json = \"usage.total_tokens\"`");
        return None;
    }
    if !members.iter().any(|member| member.value.weight.adds()) {
        fields
            .wrong(key, Code::CostsNothing, "adds nothing to the cost")
            .at(span, "no weight is above 0")
            .help("give at least one member a weight above 0");
        return None;
    }
    let mut seen = HashSet::new();
    for member in &members {
        for place in &member.value.places {
            if !seen.insert(place) {
                let what = format!("names {} twice", quoted(&place.join(".")));
                fields
                    .wrong(key, Code::BadJsonMember, &what)
                    .at(&member.span, "the second time")
                    .help("its number would be counted twice: a table has a weight, `{ \"usage.total_tokens\" = 2 }`");
                return None;
            }
        }
    }
    for member in &members {
        let names = member.value.places.iter();
        if let Some((name, label)) = names.into_iter().find_map(|names| odd_name(names)) {
            let message = format!("`{key}` looks for a member called {}", quoted(name));
            let help = "name one member of nested objects, as `\"usage.total_tokens\"`";
            let warning = fields.warning(Code::BadJsonMember, message);
            warning.at(&member.span, label).help(help);
        }
    }
    let count = members.len();
    let cost = JsonCost::new(members.into_iter().map(|at| at.value).collect());
    if cost.is_none() {
        let label = format!("at most {MOST_MEMBERS}, at {MOST_PLACES} places");
        let what = format!("has {}", counted(count, "member"));
        fields
            .wrong(key, Code::BadJsonMember, &what)
            .at(span, label)
            .help("leave some of them out");
    }
    cost.map(Arc::new)
}
