//! Times of files as text, in the time zone of the user.

use eyrie::Time;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

/// Years after which the Gregorian calendar repeats itself.
const CALENDAR_YEARS: i64 = 400;
/// The length of [`CALENDAR_YEARS`] in seconds.
const CALENDAR_SECONDS: i64 = 146_097 * 86_400;

/// Nanoseconds in a second.
const NANOS: i128 = 1_000_000_000;

/// Formats the date and the time of a second of any year, in UTC. `format` is the format of strftime(3) for
/// everything after the year.
fn civil(seconds: i64, format: &str) -> String {
    // The time of a file may have any number of seconds, but jiff supports years only up to 9999. The
    // Gregorian calendar repeats after 400 years. So this function moves the time by whole cycles of 400
    // years to a year from 1970 to 2369, and lets jiff format the moved time. Then it adds the years of these
    // cycles to the year of the moved time.
    let cycles = seconds.div_euclid(CALENDAR_SECONDS);
    let second = seconds.rem_euclid(CALENDAR_SECONDS);
    let civil = Offset::UTC.to_datetime(Timestamp::from_second(second).unwrap_or_default());
    let year = i64::from(civil.year()) + cycles * CALENDAR_YEARS;
    format!("{year:04}-{}", civil.strftime(format))
}

/// Parses a time: `2026-11-20 10:14` or `2026-11-20` in the time zone of the host, `2026-11-20T10:14:00Z` or
/// this form with another offset, or `@` and seconds since 1970.
///
/// # Errors
/// Fails with a message for the user.
pub fn parse(argument: &str) -> Result<Time, String> {
    parse_in(argument, &Zone::of_host()).ok_or_else(|| {
        "times are written like '2026-11-20 10:14', 2026-11-20T10:14:00Z or @1795000000".to_owned()
    })
}

fn parse_in(argument: &str, zone: &Zone) -> Option<Time> {
    if let Some(seconds) = argument.strip_prefix('@') {
        return parse_seconds(seconds);
    }
    let known = argument.parse::<Timestamp>().ok();
    let local = || zone.0.to_timestamp(argument.parse::<DateTime>().ok()?).ok();
    let known = known.or_else(local)?;
    let nanosecond = known.as_nanosecond();
    let second = i64::try_from(nanosecond.div_euclid(NANOS)).ok()?;
    Some(Time::new(second, u32::try_from(nanosecond.rem_euclid(NANOS)).ok()?))
}

/// Parses the digits `[[CC]YY]MMDDhhmm[.ss]` of touch(1), in the time zone of the host. Digits without a year
/// mean the present year. A year of two digits is from 1969 to 2068.
///
/// # Errors
/// Fails with a message for the user.
pub fn parse_stamp(argument: &str) -> Result<Time, String> {
    let zone = Zone::of_host();
    let this_year = Timestamp::now().to_zoned(zone.0.clone()).year();
    stamp_in(argument, &zone, this_year)
        .ok_or_else(|| "times are written like 202611201014, 11201014 or 202611201014.30".to_owned())
}

/// Parses a time as [`parse_stamp`] does.
fn stamp_in(argument: &str, zone: &Zone, this_year: i16) -> Option<Time> {
    let (digits, second) = argument.split_once('.').unwrap_or((argument, "00"));
    if !argument.is_ascii() || second.len() != 2 || !(8..=12).contains(&digits.len()) {
        return None;
    }
    let (year, rest) = digits.split_at(digits.len() - 8);
    let number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?;
    let year = match (year.len(), year) {
        (0, _) => this_year,
        (2, year) => number(year).map(|year: i16| if year < 69 { 2000 + year } else { 1900 + year })?,
        (4, year) => number(year)?,
        _ => return None,
    };
    let part = |at: usize| i8::try_from(number(&rest[at..at + 2])?).ok();
    // As in touch(1), second 60 is the second after 59.
    let second = i8::try_from(number(second)?).ok().filter(|second| *second <= 60)?;
    let civil = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, second.min(59), 0).ok()?;
    Some(Time::new(zone.0.to_timestamp(civil).ok()?.as_second() + i64::from(second == 60), 0))
}

