//! Built-in scripts that reuse storage, fill directories, make the journal start over, or make many changes
//! in one call, and pairs of scripts for two threads.

mod ahead;
mod syncs;

use std::fmt::Write as _;

use self::ahead::ahead;
pub use self::syncs::syncs_in_a_row;
use super::{ParallelScript, workload};
use crate::script::{Script, bytes};

/// The text of a script, to which lines are added.
#[derive(Default)]
struct Calls(String);

impl Calls {
    fn add(&mut self, line: impl AsRef<str>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{}", line.as_ref());
    }

    fn sync(&mut self) {
        self.add("sync");
    }

    fn script(&self) -> Script {
        Script::parse("stress script", self.0.as_bytes()).expect("a constant script")
    }
}

/// Returns a name of `length` bytes.
fn name(number: u64, length: usize) -> String {
    format!("{number}-{}", "n".repeat(length - 1 - number.to_string().len()))
}

/// Returns a script that writes files and values of many sizes and removes all of them except one file, so
/// that free storage holds old bytes.
pub fn used_before() -> Script {
    let mut calls = Calls::default();
    calls.add("creat /kept");
    calls.add("write /kept 0 5000 1");
    for (length, count) in [(48 << 10, 40), (4 << 10, 40), (900, 30), (60, 60)] {
        calls.add(format!("creat /used-{length}"));
        (0..count).for_each(|seed| calls.add(format!("append /used-{length} {length} {seed}")));
        (0..count / 2).for_each(|key| calls.add(format!("put / {length}-{key} {length} {key}")));
        (0..count / 2).for_each(|key| calls.add(format!("erase / {length}-{key}")));
        calls.add(format!("unlink /used-{length}"));
    }
    calls.script()
}

/// Returns scripts whose new objects reuse the storage that [`used_before`] freed.
pub fn reuse() -> Vec<Script> {
    vec![ahead(), headers(), sparse_files(), pieces(), values(), again()]
}

/// Returns a script that makes so many objects that their headers need a second header chunk.
fn headers() -> Script {
    let mut calls = Calls::default();
    for directory in 0..3 {
        calls.add(format!("mkdir /{directory}"));
        let puts: String = (0..100).map(|key| format!(" put {key} 0 0")).collect();
        calls.add(format!("batch /{directory}{puts}"));
    }
    calls.add("creat /last");
    calls.script()
}

/// Returns a script that writes past the ends of files.
fn sparse_files() -> Script {
    let mut calls = Calls::default();
    for (number, (first, offset)) in
        [(10, 900), (100, 3000), (2000, 3900), (5000, 12_000), (4096, 30_000)].iter().enumerate()
    {
        calls.add(format!("creat /gap-{number}"));
        calls.add(format!("write /gap-{number} 0 {first} {number}"));
        calls.add(format!("truncate /gap-{number} {}", first / 2));
        calls.add(format!("write /gap-{number} {offset} 50 {number}"));
        calls.add(format!("truncate /gap-{number} {}", offset * 2));
        calls.add(format!("put / value-{number} {first} 9"));
    }
    // The last extent of these files has room past the end of the file.
    for (number, (first, offset)) in [(2500, 3500), (5000, 7000), (9000, 11_000)].iter().enumerate() {
        calls.add(format!("creat /room-{number}"));
        calls.add(format!("write /room-{number} 0 {first} {number}"));
        calls.add(format!("write /room-{number} {offset} 100 {number}"));
    }
    calls.script()
}

/// Returns a script that turns files of one large extent into trees, while other files reuse the freed parts
/// of the extent.
fn pieces() -> Script {
    let mut calls = Calls::default();
    for (number, size) in [17_000, 20_500, 33_000, 45_000].iter().enumerate() {
        calls.add(format!("put / piece-{number} {size} {number}"));
        calls.add(format!("write /piece-{number} 100 50 7"));
        calls.add(format!("put / other-{number} 4096 8"));
        calls.add(format!("write /piece-{number} 9000 4000 9"));
        calls.add(format!("creat /more-{number}"));
        calls.add(format!("append /more-{number} 3000 10"));
        calls.add(format!("truncate /piece-{number} {}", size / 2));
        calls.add(format!("append /more-{number} 6000 11"));
    }
    calls.script()
}

/// Returns a script that replaces small values, which share pages with other values.
fn values() -> Script {
    let mut calls = Calls::default();
    for round in 0..4 {
        for key in 0..8 {
            calls.add(format!("put / small-{key} {} {round}", 60 + 200 * (key % 4)));
        }
        for key in 0..8 {
            if key % 3 != round % 3 {
                calls.add(format!("erase / small-{key}"));
            }
        }
        calls.add(format!("put / page-{round} 4096 {round}"));
        calls.add(format!("setxattr /kept user.round {round}"));
    }
    calls.script()
}

