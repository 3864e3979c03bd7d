//! Draws the calls of a history.

use std::time::Duration;

use eyrie_engine::{
    AttributeChange, Content, Engine, Kind, Model, ObjectId, Op, Owner, RenameMode, SetIds, Time,
};
use eyrie_testkit::linear::Request;
use eyrie_testkit::ops::OpRecord;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub const CLIENTS: usize = 3;
/// Number of ids that each client reserves for a history.
pub const IDS: usize = 20;
/// Number of objects that all clients know from the start.
pub const SHARED: usize = 4;

/// Within 10 ms, a service that sleeps applies the log.
const LONG_PAUSE: Duration = Duration::from_millis(12);
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
pub const BORN: Time = Time::new(1, 0);
pub const NAMES: [&[u8]; 3] = [b"a", b"b", b"k"];
const CONTENT: &[u8] = b"0123456789abcdef";

/// The objects that all clients know: two directories, a file, and a key.
#[derive(Clone, Copy)]
pub struct Objects {
    pub dirs: [ObjectId; 2],
    pub file: ObjectId,
    pub key: ObjectId,
}

impl Objects {
    /// Makes the objects in the root directory under this name, and returns the model of them.
    pub fn make(engine: &dyn Engine, name: &[u8]) -> (Objects, Model) {
        let [top, dir] = [(); 2].map(|()| engine.reserve(Kind::Directory).unwrap());
        let [file, key] = [(); 2].map(|()| engine.reserve(Kind::File).unwrap());
        let root = engine.root();
        let (owner, time, model) = (OWNER, BORN, Model::new(root, OWNER, BORN));
        let create = |dir, name, id, content| Op::Create { dir, name, id, owner, content, time };
        for op in [
            create(root, name, top, Content::Empty),
            create(top, b"dir", dir, Content::Empty),
            create(top, NAMES[0], file, Content::Bytes(CONTENT)),
            Op::Put { dir: top, name: NAMES[2], id: key, owner, data: b"value", time },
        ] {
            engine.apply(&op).unwrap();
            model.apply(&op).unwrap();
        }
        (Objects { dirs: [top, dir], file, key }, model)
    }

    pub fn to_words(self) -> [u64; SHARED] {
        [self.dirs[0], self.dirs[1], self.file, self.key].map(ObjectId::raw)
    }

    pub fn from_words(words: [u64; SHARED]) -> Objects {
        let [top, dir, file, key] = words.map(|word| ObjectId::from_raw(word).unwrap());
        Objects { dirs: [top, dir], file, key }
    }

    /// Returns a write to the file of the bytes and the time that it had at first.
    pub fn no_change(&self) -> Op<'static> {
        Op::Write { id: self.file, offset: 0, data: CONTENT, set_ids: SetIds::Keep, time: BORN }
    }
}

/// A call, and the pause before it.
pub struct Step {
    pub pause: Duration,
    pub request: Request,
}

/// The calls of a thread.
pub struct Script {
    pub client: usize,
    pub steps: Vec<Step>,
}

/// All calls of a history.
pub struct Plan {
    /// The client that gets the grant.
    pub holder: usize,
    /// True if the holder gets the grant in the history, and not before it.
    pub is_granted_late: bool,
    /// True if the holder wakes the service shortly before the other clients begin.
    pub wakes_service: bool,
    /// Number of changes that the holder logs before all other calls. The more there are, the longer its
    /// later entries wait for the service.
    pub backlog: u32,
    /// Calls of the holder before the other clients begin.
    pub first: Vec<Step>,
    /// The first script is one of the holder.
    pub scripts: Vec<Script>,
    /// The new objects that the calls of each client may make.
    pub made: [Vec<ObjectId>; CLIENTS],
}

impl Plan {
    /// Draws the calls on some objects. `ids` are the ids that each client has reserved. The same arguments
    /// give the same plan.
    pub fn draw(seed: u64, objects: Objects, ids: &[Vec<ObjectId>; CLIENTS]) -> Plan {
        let mut random = SmallRng::seed_from_u64(seed);
        let holder = random.random_range(0..CLIENTS);
        let mut clients: Vec<_> = (0..CLIENTS).map(|client| (holder + client) % CLIENTS).collect();
        match random.random_range(0..6) {
            0..3 => clients.push(holder),
            3 => clients.push(random.random_range(0..CLIENTS)),
            _ => {}
        }
        let has_one_time = random.random();
        let counts = (random.random_range(1..=2), random.random_range(1..=NAMES.len()));
        let (ids, made) = (ids.clone(), Default::default());
        let mut draws = Draws { objects, ids, made, has_one_time, counts, random };
        let wakes_service = draws.random.random();
        let is_granted_late = draws.random.random_ratio(1, 8);
        let has_backlog = !is_granted_late && draws.random.random();
        let backlog = if has_backlog { draws.random.random_range(0..300) } else { 0 };
        let first = 0..if is_granted_late { 0 } else { draws.random.random_range(0..9) };
        let long_pause = draws.random.random_range(0..16);
        let first = first.map(|call| {
            let request = draws.request(holder, Time::new(2 + call, 0));
            Step { pause: if call == long_pause { LONG_PAUSE } else { draws.pause() }, request }
        });
        let first = first.collect();
        let scripts = clients.iter().enumerate().map(|(thread, &client)| {
            let is_holder = client == holder;
            let calls = if is_holder { draws.random.random_range(3..6) } else { 3 };
            let steps = (0..calls).map(|call| {
                let time = if draws.has_one_time { (10, 0) } else { (10 + call, thread as u32) };
                let request = draws.request(client, Time::new(time.0, time.1));
                let is_first = call == 0 && !is_holder;
                let pause = if is_first { draws.first_pause(is_granted_late) } else { draws.pause() };
                Step { pause, request }
            });
            Script { client, steps: steps.collect() }
        });
        let scripts = scripts.collect();
        Plan { holder, is_granted_late, wakes_service, backlog, first, scripts, made: draws.made }
    }

