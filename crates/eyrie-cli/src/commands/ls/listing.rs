//! The listing of directories and files in all its forms: names, columns and JSON.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use eyrie::{AclKind, Files, Kind, Posix, PosixExt, Target, WalkStep};
use serde_json::Value;

use super::columns::Columns;
use super::listed::Listed;
use super::{LsArgs, is_hidden, order, walk};
use crate::failure::{Doing, Result, Skipped};
use crate::interrupt;
use crate::output::Output;
use crate::place::Inside;

/// The listing of all arguments.
pub(super) struct Listing<'a> {
    pub arguments: LsArgs,
    pub output: &'a mut Output,
    columns: Columns,
    /// With `--json`, the entries so far.
    pub values: Vec<Value>,
    pub skipped: Skipped,
}

/// Returns true if the file at `path` has an ACL.
fn has_acl<P: Posix>(files: &P, path: &Path, kind: Kind) -> bool {
    let has = |acl: AclKind| files.getxattr(Target::NoFollow(path.into()), acl.name(), &mut []).is_ok();
    kind != Kind::Symlink && (has(AclKind::Access) || kind == Kind::Directory && has(AclKind::Default))
}

impl<'a> Listing<'a> {
    pub fn new(arguments: LsArgs, output: &'a mut Output) -> Listing<'a> {
        let columns = Columns::new(&arguments);
        Listing { arguments, output, columns, values: Vec::new(), skipped: Skipped::default() }
    }

    /// Reads the attributes of an argument. Also returns true if the contents of the argument are listed.
    pub fn argument(&self, files: &Files, place: &Inside) -> Result<(Listed, bool)> {
        let mut name = place.volume.clone().into_os_string().into_vec();
        name.push(b':');
        name.extend_from_slice(place.path.as_os_str().as_bytes());
        let stat = files.stat(Target::NoFollow((&place.path).into())).doing("list", place)?;
        let listed = self.listed(files, &place.path, OsString::from_vec(name), place.clone());
        let lists_contents = !self.arguments.directory
            && (stat.is_dir()
                || stat.is_symlink()
                    && !self.arguments.has_columns()
                    && files.stat((&place.path).into()).is_ok_and(|stat| stat.is_dir()));
        Ok((Listed { kind: stat.kind, ..listed.doing("list", place)? }, lists_contents))
    }

    /// Reads the attributes of the file at `path` of `files`, and the target of a symbolic link.
    fn listed<P: Posix>(
        &self,
        files: &P,
        path: &Path,
        name: OsString,
        place: Inside,
    ) -> eyrie::Result<Listed> {
        let stat = files.stat(Target::NoFollow(path.into()))?;
        let target = if stat.is_symlink() { Some(files.readlink(path.into())?) } else { None };
        let has_acl = self.arguments.has_columns() && has_acl(files, path, stat.kind);
        Ok(Listed { name, place, kind: stat.kind, stat: Some(stat), target, has_acl })
    }

    /// Lists one directory, and with `-R` its subdirectories.
    pub fn directory(&mut self, files: &Files, root: &Inside, titled: bool) -> Result<()> {
        if !self.arguments.recursive {
            return self.block(files, &root.path, root, titled);
        }
        let mut first = true;
        for step in walk(files, root, self.arguments.all)? {
            interrupt::check("ls")?;
            match step {
                WalkStep::Entry(entry) if entry.kind == Kind::Directory => {
                    if !std::mem::take(&mut first) && !self.arguments.json {
                        writeln!(self.output)?;
                    }
                    let place = if entry.depth == 0 { root.clone() } else { root.join(&entry.relative) };
                    self.block(entry.dir(), entry.name(), &place, titled)?;
                }
                WalkStep::Entry(_) | WalkStep::Left(_) => {}
                WalkStep::Failed(relative, error) => self.skipped.add(root.join(relative), &error),
            }
        }
        Ok(())
    }

    /// Lists the entries of the directory `path` of `files`. Messages and titles show `dir`, the place of
    /// this directory.
    fn block<P: Posix + Clone>(&mut self, files: &P, path: &Path, dir: &Inside, titled: bool) -> Result<()> {
        let entries = match entries(files, path, self.arguments.all) {
            Ok(entries) => entries,
            // The walk reports this error, and continues with the next directory.
            Err(_) if self.arguments.recursive => Vec::new(),
            Err(error) => return Err(error).doing("list", dir),
        };
        if titled && !self.arguments.json {
            self.output.place(dir)?;
            writeln!(self.output, ":")?;
        }
        // A short listing shows only names and kinds. The directory has both, so no object is read.
        if !self.arguments.needs_attributes() {
            return self.names(entries);
        }
        let mut shown = Vec::with_capacity(entries.len());
        for (name, _) in entries {
            let (path, place) = (path.join(&name), dir.join(PathBuf::from(&name)));
            match self.listed(files, &path, name, place) {
                Ok(listed) => shown.push(listed),
                Err(error) => self.skipped.add(dir.join(path.file_name().unwrap_or_default()), &error),
            }
        }
        order::sort(&self.arguments, &mut shown, |listed| listed);
        self.show(&shown)
    }

    /// Prints the names of a directory's entries, in the order of a short listing.
    fn names(&mut self, mut entries: Vec<(OsString, Kind)>) -> Result<()> {
        // No two entries have the same name, so the order after an unstable sort is always the same.
        entries.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        if self.arguments.reverse {
            entries.reverse();
        }
        for (name, kind) in &entries {
            self.name(name.as_bytes(), *kind)?;
            self.output.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Prints files, or keeps them for the JSON array.
    pub fn show(&mut self, shown: &[Listed]) -> Result<()> {
        if self.arguments.json {
            self.values.extend(shown.iter().filter_map(Listed::json));
            return Ok(());
        }
        let mut lines = Vec::new();
        if self.arguments.has_columns() {
            lines = self.columns.lines(shown);
        }
        for (index, listed) in shown.iter().enumerate() {
            if let Some(line) = lines.get(index) {
                write!(self.output, "{line} ")?;
            }
            self.name(listed.name.as_bytes(), listed.kind)?;
            if let (true, Some(target)) = (self.arguments.has_columns(), &listed.target) {
                self.output.write_all(b" -> ")?;
                self.output.name(target)?;
            }
            writeln!(self.output)?;
        }
        Ok(())
    }

    fn name(&mut self, name: &[u8], kind: Kind) -> Result<()> {
        match kind {
            Kind::Directory => self.output.directory_name(name)?,
            Kind::Symlink => self.output.link_name(name)?,
            _ => self.output.name(name)?,
        }
        Ok(())
    }
}

/// Reads the names and kinds of a directory's entries. Without `all`, leaves out hidden names.
fn entries<P: Posix + Clone>(files: &P, dir: &Path, all: bool) -> eyrie::Result<Vec<(OsString, Kind)>> {
    let mut entries = Vec::new();
    for entry in files.read_dir(dir)? {
        let entry = entry?;
        if all || !is_hidden(entry.name()) {
            let kind = entry.kind();
            entries.push((entry.into_name(), kind));
        }
    }
    Ok(entries)
}
