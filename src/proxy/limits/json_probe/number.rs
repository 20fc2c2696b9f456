//! Reads one number of JSON (RFC 8259, section 6), byte by byte.

use crate::key::JsonNumber;

/// The most digits that are read exactly. Further digits of a fraction are dropped, others count as zeros.
const MOST_DIGITS: u8 = 18;

/// An exponent that leaves no number between nothing and the largest.
const FARTHEST: i64 = 1_000_000;

/// A number of which some bytes have been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberReader {
    digits: u64,
    /// The number of significant digits that have been read.
    count: u8,
    /// The power of ten of the last digit that has been read.
    scale: i64,
    exponent: i64,
    is_negative: bool,
    at: Place,
}

/// The last byte that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Whole,
    Point,
    Fraction,
    /// The `e` of an exponent.
    Power,
    Sign,
    Exponent,
    /// No number has these bytes.
    Broken,
}

/// What the next byte was to a number.
#[derive(Debug)]
pub(super) enum Part {
    /// A part of it.
    Digit(NumberReader),
    /// Its end. There is no number if the bytes were none.
    End(Option<JsonNumber>),
}

impl NumberReader {
    /// A number whose first byte is this digit.
    pub(super) fn starting(digit: u8) -> Self {
        let blank = Self {
            digits: 0,
            count: 0,
            scale: 0,
            exponent: 0,
            is_negative: false,
            at: Place::Whole,
        };
        blank.with_digit(digit, false)
    }

    /// Reads the next byte.
    pub(super) fn read(mut self, byte: u8) -> Part {
        self.at = match (byte, self.at) {
            (b'0'..=b'9', Place::Whole) => {
                self = self.with_digit(byte, false);
                Place::Whole
            }
            (b'0'..=b'9', Place::Point | Place::Fraction) => {
                self = self.with_digit(byte, true);
                Place::Fraction
            }
            (b'0'..=b'9', Place::Power | Place::Sign | Place::Exponent) => {
                let digit = i64::from(byte - b'0');
                self.exponent = (self.exponent * 10 + digit).min(FARTHEST);
                Place::Exponent
            }
            (b'.', Place::Whole) => Place::Point,
            (b'e' | b'E', Place::Whole | Place::Fraction) => Place::Power,
            (b'+' | b'-', Place::Power) => {
                self.is_negative = byte == b'-';
                Place::Sign
            }
            (b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-', _) => Place::Broken,
            _ => return Part::End(self.end()),
        };
        Part::Digit(self)
    }

    fn with_digit(mut self, byte: u8, is_fraction: bool) -> Self {
        if self.count < MOST_DIGITS {
            self.digits = self.digits * 10 + u64::from(byte - b'0');
            self.count += u8::from(self.digits > 0);
            self.scale -= i64::from(is_fraction);
        } else if !is_fraction {
            self.scale += 1;
        }
        self
    }

    fn end(self) -> Option<JsonNumber> {
        let is_whole = matches!(self.at, Place::Whole | Place::Fraction | Place::Exponent);
        let exponent = if self.is_negative {
            -self.exponent
        } else {
            self.exponent
        };
        is_whole.then(|| JsonNumber::of(self.digits, self.scale.saturating_add(exponent)))
    }
}
