//! `cluster.env`: how shells reach the cluster.
//!
//! Plain `NAME=value` lines, so that other programs read it easily too; the last line exports the names. It holds the secret
//! key, so only its owner may read it.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::Error;

/// What a shell learns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// Such as `http://127.0.0.1:9878`.
    pub s3_endpoint: String,
    /// `host:port`.
    pub om_address: String,
    /// `host:port`.
    pub scm_address: String,
    /// The access key of the user who started the cluster.
    pub access_key: String,
    /// Its secret.
    pub secret_key: String,
    /// What clients are to sign for.
    pub region: String,
    /// `om=12 scm=13 …`.
    pub pids: String,
    /// The cluster's folder.
    pub data: String,
}

impl Access {
    fn variables(&self) -> [(&'static str, String); 8] {
        [
            ("OZONE_S3_ENDPOINT", quoted(&self.s3_endpoint)),
            ("OZONE_OM_ADDRESS", quoted(&self.om_address)),
            ("OZONE_SCM_ADDRESS", quoted(&self.scm_address)),
            ("AWS_ACCESS_KEY_ID", quoted(&self.access_key)),
            ("AWS_SECRET_ACCESS_KEY", quoted(&self.secret_key)),
            ("AWS_REGION", quoted(&self.region)),
            ("OZONE_PIDS", format!("\"{}\"", self.pids)),
            ("OZONE_DATA", quoted(&self.data)),
        ]
    }

    fn render(&self) -> String {
        let variables = self.variables();
        let mut text: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        text.push_str("export");
        for (name, _) in &variables {
            text.push(' ');
            text.push_str(name);
        }
        text.push('\n');
        text
    }

    /// Writes the file whole or not at all, mode 0600.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Error> {
        replace(path, self.render().as_bytes()).map_err(Error::io("write", path))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the mode must be right from the first moment, which `Disk` does not offer"
)]
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("env.tmp");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// One word for a shell.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/:._-+@%".contains(&byte);
    match !value.is_empty() && value.bytes().all(plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.env");
        let access = Access {
            s3_endpoint: "http://127.0.0.1:9878".into(),
            om_address: "127.0.0.1:9862".into(),
            scm_address: "[::1]:9860".into(),
            access_key: "o'neil$HOME".into(),
            secret_key: "00ff".into(),
            region: "eu-1".into(),
            pids: "om=12 scm=13 dn1=14".into(),
            data: "/tmp/a b/`c`".into(),
        };
        access.save(&path).unwrap();
        access.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().contains("\nOZONE_PIDS=\"om=12 scm=13 dn1=14\"\n"));
        // Exported, so that a program started from the shell has them.
        let script = format!(
            ". '{}'; sh -c 'printf \"%s\\n\" \"$OZONE_S3_ENDPOINT\" \"$OZONE_OM_ADDRESS\" \"$OZONE_SCM_ADDRESS\" \
             \"$AWS_ACCESS_KEY_ID\" \"$AWS_SECRET_ACCESS_KEY\" \"$AWS_REGION\" \"$OZONE_PIDS\" \"$OZONE_DATA\"'",
            path.display()
        );
        let output = std::process::Command::new("sh").args(["-euc", &script]).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let expected = [
            &access.s3_endpoint,
            &access.om_address,
            &access.scm_address,
            &access.access_key,
            &access.secret_key,
            &access.region,
            &access.pids,
            &access.data,
        ];
        assert_eq!(told.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&output.stderr));
    }
}
