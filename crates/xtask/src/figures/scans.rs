//! Measures scans of stores with 10 to 1,000,000 keys, on Eyrie and on tmpfs in alternation.

use std::path::Path;
use std::time::Instant;

use eyrie::{Credentials, HostStore, KeyRange, KeyValueStore, Order, PosixExt, Store, Volume};

use super::figure::{Figure, Measured, median};
use super::in_scratch;
use crate::run::Result;

/// Numbers of keys of the measured stores. Each value has [`VALUE_BYTES`].
const COUNTS: [u32; 4] = [10, 1000, 100_000, 1_000_000];
const VALUE_BYTES: usize = 100;
/// Number of rounds. There are few rounds, because a scan of the largest store takes long.
const ROUNDS: usize = 5;
const VOLUME_BYTES: u64 = 4 << 30;

/// Keys, and their values if a scan gave them.
type Pairs = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A kind of scan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanKind {
    Keys(Order),
    Values(Order),
    InPlace,
}

impl ScanKind {
    const ALL: [ScanKind; 5] = [
        ScanKind::Keys(Order::Unordered),
        ScanKind::Keys(Order::ByKey),
        ScanKind::Values(Order::Unordered),
        ScanKind::Values(Order::ByKey),
        ScanKind::InPlace,
    ];

    fn name(self) -> &'static str {
        match self {
            ScanKind::Keys(Order::ByKey) => "keys, by key",
            ScanKind::Keys(_) => "keys",
            ScanKind::Values(Order::ByKey) => "values, by key",
            ScanKind::Values(_) => "values",
            ScanKind::InPlace => "values in place",
        }
    }
}

/// Returns the number of items of a scan, and the sum of their bytes.
fn sum<T>(
    items: impl Iterator<Item = eyrie::Result<T>>,
    bytes: impl Fn(&T) -> usize,
) -> Result<(u32, usize)> {
    let mut sums = (0, 0);
    for item in items {
        sums = (sums.0 + 1, sums.1 + bytes(&item?));
    }
    Ok(sums)
}

/// Scans a store of `count` keys. Returns the time of a key in µs. If the store is in a volume, `volume` is
/// the same store. Otherwise the result of a scan in place is `None`.
fn time(
    store: &dyn KeyValueStore,
    volume: Option<&Store>,
    kind: ScanKind,
    count: u32,
) -> Result<Option<f64>> {
    let started = Instant::now();
    let all = KeyRange::all();
    let (found, bytes) = match (kind, volume) {
        (ScanKind::Keys(order), _) => sum(store.scan(all, order)?, Vec::len)?,
        (ScanKind::Values(order), _) => sum(store.scan_values(all, order)?, |(_, value)| value.len())?,
        (ScanKind::InPlace, Some(store)) => {
            let pin = store.pin();
            sum(store.scan_in_place(all, Order::Unordered, &pin), |(_, value)| value.len())?
        }
        (ScanKind::InPlace, None) => return Ok(None),
    };
    let took = started.elapsed();
    let each = if let ScanKind::Keys(_) = kind { key(0).len() } else { VALUE_BYTES };
    if (found, bytes) != (count, count as usize * each) {
        return Err(format!("a scan gave {found} of {count} keys, with {bytes} bytes").into());
    }
    Ok(Some(took.as_secs_f64() * 1e6 / f64::from(count)))
}

/// Returns the key with this number. The order of the keys is not the order in which they are put.
fn key(number: u32) -> String {
    format!("key-{:08x}", number.wrapping_mul(0x9e37_79b1))
}

/// Returns the value of a key: its bytes, again and again.
fn value(key: &[u8]) -> Vec<u8> {
    key.iter().copied().cycle().take(VALUE_BYTES).collect()
}

/// Returns the keys and values of a scan, in the order of the scan. A scan of keys alone has no values.
/// Returns `None` if the side lacks the scan.
fn pairs(store: &dyn KeyValueStore, volume: Option<&Store>, kind: ScanKind) -> Result<Option<Pairs>> {
    let all = KeyRange::all();
    let found: eyrie::Result<Pairs> = match (kind, volume) {
        (ScanKind::Keys(order), _) => store.scan(all, order)?.map(|key| Ok((key?, None))).collect(),
        (ScanKind::Values(order), _) => {
            store.scan_values(all, order)?.map(|pair| pair.map(|(key, value)| (key, Some(value)))).collect()
        }
        (ScanKind::InPlace, Some(store)) => {
            let pin = store.pin();
            let scan = store.scan_in_place(all, Order::Unordered, &pin);
            scan.map(|pair| pair.map(|(key, value)| (key.to_vec(), Some(value.to_vec())))).collect()
        }
        (ScanKind::InPlace, None) => return Ok(None),
    };
    Ok(Some(found?))
}

