//! The user's files: read ahead in pieces, written beside and renamed into place.
//!
//! A thread of its own reads or writes, a few pieces ahead of or behind the network, so that neither waits for the other and
//! memory stays at [`PIECES`] pieces.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use ozone_common::env::{Rng, SystemRng};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Bytes read at once: a chunk of the data path, which then travels without being copied together.
const PIECE: u64 = 1 << 20;
/// LIMIT: pieces that wait between file and network.
const PIECES: usize = 4;

/// Reads to the end, ahead of whoever takes the pieces. The last item may be an error.
pub fn read_ahead(mut from: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut piece = Vec::with_capacity(PIECE as usize);
            let (item, last) = match from.by_ref().take(PIECE).read_to_end(&mut piece) {
                Ok(0) => return,
                Ok(_) => (Ok(Bytes::from(piece)), false),
                Err(error) => (Err(error), true),
            };
            // An error: nobody takes pieces any more.
            if sender.blocking_send(item).is_err() || last {
                return;
            }
        }
    });
    receiver
}

/// A writer behind a thread.
pub struct Sink<W> {
    pieces: mpsc::Sender<Bytes>,
    thread: JoinHandle<io::Result<W>>,
}

impl<W: Write + Send + 'static> Sink<W> {
    /// Starts the thread.
    pub fn new(mut to: W) -> Self {
        let (pieces, mut waiting) = mpsc::channel::<Bytes>(PIECES);
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(piece) = waiting.blocking_recv() {
                to.write_all(&piece)?;
            }
            to.flush()?;
            Ok(to)
        });
        Self { pieces, thread }
    }

    /// Takes bytes; waits while [`PIECES`] others wait. `false`: the thread failed, and [`Sink::finish`] says why.
    pub async fn give(&self, bytes: Bytes) -> bool {
        self.pieces.send(bytes).await.is_ok()
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// The first one of the writer.
    pub async fn finish(self) -> io::Result<W> {
        drop(self.pieces);
        self.thread.await.map_err(io::Error::other)?
    }
}

/// Where a download goes, judged before anything is fetched.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    replace: bool,
}

impl Target {
    /// Takes the place for a key's bytes. A folder gets a file named as the last part of the key.
    ///
    /// # Errors
    /// Something is there and `replace` does not allow to replace it; or what is there is no file; or the key's last part
    /// can be no name of a file.
    pub fn new(path: &Path, key: &[u8], replace: bool) -> Result<Self> {
        let mut path = path.to_owned();
        if path.is_dir() {
            path.push(file_name(key)?);
        }
        // A link's file is replaced, not the link.
        if path.is_symlink() {
            path = path.canonicalize().with_context(|| format!("`{}`", path.display()))?;
        }
        match fs::symlink_metadata(&path) {
            Ok(_) if !replace => bail!("`{}` is there already; --force replaces it", path.display()),
            Ok(there) if !there.is_file() => {
                bail!("`{}` is no file; `ozone sh key cat` writes to stdout", path.display())
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("`{}`", path.display())),
        }
        Ok(Self { path, replace })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Makes the file beside the place.
    ///
    /// # Errors
    /// Those of the file system.
    #[expect(clippy::disallowed_methods, reason = "the user's own file, not one of the cluster")]
    pub fn begin(&self) -> Result<(Partial, fs::File)> {
        let path = self.folder().join(format!(".ozone-{:016x}.partial", SystemRng.next_u64()));
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok((Partial { path, published: false }, file))
    }

    /// Makes the bytes durable and gives the file its name. Blocks.
    ///
    /// # Errors
    /// Those of the file system; somebody else made a file of that name meanwhile. The partial file is then removed.
    #[expect(clippy::disallowed_methods, reason = "the user's own file, not one of the cluster")]
    pub fn publish(&self, mut partial: Partial, file: &fs::File) -> Result<()> {
        let place = || format!("cannot make `{}`", self.path.display());
        file.sync_data().with_context(place)?;
        // ORDER: bytes before the name, so that a power loss leaves no empty file under it.
        if self.replace {
            fs::rename(&partial.path, &self.path).with_context(place)?;
        } else {
            match renameat_with(CWD, &partial.path, CWD, &self.path, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                // A file system without that flag: a second name fails likewise where the first is taken.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                    fs::hard_link(&partial.path, &self.path).with_context(place)?;
                    fs::remove_file(&partial.path).with_context(place)?;
                }
                Err(error) => return Err(io::Error::from(error)).with_context(place),
            }
        }
        partial.published = true;
        fs::File::open(self.folder()).and_then(|folder| folder.sync_all()).with_context(place)
    }
}