/// Returns a script that makes objects, removes them, and makes them again with the same names.
fn again() -> Script {
    let mut calls = Calls::default();
    for round in 0..6 {
        calls.add(format!("mkdir /again 07{round}0"));
        calls.add("creat /again/file");
        calls.add(format!("write /again/file 0 {} {round}", 3000 * (round + 1)));
        calls.add("rename /again/file /kept-2");
        calls.add("link /kept-2 /again/other");
        calls.add("unlink /kept-2");
        calls.add("unlink /again/other");
        calls.add("rmdir /again");
    }
    calls.script()
}

/// Returns scripts for a disk with several calls in each cut. A cut may have the split of a bucket page and a
/// removal from the page, or objects that are made, removed and made again.
pub fn several_calls() -> Vec<Script> {
    let growth = workload::growth().into_iter().map(|script| workload::synced_every(&script, 7));
    let mut scripts = vec![workload::synced_every(&turnover(), 6), workload::synced_every(&again(), 20)];
    scripts.extend(growth);
    scripts
}

/// Returns a script that adds names to a directory, and removes one name after every four additions.
fn turnover() -> Script {
    let mut calls = Calls::default();
    calls.add("mkdir /turnover");
    for number in 0..160 {
        calls.add(format!("creat \"/turnover/a name of some length {number}\""));
        if number % 4 == 3 {
            calls.add(format!("unlink \"/turnover/a name of some length {}\"", number / 2));
        }
    }
    calls.script()
}

/// Returns a script that fills bucket pages with long names, and a script that fills them with short names.
/// Some buckets then need more than one page, and entries go to slots in other lines of their page. At the
/// end most names are removed, and the buckets merge.
pub fn long_names() -> Vec<Script> {
    let mut calls = Calls::default();
    calls.add("mkdir /long");
    for (batch, length) in [230, 200, 255, 180].into_iter().enumerate() {
        let puts: String = (0..9)
            .map(|number| {
                format!(" put {} {} {number}", name(batch as u64 * 9 + number, length), number % 2 * 30)
            })
            .collect();
        calls.add(format!("batch /long{puts}"));
        calls.add(format!("creat /long/{}", name(100 + batch as u64, 240)));
        calls.add(format!("creat /long/{}", name(200 + batch as u64, 250)));
    }
    for number in 0..18 {
        calls.add(format!("rename /long/{} /long/{number}", name(number, [230, 200][number as usize / 9])));
    }
    for batch in 0..4 {
        calls.add(format!("unlink /long/{}", name(100 + batch, 240)));
        let erases: String = match batch {
            0 | 1 => (0..9).map(|number| format!(" erase {}", batch * 9 + number)).collect(),
            _ => (0..7)
                .map(|number| format!(" erase {}", name(batch * 9 + number, [255, 180][batch as usize - 2])))
                .collect(),
        };
        calls.add(format!("batch /long{erases}"));
    }
    let long = calls.script();
    // With short names a line runs out of slots before its page is full.
    let mut calls = Calls::default();
    calls.add("mkdir /short");
    (0..60).for_each(|number| calls.add(format!("creat /short/{number}")));
    (0..60).step_by(2).for_each(|number| calls.add(format!("unlink /short/{number}")));
    (0..40).for_each(|number| calls.add(format!("symlink x /short/s{number}")));
    (0..38).for_each(|number| calls.add(format!("unlink /short/s{number}")));
    (1..56).step_by(2).for_each(|number| calls.add(format!("unlink /short/{number}")));
    vec![long, calls.script()]
}

/// Returns a script that adds names by batches until the hash table of a directory must become larger.
pub fn wide() -> Script {
    let mut calls = Calls::default();
    calls.add("mkdir /wide");
    for batch in 0..9 {
        let puts: String = (0..40).map(|key| format!(" put {} 0 0", batch * 40 + key)).collect();
        calls.add(format!("batch /wide{puts}"));
    }
    calls.add("creat /wide/last");
    calls.script()
}

/// Returns a script with batches of a few new and old keys, and the script of [`many_words`].
pub fn batches() -> Vec<Script> {
    let few = [
        "batch / put k 10 1 put new 40 2",
        "batch / put a-1 60 3 put a-2 0 4 put a-3 5000 5",
        "batch / erase k put k2 41 6 erase none put a-1 61 7",
        "batch /d put x 20 8 put y 20 9",
        "batch / erase a-1 erase a-2 erase a-3",
    ];
    let mut all: Vec<Script> =
        vec![Script::parse("batches", few.join("\n").as_bytes()).expect("a constant script")];
    all.push(many_words());
    all
}

