//! One figure: a promised value, and the measured value.

use std::fmt::Display;

/// A measured value, and the limit that is promised for it.
#[derive(Debug)]
pub struct Figure {
    pub name: String,
    pub wanted: String,
    pub measured: String,
    pub met: bool,
}

impl Figure {
    /// Makes a figure that should be at least `wanted`.
    pub fn at_least(name: impl Display, wanted: f64, measured: f64, unit: &str) -> Figure {
        Figure {
            name: name.to_string(),
            wanted: format!("≥ {wanted}"),
            measured: format!("{measured:.2}{unit}"),
            met: measured >= wanted,
        }
    }

    /// Makes a figure that should be at most `wanted`.
    pub fn at_most(name: impl Display, wanted: f64, measured: f64, unit: &str) -> Figure {
        Figure {
            name: name.to_string(),
            wanted: format!("≤ {wanted}"),
            measured: format!("{measured:.2}{unit}"),
            met: measured <= wanted,
        }
    }
}

/// Returns the median of `values`, or NaN if there are none. Of an even number of values it returns the
/// larger one of the middle two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
