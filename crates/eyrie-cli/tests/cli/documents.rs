//! Tests of `completions` and `man`.

use std::fs;
use std::process::Command;

use crate::Sandbox;

#[test]
fn every_shell_gets_completions() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = sandbox.succeed(["completions", shell]);
        for word in ["mkfs", "dump", "completions", "apparent-size", "erase"] {
            assert!(script.contains(word), "{word} is not in the completions of {shell}");
        }
    }
    sandbox.fail(2, &["tcsh", "bash"], ["completions", "tcsh"]);
    fs::write(sandbox.path("script"), sandbox.succeed(["completions", "bash"])).unwrap();
    let words = "COMP_WORDS=(eyrie du); COMP_CWORD=1; _eyrie eyrie du eyrie; echo ${COMPREPLY[@]}";
    let line = format!(". ./script; complete -p eyrie > /dev/null && {words}");
    let output = Command::new("bash").args(["-c", &line]).current_dir(sandbox.path("")).output().unwrap();
    let reply = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && reply.contains("du"), "{output:?}");
}

#[test]
fn every_command_has_a_page() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.succeed(["man", "share/man1"]), "");
    let mut names: Vec<String> = fs::read_dir(sandbox.path("share/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in ["eyrie.1", "eyrie-mkfs.1", "eyrie-dump.1", "eyrie-kv.1", "eyrie-kv-scan.1", "eyrie-man.1"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    let mut pages = 0;
    for name in &names {
        let page = fs::read_to_string(sandbox.path("share/man1").join(name)).unwrap();
        let command = name.trim_end_matches(".1").replace('-', " ");
        assert!(page.contains(".TH ") && page.contains("Examples:"), "{name}: {page}");
        assert!(page.replace("\\-", "-").contains(&format!("{command} ")), "{name}: {page}");
        pages += 1;
    }
    let all = sandbox.succeed(["man"]);
    assert_eq!(all.lines().filter(|line| line.starts_with(".TH ")).count(), pages);
    fs::write(sandbox.path("file"), "").unwrap();
    sandbox.fail(1, &["file"], ["man", "file"]);
}
