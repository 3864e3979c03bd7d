//! A volume that is forgotten when it is closed: stands in until the engine on mapped storage is there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyrie_engine::access::Credentials;
use eyrie_engine::model::Model;
use eyrie_engine::op::Owner;
use eyrie_engine::{Engine, Kind, ObjectId, Time};
use rustix::io::Errno;

use crate::{Error, Kvfs, Pxfs, Result};

/// Files of a volume.
pub type Files = Pxfs<Model>;
/// Keys and values of a volume.
pub type Store = Kvfs<Model>;

/// A file that marks the directory of a volume.
const MARK: &str = "0000.segment";

/// A volume.
#[derive(Debug)]
pub struct Volume {
    engine: Arc<Model>,
    path: PathBuf,
    size_bytes: u64,
}

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    size_bytes: u64,
    group_bytes: u64,
}

/// What is known of a volume.
#[derive(Clone, Debug)]
pub struct Information {
    /// Its id, in hexadecimal.
    pub id: String,
    /// Version of the media format.
    pub format: u32,
    /// What it is stored in.
    pub medium: &'static str,
    /// What survives what.
    pub promise: &'static str,
    /// Bytes that it may occupy.
    pub size_bytes: u64,
    /// Bytes of one allocation group.
    pub group_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Objects that there are.
    pub objects: u64,
    /// Its files and their sizes in bytes.
    pub segments: Vec<(PathBuf, u64)>,
    /// Whether this open had to recover.
    pub recovered: bool,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Everything that is wrong; empty when nothing is.
    pub findings: Vec<String>,
    /// Objects that were looked at.
    pub objects: u64,
    /// Directories among them.
    pub directories: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl VolumeOptions {
    /// Bytes that the volume may occupy.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> VolumeOptions {
        self.size_bytes = bytes;
        self
    }

    /// Bytes of one allocation group.
    #[must_use]
    pub fn group_size(mut self, bytes: u64) -> VolumeOptions {
        self.group_bytes = bytes;
        self
    }

    /// Makes the volume.
    ///
    /// # Errors
    /// `EEXIST` when there is something at `path`.
    pub fn create(self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        std::fs::create_dir(path).map_err(|error| from_io(&error, "mkfs", path))?;
        let mark = path.join(MARK);
        std::fs::write(&mark, self.size_bytes.to_le_bytes())
            .map_err(|error| from_io(&error, "mkfs", &mark))?;
        Ok(Volume::at(path, self.size_bytes))
    }
}

fn from_io(error: &std::io::Error, operation: &'static str, path: &Path) -> Error {
    Error::new(Errno::from_io_error(error).unwrap_or(Errno::IO), operation).at(path)
}

impl Volume {
    fn at(path: &Path, size_bytes: u64) -> Volume {
        let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
        let engine = Arc::new(Model::new(ObjectId::new(64, Kind::Directory), owner, Time::new(0, 0)));
        Volume { engine, path: path.to_owned(), size_bytes }
    }

    /// How to make a volume.
    pub fn options() -> VolumeOptions {
        VolumeOptions { size_bytes: 1 << 30, group_bytes: 64 << 20 }
    }

    /// Makes a volume of `size_bytes`.
    ///
    /// # Errors
    /// As [`VolumeOptions::create`].
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Volume> {
        Volume::options().size(size_bytes).create(path)
    }

    /// Opens a volume.
    ///
    /// # Errors
    /// `ENOENT` when there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        let mark = path.as_ref().join(MARK);
        let bytes = std::fs::read(&mark).map_err(|error| from_io(&error, "open", path.as_ref()))?;
        let size = bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        Ok(Volume::at(path.as_ref(), size))
    }

    /// Its files, for somebody.
    pub fn files(&self, credentials: Credentials) -> Files {
        Pxfs::new(Arc::clone(&self.engine), credentials)
    }

    /// The keys and values in one of its directories.
    ///
    /// # Errors
    /// As [`Kvfs::open`].
    pub fn store(&self, path: impl AsRef<Path>, credentials: Credentials) -> Result<Store> {
        Kvfs::open(&self.files(credentials), path)
    }

    /// What is known of it.
    pub fn information(&self) -> Information {
        Information {
            id: "00".repeat(16),
            format: 0,
            medium: "none",
            promise: "is forgotten when it is closed",
            size_bytes: self.size_bytes,
            group_bytes: 64 << 20,
            used_bytes: 0,
            free_bytes: self.size_bytes,
            objects: self.engine.space().objects,
            segments: vec![(self.path.join(MARK), 8)],
            recovered: false,
        }
    }

    /// Looks for damage.
    ///
    /// # Errors
    /// `EIO` when it cannot be read.
    pub fn check(&self) -> Result<Report> {
        Ok(Report { objects: self.engine.space().objects, ..Report::default() })
    }

    /// Closes the volume.
    ///
    /// # Errors
    /// `EIO` when it cannot be saved.
    pub fn close(self) -> Result<()> {
        Ok(())
    }
}
