//! Blocks of extended attributes. Stored values are read back, limits are enforced, and damage causes no
//! panic.

use std::collections::BTreeMap;

use eyrie_medium::{Addr, Medium};

use super::*;
use crate::extent::{Class, Extent};
use crate::object::pointer::Pointer;
use crate::op::{XATTR_LIST_MAX, XATTR_SIZE_MAX};
use crate::transaction::Transaction;
use crate::volume::{Options, Volume};
use crate::{Error, Result, Time, XattrMode};

fn volume() -> Volume {
    let medium = Medium::memory(4 << 20).expect("memory");
    let created = Time::new(1, 0);
    let options = Options {
        group_bytes: 1 << 20,
        hash_seed: 42,
        volume_id: [7; 16],
        created,
        medium: crate::volume::MediumChoice::Auto,
        overwrite: false,
        checksums: false,
        paged: eyrie_medium::PagedOptions::for_host(),
    };
    Volume::create_on(medium, &options).expect("a volume")
}

/// Attributes that belong to no object. A word of the volume holds the pointer to their block.
struct LooseXattrs<'v> {
    volume: &'v Volume,
    word: Addr,
}

impl<'v> LooseXattrs<'v> {
    fn new(volume: &'v Volume) -> LooseXattrs<'v> {
        let mut transaction = Transaction::begin(volume);
        let word = transaction.allocate(64).expect("space").addr;
        transaction.word(word, 0);
        transaction.commit().expect("committed");
        LooseXattrs { volume, word }
    }

    fn root(&self) -> XattrRoot {
        let pointer = Pointer::from_raw(self.volume.medium().load(self.word).expect("in bounds"));
        XattrRoot { pointer, at: self.word }
    }

    fn block(&self) -> Extent {
        self.root().extent().expect("sound").expect("there")
    }

    fn change(&self, change: impl FnOnce(&mut Transaction<'_>, XattrRoot) -> Result<Pointer>) -> Result<()> {
        let mut transaction = Transaction::begin(self.volume);
        let root = change(&mut transaction, self.root())?;
        transaction.word(self.word, root.raw());
        transaction.commit().map(drop)
    }

    fn set(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.change(|transaction, root| set(transaction, root, name, value, mode))
    }

    fn remove(&self, name: &[u8]) -> Result<()> {
        self.change(|transaction, root| remove(transaction, root, name))
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let medium = self.volume.medium();
        let Some(bytes) = get(medium, self.root(), name, &mut [])? else { return Ok(None) };
        let mut value = vec![0xee; bytes];
        assert_eq!(get(medium, self.root(), name, &mut value)?, Some(bytes));
        Ok(Some(value))
    }

    fn names(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        visit(self.volume.medium(), self.root(), &mut |name, _| {
            names.push(name.to_vec());
            Ok(())
        })?;
        Ok(names)
    }

    /// Overwrites bytes of the block, as damage would.
    fn damage(&self, at: u64, bytes: &[u8]) {
        drop(self.volume.medium().write(self.block().addr.add(at), bytes).expect("in bounds"));
    }
}

#[test]
fn attributes_are_a_map_in_byte_order() {
    let volume = volume();
    let attributes = LooseXattrs::new(&volume);
    let mut map = BTreeMap::new();
    let free = volume.space().usage().free;
    for turn in 0_usize..500 {
        let number = turn * 7 % 41;
        let name = vec![b'a' + (number % 23) as u8; 1 + number * 31 % 255];
        if turn % 3 == 2 {
            let removed = attributes.remove(&name);
            assert_eq!(removed.is_ok(), map.remove(&name).is_some());
        } else {
            let value = vec![turn as u8; turn * 13 % 400];
            attributes.set(&name, &value, XattrMode::Set).expect("set");
            map.insert(name, value);
        }
        assert!(attributes.names().expect("sound").iter().eq(map.keys()));
        for (name, value) in &map {
            assert_eq!(attributes.get(name).expect("sound").as_ref(), Some(value));
        }
    }
    assert_eq!(attributes.get(b"missing").expect("sound"), None);
    for name in map.keys() {
        attributes.remove(name).expect("there");
    }
    assert_eq!(attributes.root().pointer, Pointer::NULL);
    assert_eq!(volume.space().usage().free, free, "every block is given back");
}

#[test]
fn xattr_mode_requires_or_forbids_attribute() {
    let volume = volume();
    let attributes = LooseXattrs::new(&volume);
    assert!(matches!(attributes.set(b"a", b"1", XattrMode::Replace), Err(Error::NoXattr)));
    attributes.set(b"a", b"1", XattrMode::Create).expect("new");
    assert!(matches!(attributes.set(b"a", b"2", XattrMode::Create), Err(Error::Exists)));
    attributes.set(b"a", b"", XattrMode::Replace).expect("there");
    assert_eq!(attributes.get(b"a").expect("sound").as_deref(), Some(&b""[..]));
    attributes.remove(b"a").expect("there");
    assert!(matches!(attributes.remove(b"a"), Err(Error::NoXattr)));
}

#[test]
fn xattr_limits_hold_each_and_together() {
    let volume = volume();
    let attributes = LooseXattrs::new(&volume);
    for name in [&b""[..], &[b'n'; 256]] {
        assert!(matches!(attributes.set(name, b"", XattrMode::Set), Err(Error::XattrName)));
        assert!(matches!(attributes.remove(name), Err(Error::XattrName)));
    }
    let large = vec![1; XATTR_SIZE_MAX + 1];
    assert!(matches!(attributes.set(b"a", &large, XattrMode::Set), Err(Error::XattrTooLarge)));
    attributes.set(&[b'n'; 255], &large[1..], XattrMode::Set).expect("the largest");
    assert!(matches!(attributes.set(b"a", b"1", XattrMode::Set), Err(Error::XattrsFull)));
    attributes.set(b"a", b"", XattrMode::Set).expect("an empty value");
    attributes.set(&[b'n'; 255], &large[2..], XattrMode::Set).expect("a byte less");
    attributes.set(b"a", b"1", XattrMode::Set).expect("there is room");
    attributes.remove(b"a").expect("there");
    attributes.remove(&[b'n'; 255]).expect("there");
    // A name of 255 bytes counts as 256 bytes of the list.
    for number in 0..XATTR_LIST_MAX / 256 {
        let name = format!("{number:0>255}");
        // The storage of earlier blocks becomes free only when other tests drop their pins. Therefore the
        // test retries.
        let set = (0..1000).any(|_| match attributes.set(name.as_bytes(), b"", XattrMode::Create) {
            Err(Error::NoSpace) => {
                volume.space().reclaim();
                false
            }
            set => {
                set.expect("room");
                true
            }
        });
        assert!(set, "no room for attribute {number}");
    }
    assert!(matches!(attributes.set(b"a", b"", XattrMode::Set), Err(Error::XattrsFull)));
    assert_eq!(attributes.names().expect("sound").len(), 256);
}

#[test]
fn a_block_that_contradicts_itself_is_corrupt() {
    let volume = volume();
    let attributes = LooseXattrs::new(&volume);
    attributes.set(b"a", b"one", XattrMode::Set).expect("set");
    attributes.set(b"b", b"two", XattrMode::Set).expect("set");
    let mut sound = vec![0; 28];
    volume.medium().read(attributes.block().addr, &mut sound).expect("in bounds");
    let large = 0xffff_ffff_u32.to_le_bytes();
    // The offsets are those of the block's length (0), the number of entries (4), the length of the first
    // value (8), the length of the first name (12), and the first name (14).
    let damages: [(u64, &[u8]); 12] = [
        (0, &[0, 0, 0, 0]),
        (0, &[8, 0, 0, 0]),
        (0, &[27, 0, 0, 0]),
        (0, &[29, 0, 0, 0]),
        (0, &large),
        (4, &[1, 0, 0, 0]),
        (8, &large),
        (8, &[13, 0, 0, 0]),
        (12, &[0, 0]),
        (12, &[0, 1]),
        (14, b"b"),
        (14, b"c"),
    ];
    for (at, bytes) in damages {
        attributes.damage(at, bytes);
        assert!(matches!(attributes.names(), Err(Error::Corrupt { .. })), "{bytes:?} at {at}");
        assert!(matches!(attributes.get(b"a"), Err(Error::Corrupt { .. })), "{bytes:?} at {at}");
        assert!(matches!(attributes.remove(b"b"), Err(Error::Corrupt { .. })), "{bytes:?} at {at}");
        attributes.damage(0, &sound);
    }
    assert_eq!(attributes.get(b"b").expect("sound").as_deref(), Some(&b"two"[..]));
}

#[test]
fn damaged_xattr_block_gives_errors_or_answers() {
    let volume = volume();
    let attributes = LooseXattrs::new(&volume);
    for number in 0..20_usize {
        let name = format!("user.{number}");
        attributes.set(name.as_bytes(), &vec![7; number * 20], XattrMode::Set).expect("set");
    }
    let bytes = attributes.block().bytes() as usize;
    let mut sound = vec![0; bytes];
    volume.medium().read(attributes.block().addr, &mut sound).expect("in bounds");
    let mut errors = 0;
    let mut look = || match attributes.names() {
        Ok(names) => {
            assert!(names.is_sorted() && names.iter().map(Vec::len).sum::<usize>() <= XATTR_LIST_MAX)
        }
        Err(Error::Corrupt { .. }) => errors += 1,
        Err(error) => panic!("{error}"),
    };
    // The loop inverts all bits of a byte at an even offset, and one bit of a byte at an odd offset.
    for (at, &byte) in sound.iter().enumerate() {
        attributes.damage(at as u64, &[byte ^ if at % 2 == 0 { 0xff } else { 1 << (at % 8) }]);
        look();
        attributes.damage(at as u64, &[byte]);
    }
    for seed in 0..300_u64 {
        let noise =
            (0..bytes as u64).map(|at| ((at + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
        attributes.damage(0, &noise.collect::<Vec<u8>>());
        look();
    }
    // Nearly all of the 300 blocks of noise are corrupt. The other errors come from blocks with one damaged
    // byte.
    assert!(errors > 400, "{errors} errors");
}

#[test]
fn a_pointer_to_no_block_is_corrupt() {
    let volume = volume();
    let extent = Extent { addr: Addr::from_raw(1 << 20), class: Class::PAGE };
    let sound = Pointer::leaf(extent).raw();
    // The loop tries a pointer to a node, a pointer with the shared bit, one with the unwritten bit, one with
    // a height, one with an unknown class, and a null pointer with a height.
    let root = |pointer| XattrRoot { pointer, at: extent.addr };
    for raw in [sound & !1, sound | 2, sound | 4, sound | 8, sound & !(0xff << 56), 8] {
        let found = visit(volume.medium(), root(Pointer::from_raw(raw)), &mut |_, _| Ok(()));
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{raw:#x}");
    }
    // This pointer leads outside the volume, so a read of its block is a fault.
    let far = Pointer::leaf(Extent { addr: Addr::from_raw(1 << 45), class: Class::PAGE });
    assert!(matches!(visit(volume.medium(), root(far), &mut |_, _| Ok(())), Err(Error::Fault(_))));
}
