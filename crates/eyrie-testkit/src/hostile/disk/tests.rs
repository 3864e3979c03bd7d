//! Tests that base disks and the damage to them are as they are described.

use std::mem::offset_of;

use eyrie_engine::Engine;
use eyrie_engine::scm::Scm;
use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Anchor, Medium, PAGE_SIZE, RecordHead};

use super::base::opened;
use super::journal::{mend, word};
use super::*;
use crate::hostile::{Examined, journal_damages};

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
    assert_eq!(
        bases.iter().map(|base| base.name).collect::<Vec<_>>(),
        ["closed disk", "crashed disk", "torn disk"]
    );
    assert_eq!(bases.iter().map(|base| has(base, b"many")).collect::<Vec<_>>(), [true; 3]);
    assert_eq!(bases.iter().map(|base| has(base, b"last")).collect::<Vec<_>>(), [true, true, false]);
    for base in &bases {
        let journal = &base.journal;
        assert!(journal.records.len() >= 3 && !journal.fresh.is_empty() && !journal.changed.is_empty());
        let id = |at: u64| word(&base.bytes, at);
        let anchor = id(journal.anchor + offset_of!(Anchor, id) as u64);
        let counts = id(journal.records[0].0 + offset_of!(RecordHead, id) as u64) == anchor;
        assert_eq!(counts, base.name != "closed disk");
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
    let (end, _) = super::journal::end(&bases[1].bytes);
    let flip = DiskDamage::Flip { at: end + 100, bit: 0 };
    assert_ne!(loaded_word(vec![forged.clone(), flip.clone()], false), 7);
    assert_eq!(loaded_word(vec![forged, flip], true), 7);
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
