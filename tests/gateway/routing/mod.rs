//! What a route asks of a request beyond host, path and method.

mod conditions;
