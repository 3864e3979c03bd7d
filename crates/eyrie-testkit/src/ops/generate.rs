//! Generates steps from a seed.

use eyrie_engine::access::AclKind;
use eyrie_engine::quota::{QuotaId, QuotaKind, QuotaLimit, QuotaLimits, QuotaTable};
use eyrie_engine::{
    AttributeChange, Engine, FallocateMode, InodeFlags, Kind, ObjectId, Owner, RenameMode, Time, XattrMode,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Action, BatchPart, Bytes, Ids, InitialContent, ObjectHandle, OpMix, OpName, OpStep};
use crate::acls::{ACL_COUNT, GOOD_ACL_COUNT};

/// Lengths of data, in bytes. The large lengths at the end are drawn less often.
const LENGTHS: [usize; 16] =
    [0, 1, 7, 8, 9, 63, 64, 65, 100, 4095, 4096, 4097, 8192, 100 << 10, (2 << 20) - 1, (2 << 20) + 1];
/// Number of small lengths, which are the first ones.
const SMALL_LENGTHS: usize = 13;
/// Offsets and sizes, in bytes. The generator also draws offsets near the end of the file.
const OFFSETS: [u64; 14] = [
    0,
    1,
    8,
    64,
    100,
    4095,
    4096,
    8192,
    100 << 10,
    (2 << 20) - 1,
    1 << 30,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
];
/// Number of offsets below 1 GiB, which are the first ones.
const NEAR_OFFSETS: usize = 10;
/// Size of a block, in bytes.
const BLOCK: u64 = 4096;
/// Lengths of extended attributes, in bytes. Engines refuse the last length. An object may have no room for
/// several attributes of the large lengths.
const XATTR_LENGTHS: [usize; 12] = [0, 1, 8, 40, 64, 100, 1000, 5000, 20_000, 40_000, 65_536, 65_537];
/// Number of small lengths, which are the first ones.
const SMALL_XATTR_LENGTHS: usize = 8;
/// Users of objects in runs with quotas. User 0 has no limits.
const USERS: [u32; 3] = [0, 7, 8];
/// The group of all objects.
const GROUP: u32 = 100;
/// Number of project ids of runs with quotas, including 0.
const TREES: u32 = 3;
/// Hard limits of storage, in bytes.
const MOST_BYTES: [u64; 5] = [0, 5000, 30_000, 200_000, 3 << 20];
/// Grace time of runs with quotas, in seconds. Each step takes a second.
const GRACE: u64 = 20;
/// Approximate number of directories of a run. The number is small, so that steps often use the same
/// directory.
const DIRECTORIES: usize = 6;

type Draw = fn(&mut OpGenerator, &Universe<'_>) -> Action;

/// The objects that exist when a step is drawn.
struct Universe<'a> {
    engine: &'a dyn Engine,
    directories: Vec<ObjectHandle>,
    files: Vec<ObjectHandle>,
    all: Vec<ObjectHandle>,
    ids: &'a Ids,
}

impl Universe<'_> {
    /// Visits the entries of `dir` in the order of [`OpName::good`]. Engines list entries in different
    /// orders, but a seed must draw the same steps with every engine.
    fn entries(&self, dir: ObjectHandle, visit: &mut dyn FnMut(OpName, ObjectId)) {
        let Some(dir) = self.ids.get(dir) else { return };
        for name in OpName::good() {
            if let Ok(Some(id)) = self.engine.lookup(dir, name.bytes()) {
                visit(name, id);
            }
        }
    }
}

/// Generates steps from a seed.
#[derive(Clone, Debug)]
pub struct OpGenerator {
    random: SmallRng,
    mix: OpMix,
    steps: u32,
    /// Open objects. An object occurs once for each open.
    opened: Vec<ObjectHandle>,
}

impl OpGenerator {
    /// Returns the generator of the steps of `seed`.
    pub fn new(seed: u64, mix: OpMix) -> OpGenerator {
        OpGenerator { random: SmallRng::seed_from_u64(seed), mix, steps: 0, opened: Vec::new() }
    }

