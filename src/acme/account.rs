//! The account with an authority: made once, kept, opened again.

use super::authority::Authority;
use super::ca_client::CaClient;
use super::failure::Failure;
use super::folder::Part;
use super::vault::Vault;
use instant_acme::{Account, ExternalAccountKey, NewAccount};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// An account, and the client that it is used with.
#[derive(Clone)]
pub(super) struct OpenAccount {
    pub(super) account: Account,
    pub(super) client: CaClient,
}

impl OpenAccount {
    /// Opens the kept account with an authority, or makes one.
    pub(super) async fn open(authority: &Authority, vault: &Vault) -> Result<Self, Failure> {
        let client = CaClient::new(&authority.tls);
        let name = account_name(authority);
        let builder = || Account::builder_with_http(Box::new(client.clone()));
        let kept = vault.read(Part::Accounts, &name).await?;
        let credentials = kept.and_then(|text| serde_json::from_str(&text).ok());
        if let Some(credentials) = credentials {
            let account = builder().from_credentials(credentials).await?;
            return Ok(Self { account, client });
        }
        let contact = authority.contact.as_ref().map(|at| format!("mailto:{at}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let asked = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = authority.external.as_ref();
        let external = external.map(|own| ExternalAccountKey::new(own.id.clone(), &own.key));
        let made = builder().create(&asked, authority.directory.clone(), external.as_ref());
        let (account, credentials) = made.await?;
        let text = serde_json::to_string(&credentials);
        let text = text.map_err(|error| Failure::Crypto(error.to_string()))?;
        vault.keep(Part::Accounts, &name, &text).await?;
        tracing::info!(
            "acme.{}: an account was made with {}",
            authority.name,
            authority.directory
        );
        Ok(Self { account, client })
    }

    /// Forgets the kept account, which the authority does not know any more.
    pub(super) async fn forget(authority: &Authority, vault: &Vault) -> Result<(), Failure> {
        vault.forget(Part::Accounts, &account_name(authority)).await
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
    let mut name =
        host_of(&authority.directory).replace(|one: char| !one.is_ascii_alphanumeric(), "-");
    name.push('-');
    for byte in &digest.finalize()[..4] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn host_of(url: &str) -> String {
    let uri = url.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host);
    host.unwrap_or("authority").to_owned()
}
