//! Names that all writers make in one directory. The clients of a service thus keep its grant in turn.

use eyrie::{Credentials, Errno, Files, PosixExt, Result, Volume};

/// The directory of all writers.
const TOGETHER: &str = "/together";

/// The names of one writer. Each has the number of the step with which the writer has made it. Before a
/// writer acknowledges a step, it makes the name of the step and removes its earlier names.
pub struct NamesOfWriter {
    files: Files,
    writer: usize,
    numbers: Vec<u64>,
}

impl NamesOfWriter {
    /// Finds the names of a writer that has acknowledged this step.
    ///
    /// # Errors A description of the names if the name of this step is lost, or an earlier name has come
    /// back. Errors of the volume.
    pub fn found(volume: &Volume, writer: usize, acknowledged: u64) -> std::result::Result<Self, String> {
        let files = volume.files(Credentials::root());
        let numbers = NamesOfWriter::numbers(&files, writer).map_err(|error| error.to_string())?;
        let is_there = acknowledged == 0 || numbers.iter().any(|&number| number >= acknowledged);
        if !is_there || numbers.iter().any(|&number| number < acknowledged) {
            return Err(format!("step {acknowledged} is acknowledged, and the names are {numbers:?}"));
        }
        Ok(NamesOfWriter { files, writer, numbers })
    }

    fn numbers(files: &Files, writer: usize) -> Result<Vec<u64>> {
        match files.create_dir(TOGETHER) {
            Err(error) if error.errno() != Errno::EXIST => return Err(error),
            _ => {}
        }
        let prefix = format!("{writer}-");
        let mut numbers = Vec::new();
        for entry in files.read_dir(TOGETHER)? {
            let name = String::from_utf8_lossy(entry?.name_bytes()).into_owned();
            numbers.extend(name.strip_prefix(&prefix).map(|number| number.parse::<u64>().expect("a number")));
        }
        Ok(numbers)
    }

    /// Makes the name of a step, and removes the earlier names. Returns false if the volume is full. The
    /// writer then does not acknowledge the step.
    ///
    /// # Errors
    /// All other errors of the volume.
    pub fn step(&mut self, number: u64) -> Result<bool> {
        let path = |number: u64| format!("{TOGETHER}/{}-{number}", self.writer);
        match self.files.write(path(number), number.to_string()) {
            Err(error) if error.errno() == Errno::NOSPC => return Ok(false),
            made => made?,
        }
        for earlier in std::mem::replace(&mut self.numbers, vec![number]) {
            if earlier != number {
                self.files.remove_file(path(earlier))?;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use eyrie::MediumChoice;

    use super::*;

    #[test]
    fn lost_and_returned_names_are_noticed() {
        let host = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let options = Volume::options().size(4 << 20).medium(MediumChoice::Dram);
        let volume = options.create(host.path().join("volume")).expect("room");
        let mut names = NamesOfWriter::found(&volume, 1, 0).expect("no names");
        for number in 1..=3 {
            assert!(names.step(number).expect("sound"));
        }
        assert_eq!(NamesOfWriter::found(&volume, 1, 3).expect("all are there").numbers, [3]);
        let error = |writer, step| NamesOfWriter::found(&volume, writer, step).err().expect("a wrong name");
        assert_eq!(error(1, 4), "step 4 is acknowledged, and the names are [3]");
        assert_eq!(error(11, 1), "step 1 is acknowledged, and the names are []");
        volume.files(Credentials::root()).write("/together/1-2", "").expect("room");
        assert!(error(1, 3).starts_with("step 3 is acknowledged, and the names are "));
    }
}
