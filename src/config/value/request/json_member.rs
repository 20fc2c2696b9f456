//! The member of a JSON body from which a cost is read.

use crate::config::value::{Code, ValueError};
use crate::key::{JsonPlace, Weight};

/// The most names that lead to a member.
const MOST_NAMES: usize = 8;
/// The most bytes of all names together.
const MOST_BYTES: usize = 256;

/// The advice about a text that names no member.
const ONE_MEMBER: &str = "name one member of nested objects, as `\"usage.total_tokens\"` for `{\"usage\": {\"total_tokens\": 7}}`";

/// Reads the places of a member in nested objects: `usage.total_tokens`, or `usage.total|message.usage.total`, of which
/// the first with a number counts. A text in another JSON query language, or a sum, would never match a member.
pub(in crate::config) fn json_member(text: &str) -> Result<Vec<JsonPlace>, ValueError> {
    let places: Vec<Vec<&str>> = text
        .split('|')
        .map(|place| place.split('.').collect())
        .collect();
    let mut faults = places.iter().filter_map(|names| fault(text, names));
    match faults.next() {
        None => {
            let places = places.into_iter();
            Ok(places
                .map(|names| names.into_iter().map(Box::from).collect())
                .collect())
        }
        Some(label) => Err(ValueError::of(
            Code::BadJsonMember,
            text,
            "does not lead to a member",
            label,
        )
        .offer(repaired(text))
        .help(ONE_MEMBER)
        .instead_if(computed(text))),
    }
}

/// The advice about a sum, a difference or a product: the list or the table that means the same.
fn computed(text: &str) -> Option<String> {
    let is_member = |text: &&str| json_member(text).is_ok();
    let split = |operator: &str| -> Option<Vec<&str>> {
        let parts: Vec<&str> = text.split(operator).map(str::trim).collect();
        (parts.len() > 1 && parts.iter().all(is_member)).then_some(parts)
    };
    if let Some(parts) = split("+") {
        let list = parts.join("\", \"");
        return Some(format!(
            "write `[\"{list}\"]`: the members of a list are added"
        ));
    }
    if let Some(parts) = split(" - ") {
        let others: Vec<String> = parts[1..]
            .iter()
            .map(|one| format!("\"{one}\" = -1"))
            .collect();
        return Some(format!(
            "write `{{ \"{}\" = 1, {} }}`: a table has a factor for each member",
            parts[0],
            others.join(", ")
        ));
    }
    let (one, other) = text.split_once(" * ")?;
    let (one, other) = (one.trim(), other.trim());
    let (member, factor) = match Weight::read(one) {
        Some(_) => (other, one),
        None => (one, other),
    };
    (Weight::read(factor).is_some() && json_member(member).is_ok()).then(|| {
        format!("write `{{ \"{member}\" = {factor} }}`: a table has a factor for each member")
    })
}

/// The fault of a text that cannot name a member of any body.
fn fault(text: &str, names: &[&str]) -> Option<&'static str> {
    let is_empty = |name: &&str| name.is_empty();
    let is_unspelled = |c: char| c.is_control() || matches!(c, '"' | '\\');
    let has_blanks = |operator: &str| text.contains(&format!(" {operator} "));
    if text.contains('+') || ["-", "*", "/"].into_iter().any(has_blanks) {
        Some("members are added by a list, and weighed by a table")
    } else if text == "$" || text.starts_with("$.") || text.starts_with("$[") {
        Some("the names begin at the whole body, without `$`")
    } else if text.contains(['[', ']']) {
        Some("elements of lists are not looked at")
    } else if names.iter().any(|name| name.trim() != *name) {
        Some("names have no blanks around them")
    } else if names.iter().any(is_empty) {
        Some("a name is missing: names have one dot between them")
    } else if names.len() > MOST_NAMES || text.len() > MOST_BYTES || text.contains(is_unspelled) {
        Some("up to eight names with dots between them")
    } else {
        None
    }
}

