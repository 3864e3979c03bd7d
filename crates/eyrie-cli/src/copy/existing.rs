//! The attributes of a directory that exists in the target.

use std::path::Path;

use eyrie::{Dir, Posix, Target};

use super::progress::{Progress, Tally};
use super::spot::Spot;
use super::target::TargetTree;
use super::tree::Job;
use super::xattrs;
use crate::failure::{self, Doing};

/// Gives the directory `job.to` the attributes of the directory `job.from`. The result counts the attributes
/// that could not be kept.
///
/// # Errors
/// Fails if the source cannot be read, or if the target is full, above a quota, read-only or broken.
pub fn copy_attributes<S: Posix + Clone, D: Posix + Clone>(job: &Job<'_, S, D>) -> failure::Result<Tally> {
    let relative = Path::new("");
    let stat =
        job.source.stat(Target::NoFollow(job.from.into())).doing("copy", job.reporter.place(relative))?;
    let target = TargetTree::new(job.to, Progress::new(job.reporter));
    let xattrs = xattrs::read_copied(job.source, job.from, &target.progress);
    let spot = Spot { target: &Dir::root(job.target.clone()), name: job.to, relative };
    if let Err(error) = target.finish_directory(&spot, &stat, &xattrs) {
        target.progress.failed(relative, &error);
    }
    target.outcome()
}
