//! The lines of a file with one entry on a line: members, customers, numbers of customers, networks.

/// The lines of a file that have an entry, with their numbers. A `#` at the start of a line or after a blank begins a
/// comment.
pub(super) fn lines(content: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let marked = content.strip_prefix("\u{feff}".as_bytes());
    marked
        .unwrap_or(content)
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, without_comment(line)))
        .filter(|(_, line)| !line.is_empty())
}

fn without_comment(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    let starts = |at: usize| line[at] == b'#' && (at == 0 || line[at - 1].is_ascii_whitespace());
    let end = (0..line.len()).find(|at| starts(*at)).unwrap_or(line.len());
    line[..end].trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_marks_are_no_entries() {
        let text = "\u{feff}# head\r\n\r\n  a  \n b#c # d\n\t#\nsha256:x\n#e";
        let found: Vec<(usize, String)> = lines(text.as_bytes())
            .map(|(line, text)| (line, String::from_utf8(text.to_vec()).unwrap()))
            .collect();
        let expected = [(3, "a"), (4, "b#c"), (6, "sha256:x")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
