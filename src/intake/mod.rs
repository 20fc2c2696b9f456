//! Intake: the steps from a request's head to the plan of its limits, in one order for all callers.
//!
//! In: a head with the known facts about its connection, or a line of a log. Out: an early answer, a cause for which
//! there is no plan, or a plan. The gateway, `explain` and `simulate` use the same [`RequestWalk`], each with its own
//! facts and recorder, and answer its stops with what they know.
//!
//! ```text
//! walk                                   the order of the steps, and the stops between them
//! facts                                  what the steps read of a request
//! recorder                               what is kept of them
//! head_facts                             the steps for a head that hyper has read
//! head                                   may the head be forwarded, and whom does it address? Else 400, 414, 431, 501
//! grpc_call                              is it a call of gRPC, and what time has it?
//! peer                                   the far end of the connection, and what it tells of scheme and host
//! stripped_fields                        fields that are gone before anything reads them: strangers' addresses, other
//!                                        methods, odd names
//! stripped_fields/claimed_fields         the list of fields that strangers may not send
//! stripped_fields/claimed_fields/filter  a quick look that passes nearly all other fields
//! stripped_fields/dropped_names          the log's lines about fields dropped for their names
//! hop_fields                             what `Connection` names, and `Max-Forwards`
//! early_answer                           answers before a route is looked for, and causes without a plan
//! members                                the client, where routes ask for members of groups
//! routing                                the request as conditions of routes see it
//! caller                                 the client, as keys read it
//! ```

pub mod caller;
mod early_answer;
mod facts;
pub mod grpc_call;
pub mod head;
mod head_facts;
pub mod hop_fields;
mod members;
pub mod peer;
mod recorder;
mod routing;
pub mod stripped_fields;
mod walk;

pub use early_answer::{EarlyAnswer, IntakeError};
pub use facts::{ClientReadings, ConnectionFacts, EarlyLimits, RequestFacts};
pub use head_facts::{HeadFacts, challenge_token};
pub use members::RouteMembers;
pub use recorder::Recorder;
pub use routing::RouteRequest;
pub use stripped_fields::{claimed_fields, dropped_names};
pub use walk::{ORDER, RequestWalk, Step, Stop};
