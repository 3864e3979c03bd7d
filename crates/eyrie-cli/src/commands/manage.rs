//! `cat`, `mkdir`, `rm` and `ln`.

use std::io::Write;
use std::path::Path;

use eyrie::{Errno, Posix, PosixExt};

use super::with_files;
use crate::arguments::{Link, Mkdir, Places, Remove};
use crate::failure::{Doing, Failure, Result};
use crate::output::Output;
use crate::place::Place;

/// Bytes that `cat` reads at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Writes files out.
pub fn cat(arguments: Places, output: &mut Output) -> Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    for place in arguments.places {
        let inside = place.inside()?;
        with_files(&inside.volume, |files| {
            let file = files.open_file(&inside.path).doing("read", &inside)?;
            let mut offset = 0;
            loop {
                let count = file.read_at(&mut buffer, offset).doing("read", &inside)?;
                if count == 0 {
                    return Ok(());
                }
                output.write_all(&buffer[..count])?;
                offset += count as u64;
            }
        })?;
    }
    Ok(())
}

/// Makes directories.
pub fn mkdir(arguments: Mkdir) -> Result<()> {
    for place in arguments.places {
        let inside = place.inside()?;
        with_files(&inside.volume, |files| {
            let result = if arguments.parents {
                files.create_dir_all(&inside.path)
            } else {
                files.create_dir(&inside.path)
            };
            result.doing("make the directory", &inside)
        })?;
    }
    Ok(())
}

/// Removes.
pub fn rm(arguments: Remove) -> Result<()> {
    for place in arguments.places {
        let inside = place.inside()?;
        if inside.path.components().count() <= 1 {
            let why = "the root stays: name what is in it, or remove the volume's directory";
            return Err(Failure::new("cannot remove", inside, why));
        }
        with_files(&inside.volume, |files| {
            let result = match files.lstat(&inside.path) {
                Ok(stat) if stat.is_dir() && !arguments.recursive => {
                    return Err(Failure::new("cannot remove", &inside, "it is a directory: use -r"));
                }
                Ok(stat) if stat.is_dir() => files.remove_dir_all(&inside.path),
                Ok(_) => files.unlink(&inside.path),
                Err(error) => Err(error),
            };
            match result {
                Err(error) if arguments.force && error.errno() == Errno::NOENT => Ok(()),
                result => result.doing("remove", &inside),
            }
        })?;
    }
    Ok(())
}

/// Makes links.
pub fn ln(arguments: Link) -> Result<()> {
    let new = arguments.new.inside()?;
    let existing = if arguments.symbolic {
        Path::new(&arguments.existing).to_owned()
    } else {
        let existing = Place::parse(&arguments.existing).inside()?;
        if existing.volume != new.volume {
            let why = format!("{new} is in another volume: use -s, or copy it");
            return Err(Failure::new("cannot link", existing, why));
        }
        existing.path
    };
    with_files(&new.volume, |files| {
        let result = if arguments.symbolic {
            files.symlink(&existing, &new.path)
        } else {
            files.link(&existing, &new.path)
        };
        result.doing("link", &new)
    })
}
