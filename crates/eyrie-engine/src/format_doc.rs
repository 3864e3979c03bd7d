//! Compares the tables of `docs/format.md` with the structures of the code.
//!
//! A table that describes a structure has the columns `| field | offset | size | meaning |`. Offsets and
//! sizes are in bytes, or in bits for the fields of a word. The fields cover the structure without a gap.

const DESCRIPTION: &str = include_str!("../../../docs/format.md");

/// Gives the name, offset and size of each of the named fields of a structure, in bytes.
macro_rules! fields {
    ($structure:ty { $($field:ident),* $(,)? }) => {{
        let whole = <$structure as zerocopy::FromZeros>::new_zeroed();
        [$((
            stringify!($field),
            std::mem::offset_of!($structure, $field),
            std::mem::size_of_val(&whole.$field),
        )),*]
    }};
}
pub(crate) use fields;

/// Returns the cells of the first table under the heading `title`, one vector for each row, without the head
/// of the table.
pub(crate) fn cells(title: &str) -> Vec<Vec<&'static str>> {
    let heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').trim() == title;
    let mut lines = DESCRIPTION.lines().skip_while(|line| !heading(line)).skip(1);
    let table =
        lines.by_ref().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns the number in a cell of the table under `title`.
pub(crate) fn number(title: &str, cell: &str) -> usize {
    cell.parse().unwrap_or_else(|_| panic!("docs/format.md, section {title}: {cell} is no number"))
}

/// Returns the rows of the first table under the heading `title`: name, offset and size.
fn described(title: &str) -> Vec<(&'static str, usize, usize)> {
    let row = |cells: Vec<&'static str>| {
        (cells[0].trim_matches('`'), number(title, cells[1]), number(title, cells[2]))
    };
    cells(title).into_iter().map(row).collect()
}

/// Panics unless the table under `title` lists exactly `fields`, and these fields cover `size` bytes without
/// a gap. For the fields of a word, `size` is in bits.
pub(crate) fn assert_described(title: &str, size: usize, fields: &[(&str, usize, usize)]) {
    let rows = described(title);
    assert_eq!(rows, fields, "docs/format.md, section {title}");
    let end = rows.iter().fold(0, |end, &(name, offset, bytes)| {
        assert_eq!(offset, end, "docs/format.md, section {title}: a gap before {name}");
        offset + bytes
    });
    assert_eq!(end, size, "docs/format.md, section {title}: size");
}
