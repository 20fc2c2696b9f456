//! The facts and the notes for the walk of a line.

use super::identity::write_logged;
use crate::admission::{LoggedValues, Plan};
use crate::intake::caller::CallerFacts;
use crate::intake::head::BadRequest;
use crate::intake::{ClientReadings, EarlyLimits, IntakeError, Recorder, RequestFacts};
use crate::key::Content;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::replay::request::{LoggedRequest, LoggedTarget};
use crate::replay::route_cache::{RouteCache, RouteMatch};
use crate::route::path::BadPath;
use crate::route::{host_key, path};
use crate::snapshot::{Service, Snapshot};
use crate::telemetry::access_log::LONGEST_TEXT;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A line as a request.
#[derive(Debug)]
pub(super) struct LineFacts<'a, 'r> {
    pub(super) request: &'a LoggedRequest<'r>,
    pub(super) target: LoggedTarget<'a>,
    /// The client's address, by this file's `trust`.
    pub(super) address: IpAddr,
    /// The positions of the routes by their names.
    pub(super) names: &'a HashMap<Arc<str>, usize>,
    pub(super) route_cache: &'a mut RouteCache,
    /// The line names a route that the file does not have, or that would not match the request.
    pub(super) is_stray: bool,
    /// Limits that count by another key than when the log was written.
    pub(super) moved: &'a [Arc<str>],
}

/// The notes of the walk of a line.
#[derive(Debug)]
pub(super) struct LineNotes<'a> {
    pub(super) plan: &'a mut Plan,
    /// The position of the service for the request.
    pub(super) route: Option<usize>,
}

impl LineFacts<'_, '_> {
    /// The route that the line names, if the file still has it and it would match the request by host, path and method.
    /// The line may lack the fields for its conditions.
    fn named(&self, snapshot: &Snapshot, name: &str) -> Option<usize> {
        let at = *self.names.get(name)?;
        if is_cut(self.target.path) {
            return Some(at);
        }
        let path = path::normalize(self.target.path).ok()?;
        let (host, method) = (host_key(self.target.host), &self.request.method);
        let fits = snapshot.table.fits(at, &host, path.to_match(), method);
        fits.then_some(at)
    }

    /// The route that the file has for the request.
    fn found(&mut self, snapshot: &Snapshot) -> RouteMatch {
        let (table, method) = (&snapshot.table, &self.request.method);
        self.route_cache
            .find(table, method, &self.target, self.request)
    }
}

/// Was the path cut by the access log? The missing end may have decided which route the line names.
fn is_cut(path: &str) -> bool {
    path.len() >= LONGEST_TEXT && path.ends_with("...")
}

impl RequestFacts for LineFacts<'_, '_> {
    #[inline]
    fn route(
        &mut self,
        snapshot: &Snapshot,
        _early: EarlyLimits,
        _readings: &mut ClientReadings,
        _recorder: &mut impl Recorder,
    ) -> Result<Option<usize>, IntakeError> {
        let name = Some(self.request.route).filter(|name| !name.is_empty());
        // The cache is quick, and mostly right, where no route has conditions.
        let cached = (!snapshot.table.has_conditions()).then(|| self.found(snapshot));
        if let (Some(name), Some(RouteMatch::Found(at))) = (name, cached)
            && *snapshot.services[at].name == *name
        {
            return Ok(Some(at));
        }
        if let Some(name) = name {
            if let Some(at) = self.named(snapshot, name) {
                return Ok(Some(at));
            }
            self.is_stray = true;
        }
        match cached.unwrap_or_else(|| self.found(snapshot)) {
            RouteMatch::Found(route) => Ok(Some(route)),
            RouteMatch::Missing => Ok(None),
            RouteMatch::BadRequest => Err(BadRequest::from(BadPath::Character).into()),
        }
    }

    #[inline]
    fn fill(
        &self,
        _snapshot: &Snapshot,
        service: &Service,
        _readings: &mut ClientReadings,
        plan: &mut Plan,
        _those: impl Fn(&Limit) -> bool,
    ) {
        let request = self.request;
        let caller = CallerFacts {
            address: Some(self.address),
            method: &request.method,
            fields: &request.fields,
            host: self.target.host,
            path: self.target.path,
            query: self.target.query,
            // No log has the body.
            content: Content::Absent,
            certificate: None,
        };
        let values = LoggedValues {
            cost: |limit: &Limit| logged_cost(request, limit),
            key: |limit: &Limit, out: &mut Vec<u8>| {
                !self.moved.contains(&limit.name) && write_logged(request, limit, out)
            },
        };
        caller.read(service, request, |caller| {
            plan.refill(service, caller, &values);
        });
    }
}

impl Recorder for LineNotes<'_> {
    #[inline]
    fn plan(&mut self) -> &mut Plan {
        self.plan
    }

    #[inline]
    fn routed(&mut self, service: usize) {
        self.route = Some(service);
    }
}

/// The cost of a request for a limit that does not compute it, if the line has the cost.
fn logged_cost(request: &LoggedRequest<'_>, limit: &Limit) -> Option<Cost> {
    let logged = || request.logged_cost(&limit.name);
    let cost = match &limit.price {
        // As in the gateway, a cost above the maximum counts as the maximum.
        Some(price) => request.cost.or_else(logged).map(|cost| cost.min(price.max)),
        // The log has no ids of repeats: a request that was charged nothing is a repeat.
        None => logged().filter(|cost| *cost == 0),
    };
    cost.map(Cost::new)
}