    /// Draws the next step over the objects in `ids`. The draw depends on their state in `engine`, which is
    /// usually the model.
    ///
    /// # Panics
    /// Panics if all weights of the mix are 0.
    pub fn step(&mut self, ids: &Ids, engine: &dyn Engine) -> OpStep {
        self.steps += 1;
        let of = |choose: fn(Kind) -> bool| {
            ids.iter().filter(|(_, id)| choose(id.kind())).map(|(handle, _)| handle).collect::<Vec<_>>()
        };
        let universe = Universe {
            engine,
            directories: of(|kind| kind == Kind::Directory),
            files: of(|kind| kind == Kind::File),
            all: of(|_| true),
            ids,
        };
        let time = Time::new(1_000_000 + i64::from(self.steps), self.random.random_range(0..1_000_000_000));
        OpStep { number: self.steps, time, action: self.action(&universe) }
    }

    fn action(&mut self, universe: &Universe<'_>) -> Action {
        let mix = self.mix;
        let draws: [(u32, Draw); 22] = [
            (mix.create, OpGenerator::create),
            (mix.create_unnamed, |g, u| {
                let dir = g.dir(u);
                g.opened.push(ObjectHandle { step: g.steps, part: 0 });
                let linkable = !g.random.random_ratio(1, 4);
                Action::CreateUnnamed { dir, owner: g.owner_in(u, dir), linkable }
            }),
            (mix.link, |g, u| Action::Link { dir: g.dir(u), name: g.name(), object: g.object(u) }),
            (mix.unlink, |g, u| {
                let (dir, name) = g.entry(u, |kind, _| kind != Kind::Directory);
                Action::Unlink { dir, name }
            }),
            (mix.remove_directory, |g, u| {
                let (dir, name) = g.entry(u, |kind, size| kind == Kind::Directory && size == 0);
                Action::RemoveDirectory { dir, name }
            }),
            (mix.rename, OpGenerator::rename),
            (mix.write, |g, u| {
                let object = g.file(u);
                Action::Write { object, offset: g.offset(u, object), bytes: g.bytes() }
            }),
            (mix.append, |g, u| Action::Append { object: g.file(u), bytes: g.bytes() }),
            (mix.set_size, |g, u| {
                let object = g.file(u);
                Action::SetSize { object, size: g.offset(u, object) }
            }),
            (mix.fallocate, OpGenerator::fallocate),
            (mix.clone_range, OpGenerator::clone_range),
            (mix.set_attributes, |g, u| Action::SetAttributes { object: g.object(u), change: g.change() }),
            (mix.mark_access, |g, u| Action::MarkAccess { object: g.object(u) }),
            (mix.set_xattr, OpGenerator::set_xattr),
            (mix.remove_xattr, |g, u| {
                let (object, name) = g.xattr(u);
                Action::RemoveXattr { object, name }
            }),
            (mix.set_acl, |g, u| {
                // Half of the draws take a directory. Directories are few, but new objects inherit their
                // ACLs.
                let object = if g.random.random() { g.dir(u) } else { g.object(u) };
                let kind = g.pick(&AclKind::ALL);
                let count = if g.random.random_ratio(1, 8) { ACL_COUNT } else { GOOD_ACL_COUNT };
                Action::SetAcl {
                    object,
                    kind,
                    index: g.random.random_range(0..count),
                    rights: g.random.random(),
                }
            }),
            (mix.put, |g, u| {
                let dir = g.dir(u);
                Action::Put { dir, name: g.name(), bytes: g.bytes(), owner: g.owner_in(u, dir) }
            }),
            (mix.erase, |g, u| {
                let (dir, name) = g.entry(u, |kind, _| kind == Kind::File);
                Action::Erase { dir, name }
            }),
            (mix.batch, OpGenerator::batch),
            (mix.open, |g, u| {
                let object = g.object(u);
                g.opened.push(object);
                Action::Open { object }
            }),
            (mix.close, |g, u| {
                if g.opened.is_empty() {
                    return Action::Close { object: g.object(u) };
                }
                let index = g.random.random_range(0..g.opened.len());
                Action::Close { object: g.opened.swap_remove(index) }
            }),
            (mix.set_limits, |g, _| Action::SetLimits { limits: g.limits() }),
        ];
        let mut ticket = self.random.random_range(0..draws.iter().map(|(weight, _)| weight).sum());
        for (weight, draw) in draws {
            if ticket < weight {
                return draw(self, universe);
            }
            ticket -= weight;
        }
        unreachable!("a ticket is below the sum of the weights")
    }

