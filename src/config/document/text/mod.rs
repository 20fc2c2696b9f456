//! What is done to the text before its tables are read: other files and values of flags come in, variables and secrets
//! take their places.
//!
//! In: the text of the file. Out: the tree of its tables, in which every value is the one that holds.
//!
//! ```text
//! syntax                 errors of TOML
//! include                `include`: other files
//! include/entry          one entry, with its grants and bounds
//! set_values             values that `--set` replaces
//! variables              `${VAR}` in texts
//! variables/bare_values  variables that give numbers, `true` or `false`
//! variables/secret       variables that give secrets
//! variables/masking      stars where a variable stood
//! secrets                secrets in files and variables, read before the tree
//! ```

pub(in crate::config::document) mod include;
pub(in crate::config::document) mod secrets;
pub(in crate::config::document) mod set_values;
pub(in crate::config::document) mod syntax;
pub(in crate::config::document) mod variables;
