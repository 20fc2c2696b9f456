//! Automatic certificates: ordered from a certification authority by ACME (RFC 8555), kept, and renewed before they
//! end.
//!
//! Accounts and certificates are kept in a folder, or sealed in the store that several gateways share: there one
//! gateway orders, and all take the certificates.
//!
//! One task of the control thread does all of this. Certificates are in [`IssuedCertificates`], and answers to
//! challenges in [`crate::tls::AuthorityChallenges`]: workers only read the latter.
//!
//! In: the authorities and names of the file. Out: certificates for the listeners' offers, answers for authorities that
//! check.
//!
//! ```text
//! authority        a certification authority, and the identities ordered from it, as the file describes them
//! vault            where accounts, certificates and failures are kept: a folder or the store
//! folder           a folder, each file in it written whole
//! ownership        may others write to the folder? Then its contents are not trusted
//! store_vault      the store as the place, for gateways that share it
//! sealing          each entry of the store is sealed under a secret of the gateways
//! store_lock       the lock under which one gateway of many orders
//! outlook          what is known of an order without asking its authority, for `check` and for the start
//! renewals         the task that orders, renews, and tries again after a failure
//! hurry            orders that have failed and are asked for at once, by a signal
//! schedule         when a certificate is due
//! suggestions      the windows in which authorities suggest renewal
//! readings         the wait between two readings of an entry
//! orders           one identity's certificate: is it due, and its order
//! store_orders     one of several gateways orders, all take the result
//! held_versions    which versions of shared certificates this gateway has
//! attempts         how often an order has failed, and when the next may be made
//! failure          the causes for which a certificate was not obtained
//! accounts         the open accounts, each opened once
//! account          one account with an authority: made once, kept
//! ca_client        the HTTP client that speaks with authorities
//! issuance         one order, from its beginning to the certificate
//! open_challenges  open challenges of all gateways, in one entry of the store
//! open_challenge   one open challenge, and its bounds
//! challenge_watch  reads challenges of other gateways every second
//! others_answers   the answers to those challenges, as workers read them
//! issued           certificates that were obtained, as handshakes are made from them
//! order_desk       what a successor gets of the orders, and what the store keeps before a start
//! ```

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
pub use folder::read_bundle;
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
