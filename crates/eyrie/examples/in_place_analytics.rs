//! Analytics without copies: reads measurements where they are stored.
//!
//! A value or a range of a file in place is a slice of the mapped volume. A pin keeps the bytes of the slice
//! as they are, even if another thread replaces the value meanwhile. So a scan under one pin needs no lock
//! and makes no copy. Short pins are better, because the storage of replaced values is reused only after the
//! pin is dropped.

use std::error::Error;
use std::time::Instant;

use eyrie::{Credentials, KeyRange, Order, PosixExt, Store, Volume};

const CITIES: [&str; 4] = ["bonn", "oslo", "rome", "york"];
const DAYS: usize = 250;
/// Measurements of a day. Each is a temperature in hundredths of a degree, as two bytes.
const MEASUREMENTS: usize = 1440;

/// The sum, the number and the maximum of measurements, from slices of bytes that are in place or copied.
#[derive(Default)]
struct Summary {
    sum: i64,
    count: i64,
    highest: i16,
}

impl Summary {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(2) {
            let measurement = i16::from_le_bytes([pair[0], pair[1]]);
            self.sum += i64::from(measurement);
            self.highest = self.highest.max(measurement);
        }
        self.count += (bytes.len() / 2) as i64;
    }

    fn mean(&self) -> i64 {
        self.sum / self.count.max(1)
    }
}

/// Returns the measurements of a day in one city.
fn day(city: usize, day: usize) -> Vec<u8> {
    let measurement = |minute: usize| (city * 100 + day + minute) as i16;
    (0..MEASUREMENTS).flat_map(|minute| measurement(minute).to_le_bytes()).collect()
}

/// Summarises the values in `range`. Returns the summary, and the numbers of values in place and of copies.
fn summarise(store: &Store, range: KeyRange) -> eyrie::Result<(Summary, usize, usize)> {
    let (mut summary, mut in_place, mut copied) = (Summary::default(), 0, 0);
    let pin = store.pin();
    for entry in store.scan_in_place(range, Order::Unordered, &pin) {
        let (_key, value) = entry?;
        // Bytes that lie in several places are copied.
        match value.is_in_place() {
            true => in_place += 1,
            false => copied += 1,
        }
        summary.add(&value);
    }
    Ok((summary, in_place, copied))
}

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let volume = Volume::create(scratch.path().join("volume"), 64 << 20)?;
    let files = volume.files(Credentials::of_process());
    files.create_dir("/measurements")?;
    let store = volume.store("/measurements", Credentials::of_process())?;
    for (city, name) in CITIES.iter().enumerate() {
        for number in 0..DAYS {
            store.put(format!("{name}:{number:03}"), day(city, number))?;
        }
    }

    // All values, then those of one city.
    let start = Instant::now();
    let (all, in_place, copied) = summarise(&store, KeyRange::all())?;
    println!("{} measurements in {:.1?}: {in_place} values in place", all.count, start.elapsed());
    assert_eq!((in_place, copied), (CITIES.len() * DAYS, 0), "no byte was copied");
    assert_eq!(all.count as usize, CITIES.len() * DAYS * MEASUREMENTS);
    let (oslo, ..) = summarise(&store, KeyRange::prefix("oslo:"))?;
    println!("oslo: mean {}, highest {}", oslo.mean(), oslo.highest);
    assert_eq!(usize::try_from(oslo.highest)?, 100 + DAYS - 1 + MEASUREMENTS - 1);

    // One value: the pin keeps its bytes while another thread replaces it.
    let pin = store.pin();
    let before = store.get_in_place("rome:000", &pin)?.expect("it was put");
    let writer = store.clone();
    std::thread::spawn(move || writer.put("rome:000", vec![0; 2 * MEASUREMENTS]))
        .join()
        .expect("no panic")?;
    assert_eq!(&before[..], day(2, 0), "the view still has the bytes of its moment");
    let after = store.get_in_place("rome:000", &pin)?.expect("it was replaced");
    assert!(after.iter().all(|&byte| byte == 0));
    println!("a view keeps its {} bytes while the value is replaced", before.len());
    drop(pin);

    // A range of a file in place. Each day is one write here, so the file is in several pieces of storage.
    let file = files.options().read(true).append(true).create(true).open("/york")?;
    for number in 0..DAYS {
        file.append(&day(3, number))?;
    }
    let pin = files.pin();
    let mut last_hour = Summary::default();
    last_hour.add(&file.view(file.metadata()?.size - 2 * 60.., &pin)?);
    println!("york, last hour: mean {}, highest {}", last_hour.mean(), last_hour.highest);
    let mut year = Summary::default();
    for piece in file.pieces(.., &pin) {
        year.add(&piece?);
    }
    println!("york, {DAYS} days: mean {}, highest {}", year.mean(), year.highest);
    let (same, ..) = summarise(&store, KeyRange::prefix("york:"))?;
    assert_eq!((year.sum, year.count, year.highest), (same.sum, same.count, same.highest));
    drop(pin);

    drop((file, store, files));
    volume.close()?;
    Ok(())
}
