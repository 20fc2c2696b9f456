//! A family of samples at a time, in the encoder's terms.

use super::instrument::{BucketBounds, HistogramReading};
use super::store::CallSizeReading;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt::Result;

pub(super) type Encoder<'a> = DescriptorEncoder<'a>;

/// A count without labels. The encoder adds the unit and `_total` to the name.
pub(super) fn counter(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: impl EncodeCounterValue,
) -> Result {
    let kind = MetricType::Counter;
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    family.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// A count for each set of labels. The encoder adds `_total` to the name.
pub(super) fn counters<L: EncodeLabelSet>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, u64)>,
) -> Result {
    let kind = MetricType::Counter;
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in rows {
        let mut row = family.encode_family(&labels)?;
        row.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

/// A level without labels. The encoder adds the unit to the name.
pub(super) fn gauge(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: impl EncodeGaugeValue,
) -> Result {
    let kind = MetricType::Gauge;
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    family.encode_gauge(&value)
}

/// A level for each set of labels.
pub(super) fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, V)>,
) -> Result {
    let kind = MetricType::Gauge;
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in rows {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Times without labels. The encoder adds `_seconds` to the name.
pub(super) fn histogram<B: BucketBounds>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    times: &HistogramReading,
) -> Result {
    let kind = MetricType::Histogram;
    let family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?;
    write::<B>(family, times)
}

/// How many went together, without labels.
#[allow(
    clippy::cast_precision_loss,
    reason = "far fewer than 2^53 are ever decided"
)]
pub(super) fn sizes(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    all: &CallSizeReading,
) -> Result {
    let kind = MetricType::Histogram;
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    let calls = all.calls.iter().map(|(_, calls)| calls).sum();
    family.encode_histogram::<NoLabelSet>(all.decisions as f64, calls, &all.calls, None)
}

/// Times for each set of labels. The encoder adds `_seconds` to the name.
pub(super) fn histograms<B: BucketBounds, L: EncodeLabelSet>(
    encoder: &mut Encoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, HistogramReading)>,
) -> Result {
    let kind = MetricType::Histogram;
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?;
    for (labels, times) in rows {
        write::<B>(family.encode_family(&labels)?, &times)?;
    }
    Ok(())
}

fn write<B: BucketBounds>(mut row: MetricEncoder<'_>, times: &HistogramReading) -> Result {
    let buckets = times.buckets::<B>();
    row.encode_histogram::<NoLabelSet>(times.seconds(), times.count(), &buckets, None)
}
