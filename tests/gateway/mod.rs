//! The running gateway, seen from both of its sides: what a client gets, what an upstream receives.

mod admin;
mod checking;
mod cli;
mod cut;
mod dawdling;
mod delaying;
mod draining;
mod environment;
mod explaining;
mod failing;
mod forwarding;
mod framing;
mod heads;
mod knowing;
mod leasing;
mod limiting;
mod outage;
mod place;
mod reaching;
mod regressions;
mod reloading;
mod routing;
mod scopes;
mod sharing;
mod shipped;
mod targets;
