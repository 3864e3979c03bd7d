//! `shared`: a volume that a service serves to programs, beside the same volume in one process.
//!
//! A client of a service logs its changes, and the service applies them later. A *burst* is a number of calls
//! for which the log has room. Before a burst the client gets the grant, and the service applies all earlier
//! changes, so the time of a burst is that of the client alone. *Sustained* calls are many more, without a
//! pause between them, and their time ends when the service has applied all of them. On sides without a
//! service the workload makes the same calls.

mod changes;
mod clients;
mod reads;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eyrie::{File, Posix, Target};

use super::files::{BLOCK_BYTES, make_dir};
use super::micro::thousands;
use crate::client::Clients;
use crate::error::{Error, Result};
use crate::keys::KeySession;
use crate::machine;
use crate::method::{FileWork, Plan, RowPlan, Stopwatch, Targets, ThreadPart, Worker};
use crate::run::Workload;
use crate::side::Side;
use crate::values::Chooser;

use self::changes::{POOL, Written};

/// Bytes of a small value, and of a file that is looked up.
const SMALL_BYTES: usize = 100;
/// Maximum number of counted rounds of rows in which clients change names. These rows take long, because on
/// most sides each client is a new process in each round.
const CLIENT_ROUNDS: u32 = 15;

/// A call that changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadCall {
    Open,
    Stat,
    StatDirectory,
    Read,
    Get,
    List,
    Sync,
}

/// A call that changes the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChangeCall {
    Create,
    Rename,
    Unlink,
    PutNew,
    Erase,
    Append,
    Overwrite,
    Put,
    PutSmall,
}

/// The number of calls of a change in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Burst,
    Sustained,
}

/// Clients that change names at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientCall {
    One,
    /// Two, each in a directory of its own.
    Apart,
    /// Two in one directory.
    Together,
}

/// A look-up of a file that another client has logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GrantCall {
    Running,
    Stopped,
    Killed,
}

/// A row of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SharedCall {
    Read(ReadCall),
    Change(ChangeCall, Length),
    Clients(ClientCall),
    Grant(GrantCall),
}

const READS: [ReadCall; 7] = [
    ReadCall::Open,
    ReadCall::Stat,
    ReadCall::StatDirectory,
    ReadCall::Read,
    ReadCall::Get,
    ReadCall::List,
    ReadCall::Sync,
];
/// The changes. Those of one group alternate, because one makes the names that the next one changes.
const CHANGES: [&[ChangeCall]; 6] = [
    &[ChangeCall::Create, ChangeCall::Rename, ChangeCall::Unlink],
    &[ChangeCall::PutNew, ChangeCall::Erase],
    &[ChangeCall::Append],
    &[ChangeCall::Overwrite],
    &[ChangeCall::Put],
    &[ChangeCall::PutSmall],
];
const CLIENTS: [ClientCall; 3] = [ClientCall::One, ClientCall::Apart, ClientCall::Together];
const GRANTS: [GrantCall; 3] = [GrantCall::Running, GrantCall::Stopped, GrantCall::Killed];

/// A part of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedPart {
    /// Calls that change nothing.
    Reads,
    /// Changes of one client, in a burst and sustained.
    Changes,
    /// Changes of names by one and by two clients.
    Clients,
    /// Look-ups of files that another client has logged.
    Grants,
}

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct SharedAmounts {
    /// Files in the directory whose files are looked up, and keys in the store from which values are read.
    pub names: u64,
    /// Files in the small directory.
    pub few: u64,
    /// Blocks of the file that is read.
    pub read_blocks: u64,
    /// Blocks of the file that is overwritten.
    pub blocks: u64,
    /// Keys whose values are replaced.
    pub keys: u64,
    /// Calls in a round of reads.
    pub reads: u64,
    /// Calls in a burst.
    pub burst: u64,
    /// Calls in a round of sustained changes.
    pub sustained: u64,
    /// Time for which clients change names in a round.
    pub changing: Duration,
    /// Number of times that a grant is taken in a round.
    pub taken: u64,
}

