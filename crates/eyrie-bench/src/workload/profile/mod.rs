//! `profile`: the application profiles of filebench. An operation of the first row makes a file. An operation
//! of the second row is one pass of the loop of the profile.
//!
//! The bytes of a file follow from its number and version, and an append continues them. So a read of a whole
//! file can be compared with the bytes that its creation and its appends have written.

mod files;
mod proxy;
mod set;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::keys::KeyStore;
use crate::method::{Plan, RowPlan, Targets, ThreadPart, Worker};
use crate::run::{Workload, file_workers};
use crate::side::Side;

use self::proxy::ProxyKeys;
use self::set::FileSet;

/// Passes of the loop in a round, for all threads together.
const PASSES: u64 = 400;

/// A profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Create, append, read, delete and stat large files in many directories.
    Fileserver,
    /// Read ten files and append to a log.
    Webserver,
    /// Replace a file of one directory and read five.
    Webproxy,
    /// Replace, append to and read the mails of one directory, with syncs.
    Varmail,
}

/// The source of the parameters of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameters {
    /// Those of filebench.
    Stock,
    /// Those of the paper about Aerie (EuroSys 2014).
    Aerie,
    /// Those of the paper about SpanFS (ATC 2015).
    Spanfs,
}

/// The parameters of a profile.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    files: u64,
    /// Mean number of entries in a directory.
    width: u64,
    file_bytes: u64,
    append_bytes: u64,
    /// Percentage of the files that exist at the start.
    existing: u64,
    /// True if each pass of `webproxy` also appends to a log.
    log: bool,
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Filebench {
    profile: Profile,
    parameters: Parameters,
    numbers: Numbers,
    passes: u64,
    /// True if each file is the value of a key, so that the calls are put, get and erase.
    keys: bool,
}

impl Filebench {
    /// Makes a profile.
    ///
    /// # Errors
    /// Fails if the paper of `parameters` has no such profile, or if a profile other than `webproxy` is to
    /// use keys.
    pub fn new(profile: Profile, parameters: Parameters, keys: bool) -> Result<Filebench> {
        use Parameters::{Aerie, Spanfs, Stock};
        use Profile::{Fileserver, Varmail, Webproxy, Webserver};
        // The mean width of filebench's own profiles with one directory. It is above their number of files.
        let wide = 1_000_000;
        let (files, width, file_kib, existing) = match (profile, parameters) {
            (Fileserver, _) => (10_000, 20, 128, 80),
            (Webserver, Stock) => (1000, 20, 16, 100),
            (Webserver, Aerie) => (10_000, 20, 16, 100),
            (Webproxy, Stock) => (10_000, wide, 16, 80),
            (Webproxy, Aerie) => (1000, 1500, 16, 80),
            (Varmail, Stock | Spanfs) => (1000, wide, 16, 80),
            (Varmail, Aerie) | (Webserver | Webproxy, Spanfs) => {
                let text = "the paper of these --parameters has no such profile: choose other parameters";
                return Err(Error::Request(text.to_owned()));
            }
        };
        if keys && profile != Webproxy {
            return Err(Error::Request("only webproxy can use keys in place of files".to_owned()));
        }
        let file_bytes = file_kib << 10;
        let log = parameters == Aerie;
        let numbers = Numbers { files, width, file_bytes, append_bytes: 16 << 10, existing, log };
        Ok(Filebench { profile, parameters, numbers, passes: PASSES, keys })
    }

    /// Makes the amounts tiny, so that a test of the workload takes less than a second.
    #[must_use]
    pub fn quick(mut self) -> Filebench {
        self.numbers.files /= 50;
        self.passes = 20;
        self
    }

    /// Returns the number of calls of one pass, as filebench counts them.
    fn calls(&self) -> u64 {
        match self.profile {
            Profile::Fileserver => 11,
            Profile::Webserver => 31,
            Profile::Webproxy => 19 + u64::from(self.numbers.log),
            Profile::Varmail => 13,
        }
    }

    fn name(&self) -> &'static str {
        match self.profile {
            Profile::Fileserver => "fileserver",
            Profile::Webserver => "webserver",
            Profile::Webproxy => "webproxy",
            Profile::Varmail => "varmail",
        }
    }
}

impl Workload for Filebench {
    fn title(&self) -> String {
        format!("bench profile {}{}", self.name(), if self.keys { " with keys" } else { "" })
    }

    fn notes(&self) -> Vec<String> {
        let Numbers { files, width, file_bytes, append_bytes, existing, .. } = self.numbers;
        let source = match self.parameters {
            Parameters::Stock => "filebench's own parameters",
            Parameters::Aerie => "the parameters of the paper about Aerie",
            Parameters::Spanfs => "the parameters of the paper about SpanFS",
        };
        vec![format!(
            "{source}: {files} files, {existing} % of them at the start, mean directory width {width}, mean \
             file size {} KiB (gamma distribution), appends of 1 byte to {} KiB, reads of 1 MiB; one pass of \
             the loop is {} calls of filebench",
            file_bytes >> 10,
            append_bytes >> 10,
            self.calls()
        )]
    }

    fn bytes(&self, threads: u64) -> u64 {
        // A pass appends to at most one existing file, and each profile with such appends also removes one
        // file in a pass. So a file gets one append on average. The size of the largest append counts for
        // each file, so the last page of the file, which may be partly used, is covered, too. The sizes are
        // random, and their sum is below 1.5 times its mean. The 64 MiB leave room for journals, directories
        // and tables.
        let Numbers { files, file_bytes, append_bytes, .. } = self.numbers;
        files * (file_bytes + append_bytes) * 3 / 2 + threads * set::LOG_BYTES as u64 + (64 << 20)
    }

    fn uses_keys(&self) -> bool {
        self.keys
    }

    fn plan(&self, threads: u64) -> Plan {
        let part = ThreadPart { threads, ..ThreadPart::WHOLE };
        let files = part.share(self.numbers.files);
        let make = RowPlan::once("make a file", Targets::each("files", files * self.numbers.existing / 100));
        let pass = RowPlan::new(format!("pass of {}", self.name()), Targets::random("files", files));
        Plan { groups: vec![vec![make], vec![pass]] }
    }

    fn workers(&self, side: &Side, parts: &[ThreadPart]) -> Result<Vec<Box<dyn Worker>>> {
        if !self.keys {
            return file_workers(self, side, parts);
        }
        let mut shared: Option<Arc<dyn KeyStore>> = None;
        let worker = |&part: &ThreadPart| -> Result<Box<dyn Worker>> {
            let name = format!("proxy-{}", part.thread);
            let store = match &shared {
                Some(store) if part.shared => Arc::clone(store),
                _ => side.storage().new_store(&name, self.numbers.file_bytes as usize)?,
            };
            shared = Some(Arc::clone(&store));
            let set = FileSet::new(self.numbers, part, String::new());
            Ok(Box::new(ProxyKeys::new(self.clone(), part, store.session()?, set)))
        };
        parts.iter().map(worker).collect()
    }
}
