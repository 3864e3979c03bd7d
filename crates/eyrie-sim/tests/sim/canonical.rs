//! Tests of canonical trees: the trees are equal for equal contents, and different after each of several
//! changes. Times count only if the caller asks for them.

use eyrie::{Files, Kind, Posix, PosixExt};
use eyrie_sim::canonical::{self, CanonicalParts};

use crate::{on_volume, run, succeed};

const BUILD: &str = "\
mkdir /dir 0711
mkdir /dir/inner
creat /dir-b 0600
creat /dir/a
write /dir/a 0 5000 1
append /dir/a 100 2
link /dir/a /dir/inner/same
symlink ../a /dir/inner/link
setxattr /dir user.b \"1 2\"
setxattr /dir/a user.a \"\"
setxattr /dir/a user.c=d \"\\xff\"
chown /dir-b 5 6
utimes /dir-b 1 2.5
creat \"/a b\\n\"
";

fn text(files: &Files) -> String {
    canonical::text(files, "/", CanonicalParts::default()).unwrap()
}

fn after(script: &str) -> String {
    on_volume(|files| {
        succeed(files, script);
        text(files)
    })
}

#[test]
fn a_tree_is_told_in_the_order_of_paths() {
    let found = on_volume(|files| {
        succeed(files, BUILD);
        files.mknod("/dev".into(), Kind::CharDevice, 0o620, 0x103).unwrap();
        files.mknod("/pipe".into(), Kind::Fifo, 0o600, 0).unwrap();
        text(files)
    });
    let empty = "size=0 xxh3=99aa06d3014798d86001c324468d497f";
    let mut content = vec![0; 5100];
    eyrie_sim::script::bytes::fill(1, 0, &mut content[..5000]);
    eyrie_sim::script::bytes::fill(2, 5000, &mut content[5000..]);
    let hash = xxhash_rust::xxh3::xxh3_128(&content);
    let expected = format!(
        "\
/ directory mode=0755 uid=0 gid=0 links=3
\"/a b\\n\" file mode=0644 uid=0 gid=0 links=1 {empty}
/dev char-device mode=0620 uid=0 gid=0 links=1 device=0x103
/dir directory mode=0711 uid=0 gid=0 links=3 xattr=user.b=\"1 2\"
/dir-b file mode=0600 uid=5 gid=6 links=1 {empty}
/dir/a file mode=0644 uid=0 gid=0 links=2 size=5100 xxh3={hash:032x} \
xattr=user.a=\"\" xattr=\"user.c=d\"=\"\\xff\"
/dir/inner directory mode=0755 uid=0 gid=0 links=2
/dir/inner/link symlink mode=0777 uid=0 gid=0 links=1 target=../a
/dir/inner/same same=/dir/a
/pipe fifo mode=0600 uid=0 gid=0 links=1
"
    );
    assert_eq!(found, expected);
}

#[test]
fn the_order_of_building_makes_no_difference() {
    let other = "\
creat \"/a b\\n\"
creat /x 0600
truncate /x 100
put / y 5000 1
append /y 100 2
setxattr /y user.c=d \"\\xff\"
setxattr /y user.a \"\"
truncate /x 0
mkdir /tmp
symlink ../a /tmp/link
mkdir /dir 0711
rename /tmp /dir/inner
setxattr /dir user.b wrong
setxattr /dir user.b \"1 2\"
link /y /dir/inner/same
rename /y /dir/a
chmod /dir/a 0644
chown /x 5 6
rename /x /dir-b
";
    assert_eq!(after(other), after(BUILD));
}

#[test]
fn holes_are_zeros() {
    let sparse = on_volume(|files| {
        succeed(files, "creat /a\ntruncate /a 3M\nwrite /a 1M 10 1");
        text(files)
    });
    let full = on_volume(|files| {
        let mut content = vec![0; 3 << 20];
        eyrie_sim::script::bytes::fill(1, 1 << 20, &mut content[1 << 20..][..10]);
        files.write("/a", content).unwrap();
        files.chmod("/a".into(), 0o644).unwrap();
        text(files)
    });
    assert_eq!(sparse, full);
}

#[test]
fn any_one_change_makes_a_difference() {
    on_volume(|files| {
        succeed(files, BUILD);
        let mut seen = vec![text(files)];
        for change in [
            "write /dir/a 5099 1 9",
            "truncate /dir/a 5099",
            "truncate /dir/a 5100",
            "chmod /dir/inner 0700",
            "chmod /dir-b 4600",
            "chown /dir 1 -1",
            "chown /dir -1 1",
            "setxattr /dir user.b \"1  2\"",
            "setxattr /dir-b user.b \"1 2\"",
            "removexattr /dir/a user.a",
            "rename /dir-b /dir-c",
            "rename /dir/inner /inner",
            "rename /dir/a /inner/link exchange",
            "unlink /inner/same",
            "link /dir-c /inner/same",
            "unlink /dir/a",
            "symlink ../b /dir/a",
            "mkdir /new",
        ] {
            assert!(run(files, change)[0].ends_with(" = 0"), "{change}");
            let now = text(files);
            assert!(!seen.contains(&now), "{change}");
            seen.push(now);
        }
    });
}

#[test]
fn which_names_are_one_object_makes_a_difference() {
    let start = "creat /a\ncreat /b\n";
    let pairs = after(&format!("{start}link /a /c\nlink /b /d"));
    let crossed = after(&format!("{start}link /b /c\nlink /a /d"));
    assert_ne!(pairs, crossed);
    assert!(pairs.contains("/c same=/a\n/d same=/b\n"), "{pairs}");
    assert!(crossed.contains("/c same=/b\n/d same=/a\n"), "{crossed}");
    let symlinks = after("symlink x /s\nlink /s /t");
    assert!(symlinks.contains("links=2 target=x\n/t same=/s\n"), "{symlinks}");
}

#[test]
fn times_are_told_if_asked_for() {
    on_volume(|files| {
        succeed(files, "creat /a\nutimes /a 1 2.5\nutimes / 7 -3");
        let before = text(files);
        succeed(files, "utimes /a 1 3.5");
        assert_eq!(text(files), before);
        let timed = canonical::text(files, "/", CanonicalParts { times: true }).unwrap();
        assert!(timed.contains("/a file mode=0644 uid=0 gid=0 links=1 mtime=3.500000000 size=0"), "{timed}");
        assert!(timed.starts_with("/ directory mode=0755 uid=0 gid=0 links=2 mtime=-3\n"), "{timed}");
    });
}

#[test]
fn a_tree_is_the_same_wherever_it_is() {
    on_volume(|files| {
        succeed(
            files,
            "mkdir /x\nmkdir /y\nmkdir /y/z\ncreat /x/a\ncreat /y/z/a\ncreat /x/b\nlink /x/b /y/z/b",
        );
        let at = |root| canonical::text(files, root, CanonicalParts::default());
        assert_eq!(at("/x").unwrap(), at("y/z//").unwrap());
        let file = at("/x/a").unwrap();
        assert!(file.starts_with("/ file ") && file.lines().count() == 1, "{file}");
        let error = at("/none").unwrap_err().to_string();
        assert_eq!(error, "stat /none: No such file or directory");
    });
}

#[test]
fn the_example_of_the_document_is_right() {
    let document = include_str!("../../../../docs/scripts.md");
    let (_, scripts) = document.split_once("## Scripts").unwrap();
    let (scripts, trees) = scripts.split_once("## Canonical trees").unwrap();
    let block = |text: &'static str| text.split("```\n").nth(1).unwrap();
    assert_eq!(after(block(scripts)), block(trees));
}
