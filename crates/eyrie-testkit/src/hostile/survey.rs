//! Surveys a sound volume: finds the addresses of its structures. Most random damage hits these addresses.

use std::collections::{BTreeMap, HashMap};

use eyrie_engine::extent::Extent;
use eyrie_engine::object::collection::Collection;
use eyrie_engine::object::collection::buckets::{BucketPlace, segment_slot, table_slots};
use eyrie_engine::object::collection::commit::Commit;
use eyrie_engine::object::collection::layout::{LINK, slot_at};
use eyrie_engine::object::header::Header;
use eyrie_engine::object::mfile::{self, FileTree};
use eyrie_engine::object::pointer::Pointer;
use eyrie_engine::scm::Scm;
use eyrie_engine::volume::layout::{CHUNK_MAP, HEADER_BYTES, SUPERBLOCKS, VOLUME_PAGE, VolumePage};
use eyrie_engine::volume::{REDO_SLOTS, Volume, redo_slot};
use eyrie_engine::{Engine, Kind, ObjectId};
use eyrie_medium::epoch::pin;
use eyrie_medium::{Addr, Medium, PAGE_SIZE};

/// Offsets and sizes in hot and cold lines, in bytes, as in `docs/format.md`.
const HOT_COPIES: u64 = 8;
const HOT_COPY_BYTES: u64 = 24;
const LINKS: u64 = 12;
const PARENT: u64 = 40;
const XATTR_ROOT: u64 = 48;
/// Size of a bucket page, in bytes.
const BUCKET_BYTES: u64 = 2048;

/// Offsets in the head of the saved allocator, in bytes, as in `docs/format.md`.
const SAVED_WORDS: u64 = 32;
const SAVED_SLABS: u64 = 40;
const SAVED_CHUNKS: u64 = 48;
const SAVED_SHARED: u64 = 72;
/// Sizes of this head, of one saved slab page, and of one saved header chunk, in bytes.
const SAVED_HEAD_BYTES: u64 = 128;
const SAVED_SLAB_BYTES: u64 = 16;
const SAVED_CHUNK_BYTES: u64 = 40;

/// The part of a volume that a structure belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PartOf {
    /// The tables of the volume and the saved allocator.
    Tables,
    /// The root directory.
    Root,
    /// Another object of this kind.
    Object(Kind),
}

/// Places in a sound volume. Offsets and lengths are in bytes.
#[derive(Default)]
pub(super) struct Survey {
    /// Structures: offset and length. The length covers only the first bytes of some large structures.
    pub structures: Vec<(u64, u64)>,
    /// Words that hold a pointer.
    pub pointers: Vec<u64>,
    /// Words that hold an object id: slots of directories, and parents.
    pub ids: Vec<u64>,
    /// Words that hold a count, a size, a bitmap or another number.
    pub counts: Vec<u64>,
    /// Hot copies of files and symbolic links. Each begins with the root pointer and the size.
    pub files: Vec<u64>,
    /// The objects in the root, by name: the id, and the offset of the current hot copy.
    pub named: HashMap<Vec<u8>, (ObjectId, u64)>,
    /// Headers of objects.
    pub headers: Vec<u64>,
    /// Nodes of trees, with their levels.
    pub nodes: Vec<(u64, u8)>,
    /// Extents of objects.
    pub extents: Vec<Extent>,
    /// Offsets of structures, by the heading of the table of the structure in `docs/format.md`, and by the
    /// part of the volume.
    pub places: BTreeMap<(&'static str, PartOf), Vec<u64>>,
}

/// Returns the offset of the current hot copy of an object.
fn hot_copy(medium: &Medium, id: ObjectId) -> u64 {
    let header = Header::of(id);
    let copy = header.selector(medium).expect("sound").hot_copy() as u64;
    header.hot_line().offset() + HOT_COPIES + copy * HOT_COPY_BYTES
}

impl Survey {
    fn place(&mut self, structure: &'static str, part: PartOf, at: u64) {
        self.places.entry((structure, part)).or_default().push(at);
    }

