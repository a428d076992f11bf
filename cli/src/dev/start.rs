//! Starting: in the foreground, or by a process that is left behind.

use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use ozone_cluster::{Cluster, Error, Home, Role, Settings};
use ozone_common::env::Env;
use ozone_common::telemetry::TelemetryConfig;
use tokio_util::sync::CancellationToken;

use super::StartArgs;
use crate::runtime;

/// Starts this program again with the same flags, in a session of its own, and returns when the cluster serves or did not start.
pub fn detach() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut child = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", program.display()))?;
    // The child closes its end when it serves; what it wrote until then is for the user.
    let mut told = String::new();
    child.stdout.take().expect("it was piped").read_to_string(&mut told)?;
    if told.is_empty() {
        let status = child.wait()?;
        return Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
    }
    show(&told);
    Ok(ExitCode::SUCCESS)
}

/// Starts and serves until a signal.
pub fn run(args: &StartArgs) -> anyhow::Result<ExitCode> {
    let spec = args.spec()?;
    if args.detached {
        rustix::process::setsid().context("cannot begin a session")?;
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let runtime = runtime::build()?;
    let outcome = runtime.block_on(async {
        let env = Env::system();
        let stop = CancellationToken::new();
        runtime::stop_on_signal(&stop)?;
        let starting = async {
            match args.processes {
                true => Cluster::start_apart(&spec, &env, &stop, &program).await,
                false => Cluster::start_here(&spec, &env, &stop, begin_logs).await,
            }
        };
        let cluster = starting.await?;
        show(&describe(&cluster, args));
        if args.detached {
            if args.processes {
                return Ok(()); // the roles stay behind
            }
            leave_terminal(cluster.home())?;
        }
        cluster.run(stop, |lost| eprintln!("ozone dev: {lost}; the others go on")).await?;
        Ok::<_, anyhow::Error>(())
    });
    runtime::finish(runtime);
    outcome.map(|()| ExitCode::SUCCESS)
}

fn begin_logs(home: &Home, settings: &Settings) -> Result<(), Error> {
    let telemetry = TelemetryConfig {
        log_file: Some(home.log().join("ozone.log")),
        audit_file: Some(home.log().join("audit.log")),
        ..settings.telemetry.clone()
    };
    runtime::start_logs(&telemetry).map_err(|error| Error::Settings(format!("{error:#}")))
}

/// Gives the starter's terminal back: stdout and stderr go to a file from now on.
#[expect(clippy::disallowed_methods, reason = "a log is not users' data")]
fn leave_terminal(home: &Home) -> anyhow::Result<()> {
    let path = home.log().join("ozone.err");
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    let file = file.with_context(|| format!("cannot open `{}`", path.display()))?;
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    Ok(())
}

/// Writes to stdout. Where nobody reads it the cluster serves all the same.
fn show(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(%error, "stdout cannot be written");
    }
}

fn describe(cluster: &Cluster, args: &StartArgs) -> String {
    let (access, settings, home) = (cluster.access(), cluster.settings(), cluster.home());
    let datanodes = settings.dev.datanodes;
    let mode = if args.processes { "each in a process of its own" } else { "in one process" };
    let program = std::env::current_exe().map_or("ozone".into(), |path| path.display().to_string());
    let ozone = |verb: &str| format!("{program} dev {verb} --data {}", home.path().display());
    let (_, om_status) = settings.addresses(Role::Om);
    let env = home.env_file();
    format!(
        "O3 serves from {data}: OM, SCM, {datanodes} datanode{s} and S3 gateway, {mode}\n\
         \n\
         \x20 S3          {s3}\n\
         \x20 OM          {om} (metrics and health: http://{om_status}/metrics)\n\
         \x20 SCM         {scm}\n\
         \x20 access key  {access_key}\n\
         \x20 secret key  {secret_key}\n\
         \x20 processes   {pids}\n\
         \x20 logs        {log}\n\
         \n\
         \x20 . {env}\n\
         \x20 aws --endpoint-url {s3} s3 mb s3://first\n\
         \n\
         status: {status}\n\
         stop:   {stop}\n",
        data = home.path().display(),
        s = if datanodes == 1 { "" } else { "s" },
        s3 = access.s3_endpoint,
        om = access.om_address,
        scm = access.scm_address,
        access_key = access.access_key,
        secret_key = access.secret_key,
        pids = access.pids,
        log = home.log().display(),
        env = env.display(),
        status = ozone("status"),
        stop = ozone("stop") + if args.detached { "" } else { ", or Ctrl-C" },
    )
}
