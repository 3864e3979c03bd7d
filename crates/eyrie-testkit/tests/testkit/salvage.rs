//! Tests of salvage: it must copy the readable objects of a damaged volume into a sound volume.

use eyrie_engine::object::collection::hash;
use eyrie_engine::object::collection::layout::{LINES, PAGE_BYTES};
use eyrie_engine::object::header::Header;
use eyrie_engine::object::pointer::Pointer;
use eyrie_engine::salvage::{self, SalvageLoss, Salvaged};
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::Options;
use eyrie_engine::{
    Applied, Content, Engine, Error, Kind, ObjectId, Op, Owner, Result, Time, Volume, XattrMode,
    forward_calls,
};
use eyrie_medium::Medium;
use eyrie_sim::compare::{TreeParts, TreePath, difference, try_tree};
use eyrie_sim::explore::fixed_options;
use eyrie_testkit::hostile::{
    Examined, FieldDamage, FieldName, Hostile, Image, bases, examine, field_damages, owned_twice, readable,
    repairs,
};

/// Makes the volume into which a test salvages `from`.
fn new_volume(from: &Volume) -> Scm {
    let (owner, born) = salvage::root_of(from);
    let options = Options { hash_seed: 11, volume_id: [2; 16], ..fixed_options(64 << 10, born) };
    let medium = Medium::memory(2 << 20).expect("memory");
    Scm::create_on(medium, &options, owner, born).expect("a new volume")
}

/// Salvages the volume on `medium` into a new volume, and asserts that the new volume is sound. Returns
/// `None` if the damaged volume cannot be opened, for example because no superblock is valid.
fn salvaged(medium: Medium) -> Option<(Scm, Salvaged)> {
    let from = Volume::open_damaged_on(medium).ok()?;
    let to = new_volume(&from);
    let salvaged = salvage::salvage(&from, &to, Time::new(9000, 0)).expect("memory does not fail");
    let report = to.check().expect("memory does not fail");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(
        (report.directories, report.files, report.others),
        (salvaged.directories, salvaged.files, salvaged.others)
    );
    Some((to, salvaged))
}

#[test]
fn a_sound_volume_is_salvaged_with_everything() {
    for base in bases() {
        let (to, salvaged) = salvaged(base.copy()).expect("it is sound");
        assert_eq!(salvaged.losses, [], "{}", base.name);
        let (found, expected) = (try_tree(&to, TreeParts::ALL), try_tree(&*base.model, TreeParts::ALL));
        let (found, expected) = (found.expect("sound"), expected.expect("sound"));
        assert!(found == expected, "{}: {:?}", base.name, difference(&found, &expected));
    }
}

#[test]
fn a_repair_saves_every_file_that_could_be_read() {
    const IMAGES: u64 = 15_000;
    let bases = bases();
    let sound: Vec<_> = bases.iter().map(|base| readable(&*base.model)).collect();
    let (mut refused, mut unharmed, mut lossy) = (0, 0, 0);
    for seed in 0..IMAGES {
        let Hostile { image, damages, .. } = Hostile::new(&bases, seed);
        let at = bases.iter().position(|base| std::ptr::eq(base, image.base)).expect("one of them");
        let damaged = Scm::open_on(image.medium()).ok();
        let Some((to, salvaged)) = salvaged(image.medium()) else {
            assert!(damaged.is_none(), "seed {seed} opens, but cannot be repaired: {damages:x?}");
            refused += 1;
            continue;
        };
        lossy += u32::from(!salvaged.losses.is_empty());
        let saved = readable(&to);
        let intact = damaged.map(|engine| readable(&engine)).unwrap_or_default();
        for (path, node) in intact.iter().filter(|(path, node)| sound[at].get(*path) == Some(node)) {
            // A directory with two parents keeps one of its names.
            let is_directory = node.kind == Kind::Directory;
            let mut same = saved.iter().filter(|(other, _)| is_directory || other.last() == path.last());
            let names: Vec<_> = path.iter().map(|name| name.escape_ascii().to_string()).collect();
            assert!(
                same.any(|(_, saved)| saved == node),
                "seed {seed}: {names:?} is gone: {damages:x?}: {:#?}",
                salvaged.losses
            );
            unharmed += 1;
        }
    }
    assert!(refused > 0 && lossy > 0 && unharmed > 10 * IMAGES, "{refused}, {lossy}, {unharmed}");
}

