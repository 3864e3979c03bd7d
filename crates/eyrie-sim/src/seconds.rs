//! Times as decimal numbers of seconds since 1970.

use std::fmt;

use eyrie::Time;

const NANOSECONDS: i128 = 1_000_000_000;
/// Maximum number of digits after the decimal point.
const DIGITS: usize = 9;

/// A time as scripts and canonical trees show it: `-0.500000000` is half a second before 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seconds(pub(crate) Time);

impl Seconds {
    /// Parses a time. Returns `None` for other text and for a time out of range.
    pub(crate) fn parse(text: &str) -> Option<Seconds> {
        let (is_negative, number) = match text.strip_prefix('-') {
            Some(number) => (true, number),
            None => (false, text),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > DIGITS {
            return None;
        }
        let whole: u64 = whole.parse().ok()?;
        let fraction: i128 = format!("{fraction:0<DIGITS$}").parse().ok()?;
        let distance = i128::from(whole) * NANOSECONDS + fraction;
        let total = if is_negative { -distance } else { distance };
        let seconds = i64::try_from(total.div_euclid(NANOSECONDS)).ok()?;
        Some(Seconds(Time::new(seconds, total.rem_euclid(NANOSECONDS) as u32)))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = i128::from(self.0.seconds) * NANOSECONDS + i128::from(self.0.nanoseconds);
        let sign = if total < 0 { "-" } else { "" };
        let distance = total.unsigned_abs();
        let (whole, fraction) = (distance / NANOSECONDS as u128, distance % NANOSECONDS as u128);
        match fraction {
            0 => write!(f, "{sign}{whole}"),
            _ => write!(f, "{sign}{whole}.{fraction:0DIGITS$}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimal_numbers() {
        for (text, seconds, nanoseconds, printed) in [
            ("0", 0, 0, "0"),
            ("1.5", 1, 500_000_000, "1.500000000"),
            ("0.000000005", 0, 5, "0.000000005"),
            ("-0.5", -1, 500_000_000, "-0.500000000"),
            ("-7", -7, 0, "-7"),
            ("9223372036854775807.999999999", i64::MAX, 999_999_999, "9223372036854775807.999999999"),
            ("-9223372036854775808", i64::MIN, 0, "-9223372036854775808"),
        ] {
            let time = Seconds::parse(text).unwrap();
            assert_eq!(time, Seconds(Time::new(seconds, nanoseconds)), "{text}");
            assert_eq!(time.to_string(), printed);
        }
        for wrong in ["", "-", ".5", "1.", "1.0000000001", "+1", "1e3", "--1", "9223372036854775808", "1.-5"]
        {
            assert_eq!(Seconds::parse(wrong), None, "{wrong}");
        }
    }
}