impl SharedAmounts {
    /// Returns the amounts of `eyrie bench shared`. The entries of a burst of blocks fill two fifths of a
    /// log, and the file that is read does not fit into the caches of the processor.
    pub fn standard() -> SharedAmounts {
        SharedAmounts {
            names: 1000,
            few: 100,
            read_blocks: 65_536,
            blocks: 4096,
            keys: 1000,
            reads: 1000,
            burst: 200,
            sustained: 20_000,
            changing: Duration::from_millis(300),
            taken: 10,
        }
    }

    /// Returns amounts with which a test of the workload takes seconds. The figures mean little.
    pub fn quick() -> SharedAmounts {
        SharedAmounts {
            names: 100,
            few: 20,
            read_blocks: 512,
            blocks: 256,
            keys: 64,
            reads: 128,
            burst: 40,
            sustained: 1000,
            changing: Duration::from_millis(10),
            taken: 2,
        }
    }

    fn calls(&self, length: Length) -> u64 {
        if length == Length::Burst { self.burst } else { self.sustained }
    }
}

impl SharedCall {
    /// Returns the name that tables show.
    fn name(self) -> String {
        let name = match self {
            SharedCall::Read(call) => match call {
                ReadCall::Open => "open + close",
                ReadCall::Stat => "stat",
                ReadCall::StatDirectory => "stat of a small directory",
                ReadCall::Read => "read 4 KiB",
                ReadCall::Get => "get 100 B",
                ReadCall::List => "listing, each name",
                ReadCall::Sync => "fsync without changes",
            },
            SharedCall::Change(call, length) => {
                let name = match call {
                    ChangeCall::Create => "create + close",
                    ChangeCall::Rename => "rename",
                    ChangeCall::Unlink => "unlink",
                    ChangeCall::PutNew => "put a new key, 100 B",
                    ChangeCall::Erase => "erase",
                    ChangeCall::Append => "append 4 KiB",
                    ChangeCall::Overwrite => "overwrite 4 KiB",
                    ChangeCall::Put => "replace a value, 4 KiB",
                    ChangeCall::PutSmall => "replace a value, 100 B",
                };
                return format!("{name}, {}", if length == Length::Burst { "burst" } else { "sustained" });
            }
            SharedCall::Clients(call) => match call {
                ClientCall::One => "change names, one client",
                ClientCall::Apart => "change names, two clients apart",
                ClientCall::Together => "change names, two clients in a directory",
            },
            SharedCall::Grant(call) => match call {
                GrantCall::Running => "stat of a file that a client has logged",
                GrantCall::Stopped => "stat of a file that a stopped client has logged",
                GrantCall::Killed => "stat of a file that a killed client has logged",
            },
        };
        name.to_owned()
    }

