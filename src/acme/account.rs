//! The account with an authority: created once, kept, and opened again later.

use super::authority::Authority;
use super::ca_client::CaClient;
use super::failure::OrderFailure;
use super::folder::Part;
use super::vault::Vault;
use crate::clock;
use crate::telemetry::shown_url;
use data_encoding::HEXLOWER;
use instant_acme::{Account, ExternalAccountKey, NewAccount};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The time after which a gateway looks again for an account that another gateway is creating.
const AGAIN: Duration = Duration::from_millis(500);

/// An account, and the client that it is used with.
#[derive(Clone)]
pub(super) struct OpenAccount {
    pub(super) account: Account,
    pub(super) client: CaClient,
    /// The stored text that the account was opened from.
    text: Arc<str>,
}

impl OpenAccount {
    /// Opens the stored account with an authority, or creates one, with this client. Of gateways with a common store
    /// one creates the account, and the others wait.
    pub(super) async fn open(
        authority: &Authority,
        vault: &Vault,
        client: &CaClient,
    ) -> Result<Self, OrderFailure> {
        let name = account_name(authority);
        let store = match vault {
            Vault::Folder(_) => return Self::kept_or_made(authority, vault, client, &name).await,
            Vault::Store(store) => store,
        };
        let until = clock::now() + store.shared.pace.lock + AGAIN * 4;
        while clock::now() < until {
            if let Some(open) = Self::kept(client, vault, &name).await? {
                return Ok(open);
            }
            if let Some(lock) = store.lock(&format!("account:{name}")).await? {
                // Another gateway may have created the account in between.
                let open = Self::kept_or_made(authority, vault, client, &name).await;
                lock.release().await;
                return open;
            }
            sleep(AGAIN).await;
        }
        Err(OrderFailure::AccountLocked)
    }

    async fn kept_or_made(
        authority: &Authority,
        vault: &Vault,
        client: &CaClient,
        name: &str,
    ) -> Result<Self, OrderFailure> {
        match Self::kept(client, vault, name).await? {
            Some(open) => Ok(open),
            None => Self::make(authority, vault, client, name).await,
        }
    }

    /// The stored account, opened without a request to its authority.
    async fn kept(
        client: &CaClient,
        vault: &Vault,
        name: &str,
    ) -> Result<Option<Self>, OrderFailure> {
        let Some(text) = vault.read(Part::Accounts, name).await? else {
            return Ok(None);
        };
        let Ok(credentials) = serde_json::from_str(&text) else {
            return Ok(None);
        };
        let builder = Account::builder_with_http(Box::new(client.clone()));
        let account = builder.from_credentials(credentials).await?;
        Ok(Some(Self {
            account,
            client: client.clone(),
            text: text.into(),
        }))
    }

    async fn make(
        authority: &Authority,
        vault: &Vault,
        client: &CaClient,
        name: &str,
    ) -> Result<Self, OrderFailure> {
        let contact = authority.contact.as_ref().map(|at| format!("mailto:{at}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let asked = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = authority.external.as_ref();
        let external =
            external.map(|account| ExternalAccountKey::new(account.id.clone(), &account.key));
        let builder = Account::builder_with_http(Box::new(client.clone()));
        let made = builder.create(&asked, authority.directory.clone(), external.as_ref());
        let (account, credentials) = made.await?;
        let text = serde_json::to_string(&credentials);
        let text = text.map_err(|error| OrderFailure::Crypto(error.to_string()))?;
        vault.keep(Part::Accounts, name, &text).await?;
        tracing::info!(
            "acme.{}: an account was made with {}",
            authority.name,
            shown_url(&authority.directory)
        );
        Ok(Self {
            account,
            client: client.clone(),
            text: text.into(),
        })
    }

    /// Is this account still the one that all gateways use? An account that the store has lost is stored again.
    pub(super) async fn is_current(
        &self,
        authority: &Authority,
        vault: &Vault,
    ) -> Result<bool, OrderFailure> {
        let Vault::Store(_) = vault else {
            return Ok(true);
        };
        let name = account_name(authority);
        match vault.read(Part::Accounts, &name).await? {
            Some(text) => Ok(*text == *self.text),
            None => {
                vault.keep(Part::Accounts, &name, &self.text).await?;
                tracing::warn!(
                    "acme.{}: the account was missing in the store, and was put there again",
                    authority.name
                );
                Ok(true)
            }
        }
    }

    /// Deletes this account, which the authority no longer knows.
    pub(super) async fn forget(
        &self,
        authority: &Authority,
        vault: &Vault,
    ) -> Result<(), OrderFailure> {
        let name = account_name(authority);
        vault.forget(Part::Accounts, &name, &self.text).await
    }
}

/// The name that an account is kept under. Another directory or another external account is another account.
pub(super) fn account_name(authority: &Authority) -> String {
    let mut digest = Sha256::new();
    digest.update(authority.directory.as_bytes());
    if let Some(external) = &authority.external {
        digest.update(b"\n");
        digest.update(external.id.as_bytes());
    }
    let host = host_of(&authority.directory);
    let host = host.replace(|one: char| !one.is_ascii_alphanumeric(), "-");
    format!("{host}-{}", HEXLOWER.encode(&digest.finalize()[..4]))
}

fn host_of(url: &str) -> String {
    let uri = url.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host);
    host.unwrap_or("authority").to_owned()
}
