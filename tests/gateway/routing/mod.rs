//! What a route asks of a request beyond host, path and method, and what it makes of it.

mod answers;
mod cases;
mod conditions;
mod fields;
mod rewriting;
