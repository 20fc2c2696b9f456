//! The open accounts, each opened once, and the clients of their authorities.

use super::account::{OpenAccount, account_name};
use super::authority::Authority;
use super::ca_client::CaClient;
use super::failure::OrderFailure;
use super::schedule::Seconds;
use super::vault::Vault;
use std::collections::HashMap;
use tokio::sync::Mutex;

/// The place of an account, and its name there.
type AccountKey = (String, String);

/// Open accounts.
#[derive(Default)]
pub(super) struct OpenAccounts {
    /// Locked while an account is opened, so that no two are created.
    open: Mutex<HashMap<AccountKey, OpenAccount>>,
    /// An authority may ask for a pause before there is an account.
    clients: parking_lot::Mutex<HashMap<AccountKey, CaClient>>,
}

impl OpenAccounts {
    /// The account with an authority, opened once; opened anew if another gateway has created another account, or the
    /// file names other certificates for the authority's server.
    pub(super) async fn of(
        &self,
        authority: &Authority,
        vault: &Vault,
    ) -> Result<OpenAccount, OrderFailure> {
        let key = key_of(authority, vault);
        let mut accounts = self.open.lock().await;
        if let Some(open) = accounts.get(&key)
            && open.client.trusts(&authority.tls)
            && open.is_current(authority, vault).await?
        {
            return Ok(open.clone());
        }
        let client = CaClient::new(&authority.tls);
        self.clients.lock().insert(key.clone(), client.clone());
        let open = OpenAccount::open(authority, vault, &client).await?;
        accounts.insert(key, open.clone());
        Ok(open)
    }

    /// Deletes an account that the authority no longer knows.
    pub(super) async fn forget(
        &self,
        authority: &Authority,
        vault: &Vault,
    ) -> Result<(), OrderFailure> {
        match self.open.lock().await.remove(&key_of(authority, vault)) {
            Some(open) => open.forget(authority, vault).await,
            None => Ok(()),
        }
    }

    /// The pause that the authority has requested since the last call, in seconds.
    pub(super) fn pause(&self, authority: &Authority, vault: &Vault) -> Option<Seconds> {
        self.clients
            .lock()
            .get(&key_of(authority, vault))?
            .take_pause()
    }
}

fn key_of(authority: &Authority, vault: &Vault) -> AccountKey {
    (vault.place(), account_name(authority))
}