    fn create(&mut self, universe: &Universe<'_>) -> Action {
        let kind = match self.random.random_range(0..20) {
            0..6 if universe.directories.len() < DIRECTORIES => Kind::Directory,
            0 => Kind::Directory,
            16..18 => Kind::Symlink,
            18 => Kind::Fifo,
            19 => Kind::BlockDevice,
            _ => Kind::File,
        };
        let start = match kind {
            Kind::Symlink => {
                InitialContent::Bytes(Bytes { length: self.random.random_range(1..200), pattern: 1 })
            }
            Kind::BlockDevice => InitialContent::Device(self.random.random()),
            Kind::File if self.random.random() => InitialContent::Bytes(self.bytes()),
            _ => InitialContent::Empty,
        };
        let dir = self.dir(universe);
        Action::Create { dir, name: self.name(), kind, start, owner: self.owner_in(universe, dir) }
    }

    fn rename(&mut self, universe: &Universe<'_>) -> Action {
        let mode = match self.random.random_range(0..10) {
            0..5 => RenameMode::Replace,
            5..7 => RenameMode::Exchange,
            7..9 => RenameMode::NoReplace,
            _ => self.pick(&[RenameMode::Whiteout, RenameMode::NoReplaceWhiteout]),
        };
        let from = self.entry(universe, |_, _| true);
        let to_dir = if self.random.random_ratio(1, 3) { from.0 } else { self.dir(universe) };
        Action::Rename { from, to: (to_dir, self.name()), mode }
    }

    /// Draws a `fallocate`. Modes that accept only whole blocks mostly get whole blocks.
    fn fallocate(&mut self, universe: &Universe<'_>) -> Action {
        let object = self.file(universe);
        let mode = self.pick(&FallocateMode::ALL);
        let (mut offset, mut length) = (self.offset(universe, object), self.bytes().length as u64);
        if mode.shifts() && !self.random.random_ratio(1, 8) {
            (offset, length) = (offset / BLOCK * BLOCK, length.next_multiple_of(BLOCK));
        }
        Action::Fallocate { object, mode, offset, length }
    }

    /// Draws a clone. Most offsets and lengths are multiples of a block. In a third of the draws all of them
    /// are 0, which clones the whole source.
    fn clone_range(&mut self, universe: &Universe<'_>) -> Action {
        let (source, target) = (self.file(universe), self.file(universe));
        let mut offsets = [self.offset(universe, source), self.offset(universe, target)];
        let mut length = self.bytes().length as u64;
        if !self.random.random_ratio(1, 8) {
            offsets = offsets.map(|offset| offset / BLOCK * BLOCK);
            length = length.next_multiple_of(BLOCK);
        }
        if self.random.random_ratio(1, 3) {
            (offsets, length) = ([0; 2], 0);
        }
        Action::CloneRange { source: (source, offsets[0]), target: (target, offsets[1]), length }
    }

    fn batch(&mut self, universe: &Universe<'_>) -> Action {
        let count = self.random.random_range(0..6);
        let parts = (0..count)
            .map(|index| {
                if self.random.random_ratio(2, 3) {
                    return BatchPart::Put { name: self.name(), bytes: self.bytes(), owner: self.owner() };
                }
                // The index of a part decides if the part is a condition. A further draw would change all
                // later draws of the seed.
                let name = self.name();
                if index < 3 {
                    BatchPart::Erase { name }
                } else {
                    BatchPart::Expect { name, present: index == 3 }
                }
            })
            .collect();
        Action::Batch { dir: self.dir(universe), parts }
    }

