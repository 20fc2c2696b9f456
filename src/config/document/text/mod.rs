//! The steps on the text before its tables are read: other files are included, flags replace values, and variables and
//! secrets are filled in.
//!
//! In: the text of the file. Out: the tree of its tables with the final values.
//!
//! ```text
//! syntax                 errors of TOML
//! foreign_file           files of other programs
//! include                `include`: other files
//! include/entry          one entry, with its grants and bounds
//! set_values             values that `--set` replaces
//! variables              `${VAR}` in texts
//! variables/bare_values  variables that give numbers, `true` or `false`
//! variables/secret       variables that give secrets
//! variables/masking      stars where a variable stood
//! secrets                secrets in files and variables, read before the tree
//! ```

mod foreign_file;
pub(in crate::config::document) mod include;
pub(in crate::config::document) mod secrets;
pub(in crate::config::document) mod set_values;
pub(in crate::config::document) mod syntax;
pub(in crate::config::document) mod variables;
