//! Values written as TOML, each on one line.

use std::fmt::Write as _;
use toml::de::DeValue;

/// A key, with quotes if it needs them.
pub(super) fn key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) {
        name.to_owned()
    } else {
        // Keys contain no variables.
        quoted(name, "$")
    }
}

/// A text between double quotes. Variables have been filled in, so every remaining `$` is literal.
pub(super) fn toml_text(text: &str) -> String {
    quoted(text, "$$")
}

fn quoted(text: &str, dollar: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '$' => out.push_str(dollar),
            c if c.is_control() => {
                // Writing into a string cannot fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A table on one line.
pub(super) fn inline(entries: &[String]) -> String {
    if entries.is_empty() {
        "{}".to_owned()
    } else {
        format!("{{ {} }}", entries.join(", "))
    }
}

pub(super) fn value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(string) => toml_text(string),
        DeValue::Integer(number) => match number.radix() {
            16 => format!("0x{}", number.as_str()),
            8 => format!("0o{}", number.as_str()),
            2 => format!("0b{}", number.as_str()),
            _ => number.as_str().to_owned(),
        },
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| self::value(item.get_ref()))
                .collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let entries: Vec<String> = table
                .iter()
                .map(|(name, entry)| {
                    format!("{} = {}", key(name.get_ref()), self::value(entry.get_ref()))
                })
                .collect();
            inline(&entries)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeTable;

    #[test]
    fn what_is_written_reads_the_same() {
        let written = "a = [1, -2, 0x1F, 1.5, true, 1979-05-27, \"q\\\"\\\\\\n\\u0001é\", { \"b $c\" = {}, d = \"$${x}\" }]";
        let (tree, errors) = DeTable::parse_recoverable(written);
        assert!(errors.is_empty());
        let once = value(&DeValue::Table(tree.into_inner()));
        assert_eq!(
            once,
            "{ a = [1, -2, 0x1F, 1.5, true, 1979-05-27, \"q\\\"\\\\\\n\\u0001é\", { \"b $c\" = {}, d = \"$$$${x}\" }] }"
        );
    }
}
