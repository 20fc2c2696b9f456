//! A request's place at a server: counted over all workers, from taking the server to the end of the answer.

use super::server_state::ServerState;
use super::upstream_state::{Member, UpstreamState};
use std::sync::Arc;

/// The place of a request at a server. Dropped, it goes to the first that waits.
#[derive(Debug)]
pub struct RequestSlot {
    server: Arc<ServerState>,
    upstream: Arc<UpstreamState>,
}

impl RequestSlot {
    /// A place at `member`, unless it has as many requests as it takes.
    #[must_use]
    pub fn take(upstream: &Arc<UpstreamState>, member: &Member) -> Option<Self> {
        let most = member.most_requests();
        member.state.enter(most).then(|| Self {
            server: Arc::clone(&member.state),
            upstream: Arc::clone(upstream),
        })
    }

    /// A place at any server of the upstream that may be asked, the one with the most free places first.
    #[must_use]
    pub fn any(upstream: &Arc<UpstreamState>) -> Option<Self> {
        let members = upstream.members();
        let mut free: Vec<&Member> = upstream.usable(&members).collect();
        free.sort_by_key(|member| {
            let most = member.most_requests().unwrap_or(u32::MAX);
            std::cmp::Reverse(most.saturating_sub(member.state.in_flight()))
        });
        free.into_iter()
            .find_map(|member| Self::take(upstream, member))
    }

    /// The server of the place.
    #[must_use]
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.server.leave();
        let upstream = &self.upstream;
        upstream.queue.serve(|| Self::any(upstream));
    }
}
