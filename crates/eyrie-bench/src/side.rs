//! The sides of a run: Eyrie, and everything with which it is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie::{Credentials, Files, Host, PosixExt, Volume};
use eyrie_fuse::{Mount, MountOptions};
use serde::Serialize;

use crate::client::Clients;
use crate::error::{Error, Result};
use crate::keys::{Durability, HostKeys, KeyStore, VolumeKeys};
use crate::method::{Count, Counters, FileWork, SideWithWorkers, ThreadPart, Worker};
use crate::peers::{self, Peer};
use crate::place::{HostMount, Scratch, device_written_bytes, file_system_name, free_bytes};
use crate::rival::Rival;
use crate::service::{ServiceKind, ServiceProcess};

mod request;

pub use request::SideRequest;

/// The size of a new file system, divided by the number of bytes that the workload needs. With 2, no file
/// system becomes more than half full. In a nearly full one, the measured times would include a long search
/// for free storage. The host provides the storage only when it is used.
const ROOM: u64 = 2;
/// Smallest size of a volume. From this size on, a volume on a disk has the largest journal. So all workloads
/// have a journal of the same size.
const LEAST_VOLUME_BYTES: u64 = 1 << 30;

/// The place and the durability of a side, for the report.
#[derive(Clone, Debug, Serialize)]
pub struct SideInformation {
    /// The name.
    pub name: String,
    /// The place of its files.
    pub place: String,
    /// The failures that its changes survive, or the calls and settings that make its changes durable.
    pub durability: String,
    /// Bytes that the side used at the end of the run.
    pub used_bytes: Option<u64>,
}

/// The storage of a side. The fields of each variant are dropped in their order. A host is dropped before its
/// mount, because its open directory keeps the mount busy. A mount of a volume ends before the volume closes,
/// and the volume closes before its service stops.
enum Storage {
    Volume {
        mount: Option<(Host, Mount)>,
        volume: Arc<Volume>,
        files: Files,
        /// The service, if the volume is open through one.
        _service: Option<ServiceProcess>,
    },
    Directory {
        host: Host,
        /// The whole path of the directory.
        path: PathBuf,
        mount: Option<HostMount>,
    },
    Peer {
        peer: Peer,
        path: PathBuf,
    },
}

/// One side of a run.
pub struct Side {
    /// The description of the side.
    pub information: SideInformation,
    /// The way to start other programs that use the side. `None` on a volume that only this process can open,
    /// on a store of keys and values, and if the request names no command.
    pub(crate) clients: Option<Clients>,
    shared: SharedStorage,
}

/// The storage of a side. This type makes and removes stores of keys and values. Clones share the storage.
#[derive(Clone)]
pub struct SharedStorage {
    storage: Arc<Storage>,
    durability: Durability,
}

/// The ways in which a run can use a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VolumeAccess {
    /// In this process.
    Embedded,
    Mounted,
    Served(ServiceKind),
}

/// All sides of a run, and the directory that has them.
pub struct RunSides {
    /// The sides. The first one is Eyrie.
    pub sides: Vec<Side>,
    /// A line for each side that could not be made, with the reason.
    pub skipped: Vec<String>,
    /// Returns true after an interrupt.
    stop: fn() -> bool,
    /// Dropped last, because the sides have their files in it.
    scratch: Scratch,
}

impl RunSides {
    /// Makes the sides. A side other than Eyrie that cannot be made is skipped.
    ///
    /// # Errors `Interrupted` if `stop` returns true. Also fails if Eyrie's own side or the scratch directory
    /// cannot be made, or if too little space is free.
    pub fn new(request: &SideRequest, stop: fn() -> bool) -> Result<RunSides> {
        let scratch = Scratch::new(&request.directory)?;
        let (room, needed) = (free_bytes(scratch.path()), request.bytes.saturating_mul(request.side_count()));
        if room < needed {
            let (place, room, needed) = (request.directory.display(), room >> 20, needed >> 20);
            let text = format!("{place} has {room} MiB free, but the run needs about {needed} MiB");
            return Err(Error::Request(text));
        }
        let mut run_sides = RunSides { sides: Vec::new(), skipped: Vec::new(), stop, scratch };
        let volume = run_sides
            .volume("eyrie", request, VolumeAccess::Embedded)
            .map_err(|reason| Error::Request(format!("eyrie: {reason}")))?;
        run_sides.sides.push(volume);
        for &rival in &request.against {
            if stop() {
                return Err(Error::Interrupted);
            }
            match run_sides.rival(rival, request) {
                Ok(side) => run_sides.sides.push(side),
                Err(reason) => run_sides.skipped.push(format!("{rival} is left out: {reason}")),
            }
        }
        if stop() { Err(Error::Interrupted) } else { Ok(run_sides) }
    }

