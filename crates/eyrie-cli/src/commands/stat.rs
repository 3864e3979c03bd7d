//! `eyrie stat`: shows the attributes of files.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use eyrie::{Files, Kind, Posix, PosixBirth, PosixExt, Stat, Time};
use serde_json::Value;

use crate::failure::{Doing, Result, with_earlier};
use crate::opened::for_each;
use crate::output::{Output, json_name, json_stat, json_time};
use crate::place::{self, Inside, Place};
use crate::text;
use crate::times::Zone;
use crate::users::Names;
use crate::volumes::Purpose;

/// Show the attributes of files
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eyrie stat vol:/share\n  eyrie stat --json vol:/share/dict/words")]
pub struct StatArgs {
    /// Files to show
    #[arg(value_name = "VOLUME:/path", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Follow symbolic links
    #[arg(long, short = 'L')]
    dereference: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// The attributes of one file.
struct Attributes {
    stat: Stat,
    birth: Time,
    /// The target, if the file is a symbolic link that was not followed.
    target: Option<Vec<u8>>,
    /// Names of extended attributes.
    xattrs: Vec<Vec<u8>>,
}

/// The settings of the host with which attributes are printed.
struct HostSettings {
    names: Names,
    zone: Zone,
}

pub fn run(arguments: StatArgs, output: &mut Output) -> Result<()> {
    let StatArgs { places, dereference, json } = arguments;
    let places: Vec<Inside> = places.into_iter().map(Place::inside_or_root).collect();
    let settings = HostSettings { names: Names::of_host(), zone: Zone::of_host() };
    let mut values = Vec::new();
    let shown = for_each(&places, Purpose::Read, |files, inside| {
        let attributes = Attributes::read(files, inside, dereference)?;
        if json {
            values.push(attributes.json(inside));
            return Ok(());
        }
        attributes.print(inside, &settings, output)
    });
    if json && !shown.as_ref().is_err_and(|failure| failure.ends_command()) {
        return with_earlier(output.json(&Value::Array(values)), shown);
    }
    shown
}

impl Attributes {
    fn read(files: &Files, inside: &Inside, dereference: bool) -> Result<Attributes> {
        let path = &inside.path;
        let stat = files.stat(place::target(path, dereference)).doing("stat", inside)?;
        let birth = files.created(place::target(path, dereference)).doing("stat", inside)?;
        let target = match stat.kind {
            Kind::Symlink => Some(files.readlink(path.into()).doing("read the link", inside)?),
            _ => None,
        };
        let xattrs = if dereference { files.xattr_names(path) } else { files.symlink_xattr_names(path) };
        let xattrs = xattrs.doing("list the extended attributes of", inside)?;
        Ok(Attributes { stat, birth, target, xattrs })
    }

    fn json(&self, inside: &Inside) -> Value {
        let mut value = json_stat(&self.stat);
        value["birth"] = json_time(self.birth);
        json_name(&mut value, "path", inside.path.as_os_str().as_bytes());
        if let Some(target) = &self.target {
            json_name(&mut value, "target", target);
        }
        value["xattrs"] = self.xattrs.iter().map(|name| String::from_utf8_lossy(name)).collect();
        value
    }

    fn print(&self, inside: &Inside, settings: &HostSettings, output: &mut Output) -> Result<()> {
        let Attributes { stat, birth, target, xattrs } = self;
        let arrow = target.as_ref().map(|target| format!(" -> {}", text::escaped(target)));
        output.heading(&format!("{inside}{}", arrow.unwrap_or_default()))?;
        let HostSettings { names, zone } = settings;
        let (user, group) = (names.user(stat.uid), names.group(stat.gid));
        for (name, value) in [
            ("kind", text::kind_name(stat.kind).to_owned()),
            ("mode", format!("{:04o} {}", stat.mode, text::mode(stat.kind, stat.mode))),
            ("owner", format!("user {user} ({}), group {group} ({})", stat.uid, stat.gid)),
            ("size", format!("{} B, {} B allocated", text::count(stat.size), text::count(stat.allocated))),
            ("inode", format!("{}, {}", stat.inode, text::counted(stat.links.into(), "link", "links"))),
            ("accessed", zone.full(stat.accessed)),
            ("modified", zone.full(stat.modified)),
            ("changed", zone.full(stat.changed)),
            ("birth", zone.full(*birth)),
        ] {
            writeln!(output, "  {name:<10} {value}")?;
        }
        for (index, name) in xattrs.iter().enumerate() {
            let heading = if index == 0 { "xattrs" } else { "" };
            writeln!(output, "  {heading:<10} {}", text::escaped(name))?;
        }
        Ok(())
    }
}
