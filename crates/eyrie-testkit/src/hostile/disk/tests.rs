//! Tests that base disks and the damage to them are as they are described.

use std::mem::offset_of;

use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Anchor, Fault, Medium, PAGE_SIZE, RecordHead};

use super::base::opened;
use super::journal::{mend, word};
use super::*;
use crate::hostile::{Damage, Examined, journal_damages};

fn has(base: &DiskBase, name: &[u8]) -> bool {
    let engine = Scm::open_on(base.volume.copy()).expect("a sound volume");
    engine.lookup(engine.root(), name).expect("a sound directory").is_some()
}

fn medium(disk: &HostileDisk<'_>) -> Medium {
    super::base::disk(&disk.bytes).and_then(|disk| opened(&disk)).expect("a disk that opens")
}

#[test]
fn disks_are_closed_crashed_and_torn_as_they_are_called() {
    let bases = disk_bases();
    let names = ["closed disk", "crashed disk", "torn disk"];
    for (base, name) in bases.iter().zip(names.iter().cycle()) {
        assert!(base.name.starts_with(name), "{}", base.name);
        assert!(has(base, b"many") && has(base, b"last") == (*name != "torn disk"), "{}", base.name);
        let journal = &base.journal;
        assert!(journal.records.len() >= 3 && !journal.fresh.is_empty() && !journal.changed.is_empty());
        let id = |at: u64| word(&base.bytes, at);
        let anchor = id(journal.anchor + offset_of!(Anchor, id) as u64);
        let is_live = id(journal.records[0].0 + offset_of!(RecordHead, id) as u64) == anchor;
        assert_eq!(is_live, *name != "closed disk");
        assert_eq!(HostileDisk::of(base, Vec::new(), false).examine(), Examined::Sound);
    }
}

#[test]
fn right_checksums_of_a_disk_are_known() {
    for base in &disk_bases() {
        let mut mended = base.bytes.to_vec();
        mend(&mut mended);
        assert!(mended == *base.bytes, "{}", base.name);
    }
}

#[test]
fn a_forged_record_is_replayed_if_its_checksum_is_right() {
    let bases = disk_bases();
    // The forged record changes the first word in the last line of the volume to 7.
    let page = bases[1].volume.bytes.len() as u64 / PAGE_SIZE - 1;
    let line = [&[1][..], &7_u64.to_le_bytes()].concat();
    let forged = DiskDamage::Forge { fresh: Vec::new(), changed: vec![(page, 1 << 63, line)] };
    let at = Addr::from_raw((page + 1) * PAGE_SIZE - 64);
    let loaded_word = |damages: Vec<DiskDamage>, mended| {
        let medium = medium(&HostileDisk::of(&bases[1], damages, mended));
        let _pin = pin();
        medium.load(at).expect("in bounds")
    };
    assert_ne!(loaded_word(Vec::new(), false), 7);
    assert_eq!(loaded_word(vec![forged.clone()], false), 7);
    // The flip hits the forged record, which begins at the end of the live records.
    let (end, _) = super::journal::end(&bases[1].bytes);
    let flip = DiskDamage::Flip { at: end + 100, bit: 0 };
    assert_ne!(loaded_word(vec![forged.clone(), flip.clone()], false), 7);
    assert_eq!(loaded_word(vec![forged, flip], true), 7);
}

/// Hostile bytes of a page are an error, or reach the volume if the checksum of the page is valid again.
#[test]
fn checksums_of_pages_hide_hostile_bytes_unless_they_are_mended() {
    let bases = disk_bases();
    let closed = &bases[3];
    assert_eq!(closed.name, "closed disk with checksums");
    let at = closed.volume.hot_copy(b"many") + 8;
    let damages = vec![DiskDamage::Volume(Damage::Word { at, value: 12_345 })];
    let loaded = |disk: HostileDisk<'_>| {
        let _pin = pin();
        disk.medium().expect("it opens").load(Addr::from_raw(at))
    };
    let hidden = HostileDisk::of(closed, damages.clone(), true);
    assert!(matches!(loaded(hidden), Err(Fault::Checksum { .. })));
    let mended = HostileDisk::of(closed, damages, true).with_valid_pages();
    assert_eq!(loaded(mended).expect("its checksum is valid"), 12_345);
    // An open needs the volume page.
    let entry = DiskDamage::Flip { at: super::journal::entry_of(2), bit: 5 };
    assert_eq!(HostileDisk::of(closed, vec![entry], true).examine(), Examined::Refused);
}

#[test]
fn impossible_fields_of_the_journal_give_an_answer_or_an_error() {
    let (mut refused, mut sound) = (0, 0);
    for base in &disk_bases() {
        for (_, bytes) in journal_damages(&base.bytes) {
            match (HostileDisk { bytes, ..HostileDisk::of(base, Vec::new(), false) }).examine() {
                Examined::Refused => refused += 1,
                Examined::Sound => sound += 1,
                Examined::Broken => {}
            }
        }
    }
    assert!(refused > 20 && sound > 20, "{refused} refused, {sound} sound");
}