/// Returns a script with a batch that changes more words than a redo slot holds.
pub fn many_words() -> Script {
    let mut calls = Calls::default();
    calls.add("mkdir /many");
    for part in 0..3 {
        let puts: String = (0..90).map(|key| format!(" put {} 8 {key}", part * 90 + key)).collect();
        calls.add(format!("batch /many{puts}"));
    }
    let changes: String = (0..265).map(|key| format!(" put {key} 9 {}", key + 1)).collect();
    calls.add(format!("batch /many{changes}"));
    calls.script()
}

/// Returns scripts with many syncs, for a disk with a small journal, which starts over several times.
pub fn restarts() -> Vec<Script> {
    // Records of equal size: after the journal starts over, new records begin at the offsets of old ones.
    let mut same = Calls::default();
    same.add("creat /a");
    same.add("write /a 0 64 0");
    same.sync();
    for seed in 1..80 {
        same.add(format!("write /a 8 8 {seed}"));
        same.sync();
    }
    // Small records, and some records of many sectors.
    let mut mixed = Calls::default();
    for file in 0..6 {
        mixed.add(format!("creat /{file}"));
        mixed.add(format!("write /{file} 0 200 {file}"));
    }
    mixed.sync();
    for round in 0_u64..40 {
        let file = round % 6;
        mixed.add(format!("write /{file} 16 8 {round}"));
        if round % 3 == 1 {
            (0..6).for_each(|file| mixed.add(format!("setxattr /{file} user.round {round}")));
        }
        if round % 4 == 2 {
            mixed.add(format!("rename /{file} /moved"));
            mixed.add(format!("rename /moved /{file}"));
        }
        mixed.sync();
    }
    // Names that are made and removed.
    let mut names = Calls::default();
    for round in 0_u64..40 {
        names.add(format!("creat /n{}", round % 7));
        if round % 2 == 1 {
            names.add(format!("unlink /n{}", (round + 3) % 7));
        }
        names.sync();
    }
    vec![same.script(), mixed.script(), names.script()]
}

/// Returns a script that makes a disk nearly full.
pub fn nearly_full() -> Script {
    let mut calls = Calls::default();
    for key in 0..5 {
        calls.add(format!("put / key-{key} 24K {key}"));
    }
    calls.add("put / old 24K 5");
    calls.sync();
    calls.add("erase / old");
    // A file whose extents are single pages.
    calls.add("creat /pages");
    (0..20).for_each(|piece| calls.add(format!("append /pages 5000 {piece}")));
    calls.add("creat /page");
    calls.add("write /page 0 3000 1");
    calls.script()
}

/// Returns scripts for a disk after [`nearly_full`]. They allocate the few free pages, free them and allocate
/// them again, within one cut and in several cuts.
pub fn reuse_of_disks() -> Vec<Script> {
    // Pages with lines in the journal are freed, and reused as fresh pages of a cut that is not small. So
    // these fresh pages go straight to their places, and not to the journal.
    let mut large = Calls::default();
    for round in 0..7 {
        large.add(format!("put / small 4096 {round}"));
        large.sync();
        large.add("erase / small");
        large.sync();
        large.add(format!("write /pages 0 {} {round}", (70 + round) << 10));
        large.sync();
    }
    // Pages of the durable cut are changed in place, freed and reused before the next cut.
    let mut early = Calls::default();
    for round in 0..6 {
        early.add(format!("append /page 100 {round}"));
        early.add("unlink /page");
        early.add(format!("put / taken 4000 {round}"));
        early.add(format!("write /pages 4096 70K {round}"));
        early.sync();
        early.add("erase / taken");
        early.add("creat /page");
        early.add(format!("write /page 0 3000 {round}"));
        early.sync();
    }
    let mut keys = Calls::default();
    for round in 0..5 {
        keys.add(format!("put / key-{round} 0 0"));
        keys.sync();
        keys.add(format!("put / large 60K {round}"));
        keys.sync();
        keys.add("erase / large");
        keys.add(format!("put / key-{round} 24K {}", round + 50));
        keys.sync();
    }
    // Small values take parts of pages that had other bytes before the volume was opened.
    let mut parts = Calls::default();
    for round in 0..5 {
        parts.add(format!("put / part-{round} {} {round}", 70 << round));
        parts.sync();
    }
    vec![parts.script(), large.script(), early.script(), keys.script()]
}

/// Returns a script that allocates storage for one file without a write to this file, and writes another
/// file.
pub fn given() -> Script {
    let mut calls = Calls::default();
    calls.add("creat /given");
    calls.add("fallocate /given allocate 0 400K");
    calls.add("creat /other");
    calls.add("write /other 0 3000 1");
    calls.script()
}