/// The paths of these directories have 50 million names in all, so copies of the names would take gigabytes.
#[test]
fn ten_thousand_nested_directories_are_salvaged() {
    const DEPTH: u64 = 10_000;
    let (owner, time) = (Owner { mode: 0o755, uid: 0, gid: 0 }, Time::new(1, 0));
    let new_volume = || {
        let medium = Medium::memory(64 << 20).expect("memory");
        Scm::create_on(medium, &fixed_options(1 << 20, time), owner, time).expect("a new volume")
    };
    let engine = new_volume();
    let mut dir = engine.root();
    for _ in 0..DEPTH {
        let id = engine.reserve(Kind::Directory).expect("room");
        let create = Op::Create { dir, name: b"nest", id, owner, content: Content::Empty, time };
        engine.apply(&create).expect("room");
        dir = id;
    }
    let medium = Medium::memory_holding(&engine.volume().medium().snapshot()).expect("memory");
    let from = Volume::open_damaged_on(medium).expect("sound");
    let salvaged = salvage::salvage(&from, &new_volume(), time).expect("memory does not fail");
    assert_eq!((salvaged.directories, salvaged.losses), (DEPTH + 1, vec![]));
}

/// Marks all slots of the root directory's first bucket page as free.
fn remove_root_names(image: &mut Image<'_>) {
    let engine = Scm::open_on(image.base.copy()).expect("sound");
    let medium = engine.volume().medium();
    let table = Header::of(engine.root()).hot(medium).expect("alive").root.extent().expect("a table").addr;
    let page = Pointer::from_raw(medium.load(table.add(64)).expect("there")).extent().expect("a page").addr;
    image.write_word(page.offset(), medium.load(page).expect("there") & !u64::from(u32::MAX));
}

#[test]
fn unnamed_directory_is_found_with_its_contents() {
    let bases = bases();
    // The base `few`.
    let base = &bases[1];
    let mut image = Image::new(base);
    remove_root_names(&mut image);
    let (to, salvaged) = salvaged(image.medium()).expect("it has superblocks");
    let (before, after) = (readable(&*base.model), readable(&to));
    let found = after.keys().filter(|path| path.len() == 2).count() as u64;
    assert!(salvaged.found > 5 && found == salvaged.found, "{salvaged:#?}");
    for (path, node) in before {
        // Objects directly in the root have lost their names. The entries of a found directory keep their
        // names.
        let ends_so = |other: &TreePath| path.len() == 1 || other.last() == path.last();
        let mut same = after.iter().filter(|(other, saved)| ends_so(other) && **saved == node);
        assert!(same.next().is_some(), "{path:?} is gone: {:#?}", salvaged.losses);
    }
}

/// Returns the losses, each as its path and its reason.
fn losses(salvaged: &Salvaged) -> Vec<String> {
    let path = |loss: &SalvageLoss| loss.names.join(&b'/').escape_ascii().to_string();
    salvaged.losses.iter().map(|loss| format!("{}: {}", path(loss), loss.what)).collect()
}

#[test]
fn regression_file_with_shared_bytes_keeps_its_name() {
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "few").expect("a base");
    let [(_, image), ..] = owned_twice(base);
    let (to, salvaged) = salvaged(image.medium()).expect("it has superblocks");
    let losses = losses(&salvaged);
    let [loss] = &losses[..] else { panic!("{losses:#?}") };
    assert!(loss.ends_with(": some of its bytes belong to another object, too"), "{loss}");
    let names: Vec<_> = readable(&*base.model).into_keys().collect();
    assert_eq!(readable(&to).into_keys().collect::<Vec<_>>(), names);
}

/// Returns the offset of the only place of these bytes in an image.
fn place_of(image: &Image<'_>, wanted: &[u8]) -> u64 {
    let bytes = image.to_bytes();
    let mut places = bytes.windows(wanted.len()).enumerate().filter(|(_, found)| *found == wanted);
    let (at, _) = places.next().expect("there");
    assert!(places.next().is_none(), "the bytes occur twice");
    at as u64
}

/// Returns the offset of the bytes of `name` in the record of this entry of the root directory.
fn name_place(image: &Image<'_>, name: &[u8]) -> u64 {
    let engine = Scm::open_on(image.base.copy()).expect("sound");
    let hash = hash(engine.volume().hash_seed(), name);
    let record = [&hash.to_le_bytes()[..], &(name.len() as u16).to_le_bytes(), name].concat();
    place_of(image, &record) + 10
}

