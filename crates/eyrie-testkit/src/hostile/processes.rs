//! Examines images in several processes. Threads of one process would wait for each other, because the kernel
//! has one lock for all mappings of a process.

use std::io;
use std::ops::Range;
use std::process::{Child, Command, Stdio};

use super::HostileReport;

/// Splits `seeds` into at most `count` parts. All parts except the last have the same number of seeds.
fn parts(seeds: &Range<u64>, count: u64) -> Vec<Range<u64>> {
    let each = (seeds.end - seeds.start).div_ceil(count.max(1)).max(1);
    let starts = (seeds.start..seeds.end).step_by(each as usize);
    starts.map(|start| start..seeds.end.min(start + each)).collect()
}

impl HostileReport {
    /// Returns the report as a line for the parent process.
    pub fn to_line(&self) -> String {
        let HostileReport { images, refused, broken, sound, panicked } = self;
        let panicked: Vec<String> = panicked.iter().map(u64::to_string).collect();
        format!("report {images} {refused} {broken} {sound} {}", panicked.join(" "))
    }

    /// Parses a line of [`HostileReport::to_line`].
    pub fn of_line(line: &str) -> Option<HostileReport> {
        let numbers: Option<Vec<u64>> =
            line.strip_prefix("report ")?.split_whitespace().map(|number| number.parse().ok()).collect();
        match numbers?[..] {
            [images, refused, broken, sound, ref panicked @ ..] => {
                Some(HostileReport { images, refused, broken, sound, panicked: panicked.to_vec() })
            }
            _ => None,
        }
    }
}

/// Examines the images of these seeds in at most `count` processes. `command` makes the command that examines
/// a part of them. Each process prints [`HostileReport::to_line`] as its last line.
///
/// # Errors
/// Fails if a process cannot be started, or ends without a report.
pub fn run_in_processes(
    seeds: &Range<u64>,
    count: u64,
    command: impl Fn(Range<u64>) -> Command,
) -> io::Result<HostileReport> {
    let children: Vec<Child> = parts(seeds, count)
        .into_iter()
        .map(|part| command(part).stdout(Stdio::piped()).spawn())
        .collect::<io::Result<_>>()?;
    let mut report = HostileReport::default();
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let part = text.lines().last().and_then(HostileReport::of_line);
        report.add(&part.ok_or_else(|| io::Error::other("a process ended before it printed its report"))?);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_seeds_once() {
        assert_eq!(parts(&(5..12), 3), [5..8, 8..11, 11..12]);
        assert_eq!(parts(&(5..7), 3), [5..6, 6..7]);
        assert!(parts(&(5..5), 3).is_empty());
    }

    #[test]
    fn a_report_survives_its_line() {
        let report = HostileReport { images: 9, refused: 2, broken: 3, sound: 4, panicked: vec![7, 8] };
        let same = HostileReport::of_line(&report.to_line()).expect("a report");
        assert_eq!(same.to_line(), report.to_line());
        assert!(HostileReport::of_line("other").is_none());
    }
}
