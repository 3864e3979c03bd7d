//! A medium that another process changes, and that this process only reads.

use std::fs::File;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::addr::Addr;
use crate::backing::Backing;
use crate::epoch::pin;
use crate::fault::Fault;
use crate::mapping::{Mapping, Sentinel};
use crate::medium::Medium;
use crate::paged::{PageOwner, RemotePages};
use crate::rules::{SafetyRule, broken};
use crate::site::Caller;
use crate::sync::interleave;

impl Medium {
    /// Maps a host file as segment 0, for reading. Another process changes the file. No code may store to the
    /// medium, because the mapping refuses stores.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses the mapping.
    pub fn for_reading(file: &File, len: u64) -> Result<Medium, Fault> {
        Medium::read_through(file, len, Backing::Dram)
    }

    /// Maps the page cache of another process, which owns a volume on a disk. `pages` and `flags` are the two
    /// files of the owner's [`Medium::cache_files`]. A read asks `owner` to bring in each page that the cache
    /// does not have. Stores fail.
    ///
    /// # Errors
    /// [`Fault::Io`] when the host refuses a mapping, or if the file `flags` does not have the size for `len`
    /// bytes of pages.
    pub fn of_cache(pages: &File, flags: File, len: u64, owner: PageOwner) -> Result<Medium, Fault> {
        Medium::read_through(pages, len, Backing::Remote(RemotePages::new(flags, len, owner)?))
    }

    fn read_through(file: &File, len: u64, backing: Backing) -> Result<Medium, Fault> {
        let sentinel = Sentinel::new()?;
        let segment = Arc::new(Mapping::for_reading(file, len, &sentinel)?);
        Ok(Medium::over(Box::new([segment]), sentinel, backing))
    }

    /// Maps the page cache of the next owner in place of the present cache, for a volume of the same size. A
    /// thread that reads meanwhile may get any bytes. Does nothing on a medium without the cache of another
    /// process.
    ///
    /// # Errors
    /// As [`Medium::of_cache`].
    pub fn replace_cache(&self, pages: &File, flags: File) -> Result<(), Fault> {
        if let Backing::Remote(remote) = &self.backing {
            self.segments[0].replace(pages)?;
            remote.replace(flags)?;
        }
        Ok(())
    }

    /// Loads a word that the next owner of the volume changes before it changes anything else, so that
    /// readers notice the new owner. If the medium is the page cache of another process, this call instead
    /// checks that the owner lives, because the cache of a dead owner keeps the old word. While the owner
    /// lives, the volume has no other owner, so the call returns `None`. It does not read the word, because
    /// the page of the word may be absent and unreadable.
    ///
    /// # Errors
    /// As [`Medium::load`]. [`Fault::Io`] if the owner has ended.
    #[inline]
    #[track_caller]
    pub fn load_of_owner(&self, addr: Addr) -> Result<Option<u64>, Fault> {
        let word = self.resolve_word(addr)?;
        interleave();
        if !self.backing.has_no_hooks_before() {
            return self.ask_owner(addr, word, Location::caller());
        }
        Ok(Some(word.load(Ordering::Acquire)))
    }

    #[cold]
    fn ask_owner(&self, addr: Addr, word: &AtomicU64, caller: Caller) -> Result<Option<u64>, Fault> {
        if let Backing::Remote(remote) = &self.backing {
            if !broken(SafetyRule::DeadOwnerIsNoticed) {
                remote.check_owner()?;
            }
            return Ok(None);
        }
        let _pin = pin();
        self.backing.reading(self.mapped(), addr, 8, caller)?;
        Ok(Some(word.load(Ordering::Acquire)))
    }

    /// Makes a forked child accept the mapping that it has from its parent, for a medium that both processes
    /// only read. Before this call, every check of the medium in the child fails with [`Fault::Forked`].
    pub fn accept_in_child(&self) {
        self.sentinel.accept_in_child();
    }
}