    fn volume(
        &self,
        name: &str,
        request: &SideRequest,
        access: VolumeAccess,
    ) -> std::result::Result<Side, String> {
        let place = self.scratch.path().join(name);
        let size = (ROOM * request.bytes).max(LEAST_VOLUME_BYTES).next_multiple_of(64 << 20);
        let options = Volume::options().size(size).medium(request.medium);
        let mut volume = options.create(&place).map_err(|error| error.to_string())?;
        let mut service = None;
        if let VolumeAccess::Served(kind) = access {
            volume.close().map_err(|error| error.to_string())?;
            let command = request.command.as_deref().ok_or("no command to serve the volume is known")?;
            let (started, client) = kind.serve(command, &place, self.stop)?;
            (service, volume) = (Some(started), client);
        }
        let volume = Arc::new(volume);
        let information = volume.information();
        let files = volume.files(Credentials::of_process());
        let mount = if access == VolumeAccess::Mounted {
            let at = self.scratch.directory(&format!("{name}-at")).map_err(|error| error.to_string())?;
            let mount = eyrie_fuse::mount(&volume, &at, &MountOptions::default());
            let mount = mount.map_err(|error| error.to_string())?;
            let host = Host::new(&at).map_err(|error| error.to_string())?;
            Some((host, mount))
        } else {
            None
        };
        let clients = match access {
            VolumeAccess::Embedded => None,
            VolumeAccess::Mounted => Clients::of_host(request.command.as_deref()),
            VolumeAccess::Served(kind) => Clients::of_service(request.command.as_deref(), &place, kind),
        };
        let kind = match access {
            VolumeAccess::Embedded => "volume on ",
            VolumeAccess::Mounted => "volume mounted with FUSE, ",
            VolumeAccess::Served(kind) => kind.description(),
        };
        let sync = match (request.keys, request.durability) {
            (true, Durability::EachCall) => "; a sync after each change of a key",
            (true, Durability::Later) => "; no sync",
            (false, _) if information.medium == "dram" => "; fsync has nothing to do",
            (false, _) => "; fsync only where a row has it",
        };
        Ok(Side {
            information: SideInformation {
                name: name.to_owned(),
                place: format!("{kind}{}, in {}", information.medium, request.shown()),
                durability: format!("{}{sync}", information.promise),
                used_bytes: None,
            },
            clients,
            shared: SharedStorage::new(
                Storage::Volume { mount, volume, files, _service: service },
                request.durability,
            ),
        })
    }

    fn rival(&self, rival: Rival, request: &SideRequest) -> std::result::Result<Side, String> {
        let name = rival.name();
        let directory = || self.scratch.directory(name).map_err(|error| error.to_string());
        let image = || self.scratch.path().join(format!("{name}.image"));
        let (path, mount, place) = match rival {
            Rival::Mount => return self.volume(name, request, VolumeAccess::Mounted),
            Rival::Served => return self.volume(name, request, VolumeAccess::Served(ServiceKind::Usual)),
            Rival::Confined => {
                return self.volume(name, request, VolumeAccess::Served(ServiceKind::Confined));
            }
            Rival::Synchronous => {
                return self.volume(name, request, VolumeAccess::Served(ServiceKind::Synchronous));
            }
            Rival::Store(peer) => return self.peer(peer, directory()?, request),
            Rival::Host => (directory()?, None, format!("{}, in {}", self.file_system(), request.shown())),
            Rival::Tmpfs if self.file_system() == name => {
                (directory()?, None, format!("in {}", request.shown()))
            }
            Rival::Tmpfs => return Err(format!("--dir {} is not on a tmpfs", request.shown())),
            Rival::Ramfs => {
                let path = directory()?;
                (path.clone(), Some(HostMount::ramfs(path)?), "a new ramfs".to_owned())
            }
            Rival::Ext4 | Rival::Xfs => {
                let path = directory()?;
                let mount = HostMount::of_image(name, image(), ROOM * request.bytes, path.clone())?;
                (
                    path,
                    Some(mount),
                    format!("a loop device on a file in {} ({})", request.shown(), self.file_system()),
                )
            }
        };
        let in_memory = matches!(rival, Rival::Ramfs | Rival::Tmpfs) || self.file_system() == "tmpfs";
        let sync = match (request.keys, request.durability) {
            (true, Durability::EachCall) => "a syncfs after each change of a key",
            (true, Durability::Later) => "no sync",
            (false, _) if matches!(rival, Rival::Ramfs | Rival::Tmpfs) => "fsync has nothing to do",
            (false, _) => "fsync only where a row has it",
        };
        let lost = if in_memory { "; the storage is memory" } else { "" };
        let host = Host::new(&path).map_err(|error| error.to_string())?;
        Ok(Side {
            information: SideInformation {
                name: name.to_owned(),
                place,
                durability: format!("{sync}{lost}"),
                used_bytes: None,
            },
            clients: Clients::of_host(request.command.as_deref()),
            shared: SharedStorage::new(Storage::Directory { host, path, mount }, request.durability),
        })
    }

