//! The figures of a row.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Percentiles of the latency, in µs. The time of each call includes one reading of the clock. If a call
/// makes several operations, such as a scan, its latency is its time divided by their number.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half of the latencies are at most this long.
    pub p50: f64,
    /// 90 % of the latencies are at most this long.
    pub p90: f64,
    /// 99 % of the latencies are at most this long.
    pub p99: f64,
    /// 99.9 % of the latencies are at most this long.
    pub p999: f64,
    /// The longest latency.
    pub most: f64,
}

impl Latency {
    pub(super) fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            most: histogram.max() as f64 / 1e3,
        }
    }
}

/// The figures of one side in one row.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Median of the rounds: µs for one operation. With several threads, the value of a round is the inverse
    /// of the sum of the rates of the threads.
    pub us: f64,
    /// Lower and upper quartile of the rounds, in µs.
    pub quartiles_us: [f64; 2],
    /// The time of this side divided by the time of the first side: the median of the ratios of the rounds.
    /// A ratio above 1 means that the first side is faster.
    pub ratio: Option<f64>,
    /// Lower and upper quartile of the ratios.
    pub ratio_quartiles: Option<[f64; 2]>,
    /// Latency, from a round of its own.
    pub latency: Option<Latency>,
    /// Number of counted rounds.
    pub rounds: usize,
    /// Number of operations in all counted rounds.
    pub operations: u64,
    /// Number of results that were compared with the right results.
    pub compared: u64,
    /// Bytes that the medium wrote for each operation, if it counts them.
    pub written_bytes: Option<f64>,
    /// Drains of a volume on a disk for each operation.
    pub drains: Option<f64>,
    /// Epoch barriers for each operation, over all counted rounds. A thread counts only its own barriers. So
    /// the value is `None` on a mount and a served volume, where other threads store, and on sides other than
    /// Eyrie.
    pub barriers: Option<f64>,
    /// Publishes for each operation, counted like `barriers`.
    pub publishes: Option<f64>,
}

impl Figures {
    /// Returns half of the distance between the quartiles, as a fraction of the median.
    pub fn spread(&self) -> f64 {
        (self.quartiles_us[1] - self.quartiles_us[0]) / 2.0 / self.us
    }

    /// Returns operations per second.
    pub fn rate(&self) -> f64 {
        1e6 / self.us
    }
}

/// The result of one row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name.
    pub name: String,
    /// Number of threads.
    pub threads: usize,
    /// The kind of the targets, such as blocks.
    pub unit: &'static str,
    /// Number of targets from which the threads choose.
    pub among: u64,
    /// Number of different targets that the threads touched: the sum of the threads, on the side with the
    /// largest sum.
    pub touched: u64,
    /// The figures of each side. `None` if a side lacks the operation.
    pub sides: Vec<Option<Figures>>,
}

/// Returns the quantile `fraction` of the values, or NaN without values. Between two values it interpolates.
fn quantile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    let at = last * fraction;
    let (Some(low), Some(high)) = (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize)) else {
        return f64::NAN;
    };
    low + (high - low) * at.fract()
}

/// Returns the median, or NaN without values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the lower and the upper quartile.
pub(super) fn quartiles(values: &[f64]) -> [f64; 2] {
    [quantile(values, 0.25), quantile(values, 0.75)]
}

/// Returns a number with about three digits, or a dash if the number is not finite. A positive number that
/// would show only zeros becomes `<0.001`.
pub fn digits(value: f64) -> String {
    match value {
        value if !value.is_finite() => "—".to_owned(),
        0.0 => "0".to_owned(),
        value if (0.0..0.0005).contains(&value) => "<0.001".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(quartiles(&[1.0, 2.0, 3.0, 4.0, 5.0]), [2.0, 4.0]);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.1234, 1.234, 12.34, 123.4].map(digits), ["0.123", "1.23", "12.3", "123"]);
        assert_eq!([0.0, 0.0004, f64::NAN].map(digits), ["0", "<0.001", "—"]);
    }
}