/// The member that was probably meant, if the corrected text names a member.
fn repaired(text: &str) -> Option<String> {
    let text = text.strip_prefix('$').unwrap_or(text);
    if text.contains('|') {
        return None;
    }
    let names = text.split('.').map(str::trim);
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    Some(names.join(".")).filter(|repaired| !repaired.is_empty() && !repaired.contains(' '))
}

/// Words about an unlikely name: a number, or a name with a special meaning in other JSON query languages.
pub(in crate::config) fn odd_name(names: &[Box<str>]) -> Option<(&str, &'static str)> {
    let of_others = |c: char| c.is_whitespace() || "$*/,#?(){}<>=;".contains(c);
    names.iter().find_map(|name| {
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            Some((&**name, "elements of lists are not looked at"))
        } else if name.contains(of_others) {
            Some((&**name, "only a member of this very name is found"))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::with_valid_offers;

    #[test]
    fn what_no_body_has_is_refused() {
        for (text, offer) in [
            ("", None),
            ("usage..total", Some("usage.total")),
            (".usage.total", Some("usage.total")),
            ("usage.", Some("usage")),
            ("$", None),
            ("$.usage.total_tokens", Some("usage.total_tokens")),
            ("$..total", Some("total")),
            ("$['usage']", None),
            ("results[0].tokens", None),
            ("results[].tokens", None),
            ("usage.input_tokens + usage.output_tokens", None),
            ("usage.input_tokens+usage.output_tokens", None),
            ("usage.total_tokens - usage.cached_tokens", None),
            ("usage.total_tokens * 2", None),
            (" usage.total", Some("usage.total")),
            ("usage. total", Some("usage.total")),
            ("a\"b", None),
            ("a.b.c.d.e.f.g.h.i", None),
            ("a|", None),
            ("|a", None),
            ("a | b", None),
            ("a|b..c", None),
        ] {
            let wrong = with_valid_offers(text, json_member).expect_err(text);
            assert_eq!(wrong.code, Code::BadJsonMember, "{text}");
            let offered = wrong.offers.first().map(String::as_str);
            assert_eq!(offered, offer, "{text}");
        }
    }

    #[test]
    fn sums_are_told_the_list_to_write() {
        for (text, advice) in [
            ("a.b + c.d", "write `[\"a.b\", \"c.d\"]`"),
            ("a+b+c", "write `[\"a\", \"b\", \"c\"]`"),
            ("a - b", "write `{ \"a\" = 1, \"b\" = -1 }`"),
            ("a * 2.5", "write `{ \"a\" = 2.5 }`"),
            ("3 * a", "write `{ \"a\" = 3 }`"),
        ] {
            let wrong = json_member(text).expect_err(text);
            let help = wrong.shown_help().unwrap();
            assert!(help.starts_with(advice), "{help}");
        }
    }

    #[test]
    fn a_member_may_have_several_places() {
        let places = json_member("usage.n|message.usage.n").unwrap();
        let shown: Vec<String> = places.iter().map(|names| names.join(".")).collect();
        assert_eq!(shown, ["usage.n", "message.usage.n"]);
    }

    #[test]
    fn names_are_taken_and_odd_ones_told() {
        let odd = |text: &str| {
            let places = json_member(text).unwrap();
            odd_name(&places[0]).map(|(name, _)| name.to_owned())
        };
        for text in [
            "usage.total_tokens",
            "n",
            "a-b.c_d",
            "größe",
            "@type.n:m",
            "a.b2",
        ] {
            assert_eq!(odd(text), None, "{text}");
        }
        for (text, name) in [
            ("results.0.tokens", "0"),
            ("usage.*", "*"),
            ("/usage/total_tokens", "/usage/total_tokens"),
            ("a.total tokens", "total tokens"),
            ("$usage.total", "$usage"),
        ] {
            assert_eq!(odd(text).as_deref(), Some(name), "{text}");
        }
    }
}
