//! The tables of the file, a block of `table!` for each of their keys.
//!
//! In: the values of a table's keys. Out: the table as it is written, and its declaration.
//!
//! ```text
//! server                  `[server]`, `[log]`, `[response]`, `[defaults]`
//! admin                   `[admin]`, and its tokens
//! listen                  an entry of `listen`
//! store                   `[store]`
//! jwt                     `[jwt]`
//! group                   `[groups.NAME]`
//! tls                     `[tls.NAME]`
//! acme                    `[acme.NAME]`
//! limit                   `[limits.NAME]`
//! limit/rate              its `rate`
//! limit/cost              its `cost`
//! limit/tier              its `tiers`
//! limit/block             for how long a refusal shuts its key out
//! limit/cost_by_status    its cost by the status of the answer
//! limit/response_json     its cost by members of JSON
//! limit/comparison        how its keys are compared
//! upstream                `[upstreams.NAME]`
//! upstream/balance        keys about the choice of a server
//! upstream/server_health  keys about probes, ejection and retries
//! route                   `[routes.NAME]`
//! route/comparison        how its keys are compared
//! route/static_reply      its `redirect` and `respond`
//! route/header_changes    its changes of fields
//! ```

pub(in crate::config::document) mod acme;
pub(in crate::config::document) mod admin;
pub(in crate::config::document) mod group;
pub(in crate::config::document) mod jwt;
pub(in crate::config::document) mod limit;
pub(in crate::config::document) mod listen;
pub(in crate::config::document) mod route;
pub(in crate::config::document) mod server;
pub(in crate::config::document) mod store;
pub(in crate::config::document) mod tls;
pub(in crate::config::document) mod upstream;
