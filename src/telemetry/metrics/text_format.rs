//! The two text formats that a scrape may request: OpenMetrics, and Prometheus' own older one.

use super::Metrics;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0, for scrapers that request it.
    OpenMetrics,
    /// Prometheus 0.0.4, for all other scrapers.
    Prometheus,
}

impl TextFormat {
    /// The format to answer with to this `Accept` field.
    ///
    /// A scraper that names OpenMetrics understands it, and Prometheus names it first; weights are not compared.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let named = accept.is_some_and(|accept| {
            accept
                .split(',')
                .filter_map(|range| range.split(';').next())
                .any(|name| {
                    name.trim()
                        .eq_ignore_ascii_case("application/openmetrics-text")
                })
        });
        if named {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The `Content-Type` of a text in this format.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Metrics {
    /// All metrics as text, in `format`. This takes milliseconds when there are thousands of routes.
    #[must_use]
    pub fn render(self: &Arc<Self>, format: TextFormat) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(self)));
        let mut text = String::new();
        // Writing to a string cannot fail. A truncated text would lack its end mark, and its reader would refuse it.
        if let Err(error) = text::encode(&mut text, &registry) {
            tracing::error!("the metrics could not be written: {error}");
        }
        match format {
            TextFormat::OpenMetrics => text,
            TextFormat::Prometheus => older(&text),
        }
    }
}

/// Turns OpenMetrics into the older format. OpenMetrics names a counter's family without the `_total` of its samples;
/// the older format needs the `_total` in both places, or else treats the samples as untyped. Units and the end mark do
/// not exist in it.
fn older(text: &str) -> String {
    let mut older = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or((typed, "untyped"));
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some(text) = help.take().and_then(|help| help.get(7 + name.len()..)) {
                older.extend(["# HELP ", name, suffix, text, "\n"]);
            }
            older.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            older.extend([line, "\n"]);
        }
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_name_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.4";
        assert_eq!(
            TextFormat::accepted(Some(prometheus)),
            TextFormat::OpenMetrics
        );
        for other in [None, Some("*/*"), Some("text/plain"), Some("")] {
            assert_eq!(TextFormat::accepted(other), TextFormat::Prometheus);
        }
    }

    #[test]
    fn the_older_format_has_the_suffix_in_the_family_name() {
        let text = "# HELP a_x Help a_x.\n# TYPE a_x counter\n# UNIT a_x seconds\na_x_total 1\n\
                    # HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        assert_eq!(
            older(text),
            "# HELP a_x_total Help a_x.\n# TYPE a_x_total counter\na_x_total 1\n\
             # HELP b B.\n# TYPE b gauge\nb 2\n"
        );
    }
}
