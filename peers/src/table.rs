//! The figures of a run, as tables.

/// Times of one operation, in µs: a list for each side, with an element for each round.
pub struct Row {
    pub name: &'static str,
    pub times: Vec<Vec<f64>>,
}

/// Returns the median, or NaN if there are no values. If the number of values is even, returns the larger one
/// of the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Prints a table in Markdown. The column of the first side has its time. Every other column has the time of
/// its side, and the ratio of this time to the time of the first side. A ratio above 1 means that the first
/// side is faster. The ratio is the median of the ratios of single rounds, because the two times of one round
/// have the same noise.
pub fn print(title: &str, sides: &[&str], rows: &[Row]) {
    println!("\n{title}\n");
    let others: String = sides[1..].iter().map(|side| format!(" {side} | × |")).collect();
    println!("| µs an operation | {} |{others}", sides[0]);
    println!("| --- | --- |{}", " --- | --- |".repeat(sides.len() - 1));
    for Row { name, times } in rows {
        let mut line = format!("| {name} | {} |", digits(median(&times[0])));
        for other in &times[1..] {
            let ratios: Vec<f64> = other.iter().zip(&times[0]).map(|(other, first)| other / first).collect();
            line += &format!(" {} | {} |", digits(median(other)), digits(median(&ratios)));
        }
        println!("{line}");
    }
}
