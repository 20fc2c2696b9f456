//! `tollgate explain`: the meaning of a diagnostic's code, or the outcome of a request.
//!
//! Its parts, in the order of a request:
//!
//! ```text
//! request          the explanation of a request, worked out with the gateway's own parts
//! arrival          the listener by which it comes, and the port that it names
//! handshake        the identity that its client gets, and whether its host may be served
//! assumed_walk     the walk from its head to its plan, and what is not known of it
//! candidates       routes that nearly took it
//! server_choice    the server that it goes to, where a key chooses
//! counters         `--live`: counters as they stand in the running gateway
//! outlook          how the request ends
//! explanation      the data of it all, shown by `text` and `json`
//! masking          stars for the secrets of the file
//! text             the explanation for people
//! json             the explanation for programs
//! ```

mod arrival;
mod assumed_walk;
mod candidates;
mod counters;
mod explanation;
mod handshake;
mod json;
mod masking;
mod outlook;
mod request;
mod server_choice;
mod text;

use super::check::connectivity;
use super::{BAD, CommandFailure, UNREACHABLE, USAGE, VariableArgs, admin_client, find_file, show};
use crate::client::UNIX;
use crate::config::pages::Page;
use crate::config::{self, Code, Compiled};
use crate::intake::head::BadRequest;
use crate::listen::listener::ListenAddress;
use crate::listen::{FramingFault, encoded_target};
use crate::proxy::request::head_rejection::fault_of_target;
use crate::route::host_key;
use crate::telemetry::{printable, printable_json};
use crate::tls::CertificateFacts;
use clap::Args;
use handshake::ClientHandshake;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use request::ExplainedRequest;
use serde_json::json;
use std::net::{AddrParseError, IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What to explain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    /// The code of a diagnostic, or the method of a request.
    #[arg(value_name = "CODE|METHOD")]
    what: String,
    /// The path of the request with its query, or its whole URI.
    #[arg(value_name = "PATH")]
    target: Option<String>,
    /// A field of the request; any number of times.
    #[arg(
        short = 'H',
        long = "header",
        value_name = "NAME: VALUE",
        requires = "target"
    )]
    headers: Vec<String>,
    /// The host that the request is for.
    #[arg(long, value_name = "HOST", requires = "target")]
    host: Option<String>,
    /// The address that the request comes from, or `unix` [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS", requires = "target")]
    from: Option<ExplainedPeer>,
    /// The host that the client names in its handshake, for a request over TLS; "" for none [default: the request's host].
    #[arg(long, value_name = "NAME", requires = "target")]
    sni: Option<String>,
    /// The certificate that the client shows in its handshake, a PEM file.
    #[arg(long, value_name = "FILE", requires = "target")]
    client_cert: Option<PathBuf>,
    /// The customer whose request it is, in place of a credential: counters are found without a key.
    #[arg(long, value_name = "NAME", requires = "target")]
    customer: Option<String>,
    /// The file [default: ./gateway.toml, then /etc/tollgate/gateway.toml].
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    /// Ask the running gateway what is left on each counter: at the `[admin]` address of the file, or at this one;
    /// `unix:PATH` is a socket.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = admin_client::address,
        num_args = 0..=1,
        require_equals = true,
        requires = "target"
    )]
    live: Option<Option<ListenAddress>>,
    /// Read the keys of tokens that stand at URLs, as `check --connect` does; nothing else is asked.
    #[arg(long, requires = "target")]
    connect: bool,
    #[command(flatten)]
    variables: VariableArgs,
}

/// The peer of the request; `None` for the peer of a Unix socket.
#[derive(Debug, Clone, Copy)]
struct ExplainedPeer(Option<IpAddr>);

impl FromStr for ExplainedPeer {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text {
            UNIX => None,
            address => Some(address.parse()?),
        }))
    }
}

const EXAMPLES: &str = "\
Examples:
  tollgate explain missing-choice                         what error[missing-choice] means, and what to write instead
  tollgate explain GET /v1/orders/42 -H 'x-api-key: k'    which route and limits it meets, and on which keys it counts
  tollgate explain GET /v1/orders/42 --customer acme --live    what is left to a customer, without knowing a key
  tollgate explain GET /v1/orders/42 --host api.example.com --from 203.0.113.9 --json
  tollgate explain GET https://api.example.com/ --client-cert partner.pem    which identity, and is the certificate taken?

Nothing is sent or counted; --live asks the running gateway what is left, and --connect reads the keys of tokens that stand at URLs. Exit codes: 0 explained, also when the request
would be refused; 1 a bad file; 2 wrong usage; 3 the gateway, or a URL with keys, cannot be asked.";

