//! A metric: its descriptor, and the samples that a scrape sums over all workers.

use super::Metrics;
use super::instrument::{BucketBounds, Counter as _, HistogramReading, WorkerCounter};
use super::label::{Label, Labels};
use super::process::Process;
use super::store::StoreCells;
use super::worker_cells::{Family, WorkerCells};
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Result;
use std::ops::AddAssign;
use std::sync::Arc;

/// The description of a metric, and the function that sums its samples.
#[derive(Debug)]
pub(super) struct FamilyDescriptor {
    /// The name without the unit and `_total`, which the encoder adds.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    pub(super) unit: Option<&'static Unit>,
    pub(super) samples: Samples,
}

/// Sums the samples of a metric; `None` if this machine has no such metric.
pub(super) type Samples = fn(&Scrape<'_>) -> Option<Vec<Sample>>;

/// All cells at the time of one scrape.
#[derive(Debug)]
pub(super) struct Scrape<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) workers: Vec<Arc<WorkerCells>>,
    pub(super) stores: Vec<Arc<StoreCells>>,
    /// The operating system's figures of this process, if available.
    pub(super) process: Option<Process>,
}

/// One series of a family and its value.
#[derive(Debug)]
pub(super) struct Sample {
    labels: Labels,
    value: SampleValue,
}

/// The value of a sample.
#[derive(Debug)]
pub(super) enum SampleValue {
    /// A whole number.
    Integer(u64),
    /// A whole number that may be negative.
    Signed(i64),
    /// A number with a fraction.
    Real(f64),
    /// Observations by bucket.
    Histogram(HistogramSample),
}

/// Observations by bucket; each bucket has its own count under its upper bound.
#[derive(Debug)]
pub(super) struct HistogramSample {
    pub(super) sum: f64,
    pub(super) count: u64,
    pub(super) buckets: Vec<(f64, u64)>,
}

impl FamilyDescriptor {
    /// Writes the family with the values of `scrape`.
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
            if labels.0.is_empty() {
                value.encode(self.kind, &mut family)?;
            } else {
                value.encode(self.kind, &mut family.encode_family(&labels.0)?)?;
            }
        }
        Ok(())
    }
}

impl Scrape<'_> {
    /// The only sample of a family without labels, over all workers.
    pub(super) fn total<V: AddAssign + Default + Into<SampleValue>>(
        &self,
        read: fn(&WorkerCells) -> V,
    ) -> Option<Vec<Sample>> {
        single(total(&self.workers, read))
    }

    /// The only sample of a figure of this process.
    pub(super) fn process<V: Into<SampleValue>>(
        &self,
        pick: fn(&Process) -> Option<V>,
    ) -> Option<Vec<Sample>> {
        single(pick(self.process.as_ref()?)?)
    }

    /// The samples of a family. `read` returns values from the cells of each key, and values under one label are summed
    /// over the workers. The samples are in the order of the labels.
    pub(super) fn sums<K, C, R, V, I>(
        &self,
        family: fn(&WorkerCells) -> &Family<K, C>,
        read: fn(K, &C) -> I,
    ) -> Option<Vec<Sample>>
    where
        K: Ord + Clone,
        C: Default,
        R: Ord + Into<Labels>,
        V: AddAssign + Default + Into<SampleValue>,
        I: IntoIterator<Item = (R, V)>,
    {
        let mut sums: BTreeMap<R, V> = BTreeMap::new();
        for worker in &self.workers {
            for (key, cells) in family(worker).copy() {
                for (row, value) in read(key, &cells) {
                    *sums.entry(row).or_default() += value;
                }
            }
        }
        let samples = sums.into_iter();
        Some(samples.map(|(row, sum)| sample(row, sum)).collect())
    }
}

/// The sum of the values that `read` finds in all of `cells`.
pub(super) fn total<C, V: AddAssign + Default>(cells: &[Arc<C>], read: impl Fn(&C) -> V) -> V {
    let mut total = V::default();
    for cells in cells {
        total += read(cells);
    }
    total
}

