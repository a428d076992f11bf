//! An append-only text file that starts anew when it is large, keeping a few older ones.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

// LIMIT: bytes of one file, and how many older ones are kept beside it (`.1` is the newest).
const FILE_LENGTH_MAX: u64 = 64 << 20;
const OLDER_FILES_MAX: u32 = 4;

pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    length: u64,
    length_max: u64,
}

impl RotatingFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, FILE_LENGTH_MAX)
    }

    fn with_limit(path: &Path, length_max: u64) -> io::Result<Self> {
        let file = open_append(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, length, length_max })
    }

    /// Appends whole lines.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + lines.len() as u64 > self.length_max {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "logs are not users' data")]
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |n: u32| PathBuf::from(format!("{}.{n}", self.path.display()));
        for n in (1..OLDER_FILES_MAX).rev() {
            match std::fs::rename(numbered(n), numbered(n + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, numbered(1))?;
        self.file = open_append(&self.path)?;
        self.length = 0;
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "logs are not users' data")]
fn open_append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_moves_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.log");
        let mut file = RotatingFile::with_limit(&path, 10).unwrap();
        for line in ["aaaaaaaa\n", "b\n", "c\n", "dddddddd\n", "eeeeeeee\n", "ffffffff\n", "gggggggg\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join("logs").join(name)).ok();
        assert_eq!(read("audit.log").as_deref(), Some("gggggggg\n"));
        assert_eq!(read("audit.log.1").as_deref(), Some("ffffffff\n"));
        assert_eq!(read("audit.log.4").as_deref(), Some("b\nc\n"), "lines that fit together stay together");
        assert_eq!(read("audit.log.5"), None);
        drop(file);
        let mut file = RotatingFile::with_limit(&path, 100).unwrap();
        file.append(b"h\n").unwrap();
        assert_eq!(read("audit.log").as_deref(), Some("gggggggg\nh\n"), "an existing file is appended to");
    }
}