/// Fails unless the pairs are those of all keys of a store of `count` keys.
fn compare_pairs(pairs: Option<Pairs>, count: u32) -> Result<()> {
    let Some(mut pairs) = pairs else { return Ok(()) };
    let is_right =
        |(key, found): &(Vec<u8>, Option<Vec<u8>>)| found.as_ref().is_none_or(|found| *found == value(key));
    if let Some((key, _)) = pairs.iter().find(|pair| !is_right(pair)) {
        return Err(format!("a scan gave another value of {}", String::from_utf8_lossy(key)).into());
    }
    pairs.sort_unstable();
    let mut keys: Vec<String> = (0..count).map(key).collect();
    keys.sort_unstable();
    if !pairs.iter().map(|(key, _)| &key[..]).eq(keys.iter().map(String::as_bytes)) {
        return Err(format!("a scan of {count} keys gave other keys").into());
    }
    Ok(())
}

/// Measures both sides below `memory`, a directory of a tmpfs.
pub fn measure(memory: &Path) -> Result<Vec<Figure>> {
    in_scratch(memory, "scans", |path| compare(&path.join("volume"), &path.join("host")))
}

/// Fills the stores, measures every scan on both sides, and prints the times.
fn compare(volume: &Path, host: &Path) -> Result<Vec<Figure>> {
    std::fs::create_dir_all(host)?;
    let volume = Volume::create(volume, VOLUME_BYTES)?;
    let files = volume.files(Credentials::of_process());
    let mut rows = ScanKind::ALL.map(|_| String::new());
    let mut figures = Vec::new();
    for count in COUNTS {
        let dir = format!("of-{count}");
        files.create_dir(format!("/{dir}"))?;
        std::fs::create_dir(host.join(&dir))?;
        let ours = volume.store(format!("/{dir}"), Credentials::of_process())?;
        let theirs = HostStore::open(host.join(&dir))?;
        for number in 0..count {
            let key = key(number);
            ours.put(&key, value(key.as_bytes()))?;
            theirs.put(&key, value(key.as_bytes()))?;
        }
        for (kind, row) in ScanKind::ALL.into_iter().zip(&mut rows) {
            let (mut on_ours, mut on_theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                on_ours.extend(time(&ours, Some(&ours), kind, count)?);
                on_theirs.extend(time(&theirs, None, kind, count)?);
            }
            compare_pairs(pairs(&ours, Some(&ours), kind)?, count)?;
            compare_pairs(pairs(&theirs, None, kind)?, count)?;
            let ratio = Measured::of_ratios(&on_theirs, &on_ours);
            let (ours, theirs) = (median(&on_ours), median(&on_theirs));
            let cell =
                if theirs.is_nan() { format!("{ours:.3}") } else { format!("{ours:.3} / {theirs:.3}") };
            *row += &format!("{cell:>18}");
            if let ScanKind::Values(Order::Unordered) = kind {
                let name = format!("scan with values, of {count}");
                figures.push(Figure::at_least(name, 1.0, ratio, " × tmpfs"));
            }
        }
    }
    println!("µs a key, Eyrie / tmpfs, in a store of so many keys with values of {VALUE_BYTES} bytes");
    println!("{:24}{}", "", COUNTS.map(|count| format!("{count:>18}")).concat());
    for (kind, row) in ScanKind::ALL.into_iter().zip(rows) {
        println!("{:24}{row}", kind.name());
    }
    drop(files);
    volume.close()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_and_values_are_noticed() {
        let pair = |number| (key(number).into_bytes(), Some(value(key(number).as_bytes())));
        let right: Pairs = (0..3).rev().map(pair).collect();
        compare_pairs(Some(right.clone()), 3).expect("all pairs are right");
        let mut changed = right.clone();
        changed[1].1.as_mut().expect("a value")[VALUE_BYTES - 1] ^= 1;
        let error = |pairs: Pairs| compare_pairs(Some(pairs), 3).expect_err("a pair is wrong").to_string();
        assert!(error(changed).starts_with("a scan gave another value of key-"));
        for wrong in [right[1..].to_vec(), [&right[..2], &right[..1]].concat()] {
            assert_eq!(error(wrong), "a scan of 3 keys gave other keys");
        }
    }
}
