//! Damage that follows the format. Most of it hits structures in use, with plausible values.

use std::mem::offset_of;

use eyrie_engine::extent::{Class, Extent};
use eyrie_engine::object::pointer::Pointer;
use eyrie_engine::volume::layout::{CLEAN_MARK, SUPERBLOCKS, Superblock};
use eyrie_engine::volume::{REDO_SLOTS, redo_slot};
use eyrie_medium::{Addr, PAGE_SIZE};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::{BaseVolume, Image};

const HEADER_BYTES: u64 = 256;
/// Maximum height of a tree.
const HEIGHT: u64 = 6;
/// Number of slots of a node.
const FANOUT: u64 = 512;

/// One damage. Offsets are in bytes from the start of the volume, and lengths are in bytes.
#[expect(missing_docs, reason = "the variants say it")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Flips a bit.
    Flip { at: u64, bit: u8 },
    /// Overwrites a word with another value, absurd or plausible.
    Word { at: u64, value: u64 },
    /// Exchanges two ranges.
    Swap { a: u64, b: u64, len: u64 },
    /// Copies a range over another.
    Copy { from: u64, to: u64, len: u64 },
    /// Fills a node with one pointer.
    Fill { node: u64, value: u64 },
    /// Gives a file a tree of the maximum height. All pointers of a node lead to the same page, so a walk
    /// would visit a few pages very many times. There is one exception: in the lowest node, some or all
    /// pointers may be null, as `slots` says. The leaf and the nodes are in the pages from `page` on.
    Bomb { file: u64, page: u64, slots: LowestSlots },
    /// Writes a redo record that no commit wrote.
    Redo { slot: usize, words: Vec<(u64, u64)> },
    /// Makes the segment shorter or longer.
    Length { len: u64 },
    /// Clears the clean mark.
    Unclean,
}

/// The slots of the lowest node of a [`Damage::Bomb`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LowestSlots {
    /// Null pointers.
    Null,
    /// Leaves.
    Leaves,
    /// Leaves in the even slots, and null pointers in the odd slots.
    Alternating,
}

impl LowestSlots {
    /// All kinds of slots.
    pub const ALL: [LowestSlots; 3] = [LowestSlots::Null, LowestSlots::Leaves, LowestSlots::Alternating];
}

impl Damage {
    /// Draws a damage of `base`.
    pub fn draw(random: &mut SmallRng, base: &BaseVolume) -> Damage {
        let survey = &base.survey;
        let bytes = base.bytes.len() as u64;
        match random.random_range(0..100) {
            0..8 => Damage::Flip { at: random.random_range(0..bytes), bit: random.random_range(0..8) },
            8..24 => {
                let at = base.somewhere(random);
                Damage::Flip { at, bit: random.random_range(0..8) }
            }
            24..36 => {
                let at = base.somewhere(random) & !7;
                Damage::Word { at, value: word(random, base) }
            }
            36..54 => {
                let at = *survey.pointers.choose(random).expect("every volume has pointers");
                Damage::Word { at, value: pointer(random, base, at) }
            }
            54..66 => {
                let ids = if survey.ids.is_empty() { &survey.counts } else { &survey.ids };
                let (at, like) = (*ids.choose(random).expect("counts"), *ids.choose(random).expect("counts"));
                let stored = word_of(base, at);
                // The highest byte stays unchanged, because in a slot it is the offset of the record.
                let value = if random.random() { id(random, base) } else { word_of(base, like) };
                Damage::Word { at, value: stored & 0xff << 56 | value & !(0xff << 56) }
            }
            66..76 => {
                let at = *survey.counts.choose(random).expect("every volume has counts");
                Damage::Word { at, value: word(random, base) }
            }
            76..86 => move_bytes(random, base),
            86..88 => fill(random, base),
            88 => match base.survey.files.choose(random) {
                Some(&file) => {
                    let page = random.random_range(32..bytes / PAGE_SIZE - 8) * PAGE_SIZE;
                    let slots = *LowestSlots::ALL.choose(random).expect("three");
                    Damage::Bomb { file, page, slots }
                }
                None => Damage::Unclean,
            },
            89..92 => Damage::Redo {
                slot: random.random_range(0..REDO_SLOTS),
                words: (0..random.random_range(1..4))
                    .map(|_| (base.somewhere(random) & !7, word(random, base)))
                    .collect(),
            },
            92..95 => superblock(random, base),
            95..97 => Damage::Length { len: random.random_range(0..bytes + 16 * PAGE_SIZE) },
            _ => Damage::Unclean,
        }
    }