/// Returns scripts with a cut whose record does not fit in the journal after the records that are there
/// already. An empty journal would have room for the record.
pub fn full_journals() -> Vec<Script> {
    let mut scripts = Vec::new();
    for round in 0_u64..6 {
        let mut calls = Calls::default();
        // These calls write the earlier records, and leave a free page with lines in the journal.
        calls.add(format!("put / page {} {round}", 3000 + 150 * round));
        calls.add(format!("write /other 100 {} 2", 300 * round + 8));
        calls.sync();
        calls.add("erase / page");
        calls.add(format!("write /given 0 96K {round}"));
        calls.sync();
        // These changes in place need the journal. Each change takes less than half of the journal.
        calls.add(format!("write /given 96K 120K {round}"));
        calls.add(format!("write /given 216K {} {round}", (176 << 10) + 256 * round));
        calls.sync();
        calls.add("write /other 100 8 2");
        calls.sync();
        scripts.push(calls.script());
    }
    scripts
}

/// Number of keys with which one batch is larger than a journal of 64 KiB.
const MANY_KEYS: u32 = 900;

/// Returns a batch of [`MANY_KEYS`] short values in `/many`.
fn many_puts(seed: u64) -> String {
    let puts: String = (0..MANY_KEYS).map(|key| format!(" put {key} 70 {}", u64::from(key) + seed)).collect();
    format!("batch /many{puts}")
}

/// Returns a script that makes a file with storage to which nothing is written, another file, and a directory
/// of keys.
pub fn given_and_keys() -> Script {
    let mut calls = Calls::default();
    calls.add("creat /given");
    calls.add("fallocate /given allocate 0 160K");
    calls.add("creat /other");
    calls.add("write /other 0 3000 1");
    calls.add("mkdir /many");
    calls.add(many_puts(0));
    calls.script()
}

/// Returns scripts in which one call changes more lines than the whole journal holds. The later calls reuse
/// the free pages that held the rest of the journal record.
pub fn larger_than_journals() -> Vec<Script> {
    let mut scripts = Vec::new();
    for round in 1_u64..4 {
        let mut write = Calls::default();
        write.add(format!("write /given 4096 {} {round}", (60 << 10) * round / 2 + 77 * 1024));
        write.sync();
        write.add(format!("put / page 100K {round}"));
        write.sync();
        write.add("write /other 100 8 2");
        write.sync();
        scripts.push(write.script());
        let mut batch = Calls::default();
        batch.add(many_puts(round));
        batch.add(format!("write /given 4096 {} {round}", (60 << 10) * round / 2 + 77 * 1024));
        batch.sync();
        batch.add(format!("put / page 150K {round}"));
        batch.add("erase / page");
        batch.sync();
        batch.add(many_puts(round + 7));
        batch.sync();
        scripts.push(batch.script());
    }
    scripts
}

/// Returns the pair of scripts with this number for two threads. Each thread renames an object into the same
/// directory or creates an object there.
pub fn beside_moves(number: u64) -> (Script, ParallelScript) {
    const CALLS: [&str; 6] = [
        "rename /a /d/e/n1",
        "rename /f/z /d/e/n2",
        "rename /b /d/e/n3",
        "creat /d/e/n4",
        "rename /k /d/e/n5",
        "mkdir /d/e/n6",
    ];
    let script = |which: u64| {
        let mut calls = Calls::default();
        calls.add(CALLS[which as usize % CALLS.len()]);
        calls.script()
    };
    let first = number / 4 % 5;
    (script(first), ParallelScript { script: script(first + 1 + number / 20 % 5), seed: number })
}

/// Returns the pair of scripts with this number for two threads on a disk. Each thread makes calls and syncs.
/// Some calls of the two threads change the same objects.
pub fn beside_on_disk(number: u64) -> (Script, ParallelScript) {
    const CALLS: [&str; 12] = [
        "write /c 0 24 {}",
        "write /c 8 8 {}",
        "write /b 0 6000 {}",
        "write /a 0 100 {}",
        "write /tree 4096 8192 {}",
        "put / k 60 {}",
        "put / k2 5000 {}",
        "setxattr /b user.one {}",
        "chmod /d 0711",
        "rename /e /d/e2",
        "creat /d/new-{}",
        "mkdir /f/new-{}",
    ];
    let mut taken = 0;
    let mut script = |calls: usize, apart: usize| -> Script {
        let mut lines = Calls::default();
        for call in 0..calls {
            taken += 1;
            let word = bytes::word(number, taken);
            // One thread makes the calls with even indices, and the other thread makes the calls with odd
            // indices. So no call depends on a name that the other thread changes.
            let which = (word as usize % 6) * 2 + apart;
            lines.add(CALLS[which].replace("{}", &(word % 1000).to_string()));
            if call % 2 == apart || word.is_multiple_of(3) {
                lines.sync();
            }
        }
        lines.sync();
        lines.script()
    };
    let ours = script(4, 0);
    let theirs = script(4, 1);
    (ours, ParallelScript { script: theirs, seed: number })
}
