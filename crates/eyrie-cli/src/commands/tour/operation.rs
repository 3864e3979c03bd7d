//! The operations that the tour measures, and the numbers of files, keys and blocks from which they choose.

/// Number of operations in one timed batch.
pub const BATCH: u32 = 200;
/// Bytes that an operation reads or writes.
pub const BLOCK_BYTES: usize = 4096;

/// An operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Open an existing file by its path, and close it.
    Open,
    /// Read the attributes of an existing file by its path.
    Stat,
    /// Read one random aligned block of an open large file.
    Read,
    /// Read the next block of the large file. Each round continues where the previous round ended. After the
    /// last block of the file, the first block follows.
    ReadOn,
    /// Overwrite one random aligned block of the large file.
    Overwrite,
    /// Overwrite one random aligned block of the large file, and `fsync` the file.
    Sync,
    /// Append one block to an open file, which is empty at the start of each batch.
    Append,
    /// Create a file, write one block, close it.
    Create,
    /// Remove a file that `Create` made.
    Unlink,
    /// Rename an existing file within its directory.
    Rename,
    /// Copy out the value of an existing key. On the host: open, read, close.
    Get,
    /// Read the value of an existing key in place.
    GetInPlace,
    /// Replace the value of an existing key. On the host: create, write, close, rename.
    Put,
    /// Remove a key. On the host: unlink.
    Erase,
}

/// The size of the directory or store in which an operation works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A directory of 2000 files, or a store of 1000 keys.
    Few,
    /// A directory of [`Amounts::many`] files, or a store of as many keys.
    Many,
}

/// The numbers of blocks, files and keys from which operations choose.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Size of the file that is read and overwritten, in bytes.
    pub large_bytes: u64,
    /// Number of files, and number of keys, at [`Scale::Many`]. If it is 0, the rows of this scale are left
    /// out.
    pub many: u32,
}

impl Amounts {
    /// The amounts of a short tour.
    pub const SMALL: Amounts = Amounts { large_bytes: 128 << 20, many: 0 };
    /// The amounts of a tour with all rows.
    pub const FULL: Amounts = Amounts { large_bytes: 1 << 30, many: 100_000 };

    /// Returns the number of files from which operations choose.
    pub fn files(self, scale: Scale) -> u32 {
        if scale == Scale::Few { 2000 } else { self.many }
    }

    /// Returns the number of keys from which operations choose.
    pub fn keys(self, scale: Scale) -> u32 {
        if scale == Scale::Few { 1000 } else { self.many }
    }

    /// Returns the number of blocks, files or keys from which the operation of `row` chooses.
    pub fn among(self, row: Row) -> u32 {
        match row.operation {
            operation if operation.is_of_blocks() => (self.large_bytes / BLOCK_BYTES as u64) as u32,
            operation if operation.is_of_keys() => self.keys(row.scale),
            _ => self.files(row.scale),
        }
    }

    /// Returns the maximum room that the files and keys of one side need, in bytes.
    pub fn bytes(self) -> u64 {
        self.large_bytes + (256 << 20) + u64::from(self.many) * (2 * 4096)
    }
}

/// A row of the table: an operation at a scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The operation.
    pub operation: Operation,
    /// The size of the directory or store.
    pub scale: Scale,
}

/// Groups of operations. The operations of one group are measured together, because each makes the files that
/// the next operation needs.
const GROUPS: [&[Operation]; 13] = [
    &[Operation::Open],
    &[Operation::Stat],
    &[Operation::Read],
    &[Operation::ReadOn],
    &[Operation::Overwrite],
    &[Operation::Sync],
    &[Operation::Append],
    &[Operation::Create, Operation::Unlink],
    &[Operation::Rename],
    &[Operation::Get],
    &[Operation::GetInPlace],
    &[Operation::Put],
    &[Operation::Erase],
];

/// Returns the groups of rows. All operations come first, at [`Scale::Few`]. The operations that look up a
/// name follow, at [`Scale::Many`].
pub fn groups(amounts: Amounts) -> impl Iterator<Item = Vec<Row>> {
    let at = |scale| {
        move |group: &&[Operation]| -> Vec<Row> {
            group.iter().map(|&operation| Row { operation, scale }).collect()
        }
    };
    let scaled = move |group: &&&[Operation]| amounts.many > 0 && group[0].depends_on_scale();
    GROUPS.iter().map(at(Scale::Few)).chain(GROUPS.iter().filter(scaled).map(at(Scale::Many)))
}

/// Returns all rows.
#[cfg(test)]
pub fn rows(amounts: Amounts) -> impl Iterator<Item = Row> {
    groups(amounts).flatten()
}

impl Operation {
    /// Returns the name that tables show.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Open => "open + close",
            Operation::Stat => "stat",
            Operation::Read => "read 4 KiB",
            Operation::ReadOn => "read 4 KiB, sequential",
            Operation::Overwrite => "overwrite 4 KiB",
            Operation::Sync => "write 4 KiB + fsync",
            Operation::Append => "append 4 KiB",
            Operation::Create => "create + write 4 KiB",
            Operation::Unlink => "unlink",
            Operation::Rename => "rename",
            Operation::Get => "get 4 KiB",
            Operation::GetInPlace => "get in place",
            Operation::Put => "put 4 KiB",
            Operation::Erase => "erase",
        }
    }

    /// Returns true if the operation looks up a name, so that its time may depend on the number of names.
    fn depends_on_scale(self) -> bool {
        use Operation::{Append, Overwrite, Read, ReadOn, Sync};
        !matches!(self, Read | ReadOn | Overwrite | Sync | Append)
    }

    /// Returns true for an operation on blocks of the large file.
    fn is_of_blocks(self) -> bool {
        use Operation::{Overwrite, Read, ReadOn, Sync};
        matches!(self, Read | ReadOn | Overwrite | Sync)
    }

    /// Returns true for an operation on keys.
    fn is_of_keys(self) -> bool {
        use Operation::{Erase, Get, GetInPlace, Put};
        matches!(self, Get | GetInPlace | Put | Erase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operations_with_names_are_measured_among_many() {
        let rows: Vec<Row> = groups(Amounts::FULL).flatten().collect();
        let many = |operation| rows.contains(&Row { operation, scale: Scale::Many });
        assert!(many(Operation::Rename) && many(Operation::Erase) && !many(Operation::Append));
        assert!(groups(Amounts::SMALL).flatten().all(|row| row.scale == Scale::Few));
        assert_eq!(groups(Amounts::SMALL).flatten().count(), 14);
    }
}
