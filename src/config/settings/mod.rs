//! Compiles written tables into the settings and values of the modules that use them, with one source file for each
//! table.
//!
//! In: a document, and the files that it names. Out: compiled values; mistakes are noted.
//!
//! ```text
//! file_lines                   files with one entry on a line
//! groups                       groups with their members, read and digested
//! groups/customers             names behind credentials, and credentials with two names
//! groups/customer_lines        the line that names a customer
//! groups/passwords             digests of users with their passwords, and lines of password files
//! groups/warnings              what is odd about the members of a group
//! jwt                          the rules that verify tokens
//! jwt/claims                   claims that limits need, in a file without `[jwt]`
//! jwt/published                URLs at which issuers publish keys
//! number_files                 numbers of single customers, as their files write them
//! limits                       a limit as written → limits that count
//! limits/rates                 rates of one limit beside each other
//! limits/rules                 rates → the rules that count
//! limits/tiers                 other numbers for groups
//! limits/customer_numbers      numbers of single customers → limits with them
//! limits/contradictions        keys of a limit that contradict each other
//! authorities                  authorities that certificates are ordered from
//! boot                         settings that are read once
//! boot/admin                   `[admin]`: addresses, tokens as digests, roles
//! client_tls                   certificates and keys of connections to the store, to upstreams and to authorities
//! store                        `[store]` as written → settings of connections
//! error_bodies                 bodies of the gateway's own answers
//! trusted_networks             networks of `trust`, and of its files
//! upstreams                    upstreams as written → upstreams
//! identities                   certificates and keys → identities for handshakes; those in use stay where a file is
//!                              broken at a reload
//! identity_writers             fields that tell servers about clients, and the routes that must leave those of other
//!                              files
//! ```

pub(in crate::config) mod authorities;
pub(in crate::config) mod boot;
mod client_tls;
pub(in crate::config) mod error_bodies;
mod file_lines;
pub(in crate::config) mod groups;
pub(in crate::config) mod identities;
pub(in crate::config) mod identity_writers;
pub mod jwt;
pub(in crate::config) mod limits;
pub(in crate::config) mod number_files;
pub(in crate::config) mod store;
pub(in crate::config) mod trusted_networks;
pub(in crate::config) mod upstreams;
