//! Times of files as text, in the time zone of the user.

use eyrie::Time;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// Years after which the Gregorian calendar repeats itself.
const CALENDAR_YEARS: i64 = 400;
/// The length of [`CALENDAR_YEARS`] in seconds.
const CALENDAR_SECONDS: i64 = 146_097 * 86_400;

/// Formats the date and the time of a second of any year, in UTC. `format` is the format of strftime(3) for
/// everything after the year.
fn civil(seconds: i64, format: &str) -> String {
    // The time of a file may have any number of seconds, but jiff supports years only up to 9999. The
    // Gregorian calendar repeats after 400 years. So the time is moved by whole cycles of 400 years to a year
    // from 1970 to 2369, and jiff formats the moved time. The years of these cycles are then added to the
    // year of the moved time.
    let cycles = seconds.div_euclid(CALENDAR_SECONDS);
    let second = seconds.rem_euclid(CALENDAR_SECONDS);
    let civil = Offset::UTC.to_datetime(Timestamp::from_second(second).unwrap_or_default());
    let year = i64::from(civil.year()) + cycles * CALENDAR_YEARS;
    format!("{year:04}-{}", civil.strftime(format))
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
}
