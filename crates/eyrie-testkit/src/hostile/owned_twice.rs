//! Images in which an extent has two owners, or a header has more names than it counts.

use eyrie_engine::object::pointer::Pointer;

use super::{BaseVolume, Image};

/// Offset of the first pointer to a segment in the table of a directory, in bytes.
const FIRST_SEGMENT: u64 = 64;
/// The highest byte of a slot is the offset of the record, not a part of the id.
const RECORD_PLACE: u64 = 0xff << 56;

/// Returns images of the base "few", each with a short description:
/// - the files `b` and `k2` share one extent;
/// - the bytes of the file `b` are a page of the directory `d`;
/// - the name `c` leads to the object `a`, whose number of names does not include this name, and the object
///   `c` has no name.
///
/// # Panics
/// Panics if `base` is another base volume.
pub fn owned_twice(base: &BaseVolume) -> [(&'static str, Image<'_>); 3] {
    assert_eq!(base.name, "few");
    let sound = Image::new(base);
    let mut extent = Image::new(base);
    let (b, k2) = (base.hot_copy(b"b"), base.hot_copy(b"k2"));
    [0, 8].into_iter().for_each(|field| extent.write_word(b + field, sound.word(k2 + field)));

    let mut page = Image::new(base);
    let pointed = |at: u64| Pointer::from_raw(sound.word(at)).extent().expect("a directory with a page");
    let bucket = pointed(pointed(base.hot_copy(b"d")).addr.offset() + FIRST_SEGMENT);
    page.write_word(b, Pointer::leaf(bucket).raw());
    page.write_word(b + 8, bucket.bytes());

    let mut header = Image::new(base);
    let id = |name: &[u8]| base.survey.named[name].0.raw();
    for &slot in base.survey.ids.iter().filter(|&&slot| sound.word(slot) & !RECORD_PLACE == id(b"c")) {
        header.write_word(slot, sound.word(slot) & RECORD_PLACE | id(b"a"));
    }
    [
        ("extent of two files", extent),
        ("page of a file and a directory", page),
        ("header of two names", header),
    ]
}
