//! `ozone completion`: what a shell must know to complete the command line.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

/// What the parser knows about `ozone completion`.
#[derive(Args, Debug)]
pub struct Completion {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
    /// For which program
    #[arg(long, value_enum, default_value = "ozone")]
    program: Program,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The two names of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Program {
    /// Every role and every tool
    Ozone,
    /// `ozone sh`
    OzoneSh,
}

impl Completion {
    /// Prints the script. `command` gives the grammar of a program.
    pub fn run(&self, command: impl FnOnce(Program) -> clap::Command) -> Result<ExitCode> {
        let mut command = command(self.program);
        let name = command.get_name().to_owned();
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, name, &mut script);
        io::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
