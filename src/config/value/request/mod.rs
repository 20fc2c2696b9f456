//! Values about requests: conditions of routes, parts of keys, and values of fields.
//!
//! ```text
//! path            path patterns
//! condition       conditions of routes
//! field_change    fields that routes change
//! identity        fields that tell servers about clients
//! key             one part of a key
//! json_member     a member of a JSON body
//! status_pattern  a status of an answer
//! ```

pub(in crate::config::value) mod condition;
pub(in crate::config::value) mod field_change;
pub(in crate::config::value) mod identity;
pub(in crate::config::value) mod json_member;
pub(in crate::config::value) mod key;
pub(in crate::config::value) mod path;
pub(in crate::config::value) mod status_pattern;
