//! Escapes of bytes: a percent sign and two hexadecimal digits.

/// The byte that the two digits at the start of `text` represent.
pub(super) fn byte(text: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (high, low) = (digit(text.first()?)?, digit(text.get(1)?)?);
    u8::try_from(high << 4 | low).ok()
}

/// `value` with its escapes decoded; all other text stays unchanged.
pub(super) fn decode(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        match (first, byte(behind)) {
            (b'%', Some(escaped)) => {
                out.push(escaped);
                rest = &behind[2..];
            }
            _ => out.push(first),
        }
    }
    out
}