    /// Applies the damage.
    pub fn apply(&self, image: &mut Image<'_>) {
        match *self {
            Damage::Flip { at, bit } => {
                let byte = image.read(at, 1)[0];
                image.write(at, &[byte ^ 1 << bit]);
            }
            Damage::Word { at, value } => image.write_word(at, value),
            Damage::Swap { a, b, len } => {
                let (first, second) = (image.read(a, len), image.read(b, len));
                image.write(a, &second);
                image.write(b, &first);
            }
            Damage::Copy { from, to, len } => {
                let bytes = image.read(from, len);
                image.write(to, &bytes);
            }
            Damage::Fill { node, value } => {
                (0..FANOUT).for_each(|slot| image.write_word(node + slot * 8, value));
            }
            Damage::Bomb { file, page, slots } => bomb(image, file, page, slots),
            Damage::Redo { slot, ref words } => {
                let place = redo_slot(slot).offset();
                image.write_word(place, words.len() as u64);
                image.write_word(place + 8, place + 64);
                for (index, &(addr, value)) in words.iter().enumerate() {
                    image.write_word(place + 64 + index as u64 * 16, addr);
                    image.write_word(place + 72 + index as u64 * 16, value);
                }
            }
            Damage::Length { len } => image.set_len(len),
            Damage::Unclean => image.write_word(CLEAN_MARK.offset(), 0),
        }
    }
}

fn bomb(image: &mut Image<'_>, file: u64, page: u64, slots: LowestSlots) {
    let at = |level: u64| Extent { addr: Addr::from_raw(page + level * PAGE_SIZE), class: Class::PAGE };
    for level in 1..=HEIGHT {
        for slot in 0..FANOUT {
            let has_leaf = match slots {
                LowestSlots::Null => false,
                LowestSlots::Leaves => true,
                LowestSlots::Alternating => slot % 2 == 0,
            };
            let below = match level {
                1 if has_leaf => Pointer::leaf(at(0)),
                1 => Pointer::NULL,
                _ => Pointer::node(at(level - 1)),
            };
            image.write_word(page + level * PAGE_SIZE + slot * 8, below.raw());
        }
    }
    image.write_word(file, Pointer::node(at(HEIGHT)).with_height(HEIGHT as u8).raw());
    image.write_word(file + 8, i64::MAX as u64);
}

fn word_of(base: &BaseVolume, at: u64) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&base.bytes[at as usize..][..8]);
    u64::from_le_bytes(word)
}

/// Draws an absurd or random number, an address, or a word from another address.
fn word(random: &mut SmallRng, base: &BaseVolume) -> u64 {
    let bytes = base.bytes.len() as u64;
    match random.random_range(0..10) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << random.random_range(0..64),
        4 => random.random_range(0..bytes / PAGE_SIZE) * PAGE_SIZE,
        5 => bytes + random.random_range(0..1 << 20) * PAGE_SIZE,
        6 => random.random_range(0..1000),
        7 => random.random(),
        8 => base.survey.structures.choose(random).expect("structures").0,
        _ => word_of(base, base.somewhere(random) & !7),
    }
}