    fn targets(self, amounts: &SharedAmounts) -> Targets {
        match self {
            SharedCall::Read(call) => match call {
                ReadCall::Open | ReadCall::Stat => Targets::random("files", amounts.names),
                ReadCall::StatDirectory => Targets::each("directories", 1),
                ReadCall::Read => Targets::random("blocks", amounts.read_blocks),
                ReadCall::Get => Targets::random("keys", amounts.names),
                ReadCall::List => Targets::each("files", amounts.names),
                ReadCall::Sync => Targets::each("files", 1),
            },
            SharedCall::Change(call, length) => match call {
                ChangeCall::Create | ChangeCall::Rename | ChangeCall::Unlink => {
                    Targets::each("files", amounts.calls(length))
                }
                ChangeCall::PutNew | ChangeCall::Erase => Targets::each("keys", amounts.calls(length)),
                ChangeCall::Append => Targets::each("blocks", amounts.calls(length)),
                ChangeCall::Overwrite => Targets::each("blocks", amounts.blocks),
                ChangeCall::Put | ChangeCall::PutSmall => Targets::each("keys", amounts.keys),
            },
            SharedCall::Clients(ClientCall::One) => Targets::each("clients", 1),
            SharedCall::Clients(_) => Targets::each("clients", 2),
            SharedCall::Grant(_) => Targets::each("files", amounts.taken),
        }
    }
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Shared {
    amounts: SharedAmounts,
    groups: Vec<Vec<SharedCall>>,
}

impl Shared {
    /// Makes the workload with these parts, or with all parts if none is named.
    pub fn new(amounts: SharedAmounts, parts: &[SharedPart]) -> Shared {
        let has = |part: SharedPart| parts.is_empty() || parts.contains(&part);
        let mut groups: Vec<Vec<SharedCall>> = Vec::new();
        if has(SharedPart::Reads) {
            groups.extend(READS.map(|call| vec![SharedCall::Read(call)]));
        }
        for length in [Length::Burst, Length::Sustained].into_iter().filter(|_| has(SharedPart::Changes)) {
            let group = |group: &&[ChangeCall]| {
                group.iter().map(|&call| SharedCall::Change(call, length)).collect::<Vec<_>>()
            };
            groups.extend(CHANGES.iter().map(group));
        }
        if has(SharedPart::Clients) {
            groups.push(CLIENTS.map(SharedCall::Clients).to_vec());
        }
        if has(SharedPart::Grants) {
            groups.extend(GRANTS.map(|call| vec![SharedCall::Grant(call)]));
        }
        Shared { amounts, groups }
    }
}

impl Workload for Shared {
    fn title(&self) -> String {
        "bench shared".to_owned()
    }

    fn notes(&self) -> Vec<String> {
        let SharedAmounts { names, few, read_blocks, burst, sustained, changing, .. } = self.amounts;
        vec![
            format!(
                "a burst has {} calls, for which the log of a client has room; the time of {} sustained \
                 calls ends when the service has applied them; reads of {} files, of a directory of {} files \
                 and of a file of {} MiB",
                thousands(burst),
                thousands(sustained),
                thousands(names),
                thousands(few),
                (read_blocks * BLOCK_BYTES as u64) >> 20
            ),
            format!(
                "clients that change names make, rename and remove files of {SMALL_BYTES} bytes for {} ms; \
                 the time of a call is the inverse of the sum of their rates; they are processes, and \
                 threads on a volume in this process; on the side `confined` all of them and the service \
                 have one processor",
                changing.as_millis()
            ),
        ]
    }

    fn bytes(&self, _threads: u64) -> u64 {
        // An overwrite takes new pages before the old ones are free, so changed blocks and values count
        // twice. A new file or key has a header, a name, and a page for its bytes. The 64 MiB leave room for
        // directories, tables and the files of several clients.
        let (amounts, block) = (&self.amounts, BLOCK_BYTES as u64);
        let name = block + 480;
        let kept = amounts.read_blocks * block + 2 * amounts.names * name + amounts.few * name;
        let changed = 2 * (amounts.blocks * block + amounts.keys * name);
        kept + changed + amounts.sustained * (block + name) + (64 << 20)
    }

    fn most_threads(&self) -> u64 {
        // The burst of one thread would have the requests of another thread beside it.
        1
    }

    fn plan(&self, _threads: u64) -> Plan {
        let row = |call: &SharedCall| {
            let row = RowPlan::new(call.name(), call.targets(&self.amounts));
            if matches!(call, SharedCall::Clients(_)) { row.at_most(CLIENT_ROUNDS) } else { row }
        };
        Plan { groups: self.groups.iter().map(|group| group.iter().map(row).collect()).collect() }
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        let worker = |&part: &ThreadPart| {
            let store = |name: &str, bytes| side.storage().new_store(name, bytes)?.session();
            let stores = [store("read-keys", SMALL_BYTES)?, store("changed-keys", BLOCK_BYTES)?];
            let work =
                OnSide { shared: self, clients: side.clients.clone(), stores: Mutex::new(Some(stores)) };
            side.file_worker(&work, part)
        };
        parts.iter().map(worker).collect()
    }
}

/// The workload on one side.
struct OnSide<'a> {
    shared: &'a Shared,
    clients: Option<Clients>,
    /// The store that is read, and the store that is changed. The worker takes them.
    stores: Mutex<Option<[Box<dyn KeySession>; 2]>>,
}

