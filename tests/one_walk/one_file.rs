//! One file with its requests, in one program: a gateway, `explain` for each request, and `simulate` for the log.

use super::ask::{self, Answered, Explained, Sight};
use super::dice::Dice;
use super::draw_file::DrawnFile;
use super::draw_limits::{TIGHT_NUMBERS, WIDE_NUMBERS};
use super::draw_request::DrawnRequest;
use super::world::World;
use crate::support::{Gateway, free_port};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A valid file, and requests for it.
pub(super) struct Round {
    pub(super) seed: u64,
    pub(super) file: DrawnFile,
    pub(super) requests: Vec<DrawnRequest>,
    /// The folder of the file. All programs read the file there.
    folder: TempDir,
    /// Files that were drawn before, and were not valid.
    pub(super) refused: Vec<String>,
}

/// The output of a program for a round. Each list has one entry for each request.
pub(super) struct Outcome {
    pub(super) answers: Vec<Answered>,
    /// An entry is `None` if the request cannot be described to `explain`.
    pub(super) explained: Vec<Option<Explained>>,
    /// The same with the counters as they were before the request, only in rounds with tight rates.
    pub(super) live: Vec<Option<Explained>>,
}

impl Round {
    /// Draws files until one is valid for `program`, and requests for it.
    pub(super) async fn draw(world: &World, program: &Path, seed: u64, count: usize) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        let mut dice = Dice::of(seed);
        let mut refused = Vec::new();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("gateway.toml");
        for (name, numbers) in [TIGHT_NUMBERS, WIDE_NUMBERS] {
            std::fs::write(folder.path().join(name), numbers).unwrap();
        }
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

    /// Sends the requests one after the other through a gateway of `program`, and explains each.
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

    /// Explains the requests with keys from their URLs, if the file has such keys. There is one explanation for each
    /// request that can be described to `explain`.
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

    /// The decisions of `simulate` of `program` about the lines of the log, in their order.
    pub(super) async fn simulate(&self, program: &Path, answers: &[Answered]) -> Vec<Value> {
        let lines: Vec<&Value> = answers
            .iter()
            .filter_map(|answer| answer.line.as_ref())
            .collect();
        ask::simulate(program, &self.config(), &lines).await
    }
}