/// Explains a code or a request.
pub(super) fn explain(args: &ExplainArgs) -> Result<(), CommandFailure> {
    let Some(target) = &args.target else {
        return explain_code(args);
    };
    if Code::named(&args.what).is_some() {
        let what = &args.what;
        let text = format!("`{what}` is the code of a diagnostic: leave the other arguments out");
        return Err(CommandFailure::new(USAGE, text));
    }
    let request = described(args, target).map_err(|wrong| CommandFailure::new(USAGE, wrong))?;
    let file = args.config.clone().map_or_else(find_file, Ok)?;
    // The file is read without its store, whose secrets may not be here.
    let compiled = config::load_for_replay(&file, &args.variables.read()?, &[]);
    let compiled = compiled.map_err(|report| CommandFailure::report(BAD, &report))?;
    if let Some(name) = &request.customer {
        check_customer(&compiled, name)?;
    }
    let has_tls = compiled.offers.iter().any(Option::is_some);
    if request.handshake.is_some() && !has_tls {
        let text = "no listener of the file has TLS, which --sni and --client-cert need";
        return Err(CommandFailure::new(USAGE, text));
    }
    if args.connect {
        connectivity::read_keys(&compiled)
            .map_err(|wrong| CommandFailure::new(UNREACHABLE, wrong))?;
    }
    let mut explanation = request::explain(&compiled, request);
    if let Some(address) = &args.live {
        let admin = compiled.boot.admin.as_ref();
        let admin = admin.and_then(|admin| admin.listen.first());
        let address = address.as_ref().or(admin).ok_or_else(|| CommandFailure::new(
            USAGE,
            "the file has no [admin] listener to ask\nhelp: name the one of the running gateway: --live=ADDRESS:PORT",
        ))?;
        counters::read_counters(&mut explanation, address).map_err(|error| {
            let text = format!("the gateway at {address} cannot be asked: {error}");
            CommandFailure::new(UNREACHABLE, text)
        })?;
    }
    explanation.hide(&compiled.boot.secrets);
    if args.json {
        show(&printable_json(&format!(
            "{}\n",
            json::object(&explanation)
        )));
    } else {
        show(&printable(&text::explanation_text(&explanation)));
    }
    Ok(())
}

/// The request that the arguments describe.
fn described(args: &ExplainArgs, target: &str) -> Result<ExplainedRequest, String> {
    let method = Method::from_bytes(args.what.as_bytes())
        .map_err(|_| format!("`{}` is not a method", args.what))?;
    // A URI is read without its fragment, which the gateway refuses.
    let (text, fragment) = match target.split_once('#') {
        Some((text, _)) => (text, true),
        None => (target, false),
    };
    let (uri, refused) = match encoded_target(text).parse() {
        Ok(uri) => (uri, None),
        Err(_) => {
            let fault = fault_of_target(target.as_bytes());
            (Uri::default(), Some(fault.unwrap_or(BadRequest::NoTarget)))
        }
    };
    let mut fields = HeaderMap::new();
    for line in &args.headers {
        let (name, value) = field(line)
            .ok_or_else(|| format!("`{line}` is not a field; write it as -H 'x-api-key: k'"))?;
        fields.append(name, value);
    }
    if let Some(host) = &args.host {
        let value = HeaderValue::from_str(host).map_err(|_| format!("`{host}` is not a host"))?;
        fields.insert(header::HOST, value);
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, uri, fields);
    if fragment {
        parts.extensions.insert(FramingFault::Fragment);
    }
    let peer = match args.from {
        Some(ExplainedPeer(peer)) => peer,
        None => Some(Ipv4Addr::LOCALHOST.into()),
    };
    let certificate = args.client_cert.as_deref().map(client_certificate);
    let certificate = certificate.transpose()?;
    let sni = args.sni.as_ref().map(|sni| host_key(sni).into_owned());
    let is_asked = sni.is_some() || certificate.is_some();
    let handshake = is_asked.then_some(ClientHandshake { sni, certificate });
    Ok(ExplainedRequest {
        target: refused.map_or_else(|| parts.uri.to_string(), |_| target.to_owned()),
        refused,
        parts,
        peer,
        handshake,
        customer: args.customer.clone(),
    })
}

/// Refuses a customer whom no group names, with near names.
fn check_customer(compiled: &Compiled, name: &str) -> Result<(), CommandFailure> {
    let all = compiled.snapshot.customers.as_deref();
    if all.is_some_and(|all| all.are_open() || all.find(name).is_some()) {
        return Ok(());
    }
    let help = match (all, compiled.nearest_customer(name)) {
        (None, _) => "no group of the file has `customers`".to_owned(),
        (_, Some(nearest)) => format!("did you mean `{nearest}`?"),
        (_, None) => "a line of `customers` has the name, in front of a credential".to_owned(),
    };
    let text = format!("no group names the customer `{name}`\nhelp: {help}");
    Err(CommandFailure::new(USAGE, text))
}

/// The certificate that a client would show, as PEM. A client cannot show a file that is not a certificate: such a file
/// is a mistake of the command, and not a refused handshake.
fn client_certificate(file: &Path) -> Result<Vec<u8>, String> {
    let name = file.display();
    let pem = std::fs::read(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    match CertificateFacts::of_pem(&pem) {
        Ok(_) => Ok(pem),
        Err(why) => Err(format!(
            "{name} is no client's certificate: {why}\nhelp: name the PEM file with the certificate, and not the one with its key"
        )),
    }
}

fn field(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    // On the wire, no other blanks are removed (RFC 9112 section 5.1).
    let value = value.trim_matches([' ', '\t']);
    Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
}

fn explain_code(args: &ExplainArgs) -> Result<(), CommandFailure> {
    let word = &args.what;
    let code = Code::named(word).ok_or_else(|| {
        let help = match Code::nearest(word) {
            None if is_method(word) => {
                format!("to ask about a request, name its path: `tollgate explain {word} /`")
            }
            Some(suggestion) => format!("did you mean `tollgate explain {suggestion}`?"),
            None => "all codes are in docs/diagnostics.md".to_owned(),
        };
        let text = format!("`{word}` is not the code of a diagnostic\nhelp: {help}");
        CommandFailure::new(USAGE, text)
    })?;
    show(&page(code, args.json));
    Ok(())
}

/// Is `word` spelled as methods usually are?
fn is_method(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn page(code: Code, as_json: bool) -> String {
    let page = Page::of(code);
    if !as_json {
        return page.text();
    }
    let page = json!({
        "code": code.as_str(),
        "about": code.about(),
        "meaning": page.meaning,
        "wrong": page.wrong,
        "instead": page.instead,
        "right": page.right,
    });
    format!("{page}\n")
}
