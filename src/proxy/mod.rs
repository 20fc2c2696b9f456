//! The request path: pure functions over heads.

pub mod forwarded;
pub mod hop;
pub mod request;
pub mod trailers;