    /// Surveys the volume with these bytes.
    pub(super) fn of(image: &[u8]) -> Survey {
        let medium = Medium::memory(image.len() as u64).expect("memory");
        drop(medium.write(Addr::NULL, image).expect("as long"));
        let engine = Scm::open_on(medium).expect("a sound volume");
        let mut survey = Survey::default();
        survey.tables();
        survey.saved_allocator(image);
        let _pin = pin();
        let (mut waiting, mut at) = (vec![engine.root()], 0);
        while let Some(&id) = waiting.get(at) {
            at += 1;
            let part = if id == engine.root() { PartOf::Root } else { PartOf::Object(id.kind()) };
            survey.object(engine.volume(), id, part);
            if id.is_directory() {
                let listed = engine.list(id, 0, &mut |entry| {
                    if id == engine.root() {
                        let copy = hot_copy(engine.volume().medium(), entry.id);
                        survey.named.insert(entry.name.to_vec(), (entry.id, copy));
                    }
                    if !waiting.contains(&entry.id) {
                        waiting.push(entry.id);
                    }
                    true
                });
                listed.expect("sound");
            }
        }
        survey
    }

    fn tables(&mut self) {
        let tables = SUPERBLOCKS.into_iter().chain((0..REDO_SLOTS).map(redo_slot));
        self.structures.extend(tables.map(|place| (place.offset(), 128)));
        self.structures.push((VOLUME_PAGE.offset(), 160));
        self.structures.push((CHUNK_MAP.offset(), 8));
        self.place("Superblock", PartOf::Tables, SUPERBLOCKS[0].offset());
        self.place("Volume page", PartOf::Tables, VOLUME_PAGE.offset());
        let field = |at: usize| VOLUME_PAGE.offset() + at as u64;
        let request = field(std::mem::offset_of!(VolumePage, request));
        self.place("Request record", PartOf::Tables, request);
        self.place("Outcome record", PartOf::Tables, field(std::mem::offset_of!(VolumePage, outcomes)));
        self.place("Redo slot", PartOf::Tables, redo_slot(0).offset());
        let page = VOLUME_PAGE.offset();
        let fields = [
            std::mem::offset_of!(VolumePage, generation_limit),
            std::mem::offset_of!(VolumePage, groups_in_use),
            std::mem::offset_of!(VolumePage, saved_addr),
            std::mem::offset_of!(VolumePage, saved_bytes),
        ];
        self.counts.extend(fields.map(|field| page + field as u64));
        self.counts.push(CHUNK_MAP.offset());
    }

    fn saved_allocator(&mut self, image: &[u8]) {
        let word = |at: u64| u64::from_le_bytes(image[at as usize..][..8].try_into().expect("eight bytes"));
        let saved = word(VOLUME_PAGE.offset() + std::mem::offset_of!(VolumePage, saved_addr) as u64);
        let clean = word(VOLUME_PAGE.offset() + std::mem::offset_of!(VolumePage, clean) as u64);
        if saved == 0 || clean == 0 {
            // Without the clean mark, the saved allocator is not valid, and its storage may be in use for
            // something else.
            return;
        }
        self.place("Saved allocator", PartOf::Tables, saved);
        let slabs = saved + SAVED_HEAD_BYTES + 8 * word(saved + SAVED_WORDS);
        let chunks = slabs + SAVED_SLAB_BYTES * word(saved + SAVED_SLABS);
        if slabs < chunks {
            self.place("Saved slab page", PartOf::Tables, slabs);
        }
        if word(saved + SAVED_CHUNKS) > 0 {
            self.place("Saved header chunk", PartOf::Tables, chunks);
        }
        if word(saved + SAVED_SHARED) > 0 {
            let shared = chunks + SAVED_CHUNK_BYTES * word(saved + SAVED_CHUNKS);
            self.place("Saved run of shared pages", PartOf::Tables, shared);
        }
    }