/// Draws a new value for the pointer at the offset `at`: a copy of another pointer, a pointer to an extent,
/// to a structure, to the page that contains `at` or to a random page, or a word from [`word`].
fn pointer(random: &mut SmallRng, base: &BaseVolume, at: u64) -> u64 {
    let survey = &base.survey;
    let old = Pointer::from_raw(word_of(base, at));
    let to = |random: &mut SmallRng, extent: Extent| {
        let pointer = if random.random() { Pointer::leaf(extent) } else { Pointer::node(extent) };
        pointer.with_height(if random.random() { old.height() } else { random.random_range(0..8) }).raw()
    };
    match random.random_range(0..6) {
        0 => word_of(base, *survey.pointers.choose(random).expect("pointers")),
        1 => {
            let extent = *survey.extents.choose(random).expect("extents");
            to(random, extent)
        }
        2 => {
            let place = survey.structures.choose(random).expect("structures").0 & !63;
            let class = Class::from_raw(random.random_range(1..=Class::COUNT)).expect("a class");
            to(random, Extent { addr: Addr::from_raw(place), class })
        }
        // A pointer to its own page makes a cycle.
        3 => to(random, Extent { addr: Addr::from_raw(at).align_down(PAGE_SIZE), class: Class::PAGE }),
        4 => {
            let class = old.extent().map_or(Class::PAGE, |extent| extent.class);
            let page = random.random_range(0..base.bytes.len() as u64 / PAGE_SIZE + 4);
            to(random, Extent { addr: Addr::from_raw(page * PAGE_SIZE), class })
        }
        _ => word(random, base),
    }
}

/// Draws an object id. The object may not exist, and the kind may be wrong.
fn id(random: &mut SmallRng, base: &BaseVolume) -> u64 {
    let header = *base.survey.headers.choose(random).expect("every volume has a root");
    let place = match random.random_range(0..4) {
        0 => header + HEADER_BYTES * random.random_range(0..4),
        1 => random.random_range(0..base.bytes.len() as u64 / 64) * 64,
        _ => header,
    };
    place + random.random_range(0..9)
}

/// Draws a damage that exchanges or copies pages, halves of pages or headers.
fn move_bytes(random: &mut SmallRng, base: &BaseVolume) -> Damage {
    let bytes = base.bytes.len() as u64;
    let survey = &base.survey;
    let len = *[PAGE_SIZE, PAGE_SIZE / 2, HEADER_BYTES].choose(random).expect("three");
    let mut place = || match len {
        HEADER_BYTES => *survey.headers.choose(random).expect("a root"),
        _ if random.random_range(0..4) == 0 => random.random_range(0..bytes / len) * len,
        _ => survey.structures.choose(random).expect("structures").0 / len * len,
    };
    let (a, b) = (place(), place());
    match random.random_range(0..3) {
        0 => Damage::Swap { a, b, len },
        1 if len == HEADER_BYTES => {
            // The exchange may make an unused header live, and a live header unused.
            let other = a + HEADER_BYTES * random.random_range(1..8);
            Damage::Swap { a, b: other, len }
        }
        _ => Damage::Copy { from: a, to: b, len },
    }
}

/// Draws a damage that fills a node with one pointer, or that clears a word if the base has no node. A tree
/// with such a node may have more paths than a walk can visit.
fn fill(random: &mut SmallRng, base: &BaseVolume) -> Damage {
    match base.survey.nodes.choose(random) {
        Some(&(node, _)) => {
            let value = match random.random_range(0..3) {
                0 => Pointer::node(Extent { addr: Addr::from_raw(node), class: Class::PAGE }).raw(),
                1 => word_of(base, *base.survey.pointers.choose(random).expect("pointers")),
                _ => 0,
            };
            Damage::Fill { node, value }
        }
        None => Damage::Word { at: base.somewhere(random) & !7, value: 0 },
    }
}

fn superblock(random: &mut SmallRng, base: &BaseVolume) -> Damage {
    let copy = SUPERBLOCKS[random.random_range(0..2)].offset();
    let fields = [
        offset_of!(Superblock, sequence),
        offset_of!(Superblock, group_bytes),
        offset_of!(Superblock, volume_bytes),
        offset_of!(Superblock, hash_seed),
        offset_of!(Superblock, root),
        offset_of!(Superblock, most_bytes),
        offset_of!(Superblock, segment_bytes),
        offset_of!(Superblock, segments) & !7,
        offset_of!(Superblock, block_bytes),
    ];
    let field = *fields.choose(random).expect("fields") as u64;
    Damage::Word { at: copy + field, value: word(random, base) }
}
