//! A sandbox for a program that is not trusted with your files: imports a directory of the host into a
//! volume, lets that program (the agent) change the copy, and exports only the difference.
//!
//! `cargo run -p eyriefs --example agent_sandbox` uses a small tree of its own. Given a directory as its
//! argument, the example works on a copy of that directory.
//!
//! `Host` and a volume have the same calls, so one function reads both trees, and one function writes both.
//! The example keeps the trees in memory. `eyrie import` and `eyrie export` copy trees of any size.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use eyrie::{Credentials, Host, Kind, PosixExt, Volume, WalkStep};

/// A directory, a file with its permission bits and its bytes, or a symbolic link with its target.
#[derive(PartialEq)]
enum Node {
    Directory,
    File(u16, Vec<u8>),
    Link(PathBuf),
}

type Tree = BTreeMap<PathBuf, Node>;

/// Reads everything below the root of a file system: a directory of the host, or a volume.
fn read_tree(fs: &impl PosixExt) -> eyrie::Result<Tree> {
    let mut tree = Tree::new();
    for step in fs.walk(".")? {
        let entry = match step {
            WalkStep::Entry(entry) if entry.depth > 0 => entry,
            WalkStep::Failed(path, error) => return Err(error.at(path)),
            _ => continue,
        };
        // The directory of the entry is open, so these calls look up one name instead of a whole path.
        let (dir, name) = (entry.dir(), entry.name());
        let node = match entry.kind {
            Kind::Directory => Node::Directory,
            Kind::Symlink => Node::Link(dir.read_link(name)?),
            Kind::File => Node::File(entry.stat()?.mode & 0o777, dir.read(name)?), // no set-id bits
            _ => continue, // pipes, sockets and devices
        };
        tree.insert(entry.relative, node);
    }
    Ok(tree)
}

/// Writes one node of a tree. First makes the directories above the node, which a difference may lack.
fn write_node(fs: &impl PosixExt, path: &Path, node: &Node) -> eyrie::Result<()> {
    fs.create_dir_all(path.parent().unwrap_or(path))?;
    match node {
        Node::Directory => fs.create_dir_all(path),
        Node::Link(target) => fs.symlink(target, path.into()),
        Node::File(mode, bytes) => {
            fs.write(path, bytes)?;
            fs.set_mode(path, *mode)
        }
    }
}

/// The program that is not trusted. It has the calls of a volume, from which no path leads to the host.
fn agent(fs: &impl PosixExt) -> eyrie::Result<()> {
    fs.create_dir_all("/reports")?;
    fs.write("/reports/summary.txt", "three birds live here\n")?;
    if fs.exists("/notes/owl.txt")? {
        fs.write("/notes/owl.txt", "the owl moved to the barn\n")?;
        fs.symlink("owl.txt".as_ref(), "/notes/best".into())?;
        fs.set_mode("/notes/owl.txt", 0o6755)?;
        fs.remove_file("/notes/draft.txt")?;
        fs.rename("/notes/kite.txt", "/reports/kite.txt")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let argument = std::env::args_os().nth(1).map(PathBuf::from);
    let source = argument.clone().unwrap_or_else(|| scratch.path().join("birds"));
    if argument.is_none() {
        fs::create_dir_all(source.join("notes"))?;
        for name in ["eagle", "owl", "kite", "draft"] {
            fs::write(source.join(format!("notes/{name}.txt")), format!("the {name} lives in a nest\n"))?;
        }
        std::os::unix::fs::symlink("notes/eagle.txt", source.join("first"))?;
    }

    let before = read_tree(&Host::new(&source)?)?;
    let volume = Volume::create(scratch.path().join("volume"), 1 << 30)?;
    let files = volume.files(Credentials::of_process());
    for (path, node) in &before {
        write_node(&files, path, node)?;
    }
    println!("imported {} entries", before.len());

    agent(&files)?;

    let after = read_tree(&files)?;
    let export = scratch.path().join("difference");
    fs::create_dir(&export)?;
    let host = Host::new(&export)?;
    for (path, node) in after.iter().filter(|(path, node)| before.get(*path) != Some(*node)) {
        let sign = if before.contains_key(path) { "changed" } else { "new" };
        println!("{sign:>8}  {}", path.display());
        write_node(&host, path, node)?;
    }
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        println!("{:>8}  {}", "removed", path.display());
    }

    assert!(read_tree(&Host::new(&source)?)? == before, "the agent cannot change the host");
    if argument.is_none() {
        assert_eq!(read_tree(&host)?.len(), 6, "four files in two directories");
        assert_eq!(host.metadata("notes/owl.txt")?.mode, 0o755);
    }
    drop(files);
    volume.close()?;
    Ok(())
}