impl SampleValue {
    fn encode(&self, kind: MetricType, out: &mut MetricEncoder<'_>) -> Result {
        match (kind, self) {
            (MetricType::Counter, Self::Integer(count)) => {
                out.encode_counter::<NoLabelSet, _, u64>(count, None)
            }
            (MetricType::Counter, Self::Real(count)) => {
                out.encode_counter::<NoLabelSet, _, u64>(count, None)
            }
            (_, Self::Integer(value)) => out.encode_gauge(value),
            (_, Self::Signed(value)) => out.encode_gauge(value),
            (_, Self::Real(value)) => out.encode_gauge(value),
            (_, Self::Histogram(times)) => {
                out.encode_histogram::<NoLabelSet>(times.sum, times.count, &times.buckets, None)
            }
        }
    }
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<bool> for SampleValue {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<HistogramSample> for SampleValue {
    fn from(value: HistogramSample) -> Self {
        Self::Histogram(value)
    }
}

impl From<i64> for SampleValue {
    /// The value of a level. A request may end during the summation; the level must not become negative.
    fn from(level: i64) -> Self {
        Self::Integer(u64::try_from(level).unwrap_or(0))
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl<B: BucketBounds> From<HistogramReading<B>> for SampleValue {
    /// Times in seconds.
    fn from(reading: HistogramReading<B>) -> Self {
        Self::Histogram(HistogramSample {
            sum: reading.seconds(),
            count: reading.count(),
            buckets: reading.buckets().to_vec(),
        })
    }
}

/// The only sample of a family without labels.
pub(super) fn single(value: impl Into<SampleValue>) -> Option<Vec<Sample>> {
    Some(vec![sample(Labels::default(), value)])
}

/// A sample with these labels.
pub(super) fn sample(labels: impl Into<Labels>, value: impl Into<SampleValue>) -> Sample {
    Sample {
        labels: labels.into(),
        value: value.into(),
    }
}

/// A sample for each of `values`, by the label `L` alone.
pub(super) fn by_label<L: Label>(
    label: &'static str,
    values: &[L],
    count: impl Fn(L) -> u64,
) -> Option<Vec<Sample>> {
    let none = Labels::default();
    let rows = rows(&none, label, values, |value| Some(count(value)));
    let samples = rows.into_iter();
    Some(
        samples
            .map(|(labels, count)| sample(labels, count))
            .collect(),
    )
}

/// A row for each of `values` that has a number, by the label `L` in addition to `labels`.
pub(super) fn rows<L: Label, V>(
    labels: &Labels,
    label: &'static str,
    values: &[L],
    read: impl Fn(L) -> Option<V>,
) -> Vec<(Labels, V)> {
    let values = values.iter();
    let rows =
        values.filter_map(|value| Some((labels.clone().and(label, value.word()), read(*value)?)));
    rows.collect()
}

/// A row for each of `words` whose count is not zero, by the label of this name in addition to `labels`.
pub(super) fn met<W: Into<Cow<'static, str>>>(
    labels: &Labels,
    label: &'static str,
    words: impl IntoIterator<Item = W>,
    counts: &[WorkerCounter],
) -> Vec<(Labels, u64)> {
    let counts = words.into_iter().zip(counts.iter().map(WorkerCounter::get));
    let met = counts.filter(|(_, count)| *count > 0);
    met.map(|(word, count)| (labels.clone().and(label, word), count))
        .collect()
}

/// A sample for each of the values that are kept by names, in the order of the names.
pub(super) fn kept<N, V: Copy + Into<SampleValue>>(
    values: &Mutex<BTreeMap<N, V>>,
    labels: fn(&N) -> Labels,
) -> Option<Vec<Sample>> {
    let values = values.lock();
    let samples = values
        .iter()
        .map(|(name, value)| sample(labels(name), *value));
    Some(samples.collect())
}
