//! `ozone s3`: the secrets with which users sign S3 requests.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use ozone_client::proto::om::v1 as om;
use serde::Serialize;

use crate::connect::{ClusterArgs, Needs};
use crate::render::{self, Output};

/// What the parser knows about `ozone s3`.
#[derive(Args, Debug)]
pub struct S3 {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows a user's secret; makes one where there is none
    #[command(visible_alias = "getSecret")]
    Getsecret {
        /// Whose [default: the caller]
        #[arg(short, long = "user", value_name = "USER")]
        user: Option<String>,
        /// Print lines for a shell to evaluate
        #[arg(short, long, conflicts_with = "json")]
        export: bool,
    },
    /// Takes a user's secret away: what it signed is refused from then on
    #[command(visible_alias = "revokeSecret")]
    Revokesecret {
        /// Whose
        #[arg(short, long = "user", value_name = "USER")]
        user: String,
    },
}

impl S3 {
    /// Runs the command.
    pub fn run(self) -> Result<ExitCode> {
        let output = self.output;
        let done = match self.command {
            Command::Getsecret { user, export } => {
                let user = match user {
                    Some(user) => user,
                    None => self.cluster.user(),
                };
                self.cluster.run(Needs::Om, None, async |at| {
                    let secret = at.client.get_secret(&at.context(), om::GetSecret { user, create: true }).await?;
                    Ok(output.show(&Secret::from(&secret), || describe(&secret, export))?)
                })
            }
            Command::Revokesecret { user } => self.cluster.run(Needs::Om, None, async |at| {
                at.client.revoke_secret(&at.context(), om::RevokeSecret { user: user.clone() }).await?;
                Ok(output.line(format_args!("the secret of {} is revoked", render::name(user.as_bytes())))?)
            }),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// Ozone's two lines, or the same for a shell.
fn describe(secret: &om::Secret, export: bool) -> String {
    let om::Secret { access_key, secret_key, .. } = secret;
    match export {
        true => format!(
            "export AWS_ACCESS_KEY_ID={}\nexport AWS_SECRET_ACCESS_KEY={}\n",
            quoted(access_key),
            quoted(secret_key)
        ),
        false => format!("awsAccessKey={}\nawsSecret={}\n", render::name(access_key.as_bytes()), secret_key),
    }
}

/// A word that no shell takes apart.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A secret as JSON has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Secret<'a> {
    access_key: &'a str,
    secret_key: &'a str,
}

impl<'a> From<&'a om::Secret> for Secret<'a> {
    fn from(secret: &'a om::Secret) -> Self {
        Self { access_key: &secret.access_key, secret_key: &secret.secret_key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_three_forms() {
        let secret = om::Secret { access_key: "o'brien".into(), secret_key: "abc/+".into(), ..Default::default() };
        assert_eq!(describe(&secret, false), "awsAccessKey=o'brien\nawsSecret=abc/+\n");
        assert_eq!(
            describe(&secret, true),
            "export AWS_ACCESS_KEY_ID='o'\\''brien'\nexport AWS_SECRET_ACCESS_KEY='abc/+'\n"
        );
        let json = serde_json::to_string(&Secret::from(&secret)).unwrap();
        assert_eq!(json, r#"{"accessKey":"o'brien","secretKey":"abc/+"}"#);
    }
}
