//! Certificates by themselves: ordered from a certification authority by ACME (RFC 8555), kept, and renewed before they
//! end.
//!
//! One task of the control thread does it all. What it obtains is in [`IssuedCertificates`], and what an authority asks
//! for meanwhile in [`crate::tls::AuthorityChallenges`]: workers only read the latter.

mod account;
mod attempts;
mod authority;
mod ca_client;
mod failure;
mod folder;
mod issuance;
mod issued;
mod outlook;
mod renewals;
mod schedule;
mod suggestions;
mod vault;

pub use authority::{
    Authority, ChallengeKind, ExternalAccount, OrderedIdentity, PUBLIC_DIRECTORY, STAGING_DIRECTORY,
};
pub use folder::{folder_of, read_bundle};
pub use issued::{Bundle, IssuedCertificates};
pub use outlook::{OrderOutlook, outlook};
pub use renewals::{Renewals, WallClock};