    /// Returns the calls of each thread.
    pub fn requests(&self) -> Vec<Vec<Request>> {
        let requests = |steps: &[Step]| steps.iter().map(|step| step.request.clone()).collect::<Vec<_>>();
        let mut of_threads: Vec<_> = self.scripts.iter().map(|script| requests(&script.steps)).collect();
        of_threads[0].splice(0..0, requests(&self.first));
        of_threads
    }

    /// Returns calls that look at all names and objects.
    pub fn looks(&self, objects: &Objects) -> Vec<Request> {
        let names = objects.dirs.into_iter().flat_map(|dir| NAMES.map(|name| (dir, name.to_vec())));
        let lookups = names.map(|(dir, name)| Request::Lookup { dir, name });
        let files = [objects.file, objects.key].into_iter().chain(self.made.concat());
        let looks =
            files.flat_map(|id| [Request::Read { id, offset: 0, length: 64 }, Request::Attributes(id)]);
        lookups.chain(objects.dirs.map(Request::Attributes)).chain(looks).collect()
    }
}

struct Draws {
    objects: Objects,
    /// The ids of each client that are not used.
    ids: [Vec<ObjectId>; CLIENTS],
    made: [Vec<ObjectId>; CLIENTS],
    /// True if all changes have the same time.
    has_one_time: bool,
    /// Number of directories and of names that the calls use.
    counts: (usize, usize),
    random: SmallRng,
}

impl Draws {
    /// Draws the pause before a call. A logged change takes less than a microsecond, and most other calls
    /// some microseconds.
    fn pause(&mut self) -> Duration {
        let random = &mut self.random;
        match random.random_range(0..100) {
            0..50 => Duration::ZERO,
            50..90 => Duration::from_micros(random.random_range(0..6)),
            90..99 => Duration::from_micros(random.random_range(10..200)),
            _ => LONG_PAUSE,
        }
    }

    /// Draws the pause of a client without the grant before its first call. This call takes the grant back,
    /// or delays it.
    fn first_pause(&mut self, is_granted_late: bool) -> Duration {
        Duration::from_micros(self.random.random_range(0..if is_granted_late { 100 } else { 15 }))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())]
    }

    /// Returns the id for a new object of a client.
    fn fresh(&mut self, client: usize) -> ObjectId {
        let id = self.ids[client].pop().unwrap();
        self.made[client].push(id);
        id
    }

    /// Draws a request of a client.
    fn request(&mut self, client: usize, time: Time) -> Request {
        let (Objects { dirs, file, key }, owner) = (self.objects, OWNER);
        let (dirs, names) = (&dirs[..self.counts.0], &NAMES[..self.counts.1]);
        let (dir, name) = (self.one_of(dirs), self.one_of(names));
        let shared = [file, file, key];
        let id = self.one_of(&[&shared[..], &self.made.concat()].concat());
        // Reads of extended attributes and of inode flags find a new object of another client only after a
        // look-up, an open or a read of its bytes.
        let own = self.one_of(&[&shared[..], &self.made[client]].concat());
        let data = &[self.random.random(); 20][..self.one_of(&[1, 8, 20])];
        let set_ids = SetIds::Keep;
        let op = match self.random.random_range(0..33) {
            0..4 => return Request::Lookup { dir, name: name.to_vec() },
            4..7 => return Request::Read { id, offset: 0, length: 64 },
            7..9 => return Request::Attributes(id),
            9 => return Request::Attributes(dir),
            10 => return Request::Xattr { id: own, name: b"user.x".to_vec() },
            11 => return Request::InodeFlags(own),
            12..15 => {
                Op::Create { dir, name, id: self.fresh(client), owner, content: Content::Bytes(data), time }
            }
            15..17 => Op::Put { dir, name, id: self.fresh(client), owner, data, time },
            17..19 => Op::Unlink { dir, name, time },
            19 => Op::Erase { dir, name, time },
            20..24 => {
                let (to_dir, to_name) = (self.one_of(dirs), self.one_of(names));
                let mode = self.one_of(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
                let (from_dir, from_name) = (dir, name);
                Op::Rename { from_dir, from_name, to_dir, to_name, mode, whiteout: None, time }
            }
            24..26 => {
                let offset = self.random.random_range(0..3) * 8;
                Op::Write { id, offset, data, set_ids, time }
            }
            26..29 => Op::Append { id, data, set_ids, time },
            29 => Op::SetSize { id, size: self.random.random_range(0..30), set_ids, time },
            30 => {
                let change = AttributeChange { modified: Some(time), ..AttributeChange::default() };
                Op::SetAttributes { id, change, time }
            }
            _ => Op::Link { dir, name, id, time },
        };
        Request::Apply(OpRecord::new(&op))
    }
}
