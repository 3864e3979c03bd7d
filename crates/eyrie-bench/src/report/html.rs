//! A report as one page, with its charts and styles, and without any other file.

use std::fmt::Write;

use super::chart::{Bar, Group, bars, escaped};
use super::tables::name;
use super::{BenchReport, ReportTable};
use crate::method::digits;

const STYLE: &str = include_str!("page.css");

/// Draws the ratios of all other sides to the first side.
fn ratios(report: &BenchReport) -> String {
    let group = |row: &crate::method::Row| {
        let bar = |(side, figures): (usize, &Option<crate::method::Figures>)| {
            let figures = figures.as_ref()?;
            let ratio = figures.ratio?;
            let [low, high] = figures.ratio_quartiles.unwrap_or([ratio; 2]);
            let hint = format!(
                "{}: {} times the time of {} (middle half of the rounds: {} to {})",
                report.sides[side].name,
                digits(ratio),
                report.sides[0].name,
                digits(low),
                digits(high)
            );
            Some(Bar { side, ends: [1.0, ratio], value: format!("{}×", digits(ratio)), hint })
        };
        Group { name: name(row), bars: row.sides.iter().enumerate().filter_map(bar).collect() }
    };
    let groups: Vec<Group> = report.rows.iter().map(group).filter(|group| !group.bars.is_empty()).collect();
    bars(&groups, true)
}

/// Draws the latencies. A bar goes from the median to the 99th percentile.
fn latencies(report: &BenchReport) -> String {
    let group = |row: &crate::method::Row| {
        let bar = |(side, figures): (usize, &Option<crate::method::Figures>)| {
            let latency = figures.as_ref()?.latency?;
            let hint = format!(
                "{}: 50 % {} µs, 90 % {} µs, 99 % {} µs, 99.9 % {} µs, slowest {} µs",
                report.sides[side].name,
                digits(latency.p50),
                digits(latency.p90),
                digits(latency.p99),
                digits(latency.p999),
                digits(latency.most)
            );
            let value = format!("{} – {}", digits(latency.p50), digits(latency.p99));
            Some(Bar { side, ends: [latency.p50, latency.p99], value, hint })
        };
        Group { name: name(row), bars: row.sides.iter().enumerate().filter_map(bar).collect() }
    };
    let groups: Vec<Group> = report.rows.iter().map(group).filter(|group| !group.bars.is_empty()).collect();
    bars(&groups, false)
}

fn table(table: &ReportTable) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
    for cell in &table.header {
        let _ = write!(html, "<th>{}</th>", escaped(cell));
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

fn legend(report: &BenchReport) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (number, side) in report.sides.iter().enumerate() {
        let _ = write!(html, "<span><i class=\"b{number}\"></i>{}</span> ", escaped(&side.name));
    }
    html.push_str("</p>\n");
    html
}

/// Returns the page.
pub(super) fn page(report: &BenchReport) -> String {
    let title = escaped(&report.title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Eyrie: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
         <p><code>{}</code> · Eyrie {}</p>\n",
        escaped(&report.command),
        report.version
    );
    html.push_str(&legend(report));
    let first = escaped(report.sides.first().map_or("", |side| &side.name));
    let chart = ratios(report);
    if !chart.is_empty() {
        let _ = write!(
            html,
            "<h2>Time, divided by the time of {first}</h2>\n<p>If the bar of a side goes to the right of the \
             line, {first} is faster. The scale is logarithmic.</p>\n<figure>{chart}</figure>\n"
        );
    }
    let times = report.times();
    let _ = write!(html, "<h2>{}</h2>\n{}", escaped(&times.title), table(&times));
    html.push_str(
        "<p>± is half of the distance between the quartiles of the rounds, in percent of the median. × is \
         the median of the ratios of single rounds.</p>\n",
    );
    let chart = latencies(report);
    if !chart.is_empty() {
        let _ = write!(
            html,
            "<h2>Latency</h2>\n<p>In µs, from the median to the 99th percentile. The time of each call \
             includes one reading of the clock. If a call makes several operations, such as a scan, its \
             latency is its time divided by their number. The scale is logarithmic.</p>\n\
             <figure>{chart}</figure>\n"
        );
        let _ = writeln!(
            html,
            "<details><summary>Table of latencies</summary>{}</details>",
            table(&report.latencies())
        );
    }
    if let Some(media) = report.media() {
        let _ = write!(html, "<h2>{}</h2>\n{}", escaped(&media.title), table(&media));
    }
    html.push_str("<h2>Machine, sides and method</h2>\n<ul>\n");
    for line in report.lines() {
        let _ = writeln!(html, "<li>{}</li>", escaped(&line));
    }
    html.push_str("</ul>\n</main>\n</body>\n</html>\n");
    html
}
