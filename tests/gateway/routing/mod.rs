//! Routes: conditions beyond host, path and method, and changes of the request.

mod answers;
mod cases;
mod conditions;
mod fields;
mod rewriting;