    fn peer(&self, peer: Peer, path: PathBuf, request: &SideRequest) -> std::result::Result<Side, String> {
        if !request.keys {
            return Err("it has no files; `kv` and `profile webproxy --keys` can use it".to_owned());
        }
        let durability = peers::settings(peer, request.durability)?.to_owned();
        Ok(Side {
            information: SideInformation {
                name: Rival::Store(peer).name().to_owned(),
                place: format!("files in {} ({})", request.shown(), self.file_system()),
                durability,
                used_bytes: None,
            },
            clients: None,
            shared: SharedStorage::new(Storage::Peer { peer, path }, request.durability),
        })
    }

    /// Returns the name of the file system of the directory.
    fn file_system(&self) -> &'static str {
        file_system_name(self.scratch.path())
    }

    /// Notes the bytes that each side uses now.
    pub fn note_used_bytes(&mut self) {
        for side in &mut self.sides {
            side.information.used_bytes = side.used_bytes();
        }
    }
}

/// Returns the bytes of storage that the files below a directory take.
fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => std::os::unix::fs::MetadataExt::blocks(&data) * 512,
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

impl Side {
    /// Makes a side of files and stores in an open volume.
    pub fn of_volume(volume: Arc<Volume>) -> Side {
        let information = volume.information();
        let files = volume.files(Credentials::of_process());
        Side {
            information: SideInformation {
                name: "eyrie".to_owned(),
                place: format!("volume on {}", information.medium),
                durability: information.promise.to_owned(),
                used_bytes: None,
            },
            clients: None,
            shared: SharedStorage::new(
                Storage::Volume { mount: None, volume, files, _service: None },
                Durability::Later,
            ),
        }
    }