impl FileWork for OnSide<'_> {
    fn worker<P>(&self, fs: P, directory: String, _part: ThreadPart) -> Result<Box<dyn Worker>>
    where
        P: Posix + Clone + Send + Sync + 'static,
        P::Handle: Send + Sync,
    {
        for below in ["", "/read", "/small", "/names", "/client-0", "/client-1", "/together", "/held"] {
            make_dir(&fs, &format!("{directory}{below}"))?;
        }
        let stores = self.stores.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let [read_store, store] = stores.ok_or_else(|| Error::wrong("a side has one worker"))?;
        let open = |name: &str| super::files::open(&fs, &format!("{directory}/{name}"));
        let amounts = self.shared.amounts;
        let initial = |number: u64| Written { slot: number % POOL as u64, version: 0 };
        let mut worker = SharedWorker {
            calls: self.shared.groups.iter().flatten().copied().collect::<Vec<_>>().into(),
            amounts,
            clients: self.clients.clone(),
            processors: machine::processors(),
            read_file: open("read-file")?,
            granted: open("granted")?,
            file: open("file")?,
            log: open("log")?,
            read_store,
            store,
            version: 0,
            blocks: (0..amounts.blocks).map(initial).collect(),
            values: (0..amounts.keys).map(|key| (initial(key), BLOCK_BYTES)).collect(),
            next: [0; 2],
            pool: vec![vec![0; BLOCK_BYTES]; POOL],
            chooser: Chooser::new(0),
            is_rested: false,
            fs,
            directory,
        };
        worker.fill_reads()?;
        worker.fill_changes()?;
        Ok(Box::new(worker))
    }
}

/// The work on one side.
struct SharedWorker<P: Posix + Clone> {
    fs: P,
    calls: Arc<[SharedCall]>,
    amounts: SharedAmounts,
    clients: Option<Clients>,
    /// The processors that this process may use. The thread of the worker is pinned to one of them.
    processors: Vec<usize>,
    directory: String,
    read_file: File<P>,
    /// The file whose changes bring the grant.
    granted: File<P>,
    file: File<P>,
    log: File<P>,
    read_store: Box<dyn KeySession>,
    store: Box<dyn KeySession>,
    /// The number of rounds of changes so far: the version of the contents in `pool`.
    version: u32,
    /// The contents of the blocks of `file`.
    blocks: Vec<Written>,
    /// The contents and the lengths of the values of `store`.
    values: Vec<(Written, usize)>,
    /// Number of blocks, and of values, that were changed so far.
    next: [u64; 2],
    /// The blocks that calls write. Reads use them as buffers, so each round of changes fills them anew.
    pool: Vec<Vec<u8>>,
    chooser: Chooser,
    /// True after the pause before the first read. In this pause the grants end that the client got for
    /// filling the side.
    is_rested: bool,
}

impl<P: Posix + Clone> SharedWorker<P> {
    /// Waits until the service has applied all changes. The request for the space of the volume waits in this
    /// way, because the service applies all logs before its answer.
    fn settle(&self) -> Result<()> {
        Ok(self.fs.statvfs(Target::from(&*self.directory)).map(drop)?)
    }
}

impl<P: Posix + Clone + Send + Sync> Worker for SharedWorker<P>
where
    P::Handle: Send + Sync,
{
    fn round(&mut self, row: usize, watch: &mut Stopwatch) -> Result<bool> {
        match self.calls[row] {
            SharedCall::Read(call) => self.read(call, watch).map(|()| true),
            SharedCall::Change(call, length) => self.change(call, length, watch).map(|()| true),
            SharedCall::Clients(call) => self.change_together(call, watch),
            SharedCall::Grant(call) => self.take_grants(call, watch),
        }
    }

    fn prove(&mut self, watch: &mut Stopwatch) -> Result<()> {
        self.prove_reads(watch)?;
        self.prove_changes(watch)
    }
}
