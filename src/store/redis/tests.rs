//! Against real servers.
pub(super) mod support;