    /// Makes a side of files and stores in a directory of the host.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    pub fn of_directory(path: &Path) -> Result<Side> {
        let cannot_use = |error| Error::host(format!("cannot use {}", path.display()), error);
        let path = &path.canonicalize().map_err(cannot_use)?;
        let storage = Storage::Directory { host: Host::new(path)?, path: path.clone(), mount: None };
        Ok(Side {
            information: SideInformation {
                name: file_system_name(path).to_owned(),
                place: path.display().to_string(),
                durability: "no sync".to_owned(),
                used_bytes: None,
            },
            clients: None,
            shared: SharedStorage::new(storage, Durability::Later),
        })
    }

    /// Makes the worker of one thread of a workload on files.
    ///
    /// # Errors
    /// As [`FileWork::worker`]. Fails on a side without files.
    pub fn file_worker(&self, work: &impl FileWork, part: ThreadPart) -> Result<Box<dyn Worker>> {
        let whole_paths = |root: &Path| {
            let directory = format!("{}{}", root.display(), part.directory());
            work.worker(Host::new("/")?, directory, part)
        };
        match &*self.shared.storage {
            Storage::Volume { mount: Some((_, mount)), .. } => whole_paths(mount.path()),
            Storage::Volume { files, .. } => work.worker(files.clone(), part.directory(), part),
            Storage::Directory { path, .. } => whole_paths(path),
            Storage::Peer { .. } => Err(Error::Request("this side has no files".to_owned())),
        }
    }

    /// Returns the storage of the side.
    pub fn storage(&self) -> SharedStorage {
        self.shared.clone()
    }

    /// Returns this side with its workers, for a run.
    pub fn with_workers(&self, workers: Vec<Box<dyn Worker>>) -> SideWithWorkers {
        let name = self.information.name.clone();
        let count: Count = match &*self.shared.storage {
            Storage::Volume { volume, .. } if volume.stats().disk.is_some() => {
                let volume = Arc::clone(volume);
                Arc::new(move || {
                    volume.sync()?;
                    let disk = volume.stats().disk;
                    Ok(disk.map(|disk| Counters {
                        written_bytes: disk.written_bytes,
                        drains: Some(disk.drains),
                    }))
                })
            }
            Storage::Directory { host, path, .. } if device_written_bytes(path).is_some() => {
                let (host, path) = (host.clone(), path.clone());
                Arc::new(move || {
                    host.sync()?;
                    let written = device_written_bytes(&path);
                    Ok(written.map(|written_bytes| Counters { written_bytes, drains: None }))
                })
            }
            _ => Arc::new(|| Ok(None)),
        };
        // Each thread counts its own barriers and publishes. For a mount or a served volume, the threads of
        // the mount or of the service make the stores, so the workers would count nothing.
        let orders = match &*self.shared.storage {
            Storage::Volume { mount, volume, .. } => mount.is_none() && !volume.is_served(),
            Storage::Directory { .. } | Storage::Peer { .. } => false,
        };
        SideWithWorkers { name, workers, count, orders }
    }

    /// Returns the bytes that the side uses now.
    fn used_bytes(&self) -> Option<u64> {
        match &*self.shared.storage {
            Storage::Volume { volume, .. } => Some(volume.stats().used_bytes),
            Storage::Directory { path, mount: Some(_), .. } => {
                let space = rustix::fs::statvfs(path).ok()?;
                let used = space.f_blocks.checked_sub(space.f_bfree)?;
                // A ramfs does not count its blocks: it reports a size of 0.
                (space.f_blocks > 0).then(|| used * space.f_frsize)
            }
            Storage::Directory { path, .. } | Storage::Peer { path, .. } => Some(bytes_below(path)),
        }
    }
}

impl SharedStorage {
    fn new(storage: Storage, durability: Durability) -> SharedStorage {
        SharedStorage { storage: Arc::new(storage), durability }
    }

    /// Makes an empty store with this name, for values of about `value_bytes`.
    ///
    /// # Errors
    /// Fails if the name exists, or if the side cannot make a directory or open a store.
    pub fn new_store(&self, name: &str, value_bytes: usize) -> Result<Arc<dyn KeyStore>> {
        match &*self.storage {
            Storage::Volume { mount: Some((host, mount)), .. } => {
                host.create_dir(name)?;
                Ok(Arc::new(HostKeys::open(mount.path().join(name), self.durability)?))
            }
            Storage::Volume { volume, files, .. } => {
                files.create_dir(name)?;
                let store = volume.store(name, Credentials::of_process())?;
                let synced = (self.durability == Durability::EachCall).then(|| Arc::clone(volume));
                Ok(Arc::new(VolumeKeys { store, synced }))
            }
            Storage::Directory { host, path, .. } => {
                host.create_dir(name)?;
                Ok(Arc::new(HostKeys::open(path.join(name), self.durability)?))
            }
            Storage::Peer { peer, path } => {
                let path = path.join(name);
                fs::create_dir(&path).map_err(|error| Error::host(format!("cannot make {name}"), error))?;
                peers::open(*peer, &path, self.durability, value_bytes)
            }
        }
    }

    /// Removes a store. The caller must have dropped all sessions of the store.
    ///
    /// # Errors
    /// Fails if the side cannot remove the directory of the store.
    pub fn remove_store(&self, name: &str) -> Result<()> {
        match &*self.storage {
            Storage::Volume { files, .. } => Ok(files.remove_dir_all(name)?),
            Storage::Directory { host, .. } => Ok(host.remove_dir_all(name)?),
            Storage::Peer { path, .. } => {
                let path = path.join(name);
                fs::remove_dir_all(path).map_err(|error| Error::host(format!("cannot remove {name}"), error))
            }
        }
    }
}
