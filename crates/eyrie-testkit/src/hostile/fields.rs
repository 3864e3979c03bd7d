//! Lists every field of the format, with values for tests to write into the field of a sound volume.
//!
//! The tables of `docs/format.md` have the offsets of the fields. A test compares the rows of [`STRUCTURES`]
//! with those tables.

use std::collections::BTreeMap;

use super::{BaseVolume, Image};

const DESCRIPTION: &str = include_str!("../../../../docs/format.md");

/// The values that a test writes into a field of a sound volume. The variants differ in the result that the
/// test requires.
#[derive(Clone, Copy, Debug)]
pub enum FieldValues {
    /// Values that a check must detect if the field is in use.
    MustBeDetected(&'static [u64]),
    /// Values that a check need not detect. The text is the reason: for example, readers ignore the field.
    MayPass(&'static [u64], &'static str),
    /// No values. The text is the reason: for example, each value is possible.
    Untested(&'static str),
}

use FieldValues::{MayPass, MustBeDetected, Untested};

const ALL: u64 = u64::MAX;
const SECOND: u64 = 1_000_000_000;
const NANOSECONDS: FieldValues = MustBeDetected(&[SECOND, 0xffff_ffff]);
const SECONDS: FieldValues = Untested("a time may have any number of seconds");
const RESERVED: FieldValues = MayPass(&[1], "no reader looks at it");
const IN_THE_ENGINE: FieldValues = Untested("impossible_tables_are_refused tries impossible values");
const EXTREMES: FieldValues = MustBeDetected(&[0, 1, ALL]);
const FEATURES: FieldValues = MustBeDetected(&[1, ALL]);
const COMPUTED: FieldValues = Untested("the checksum is computed again after each change of a field");
const NUMBER: FieldValues = Untested("every number is possible");
const ANCHOR: FieldValues = MayPass(&[0, 1, ALL], "the open may fail, or find no record");
const RECORD: FieldValues = MayPass(&[0, 1, ALL], "the journal may end before the record");

/// A structure of the format: the heading of its table, and its fields.
pub type Structure = (&'static str, &'static [(&'static str, FieldValues)]);

/// All structures.
pub const STRUCTURES: &[Structure] = &[
    (
        "Superblock",
        &[
            ("magic", MustBeDetected(&[0, ALL])),
            ("version", MustBeDetected(&[0, 2, 0xffff_ffff])),
            ("checksum", COMPUTED),
            ("sequence", NUMBER),
            ("volume_id", NUMBER),
            ("compat", Untested("features that may be ignored")),
            ("ro_compat", FEATURES),
            ("incompat", FEATURES),
            ("block_bytes", MustBeDetected(&[0, 1, 512, 8192, 0xffff_ffff])),
            ("realms", MustBeDetected(&[0, 2])),
            ("group_bytes", MustBeDetected(&[0, 1, 4096, 65_537, ALL])),
            ("volume_bytes", MustBeDetected(&[0, 1, 4096, 1 << 40, ALL])),
            ("hash_seed", MustBeDetected(&[ALL])),
            ("root", MustBeDetected(&[1, 2, 64, ALL])),
            ("created_seconds", SECONDS),
            ("created_nanoseconds", NANOSECONDS),
            ("segments", MustBeDetected(&[0, 2, 0xffff_ffff])),
            ("medium", MustBeDetected(&[0, 4, 255])),
            ("reserved", RESERVED),
            ("most_bytes", MustBeDetected(&[0, 1, 4096, 1 << 41, ALL])),
            ("disk_bytes", MayPass(&[1, ALL], "a volume in a file does not use it")),
            ("reserved_1", RESERVED),
            ("segment_bytes", MustBeDetected(&[0, 1, ALL])),
            ("reserved_end", RESERVED),
        ],
    ),
    (
        "Segment header",
        &[
            ("magic", NO_SEGMENT),
            ("version", NO_SEGMENT),
            ("checksum", NO_SEGMENT),
            ("volume_id", NO_SEGMENT),
            ("segment", NO_SEGMENT),
            ("reserved", NO_SEGMENT),
            ("bytes", NO_SEGMENT),
            ("reserved_end", NO_SEGMENT),
        ],
    ),
    (
        "Volume page",
        &[
            ("generation_limit", MustBeDetected(&[0, 1])),
            ("reserved_0", RESERVED),
            ("groups_in_use", MayPass(&[0, ALL], "the groups in use follow from the objects")),
            ("reserved_1", RESERVED),
            ("clean", MayPass(&[0, 1, ALL], "recovery then rebuilds the free space from the objects")),
            ("saved_addr", MayPass(&[0, 1, ALL], "recovery then rebuilds the free space from the objects")),
            ("saved_bytes", MayPass(&[0, 1, ALL], "recovery then rebuilds the free space from the objects")),
            ("saved_checksum", COMPUTED),
            ("reserved_2", RESERVED),
            ("owners", MayPass(&[1, ALL], "clients only compare the number")),
            ("reserved_3", RESERVED),
            ("request", Untested("see the request record")),
            ("outcomes", Untested("see the outcome record")),
            ("reserved_4", RESERVED),
        ],
    ),
    (
        "Request record",
        &[
            ("key", MayPass(&[1, ALL], "the next owner then looks for the result of a request")),
            ("number", MayPass(&[1, ALL], "a request may have any number")),
            ("object", MayPass(&[1, ALL], "a request without an object counts as not made")),
            ("new", MayPass(&[1, ALL], "a request without an object counts as not made")),
            ("seconds", MayPass(&[1, ALL], "a change may have any time")),
            ("nanoseconds", MayPass(&[1, SECOND, 0xffff_ffff], "a change may have any time")),
            ("name_bytes", MayPass(&[1, 257, 0xffff_ffff], "a request without an object counts as not made")),
            ("appended", MayPass(&[1, ALL], "only the client uses the offset that follows from it")),
            ("name", Untested("a name may have any bytes")),
            ("reserved", RESERVED),
        ],
    ),
    (
        "Outcome record",
        &[
            ("key", MayPass(&[1, ALL], "only a client with this key asks for it")),
            ("number", MayPass(&[1, ALL], "only a client asks for it")),
            ("result", MayPass(&[1, ALL], "only a client asks for it")),
            ("made", MayPass(&[1, 2, 3, ALL], "only a client asks for it")),
        ],
    ),
    (
        "Pointers",
        &[
            ("leaf", MayPass(&[0, 1], "a pointer of the other kind may be right, too")),
            ("shared", MayPass(&[1], "it is harmless on the only pointer to a page")),
            ("unwritten", MayPass(&[1], "a leaf below a node and the root of a tree may have it")),
            ("height", MayPass(&[7], "a pointer past the end of a file has no meaning")),
            ("address", MayPass(&[1, (1 << 50) - 1], "a pointer past the end of a file has no meaning")),
            ("class", MayPass(&[0, 72, 255], "a pointer past the end of a file has no meaning")),
        ],
    ),
    (
        "Identity",
        &[
            ("magic", EXTREMES),
            ("kind", MustBeDetected(&[0, 8, 255])),
            ("reserved_flags", MustBeDetected(&[1])),
            ("generation", MustBeDetected(&[ALL])),
            ("realm", MustBeDetected(&[1])),
            ("created_nanoseconds", NANOSECONDS),
            ("created_seconds", SECONDS),
            ("reserved", MustBeDetected(&[1])),
        ],
    ),
    (
        "Hot line",
        &[
            ("selector", EXTREMES),
            ("copies", Untested("see the hot copy")),
            ("modified_nanoseconds", MustBeDetected(&[SECOND << 32 | SECOND, ALL])),
        ],
    ),
    (
        "Hot copy",
        &[
            ("root", MustBeDetected(&[1, 2, ALL])),
            ("size", MustBeDetected(&[1 << 63, ALL])),
            ("modified_seconds", SECONDS),
        ],
    ),
    (
        "Selector",
        &[
            ("hot_copy", Untested("the other copy may be valid, too")),
            ("cold_copy", Untested("the other copy may be valid, too")),
            ("follows", Untested("both answers are possible")),
            ("kind", MustBeDetected(&[0])),
            ("sealed", Untested("both answers are possible")),
            ("unlinked", MustBeDetected(&[1])),
            ("version", NUMBER),
        ],
    ),
    (
        "Cold copy",
        &[
            ("mode", MustBeDetected(&[0o10000, 0xffff])),
            ("flags", MustBeDetected(&[2, 4, 8, 0x10, 0x20, 0xffff])),
            ("uid", NUMBER),
            ("gid", NUMBER),
            ("links", MustBeDetected(&[0, 1000, 0xffff_ffff])),
            ("accessed_seconds", SECONDS),
            ("changed_seconds", SECONDS),
            ("accessed_nanoseconds", NANOSECONDS),
            ("changed_nanoseconds", MayPass(&[SECOND, 0xffff_ffff], "it may follow the modification time")),
            ("parent_or_device", MayPass(&[1, ALL], "only directories and devices have one")),
            ("xattr_root", MustBeDetected(&[1, 2, ALL])),
            ("times_version", NUMBER),
            ("project", MustBeDetected(&[1])),
        ],
    ),
    (
        "Block of extended attributes",
        &[
            ("bytes", MustBeDetected(&[0, 1, 0xffff_ffff])),
            ("count", MustBeDetected(&[0, 1000, 0xffff_ffff])),
        ],
    ),
    (
        "Entry of a block",
        &[
            ("value_bytes", MustBeDetected(&[65_537, 0xffff_ffff])),
            ("name_bytes", MustBeDetected(&[0, 256, 0xffff])),
        ],
    ),
    ("Head of the limits", &[("bytes_grace", NUMBER), ("files_grace", NUMBER)]),
    (
        "Limits of an account",
        &[
            ("kind", IN_THE_ENGINE),
            ("number", IN_THE_ENGINE),
            ("bytes_soft", IN_THE_ENGINE),
            ("bytes_hard", IN_THE_ENGINE),
            ("bytes_deadline", SECONDS),
            ("files_soft", IN_THE_ENGINE),
            ("files_hard", IN_THE_ENGINE),
            ("files_deadline", SECONDS),
        ],
    ),
    (
        "Redo slot",
        &[
            ("state", MayPass(&[1, ALL], "a closed volume has no record, and a record needs a checksum")),
            ("place", Untested("it has no meaning in a free slot")),
            ("reserved", Untested("it has no meaning")),
            ("words", Untested("they have no meaning in a free slot")),
        ],
    ),
    (
        "Redo word",
        &[
            ("address", Untested("it has no meaning in a free slot")),
            ("value", Untested("it has no meaning in a free slot")),
        ],
    ),
    (
        "Saved allocator",
        &[
            ("magic", SAVED),
            ("version", SAVED),
            ("reserved", SAVED),
            ("volume_id", SAVED),
            ("words", SAVED),
            ("slabs", SAVED),
            ("chunks", SAVED),
            ("live_bytes", SAVED),
            ("objects", SAVED),
            ("shared", SAVED),
            ("reserved_end", SAVED),
        ],
    ),
    ("Saved slab page", &[("page", SAVED), ("class", SAVED), ("reserved", SAVED), ("free", SAVED)]),
    ("Saved header chunk", &[("chunk", SAVED), ("reserved", SAVED), ("free", SAVED)]),
    (
        "Saved run of shared pages",
        &[("page", SAVED), ("pages", SAVED), ("pointers", SAVED), ("reserved", SAVED)],
    ),
    ("Collection table", &[("buckets", MustBeDetected(&[0, 1 << 20, ALL])), ("reserved", RESERVED)]),
    (
        "Bucket page",
        &[
            ("commit", MustBeDetected(&[ALL])),
            ("link", MustBeDetected(&[1, ALL])),
            ("directories", MustBeDetected(&[0xffff_ffff])),
            ("gap_start", MustBeDetected(&[257, 0xffff])),
            ("gap_end", MustBeDetected(&[257, 0xffff])),
            ("reserved", RESERVED),
            ("stamps", Untested("see the stamp")),
            ("lines", Untested("see the line of slots")),
            ("lengths", MayPass(&[0, ALL], "they have no meaning for a slot that is not live")),
        ],
    ),
    (
        "Line of slots",
        &[
            ("slots", Untested("see the slot")),
            ("tags", MayPass(&[0, 255], "they have no meaning for a slot that is not live")),
            ("spilled", MayPass(&[0, 255], "a bit may be set without need")),
        ],
    ),
    ("Slot", &[("id", MustBeDetected(&[0, 1, (1 << 56) - 1])), ("offset", MustBeDetected(&[0, 255]))]),
    (
        "Stamp of a bucket page",
        &[
            ("seconds", SECONDS),
            ("nanoseconds", MayPass(&[SECOND, 0xffff_ffff], "one of the two stamps does not count")),
            ("times_version", NUMBER),
        ],
    ),
    (
        "Record",
        &[
            ("hash", EXTREMES),
            ("name_len", MustBeDetected(&[0, 256, 0xffff])),
            ("name", MustBeDetected(&[0x1234_5678_9abc])),
        ],
    ),
    (
        "Journal anchor",
        &[
            ("magic", ANCHOR),
            ("id", ANCHOR),
            ("volume_bytes", ANCHOR),
            ("journal_bytes", ANCHOR),
            ("version", ANCHOR),
            ("checksum", ANCHOR),
            ("reserved", ANCHOR),
        ],
    ),
    (
        "Journal record",
        &[
            ("magic", RECORD),
            ("id", RECORD),
            ("sequence", RECORD),
            ("bytes", RECORD),
            ("fresh", RECORD),
            ("changed", RECORD),
            ("checksum", RECORD),
            ("overflow", RECORD),
            ("reserved", RECORD),
        ],
    ),
    ("Fresh page", &[("page", RECORD), ("checksum", RECORD), ("reserved", RECORD)]),
    ("Changed page", &[("page", RECORD), ("lines", RECORD)]),
];

const NO_SEGMENT: FieldValues = Untested("a volume of version 1 has no further segment");
const SAVED: FieldValues = MayPass(&[0, 1, ALL], "recovery rebuilds the free space if the bytes are invalid");

/// The place of a field in its structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldPlace {
    /// Number of bits from the start of the structure.
    pub bit: u64,
    /// Number of bits of the field.
    pub bits: u64,
}

/// Returns the fields in the tables of `docs/format.md`, by structure and name.
///
/// # Panics
/// Panics if a row of a table is malformed.
pub fn described() -> BTreeMap<(&'static str, &'static str), FieldPlace> {
    let mut found = BTreeMap::new();
    let (mut heading, mut unit) = ("", 0);
    for line in DESCRIPTION.lines() {
        if line.starts_with('#') {
            (heading, unit) = (line.trim_start_matches('#').trim(), 0);
        } else if line.starts_with("| field | offset | size |") {
            unit = 8;
        } else if line.starts_with("| field | bit | bits |") {
            unit = 1;
        } else if !line.starts_with('|') {
            unit = 0;
        } else if unit > 0 && !line.starts_with("| ---") {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let number = |cell: &str| cell.parse::<u64>().expect("a number") * unit;
            let place = FieldPlace { bit: number(cells[1]), bits: number(cells[2]) };
            found.insert((heading, cells[0].trim_matches('`')), place);
        }
    }
    found
}

/// A field of [`STRUCTURES`], and the values for it.
pub(super) struct FieldRow {
    pub name: FieldName,
    pub place: FieldPlace,
    pub values: &'static [u64],
    must_be_detected: bool,
}

/// Returns all fields of [`STRUCTURES`], also those without values.
pub(super) fn rows() -> impl Iterator<Item = FieldRow> {
    let places = described();
    let rows = STRUCTURES
        .iter()
        .flat_map(|(structure, fields)| fields.iter().map(|&(field, values)| ((*structure, field), values)));
    rows.map(move |(name, values)| {
        let (values, must_be_detected) = match values {
            MustBeDetected(values) => (values, true),
            MayPass(values, _) => (values, false),
            Untested(_) => (&[][..], false),
        };
        FieldRow { name, place: places[&name], values, must_be_detected }
    })
}

/// A field: the heading of the table of its structure, and its name.
pub type FieldName = (&'static str, &'static str);

/// A volume with a value of [`STRUCTURES`] in one field.
pub struct FieldDamage<'b> {
    /// The field.
    pub name: FieldName,
    /// The value.
    pub value: u64,
    /// True if a check must detect the value.
    pub must_be_detected: bool,
    /// The volume.
    pub image: Image<'b>,
}

/// Returns images of `base`, each with a value of [`STRUCTURES`] in one field. A volume has these parts: its
/// tables, the root directory, and the other objects of each kind. Each value is tried in at most `most`
/// places of each part, with one image for each place. A place gets no image if the value would change no bit
/// that has a meaning.
pub fn field_damages(base: &BaseVolume, most: usize) -> impl Iterator<Item = FieldDamage<'_>> {
    rows().flat_map(move |FieldRow { name, place, values, must_be_detected }| {
        let structure = name.0;
        let of_structure = base.survey.places.iter().filter(move |((heading, _), _)| *heading == structure);
        let spread = |found: &Vec<u64>| {
            found.iter().copied().step_by(found.len().div_ceil(most).max(1)).collect::<Vec<_>>()
        };
        let at: Vec<u64> = of_structure.flat_map(|(_, found)| spread(found)).collect();
        values.iter().flat_map(move |&value| {
            at.clone().into_iter().filter_map(move |at| {
                let image = with(base, name, at, place, value)?;
                Some(FieldDamage { name, value, must_be_detected, image })
            })
        })
    })
}

/// Returns `base` with `value` in a field of the structure at `at`. Returns `None` if the value would change
/// no bit that has a meaning.
fn with<'b>(
    base: &'b BaseVolume,
    (structure, field): FieldName,
    at: u64,
    place: FieldPlace,
    value: u64,
) -> Option<Image<'b>> {
    let mut image = Image::new(base);
    let copies: &[u64] = match structure {
        // The value goes into both copies, because an engine ignores a bad copy if the other is good.
        "Superblock" => &[0, eyrie_medium::PAGE_SIZE],
        _ => &[0],
    };
    for copy in copies {
        let (first, last) = (at + copy + place.bit / 8, at + copy + (place.bit + place.bits).div_ceil(8));
        let len = (last - first).min(8);
        let mut bytes = [0; 8];
        bytes[..len as usize].copy_from_slice(&image.read(first, len));
        let (shift, bits) = (place.bit % 8, place.bits.min(64));
        let mask = if bits == 64 { ALL } else { ((1 << bits) - 1) << shift };
        let word = u64::from_le_bytes(bytes);
        let changed = word & !mask | value << shift & mask;
        let used = match (structure, field) {
            // The bit of a slot that is not live has no meaning.
            ("Bucket page", "directories") => image.word(at) & u64::from(u32::MAX),
            _ => ALL,
        };
        if (changed ^ word) & used == 0 {
            return None;
        }
        image.write(first, &changed.to_le_bytes()[..len as usize]);
    }
    image.mend_checksums();
    Some(image)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hostile::{bases, disk_bases, journal_damages};

    #[test]
    fn every_field_of_the_format_has_a_row() {
        let described: BTreeSet<_> = described().into_keys().collect();
        let rows =
            STRUCTURES.iter().flat_map(|(structure, fields)| fields.iter().map(|row| (*structure, row.0)));
        assert_eq!(rows.collect::<BTreeSet<_>>(), described);
    }

    #[test]
    fn every_row_with_values_gives_an_image() {
        let bases = bases();
        let of_volumes = bases.iter().flat_map(|base| field_damages(base, 1)).map(|damage| damage.name);
        let disks = disk_bases();
        let of_disks = disks.iter().flat_map(|disk| journal_damages(&disk.bytes)).map(|(name, _)| name);
        let given: BTreeSet<_> = of_volumes.chain(of_disks).collect();
        let with_values = rows().filter(|row| !row.values.is_empty()).map(|row| row.name);
        assert_eq!(given, with_values.collect::<BTreeSet<_>>());
    }
}
