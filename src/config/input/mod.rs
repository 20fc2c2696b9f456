//! The input: the text of gateway.toml, of the files that it includes, and of the files that it names.
//!
//! In: paths, flags of the command line, and the process's environment. Out: one text in which every byte has a place
//! for messages, and the files that a reload watches.
//!
//! ```text
//! span           places in the text, and values with their places
//! source         the text, with line and column of every byte
//! files          the files that were read, with their fingerprints
//! files/fence    which files an included file may read
//! files/glob     patterns of paths
//! environment    variables, from the process and from environment files
//! set            `--set`: a value in place of one of the file
//! quick_start    `run --to`: a file made of flags
//! grant          what an entry of `include` permits its files
//! grant/refusal  refusals, with the entry that would permit more
//! side_files     files that the file names, read and watched as it is: members, keys, certificates, templates,
//!                secrets
//! ```

pub(in crate::config) mod environment;
pub mod files;
pub(in crate::config) mod grant;
pub(in crate::config) mod quick_start;
pub(in crate::config) mod set;
pub(in crate::config) mod side_files;
pub mod source;
pub(in crate::config) mod span;

pub(in crate::config) use environment::EnvironmentFiles;
pub(in crate::config) use files::Files;
pub(in crate::config) use side_files::{Reference, SideFiles};
pub(in crate::config) use source::{Excerpt, Source};
pub(in crate::config) use span::{At, Span, Spans};
