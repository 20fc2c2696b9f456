//! A metric: its descriptor, and the samples that a scrape sums over all workers.

use super::Metrics;
use super::instrument::{BucketBounds, HistogramReading};
use super::label::Label;
use super::process::Process;
use super::store::StoreCells;
use super::worker_cells::{WorkerCells, copy};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Result;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

/// What describes a metric, and how its samples are summed.
#[derive(Debug)]
pub(super) struct Descriptor {
    /// Without the unit and `_total`, which the encoder adds.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    pub(super) unit: Option<&'static Unit>,
    pub(super) samples: Samples,
}

/// Sums the samples of a metric; `None` where this machine has no such metric.
pub(super) type Samples = fn(&Scrape<'_>) -> Option<Vec<Sample>>;

/// All cells, as one scrape finds them.
#[derive(Debug)]
pub(super) struct Scrape<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) workers: Vec<Arc<WorkerCells>>,
    pub(super) stores: Vec<Arc<StoreCells>>,
    /// What the operating system says about this process, where it says anything.
    pub(super) process: Option<Process>,
}

/// One series of a family and its value.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Vec<LabelPair>,
    value: SampleValue,
}

/// A label's name and its value.
pub(super) type LabelPair = (&'static str, Cow<'static, str>);

/// The value of a sample.
#[derive(Debug)]
pub(super) enum SampleValue {
    /// A whole number.
    Integer(u64),
    /// A number with a fraction.
    Real(f64),
    /// Observations by bucket; each bucket has its own count under its upper end.
    Histogram {
        sum: f64,
        count: u64,
        buckets: Vec<(f64, u64)>,
    },
}

impl Descriptor {
    /// Writes the family as `scrape` finds it.
    pub(super) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        scrape: &Scrape<'_>,
    ) -> Result {
        let Some(samples) = (self.samples)(scrape) else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(self.name, self.help, self.unit, self.kind)?;
        for Sample { labels, value } in samples {
            if labels.is_empty() {
                value.encode(self.kind, &mut family)?;
            } else {
                value.encode(self.kind, &mut family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Scrape<'_> {
    /// A count without labels.
    pub(super) fn count(&self, pick: fn(&WorkerCells) -> u64) -> Option<Vec<Sample>> {
        single(self.workers.iter().map(|worker| pick(worker)).sum::<u64>())
    }

    /// A level without labels.
    pub(super) fn level(&self, pick: fn(&WorkerCells) -> i64) -> Option<Vec<Sample>> {
        single(self.workers.iter().map(|worker| pick(worker)).sum::<i64>())
    }

    /// A figure of this process.
    pub(super) fn process<V: Into<SampleValue>>(
        &self,
        pick: fn(&Process) -> Option<V>,
    ) -> Option<Vec<Sample>> {
        single(pick(self.process.as_ref()?)?)
    }

    /// The cells of one kind of all workers.
    pub(super) fn cells<C>(
        &self,
        list: fn(&WorkerCells) -> &Mutex<Vec<Arc<C>>>,
    ) -> impl Iterator<Item = Arc<C>> {
        self.workers
            .iter()
            .flat_map(move |worker| copy(list(worker)))
    }

    /// A count of the workers' ways to the store.
    pub(super) fn store_count(&self, count: impl Fn(&StoreCells) -> u64) -> u64 {
        self.stores.iter().map(|store| count(store)).sum()
    }
}

impl SampleValue {
    /// Times in seconds.
    pub(super) fn times<B: BucketBounds>(reading: &HistogramReading) -> Self {
        Self::Histogram {
            sum: reading.seconds(),
            count: reading.count(),
            buckets: reading.buckets::<B>().to_vec(),
        }
    }

    fn encode(&self, kind: MetricType, out: &mut MetricEncoder<'_>) -> Result {
        match (kind, self) {
            (MetricType::Counter, Self::Integer(count)) => {
                out.encode_counter::<NoLabelSet, _, u64>(count, None)
            }
            (MetricType::Counter, Self::Real(count)) => {
                out.encode_counter::<NoLabelSet, _, u64>(count, None)
            }
            (_, Self::Integer(value)) => out.encode_gauge(value),
            (_, Self::Real(value)) => out.encode_gauge(value),
            (
                _,
                Self::Histogram {
                    sum,
                    count,
                    buckets,
                },
            ) => out.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None),
        }
    }
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<i64> for SampleValue {
    /// A level. A request may end while the workers are summed up, which is no reason to show less than none.
    fn from(level: i64) -> Self {
        Self::Integer(u64::try_from(level).unwrap_or(0))
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// The only sample of a family without labels.
pub(super) fn single(value: impl Into<SampleValue>) -> Option<Vec<Sample>> {
    Some(vec![sample([], value)])
}

/// A sample with these labels.
pub(super) fn sample<const N: usize>(
    labels: [LabelPair; N],
    value: impl Into<SampleValue>,
) -> Sample {
    Sample {
        labels: labels.into(),
        value: value.into(),
    }
}

/// A label with a name of the configuration as its value.
pub(super) fn named(label: &'static str, name: Box<str>) -> LabelPair {
    (label, Cow::Owned(name.into_string()))
}

/// A sample for each of `values`, by that label alone.
pub(super) fn by_label<L: Label>(
    label: &'static str,
    values: &[L],
    count: impl Fn(L) -> u64,
) -> Option<Vec<Sample>> {
    let rows = values.iter();
    Some(
        rows.map(|value| sample([(label, value.word().into())], count(*value)))
            .collect(),
    )
}

/// Sums `cells` of all workers by key. The samples that `sample` makes of the sums come in the order of the keys.
pub(super) fn sums<K: Ord, V: AddAssign + Default>(
    cells: impl IntoIterator<Item = (K, V)>,
    sample: impl Fn(K, V) -> Option<Sample>,
) -> Option<Vec<Sample>> {
    let mut sums: BTreeMap<K, V> = BTreeMap::new();
    for (key, value) in cells {
        *sums.entry(key).or_default() += value;
    }
    Some(
        sums.into_iter()
            .filter_map(|(key, sum)| sample(key, sum))
            .collect(),
    )
}