/// Parses seconds with at most nine decimals.
fn parse_seconds(text: &str) -> Option<Time> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !digits(whole.strip_prefix('-').unwrap_or(whole)) || !digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let seconds = whole.parse::<i64>().ok()?;
    let nanoseconds = format!("{decimals:0<9}").parse::<u32>().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        // The nanoseconds of a time count forward from its second.
        return Some(Time::new(seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some(Time::new(seconds, nanoseconds))
}

/// A time zone.
#[derive(Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// Returns the time zone of the environment variable `TZ`, or else the time zone of the host.
    pub fn of_host() -> Zone {
        Zone(TimeZone::system())
    }

    /// Returns the offset from UTC at `time`, in seconds.
    fn offset(&self, time: Time) -> i32 {
        let known = Timestamp::from_second(time.seconds);
        // jiff does not support the years of all times. The offset of the same second in another cycle of the
        // calendar is then the best guess.
        let moved = || Timestamp::from_second(time.seconds.rem_euclid(CALENDAR_SECONDS)).unwrap_or_default();
        self.0.to_offset(known.unwrap_or_else(|_| moved())).seconds()
    }

    fn civil(&self, time: Time, format: &str) -> String {
        civil(time.seconds.saturating_add(self.offset(time).into()), format)
    }

    /// Formats a time as `2026-11-20 10:14`.
    pub fn minute(&self, time: Time) -> String {
        self.civil(time, "%m-%d %H:%M")
    }

    /// Formats a time as `2026-11-20 10:14:00.123456789 +0100`.
    pub fn full(&self, time: Time) -> String {
        let offset = self.offset(time);
        let minutes = offset.unsigned_abs() / 60;
        let sign = if offset < 0 { '-' } else { '+' };
        let civil = self.civil(time, "%m-%d %H:%M:%S");
        format!("{civil}.{:09} {sign}{:02}{:02}", time.nanoseconds, minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_right_in_any_year() {
        let zone = Zone(TimeZone::UTC);
        assert_eq!(zone.minute(Time::new(0, 0)), "1970-01-01 00:00");
        assert_eq!(zone.full(Time::new(-1, 999)), "1969-12-31 23:59:59.000000999 +0000");
        assert_eq!(zone.minute(Time::new(951_782_400, 0)), "2000-02-29 00:00");
        assert_eq!(zone.minute(Time::new(253_402_300_800, 0)), "10000-01-01 00:00");
        assert!(zone.full(Time::new(i64::MIN, 0)).starts_with("-2922770"));
        assert!(zone.full(Time::new(i64::MAX, 0)).starts_with("2922770"));
    }

    #[test]
    fn offsets_have_hours_and_minutes() {
        let zone = |seconds| Zone(TimeZone::fixed(Offset::from_seconds(seconds).unwrap()));
        let time = Time::new(1_795_000_000, 0);
        assert_eq!(zone(5 * 3600 + 1800).full(time), "2026-11-18 16:36:40.000000000 +0530");
        assert_eq!(zone(-9 * 3600 - 1800).full(time), "2026-11-18 01:36:40.000000000 -0930");
        assert_eq!(zone(3600).minute(time), "2026-11-18 12:06");
    }

    #[test]
    fn times_are_parsed_in_the_zone() {
        let zone = Zone(TimeZone::fixed(Offset::from_seconds(3600).unwrap()));
        for (text, seconds, nanoseconds) in [
            ("2026-11-18 12:06:40", 1_795_000_000, 0),
            ("2026-11-18T12:06:40.5", 1_795_000_000, 500_000_000),
            ("2026-11-18", 1_794_956_400, 0),
            ("2026-11-18T11:06:40Z", 1_795_000_000, 0),
            ("2026-11-18 16:36:40+05:30", 1_795_000_000, 0),
            ("1969-12-31T23:59:59.25Z", -1, 250_000_000),
            ("@1795000000", 1_795_000_000, 0),
            ("@12.000000001", 12, 1),
            ("@-1.25", -2, 750_000_000),
        ] {
            assert_eq!(parse_in(text, &zone), Some(Time::new(seconds, nanoseconds)), "{text}");
        }
        for (text, seconds) in [
            ("202611181206.40", 1_795_000_000),
            ("2611181206", 1_795_000_000 - 40),
            ("11181206", 1_795_000_000 - 40),
            ("6912312359.59", -3601),
            ("6912312359.60", -3600),
            ("197001010100", 0),
        ] {
            assert_eq!(stamp_in(text, &zone, 2026), Some(Time::new(seconds, 0)), "{text}");
        }
        let wrong = [
            "",
            "1118120",
            "202613181206",
            "202611181206.4",
            "+2611181206",
            "20261118120é",
            "2611181206.",
            "2611181206.61",
        ];
        for wrong in wrong {
            assert_eq!(stamp_in(wrong, &zone, 2026), None, "{wrong}");
        }
        for wrong in ["", "@", "@x", "@1.", "@1.0123456789", "@+1", "tomorrow", "2026-13-01", "12:00"] {
            assert_eq!(parse_in(wrong, &zone), None, "{wrong}");
        }
    }
}
