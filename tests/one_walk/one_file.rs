//! One file with its requests, through one program: a gateway, `explain` for each request, and `simulate` for the log.

use super::ask::{self, Answered, Explained, Sight};
use super::dice::Dice;
use super::draw_file::DrawnFile;
use super::draw_request::DrawnRequest;
use super::world::World;
use crate::support::{Gateway, free_port};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file that is good, and requests for it.
pub(super) struct Round {
    pub(super) seed: u64,
    pub(super) file: DrawnFile,
    pub(super) requests: Vec<DrawnRequest>,
    /// The folder of the file, which all programs read there.
    folder: TempDir,
    /// Files that were drawn before and are none.
    pub(super) refused: Vec<String>,
}

/// What a program made of a round: one of each for each request.
pub(super) struct Outcome {
    pub(super) answers: Vec<Answered>,
    /// None where `explain` cannot be told of the request.
    pub(super) explained: Vec<Option<Explained>>,
    /// The same with the counters as they stood before the request; only in rounds with tight rates.
    pub(super) live: Vec<Option<Explained>>,
}

impl Round {
    /// Draws a file until one is good for `program`, and requests for it.
    pub(super) async fn draw(world: &World, program: &Path, seed: u64, count: usize) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        let mut dice = Dice::of(seed);
        let mut refused = Vec::new();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("gateway.toml");
        let file = loop {
            let file = DrawnFile::draw(&mut dice, world, ports);
            std::fs::write(&config, &file.text).unwrap();
            match ask::check(program, &config).await {
                None => break file,
                Some(why) => refused.push(format!("{}\n{why}", file.text)),
            }
            assert!(
                refused.len() < 40,
                "seed {seed}: no file is good: {}",
                refused[0]
            );
        };
        let requests = (0..count).map(|_| DrawnRequest::draw(&mut dice, &file, world));
        Self {
            seed,
            requests: requests.collect(),
            file,
            folder,
            refused,
        }
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("gateway.toml")
    }

    /// Sends the requests through a gateway of `program`, one after the other, and explains each.
    pub(super) async fn run(&self, world: &World, program: &Path) -> Outcome {
        let config = self.config();
        let path = config.to_str().unwrap();
        let own = tempfile::tempdir().unwrap();
        let mut gateway = Gateway::launch_as(program, own, &["run", "--config", path]).await;
        let (mut answers, mut explained, mut live) = (Vec::new(), Vec::new(), Vec::new());
        for request in &self.requests {
            let can_be_told = request.untellable.is_none();
            live.push(match can_be_told && self.file.is_tight {
                true => Some(ask::explain(program, &config, world, request, Sight::Live).await),
                false => None,
            });
            answers.push(ask::send(world, &self.file, request).await);
            explained.push(match can_be_told {
                true => Some(ask::explain(program, &config, world, request, Sight::Alone).await),
                false => None,
            });
        }
        gateway.stop().await;
        ask::find_lines(&mut answers, &gateway);
        Outcome {
            answers,
            explained,
            live,
        }
    }

    /// Explains the requests with keys from their URLs, where the file has such keys: one explanation for each request that
    /// `explain` can be told of.
    pub(super) async fn explain_connected(
        &self,
        world: &World,
        program: &Path,
    ) -> Vec<(usize, Explained)> {
        let mut explained = Vec::new();
        let told = self.requests.iter().enumerate();
        let told = told.filter(|(_, request)| request.untellable.is_none());
        for (at, request) in told.filter(|_| self.file.keys_by_url) {
            let config = self.config();
            let one = ask::explain(program, &config, world, request, Sight::Connected).await;
            explained.push((at, one));
        }
        explained
    }

    /// What `simulate` of `program` decides about the lines of the log, in their order.
    pub(super) async fn simulate(&self, program: &Path, answers: &[Answered]) -> Vec<Value> {
        let lines: Vec<&Value> = answers
            .iter()
            .filter_map(|answer| answer.line.as_ref())
            .collect();
        ask::simulate(program, &self.config(), &lines).await
    }
}
