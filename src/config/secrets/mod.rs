//! Secrets of the file: their places, and the stars that replace them.
//!
//! In: a text that a person will see. Out: the text without secrets.
//!
//! ```text
//! secret     places of secrets: a file or a variable
//! redaction  stars for credentials in one line that is shown
//! masking    stars for secrets in every text about the file
//! ```

pub mod masking;
pub(in crate::config) mod redaction;
pub(in crate::config) mod secret;

pub(in crate::config) use masking::{Numbering, Secrets, query_of};
pub(in crate::config) use secret::SecretLocation;