/// A file that has not got its name yet; dropped before, it is removed.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    published: bool,
}

impl Drop for Partial {
    #[expect(clippy::disallowed_methods, reason = "the user's own file, not one of the cluster")]
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = fs::remove_file(&self.path)
        {
            eprintln!("ozone: cannot remove `{}`: {error}", self.path.display());
        }
    }
}

/// The last part of a key, where it can be the name of a file.
fn file_name(key: &[u8]) -> Result<&std::ffi::OsStr> {
    let last = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let usable = !matches!(last, b"" | b"." | b"..") && last.len() <= 255 && !last.contains(&0);
    if !usable {
        bail!("the last part of the key can be no name of a file; name one");
    }
    Ok(std::os::unix::ffi::OsStrExt::from_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn put(target: &Target, bytes: &[u8]) -> Result<()> {
        let (partial, mut file) = target.begin()?;
        file.write_all(bytes)?;
        target.publish(partial, &file)
    }

    #[test]
    fn a_file_appears_whole_and_replaces_only_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a");
        put(&Target::new(&place, b"k", false).unwrap(), b"one").unwrap();
        assert!(Target::new(&place, b"k", false).unwrap_err().to_string().contains("--force"));
        put(&Target::new(&place, b"k", true).unwrap(), b"two").unwrap();
        assert_eq!((fs::read(&place).unwrap(), names(folder.path())), (b"two".to_vec(), vec!["a".to_owned()]));

        // Somebody makes the file while ours is fetched.
        let late = folder.path().join("late");
        let target = Target::new(&late, b"k", false).unwrap();
        put(&Target::new(&late, b"k", false).unwrap(), b"theirs").unwrap();
        assert!(put(&target, b"ours").is_err());
        assert_eq!((fs::read(&late).unwrap(), names(folder.path()).len()), (b"theirs".to_vec(), 2));

        // Given up in the middle.
        drop(Target::new(&folder.path().join("b"), b"k", false).unwrap().begin().unwrap());
        assert_eq!(names(folder.path()), ["a", "late"]);
    }

    #[test]
    fn folders_take_the_last_part_and_devices_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let inside = Target::new(folder.path(), b"x/y/name", false).unwrap();
        assert_eq!(inside.path(), folder.path().join("name"));
        for key in [&b"x/"[..], b"x/..", b".", b"a\0b", &[b'k'; 256]] {
            assert!(Target::new(folder.path(), key, false).is_err(), "{key:?}");
        }
        assert!(Target::new(Path::new("/dev/null"), b"k", true).unwrap_err().to_string().contains("is no file"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(Target::new(&link, b"k", true).unwrap_err().to_string().contains("`/dev/null` is no file"));
    }

    #[tokio::test]
    async fn pieces_arrive_in_order_and_errors_last() {
        struct Broken(usize);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if self.0 == 0 {
                    return Err(io::Error::other("the disk is gone"));
                }
                let n = self.0.min(buffer.len());
                buffer[..n].fill(7);
                self.0 -= n;
                Ok(n)
            }
        }
        let whole: Vec<u8> = (0..3_500_000u32).map(|i| i as u8).collect();
        let mut pieces = read_ahead(io::Cursor::new(whole.clone()));
        let sink = Sink::new(Vec::new());
        while let Some(piece) = pieces.recv().await {
            assert!(sink.give(piece.unwrap()).await);
        }
        assert_eq!(sink.finish().await.unwrap(), whole);

        let mut pieces = read_ahead(Broken(3 << 20));
        for _ in 0..3 {
            assert_eq!(pieces.recv().await.unwrap().unwrap().len(), 1 << 20);
        }
        assert!(pieces.recv().await.unwrap().is_err());
        assert!(pieces.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_sink_that_fails_says_why() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sink = Sink::new(Full);
        while sink.give(Bytes::from_static(b"x")).await {}
        assert_eq!(sink.finish().await.map(|_| ()).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