#[test]
fn regression_file_with_shared_bytes_and_a_taken_name_is_found() {
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "few").expect("a base");
    let [(_, mut image), ..] = owned_twice(base);
    // The files `b` and `k2` share their bytes. Each of them gets the name of another file, so the test does
    // not depend on which of the two comes last.
    let names: Vec<_> = readable(&*base.model).into_keys().filter(|path| path.len() == 1).collect();
    let with_length = |len| names.iter().map(|path| &path[0]).filter(move |name| name.len() == len);
    for name in [&b"b"[..], b"k2"] {
        let at = name_place(&image, name);
        let other = with_length(name.len()).find(|other| ![&b"b"[..], b"k2"].contains(&&other[..]));
        image.write(at, other.expect("a name of this length"));
    }
    let (to, salvaged) = salvaged(image.medium()).expect("it has superblocks");
    let losses = losses(&salvaged);
    assert!(losses.iter().any(|loss| loss.ends_with("belong to another object, too")), "{losses:#?}");
    let found = readable(&to).into_keys().filter(|path| path[0] == salvage::LOST_AND_FOUND).count();
    assert_eq!((found, salvaged.found), (2, 1), "the directory and one file: {losses:#?}");
}

#[test]
fn regression_name_with_a_wrong_tag_survives_a_wrong_key() {
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "few").expect("a base");
    let engine = Scm::open_on(base.copy()).expect("sound");
    let mut image = Image::new(base);
    // This word is the key of the hash, in the first copy of the superblock.
    image.write_word(0x58, engine.volume().hash_seed() ^ 1);
    let page = name_place(&image, b"b") & !(PAGE_BYTES - 1);
    for line in 1..=LINES as u64 {
        let tags = page + line * 64 + 56;
        // The highest byte is no tag, so it stays unchanged.
        image.write_word(tags, image.word(tags) ^ (u64::MAX >> 8));
    }
    let (to, salvaged) = salvaged(image.medium()).expect("it has superblocks");
    assert_eq!(salvaged.losses, []);
    let names: Vec<_> = readable(&*base.model).into_keys().collect();
    assert_eq!(readable(&to).into_keys().collect::<Vec<_>>(), names);
}

/// Returns the number of losses of links in `image`, whose root may have lost its names. Also asserts
/// that `lost+found` has as many objects as the repair counts as found.
fn lost_links(image: &Image<'_>) -> usize {
    let (to, salvaged) = salvaged(image.medium()).expect("it has superblocks");
    let is_found = |path: &TreePath| path.len() == 2 && path[0] == salvage::LOST_AND_FOUND;
    assert_eq!(readable(&to).into_keys().filter(is_found).count() as u64, salvaged.found);
    let is_link = |loss: &&String| loss.ends_with(": the target of the link cannot be read");
    losses(&salvaged).iter().filter(is_link).count()
}

#[test]
fn regression_unreadable_link_is_lost_once() {
    let bases = bases();
    let mut links = 0;
    for base in &bases {
        let damaged = |path: &TreePath| {
            let engine = Scm::open_on(base.copy()).expect("sound");
            let id = engine.lookup(engine.root(), &path[0]).expect("sound").expect("there");
            let target = Header::of(id).hot(engine.volume().medium()).expect("alive").root.extent();
            let mut image = Image::new(base);
            // A zero byte makes the target unreadable, because a target has none.
            image.write(target.expect("a target").addr.offset(), &[0]);
            image
        };
        let tree = readable(&*base.model);
        for (path, _) in tree.iter().filter(|(path, node)| path.len() == 1 && node.kind == Kind::Symlink) {
            let (to, salvaged) = salvaged(damaged(path).medium()).expect("it has superblocks");
            links += 1;
            let losses = losses(&salvaged);
            let expected = format!("{}: the target of the link cannot be read", path[0].escape_ascii());
            assert_eq!((losses, salvaged.found), (vec![expected], 0), "{}", base.name);
            assert!(!readable(&to).contains_key(&vec![salvage::LOST_AND_FOUND.to_vec()]));
            let mut unnamed = damaged(path);
            remove_root_names(&mut unnamed);
            assert_eq!(lost_links(&unnamed), 1, "{}", base.name);
        }
    }
    assert!(links > 0);
}

/// True if objects of a volume with inode flags and limits may have this value in this field.
fn is_right(name: FieldName, value: u64) -> bool {
    name == ("Cold copy", "project") || (name == ("Cold copy", "flags") && [0x10, 0x20].contains(&value))
}

#[test]
fn impossible_fields_are_detected_and_repaired() {
    let (mut detected, mut passed) = (0, 0);
    let mut undetected = Vec::new();
    for base in &bases() {
        for FieldDamage { name, value, must_be_detected, image } in field_damages(base, 1) {
            match examine(image.medium()) {
                // One base has a redo record that was not applied. Its replay repairs some fields. In another
                // base, objects may have a project id, and the flags "immutable" and "append only".
                Examined::Sound
                    if must_be_detected
                        && base.name != "interrupted"
                        && !(base.name == "rights" && is_right(name, value)) =>
                {
                    undetected.push((base.name, name, value));
                }
                Examined::Sound => passed += 1,
                Examined::Refused | Examined::Broken => detected += 1,
            }
            // `salvaged` asserts that the repaired volume is sound.
            let _ = salvaged(image.medium());
        }
    }
    assert!(undetected.is_empty(), "{undetected:#x?}");
    assert!(detected > 200 && passed > 100, "{detected}, {passed}");
}