    fn set_xattr(&mut self, universe: &Universe<'_>) -> Action {
        let mode = self.pick(&[XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
        let is_large = self.random.random_ratio(1, 12);
        let lengths = if is_large { &XATTR_LENGTHS[..] } else { &XATTR_LENGTHS[..SMALL_XATTR_LENGTHS] };
        let bytes = Bytes { length: self.pick(lengths), pattern: self.steps };
        let (object, name) = if mode == XattrMode::Replace {
            self.xattr(universe)
        } else {
            (self.object(universe), self.name())
        };
        Action::SetXattr { object, name, bytes, mode }
    }

    /// Draws an object and a name. In most draws the object has an extended attribute of that name.
    fn xattr(&mut self, universe: &Universe<'_>) -> (ObjectHandle, OpName) {
        let mut there = Vec::new();
        if self.random.random_ratio(2, 3) {
            for (&object, name) in
                universe.all.iter().flat_map(|object| OpName::good().map(move |name| (object, name)))
            {
                let id = universe.ids.get(object);
                if id
                    .is_some_and(|id| matches!(universe.engine.xattr(id, name.xattr(), &mut []), Ok(Some(_))))
                {
                    there.push((object, name));
                }
            }
        }
        if there.is_empty() { (self.object(universe), self.name()) } else { self.pick(&there) }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    fn dir(&mut self, universe: &Universe<'_>) -> ObjectHandle {
        if self.random.random_ratio(1, 100) {
            return self.object(universe);
        }
        self.pick(&universe.directories)
    }

    /// Draws a directory and a name. In most draws the name is an entry whose object passes `is_wanted`.
    fn entry(&mut self, universe: &Universe<'_>, is_wanted: fn(Kind, u64) -> bool) -> (ObjectHandle, OpName) {
        let mut entries = Vec::new();
        if self.random.random_ratio(2, 3) {
            for &dir in &universe.directories {
                universe.entries(dir, &mut |name, id| {
                    let size = universe.engine.attributes(id).map_or(0, |attributes| attributes.size);
                    if is_wanted(id.kind(), size) {
                        entries.push((dir, name));
                    }
                });
            }
        }
        if entries.is_empty() { (self.dir(universe), self.name()) } else { self.pick(&entries) }
    }

    fn file(&mut self, universe: &Universe<'_>) -> ObjectHandle {
        if universe.files.is_empty() || self.random.random_ratio(1, 50) {
            return self.object(universe);
        }
        self.pick(&universe.files)
    }

    fn object(&mut self, universe: &Universe<'_>) -> ObjectHandle {
        self.pick(&universe.all)
    }

    fn name(&mut self) -> OpName {
        let good = OpName::ALL.len() - OpName::BAD;
        if self.mix.has_bad_names && self.random.random_ratio(1, 60) {
            return OpName::new(self.random.random_range(good..OpName::ALL.len()));
        }
        OpName::new(self.random.random_range(0..good))
    }

    fn bytes(&mut self) -> Bytes {
        let lengths = if self.random.random_ratio(1, 12) { &LENGTHS[..] } else { &LENGTHS[..SMALL_LENGTHS] };
        let pattern = if self.random.random_ratio(1, 8) { 0 } else { self.steps };
        Bytes { length: self.pick(lengths), pattern }
    }

    /// Draws an offset from [`OFFSETS`], near the end of the file, or inside the file. If `is_sparse` is
    /// false, the draws from the list stay below 1 GiB. If it is true, the function also draws offsets of
    /// 2^63 and more.
    fn offset(&mut self, universe: &Universe<'_>, object: ObjectHandle) -> u64 {
        let size = universe
            .ids
            .get(object)
            .and_then(|id| universe.engine.attributes(id).ok())
            .map_or(0, |attributes| attributes.size);
        match self.random.random_range(0..20) {
            0..6 => size.saturating_add_signed(self.random.random_range(-9..=9)),
            6..8 if size > 0 => self.random.random_range(0..size),
            8..10 if self.mix.is_sparse => self.pick(&OFFSETS),
            10 if self.mix.is_sparse => (1 << 63) + self.random.random_range(0..10),
            _ => self.pick(&OFFSETS[..NEAR_OFFSETS]),
        }
    }

    fn owner(&mut self) -> Owner {
        let mode = self.random.random_range(0..=0o7777);
        let uid = if self.mix.set_limits > 0 { self.pick(&USERS) } else { self.random.random() };
        Owner { mode, uid, gid: GROUP }
    }

    /// Draws limits of some accounts, or the end of all limits.
    fn limits(&mut self) -> Option<QuotaTable> {
        let mut table = QuotaTable::default();
        (table.bytes_grace, table.files_grace) = (GRACE, GRACE);
        for _ in 0..self.random.random_range(0..5) {
            let (kind, number) = match self.random.random_range(0..4) {
                0 => (QuotaKind::Group, GROUP),
                1 => (QuotaKind::Tree, self.random.random_range(1..TREES)),
                _ => (QuotaKind::User, self.pick(&USERS[1..])),
            };
            let (bytes, files) = (self.pick(&MOST_BYTES), self.random.random_range(0..20));
            let limits = QuotaLimits { bytes: self.limit(bytes), files: self.limit(files) };
            table.set(QuotaId { kind, number }, limits).expect("possible limits");
        }
        (!self.random.random_ratio(1, 8)).then_some(table)
    }

    /// Draws a soft limit for a hard limit.
    fn limit(&mut self, hard: u64) -> QuotaLimit {
        let soft = if self.random.random() { self.random.random_range(0..=hard) } else { 0 };
        QuotaLimit { soft, hard, deadline: 0 }
    }

    /// Draws the owner of a new object, with or without the bit [`Owner::INHERITS`]. In a directory with a
    /// default ACL, about half of the owners have this bit. In other directories fewer owners have it,
    /// because an Op with this bit fails there.
    fn owner_in(&mut self, universe: &Universe<'_>, dir: ObjectHandle) -> Owner {
        let owner = self.owner();
        let id = universe.ids.get(dir);
        let acl = id.map(|id| universe.engine.xattr(id, AclKind::Default.name(), &mut []));
        let ratio = if matches!(acl, Some(Ok(Some(_)))) { 2 } else { 40 };
        let inherits = self.mix.set_acl > 0 && owner.uid.is_multiple_of(ratio);
        Owner { mode: owner.mode | if inherits { Owner::INHERITS } else { 0 }, ..owner }
    }

    fn change(&mut self) -> AttributeChange {
        let owner = self.owner();
        let time =
            Time::new(self.random.random_range(-1000..1000), self.random.random_range(0..1_000_000_000));
        let has_quotas = self.mix.set_limits > 0;
        let project = (has_quotas && self.random.random()).then(|| self.random.random_range(0..TREES));
        let random = &mut self.random;
        AttributeChange {
            project,
            mode: random.random::<bool>().then_some(owner.mode),
            uid: random.random::<bool>().then_some(owner.uid),
            gid: random.random::<bool>().then_some(owner.gid),
            accessed: random.random::<bool>().then_some(time),
            modified: random.random::<bool>().then_some(time),
            // `size` and `flags` follow from numbers that are drawn above. Further draws would change all
            // later draws of the seed.
            size: owner.uid.is_multiple_of(10).then_some(u64::from(owner.uid) % (1 << 16)),
            flags: owner.mode.is_multiple_of(12).then(|| InodeFlags::from_bits_truncate(owner.uid as u8)),
            ..AttributeChange::default()
        }
    }
}
