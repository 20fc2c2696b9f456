//! Certificates by themselves: ordered from a certification authority by ACME (RFC 8555), kept, and renewed before they
//! end.
//!
//! What is kept lies in a folder, or sealed in the store that several gateways share: there one of them orders, and all
//! take what comes.
//!
//! One task of the control thread does it all. What it obtains is in [`IssuedCertificates`], and what an authority asks
//! for meanwhile in [`crate::tls::AuthorityChallenges`]: workers only read the latter.

mod account;
mod accounts;
mod attempts;
mod authority;
mod ca_client;
mod challenge_watch;
mod failure;
mod folder;
mod held_versions;
mod hurry;
mod issuance;
mod issued;
mod open_challenge;
mod open_challenges;
mod order_desk;
mod orders;
mod others_answers;
mod outlook;
mod ownership;
mod readings;
mod renewals;
mod schedule;
mod sealing;
mod store_lock;
mod store_orders;
mod store_vault;
mod suggestions;
mod vault;

pub use authority::{
    Authority, ChallengeKind, ExternalAccount, OrderedIdentity, PUBLIC_DIRECTORY,
    STAGING_DIRECTORY, Storage,
};
pub use folder::{folder_of, read_bundle};
pub use issued::{Bundle, IssuedCertificates};
pub use order_desk::{HandedCertificate, OrderDesk};
pub use outlook::{
    KeptFailure, OrderOutlook, group_of, outlook, outlooks_in_store, refusal, unwritable,
};
pub use renewals::Renewals;
pub use schedule::WallClock;
pub use sealing::SealingKey;
pub use store_lock::Pace;
pub use store_vault::SharedStorage;
