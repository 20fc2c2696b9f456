//! The running gateway, seen from both of its sides: what a client gets, what an upstream receives.

mod forwarding;
