//! Checks that the ratios in README.md are those of the results of the benchmark.

use super::{assert_none, read, root};

/// Rows of README.md, and the names of the same rows in the results.
const KEYS: [(&str, &str); 8] = [
    ("in memory: get", "get"),
    ("put", "put"),
    ("erase", "erase"),
    ("100 puts in a transaction", "100 puts in a transaction, each"),
    ("load, 1,000 puts in a transaction", "load, 1,000 in a transaction, each"),
    ("scan of all in order, with values", "scan in order, each"),
    ("on a disk: durable put", "put"),
    ("100 puts in a durable transaction", "100 puts in a transaction, each"),
];
const FILES: [(&str, &str); 10] = [
    ("open + close", "open + close"),
    ("stat", "stat"),
    ("read 4 KiB of 1 GiB, in memory", "read 4 KiB"),
    ("overwrite 4 KiB of 1 GiB", "overwrite 4 KiB"),
    ("append 4 KiB", "append 4 KiB"),
    ("overwrite 1 MiB of 1 GiB", "overwrite 1 MiB"),
    ("create + write 4 KiB", "create + write 4 KiB"),
    ("rename", "rename"),
    ("unlink", "unlink"),
    ("overwrite 4 KiB + fsync", "write 4 KiB + fsync"),
];

/// Returns those tables of a page that begin with the cells `head`. Each table is a list of the rows below
/// its header, and each row is a list of cells.
fn tables(page: &str, head: &str) -> Vec<Vec<Vec<String>>> {
    let text = read(root().join(page));
    let cells = |row: &str| row.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let blocks = text.split("\n\n").filter(|block| block.starts_with(&format!("| {head} |")));
    blocks.map(|block| block.lines().skip(2).map(cells).collect()).collect()
}

/// Returns the ratios of a row: each is in the column after the time of the other side.
fn ratios(table: &[Vec<String>], name: &str) -> Vec<String> {
    let Some(row) = table.iter().find(|row| row[0] == name) else { return Vec::new() };
    let ratio = |cell: &String| {
        let ratio: f64 = cell.parse().expect("a ratio");
        match ratio < 9.95 {
            true => format!("{:.1}", (ratio * 10.0).round() / 10.0),
            false => format!("{:.0}", ratio.round()),
        }
    };
    row.iter().skip(3).step_by(2).filter(|cell| !cell.is_empty()).map(ratio).collect()
}

/// Returns the rows of `table` in README.md that differ from `expected`.
fn wrong(table: &[Vec<String>], expected: &[(&str, Vec<String>)]) -> Vec<String> {
    assert_eq!(table.len(), expected.len(), "{table:?}");
    let is_other = |(row, (name, cells)): &(&Vec<String>, &(&str, Vec<String>))| {
        row[0] != *name || row[1..=cells.len()] != cells[..]
    };
    let pairs = table.iter().zip(expected).filter(is_other);
    pairs.map(|(row, expected)| format!("{row:?}, the results have {expected:?}")).collect()
}

#[test]
fn readme_has_the_ratios_of_the_results() {
    let results = "docs/results/bench.md";
    let [large, small, large_disk, small_disk] = &tables(results, "µs an operation | Eyrie | LMDB")[..]
    else {
        panic!("{results} has four tables of stores")
    };
    let of_keys = |(at, (name, row)): (usize, (&'static str, &str))| {
        let (large, small) = if at < 6 { (large, small) } else { (large_disk, small_disk) };
        let both = ratios(large, row).into_iter().zip(ratios(small, row));
        (name, both.map(|(large, small)| format!("{large} ({small})")).collect())
    };
    let expected: Vec<(&str, Vec<String>)> = KEYS.into_iter().enumerate().map(of_keys).collect();
    assert_none("ratios of stores", &wrong(&tables("README.md", "operation | LMDB")[0], &expected));

    let memory = &tables(results, "µs an operation | Eyrie | tmpfs")[0];
    let disk = &tables(results, "µs an operation | Eyrie | ext4")[0];
    let of_files = |(name, row): (&'static str, &str)| {
        let many = format!("{row}, of 100,000");
        let cells = [ratios(memory, row), ratios(memory, &many), ratios(disk, row)];
        (name, cells.map(|cells| cells.concat()).to_vec())
    };
    let expected: Vec<(&str, Vec<String>)> = FILES.into_iter().map(of_files).collect();
    let shown = &tables("README.md", "operation on files")[0];
    assert_none("ratios of files", &wrong(shown, &expected));
}
