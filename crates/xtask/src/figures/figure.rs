//! One figure: a promised value, and the measured value.

use std::fmt::Display;

/// A measured value, and the limit that is promised for it.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub wanted: String,
    pub measured: String,
    pub met: bool,
}

impl Figure {
    /// Makes a figure that should be at least `wanted`.
    pub fn at_least(name: impl Display, wanted: f64, measured: impl Into<Measured>, unit: &str) -> Figure {
        let measured = measured.into();
        Figure {
            name: name.to_string(),
            wanted: format!("≥ {wanted}"),
            measured: measured.shown(unit),
            met: measured.median >= wanted,
        }
    }

    /// Makes a figure that should be at most `wanted`.
    pub fn at_most(name: impl Display, wanted: f64, measured: impl Into<Measured>, unit: &str) -> Figure {
        let measured = measured.into();
        Figure {
            name: name.to_string(),
            wanted: format!("≤ {wanted}"),
            measured: measured.shown(unit),
            met: measured.median <= wanted,
        }
    }
}

/// A single value, or the median and the quartiles of the values of several rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    pub median: f64,
    pub quartiles: Option<[f64; 2]>,
}

impl From<f64> for Measured {
    fn from(median: f64) -> Measured {
        Measured { median, quartiles: None }
    }
}

impl Measured {
    /// Returns the median and the quartiles of `values`. NaN if there are none.
    pub fn of(values: &[f64]) -> Measured {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| sorted.get(sorted.len() * part / 4).copied().unwrap_or(f64::NAN);
        Measured { median: at(2), quartiles: Some([at(1), at(3)]) }
    }

    /// Divides the value of one side by the value of the other side in each round, because both values of a
    /// round suffer from the same load of the machine. Returns the median of these ratios.
    pub fn of_ratios(values: &[f64], others: &[f64]) -> Measured {
        Measured::of(&values.iter().zip(others).map(|(value, other)| value / other).collect::<Vec<_>>())
    }

    fn shown(self, unit: &str) -> String {
        let spread = |[low, high]: [f64; 2]| format!("  ({low:.2} to {high:.2})");
        format!("{:.2}{unit}{}", self.median, self.quartiles.map(spread).unwrap_or_default())
    }
}

/// Returns the median of `values`, or NaN if there are none. Of an even number of values it returns the
/// larger one of the middle two.
pub fn median(values: &[f64]) -> f64 {
    Measured::of(values).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_over_pairs() {
        // The ratio of the medians is 2.
        let ratio = Measured::of_ratios(&[4.0, 8.0, 2.0], &[1.0, 2.0, 4.0]);
        assert_eq!(ratio, Measured { median: 4.0, quartiles: Some([0.5, 4.0]) });
        let figure = Figure::at_least("row", 4.0, ratio, " × tmpfs");
        assert_eq!((figure.met, &figure.measured[..]), (true, "4.00 × tmpfs  (0.50 to 4.00)"));
        assert!(!Figure::at_most("row", 3.9, ratio, "").met);
        assert_eq!(Figure::at_most("row", 4.0, 4.0, " ms").measured, "4.00 ms");
        assert!(!Figure::at_least("row", 0.0, Measured::of(&[]), "").met);
    }
}