    fn object(&mut self, volume: &Volume, id: ObjectId, part: PartOf) {
        let medium = volume.medium();
        let header = Header::of(id);
        let at = header.addr().offset();
        self.headers.push(at);
        self.structures.push((at, HEADER_BYTES));
        let (hot, cold) = header.hot_and_cold(medium).expect("sound");
        let copy = hot_copy(medium, id);
        let cold_line = header.cold_line(hot.selector.cold_copy()).offset();
        self.counts.extend([copy + 8, cold_line + LINKS]);
        let hot_line = header.hot_line().offset();
        for (structure, at) in [
            ("Identity", at),
            ("Hot line", hot_line),
            ("Selector", hot_line),
            ("Hot copy", copy),
            ("Cold copy", cold_line),
        ] {
            self.place(structure, part, at);
        }
        if !hot.root.is_null() {
            self.pointers.push(copy);
        }
        if let Some(extent) = cold.xattrs().extent() {
            self.pointers.push(cold_line + XATTR_ROOT);
            self.structures.push((extent.addr.offset(), 64));
            self.counts.push(extent.addr.offset());
            self.extents.push(extent);
            self.place("Block of extended attributes", part, extent.addr.offset());
            self.place("Entry of a block", part, extent.addr.offset() + 8);
        }
        if id.is_directory() {
            self.ids.push(cold_line + PARENT);
            self.directory(volume, hot.root, part);
        } else if id.kind().has_data() {
            self.files.push(copy);
            let mut add = |extent, _| {
                self.extents.push(extent);
                Ok(())
            };
            mfile::visit_storage(medium, FileTree::of(header, &hot), &mut add).expect("sound");
            if hot.root.height() > 0 {
                self.node(medium, hot.root.with_height(0), hot.root.height(), part);
            }
        }
    }

    fn node(&mut self, medium: &Medium, pointer: Pointer, level: u8, part: PartOf) {
        let Some(extent) = pointer.extent().filter(|_| !pointer.is_leaf()) else { return };
        let at = extent.addr.offset();
        self.nodes.push((at, level));
        self.structures.push((at, 128));
        for slot in 0..PAGE_SIZE / 8 {
            let child = Pointer::from_raw(medium.load(extent.addr.add(slot * 8)).expect("sound"));
            if !child.is_null() {
                self.pointers.push(at + slot * 8);
                self.place("Pointers", part, at + slot * 8);
                self.node(medium, child, level - 1, part);
            }
        }
    }

    fn directory(&mut self, volume: &Volume, root: Pointer, part: PartOf) {
        let medium = volume.medium();
        let word = |addr: Addr| medium.load(addr).expect("sound");
        Collection::new(volume, root)
            .visit_storage(&mut |extent| {
                self.extents.push(extent);
                Ok(())
            })
            .expect("sound");
        let table = root.extent().expect("a table");
        self.structures.push((table.addr.offset(), 64 + 8 * table_slots(table.bytes()).min(8)));
        self.counts.push(table.addr.offset());
        self.place("Collection table", part, table.addr.offset());
        for bucket in 0..word(table.addr) {
            let place = BucketPlace::of(bucket);
            let slot = segment_slot(table.addr, place.segment);
            if place.index == 0 {
                self.pointers.push(slot.offset());
            }
            let segment = Pointer::from_raw(word(slot)).extent().expect("a segment");
            let mut page = Some(segment.addr.add(place.index * BUCKET_BYTES));
            while let Some(addr) = page {
                self.structures.push((addr.offset(), BUCKET_BYTES));
                self.pointers.push(addr.add(LINK).offset());
                let live = Commit::from_raw(word(addr)).live();
                for slot in (0..32).filter(|slot| live >> slot & 1 == 1) {
                    let at = slot_at(addr, slot);
                    self.place("Slot", part, at.offset());
                    self.place("Record", part, addr.offset() + (word(at) >> 56) * 8);
                }
                for (structure, at) in [("Bucket page", 0), ("Line of slots", 64)] {
                    self.place(structure, part, addr.offset() + at);
                }
                for stamp in [32, 48] {
                    self.place("Stamp of a bucket page", part, addr.offset() + stamp);
                }
                let slots = (0..32).filter(|slot| live >> slot & 1 == 1);
                self.ids.extend(slots.map(|slot| slot_at(addr, slot).offset()));
                page = Pointer::from_raw(word(addr.add(LINK))).extent().map(|extent| extent.addr);
            }
        }
    }
}