#[test]
fn a_repair_makes_a_sound_volume_or_gives_a_reason() {
    let report = repairs(&bases(), 0..300);
    assert!(report.unsound.is_empty(), "{report:#?}");
    assert!(report.repaired > 50 && report.sound > 50, "{report:#?}");
    assert!(report.refused.values().sum::<u64>() < 30, "{report:#?}");
}

/// Makes an object. Returns its id.
fn make(engine: &Scm, dir: ObjectId, name: &[u8], kind: Kind, content: Content<'_>) -> ObjectId {
    let id = engine.reserve(kind).expect("room");
    let (owner, time) = (Owner { mode: 0o755, uid: 0, gid: 0 }, Time::new(9000, 0));
    engine.apply(&Op::Create { dir, name, id, owner, content, time }).expect("room");
    id
}

#[test]
fn unnamed_file_gets_a_free_name() {
    let bases = bases();
    let base = bases.iter().find(|base| base.name == "few").expect("a base");
    let sound = Scm::open_on(base.copy()).expect("sound");
    let lost = sound.lookup(sound.root(), b"b").expect("sound").expect("there");
    let mut image = Image::new(base);
    remove_root_names(&mut image);
    let from = Volume::open_damaged_on(image.medium()).expect("it has superblocks");
    // The new volume has these objects already, as if the damaged volume had their names.
    let to = new_volume(&from);
    let name = format!("#{}", lost.raw());
    make(&to, to.root(), salvage::LOST_AND_FOUND, Kind::File, Content::Empty);
    let dir = make(&to, to.root(), b"lost+found-2", Kind::Directory, Content::Empty);
    let taken = make(&to, dir, name.as_bytes(), Kind::File, Content::Empty);
    let salvaged = salvage::salvage(&from, &to, Time::new(9000, 0)).expect("memory does not fail");
    assert!(!losses(&salvaged).iter().any(|loss| loss.ends_with("already exists")), "{salvaged:#?}");
    let found = to.lookup(dir, format!("{name}-2").as_bytes()).expect("sound").expect("there");
    assert!(found != taken && found.kind() == lost.kind());
}

/// A volume that refuses extended attributes.
struct Refusing {
    engine: Scm,
    refusal: fn() -> Error,
}

impl Refusing {
    fn inner(&self) -> &Scm {
        &self.engine
    }
}

impl Engine for Refusing {
    forward_calls! {
        inner:
        root instance lookup attributes birth owner inode_flags read version seek has_storage xattr
        xattr_names list open close reserve unreserve reclaim directory_changes wait_for sync space
    }

    fn apply(&self, op: &Op<'_>) -> Result<Applied> {
        if matches!(op, Op::SetXattr { .. }) { Err((self.refusal)()) } else { self.engine.apply(op) }
    }
}

#[test]
fn refused_attribute_is_lost_unless_the_volume_is_full() {
    let base = &bases()[0];
    let engine = Scm::open_on(base.copy()).expect("sound");
    let id = make(&engine, engine.root(), b"an egg", Kind::File, Content::Bytes(b"blue"));
    let (name, value, mode, time) = (b"user.colour", b"blue", XattrMode::Set, Time::new(9000, 0));
    engine.apply(&Op::SetXattr { id, name, value, mode, time }).expect("room");
    let bytes = engine.volume().medium().snapshot();
    let reason = "the extended attribute user.colour is lost: not now";
    let refusals: [fn() -> Error; 2] = [|| Error::NoSpace, || Error::Invalid("not now")];
    let results = [("no space left in the volume", true), (reason, false)];
    for (refusal, (reason, is_full)) in refusals.into_iter().zip(results) {
        let medium = Medium::memory_holding(&bytes).expect("memory");
        let from = Volume::open_damaged_on(medium).expect("it has superblocks");
        let to = Refusing { engine: new_volume(&from), refusal };
        let salvaged = salvage::salvage(&from, &to, time).expect("memory does not fail");
        let is_there = to.lookup(to.root(), b"an egg").expect("sound").is_some();
        assert_eq!((salvaged.is_full, is_there), (is_full, !is_full), "{salvaged:#?}");
        assert!(losses(&salvaged).contains(&format!("an egg: {reason}")), "{salvaged:#?}");
    }
}
