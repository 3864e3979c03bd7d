//! Disks with an impossible value in one field of the journal.

use super::super::fields::{FieldName, FieldRow, rows};
use super::journal::{self, Journal};

/// Returns the bytes of disks that differ from `disk` in one field of the journal, which has a value of
/// [`STRUCTURES`](crate::hostile::STRUCTURES). The field belongs to the anchor, to the first or the last
/// record, or to the first entry of its kind. The checksums of the anchor and of the records are valid,
/// unless the field is a checksum. Checksums of pages are not computed again.
///
/// # Panics
/// Panics if the journal of the sound `disk` has no record.
pub fn journal_damages(disk: &[u8]) -> impl Iterator<Item = (FieldName, Vec<u8>)> {
    let found = Journal::of(disk);
    let records = [found.records.first(), found.records.last()].map(|record| record.expect("a record").0);
    rows().flat_map(move |FieldRow { name, place, values, .. }| {
        let at = match name.0 {
            "Journal anchor" => vec![found.anchor],
            "Journal record" => records.to_vec(),
            "Fresh page" => found.fresh.first().copied().into_iter().collect(),
            "Changed page" => found.changed.first().copied().into_iter().collect(),
            _ => Vec::new(),
        };
        let images = at.into_iter().flat_map(move |at| values.iter().map(move |&value| (at, value)));
        images.filter_map(move |(at, value)| {
            let (at, len) = (at + place.bit / 8, place.bits.min(64) / 8);
            let (value, mut bytes) = (&value.to_le_bytes()[..len as usize], disk.to_vec());
            if &bytes[at as usize..][..len as usize] == value {
                return None;
            }
            journal::put(&mut bytes, at, value);
            if name.1 != "checksum" {
                journal::mend(&mut bytes);
            }
            Some((name, bytes))
        })
    })
}
