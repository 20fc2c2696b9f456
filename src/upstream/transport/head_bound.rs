//! The bound on the head of a server's answer: the same over both versions, in bytes as HTTP/2 counts them (RFC 9113,
//! section 6.5.2), without a bound on the number of fields.

/// The most bytes of a head: names and values of its fields, and [`FIELD`] for each. The same number of bytes may
/// precede its end: a field has fewer on the wire than it counts.
pub(super) const MOST_ANSWER_HEAD: usize = 416 * 1024;
/// The bytes that each field counts in addition to its own.
pub(super) const FIELD: usize = 32;
/// More fields than a head within the bound can have.
pub(super) const MOST_ANSWER_FIELDS: usize = MOST_ANSWER_HEAD / (FIELD + 1);
