//! Tests of trees so deep that the paths of their files are longer than a path of a call may be.

use eyrie::{Credentials, Dir, Host, Kind, Posix, PosixExt, Volume, WalkStep};

use crate::Sandbox;

/// Makes `levels` nested directories named `d`. Every hundredth directory and the last one have a file.
fn dig<P: Posix + Clone>(mut here: Dir<P>, levels: usize) {
    for level in 1..=levels {
        here.mkdir("d".into(), 0o755).unwrap();
        here = here.subdirectory("d").unwrap();
        if level % 100 == 0 || level == levels {
            here.write("file", level.to_string()).unwrap();
        }
    }
}

/// Returns the depth of the deepest file below `root`, and the number of files. `root` is the directory of
/// level 1 if `above` is 0, and its parent if `above` is 1. So the file in the directory of level `n` must
/// have the depth `n + above`.
fn deepest<P: Posix + Clone>(fs: &P, root: &str, above: usize) -> (usize, usize) {
    let (mut deepest, mut files) = (0, 0);
    for step in fs.walk(root).unwrap() {
        match step {
            WalkStep::Entry(found) if found.kind == Kind::File => {
                let bytes = found.dir().read(found.name()).unwrap();
                assert_eq!(bytes, (found.depth - above).to_string().into_bytes());
                (deepest, files) = (deepest.max(found.depth), files + 1);
            }
            WalkStep::Failed(_, error) => panic!("{error}"),
            WalkStep::Entry(_) | WalkStep::Left(_) => {}
        }
    }
    (deepest, files)
}

#[test]
fn walking_commands_handle_paths_above_the_limit() {
    /// A level adds two bytes to a path, so the deepest path is longer than the longest path of a call (4,095
    /// bytes).
    const LEVELS: usize = 2500;
    let sandbox = Sandbox::with_volume("64M");
    let host = Host::new(sandbox.path("")).unwrap();
    host.create_dir("tree").unwrap();
    dig(host.dir("tree").unwrap(), LEVELS);

    sandbox.succeed(["import", "tree", "vol:/tree"]);
    assert_eq!(sandbox.succeed(["find", "vol:/tree", "--name", "file"]).lines().count(), LEVELS / 100);
    assert_eq!(sandbox.succeed(["du", "vol:/tree"]).lines().count(), LEVELS + 1);
    assert!(sandbox.succeed(["tree", "vol:/tree"]).ends_with("directories, 25 files\n"));
    assert!(sandbox.succeed(["ls", "-R", "vol:/tree"]).lines().count() > 2 * LEVELS);
    sandbox.succeed(["cp", "-r", "vol:/tree", "vol:/copy"]);
    sandbox.succeed(["dump", "vol:/tree", "-o", "archive"]);
    sandbox.succeed(["export", "vol:/copy", "out"]);
    assert_eq!(deepest(&host, "out", 1), (LEVELS + 1, LEVELS / 100));
    sandbox.succeed(["mv", "vol:/copy", "moved"]);
    assert_eq!(deepest(&host, "moved", 1), (LEVELS + 1, LEVELS / 100));
    sandbox.succeed(["rm", "-r", "vol:/tree"]);
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
    for tree in ["tree", "out", "moved"] {
        host.remove_dir_all(tree).unwrap();
        assert!(!sandbox.path(tree).exists());
    }
}

#[test]
fn tree_of_twenty_thousand_levels_is_copied_and_removed() {
    /// A function that called itself for each level would overflow the stack of the command (8 MiB), unless a
    /// call took less than 420 bytes of it.
    const LEVELS: usize = 20_000;
    let sandbox = Sandbox::with_volume("256M");
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    dig(Dir::root(files.clone()), LEVELS);
    drop(files);
    volume.close().unwrap();

    sandbox.succeed(["cp", "-r", "vol:/d", "vol:/copy"]);
    sandbox.succeed(["rm", "-r", "vol:/d"]);
    let volume = Volume::open(sandbox.path("vol")).unwrap();
    let files = volume.files(Credentials::root());
    assert_eq!(deepest(&files, "/copy", 0), (LEVELS, LEVELS / 100));
    files.remove_dir_all("/copy").unwrap();
    assert_eq!(files.read_dir("/").unwrap().count(), 0);
    drop(files);
    volume.close().unwrap();
    assert!(sandbox.succeed(["fsck", "vol"]).contains("sound"));
}
