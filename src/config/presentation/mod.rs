//! The presentation of a file without errors: its meaning in words and numbers, and the changes of a new reading.
//!
//! In: the compiled parts. Out: their outline, which can be compared; sentences for `check`; lines for `--diff` and for
//! a reload; and the resolved file for `check --print`.
//!
//! ```text
//! outline            a compiled file, made to be compared
//! written            all that is written, as digests: what a new file takes away is found by it
//! describe           limits in words and numbers
//! describe/short     the numbers of a limit alone
//! describe/amount    how much a limit admits, also at the edges of windows
//! describe/upstream  upstreams in words
//! leases             the terms of leases, in numbers
//! diff               two readings compared, in words
//! diff/limits        changed limits, and their effect on counters
//! diff/groups        how many members came and left
//! diff/identities    changed identities and offers
//! diff/store         the store's address and credentials
//! diff/taken_away    does a new file take anything away?
//! print              the file as it is understood
//! print/toml         values as TOML
//! ```

pub mod describe;
pub mod diff;
pub mod leases;
pub mod outline;
pub(in crate::config) mod print;
pub(in crate::config) mod written;

pub(in crate::config) use outline::{
    Boot, IdentityOutline, LimitOutline, NamedLines, Outline, RouteOutline, ShownValue,
    TokenOutline, UpstreamOutline, list, show, show_list, show_time, time_text,
};
