//! Escapes of bytes: a percent sign and two hexadecimal digits.

/// The escape of `byte`.
pub(super) fn escape(byte: u8) -> [u8; 3] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digits = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
    [b'%', digits[0], digits[1]]
}

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
