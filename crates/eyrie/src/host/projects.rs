//! Project ids, which the library neither reads nor sets on the host.

use std::os::fd::OwnedFd;

use super::Host;
use crate::posix::{Posix, PosixProjects, Target};
use crate::{Errno, Error, Result};

impl PosixProjects for Host {
    fn project(&self, file: Target<'_, OwnedFd>) -> Result<u32> {
        self.stat(file).map(|_| 0)
    }

    fn set_project(&self, _file: Target<'_, OwnedFd>, _project: u32) -> Result<()> {
        Err(Error::new(Errno::OPNOTSUPP, "set project id"))
    }
}
